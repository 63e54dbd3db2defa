"""The plans of a swept fleet: answered by the real planner, and moved by what happens to the fleet."""

from __future__ import annotations

from typing import Any

from precision_lab.pictures.pages import NODES, SHOWN, SWEEPS
from precision_lab.pictures.sweep_plans import INFEASIBLE, SOLVED
from precision_lab.pictures.sweeps import Sweep, sweeps


def answers(sweep: Sweep) -> dict[str, Any]:
    """The status of each plan by its name."""
    return {plan["metadata"]["name"]: plan["status"] for plan in sweep.plans}


def test_one_plan_is_solved_and_one_not_and_both_say_that_their_figures_are_simulated() -> None:
    for sweep in sweeps(24):
        found = answers(sweep)
        assert {name: status["phase"] for name, status in found.items()} == {SOLVED: "Solved", INFEASIBLE: "Infeasible"}
        for status in found.values():
            assert status["notes"][0].startswith("SIMULATED: ")
            assert all(pool["data"].startswith("simulated") for pool in status["pools"])


def test_the_stories_of_the_pictures_move_the_plan_and_make_it_dearer() -> None:
    """As docs/dashboards.md tells of the fleet that is drawn: a slow node, a hot rack of GB200, a worse driver."""
    fleet = [answers(sweep)[SOLVED] for sweep in sweeps(NODES, SWEEPS)[:SHOWN]]
    pools = [next(job["pool"] for job in status["jobs"] if job["name"] == "pretrain") for status in fleet]
    assert pools[1:] == ["NVIDIA-GB200", "NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-GB200"]
    dollars = [float(status["totals"]["dollars"]) for status in fleet]
    assert dollars[1] < dollars[2] < dollars[3] < dollars[4]


def test_the_same_sweep_gives_the_same_bytes() -> None:
    assert sweeps(24)[4].body == sweeps(24)[4].body
