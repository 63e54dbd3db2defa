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

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, get_args

from precision_api.exchange import stats
from precision_api.exchange.message import Summary
from precision_api.exchange.peers import PeerKey, watts_text
from precision_api.exchange.request import Mode, step_marks
from precision_api.exchange.result import Availability, Difference, Interval, MeasurementResult, ThrottleReason, Verdict
from precision_api.exchange.summary import USABLE
from precision_api.facts.names import FRESH
from precision_api.facts.recipes import Recipe, recipe_text, risk_of
from precision_api.facts.schema import decimal
from precision_api.kinds import report
from precision_api.kinds.report import Origin, ReportRun
from precision_operator.core.observe.kept_report import KeptResults, KeptWords, driver_of, once

HOLDS_UNTIL_REPLACED = frozenset({"RerunNode", "Rerun", "Scheduled", "TooOld", "VerdictOpen"})
"""Reasons for a new run that say nothing against the figures of the old one."""


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
    quantization_tax: float | None = None
    quantization_tax_most: float | None = None
    model_memory_bytes: float | None = None
    allocated_peak_bytes: float | None = None

    @property
    def usable(self) -> bool:
        """Whether its figures may be shown as this recipe's, compared and recommended."""
        return self.verdict in USABLE

    @property
    def emulated(self) -> bool:
        """Whether it runs through another recipe's kernels, as they were seen or as the chip's table says."""
        return "emulated" in (self.verdict, self.availability)

    def title(self, baseline: Recipe, timing: str | None = None) -> str:
        """Recipe, speedup over that baseline, what is special in its step and how many layers stay in BF16."""
        marks = step_marks(self.recipe, timing)
        return recipe_text(self.recipe, self.speedup, self.last_layers_bf16, baseline, marks)

    @property
    def barred(self) -> bool:
        """Whether it has a known risk, and the profile does not list it by name: then nothing recommends it."""
        return not self.listed and bool(risk_of(self.recipe, self.last_layers_bf16))

    @property
    def sound(self) -> bool:
        """Whether it may be recommended: usable, neither barred nor with unhealthy loss runs."""
        return self.usable and self.learns and not self.barred

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
    def gemm_autocast(self) -> float | None:
        """Speedup of all GEMMs with their casts."""
        return self.gemm_speedup.get("autocast")

    @property
    def synchronous_rate(self) -> float | None:
        """Tokens/s of a synchronous job: GPUs x slowest GPU; the plain rate where GPUs were not compared."""
        if self.tokens_per_second is None:
            return None
        return self.tokens_per_second * (self.gpu_spread or 1.0)


MODES: tuple[Mode, ...] = get_args(Mode)
_SPEEDUPS = ("speedup", "speedup_lower", "speedup_upper")
_OTHERS = ("quantization_tax", "quantization_tax_most", "model_memory_bytes", "allocated_peak_bytes")
_OWN = ("teraflops_per_gpu", "tokens_per_second", "gpu_spread", "throttled_share", *_SPEEDUPS, *_OTHERS)
_POWER = ("watts", "tokens_per_joule", "tokens_per_joule_net")
_OF_BASELINE = (*_SPEEDUPS, "difference", "quantization_tax", "quantization_tax_most")
NO_SPEEDUPS: Mapping[str, Any] = dict.fromkeys(_OF_BASELINE) | {"gemm_speedup": _NO_MODES}
"""Changes to a row that has nothing to be compared with."""
_STEPS = ("diverged_step", "last_layers_bf16", "listed")
_WORDS = ("recipe", "verdict", "availability", "difference", "throttle_reason", *_STEPS)


class Marks(NamedTuple):
    """What is asked of all rows of a reading: the same object for all readings that have the same."""

    useful: bool
    """Whether a figure may be used."""
    best: Recipe | None
    best_by_energy: Recipe | None
    throttled: bool
    fallen_back: tuple[Recipe, ...]
    """Recipes that another precision took the place of."""
    listed: tuple[tuple[Recipe, int | None], ...]
    """Recipes, each with how many last layers stay in BF16, in the report's order."""
    rated: frozenset[Recipe]
    power_invalid: bool
    """Whether any recipe lacks its energy figures since the power reading was not valid."""


