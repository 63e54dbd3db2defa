"""The families of CapacityPlans. Few series: totals of a plan, and rows by pool; never one for each job."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.exporter.families.family import Family
from precision_operator.exporter.reading import seconds
from precision_operator.exporter.text import SampleRow

PLAN = ("plan_namespace", "plan")
PLAN_POOL = (*PLAN, "pool")
PHASES = ("Solved", "Infeasible", "TimedOut", "NotFound", "Refused")


@dataclass(frozen=True)
class PlanShown:
    """One CapacityPlan's answer."""

    namespace: str
    plan: str
    status: PlanStatus


def read_plan(raw: Mapping[str, Any]) -> PlanShown | None:
    """The answer in a CapacityPlan, None before the operator's first word; raises ValueError if unreadable."""
    meta = raw.get("metadata") or {}
    if not raw.get("status"):
        return None
    return PlanShown(str(meta["namespace"]), str(meta["name"]), PlanStatus.model_validate(raw["status"]))


def _plan(shown: PlanShown) -> tuple[str, ...]:
    return shown.namespace, shown.plan


def _phase(shown: PlanShown) -> Iterator[SampleRow]:
    if shown.status.phase:
        yield from (((*_plan(shown), phase), float(phase == shown.status.phase)) for phase in PHASES)


def _total(field: str, factor: float, least: bool | None = None) -> Callable[[PlanShown], Iterator[SampleRow]]:
    """`least`: only of plans whose figures are bounds, or only of the others."""

    def rows(shown: PlanShown) -> Iterator[SampleRow]:
        text = getattr(shown.status.totals, field, None)
        if text is not None and least in (None, any(job.upper_bound for job in shown.status.jobs)):
            yield _plan(shown), float(text) * factor

    return rows


def _pool(field: str) -> Callable[[PlanShown], Iterator[SampleRow]]:
    return lambda shown: (((*_plan(shown), pool.name), float(getattr(pool, field))) for pool in shown.status.pools)


def _jobs(shown: PlanShown) -> Iterator[SampleRow]:
    """Jobs by pool, recipe and what their rates come from: recipes are few, pools are bounded."""
    counts = Counter((job.pool, job.recipe, job.basis) for job in shown.status.jobs)
    yield from (((*_plan(shown), *key), float(number)) for key, number in sorted(counts.items()))


def _deadlines(shown: PlanShown) -> Iterator[SampleRow]:
    deadlines = [job.deadline for job in shown.status.jobs]
    if shown.status.phase == "Solved":
        yield from (((*_plan(shown), kind), float(deadlines.count(kind))) for kind in ("promised", "notPromised"))


def _solved(shown: PlanShown) -> Iterator[SampleRow]:
    if shown.status.solved_at:
        yield _plan(shown), seconds(shown.status.solved_at)


PLAN_FAMILIES: tuple[Family[PlanShown], ...] = (
    Family("precision_plan_phase", (*PLAN, "phase"), _phase),
    *(
        Family(f"precision_plan_{prefix}{name}", PLAN, _total(field, factor, bool(prefix)))
        for name, field, factor in (
            ("duration_seconds", "days", 86_400.0),
            ("cost_dollars", "dollars", 1.0),
            ("energy_joules", "megawatt_hours", 3.6e9),
        )
        for prefix in ("", "least_")
    ),
    Family("precision_plan_peak_power_watts", PLAN, _total("peak_megawatts", 1e6)),
    Family("precision_plan_gap_ratio", PLAN, _total("gap_percent", 0.01, False)),
    *(Family(f"precision_plan_pool_{field}", PLAN_POOL, _pool(field)) for field in ("gpus", "peak_gpus", "slow_nodes")),
    Family("precision_plan_jobs", (*PLAN_POOL, "recipe", "basis"), _jobs),
    Family("precision_plan_deadlines", (*PLAN, "deadline"), _deadlines),
    Family("precision_plan_solved_timestamp_seconds", PLAN, _solved),
)
