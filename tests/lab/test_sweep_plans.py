"""The plans of a swept fleet: answered by the real planner, and moved by what happens to the fleet."""

from functools import cache

from precision_lab.pictures.pages import NODES, SHOWN, SWEEPS
from precision_lab.pictures.sweep_plans import INFEASIBLE, SOLVED
from precision_lab.pictures.sweeps import Sweep, sweeps
from precision_operator.planner.answer.document import status


@cache
def small() -> tuple[Sweep, ...]:
    """A fleet of 24 nodes, whose plans are solved once for all tests that ask for them."""
    return sweeps(24)


def test_the_same_sweep_gives_the_same_bytes_whose_figures_are_simulated() -> None:
    for sweep in small()[::4]:
        plans = {plan["metadata"]["name"]: plan["status"] for plan in sweep.plans}
        assert {name: plan["phase"] for name, plan in plans.items()} == {SOLVED: "Solved", INFEASIBLE: "Infeasible"}
        for plan in plans.values():
            assert plan["notes"][0].startswith("SIMULATED: ")
            assert all(pool["data"].startswith("simulated") for pool in plan["pools"])
    assert small()[4].body == sweeps(24)[4].body


def test_the_stories_of_the_pictures_move_the_plan_and_make_it_dearer() -> None:
    """As docs/dashboards.md tells of the fleet that is drawn: a slow node, a hot rack of GB200, a worse driver."""
    fleet = [status(sweep.answer(SOLVED)) for sweep in sweeps(NODES, SWEEPS)[1:SHOWN]]
    pools = [next(job.pool for job in found.jobs if job.name == "pretrain") for found in fleet]
    assert pools == ["NVIDIA-GB200", "NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-GB200"]
    dollars = [float(found.totals.dollars or 0) for found in fleet if found.totals]
    assert 0 < dollars[0] < dollars[1] < dollars[2] < dollars[3]
