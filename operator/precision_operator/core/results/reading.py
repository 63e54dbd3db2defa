"""One report read into numbers, and the one rule for which of them may be used.

- A row is usable when its verdict is: the recipe's own precision ran, or an emulation that is labelled so; or it is
  assumed, of figures that are replayed or simulated.
- A power figure is there only where the power reading was valid and above 0 W.
- A row is throttled when heat or the power brake slowed the clocks in its own timed windows. Its speedups are spoiled
  by the baseline's windows too: a slow baseline makes every recipe look fast.
- A reading holds while it describes its node as the node is now. A new run that was only asked for (by a schedule, by
  age, by hand) leaves the old figures true until new ones replace them; another driver, spec or agent, other hardware,
  a lost node or a failed newest attempt do not.
- Provenance leaves nothing out: replayed and simulated figures are marked wherever they are shown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal, NamedTuple

from precision_api.exchange.message import Summary
from precision_api.exchange.peers import PeerKey, watts_text
from precision_api.exchange.request import Mode
from precision_api.exchange.result import Availability, Difference, MeasurementResult, ThrottleReason, Verdict
from precision_api.exchange.summary import USABLE
from precision_api.facts.names import FRESH
from precision_api.facts.recipes import Recipe, recipe_text, risk_of
from precision_api.facts.schema import Decimal, decimal
from precision_api.kinds import report
from precision_api.kinds.report import Origin, ReportRun
from precision_operator.core.observe.kept_report import driver_of

HOLDS_UNTIL_REPLACED = frozenset({"RerunNode", "Rerun", "Scheduled", "TooOld", "VerdictOpen"})
"""Reasons for a new run that say nothing against the figures of the old one."""

By = Literal["tokens_per_second", "tokens_per_joule"]


class MedianGroup(NamedTuple):
    """What the figures behind one median have in common."""

    holds: bool = True
    workload_hash: str = ""
    scope: str = ""
    baseline: Recipe = "bf16"
    data: str = ""
    """What the figures are, as `Reading.data` has it: simulated ones are never mixed with measured ones."""


_NO_GROUP, _NO_KEY = MedianGroup(), PeerKey()
_NO_MODES: Mapping[Mode, float] = {}


class RecipeRow(NamedTuple):
    """One recipe's figures on one node; None is not measured, or not valid.

    A tuple, not a frozen dataclass: the exporter's start makes 70,000 of them, each in a fifth of the time.
    """

    recipe: Recipe
    verdict: Verdict
    availability: Availability = "ok"
    throttled: bool = False
    """Whether heat or the power brake slowed the clocks in this row's own windows."""
    baseline_throttled: bool = False
    """Whether they did in the windows of the baseline, which the speedups are over."""
    teraflops_per_gpu: float | None = None
    tokens_per_second: float | None = None
    error: float | None = None
    """Half-width of the rate's 95 % interval, as a share of it."""
    gpu_spread: float | None = None
    """Slowest GPU's rate over the mean of the node's GPUs."""
    speedup: float | None = None
    speedup_lower: float | None = None
    speedup_upper: float | None = None
    difference: Difference | None = None
    gemm_speedup: Mapping[Mode, float] = _NO_MODES
    watts: float | None = None
    tokens_per_joule: float | None = None
    tokens_per_joule_net: float | None = None
    power_scope: str = ""
    """gpu or module; empty where the report does not say."""
    power_valid: bool | None = None
    """None where the report says nothing of power."""
    power_reasons: tuple[str, ...] = ()
    """Why the power reading was not valid."""
    throttled_share: float | None = None
    throttle_reason: ThrottleReason | None = None
    diverged_step: int | None = None
    loss_verdict: str = ""
    """Of the loss runs; empty where none ran. An agent before these verdicts told the step of a divergence alone."""
    last_layers_bf16: int | None = None
    """The model's last layers that stay in BF16; None where that is no question."""
    listed: bool = False
    """Whether the profile lists it by name."""
    failure: str | None = None
    """Why it has no rate, in words."""
    others: tuple[float | None, ...] = ()
    """The report's other figures, which no rule bears on, in the order of OTHERS."""

    @property
    def usable(self) -> bool:
        """Whether its figures may be shown as this recipe's, compared and recommended."""
        return self.verdict in USABLE

    @property
    def emulated(self) -> bool:
        """Whether it runs through another recipe's kernels, as they were seen or as the chip's table says."""
        return "emulated" in (self.verdict, self.availability)

    @property
    def title(self) -> str:
        """Recipe, speedup and how many layers stay in BF16, for columns."""
        return recipe_text(self.recipe, self.speedup, self.last_layers_bf16)

    @property
    def barred(self) -> bool:
        """Whether it has a known risk, and the profile does not list it by name: then nothing recommends it."""
        return not self.listed and bool(risk_of(self.recipe, self.last_layers_bf16))

    @property
    def tokens_per_joule_text(self) -> str | None:
        """For columns, in three digits; None where it has none."""
        return decimal(self.tokens_per_joule, 3)

    @property
    def learns(self) -> bool:
        """Whether no loss run speaks against the recipe. One that is healthy lifts no risk: it never shows parity."""
        return self.loss_verdict in ("", "healthy")

    @property
    def speedup_throttled(self) -> bool:
        """Whether throttling spoils its speedups: its own, or that of the baseline."""
        return self.throttled or self.baseline_throttled

    @property
    def synchronous_rate(self) -> float | None:
        """Tokens/s of a synchronous job: GPUs x slowest GPU; the plain rate where GPUs were not compared."""
        if self.tokens_per_second is None:
            return None
        return self.tokens_per_second * (self.gpu_spread or 1.0)


