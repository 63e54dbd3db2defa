"""A plan's spec as numbers, with units and defaults: what every other part of the planner reads; and a plan's time.

Every stage is handed the clock and looks at it in its loops, so none runs on unseen.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from precision_api.facts.recipes import Recipe
from precision_api.kinds.capacity_plan import Doubt, Objective
from precision_operator.planner.inputs.quantities import InputProblem, UnusableInput
from precision_operator.planner.inputs.workloads import JobWorkload

NO_PRICE = "a price of 0 would make this pool win every time: give its price, or leave it out and order by time"
MOST_DAYS = 3_650.0


@dataclass(frozen=True, slots=True)
class JobRateTerms:
    """A whole job's measured rate."""

    target: JobWorkload
    recipe: Recipe
    gpus: int
    per_gpu: float
    watts_per_gpu: float | None
    source: str
    plus_minus: float | None = None
    """Relative half-width of its 90 % band; None: not given."""
    releases_apart: int = 1
    batch: float | None = None
    """Tokens of a step; None: not given."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Share of time that jobs make progress, and the relative half-width of its 90 % band where that is given."""

    share: float
    plus_minus: float | None = None


@dataclass(frozen=True, slots=True)
class Repairs:
    """Nodes that a job of `tokens` may have in place of failed ones, in a pool of `nodes`, spares among them, of
    which jobs may take `planned`, and other jobs than this one `others`."""

    hours: float
    node_gpus: int
    nodes: int
    planned: int
    others: int
    tokens: float


@dataclass(frozen=True, slots=True)
class Failures:
    """What interrupts jobs, where no goodput is given. None: not given; `interval_minutes`: between checkpoints."""

    per_gpu_hour: float | None = None
    stall_seconds: float = 10.0
    restart_minutes: float = 15.0
    interval_minutes: float | None = None
    repairs: Repairs | None = None
    """None: a free node always takes the place of a failed one."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides a job's rate beside where it runs. `batch`: tokens of a step, and up to how many it may grow."""

    progress: Goodput | Failures
    batch: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Scaling:
    """(GPUs, efficiency) by recipe, smallest first; None: of all recipes that have none of their own. `plus_minus`:
    relative half-width of their 90 % band, the widest that is given."""

    points: Mapping[Recipe | None, tuple[tuple[int, float], ...]]
    plus_minus: float | None


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """What the user says of one pool."""

    name: str
    product: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    limit_watts_per_gpu: float | None = None
    power_scope: str = "gpu"
    limit_scope: str = "gpu"
    idle_watts_per_gpu: float = 0.0
    block_gpus: int | None = None
    scaling: Scaling | None = None
    memory_gibibytes: int | None = None
    """Of one GPU."""
    job_rates: tuple[JobRateTerms, ...] = ()
    goodput: Goodput | None = None
    dollars_per_gpu_hour: float | None = None
    price_includes_power: bool = False
    committed_gpu_hours: float = 0.0
    power_watts: float | None = None
    spare_nodes: int | None = None
    repair_days: float = 3.0
    more_nodes: int = 0
    """Nodes that a question adds: like those that the pool has, in whole racks of its largest one."""

    def scaling_of(self, recipe: Recipe) -> tuple[tuple[int, float], ...]:
        """(GPUs, efficiency) by job size, smallest first; empty where nothing is given for this recipe."""
        points = self.scaling.points if self.scaling else {}
        return points.get(recipe, points.get(None, ()))


@dataclass(frozen=True, slots=True)
class Fit:
    """What limits a job's size beside the pools: sequences of one step and at most, GPUs of a model's copy."""

    global_batch: int | None = None
    most_batch: int | None = None
    gpus_per_replica: int | None = None
    ignored: bool = False
    """Whether neither memory nor the batch is to limit it."""


@dataclass(frozen=True, slots=True)
class RunningTerms:
    """Where a job runs already."""

    pool: str
    recipe: Recipe
    gpus: int
    tokens_done: float
    days: float | None
    """For how long it has been running, until the plan's start."""

    @property
    def seen(self) -> float | None:
        """Tokens/s that it has reached until now, stops and all; None where that is not known."""
        return self.tokens_done / self.days / 86_400 if self.days and self.tokens_done else None


