"""A plan that one can keep: what an answer keeps of the one before and says of it, and how much each job has left."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from precision_api.facts.names import API_VERSION, PLAN_KIND
from precision_api.kinds.capacity_plan import JobPlan
from precision_operator.cli import app
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.table import lines
from tests.support.fleets import NOW, answered, fleet, job, node, pool, rate, spec

SMALL = {"maxGPUs": 64}
JOBS = job("x", tokens="400B", **SMALL), job("y", tokens="300B", **SMALL)
BEFORE = answered(fleet(pool("a", node("a", count=16))), *JOBS, objective=["time"]).jobs
DUE = job("x", tokens="400B", deadlineDays="7.2", **SMALL), JOBS[1]
GAINS = "kept: a plan that gains 0.5% would move jobs: it takes more than 1%"
GONE = "moved: x from 64 GPUs of c with bf16, y from 64 GPUs of c with bf16: that is no longer offered"
FROM_A = "moved: x from 64 GPUs of a with bf16: the former plan"
MOVES: dict[str, tuple[float, str, Any, str, list[str]]] = {
    "no former plan": (80_400.0, "", JOBS, "bb", []),
    "gains little": (80_400.0, "a", JOBS, "aa", [GAINS]),
    "gains more": (82_000.0, "a", JOBS, "ba", [f"{FROM_A} is 2.5% worse"]),
    "as before": (82_000.0, "b", JOBS, "bb", []),
    "late": (82_000.0, "a", DUE, "ba", [f"{FROM_A} no longer holds (0.034 days late)"]),
    "not offered": (80_400.0, "c", JOBS, "bb", [GONE]),
    "a new job": (80_400.0, "a", (*JOBS, job("z", tokens="10B", pools=["b"])), "aab", [GAINS]),
}


def two_pools(rate_of_b: float) -> Any:
    """Pool `a` makes 80,000 tokens/s a node."""
    return fleet(pool("a", node("a", count=16)), pool("b", node("b", [rate("bf16", rate_of_b)], count=16)))


def before(name: str) -> list[JobPlan]:
    return [each.model_copy(update={"pool": name}) for each in BEFORE if name]


@pytest.mark.parametrize("case", MOVES)
def test_a_job_moves_only_where_the_former_plan_does_not_hold_or_is_a_per_cent_worse(case: str) -> None:
    rate_of_b, former, jobs, pools, said = MOVES[case]
    made = status(plan(spec(*jobs, objective=["time"]), two_pools(rate_of_b), NOW, before=before(former)))
    assert [each.pool for each in sorted(made.jobs, key=lambda each: each.name)] == [*pools]
    assert [line for line in lines(made) if line.startswith(("moved", "kept"))] == said


@pytest.mark.parametrize(("budget", "slack"), [({}, {"x": 12, "y": 100}), ({"dollars": "28400"}, {"x": 2, "y": 8})])
def test_each_job_says_up_to_how_many_more_tokens_deadlines_and_budgets_hold(
    budget: Any, slack: dict[str, int]
) -> None:
    own = [{"name": "H100", "dollarsPerGPUHour": "2"}]
    jobs = job("x", tokens="400B", deadlineDays="8.2", **SMALL), job("y", after=["x"], deadlineDays="12", **SMALL)
    made = answered(fleet(), *jobs, objective=["time"], pools=own, budget=budget)
    assert {each.name: each.slack_percent for each in made.jobs} == slack
    least = "2 % more tokens, 2 % slower" if budget else "12 % more tokens, 11 % slower"
    assert f"slack: x holds with up to {least}" in [*lines(made)]
    assert [each.slack_percent for each in BEFORE] == [None, None]


def test_the_command_begins_with_the_plan_in_the_files_status(tmp_path: Path) -> None:
    asked = spec(*JOBS, objective=["time"]).model_dump(mode="json", by_alias=True, exclude_none=True)
    had = {"jobs": [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in before("a")]}
    made = {"apiVersion": API_VERSION, "kind": PLAN_KIND, "metadata": {"name": "p"}, "spec": asked, "status": had}
    plan_file, fleet_file = tmp_path / "plan.json", tmp_path / "fleet.json"
    plan_file.write_text(json.dumps(made))
    fleet_file.write_text(two_pools(80_400.0).model_dump_json())
    files = ["-f", str(plan_file), "--fleet", str(fleet_file), "--at=2026-12-01T00:00:00Z"]
    assert GAINS in CliRunner().invoke(app, ["plan", *files]).stdout