_NUMBERS = (Decimal | None, int | None)
_OF_ROWS = {"tokens_per_second_error", *RecipeRow._fields}
OTHERS: tuple[str, ...] = tuple(
    name
    for name, field in report.RecipeReport.model_fields.items()
    if field.annotation in _NUMBERS and name not in _OF_ROWS
)
"""Numbers of a report's row that `RecipeRow` has no field for."""
_SPEEDUPS = ("speedup", "speedup_lower", "speedup_upper")
_RATES = ("teraflops_per_gpu", "tokens_per_second", "tokens_per_second_error", "gpu_spread", *_SPEEDUPS)
_POWER = ("watts", "tokens_per_joule", "tokens_per_joule_net")
_numbers_of = attrgetter(*_RATES, *_POWER, "throttled_share", *OTHERS)


def other_figure(name: str) -> Callable[[RecipeRow], float | None]:
    """Reads the figure that the report's row calls `name`; ValueError where OTHERS has none of that name."""
    place = OTHERS.index(name)
    return lambda row: row.others[place] if row.others else None


@dataclass(frozen=True)
class Reading:
    """What one profile measured on one node: the figures as numbers, in the report's order, and what they are of."""

    node: str
    pool: str
    """As its reader sees it: the node's pool now, or when it was measured (empty before the first result)."""
    rows: Mapping[Recipe, RecipeRow]
    peers: PeerKey = _NO_KEY
    group: MedianGroup = _NO_GROUP
    stale: str = ""
    """Why a new run replaces these figures; empty where none does."""
    data: report.Origin | None = None
    finished_at: str | None = None
    """When the run of these figures ended; None without a result."""
    driver: str | None = None
    """Of the run of these figures: as the agent read it, or what its run was begun for."""
    run: report.ReportRun | None = None
    hardware: report.ReportHardware | None = None
    software: report.ReportSoftware | None = None
    attempt: report.ReportAttempt | None = None
    """The newest one, good or bad."""
    quarantine: report.Quarantine | None = None
    acceptance: report.ReportAcceptance | None = None
    namespace: str = ""
    profile: str = ""
    workload: str = ""
    """What its reader calls the workload; empty where it gave no name."""

    @cached_property
    def labels(self) -> tuple[str, str, str, str, str]:
        """What it is told apart by: namespace, profile, node, pool and workload."""
        return self.namespace, self.profile, self.node, self.pool, self.workload

    @property
    def holds(self) -> bool:
        """Whether the figures describe the node as it is now."""
        return self.group.holds

    @cached_property
    def usable_rows(self) -> tuple[RecipeRow, ...]:
        return tuple(row for row in self.rows.values() if row.usable)

    @cached_property
    def best(self) -> RecipeRow | None:
        """The fastest usable recipe."""
        return best_row(self.rows.values())

    @cached_property
    def best_by_energy(self) -> RecipeRow | None:
        """The usable recipe with the most tokens per joule."""
        return best_row(self.rows.values(), "tokens_per_joule")

    @cached_property
    def throttled(self) -> bool:
        """Whether any recipe was throttled: what a node is marked by."""
        return any(row.throttled for row in self.rows.values())

    @cached_property
    def fallen_back(self) -> tuple[Recipe, ...]:
        """Recipes that another precision took the place of."""
        return tuple(row.recipe for row in self.rows.values() if row.verdict == "fallback")

    @cached_property
    def power_invalid(self) -> bool:
        """Whether any recipe lacks its energy figures since the power reading was not valid."""
        return any(row.power_valid is False for row in self.rows.values())

    @property
    def made_up(self) -> bool:
        """Whether nobody measured these figures on this hardware."""
        return self.data in ("simulated", "replayed")


