"""What one report adds to its pool's families, and the sorted values of a whole pool, kept up one report at a time.

Values stand sorted, whatever order reports came in: taking one out and putting another in gives the very same ones as
reading all reports anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from precision_api.report import RecipeReport
from precision_operator.core.origin import origin
from precision_operator.core.outliers import PROVED, fell_back, throttled
from precision_operator.exporter.node_families import where_power_holds
from precision_operator.exporter.reading import NodeResult

Labels = tuple[str, ...]
Value = tuple[Labels, float]
"""The values of the labels that follow the pool's, and a figure under them."""
Measure = Callable[[NodeResult], Iterator[Value]]
Figures = Mapping[Measure, Mapping[Labels, "array[float]"]]
"""By measure and labels: the values of all nodes, in ascending order."""

FREE, HELD_BACK = "free", "held back"
"""Last label of what medians are made of: whether heat or the power brake held the node back."""

watts = where_power_holds(lambda recipe: recipe.watts)
tokens_per_joule = where_power_holds(lambda recipe: recipe.tokens_per_joule)


def _proved(result: NodeResult) -> Iterator[tuple[Labels, RecipeReport]]:
    """Recipes whose precision is proved, with their labels (workload, recipe)."""
    for row in result.status.results:
        if row.verdict in PROVED:
            yield (result.workload, row.recipe), row


def _with_mark(result: NodeResult) -> Iterator[tuple[Labels, str, RecipeReport]]:
    mark = HELD_BACK if throttled(result.status) else FREE
    for labels, row in _proved(result):
        yield labels, mark, row


def state(result: NodeResult) -> Iterator[Value]:
    """fresh, stale or failed: whether the newest attempt gave figures, and whether they still hold."""
    attempt = result.status.attempt
    failed = attempt is not None and attempt.outcome == "failed"
    yield ("failed" if failed else "fresh" if result.fresh else "stale",), 1.0


def mark(result: NodeResult) -> Iterator[Value]:
    """What is to be said of a node, but that it is slow: others of its pool decide that."""
    status = result.status
    if fell_back(status):
        yield ("fallback",), 1.0
    if throttled(status):
        yield ("throttled",), 1.0
    if any(recipe.power_invalid for recipe in status.results):
        yield ("power_invalid",), 1.0
    if status.run is not None and origin(status.run) in ("simulated", "replayed"):
        yield ("simulated",), 1.0


def rate(result: NodeResult) -> Iterator[Value]:
    """Training tokens/s."""
    for labels, row in _proved(result):
        if row.tokens_per_second is not None:
            yield labels, float(row.tokens_per_second)


def gpus(result: NodeResult) -> Iterator[Value]:
    """GPUs behind each rate."""
    for labels, row in _proved(result):
        if row.tokens_per_second is not None and result.status.hardware:
            yield labels, float(result.status.hardware.gpus)


def _powered(figure: Callable[[RecipeReport], str | float | None]) -> Measure:
    def measure(result: NodeResult) -> Iterator[Value]:
        for labels, row in _proved(result):
            if watts(row) is not None and row.tokens_per_second is not None:
                yield (*labels, row.power_scope or ""), float(figure(row) or 0)

    return measure


powered_rate = _powered(lambda row: row.tokens_per_second)
powered_watts = _powered(lambda row: row.watts)


def member(result: NodeResult) -> Iterator[Value]:
    """That the node is one of the recipe's, free or held back."""
    for labels, held, _ in _with_mark(result):
        yield (*labels, held), 1.0


def free_rate(result: NodeResult) -> Iterator[Value]:
    """Training tokens/s."""
    for labels, held, row in _with_mark(result):
        if row.tokens_per_second is not None:
            yield (*labels, held), float(row.tokens_per_second)


def free_tokens_per_joule(result: NodeResult) -> Iterator[Value]:
    """Training tokens/J, by power scope."""
    for labels, held, row in _with_mark(result):
        value = tokens_per_joule(row)
        if value is not None:
            yield (*labels, row.power_scope or "", held), float(value)


def free_driver_tokens_per_joule(result: NodeResult) -> Iterator[Value]:
    """Training tokens/J, by power scope and driver."""
    told = driver_of(result)
    for labels, held, row in _with_mark(result):
        value = tokens_per_joule(row)
        if value is not None and told:
            yield (*labels, row.power_scope or "", told, held), float(value)


def free_speedup(result: NodeResult) -> Iterator[Value]:
    """Training speedup, by what it is held against."""
    run = result.status.run
    for labels, held, row in _with_mark(result):
        if run is not None and row.speedup is not None:
            yield (*labels, run.scope, run.baseline, held), float(row.speedup)


def free_gemm_speedup(result: NodeResult) -> Iterator[Value]:
    """Speedup of all GEMMs, by mode."""
    for labels, held, row in _with_mark(result):
        for mode, value in row.gemm_speedup.items():
            yield (*labels, mode, held), float(value)


def free_tax(result: NodeResult) -> Iterator[Value]:
    """Quantisation's share."""
    for labels, held, row in _with_mark(result):
        if row.quantization_tax is not None:
            yield (*labels, held), float(row.quantization_tax)


def driver(result: NodeResult) -> Iterator[Value]:
    """The node's driver."""
    if told := driver_of(result):
        yield (told,), 1.0


def driver_of(result: NodeResult) -> str:
    """The driver of the newest result; empty where it is not known."""
    return (result.status.software and result.status.software.driver) or ""


MEASURES: tuple[Measure, ...] = (
    state,
    mark,
    rate,
    gpus,
    powered_rate,
    powered_watts,
    member,
    free_rate,
    free_tokens_per_joule,
    free_driver_tokens_per_joule,
    free_speedup,
    free_gemm_speedup,
    free_tax,
    driver,
)
NONE: Figures = {measure: {} for measure in MEASURES}


def updated(before: Figures, gone: Iterable[NodeResult], come: Iterable[NodeResult]) -> Figures:
    """The figures without those of the reports that are `gone`, and with those that have `come`."""
    gone, come = tuple(gone), tuple(come)
    return {measure: _updated(before[measure], measure, gone, come) for measure in MEASURES}


def _updated(
    before: Mapping[Labels, array[float]], measure: Measure, gone: Iterable[NodeResult], come: Iterable[NodeResult]
) -> Mapping[Labels, array[float]]:
    less, more = _grouped(measure, gone), _grouped(measure, come)
    touched = {labels: _merged(before.get(labels), less[labels], more[labels]) for labels in {*less, *more}}
    return {labels: values for labels, values in ({**before, **touched}).items() if values}


def _grouped(measure: Measure, results: Iterable[NodeResult]) -> defaultdict[Labels, list[float]]:
    found: defaultdict[Labels, list[float]] = defaultdict(list)
    for result in results:
        for labels, value in measure(result):
            found[labels].append(value + 0.0)  # not -0.0, which compares as 0.0 and is written in another way
    return found


def _merged(before: array[float] | None, less: Iterable[float], more: Iterable[float]) -> array[float]:
    if before is None:
        return array("d", sorted(more))
    values = before[:]
    for value in less:
        del values[bisect_left(values, value)]
    for value in more:
        insort(values, value)
    return values
