"""What a page is drawn from: saved results and reports, and the figures of each pool made from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from precision_api.profile import Thresholds
from precision_api.recipes import RECIPE_NAMES, Recipe
from precision_api.report import Origin, RecipeReport, ReportHardware, ReportRun, ReportSoftware, ReportStatus
from precision_api.result import Detail, MeasurementResult
from precision_api.stats import middle
from precision_api.summary import USABLE, summarize
from precision_operator.core.ingest import recipe_report
from precision_operator.core.origin import origin
from precision_operator.core.outliers import Judged, Measured, judged

DEFAULT_SLOW_PERCENT = float(Thresholds().slow_node_percent)
WATERMARKS = {"measured": "", "replayed": "REPLAYED", "simulated": "SIMULATED", "trial": "CPU TRIAL"}


@dataclass(frozen=True)
class Node:
    """One node with a result."""

    name: str
    pool: str
    status: ReportStatus
    stale: str = ""
    """Why its figures are out of date; empty where they are fresh."""


@dataclass(frozen=True)
class Given:
    """All that a page is drawn from. `price` is in dollars a GPU-hour."""

    subject: str
    made_at: str
    nodes: tuple[Node, ...]
    result: MeasurementResult | None = None
    """The full result of one node, for what reports don't hold."""
    result_problem: str = ""
    slow_node_percent: float = DEFAULT_SLOW_PERCENT
    """The profile's threshold for slow nodes."""
    standing: Judged | None = None
    """On the page of one node: how it stands against its like, which are not on the page."""
    unmeasured: tuple[str, ...] = ()
    """One sentence for each group of nodes without a result."""
    price: float | None = None

    @property
    def data(self) -> Origin:
        """The weakest origin of any figure on the page."""
        told = [*(node.status.run for node in self.nodes), self.result]
        found = {origin(each) for each in told if each is not None}
        return next((kind for kind in ("simulated", "replayed", "trial") if kind in found), "measured")

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Fresh nodes against their like, the slowest first: the same judgement as the operator's."""
        fresh = (Measured(node.name, node.pool, node.status) for node in self.nodes if not node.stale)
        return judged(fresh, self.slow_node_percent)

    @property
    def slow(self) -> tuple[str, ...]:
        return tuple(one.node for one in self.judged if one.slow)

    @property
    def watermark(self) -> str:
        return WATERMARKS[self.data]


@dataclass(frozen=True)
class Spread:
    """A figure with its bounds: a 95 % interval, or the range where there are too few nodes for one."""

    value: float
    lower: float
    upper: float
    n: int
    kind: Literal["interval", "range", "point"]


@dataclass(frozen=True)
class Row:
    """One recipe in one pool. A figure that is None was not measured or does not stand: `reason` says why."""

    recipe: Recipe
    nodes: int
    speedup: Spread | None = None
    rate: Spread | None = None
    """Training tokens/s of a node."""
    tokens_per_joule: Spread | None = None
    watts: float | None = None
    verdict: str = ""
    reason: str = ""
    power_reason: str = ""
    difference: str = ""


@dataclass(frozen=True)
class Pool:
    """The nodes of one pool and their figures by recipe."""

    name: str
    nodes: tuple[Node, ...]
    rows: tuple[Row, ...]
    gpus: int
    baseline: Recipe

    @property
    def best(self) -> Row | None:
        """The fastest recipe whose figures stand."""
        return max(
            (row for row in self.rows if row.rate), key=lambda row: row.rate.value if row.rate else 0, default=None
        )

    @property
    def thriftiest(self) -> Row | None:
        """The recipe with the most tokens per joule."""
        known = [row for row in self.rows if row.tokens_per_joule]
        return max(known, key=lambda row: row.tokens_per_joule.value if row.tokens_per_joule else 0, default=None)


def pools(given: Given) -> tuple[Pool, ...]:
    """Pools with a result, the largest first."""
    names = Counter(node.pool for node in given.nodes)
    return tuple(_pool(name, given) for name in sorted(names, key=lambda name: (-names[name], name)))


def _pool(name: str, given: Given) -> Pool:
    nodes = tuple(node for node in given.nodes if node.pool == name)
    recipes = {row.recipe for node in nodes for row in node.status.results}
    gpus = max((node.status.hardware.gpus for node in nodes if node.status.hardware), default=0)
    runs = [node.status.run for node in nodes if node.status.run]
    baseline: Recipe = runs[0].baseline if runs else "bf16"
    rows = tuple(_row(recipe, nodes) for recipe in RECIPE_NAMES if recipe in recipes)
    return Pool(name, nodes, rows, gpus, baseline)


