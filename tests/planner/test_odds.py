"""The chance that deadlines are kept: of each job, and of all together."""

from typing import Any

import numpy as np
import pytest

from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.answer.table import lines
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec

SCALING = [{"gpus": 8, "efficiency": "1"}, {"gpus": 2048, "efficiency": "0.9"}]


def made(*jobs: dict[str, Any], count: int = 64, error: float = 0.05, **pool_changes: Any) -> PlanAnswer:
    """A plan by cost on one pool with scaling and a price, noisy measurements, and a goodput that is known well."""
    nodes = fleet(pool("H100", node("n", [rate(error=error)], count=count)))
    own = {"name": "H100", "scaling": SCALING, "dollarsPerGPUHour": "2", "priceIncludesPower": True} | pool_changes
    return plan(spec(*jobs, pools=[own], objective=["cost"], goodput="0.9", goodputPlusMinus="0.01"), nodes, NOW)


def told(found: PlanAnswer) -> PlanStatus:
    assert found.solution is not None, found.problems
    return status(found)


def fixed(name: str, day: float | None = None, **more: Any) -> dict[str, Any]:
    deadline = {} if day is None else {"deadlineDays": f"{day:.6f}"}
    return job(name, minGPUs=64, maxGPUs=64, tokens="1T", **deadline, **more)


def lengths() -> tuple[float, float]:
    """Days of such a job: in the middle, and what suffices nine times in ten."""
    found = made(fixed("a"))
    option = found.solution.slots[0].option
    return option.days, option.deadline_days


def test_the_same_plan_has_the_same_chances_kept_nine_times_in_ten() -> None:
    _, careful = lengths()
    found = told(made(fixed("a", careful)))
    assert found.jobs[0].deadline == "promised"
    assert float(found.jobs[0].probability or 0) == pytest.approx(0.9, abs=0.01)
    _, careful = lengths()
    one, other = (told(made(fixed("a", careful), fixed("b", 1.5 * careful))) for _ in range(2))
    assert one.model_dump_json() == other.model_dump_json()


def test_a_far_deadline_is_nearly_certain_and_none_or_a_bound_is_not_told() -> None:
    middle, _ = lengths()
    assert told(made(fixed("a", 3 * middle))).jobs[0].probability == "0.999"
    free, bounded = told(made(fixed("a"))), told(made(fixed("a", 300.0), scaling=[]))
    assert (free.jobs[0].probability, free.totals.joint_probability) == (None, None)
    assert (bounded.jobs[0].probability, bounded.totals.joint_probability) == (None, None)


def test_jobs_of_one_pool_or_one_after_the_other_are_late_together() -> None:
    """Two jobs, each kept nine times in ten: were they independent, both would be 81 % of the time."""
    _, careful = lengths()
    found = told(made(fixed("a", careful), fixed("b", careful)))
    together = float(found.totals.joint_probability or 0) if found.totals else 0.0
    assert 0.81 < together < min(float(each.probability or 0) for each in found.jobs) + 1e-9
    assert any(line.startswith("sure: ") and "all are kept with a chance of " in line for line in lines(found))
    _, careful = lengths()
    found = told(made(fixed("a"), fixed("b", 2 * careful, after=["a"])))
    by_name = {each.name: each for each in found.jobs}
    assert by_name["a"].probability is None
    assert float(by_name["b"].probability or 0) == pytest.approx(0.9, abs=0.05)


def test_the_chances_are_those_of_plain_simulation() -> None:
    """Against draws that are neither stratified nor shared by name: of one job's parts."""
    middle, careful = lengths()
    day = (middle + careful) / 2
    found = made(fixed("a"))
    parts = found.solution.slots[0].option.speed.parts
    rng = np.random.default_rng(1)
    factors = np.ones(40_000)
    for part in parts:
        assert not part.values
        z = rng.normal(size=len(factors))
        factors *= np.exp(np.where(z > 0, np.log(part.high), -np.log(part.low)) * z / 1.6448536)
    wanted = float(np.mean(middle / factors <= day))
    # By the parts alone: the same job with that deadline would be given another size.
    from precision_operator.planner.answer.odds import _factors

    ours = float(np.mean(middle / _factors([found.solution.slots[0].option])["a"] <= day))
    assert ours == pytest.approx(wanted, abs=0.015)
    assert [part.name for part in parts] == ["measurement", "scaling", "goodput"]
