"""CapacityPlans over a swept fleet, as the operator leaves them: the jobs are made up, the planner is the real one.

Its figures come of the sweep's reports, which are simulated: the plans say so, since they would be refused otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from precision_api.facts.names import API_VERSION, PLAN_KIND
from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_operator.planner.answer.conditions import finished
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, report_facts

Raw = dict[str, Any]
SOLVED, INFEASIBLE, BOUND = "next-quarter", "in-a-day", "without-scaling"
_SCALING = [{"gpus": 4, "efficiency": "0.98"}, {"gpus": 4096, "efficiency": "0.86"}]
_DOLLARS = {"GB200": "8", "GB300": "11", "H100": "3"}
"""Made-up dollars of a GPU-hour."""
_MODEL = {"preset": "llama3-8b"}
_SECONDS = 60
"""More than a plan takes on a busy machine: the same plans are drawn everywhere."""


def swept_fleet(reports: Iterable[Raw], profiles: Iterable[Raw], racks: Mapping[str, str], now: datetime) -> Fleet:
    """What a plan knows of the fleet at `now`; `racks` are by UID."""
    campaigns = [facts for raw in profiles if (facts := profile_facts(raw)) is not None]
    return fleet_of(map(report_facts, reports), campaigns, racks, now, "a simulated fleet")


def plans(namespace: str, fleet: Fleet, nodes: int, now: datetime) -> tuple[Raw, ...]:
    """Plans with their answers at `now`: one solved, one whose deadline is too near, one of which bounds are known."""
    names = (SOLVED, INFEASIBLE, BOUND)
    return tuple(_object(namespace, name, status(answer(name, fleet, nodes, now)), now) for name in names)


def answer(name: str, fleet: Fleet, nodes: int, now: datetime) -> PlanAnswer:
    """The planner's answer to one of these plans, for a fleet of so many nodes."""
    return plan(_spec(_jobs(nodes)[name], [] if name == BOUND else _SCALING), fleet, now)


def _object(namespace: str, name: str, answer: PlanStatus, now: datetime) -> Raw:
    plan_status = finished(answer, PlanStatus(), "0" * 16, 1, now)
    return {
        "apiVersion": API_VERSION,
        "kind": PLAN_KIND,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-plan-{name}", "resourceVersion": "1000"},
        "status": plan_status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def _jobs(nodes: int) -> dict[str, list[Raw]]:
    """By plan its jobs: as much work as keeps a good part of a fleet of so many nodes busy."""
    return {
        SOLVED: [
            {"name": "pretrain", "workload": _MODEL, "tokens": f"{60 * nodes}B", "deadlineDays": "45", "priority": 10},
            {"name": "ablation", "workload": _MODEL, "tokens": f"{6 * nodes}B", "denyRecipes": ["nvfp4"]}
            | {"deadlineDays": "30"},
            {"name": "continue", "workload": _MODEL | {"sequenceLength": 16384, "microBatchSize": 1}}
            | {"tokens": f"{nodes}B", "after": ["pretrain"], "deadlineDays": "60"},
        ],
        INFEASIBLE: [{"name": "pretrain", "workload": _MODEL, "tokens": f"{60 * nodes}B", "deadlineDays": "1"}],
        BOUND: [{"name": "pretrain", "workload": _MODEL, "tokens": f"{6 * nodes}B"}],
    }


def _spec(jobs: Sequence[Raw], scaling: Sequence[Raw]) -> PlanSpec:
    pools = [
        {"name": name, "dollarsPerGPUHour": dollars, "priceIncludesPower": True, "scaling": list(scaling)}
        for name, dollars in _DOLLARS.items()
    ]
    power = {"pue": "1.2", "overhead": {"module": "1.15"}}
    allowed = {"allow": ["simulated"]}
    return PlanSpec.model_validate(
        {"fleet": allowed, "objective": ["cost", "time"], "goodput": "0.92", "pools": pools, "power": power}
        | {"solver": {"timeLimitSeconds": _SECONDS}, "jobs": list(jobs)}
    )
