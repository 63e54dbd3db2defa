"""The families of a pool: what a fleet's panels and alerts read, so that they cost the same for 10 or 10,000 nodes."""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from precision_api.facts.names import grouped
from precision_operator.core.results.outliers import LEAST_PEERS
from precision_operator.core.results.pool import median, quantile
from precision_operator.exporter.families import measures
from precision_operator.exporter.families.family import POOL, POOL_OF, POOL_RECIPE, Family, stable
from precision_operator.exporter.families.measures import FREE, GROUP_LABELS, THROTTLED, Labels, Measure, group_labels
from precision_operator.exporter.families.pools import PoolNodes
from precision_operator.exporter.text import SampleRow, number

STATS = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
"""Quantiles over nodes by the values of the label `stat`."""
TAIL_STATS = {"min": 0.0, "p01": 0.01, **STATS}
MEDIAN = {"p50": 0.5}
BOUNDS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.05, 1.1)
"""Of the rate over the pool's: fine around 1, where a healthy fleet lies within 1 to 2 %."""
LEAST_NODES_OF_A_DRIVER = 5
"""Below that a median says more of the nodes than of the driver."""
STATES = ("fresh", "stale", "failed")
MARKS = ("slow", "fallback", "throttled", "power_invalid", "simulated")

PoolRows = Callable[[PoolNodes], Iterator[SampleRow]]
Fold = Callable[[Sequence[float]], Iterable[tuple[Labels, float]]]
"""What a family shows of all nodes' values, which are in ascending order and at least one: figures by labels."""


def _each(measure: Measure, fold: Fold) -> PoolRows:
    """A row for each set of labels that a node gave the figure under, of those of the pool's kind."""

    def rows(pool: PoolNodes) -> Iterator[SampleRow]:
        values_by_labels = pool.figures[measure]
        for kind, *labels in sorted(values_by_labels):
            if kind == pool.data:
                for further, value in fold(values_by_labels[kind, *labels]):
                    yield (*pool.labels, *labels, *further), value

    return rows


def _free(measure: Measure, fold: Fold, members: Measure = measures.member) -> PoolRows:
    """The same of the nodes that the pool's medians are of: see the core's Pool.

    Those of the pool's group that were not throttled, or all of these where there are no others of the recipe.
    """

    def rows(pool: PoolNodes) -> Iterator[SampleRow]:
        if pool.group is None:
            return
        there, group = pool.figures[members], group_labels(pool.group)
        values_by_labels = pool.figures[measure]
        for labels in sorted(values_by_labels):
            shown, of, mark = _split(labels)
            if of != group or (mark != FREE and (*shown[:2], *group, FREE) in there):
                continue
            for further, value in fold(values_by_labels[labels]):
                yield (*pool.labels, *shown, *further), value

    return rows


def _free_of_drivers(pool: PoolNodes) -> Iterator[SampleRow]:
    """Medians by driver, workload hash, scope and kind; of all nodes of the pool's kind, also of the driver before."""
    free = {_alike(labels) for labels in pool.figures[measures.member] if labels[-1] == FREE}
    values: dict[Labels, list[float]] = defaultdict(list)
    for labels, figures in pool.figures[measures.free_driver_tokens_per_joule].items():
        if _alike(labels)[-1] == pool.data and (labels[-1] == FREE or _alike(labels) not in free):
            values[*_split(labels)[0], *_alike(labels)[2:]] += figures
    for shown in sorted(values):
        if len(values[shown]) >= LEAST_NODES_OF_A_DRIVER:
            yield from (((*pool.labels, *shown), value) for _, value in _median(values[shown]))


def _rates(pool: PoolNodes) -> Iterator[tuple[Labels, Sequence[float], Sequence[float]]]:
    """By recipe and what makes levels alike: rates of the nodes that were not throttled, and of those that were."""
    rates = pool.figures[measures.level]
    for shown in sorted({labels[:-1] for labels in rates if labels[-2] == pool.data}):
        yield shown, rates.get((*shown, FREE), ()), rates.get((*shown, THROTTLED), ())


