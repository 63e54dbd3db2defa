"""What the figures of the report share: figures in words, names of recipes, and where the figures come from."""

from collections import Counter
from collections.abc import Iterable, Sequence

from precision_api.exchange.request import attention_recipe, step_words
from precision_api.exchange.result import Interval, MeasurementResult
from precision_api.facts.recipes import recipe_name
from precision_operator.core.results.intervals import Spread, bounds_text
from precision_operator.core.results.reading import Reading
from precision_operator.drawing.svg import FAIL, FAINT, SMALL, words
from precision_operator.report.facts import PoolFigures, PoolRow


def spread_text(spread: Spread | Interval | None, digits: int = 2, unit: str = "") -> str:
    """`1.37x [1.35, 1.39]`; a range of few nodes says so; a dash for none."""
    if spread is None:
        return "–"
    # whole numbers of four digits, by way of a report's five: so it and the full result print alike
    values = (spread.value, spread.lower, spread.upper)
    value, lower, upper = values if digits else (float(f"{float(f'{bound:.5g}'):.4g}") for bound in values)
    text = f"{value:,.{digits}f}{unit}"
    kind = getattr(spread, "kind", "interval")
    bounds = "" if kind == "point" else bounds_text(lower, upper, digits)
    return f"{text} {bounds}" + (f" (range of {spread.n})" if kind == "range" else "") if bounds else text


def cell(value: float | None, form: str = ",.0f") -> str:
    """A dash for None."""
    return "–" if value is None else format(value, form)


EMULATED = "emulated"


def named(row: PoolRow) -> str:
    """The recipe's name; an emulated one is marked wherever it is drawn."""
    return f"{row.title} ({EMULATED})" if row.emulated else row.title


def row_name(row: PoolRow, right: float, y: float) -> str:
    """The recipe beside its bar, which ends at `right`, its baseline at `y`; below it its rest or what is special."""
    below = EMULATED if row.emulated else f"last {row.layers_bf16} in BF16" if row.layers_bf16 else ""
    name, rest = _in_two(row.recipe if row.parts else recipe_name(row.recipe))
    if rest:
        return words(right, y - 4, name, "end", SMALL) + words(right, y + 7, rest, "end", SMALL)
    mark = words(right, y + 11, below, "end", SMALL, FAIL if below == EMULATED else FAINT) if below else ""
    return words(right, y - (3 if mark else 0), name, "end") + mark


def _in_two(name: str, most: int = 12) -> tuple[str, str]:
    """A name for two lines of so many letters, cut before a hyphen or an underscore; empty second where it fits one."""
    if len(name) <= most:
        return name, ""
    at = max(name.rfind("_", 1, most + 1), name.rfind("-", 1, most + 1))
    at = at if at > 0 else most
    return name[:at], name[at:] if len(name) - at <= most + 1 else f"{name[at : at + most]}…"


def pool_head(pool: PoolFigures, y: float) -> str:
    """The pool's name over its rows, where a drawing has several pools."""
    nodes = f"{len(pool.nodes)} node{'s' if len(pool.nodes) != 1 else ''}"
    return words(2, y, f"{pool.name}, {nodes}", size=SMALL, fill=FAINT)


def speedup_text(speedup: Spread | None) -> str:
    """A speedup with as many digits as its interval is narrow."""
    narrow = speedup is not None and speedup.upper - speedup.lower < 0.02
    return spread_text(speedup, 3 if narrow else 2, "x")


def whose(nodes: Sequence[Reading]) -> str:
    return f"node {nodes[0].node}" if len(nodes) == 1 else f"{len(nodes)} nodes"


def of_nodes(nodes: Sequence[Reading]) -> str:
    """Where the figures of these nodes' reports come from."""
    runs = [node.run for node in nodes if node.run]
    engines = [node.software.transformer_engine or "unknown" for node in nodes if node.software]
    origins = _counted(node.data for node in nodes if node.data)
    backends = _counted(run.backend for run in runs)
    parts = [
        f"{whose(nodes)}, {origins} ({backends})",
        f"runs of {_span([run.finished_at for run in runs])}",
        f"workload {_counted(run.workload or run.workload_hash for run in runs)}",
        f"driver {_counted(node.driver or 'unknown' for node in nodes if node.software)}",
        *([f"Transformer Engine {_counted(engines)}"] if any(engine != "unknown" for engine in engines) else []),
        "all GPUs of a node at once, no communication between nodes",
    ]
    if kept := {attention_recipe(run.baseline, run.timing) for run in runs if run.scope == "mlp"}:
        parts.append(f"scope mlp: attention projections stayed in {' or '.join(sorted(kept))}")
    if any(steps := [" and ".join(step_words(run.timing)) for run in runs]):
        parts.append(f"steps with {_counted(words or 'none of it' for words in steps)}")
    return "; ".join(parts) + "."


def of_result(result: MeasurementResult) -> str:
    """Where the figures of one full result come from."""
    software = result.software
    made_up = f"; simulated: {', '.join(figure.field for figure in result.simulated)}" if result.simulated else ""
    published = f"; published in: {'; '.join(result.sources)}" if result.sources else ""
    method = "; NVIDIA's method, forward only: for comparison, never planned with" if result.method == "nvidia" else ""
    stack = {"driver": software.driver, "CUDA": software.cuda, "Transformer Engine": software.transformer_engine}
    versions = "".join(f"; {name} {version}" for name, version in stack.items() if version)
    versions += "".join(f"; {words}" for words in step_words(result.timing))
    return (
        f"node {result.node}, run {result.run} of {result.finished_at}, {result.provenance} ({result.backend}); "
        f"workload {result.workload_name}{versions}{made_up}{published}{method}."
    )


def _counted(values: Iterable[str]) -> str:
    """Distinct values; with their numbers where there are several."""
    counts = Counter(values)
    if len(counts) < 2:
        return next(iter(counts), "unknown")
    first = [f"{value} ({count})" for value, count in counts.most_common(4)]
    return ", ".join(first) + (" and others" if len(counts) > 4 else "")


def _span(times: Sequence[str]) -> str:
    if not times:
        return "an unknown time"
    return min(times) if min(times) == max(times) else f"{min(times)} to {max(times)}"
