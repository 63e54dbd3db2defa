"""The families of a pool: what a fleet's panels and alerts read, so that they cost the same for 10 or 10,000 nodes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from precision_api.stats import middle, percentile
from precision_operator.core.outliers import fell_back, throttled
from precision_operator.exporter.family import POOL, POOL_OF, POOL_RECIPE, Family
from precision_operator.exporter.node_families import provenance, where_power_holds
from precision_operator.exporter.pools import Arm, Member, Pool
from precision_operator.exporter.reading import NodeResult
from precision_operator.exporter.text import Row, Spread

QUANTILES = (0.1, 0.5, 0.9)
TAIL_QUANTILES = (0.0, 0.01, *QUANTILES)
BOUNDS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.05, 1.1)
"""Of the rate over the pool's: fine around 1, where a healthy fleet lies within 1 to 2 %."""
LEAST_NODES_OF_A_DRIVER = 5
"""Below that a median says more of the nodes than of the driver (OBSERVABILITY 3)."""
MARKS = ("slow", "fallback", "throttled", "power_invalid", "simulated")

Rows = Callable[[Pool], Iterator[Row]]
_watts = where_power_holds(lambda recipe: recipe.watts)
_tokens_per_joule = where_power_holds(lambda recipe: recipe.tokens_per_joule)


def state_of(result: NodeResult) -> str:
    """fresh, stale or failed: whether the newest attempt gave figures, and whether they still hold."""
    attempt = result.status.attempt
    if attempt is not None and attempt.outcome == "failed":
        return "failed"
    return "fresh" if result.fresh else "stale"


def _states(pool: Pool) -> Iterator[Row]:
    counts = Counter(map(state_of, pool.results))
    yield from (((*pool.labels, state), float(counts[state])) for state in ("fresh", "stale", "failed"))


def marks_of(pool: Pool, result: NodeResult) -> Iterator[str]:
    """What is to be said of a node, by the words of `MARKS`."""
    status, standing = result.status, pool.standings.get(result.node)
    if standing is not None and standing.slow:
        yield "slow"
    if fell_back(status):
        yield "fallback"
    if throttled(status):
        yield "throttled"
    if any(recipe.power_invalid for recipe in status.results):
        yield "power_invalid"
    if status.run is not None and provenance(status.run) != "measured":
        yield "simulated"


def _marked(pool: Pool) -> Iterator[Row]:
    counts = Counter(mark for result in pool.results for mark in marks_of(pool, result))
    yield from (((*pool.labels, mark), float(counts[mark])) for mark in MARKS)


def _spread(values: Iterable[float], quantiles: Sequence[float] = QUANTILES, total: bool = False) -> Spread | None:
    ordered = sorted(values)
    if not ordered:
        return None
    parts = tuple((quantile, percentile(ordered, quantile)) for quantile in quantiles)
    return Spread("quantile", parts, sum(ordered) if total else None, len(ordered) if total else None)


