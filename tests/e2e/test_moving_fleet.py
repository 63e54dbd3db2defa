"""300 nodes on a real control plane, agents simulated: a sweep beside a bare client's, then five minutes of motion."""

import asyncio

import pytest

from benchmarks.fleet.__main__ import Run
from benchmarks.fleet.motion import moved, problems
from benchmarks.fleet.rig import rig

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NODES, MINUTES = 300, 5
MOST_REQUESTS, MOST_TIMES_THE_CLIENT = 7.5, 2.5


def test_a_sweep_costs_little_more_than_its_writes_and_a_moving_fleet_keeps_all_limits_and_leaves_nothing() -> None:
    with rig(NODES, print) as on:
        run = Run(on)
        run.client("client")
        run.sweep("sweep", cold=True)
        on.lab.processes.stop(on.operator.name)
        assert run.phases["sweep"]["requestsForANode"] <= MOST_REQUESTS
        assert run.phases["sweep"]["sweepSeconds"] <= MOST_TIMES_THE_CLIENT * run.clients[0]["seconds"]
        assert run.read()["violations"] == []
        run.forget(*run.profiles)
        row = asyncio.run(moved(run, MINUTES))
    assert problems(row) == []
    assert row["did"].keys() == {
        "edits of the profile",
        "labels changed",
        "leaders killed",
        "nodes that joined at once",
        "nodes that left and returned",
        "quotas that came and went",
    }