@dataclass(frozen=True, slots=True)
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
    marks: Marks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = [*self.rows.values()]
        sound = [row for row in rows if row.sound]
        marks = once(
            Marks,
            any(row.usable for row in rows),
            *(row and row.recipe for row in (_most(sound, "tokens_per_second"), _most(sound, "tokens_per_joule"))),
            any(row.throttled for row in rows),
            tuple(row.recipe for row in rows if row.verdict == "fallback"),
            tuple((row.recipe, row.last_layers_bf16) for row in rows),
            frozenset(row.recipe for row in rows if row.tokens_per_second is not None),
            any(row.power_valid is False for row in rows),
        )
        object.__setattr__(self, "marks", marks)

    @property
    def labels(self) -> tuple[str, str, str, str, str]:
        """What it is told apart by: namespace, profile, node, pool and workload."""
        return self.namespace, self.profile, self.node, self.pool, self.workload

    @property
    def holds(self) -> bool:
        """Whether the figures describe the node as it is now."""
        return self.group.holds

    @property
    def timing(self) -> str | None:
        """The title of its steps, as `timing_title` has it."""
        return self.run.timing if self.run else None

    @property
    def usable_rows(self) -> tuple[RecipeRow, ...]:
        return tuple(row for row in self.rows.values() if row.usable)

    def intervals(self, recipe: Recipe) -> Mapping[str, Interval]:
        """Of a recipe's rate and speedups, by field, where known; both ends are as far from the figure, as ratios."""
        row, of_gemms = self.rows[recipe], number(self.run.gemm_error) if self.run else None
        of = {"tokens_per_second": (row.tokens_per_second, row.error), "gemm_autocast": (row.gemm_autocast, of_gemms)}
        made = {name: stats.around(value, error) for name, (value, error) in of.items() if value and error is not None}
        low, value, high = row.speedup_lower, row.speedup, row.speedup_upper
        if low and value and high:
            made["speedup"] = Interval.model_construct(value=value, lower=low, upper=high, n=1)
        return made

    @property
    def made_up(self) -> bool:
        """Whether nobody measured these figures on this hardware."""
        return self.data in ("simulated", "replayed")


