"""The families of a node's newest result. A figure that a report lacks has no row: never 0, never an empty label."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter

from precision_api.exchange.request import step_words
from precision_api.kinds.report import AcceptanceCheck, ReportRun
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading, RecipeRow
from precision_operator.exporter.families import measures
from precision_operator.exporter.families.family import NODE, RECIPE, Family, stable
from precision_operator.exporter.reading import RelativeRate, seconds
from precision_operator.exporter.text import SampleRow

ReportFigure = Callable[[RecipeRow], float | None]
NodeRows = Callable[[Reading], Iterable[SampleRow]]

SPEEDUP, GEMM_SPEEDUP = (*RECIPE, "scope", "baseline"), (*RECIPE, "mode", "scope", "baseline")
GONE = "NodeGone"
"""A node that is gone has neither failed nor is in quarantine: its report is only kept for a while."""
INFO = ("gpu_product", "gpus", "nvlink_domain", "driver", "cuda", "te", "data", "backend", "step")


def _by_recipe(figure: ReportFigure, *labels: Callable[[RecipeRow], str], doubtful: bool = True) -> NodeRows:
    """Rows of each recipe that has the figure, with the labels that follow `recipe`; `doubtful`: also of a recipe whose
    precision is in doubt."""

    def rows(result: Reading) -> list[SampleRow]:
        return [
            ((row.recipe, *[label(row) for label in labels]), float(value))
            for row in (result.rows.values() if doubtful else result.usable_rows)
            if (value := figure(row)) is not None
        ]

    return rows


_speed = partial(_by_recipe, doubtful=False)
_power_scope = attrgetter("power_scope")


def _speedup(figure: ReportFigure) -> NodeRows:
    """The same with what it is over."""
    by_recipe = _speed(figure)

    def rows(result: Reading) -> list[SampleRow]:
        run = result.run
        return [((*recipe, run.scope, run.baseline), value) for recipe, value in by_recipe(result)] if run else []

    return rows


def _gemm_speedup(result: Reading) -> Iterator[SampleRow]:
    for row in result.usable_rows if result.run else ():
        for mode, value in sorted(row.gemm_speedup.items()):
            yield (row.recipe, mode, result.group.scope, result.group.baseline), value


def _gemm_end(end: str) -> NodeRows:
    """The lower or upper end of the interval, of the mode that training runs in."""

    def rows(result: Reading) -> Iterator[SampleRow]:
        ends = ((row.recipe, result.intervals(row.recipe).get("gemm_autocast")) for row in result.usable_rows)
        of = result.group
        yield from (((name, "autocast", of.scope, of.baseline), round(getattr(it, end), 6)) for name, it in ends if it)

    return rows


def _of_run(figure: Callable[[ReportRun], str | float]) -> NodeRows:
    return lambda result: [((), float(figure(result.run)))] if result.run else []


def _gpu_memory(result: Reading) -> list[SampleRow]:
    memory = result.run.device_memory if result.run else None
    states = (("used", memory.used_bytes), ("total", memory.total_bytes)) if memory else ()
    return [((state, memory.counted or "nvml"), float(size)) for state, size in states if memory and size is not None]


def _info(result: Reading) -> Iterator[SampleRow]:
    hardware, software, run = result.hardware, result.software, result.run
    if not (hardware and run):
        return
    versions = (result.driver, software.cuda, software.transformer_engine) if software else (None, None, None)
    figures = (hardware.product, str(hardware.gpus), hardware.nvlink_domain, *versions, result.data)
    yield (*(text or "" for text in figures), run.backend, ", ".join(step_words(run.timing))), 1.0


def _power_limit(result: Reading) -> Iterator[SampleRow]:
    hardware = result.hardware
    if hardware and hardware.gpus and hardware.limit_watts:
        yield (), hardware.limit_watts / hardware.gpus


def _labelled(label: Callable[[Reading], str | None]) -> NodeRows:
    """Always 1, with this one label; no row where there is none."""
    return lambda result: [((text,), 1.0)] if (text := label(result)) else []


def _failed(result: Reading) -> Iterator[SampleRow]:
    attempt = result.attempt
    if attempt is not None and attempt.outcome == "failed" and result.stale != GONE:
        yield (attempt.reason or "",), 1.0


def _accepted(result: Reading) -> Iterator[SampleRow]:
    if result.acceptance and result.stale != GONE:
        yield (result.acceptance.verdict or "", result.acceptance.reason), 1.0


def _worst_check(figure: Callable[[AcceptanceCheck], float | None]) -> NodeRows:
    def rows(result: Reading) -> list[SampleRow]:
        worst = result.acceptance.worst[:1] if result.acceptance else ()
        return [((it.recipe, it.check), round(value / 100, 6)) for it in worst if (value := figure(it)) is not None]

    return rows


def _failing_gpu(result: Reading) -> Iterator[SampleRow]:
    failing = result.acceptance.failing if result.acceptance and result.acceptance.verdict == "Fail" else ()
    for check in [check for check in failing if check.gpu][:1]:
        yield ("" if check.number is None else str(check.number), check.gpu or "", check.pci or ""), 1.0


def _judged(figure: Callable[[RelativeRate], float]) -> Callable[[RelativeRate], Iterable[SampleRow]]:
    return lambda standing: [((), figure(standing))]


NODE_FAMILIES: tuple[Family[Reading], ...] = (
    stable("precision_node_info", (*NODE, *INFO), _info),
    Family(
        "precision_node_slowest_gpu_info",
        (*NODE, "UUID"),
        _labelled(lambda result: result.hardware.slowest_gpu if result.hardware else None),
    ),
    Family("precision_node_training_gpu_flops_per_second", RECIPE, _speed(measures.flops_of)),
    stable("precision_node_training_tokens_per_second", RECIPE, _speed(attrgetter("tokens_per_second"))),
    stable(
        "precision_node_training_power_watts", (*RECIPE, "power_scope"), _by_recipe(attrgetter("watts"), _power_scope)
    ),
    stable(
        "precision_node_training_tokens_per_joule",
        (*RECIPE, "power_scope"),
        _speed(attrgetter("tokens_per_joule"), _power_scope),
    ),
    *(
        stable(f"precision_node_training_speedup{end}_ratio", SPEEDUP, _speedup(attrgetter(f"speedup{end}")))
        for end in ("", "_lower", "_upper")
    ),
    stable(
        "precision_node_verification",
        (*RECIPE, "verdict"),
        _by_recipe(lambda recipe: None if recipe.availability == "unsupported" else 1.0, attrgetter("verdict")),
    ),
    Family(
        "precision_node_loss_verdict",
        (*RECIPE, "verdict"),
        _by_recipe(lambda recipe: None if recipe.learns else 1.0, attrgetter("loss_verdict")),
    ),
    stable(
        "precision_node_power_valid",
        (*RECIPE, "reason"),
        _by_recipe(attrgetter("power_valid"), lambda recipe: next(iter(recipe.power_reasons), "")),
    ),
    Family("precision_node_gpu_power_limit_watts", NODE, _power_limit),
    stable(
        "precision_node_throttled_ratio",
        (*RECIPE, "reason"),
        _by_recipe(attrgetter("throttled_share"), lambda row: row.throttle_reason or ""),
    ),
    stable("precision_node_last_success_timestamp_seconds", NODE, _of_run(lambda run: seconds(run.finished_at))),
    stable(
        "precision_node_last_attempt_timestamp_seconds",
        NODE,
        lambda result: [((), seconds(result.attempt.finished_at))] if result.attempt else [],
    ),
    stable("precision_node_last_duration_seconds", NODE, _of_run(lambda run: run.duration_seconds)),
    Family("precision_node_gemm_speedup_ratio", GEMM_SPEEDUP, _gemm_speedup, detail=True),
    *(
        Family(f"precision_node_gemm_speedup_{end}_ratio", GEMM_SPEEDUP, _gemm_end(end), detail=True)
        for end in ("lower", "upper")
    ),
    Family("precision_node_quantization_tax_ratio", RECIPE, _speed(attrgetter("quantization_tax")), detail=True),
    Family("precision_node_gpu_spread_ratio", RECIPE, _by_recipe(attrgetter("gpu_spread")), detail=True),
    Family(
        "precision_node_training_net_tokens_per_joule",
        (*RECIPE, "power_scope"),
        _speed(attrgetter("tokens_per_joule_net"), _power_scope),
        detail=True,
    ),
    Family("precision_node_model_memory_bytes", RECIPE, _by_recipe(attrgetter("model_memory_bytes"))),
    Family("precision_node_allocated_peak_bytes", RECIPE, _by_recipe(attrgetter("allocated_peak_bytes"))),
    Family("precision_node_gpu_memory_bytes", (*NODE, "state", "counted"), _gpu_memory),
    Family("precision_node_failed", (*NODE, "reason"), _failed),
    Family(
        "precision_node_quarantined",
        (*NODE, "reason"),
        _labelled(lambda it: it.quarantine.reason if it.quarantine and it.stale != GONE else None),
    ),
    Family("precision_node_accepted", (*NODE, "verdict", "reason"), _accepted),
    Family("precision_node_acceptance_ratio", (*RECIPE, "check"), _worst_check(lambda check: check.off)),
    Family(
        "precision_node_acceptance_limit_ratio",
        (*RECIPE, "check"),
        _worst_check(lambda check: None if check.limit is None else -check.limit),
    ),
    Family("precision_node_failing_gpu_info", (*NODE, "gpu", "UUID", "pci"), _failing_gpu),
    Family(
        "precision_node_outdated",
        (*NODE, "reason"),
        _labelled(lambda result: result.stale if result.stale not in HOLDS_UNTIL_REPLACED else None),
    ),
)

STANDING_FAMILIES: tuple[Family[RelativeRate], ...] = (
    stable("precision_node_slow", NODE, _judged(lambda standing: float(standing.slow))),
    stable("precision_node_relative_performance_ratio", NODE, _judged(lambda standing: standing.relative)),
)
"""What a node is beside its peers: known only when all reports of its pool are looked at together."""
