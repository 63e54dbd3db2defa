"""What one report adds to its pool's families, and the sorted values of a whole pool, kept up one report at a time.

Values stand sorted, whatever order reports came in: taking one out and putting another in gives the very same ones as
reading all reports anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from precision_api.recipes import Recipe
from precision_operator.core.results.pool import finished_seconds
from precision_operator.core.results.reading import MedianGroup, RecipeRow, other_figure
from precision_operator.exporter.reading import NodeResult

Labels = tuple[str, ...]
Value = tuple[Labels, float]
"""The values of the labels that follow the pool's, and a figure under them."""
Measure = Callable[[NodeResult], Iterator[Value]]
_tax = other_figure("quantization_tax")
Figures = Mapping[Measure, Mapping[Labels, "array[float]"]]
"""By measure and labels: the values of all nodes, in ascending order."""

FREE, THROTTLED = "free", "throttled"
"""Last label of what medians are made of: whether the figure's own windows, or those it is over, were throttled."""
HOLDS, OUTDATED = "holds", "outdated"


def group_labels(group: MedianGroup) -> Labels:
    """The group as labels."""
    return HOLDS if group.holds else OUTDATED, *group[1:]


def group_of(labels: Labels) -> MedianGroup:
    """The group that these labels are of."""
    holds, workload_hash, scope, baseline = labels
    return MedianGroup(holds == HOLDS, workload_hash, scope, cast(Recipe, baseline))


GROUP_LABELS = len(MedianGroup._fields)


def _usable(result: NodeResult) -> Iterator[tuple[Labels, RecipeRow]]:
    """Recipes whose figures may be used, with their labels (workload, recipe)."""
    for row in result.reading.usable_rows:
        yield (result.workload, row.recipe), row


def _marked(result: NodeResult) -> Iterator[tuple[Labels, Labels, RecipeRow]]:
    """The same with the last labels of what medians are made of: group and mark."""
    common = group_labels(result.reading.group)
    for labels, row in _usable(result):
        yield labels, (*common, THROTTLED if row.throttled else FREE), row


def _marked_ratios(result: NodeResult) -> Iterator[tuple[Labels, Labels, RecipeRow]]:
    """The same for ratios over the baseline."""
    common = group_labels(result.reading.group)
    for labels, row in _usable(result):
        yield labels, (*common, THROTTLED if row.speedup_throttled else FREE), row


def state(result: NodeResult) -> Iterator[Value]:
    """fresh, stale or failed: whether the newest attempt gave figures, and whether new ones are asked for."""
    failed = result.attempt is not None and result.attempt.outcome == "failed"
    yield ("failed" if failed else "fresh" if result.fresh else "stale",), 1.0


def mark(result: NodeResult) -> Iterator[Value]:
    """What is to be said of a node, but that it is slow: others of its pool decide that."""
    reading = result.reading
    if reading.fallen_back:
        yield ("fallback",), 1.0
    if reading.throttled:
        yield ("throttled",), 1.0
    if reading.power_invalid:
        yield ("power_invalid",), 1.0
    if reading.made_up:
        yield ("simulated",), 1.0


def group(result: NodeResult) -> Iterator[Value]:
    """When the newest result's run ended, by what the figures have in common with those of other nodes."""
    if result.reading.finished_at is not None:
        yield group_labels(result.reading.group), finished_seconds(result.reading)


def data(result: NodeResult) -> Iterator[Value]:
    """What the figures are: measured, replayed, simulated or trial."""
    if result.reading.data is not None:
        yield (result.reading.data,), 1.0


def rate(result: NodeResult) -> Iterator[Value]:
    """Training tokens/s."""
    for labels, row in _usable(result):
        if row.tokens_per_second is not None:
            yield labels, row.tokens_per_second


def gpus(result: NodeResult) -> Iterator[Value]:
    """GPUs behind each rate."""
    for labels, row in _usable(result):
        if row.tokens_per_second is not None and result.hardware:
            yield labels, float(result.hardware.gpus)


def _powered(figure: Callable[[RecipeRow], float | None]) -> Measure:
    def measure(result: NodeResult) -> Iterator[Value]:
        for labels, row in _usable(result):
            value = figure(row)
            if row.watts is not None and row.tokens_per_second is not None and value is not None:
                yield (*labels, row.power_scope), value

    return measure


powered_rate = _powered(lambda row: row.tokens_per_second)
powered_watts = _powered(lambda row: row.watts)


def member(result: NodeResult) -> Iterator[Value]:
    """That the node is one of the recipe's, free or throttled."""
    for labels, marks, _ in _marked(result):
        yield (*labels, *marks), 1.0


def ratio_member(result: NodeResult) -> Iterator[Value]:
    """The same for ratios over the baseline."""
    for labels, marks, _ in _marked_ratios(result):
        yield (*labels, *marks), 1.0


def free_rate(result: NodeResult) -> Iterator[Value]:
    """Training tokens/s."""
    for labels, marks, row in _marked(result):
        if row.tokens_per_second is not None:
            yield (*labels, *marks), row.tokens_per_second


def free_tokens_per_joule(result: NodeResult) -> Iterator[Value]:
    """Training tokens/J, by power scope."""
    for labels, marks, row in _marked(result):
        if row.tokens_per_joule is not None:
            yield (*labels, row.power_scope, *marks), row.tokens_per_joule


def free_driver_tokens_per_joule(result: NodeResult) -> Iterator[Value]:
    """Training tokens/J, by power scope and driver."""
    version = driver_of(result)
    for labels, marks, row in _marked(result):
        if row.tokens_per_joule is not None and version:
            yield (*labels, row.power_scope, version, *marks), row.tokens_per_joule


def free_speedup(result: NodeResult) -> Iterator[Value]:
    """Training speedup, by what it is over."""
    for labels, marks, row in _marked_ratios(result):
        if result.run is not None and row.speedup is not None:
            yield (*labels, result.run.scope, result.run.baseline, *marks), row.speedup


def free_gemm_speedup(result: NodeResult) -> Iterator[Value]:
    """Speedup of all GEMMs, by mode."""
    for labels, marks, row in _marked_ratios(result):
        for mode, value in row.gemm_speedup.items():
            yield (*labels, mode, *marks), value


def free_tax(result: NodeResult) -> Iterator[Value]:
    """Quantisation's share."""
    for labels, marks, row in _marked(result):
        tax = _tax(row)
        if tax is not None:
            yield (*labels, *marks), tax


def driver(result: NodeResult) -> Iterator[Value]:
    """The node's driver."""
    if version := driver_of(result):
        yield (version,), 1.0


def driver_of(result: NodeResult) -> str:
    """The driver of the newest result; empty where it is not recorded."""
    return (result.software and result.software.driver) or ""


MEASURES: tuple[Measure, ...] = (
    state,
    mark,
    group,
    data,
    rate,
    gpus,
    powered_rate,
    powered_watts,
    member,
    ratio_member,
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