def _row(recipe: Recipe, nodes: Sequence[Node]) -> Row:
    found = [row for node in nodes for row in node.status.results if row.recipe == recipe]
    good = [row for row in found if row.verdict in USABLE]
    even = [row for row in good if row.throttled_share is None] or good
    if not even:
        return Row(recipe, 0, verdict=_most(row.verdict for row in found), reason=_why_not(found))
    return Row(
        recipe,
        len(even),
        speedup=_spread(even, lambda row: row.speedup, _speedup_bounds),
        rate=_spread(even, lambda row: row.tokens_per_second, _rate_bounds),
        tokens_per_joule=_spread(even, lambda row: None if row.power_invalid else row.tokens_per_joule, _no_bounds),
        watts=_middle(even, lambda row: None if row.power_invalid else row.watts),
        verdict=_most(row.verdict for row in even),
        reason=_why_not(even) if all(row.tokens_per_second is None for row in even) else "",
        power_reason=_most(row.power_invalid[0] for row in even if row.power_invalid),
        difference=_most(row.difference for row in even if row.difference),
    )


def _most(told: object) -> str:
    """What is said most often; empty for nothing."""
    counts = Counter(str(each) for each in told)  # type: ignore[attr-defined]
    return counts.most_common(1)[0][0] if counts else ""


def _why_not(found: Sequence[RecipeReport]) -> str:
    """Why a recipe has no figure, in words."""
    fallback = sum(row.verdict == "fallback" for row in found)
    if fallback:
        return f"the precision did not run on {fallback} of {len(found)}: another one took its place (fallback)"
    told = _most(row.failure for row in found if row.failure)
    if told:
        return told
    if all(row.availability == "unsupported" for row in found):
        return "these GPUs do not support it"
    return f"not verified: {_most(row.verdict for row in found)}"


Pick = Callable[[RecipeReport], str | None]
Bounds = Callable[[RecipeReport, float], tuple[float, float] | None]


def _spread(rows: Sequence[RecipeReport], pick: Pick, bounds: Bounds) -> Spread | None:
    """Of one node: with its own interval. Of several: the median, with its interval over nodes."""
    known = [(row, float(text)) for row in rows if (text := pick(row)) is not None]
    if not known:
        return None
    if len(known) > 1:
        return median_spread([value for _, value in known])
    row, value = known[0]
    own = bounds(row, value)
    return Spread(value, *own, 1, "interval") if own else Spread(value, value, value, 1, "point")


def _speedup_bounds(row: RecipeReport, value: float) -> tuple[float, float] | None:
    if row.speedup_lower is None or row.speedup_upper is None:
        return None
    return float(row.speedup_lower), float(row.speedup_upper)


def _rate_bounds(row: RecipeReport, value: float) -> tuple[float, float] | None:
    if row.tokens_per_second_error is None:
        return None
    half = value * float(row.tokens_per_second_error)
    return value - half, value + half


def _no_bounds(row: RecipeReport, value: float) -> None:
    return None


def _middle(rows: Sequence[RecipeReport], pick: Pick) -> float | None:
    known = [float(text) for row in rows if (text := pick(row)) is not None]
    return middle(known) if known else None


def median_spread(values: Sequence[float]) -> Spread:
    """The median of several nodes with its 95 % interval from order statistics, which supposes no distribution.

    Below six values there is no such interval: the range stands in for it.
    """
    ordered, n = sorted(values), len(values)
    # Exact and in integers: P(at most `below` of n coin tosses) <= 1/40, each binomial from the one before.
    below, term = -1, 1
    cumulative = term
    while cumulative * 40 <= 1 << n:
        below += 1
        term = term * (n - below) // (below + 1)
        cumulative += term
    if below < 0:
        return Spread(middle(ordered), ordered[0], ordered[-1], n, "range")
    return Spread(middle(ordered), ordered[below], ordered[n - 1 - below], n, "interval")


def node_of_result(result: MeasurementResult) -> Node:
    """A saved result as the operator's report would tell it."""
    summary = summarize(result, Detail(lines=1, bytes=1, sha256="0" * 64))
    limits = [gpu.enforced_limit_watts for gpu in result.gpus]
    run = ReportRun(
        run=result.run,
        request_hash=result.request_hash,
        backend=result.backend,
        provenance=result.provenance,
        simulated=summary.simulated,
        partial=summary.partial,
        finished_at=result.finished_at,
        duration_seconds=f"{result.duration_seconds:.3f}",
        workload=result.workload_name,
        workload_hash=result.workload_hash,
        baseline=result.baseline,
        scope=result.recipe_scope,
    )
    watts = round(math.fsum(limit for limit in limits if limit)) if limits and None not in limits else None
    status = ReportStatus(
        hardware=ReportHardware(product=result.product, gpus=len(result.gpus), pool=result.product, limit_watts=watts),
        software=ReportSoftware.model_validate(result.software.model_dump()),
        run=run,
        results=tuple(map(recipe_report, summary.recipes)),
        data=origin(result),
    )
    return Node(result.node, result.product, status)
