"""What a page is drawn from: saved results and reports, and the figures of each pool made from them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from precision_api.exchange.message import Detail
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.summary import summarize
from precision_api.facts.recipes import Recipe, in_order, names_of, recipe_text
from precision_api.kinds.profile import Thresholds
from precision_api.kinds.report import Origin, ReportHardware, ReportSoftware, ReportStatus
from precision_operator.core.results import pool as core_pool
from precision_operator.core.results.intervals import Spread
from precision_operator.core.results.outliers import Judged, Peers
from precision_operator.core.results.reading import Reading, provenance_of, read
from precision_operator.core.results.reading import RecipeRow as NodeRow
from precision_operator.core.results.rows import recipe_report, report_run
from precision_operator.core.results.slowness import PeerComparison

DEFAULT_SLOW_PERCENT = float(Thresholds().slow_node_percent)
NOT_FASTER = ("no_difference", "slower")
"""Of a recipe against the baseline of the same run."""
WATERMARKS = {"measured": "", "replayed": "REPLAYED", "simulated": "SIMULATED", "trial": "CPU TRIAL"}


@dataclass(frozen=True)
class Given:
    """All that a page is drawn from. `price` is in dollars a GPU-hour."""

    subject: str
    made_at: str
    nodes: tuple[Reading, ...]
    result: MeasurementResult | None = None
    """The full result of one node, for what reports don't hold."""
    result_problem: str = ""
    slow_node_percent: float = DEFAULT_SLOW_PERCENT
    """The profile's threshold for slow nodes."""
    peers: Peers | None = None
    """What the nodes are compared with; None: with each other."""
    standing: PeerComparison | None = None
    """On the page of one node: how it compares with its peers, which are not on the page."""
    no_peers: str = ""
    """Why the page's one node is compared with nobody, where it is."""
    unmeasured: tuple[str, ...] = ()
    """One sentence for each group of nodes without a result."""
    price: float | None = None

    @property
    def data(self) -> Origin:
        """The weakest origin of any figure on the page."""
        kinds = {node.data for node in self.nodes}
        if self.result is not None:
            kinds.add(provenance_of(self.result))
        weakest: tuple[Origin, ...] = ("simulated", "replayed", "trial")
        return next((kind for kind in weakest if kind in kinds), "measured")

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Nodes against their peers, the slowest first: the same judgement as the operator's."""
        return (self.peers or Peers(self.nodes)).judged(self.nodes, self.slow_node_percent)

    @property
    def slow_node(self) -> PeerComparison | None:
        """Of the page's one node, where it is slow: the page leads with it."""
        return self.standing if self.standing is not None and self.standing.judged.slow else None

    @property
    def watermark(self) -> str:
        return WATERMARKS[self.data]


@dataclass(frozen=True)
class PoolRow:
    """One recipe in one pool. A figure that is None was not measured, or can't be used: `reason` says why."""

    recipe: Recipe
    nodes: int
    speedup: Spread | None = None
    gemms: Spread | None = None
    """Speedup of all GEMMs with their casts."""
    teraflops: Spread | None = None
    """Model TFLOP/s of one GPU in training."""
    rate: Spread | None = None
    """Training tokens/s of a node."""
    tokens_per_joule: Spread | None = None
    watts: float | None = None
    verdict: str = ""
    reason: str = ""
    power_reason: str = ""
    difference: str = ""
    loss: str = ""
    """What the loss runs of at least half of the nodes that had any say against the recipe; empty where nothing."""
    layers_bf16: int | None = None
    barred: bool = False
    emulated: bool = False
    """Both as in reading.RecipeRow, of any of the nodes."""
    parts: str = ""
    """The letters of a mixture's parts where another on the page has its name."""

    @property
    def title(self) -> str:
        """The recipe, and how many layers stay in BF16."""
        return recipe_text(self.recipe, None, self.layers_bf16, "bf16", self.parts)


@dataclass(frozen=True)
class PoolFigures:
    """The nodes of one pool and their figures by recipe."""

    name: str
    nodes: tuple[Reading, ...]
    rows: tuple[PoolRow, ...]
    gpus: int
    baseline: Recipe
    recipe: Recipe | None = None
    """The fastest one on most nodes."""

    @property
    def best(self) -> PoolRow | None:
        """The fastest recipe whose figures stand, is not barred and whose loss runs were healthy; one that is not
        faster than the baseline beyond noise only where the baseline has no figure."""
        sound = [row for row in self.rows if row.rate and not row.loss and not row.barred]
        beyond = [row for row in sound if row.recipe == self.baseline or row.difference not in NOT_FASTER]
        return max(beyond or sound, key=lambda row: row.rate.value if row.rate else 0, default=None)

    @property
    def among(self) -> str:
        """Of which recipes the best are, in words; empty for all, where none with figures is barred or diverged."""
        risk = " without a known risk" if any(row.barred for row in self.rows) else ""
        sound = f"{risk} whose loss was healthy" if any(row.loss for row in self.rows) else risk
        return sound and f" of the recipes{sound}"

    @property
    def most_energy_efficient(self) -> PoolRow | None:
        """The recipe with the most tokens per joule, of those whose loss runs were healthy."""
        efficient = [row for row in self.rows if row.tokens_per_joule and not row.loss and not row.barred]
        return max(efficient, key=lambda row: row.tokens_per_joule.value if row.tokens_per_joule else 0, default=None)


