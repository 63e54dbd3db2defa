"""Builders of fleets and plans for the planner: defaults that make sense, so that a test shows only what matters."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_api.models.workload import Workload, resolve
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, FleetNode, PoolFacts, RateFacts, ResultFacts, WorkloadFacts
from precision_operator.planner.inputs.workloads import measured_workload

NOW = datetime(2026, 12, 1, tzinfo=UTC)
FINISHED = "2026-11-30T00:00:00Z"
MODEL = "llama3-8b"


def workload(preset: str = MODEL) -> WorkloadFacts:
    return measured_workload(resolve(Workload.model_validate({"preset": preset})))


def rate(recipe: str = "bf16", tokens_per_second: float | None = 80_000.0, **changes: Any) -> RateFacts:
    """A verified recipe of a node of 8 GPUs with valid power, without measurement noise."""
    row = {
        "recipe": recipe,
        "verdict": "verified",
        "synchronous_tokens_per_second": tokens_per_second,
        "watts": 5000.0,
        "power_scope": "gpu",
    }
    return RateFacts.model_validate(row | changes)


def node(
    name: str = "n", rates: Sequence[RateFacts] = (), count: int = 1, gpus: int = 8, rack: str = "", **result: Any
) -> FleetNode:
    """`count` nodes with one fresh, measured result; `result` changes its fields."""
    answered = {"profile": "nightly", "workload": workload().key, "finished_at": FINISHED, "provenance": "measured"}
    made = ResultFacts.model_validate(answered | {"rates": tuple(rates) or (rate(),)} | result)
    return FleetNode(name=name, gpus=gpus, limit_watts=700.0 * gpus, rack=rack, count=count, results=(made,))


def pool(name: str = "H100", *nodes: FleetNode, product: str = "") -> PoolFacts:
    """A pool; without nodes, of 16 alike ones."""
    return PoolFacts(name=name, product=product or name, nodes=nodes or (node(f"{name.lower()}-0", count=16),))


def fleet(*pools: PoolFacts, workloads: Sequence[WorkloadFacts] = ()) -> Fleet:
    """A fleet of these pools; without any, of one."""
    return Fleet(
        taken_at=FINISHED, source="a test", workloads=tuple(workloads) or (workload(),), pools=pools or (pool(),)
    )


def job(name: str = "train", **changes: Any) -> dict[str, Any]:
    return {"name": name, "workload": {"preset": MODEL}, "tokens": "100B"} | changes


def spec(*jobs: dict[str, Any], **changes: Any) -> PlanSpec:
    """A plan of these jobs; without any, of one; without questions, and with time on a machine that others use too."""
    usual = {"jobs": list(jobs) or [job()], "whatIfs": [], "solver": {"timeLimitSeconds": 120}}
    certain = {"efficiency": "1", "plusMinus": "0.000000001"}
    usual |= {"scaling": [{"gpus": 1} | certain, {"gpus": 1_000_000} | certain]}
    usual |= {"goodput": "1", "goodputPlusMinus": "0.000000001"} if "goodput" not in changes else {}
    return PlanSpec.model_validate(usual | changes)


def answered(measured: Fleet | None = None, *jobs: dict[str, Any], **changes: Any) -> PlanStatus:
    """The status of a plan of these jobs, with its questions; on a fleet of one pool where none is named."""
    on, asked = measured or fleet(), spec(*jobs, **changes)
    answer = plan(asked, on, NOW)
    return status(answer, what_ifs(asked, on, answer, NOW))


UNMEASURED = fleet().model_copy(update={"pools": ()})


def declared(name: str = "H100", gpus: int = 512, preset: str = MODEL, **changes: Any) -> dict[str, Any]:
    """A pool that is described by a rate of a whole job alone."""
    row = {"workload": {"preset": preset}, "recipe": "bf16", "gpus": gpus, "tokensPerSecondPerGPU": "10000"}
    return {"name": name, "nodes": gpus // 8, "gpusPerNode": 8, "jobRates": [row | {"source": "a friend"} | changes]}
