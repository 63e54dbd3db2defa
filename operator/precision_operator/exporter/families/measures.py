"""What one report adds to its pool's families, and the sorted values of a whole pool, kept up one report at a time.

Values stand sorted, whatever order reports came in: taking one out and putting another in gives the very same ones as
reading all reports anew.
"""

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from precision_api.exchange.request import Mode
from precision_api.facts.recipes import Recipe
from precision_operator.core.results.pool import finished_seconds
from precision_operator.core.results.reading import MODES, MedianGroup, Reading, RecipeRow

Labels = tuple[str, ...]
Value = tuple[Labels, float]
"""The values of the labels that follow the pool's, and a figure under them."""
RowFigure = Callable[[RecipeRow], float | None]
NodeMeasure = Callable[[Reading], Iterator[Value]]
RowMeasure = Callable[["RowContext"], Iterator[tuple[Labels, RowFigure]]]
"""What is read of each row in a context, and under which labels it stands: worked out once for all rows alike."""
Measure = NodeMeasure | RowMeasure
_Values = Mapping[Labels, "array[float]"]
GroupedValues = Mapping[Measure, _Values]
"""By measure and labels: the values of all nodes, in ascending order."""

FREE, THROTTLED = "free", "throttled"
"""Last label of what medians are made of: whether the figure's own windows, or those it is over, were throttled."""
HOLDS, OUTDATED = "holds", "outdated"


def group_labels(group: MedianGroup) -> Labels:
    return HOLDS if group.holds else OUTDATED, *group[1:]


def group_of(labels: Labels) -> MedianGroup:
    holds, workload_hash, scope, baseline, data = labels
    return MedianGroup(holds == HOLDS, workload_hash, scope, baseline, data)


GROUP_LABELS = len(MedianGroup._fields)


class RowContext(NamedTuple):
    """All that the labels of a usable row's figures depend on."""

    workload: str
    recipe: Recipe
    group: Labels
    """As `group_labels` has them."""
    throttled: bool
    speedup_throttled: bool
    power_scope: str
    driver: str
    gpus: int | None
    """GPUs of the node; None where they are not recorded."""

    @property
    def labels(self) -> Labels:
        """(workload, recipe)"""
        return self.workload, self.recipe

    @property
    def marks(self) -> Labels:
        """The last labels of what medians are made of: group and mark."""
        return *self.group, THROTTLED if self.throttled else FREE

    @property
    def ratio_marks(self) -> Labels:
        """The same for ratios over the baseline."""
        return *self.group, THROTTLED if self.speedup_throttled else FREE


def rows_in_context(result: Reading) -> list[tuple[RowContext, RecipeRow]]:
    """The rows whose figures may be used."""
    workload, group, driver = result.workload, group_labels(result.group), driver_of(result)
    gpus = result.hardware.gpus if result.hardware else None
    contexts = [
        RowContext(workload, row.recipe, group, row.throttled, row.speedup_throttled, row.power_scope, driver, gpus)
        for row in result.usable_rows
    ]
    return list(zip(contexts, result.usable_rows, strict=True))


def state(result: Reading) -> Iterator[Value]:
    """fresh, stale or failed: whether the newest attempt failed, and whether the figures describe the node as it is."""
    failed = result.attempt is not None and result.attempt.outcome == "failed"
    yield ("failed" if failed else "fresh" if result.holds else "stale",), 1.0


def mark(result: Reading) -> Iterator[Value]:
    """What is to be said of a node, but that it is slow: others of its pool decide that."""
    of = result.marks
    marks = {"fallback": of.fallen_back, "throttled": of.throttled, "power_invalid": of.power_invalid}
    yield from (((mark,), 1.0) for mark, holds in (marks | {"simulated": result.made_up}).items() if holds)


def group(result: Reading) -> Iterator[Value]:
    """When the newest result's run ended, by what the figures have in common with those of other nodes."""
    if result.finished_at is not None:
        yield group_labels(result.group), finished_seconds(result)


def level(result: Reading) -> Iterator[Value]:
    """Rates by workload, recipe, workload hash, scope, kind and mark, of a node that only driver or image age."""
    if result.holds or result.stale in ("AgentChange", "DriverChange"):
        for row in result.usable_rows:
            if (rate := row.tokens_per_second) is not None:
                mark = THROTTLED if row.throttled else FREE
                yield (result.workload, row.recipe, *result.group[1:3], result.data or "", mark), rate


def data(result: Reading) -> Iterator[Value]:
    """What the figures are: measured, replayed, simulated or trial."""
    if result.data is not None:
        yield (result.data,), 1.0


def driver(result: Reading) -> Iterator[Value]:
    """What the figures are, and the node's driver."""
    if version := driver_of(result):
        yield (result.data or "", version), 1.0


def driver_of(result: Reading) -> str:
    """The driver of the newest result; empty where it is not recorded."""
    return (result.software and result.driver) or ""


_rate_of: RowFigure = attrgetter("tokens_per_second")
_tokens_per_joule_of: RowFigure = attrgetter("tokens_per_joule")
_speedup_of: RowFigure = attrgetter("speedup")
_tax_of: RowFigure = attrgetter("quantization_tax")