def pools(facts: Given) -> tuple[PoolFigures, ...]:
    """Pools with a result, the largest first."""
    names = Counter(node.pool for node in facts.nodes)
    return tuple(_pool(name, facts) for name in sorted(names, key=lambda name: (-names[name], name)))


def _pool(name: str, facts: Given) -> PoolFigures:
    nodes = tuple(node for node in facts.nodes if node.pool == name)
    figures = core_pool.Pool(nodes)
    names = names_of(recipe for node in facts.nodes for recipe in node.rows)
    recipes = {recipe for reading in figures.population for recipe in reading.rows}
    gpus = max((node.hardware.gpus for node in nodes if node.hardware), default=0)
    return PoolFigures(
        name=name,
        nodes=nodes,
        rows=tuple(
            replace(_row(recipe, figures), parts=names[recipe].partition(".")[2]) for recipe in in_order(recipes)
        ),
        gpus=gpus,
        baseline=figures.population[0].group.baseline if figures.population else "bf16",
        recipe=figures.best,
    )


def _row(recipe: Recipe, pool: core_pool.Pool) -> PoolRow:
    tried = [reading.rows[recipe] for reading in pool.population if recipe in reading.rows]
    rates = pool.steady("tokens_per_second", recipe)
    if not rates:
        return PoolRow(recipe, 0, verdict=_most(row.verdict for row in tried), reason=_why_not(tried))
    return PoolRow(
        recipe,
        len(rates),
        speedup=pool.spread("speedup", recipe),
        gemms=pool.spread("gemm_autocast", recipe),
        teraflops=pool.spread("teraflops_per_gpu", recipe),
        rate=pool.spread("tokens_per_second", recipe),
        tokens_per_joule=pool.spread("tokens_per_joule", recipe),
        watts=pool.median("watts", recipe),
        verdict=_most(row.verdict for row in rates),
        reason=_why_not(rates) if all(row.tokens_per_second is None for row in rates) else "",
        power_reason=_most(row.power_reasons[0] for row in rates if row.power_reasons),
        difference=_most(row.difference for row in rates if row.difference),
        loss=_against(rates),
        layers_bf16=pool.layers_bf16(recipe),
        barred=any(row.barred for row in rates),
        emulated=any(row.emulated for row in rates),
    )


def _against(rows: Sequence[NodeRow]) -> str:
    verdicts = [row.loss_verdict for row in rows if row.loss_verdict]
    wrong = [verdict for verdict in verdicts if verdict != "healthy"]
    return _most(wrong) if 2 * len(wrong) >= len(verdicts) else ""


def _most(words: object) -> str:
    """What is said most often; empty for nothing."""
    counts = Counter(str(word) for word in words)  # type: ignore[attr-defined]
    return counts.most_common(1)[0][0] if counts else ""


def _why_not(rows: Sequence[NodeRow]) -> str:
    """Why a recipe has no figure, in words."""
    fallback = sum(row.verdict == "fallback" for row in rows)
    if fallback:
        return f"the precision did not run on {fallback} of {len(rows)}: another one took its place (fallback)"
    failure = _most(row.failure for row in rows if row.failure)
    if failure:
        return failure
    if all(row.availability == "unsupported" for row in rows):
        return "these GPUs do not support it"
    return f"precision not proved: {_most(row.verdict for row in rows)}"


def reading_of_result(result: MeasurementResult) -> Reading:
    """A saved result as the operator's report would tell it."""
    return read(result.node, result.product, status_of_result(result))


def status_of_result(result: MeasurementResult) -> ReportStatus:
    summary = summarize(result, Detail(lines=1, bytes=1, sha256="0" * 64))
    hardware = {"product": result.product, "gpus": len(result.gpus), "pool": result.product}
    return ReportStatus(
        hardware=ReportHardware(**hardware, limit_watts=result.limit_watts),
        software=ReportSoftware.model_validate(result.software.model_dump()),
        run=report_run(summary, result.finished_at, workload=result.workload_name),
        results=tuple(map(recipe_report, summary.recipes)),
    )