def _levels(pool: PoolNodes) -> Iterator[SampleRow]:
    """Medians of at least three nodes and half of those there; of throttled ones where there are no others."""
    for shown, free, throttled in _rates(pool):
        if len(free) + len(throttled) >= max(LEAST_PEERS, len(pool.there) / 2):
            yield from (((*pool.labels, *shown), value) for _, value in _median(free or throttled))


def _throttled(pool: PoolNodes) -> Iterator[SampleRow]:
    least = max(LEAST_PEERS, len(pool.there) // 4 + 1)
    for shown, free, throttled in _rates(pool):
        slowed = throttled[least - 1] / (median(free or throttled) or 1.0) if len(throttled) >= least else 1.0
        yield (*pool.labels, *shown, "others" if len(free) >= LEAST_PEERS else "median"), slowed


def _alike(labels: Labels) -> Labels:
    """(workload, recipe, workload_hash, scope, data): what drivers are compared within."""
    _, workload_hash, scope, _, data = _split(labels)[1]
    return (*labels[:2], workload_hash, scope, data)


def _split(labels: Labels) -> tuple[Labels, Labels, str]:
    """(labels that are shown, the group's, the mark)"""
    return labels[: -GROUP_LABELS - 1], labels[-GROUP_LABELS - 1 : -1], labels[-1]


def _stats(stats: Mapping[str, float]) -> Fold:
    return lambda values: (
        ((stat,), value) for stat, share in stats.items() if (value := quantile(values, share)) is not None
    )


def _median(values: Sequence[float]) -> Iterator[tuple[Labels, float]]:
    if (value := median(values)) is not None:
        yield (), value


def _total(values: Sequence[float]) -> Iterator[tuple[Labels, float]]:
    yield (), math.fsum(values)


def _count(values: Sequence[float]) -> Iterator[tuple[Labels, float]]:
    yield (), float(len(values))


def _states(pool: PoolNodes) -> Iterator[SampleRow]:
    nodes_by_state = pool.figures[measures.state]
    yield from (((*pool.labels, state), float(len(nodes_by_state.get((state,), ())))) for state in STATES)


def _data(pool: PoolNodes) -> Iterator[SampleRow]:
    for (data,), nodes in sorted(pool.figures[measures.data].items()):
        yield (*pool.labels, data), float(len(nodes))


def _marked(pool: PoolNodes) -> Iterator[SampleRow]:
    nodes_by_mark = pool.figures[measures.mark]
    counts = {mark: float(len(nodes_by_mark.get((mark,), ()))) for mark in MARKS}
    counts["slow"] = float(sum(standing.slow for standing in pool.standings.values()))
    yield from (((*pool.labels, mark), counts[mark]) for mark in MARKS)


def _gemm_seconds(pool: PoolNodes) -> Iterator[SampleRow]:
    workloads = {result.node: result.workload for result in pool.results if result.data == pool.data}
    times = grouped(
        ((workloads[node], time.recipe, time.gemm, time.pass_, time.mode), time.seconds)
        for node, gemms in pool.gemms.items()
        for time in gemms
        if node in workloads
    )
    for key in sorted(times):
        yield from (((*pool.labels, *key, *stat), value) for stat, value in _stats(MEDIAN)(times[key]))


def _by_workload(pool: PoolNodes) -> Iterator[tuple[str, list[tuple[float, bool]]]]:
    standings = (standing for standing in pool.standings.values() if standing.result.data == pool.data)
    groups = grouped((standing.result.workload, (standing.relative, standing.slow)) for standing in standings)
    yield from sorted(groups.items())


def _relative(pool: PoolNodes) -> Iterator[SampleRow]:
    for workload, standings in _by_workload(pool):
        ratios = sorted(ratio for ratio, _ in standings)
        for bound in (*BOUNDS, math.inf):
            yield (*pool.labels, workload, number(bound)), float(bisect_right(ratios, bound))


def _slowest(pool: PoolNodes) -> Iterator[SampleRow]:
    for workload, standings in _by_workload(pool):
        yield (*pool.labels, workload, "all"), min(ratio for ratio, _ in standings)
        others = [ratio for ratio, slow in standings if not slow]
        if others:
            yield (*pool.labels, workload, "not_slow"), min(others)


def driver_order(version: str) -> float:
    """A number that grows with the version: 580.95.05 gives 5800095000005; parts above 9999 count as 9999."""
    parts = [min(int(part), 9999) for part in re.findall(r"\d{1,9}", version)[:3]]
    return float(sum(part * 10 ** (4 * (2 - place)) for place, part in enumerate(parts)))


POOL_FAMILIES: tuple[Family[PoolNodes], ...] = (
    stable("precision_pool_nodes", (*POOL_OF, "phase"), _states),
    stable("precision_pool_marked_nodes", (*POOL_OF, "mark"), _marked),
    Family("precision_pool_data_nodes", (*POOL_OF, "data"), _data),
    Family("precision_pool_training_gpu_flops_per_second", POOL_RECIPE, _free(measures.free_flops, _median)),
    stable(
        "precision_pool_training_tokens_per_second", (*POOL_RECIPE, "stat"), _each(measures.rate, _stats(TAIL_STATS))
    ),
    stable("precision_pool_training_total_tokens_per_second", POOL_RECIPE, _each(measures.rate, _total)),
    stable("precision_pool_training_nodes", POOL_RECIPE, _each(measures.rate, _count)),
    stable("precision_pool_training_reference_tokens_per_second", POOL_RECIPE, _free(measures.free_rate, _median)),
    Family(
        "precision_pool_training_level_tokens_per_second", (*POOL_RECIPE, "workload_hash", "scope", "data"), _levels
    ),
    stable("precision_pool_training_gpus", POOL_RECIPE, _each(measures.gpus, _total)),
    stable(
        "precision_pool_training_powered_tokens_per_second",
        (*POOL_RECIPE, "power_scope"),
        _each(measures.powered_rate, _total),
    ),
    stable("precision_pool_training_power_watts", (*POOL_RECIPE, "power_scope"), _each(measures.powered_watts, _total)),
    stable(
        "precision_pool_training_tokens_per_joule",
        (*POOL_RECIPE, "power_scope", "stat"),
        _free(measures.free_tokens_per_joule, _stats(STATS)),
    ),
    stable(
        "precision_pool_training_speedup_ratio",
        (*POOL_RECIPE, "scope", "baseline", "stat"),
        _free(measures.free_speedup, _stats(STATS), measures.ratio_member),
    ),
    Family(
        "precision_pool_gemm_speedup_ratio",
        (*POOL_RECIPE, "mode", "scope", "baseline", "stat"),
        _free(measures.free_gemm_speedup, _stats(STATS), measures.ratio_member),
    ),
    Family("precision_pool_gemm_seconds", (*POOL_RECIPE, "gemm", "pass", "mode", "stat"), _gemm_seconds),
    Family("precision_pool_quantization_tax_ratio", (*POOL_RECIPE, "stat"), _free(measures.free_tax, _stats(STATS))),
    Family("precision_pool_relative_performance_nodes", (*POOL, "at_most"), _relative),
    Family("precision_pool_slowest_ratio", (*POOL, "nodes"), _slowest),
    Family(
        "precision_pool_training_throttled_ratio",
        (*POOL_RECIPE, "workload_hash", "scope", "data", "against"),
        _throttled,
    ),
    Family("precision_pool_info", (*POOL_OF, "nodes_of"), lambda pool: iter([((*pool.labels, pool.nodes_of), 1.0)])),
    Family("precision_pool_slow_below_ratio", POOL_OF, lambda pool: iter([(pool.labels, 1 - pool.percent / 100)])),
    Family(
        "precision_pool_driver_training_tokens_per_joule",
        (*POOL_RECIPE, "power_scope", "driver", "workload_hash", "scope", "data"),
        _free_of_drivers,
    ),
    Family("precision_pool_driver_nodes", (*POOL_OF, "driver"), _each(measures.driver, _count)),
    Family(
        "precision_pool_driver_order",
        (*POOL_OF, "driver"),
        lambda pool: ((of, driver_order(of[-1])) for of, _ in _each(measures.driver, _count)(pool)),
    ),
)