@dataclass(frozen=True, slots=True)
class JobTerms:
    """One job. `tokens` are those that are left to do."""

    name: str
    target: JobWorkload
    tokens: float
    deadline_days: float | None
    """Days from the plan's start."""
    recipes: frozenset[Recipe]
    pools: frozenset[str]
    """Empty: all."""
    min_gpus: int
    max_gpus: int | None
    block_gpus: int | None
    priority: int
    after: tuple[str, ...]
    goodput: Goodput | None
    fit: Fit = Fit()
    named: frozenset[Recipe] = frozenset()
    """Recipes that the plan names for it: those may be predicted where nobody measured them, and have a known risk."""
    not_before: float = 0.0
    """Days from the plan's start."""
    running: RunningTerms | None = None


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What all jobs together may take; None is no limit."""

    watts: float | None = None
    budgets: Mapping[str, float] = field(default_factory=dict)
    """By field of the spec's `budget`."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The whole spec as numbers."""

    start: datetime
    max_age: timedelta
    allow: frozenset[Doubt]
    profiles: frozenset[str]
    fastest: bool
    objectives: tuple[Objective, ...]
    """Empty: whatever can be told."""
    goodput: Goodput | None
    failures: Failures
    scaling: Scaling | None
    """Of pools that the plan does not name."""
    pools: Mapping[str, PoolTerms]
    jobs: tuple[JobTerms, ...]
    pue: float | None
    overhead: Mapping[str, float | None]
    dollars_per_kilowatt_hour: float | None
    limits: PlanLimits
    gap: float
    seconds: float
    taken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By job without maxGPUs and by pool, GPUs that it is taken to have beside others; not named: all of the pool."""

    @property
    def electricity_alone(self) -> bool:
        """Whether cost is that of electricity: it has a price, and no pool's GPU hours have one."""
        return self.dollars_per_kilowatt_hour is not None and not any(
            pool.dollars_per_gpu_hour for pool in self.pools.values()
        )


NARROW = "narrow the choice with jobs[].pools, jobs[].recipes, jobs[].minGPUs and maxGPUs"


class NotKnown(UnusableInput):
    """No plan was found, and that there is none is not proved."""

    phase: ClassVar[Literal["TimedOut", "NotFound"]]
    """What the status then says."""


class NoneFound(NotKnown):
    """The search ended before its time without a plan."""

    phase = "NotFound"


class OutOfTime(NotKnown):
    """No plan was found within the time limit."""

    phase = "TimedOut"

    def __init__(self, seconds: float) -> None:
        text = f"no plan within {seconds:g} s: raise it, or {NARROW}"
        super().__init__(InputProblem("spec.solver.timeLimitSeconds", text))


@dataclass(frozen=True, slots=True)
class PlanClock:
    """`until` is a moment of `now` (seconds); `limit` is the time limit as the user gave it, for messages."""

    limit: float
    until: float
    now: Callable[[], float] = time.monotonic
    search_seconds: float = math.inf
    """The most that one search of CP-SAT may take of the wall's clock, where `now` is another one."""
    ends: list[float] = field(default_factory=list)
    """Moments at which it, or a part of it, was seen to be over: what came then hangs on the machine's speed."""

    @property
    def left(self) -> float:
        """Seconds that are left; 0 when the time is over."""
        return max(0.0, self.until - self.now())

    @property
    def over(self) -> bool:
        if (now := self.now()) < self.until:
            return False
        self.ends.append(now)
        return True

    def part(self, share: float) -> "PlanClock":
        """The first share of the time that is left."""
        now = self.now()
        return replace(self, until=now + max(0.0, self.until - now) * share)

    def check(self) -> None:
        """Raises OutOfTime when the time is over."""
        if self.over:
            raise OutOfTime(self.limit)


ENDLESS = PlanClock(math.inf, math.inf)


def clock_of(seconds: float, now: Callable[[], float] = time.monotonic) -> PlanClock:
    return PlanClock(seconds, now() + seconds, now)
