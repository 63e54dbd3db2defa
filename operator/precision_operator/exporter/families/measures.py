"""What one report adds to its pool's families, and the sorted values of a whole pool, kept up one report at a time.

Values stand sorted, whatever order reports came in: taking one out and putting another in gives the very same ones as
reading all reports anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from precision_api.recipes import Recipe
from precision_operator.core.results.pool import finished_seconds
from precision_operator.core.results.reading import MedianGroup, RecipeRow, other_figure
from precision_operator.exporter.reading import NodeResult

Labels = tuple[str, ...]
Value = tuple[Labels, float]
"""The values of the labels that follow the pool's, and a figure under them."""
Measure = Callable[["MeasuredNode"], Iterator[Value]]
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


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """A node's newest result, with the labels of its usable recipes made once for all measures."""

    result: NodeResult
    usable: tuple[tuple[Labels, RecipeRow], ...]
    """(workload, recipe) of each recipe whose figures may be used."""
    marked: tuple[tuple[Labels, Labels, RecipeRow], ...]
    """The same with the last labels of what medians are made of: group and mark."""
    marked_ratios: tuple[tuple[Labels, Labels, RecipeRow], ...]
    """The same for ratios over the baseline."""


def measured(result: NodeResult) -> MeasuredNode:
    """The result as the measures read it."""
    group = group_labels(result.reading.group)
    free, throttled = (*group, FREE), (*group, THROTTLED)
    usable = tuple(((result.workload, row.recipe), row) for row in result.reading.usable_rows)
    return MeasuredNode(
        result,
        usable,
        tuple((labels, throttled if row.throttled else free, row) for labels, row in usable),
        tuple((labels, throttled if row.speedup_throttled else free, row) for labels, row in usable),
    )


def state(node: MeasuredNode) -> Iterator[Value]:
    """fresh, stale or failed: whether the newest attempt gave figures, and whether new ones are asked for."""
    failed = node.result.attempt is not None and node.result.attempt.outcome == "failed"
    yield ("failed" if failed else "fresh" if node.result.fresh else "stale",), 1.0


def mark(node: MeasuredNode) -> Iterator[Value]:
    """What is to be said of a node, but that it is slow: others of its pool decide that."""
    reading = node.result.reading
    if reading.fallen_back:
        yield ("fallback",), 1.0
    if reading.throttled:
        yield ("throttled",), 1.0
    if reading.power_invalid:
        yield ("power_invalid",), 1.0
    if reading.made_up:
        yield ("simulated",), 1.0


def group(node: MeasuredNode) -> Iterator[Value]:
    """When the newest result's run ended, by what the figures have in common with those of other nodes."""
    if node.result.reading.finished_at is not None:
        yield group_labels(node.result.reading.group), finished_seconds(node.result.reading)


def data(node: MeasuredNode) -> Iterator[Value]:
    """What the figures are: measured, replayed, simulated or trial."""
    if node.result.reading.data is not None:
        yield (node.result.reading.data,), 1.0


def rate(node: MeasuredNode) -> Iterator[Value]:
    """Training tokens/s."""
    for labels, row in node.usable:
        if row.tokens_per_second is not None:
            yield labels, row.tokens_per_second


def gpus(node: MeasuredNode) -> Iterator[Value]:
    """GPUs behind each rate."""
    for labels, row in node.usable:
        if row.tokens_per_second is not None and node.result.hardware:
            yield labels, float(node.result.hardware.gpus)


def _powered(figure: Callable[[RecipeRow], float | None]) -> Measure:
    def measure(node: MeasuredNode) -> Iterator[Value]:
        for labels, row in node.usable:
            value = figure(row)
            if row.watts is not None and row.tokens_per_second is not None and value is not None:
                yield (*labels, row.power_scope), value

    return measure


powered_rate = _powered(lambda row: row.tokens_per_second)
powered_watts = _powered(lambda row: row.watts)


def member(node: MeasuredNode) -> Iterator[Value]:
    """That the node is one of the recipe's, free or throttled."""
    for labels, marks, _ in node.marked:
        yield (*labels, *marks), 1.0


def ratio_member(node: MeasuredNode) -> Iterator[Value]:
    """The same for ratios over the baseline."""
    for labels, marks, _ in node.marked_ratios:
        yield (*labels, *marks), 1.0


def free_rate(node: MeasuredNode) -> Iterator[Value]:
    """Training tokens/s."""
    for labels, marks, row in node.marked:
        if row.tokens_per_second is not None:
            yield (*labels, *marks), row.tokens_per_second


def free_tokens_per_joule(node: MeasuredNode) -> Iterator[Value]:
    """Training tokens/J, by power scope."""
    for labels, marks, row in node.marked:
        if row.tokens_per_joule is not None:
            yield (*labels, row.power_scope, *marks), row.tokens_per_joule


def free_driver_tokens_per_joule(node: MeasuredNode) -> Iterator[Value]:
    """Training tokens/J, by power scope and driver."""
    version = driver_of(node.result)
    for labels, marks, row in node.marked:
        if row.tokens_per_joule is not None and version:
            yield (*labels, row.power_scope, version, *marks), row.tokens_per_joule


def free_speedup(node: MeasuredNode) -> Iterator[Value]:
    """Training speedup, by what it is over."""
    for labels, marks, row in node.marked_ratios:
        if node.result.run is not None and row.speedup is not None:
            yield (*labels, node.result.run.scope, node.result.run.baseline, *marks), row.speedup


def free_gemm_speedup(node: MeasuredNode) -> Iterator[Value]:
    """Speedup of all GEMMs, by mode."""
    for labels, marks, row in node.marked_ratios:
        for mode, value in row.gemm_speedup.items():
            yield (*labels, mode, *marks), value


def free_tax(node: MeasuredNode) -> Iterator[Value]:
    """Quantisation's share."""
    for labels, marks, row in node.marked:
        tax = _tax(row)
        if tax is not None:
            yield (*labels, *marks), tax


def driver(node: MeasuredNode) -> Iterator[Value]:
    """The node's driver."""
    if version := driver_of(node.result):
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
    less, more = _grouped(gone), _grouped(come)
    return {measure: _updated(before[measure], less[measure], more[measure]) for measure in MEASURES}


Grouped = Mapping[Labels, list[float]]
_EMPTY: tuple[float, ...] = ()


def _updated(before: Mapping[Labels, array[float]], less: Grouped, more: Grouped) -> Mapping[Labels, array[float]]:
    touched = {
        labels: _merged(before.get(labels), less.get(labels, _EMPTY), more.get(labels, _EMPTY))
        for labels in {*less, *more}
    }
    return {labels: values for labels, values in ({**before, **touched}).items() if values}


def _grouped(results: Iterable[NodeResult]) -> Mapping[Measure, Grouped]:
    found: dict[Measure, defaultdict[Labels, list[float]]] = {measure: defaultdict(list) for measure in MEASURES}
    for result in results:
        node = measured(result)
        for measure, values in found.items():
            for labels, value in measure(node):
                values[labels].append(value + 0.0)  # not -0.0, which compares as 0.0 and is written in another way
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