def read(
    node: str, pool: str, status: report.ReportStatus, namespace: str = "", profile: str = "", workload: str = ""
) -> Reading:
    """A report's figures; `pool` and `workload` are as the reader sees them."""
    run, driver = status.run, driver_of(status)
    stale = next((c.reason for c in status.conditions if c.type == FRESH and c.status == "False"), "")
    baseline = run.baseline if run is not None else "bf16"
    data = provenance_of(run) if run is not None else None
    failed = status.attempt is not None and status.attempt.outcome == "failed"
    holds = run is not None and not failed and (not stale or stale in HOLDS_UNTIL_REPLACED)
    rows, of = read_rows(status.results, baseline), (baseline, data or "")
    assumed = [name for name, row in rows.items() if row.verdict == "assumed"] if data in ("measured", "trial") else []
    if assumed:  # where something ran, nobody assumes what
        rows = {**rows, **{name: rows[name]._replace(verdict="unknown") for name in assumed}}
    return Reading(
        node=node,
        pool=pool,
        rows=rows,
        peers=_peers(namespace, status, driver, data),
        group=once(MedianGroup, holds, *((run.workload_hash, run.scope) if run else ("", "")), *of),
        stale=stale,
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


def best_row(rows: Iterable[RecipeRow]) -> RecipeRow | None:
    """The sound row with the highest rate; None where none has one."""
    return _most((row for row in rows if row.sound), "tokens_per_second")


def _most(rows: Iterable[RecipeRow], by: Literal["tokens_per_second", "tokens_per_joule"]) -> RecipeRow | None:
    return max((row for row in rows if getattr(row, by) is not None), key=attrgetter(by), default=None)


def _peers(namespace: str, status: report.ReportStatus, driver: str | None, data: report.Origin | None) -> PeerKey:
    hardware, software, run = status.hardware, status.software, status.run
    key: PeerKey = once(
        PeerKey,
        namespace,
        *((hardware.product, str(hardware.gpus), watts_text(hardware.limit_watts)) if hardware else ("", "", "")),
        driver or "",
        (software.stack_hash if software else None) or "",
        ((run.timing if run else None) or "") if data in (None, "measured") else data,
        run.workload_hash if run else "",
    )
    return key


_Maker = Callable[[Sequence[float]], RecipeRow]


@dataclass(frozen=True, slots=True, eq=False)
class _KeptRows(Mapping[Recipe, RecipeRow]):
    """Rows that are made where they are asked for: one array of figures is all that is the node's own."""

    makers: Mapping[Recipe, _Maker]
    figures: Sequence[float]

    def __getitem__(self, recipe: Recipe) -> RecipeRow:
        return self.makers[recipe](self.figures)

    def __iter__(self) -> Iterator[Recipe]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


@lru_cache(10_000)
def _makers(rows: KeptWords, baseline: Recipe) -> tuple[Mapping[Recipe, _Maker], Sequence[int]]:
    """What makes each row of the figures of all rows in turn, and where among these power and energy are."""
    slowed = "throttled_share" in next((names for row, names, _ in rows if row.recipe == baseline), ())
    makers, energies, at = dict[Recipe, _Maker](), list[int](), 0
    for row, names, modes in rows:
        makers.setdefault(row.recipe, _maker(row, names, modes, at, slowed))
        energies += [at + names.index(name) for name in _POWER if name in names]
        at += len(names) + len(modes)
    return makers, energies


def _maker(row: report.RecipeReport, names: Sequence[str], modes: Sequence[Mode], at: int, slowed: bool) -> _Maker:
    """The figures of this row begin at `at`."""
    blank = _row(row.model_copy(update={**dict.fromkeys(names, "1"), "gemm_speedup": {}}), slowed)
    of = {name: place for place, name in enumerate((*names, "gemm_speedup"), len(blank))}
    of["error"], end = of.pop("tokens_per_second_error", 0), at + len(names)
    get = itemgetter(*(of.get(name, i) if blank[i] is not None else i for i, name in enumerate(RecipeRow._fields)))

    def make(figures: Sequence[float]) -> RecipeRow:
        speedups = dict(zip(modes, figures[end : end + len(modes)], strict=True))
        return RecipeRow._make(get((*blank, *figures[at:end], speedups)))

    return make


def read_rows(results: Iterable[report.RecipeReport], baseline: Recipe) -> Mapping[Recipe, RecipeRow]:
    """The rows by recipe, in order; without speedups where the quantised baseline's precision is in doubt."""
    rows = _rows(results, baseline)
    base = rows.get(baseline)
    if base is None or base.usable or baseline == "bf16":
        return rows
    return {recipe: row._replace(**NO_SPEEDUPS) for recipe, row in rows.items()}


def _rows(results: Iterable[report.RecipeReport], baseline: Recipe) -> Mapping[Recipe, RecipeRow]:
    """The first one where a recipe is there twice."""
    if isinstance(results, KeptResults):
        makers, energies = _makers(results.rows, baseline)
        figures = array("d", [*map(float, results.figures.split())])  # of a list: an array that grows has room for more
        if all(figures[at] > 0 for at in energies):
            return _KeptRows(makers, figures)
    first: dict[Recipe, report.RecipeReport] = {}
    for result in results:
        first.setdefault(result.recipe, result)
    reference = first.get(baseline)
    slowed = reference is not None and reference.throttled_share is not None
    return {recipe: _row(result, slowed) for recipe, result in first.items()}


def _row(result: report.RecipeReport, baseline_throttled: bool) -> RecipeRow:
    figures = {name: number(getattr(result, name)) for name in (*_OWN, *_POWER, "tokens_per_second_error")}
    # A sensor that shows 0 W measured nothing.
    valid = False if result.power_invalid else None if figures["watts"] is None else figures["watts"] > 0
    values: dict[str, Any] = {name: getattr(result, name) for name in _WORDS} | {name: figures[name] for name in _OWN}
    values |= {name: figures[name] if (figures[name] or 0) > 0 and valid is not False else None for name in _POWER}
    return RecipeRow(
        **values,
        throttled=figures["throttled_share"] is not None,
        baseline_throttled=baseline_throttled,
        error=figures["tokens_per_second_error"],
        gemm_speedup={mode: float(text) for mode, text in result.gemm_speedup.items()},
        power_scope=result.power_scope or "",
        power_valid=valid,
        power_reasons=result.power_invalid,
        loss_verdict=result.loss_verdict or ("diverged" if result.diverged_step is not None else ""),
        failure=result.failure and result.failure.removeprefix("not_available: "),
    )


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