def read(
    node: str, pool: str, status: report.ReportStatus, namespace: str = "", profile: str = "", workload: str = ""
) -> Reading:
    """A report's figures; `pool` and `workload` are as the reader sees them."""
    run, driver = status.run, driver_of(status)
    baseline = run.baseline if run is not None else "bf16"
    data = provenance_of(run) if run is not None else None
    rows = read_rows(status.results, baseline)
    if data in ("measured", "trial"):  # where something ran, nobody assumes what
        rows |= {name: row._replace(verdict="unknown") for name, row in rows.items() if row.verdict == "assumed"}
    return Reading(
        node=node,
        pool=pool,
        rows=rows,
        peers=_peers(namespace, status, driver, data),
        group=MedianGroup(
            holds=_holds(status),
            workload_hash=run.workload_hash if run is not None else "",
            scope=run.scope if run is not None else "",
            baseline=baseline,
            data=data or "",
        ),
        stale=stale_reason(status),
        data=data,
        finished_at=run.finished_at if run is not None else None,
        driver=driver,
        run=run,
        hardware=status.hardware,
        software=status.software,
        attempt=status.attempt,
        quarantine=status.quarantine,
        acceptance=status.acceptance if status.acceptance and status.acceptance.verdict else None,
        namespace=namespace,
        profile=profile,
        workload=workload,
    )


def best_row(rows: Iterable[RecipeRow], by: By = "tokens_per_second") -> RecipeRow | None:
    """The usable row with the highest figure, neither barred nor with unhealthy loss runs; None where none has it."""
    sound = (row for row in rows if row.usable and row.learns and not row.barred)
    measured = [row for row in sound if getattr(row, by) is not None]
    return max(measured, key=lambda row: float(getattr(row, by)), default=None)


def stale_reason(status: report.ReportStatus) -> str:
    """Why the operator measures the node again; empty where it does not."""
    return next((c.reason for c in status.conditions if c.type == FRESH and c.status == "False"), "")


def _holds(status: report.ReportStatus) -> bool:
    reason, attempt = stale_reason(status), status.attempt
    if status.run is None or (reason and reason not in HOLDS_UNTIL_REPLACED):
        return False
    return attempt is None or attempt.outcome != "failed"


def _peers(namespace: str, status: report.ReportStatus, driver: str | None, data: report.Origin | None) -> PeerKey:
    hardware, software, run = status.hardware, status.software, status.run
    limit = hardware.limit_watts if hardware else None
    return PeerKey(
        namespace,
        hardware.product if hardware else "",
        str(hardware.gpus) if hardware else "",
        watts_text(limit),
        driver or "",
        (software.stack_hash if software else None) or "",
        ((run.timing if run else None) or "") if data in (None, "measured") else data,
        run.workload_hash if run else "",
    )


def read_rows(results: Iterable[report.RecipeReport], baseline: Recipe) -> dict[Recipe, RecipeRow]:
    """The rows by recipe, in order; the first one where a recipe is there twice."""
    first: dict[Recipe, report.RecipeReport] = {}
    for result in results:
        first.setdefault(result.recipe, result)
    reference = first.get(baseline)
    slowed = reference is not None and reference.throttled_share is not None
    return {recipe: _row(result, slowed) for recipe, result in first.items()}


def _row(result: report.RecipeReport, baseline_throttled: bool) -> RecipeRow:
    numbers = [None if text is None else float(text) for text in _numbers_of(result)]
    teraflops, rate, error, spread, speedup, lower, upper, watts, per_joule, per_joule_net, share, *others = numbers
    # A sensor that shows 0 W measured nothing.
    valid = False if result.power_invalid else None if watts is None else watts > 0
    return RecipeRow(
        recipe=result.recipe,
        verdict=result.verdict,
        availability=result.availability,
        throttled=share is not None,
        baseline_throttled=baseline_throttled,
        teraflops_per_gpu=teraflops,
        tokens_per_second=rate,
        error=error,
        gpu_spread=spread,
        speedup=speedup,
        speedup_lower=lower,
        speedup_upper=upper,
        difference=result.difference,
        gemm_speedup={mode: float(text) for mode, text in result.gemm_speedup.items()},
        watts=_energy(watts, valid),
        tokens_per_joule=_energy(per_joule, valid),
        tokens_per_joule_net=_energy(per_joule_net, valid),
        power_scope=result.power_scope or "",
        power_valid=valid,
        power_reasons=result.power_invalid,
        throttled_share=share,
        throttle_reason=result.throttle_reason,
        diverged_step=result.diverged_step,
        loss_verdict=result.loss_verdict or ("diverged" if result.diverged_step is not None else ""),
        last_layers_bf16=result.last_layers_bf16,
        listed=result.listed,
        failure=result.failure and result.failure.removeprefix("not_available: "),
        others=tuple(others),
    )


def _energy(value: float | None, valid: bool | None) -> float | None:
    return value if value is not None and value > 0 and valid is not False else None


def number(text: str | int | None) -> float | None:
    """A figure of a custom resource, which holds fractions as text; None stays None."""
    return None if text is None else float(text)


def provenance_of(source: ReportRun | Summary | MeasurementResult) -> Origin:
    """measured, replayed, simulated, or a trial on a CPU; one field that nobody measured makes all of it simulated."""
    if source.simulated or source.provenance == "simulated":
        return "simulated"
    if source.provenance == "replayed":
        return "replayed"
    return "trial" if source.provenance == "trial" or source.backend == "torch-cpu" else "measured"