def flops_of(row: RecipeRow) -> float | None:
    """Model FLOP/s of one GPU."""
    return None if row.teraflops_per_gpu is None else row.teraflops_per_gpu * 1e12


def _one(_: RecipeRow) -> float:
    return 1.0


def _measure(figure: RowFigure, labels: Callable[[RowContext], Labels]) -> RowMeasure:
    return lambda of: iter([(labels(of), figure)])


def _marked(figure: RowFigure) -> RowMeasure:
    return _measure(figure, lambda of: (*of.labels, *of.marks))


rate = _measure(_rate_of, lambda of: (of.group[-1], *of.labels))
member, free_rate, free_flops, free_tax = map(_marked, (_one, _rate_of, flops_of, _tax_of))
ratio_member = _measure(_one, lambda of: (*of.labels, *of.ratio_marks))
free_tokens_per_joule = _measure(_tokens_per_joule_of, lambda of: (*of.labels, of.power_scope, *of.marks))


def gpus(of: RowContext) -> Iterator[tuple[Labels, RowFigure]]:
    """GPUs behind each rate."""
    if of.gpus is not None:
        count = float(of.gpus)
        yield (of.group[-1], *of.labels), lambda row: None if row.tokens_per_second is None else count


def _powered(figure: RowFigure) -> RowMeasure:
    def powered(row: RecipeRow) -> float | None:
        return None if row.watts is None or row.tokens_per_second is None else figure(row)

    return _measure(powered, lambda of: (of.group[-1], *of.labels, of.power_scope))


powered_rate = _powered(_rate_of)
powered_watts = _powered(attrgetter("watts"))


def free_driver_tokens_per_joule(of: RowContext) -> Iterator[tuple[Labels, RowFigure]]:
    """Training tokens/J, by power scope and driver."""
    if of.driver:
        yield (*of.labels, of.power_scope, of.driver, *of.marks), _tokens_per_joule_of


def free_speedup(of: RowContext) -> Iterator[tuple[Labels, RowFigure]]:
    """Training speedup, by what it is over."""
    group = group_of(of.group)
    if group.scope:
        yield (*of.labels, group.scope, group.baseline, *of.ratio_marks), _speedup_of


def free_gemm_speedup(of: RowContext) -> Iterator[tuple[Labels, RowFigure]]:
    """Speedup of all GEMMs, by mode and what it is over."""
    group = group_of(of.group)
    for mode in MODES if group.scope else ():
        yield (*of.labels, mode, group.scope, group.baseline, *of.ratio_marks), partial(_gemm_speedup, mode)


def _gemm_speedup(mode: Mode, row: RecipeRow) -> float | None:
    return row.gemm_speedup.get(mode)


NODE_MEASURES: tuple[NodeMeasure, ...] = (state, mark, group, level, data, driver)
ROW_MEASURES: tuple[RowMeasure, ...] = (
    rate,
    gpus,
    powered_rate,
    powered_watts,
    member,
    ratio_member,
    free_rate,
    free_flops,
    free_tokens_per_joule,
    free_driver_tokens_per_joule,
    free_speedup,
    free_gemm_speedup,
    free_tax,
)
MEASURES: tuple[Measure, ...] = (*NODE_MEASURES, *ROW_MEASURES)
NONE: GroupedValues = {measure: {} for measure in MEASURES}


def updated(before: GroupedValues, gone: Iterable[Reading], come: Iterable[Reading]) -> GroupedValues:
    """The figures without those of the reports that are `gone`, and with those that have `come`."""
    less, more = _grouped(gone), _grouped(come)
    return {measure: _updated(before[measure], less[measure], more[measure]) for measure in MEASURES}


Grouped = Mapping[Labels, list[float]]
_EMPTY: tuple[float, ...] = ()


def _updated(before: _Values, less: Grouped, more: Grouped) -> _Values:
    touched = {
        labels: _merged(before.get(labels), less.get(labels, _EMPTY), more.get(labels, _EMPTY))
        for labels in {*less, *more}
    }
    return {labels: values for labels, values in ({**before, **touched}).items() if values}


def _grouped(results: Iterable[Reading]) -> Mapping[Measure, Grouped]:
    groups: dict[Measure, defaultdict[Labels, list[float]]] = {measure: defaultdict(list) for measure in MEASURES}
    columns: dict[RowContext, list[tuple[RowFigure, list[float]]]] = {}
    for result in results:
        for measure in NODE_MEASURES:
            for labels, value in measure(result):
                groups[measure][labels].append(value)
        for context, row in rows_in_context(result):
            if context not in columns:
                columns[context] = [(read, groups[of][labels]) for of in ROW_MEASURES for labels, read in of(context)]
            for figure, values in columns[context]:
                if (number := figure(row)) is not None:
                    values.append(number + 0.0)  # not -0.0, which compares as 0.0 and is written in another way
    return {measure: {labels: of for labels, of in by.items() if of} for measure, by in groups.items()}


def _merged(before: "array[float] | None", less: Iterable[float], more: Iterable[float]) -> "array[float]":
    if before is None:
        return array("d", sorted(more))
    values = before[:]
    for value in less:
        del values[bisect_left(values, value)]
    for value in more:
        insort(values, value)
    return values