def _rates(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        rates = (float(row.tokens_per_second) for _, row in arm.members if row.tokens_per_second is not None)
        found = _spread(rates, TAIL_QUANTILES, total=True)
        if found:
            yield arm.labels, found


def _reference(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        rates = [float(row.tokens_per_second) for _, row in arm.free if row.tokens_per_second is not None]
        if rates:
            yield arm.labels, middle(rates)


def _gpus(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        counts = [
            result.status.hardware.gpus
            for result, row in arm.members
            if row.tokens_per_second is not None and result.status.hardware
        ]
        if counts:
            yield arm.labels, float(sum(counts))


def _split(arm: Arm, members: Iterable[Member], by: Callable[[Member], Hashable]) -> Iterator[tuple[str, list[Member]]]:
    """The members by one more label, in its order."""
    groups: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        groups[str(by(member))].append(member)
    yield from sorted(groups.items(), key=lambda item: item[0])


def _powered(arm: Arm) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """By power scope: (tokens/s, W) of each node with a valid power reading."""
    members = [m for m in arm.members if _watts(m[1]) is not None and m[1].tokens_per_second is not None]
    for scope, group in _split(arm, members, lambda member: member[1].power_scope or ""):
        yield scope, [(float(row.tokens_per_second or 0), float(row.watts or 0)) for _, row in group]


def _power_sum(index: int) -> Rows:
    def rows(pool: Pool) -> Iterator[Row]:
        for arm in pool.arms:
            for scope, pairs in _powered(arm):
                yield (*arm.labels, scope), sum(pair[index] for pair in pairs)

    return rows


def _joules(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        for scope, group in _split(arm, arm.free, lambda member: member[1].power_scope or ""):
            found = _spread(float(value) for _, row in group if (value := _tokens_per_joule(row)) is not None)
            if found:
                yield (*arm.labels, scope), found


def _speedups(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        members = [m for m in arm.free if m[0].status.run is not None and m[1].speedup is not None]
        for against, group in _split(arm, members, _held_against):
            found = _spread(float(row.speedup or 0) for _, row in group)
            if found:
                yield (*arm.labels, *against.split("/")), found


def _held_against(member: Member) -> str:
    run = member[0].status.run
    return f"{run.scope}/{run.baseline}" if run else "/"


def _gemm_speedups(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        for mode in ("autocast", "prequantized"):
            found = _spread(float(row.gemm_speedup[mode]) for _, row in arm.free if mode in row.gemm_speedup)
            if found:
                yield (*arm.labels, mode), found


def _gemm_seconds(pool: Pool) -> Iterator[Row]:
    times: dict[tuple[str, ...], list[float]] = defaultdict(list)
    workloads = {result.node: result.workload for result in pool.results}
    for node, gemms in pool.gemms.items():
        for each in gemms:
            times[workloads[node], each.recipe, each.gemm, each.pass_, each.mode].append(each.seconds)
    for key in sorted(times):
        found = _spread(times[key], (0.5,))
        if found:
            yield (*pool.labels, *key), found


def _taxes(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        found = _spread(float(row.quantization_tax) for _, row in arm.free if row.quantization_tax is not None)
        if found:
            yield arm.labels, found


def _by_workload(pool: Pool) -> Iterator[tuple[str, list[tuple[float, bool]]]]:
    groups: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for standing in pool.standings.values():
        groups[standing.result.workload].append((standing.relative, standing.slow))
    yield from sorted(groups.items())


def _relative(pool: Pool) -> Iterator[Row]:
    for workload, found in _by_workload(pool):
        ratios = sorted(ratio for ratio, _ in found)
        parts = tuple((bound, float(bisect_right(ratios, bound))) for bound in BOUNDS)
        whole = (*parts, (float("inf"), float(len(ratios))))
        yield (*pool.labels, workload), Spread("le", whole, sum(ratios), len(ratios))


def _slowest(pool: Pool) -> Iterator[Row]:
    for workload, found in _by_workload(pool):
        yield (*pool.labels, workload, "all"), min(ratio for ratio, _ in found)
        others = [ratio for ratio, slow in found if not slow]
        if others:
            yield (*pool.labels, workload, "not_slow"), min(others)


def _driver(result: NodeResult) -> str:
    return (result.status.software and result.status.software.driver) or ""


def _energy_by_driver(pool: Pool) -> Iterator[Row]:
    for arm in pool.arms:
        members = [m for m in arm.free if _tokens_per_joule(m[1]) is not None and _driver(m[0])]
        for both, group in _split(arm, members, lambda m: f"{m[1].power_scope or ''}/{_driver(m[0])}"):
            if len(group) >= LEAST_NODES_OF_A_DRIVER:
                median = middle([float(row.tokens_per_joule or 0) for _, row in group])
                yield (*arm.labels, *both.split("/", 1)), median


def _driver_nodes(pool: Pool) -> Iterator[Row]:
    counts = Counter(driver for result in pool.results if (driver := _driver(result)))
    yield from (((*pool.labels, driver), float(counts[driver])) for driver in sorted(counts))


def _driver_orders(pool: Pool) -> Iterator[Row]:
    drivers = sorted({driver for result in pool.results if (driver := _driver(result))})
    yield from (((*pool.labels, driver), driver_order(driver)) for driver in drivers)


def driver_order(version: str) -> float:
    """A number that grows with the version: 580.95.05 gives 5800095000005; parts above 9999 count as 9999."""
    parts = [min(int(part), 9999) for part in re.findall(r"\d{1,9}", version)[:3]]
    return float(sum(part * 10 ** (4 * (2 - place)) for place, part in enumerate(parts)))


POOL_FAMILIES: tuple[Family[Pool], ...] = (
    Family(
        "precision_pool_nodes",
        "Nodes with a report: fresh (the newest attempt gave figures that still hold), stale (something has changed "
        "since), failed (the newest attempt gave none). They add up. Before a first result pool is empty.",
        (*POOL_OF, "phase"),
        "pool",
        _states,
        "nodes",
    ),
    Family(
        "precision_pool_marked_nodes",
        "Nodes of which something is to be said: slow, fallback, throttled, power_invalid, simulated. A node may have "
        "several marks.",
        (*POOL_OF, "mark"),
        "pool",
        _marked,
        "nodes",
    ),
    Family(
        "precision_pool_training_tokens_per_second",
        "Training tokens per second of a node, over all nodes whose precision is proved, throttled ones too; quantile "
        "0 is the slowest node. _sum is what the nodes give together, without communication.",
        POOL_RECIPE,
        "pool",
        _rates,
        "tokens/s",
        "summary",
    ),
    Family(
        "precision_pool_training_reference_tokens_per_second",
        "Median training tokens per second of the nodes that were not throttled: what a node of the pool should give.",
        POOL_RECIPE,
        "pool",
        _reference,
        "tokens/s",
    ),
    Family(
        "precision_pool_training_gpus",
        "GPUs of the nodes behind precision_pool_training_tokens_per_second.",
        POOL_RECIPE,
        "pool",
        _gpus,
        "GPUs",
    ),
    Family(
        "precision_pool_training_powered_tokens_per_second",
        "Training tokens per second of the nodes with a valid power reading, together.",
        (*POOL_RECIPE, "power_scope"),
        "pool",
        _power_sum(0),
        "tokens/s",
    ),
    Family(
        "precision_pool_training_power_watts",
        "Mean draw while training of the nodes with a valid power reading, together. Tokens per joule of the pool = "
        "precision_pool_training_powered_tokens_per_second over this, never a mean of ratios.",
        (*POOL_RECIPE, "power_scope"),
        "pool",
        _power_sum(1),
        "W",
    ),
    Family(
        "precision_pool_training_tokens_per_joule",
        "Training tokens per joule of a node, over the nodes that were not throttled and have a valid power reading.",
        (*POOL_RECIPE, "power_scope"),
        "pool",
        _joules,
        "tokens/J",
        "summary",
    ),
    Family(
        "precision_pool_training_speedup_ratio",
        "Training speedup of a node over the baseline recipe, over the nodes that were not throttled.",
        (*POOL_RECIPE, "scope", "baseline"),
        "pool",
        _speedups,
        "ratio",
        "summary",
    ),
    Family(
        "precision_pool_gemm_speedup_ratio",
        "Speedup of all matrix multiplications over the baseline, over the nodes that were not throttled; mode "
        "autocast includes quantisation, prequantized does not.",
        (*POOL_RECIPE, "mode"),
        "pool",
        _gemm_speedups,
        "ratio",
        "summary",
    ),
    Family(
        "precision_pool_gemm_seconds",
        "Median time of one matrix multiplication of the workload, over a sample of the pool's nodes; pass is fprop, "
        "dgrad or wgrad. Only where the exporter reads full results (--gemm-samples).",
        (*POOL_RECIPE, "gemm", "pass", "mode"),
        "pool",
        _gemm_seconds,
        "seconds",
        "summary",
    ),
    Family(
        "precision_pool_quantization_tax_ratio",
        "Quantisation kernels' share of the time of GEMM and quantisation kernels, over the nodes that were not "
        "throttled.",
        POOL_RECIPE,
        "pool",
        _taxes,
        "ratio",
        "summary",
    ),
    Family(
        "precision_pool_relative_performance",
        "A node's synchronous rate over the median of the nodes of its kind, best recipe, fresh figures.",
        POOL,
        "pool",
        _relative,
        "ratio",
        "histogram",
    ),
    Family(
        "precision_pool_slowest_ratio",
        "The slowest node's synchronous rate over the median: of all nodes, and of those that are not slow. A "
        "synchronous job over the whole pool gains not_slow / all - 1 when the slow nodes are drained.",
        (*POOL, "nodes"),
        "pool",
        _slowest,
        "ratio",
    ),
    Family(
        "precision_pool_driver_training_tokens_per_joule",
        "Median training tokens per joule of the nodes with one GPU driver; absent with fewer than 5 of them.",
        (*POOL_RECIPE, "power_scope", "driver"),
        "pool",
        _energy_by_driver,
        "tokens/J",
    ),
    Family(
        "precision_pool_driver_nodes",
        "Nodes by the GPU driver of their newest result.",
        (*POOL_OF, "driver"),
        "pool",
        _driver_nodes,
        "nodes",
    ),
    Family(
        "precision_pool_driver_order",
        "A number that grows with the driver's version, for rules to tell the newer of two.",
        (*POOL_OF, "driver"),
        "pool",
        _driver_orders,
    ),
)
