"""The plans of a swept fleet: answered by the real planner, and moved by what happens to the fleet."""

from __future__ import annotations

from functools import cache
from typing import Any

from precision_lab.pictures.pages import NODES, SHOWN, SWEEPS
from precision_lab.pictures.sweep_plans import INFEASIBLE, SOLVED
from precision_lab.pictures.sweeps import Sweep, sweeps
from precision_operator.planner.answer.document import status


@cache
def small() -> tuple[Sweep, ...]:
    """A fleet of 24 nodes, whose plans are solved once for all tests that ask for them."""
    return sweeps(24)


def answers(sweep: Sweep) -> dict[str, Any]:
    """The status of each plan by its name."""
    return {plan["metadata"]["name"]: plan["status"] for plan in sweep.plans}


def test_one_plan_is_solved_and_one_not_and_both_say_that_their_figures_are_simulated() -> None:
    for sweep in small()[::4]:
        found = answers(sweep)
        assert {name: told["phase"] for name, told in found.items()} == {SOLVED: "Solved", INFEASIBLE: "Infeasible"}
        for told in found.values():
            assert told["notes"][0].startswith("SIMULATED: ")
            assert all(pool["data"].startswith("simulated") for pool in told["pools"])


def test_the_stories_of_the_pictures_move_the_plan_and_make_it_dearer() -> None:
    """As docs/dashboards.md tells of the fleet that is drawn: a slow node, a hot rack of GB200, a worse driver."""
    fleet = [status(sweep.answer(SOLVED)) for sweep in sweeps(NODES, SWEEPS)[1:SHOWN]]
    pools = [next(job.pool for job in found.jobs if job.name == "pretrain") for found in fleet]
    assert pools == ["NVIDIA-GB200", "NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-GB200"]
    dollars = [float(found.totals.dollars or 0) for found in fleet if found.totals]
    assert 0 < dollars[0] < dollars[1] < dollars[2] < dollars[3]


def test_the_same_sweep_gives_the_same_bytes() -> None:
    assert small()[4].body == sweeps(24)[4].body
