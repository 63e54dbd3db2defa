"""maxConcurrent holds, watched from outside, whatever the road between operator and API server is like."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import demo_fleet
from tests.support.history import created, most_agents
from tests.support.lagging_proxy import Trouble, lagging_proxy
from tests.support.site import Profile, Scene, reasons, specs

pytestmark = pytest.mark.cluster

LIMIT = 4
LAG_SECONDS = 2.0
TROUBLES = (
    Trouble("lost answer", "POST", 3, "/jobs"),
    Trouble("lost answer", "POST", 4, "/configmaps"),
    Trouble("500", "PATCH", 5, "/status"),
    Trouble("lost answer", "PATCH", 7, "/status"),
    Trouble("refused", "DELETE", 4),
    Trouble("429", "GET", 9, "/pods"),
    Trouble("429", "GET", 5, "/log"),
    Trouble("410", "WATCH", 3),
    Trouble("cut", "WATCH", 2),
)


def assert_one_job_each(profile: Profile, nodes: int) -> None:
    """Each node was measured once, by one Job, and never were there more agents than allowed; but all of those."""
    history = profile.history()
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(history, "jobs"))
    assert (len(jobs), set(jobs.values())) == (nodes, {1})
    assert most_agents(history) == LIMIT


def test_a_mixed_fleet_of_24_nodes_never_has_a_fifth_agent(scene: Scene) -> None:
    scene.add_nodes(*demo_fleet())
    profile = scene.apply(rollout={"maxConcurrent": LIMIT})
    status = profile.completes()
    assert profile.condition(names.COMPLETE)["reason"] == "SomeFailed"
    assert reasons(status) == {"AgentRefused": 1, "Busy": 1, "Cordoned": 1, "MIGEnabled": 1}
    assert status["progress"] == "21/23"
    assert_one_job_each(profile, 21)


def test_a_lagging_watch_does_not_start_a_fifth_agent(scene: Scene, tmp_path: Path) -> None:
    operator = scene.site.operator
    scene.add_nodes(*specs(24))
    with lagging_proxy(operator.kubeconfig, LAG_SECONDS) as road:
        slow = replace(operator, kubeconfig=road.kubeconfig(operator.kubeconfig, tmp_path / "kubeconfig"))
        with scene.site.operated_by(slow):
            profile = scene.apply(rollout={"maxConcurrent": LIMIT})
            profile.completes(240)
    assert_one_job_each(profile, 24)


def test_an_api_that_fails_in_every_way_costs_no_result_and_starts_no_fifth_agent(scene: Scene, tmp_path: Path) -> None:
    operator = scene.site.operator
    scene.add_nodes(*specs(24))
    with lagging_proxy(operator.kubeconfig, lag_seconds=0.5, troubles=TROUBLES) as road:
        tried = replace(operator, kubeconfig=road.kubeconfig(operator.kubeconfig, tmp_path / "kubeconfig"))
        with scene.site.operated_by(tried):
            profile = scene.apply(rollout={"maxConcurrent": LIMIT})
            profile.completes(240)
    assert road.made.keys() == {row.kind for row in TROUBLES}
    assert profile.status()["progress"] == "24/24"
    assert {a["outcome"] for a in profile.attempts().values()} == {"succeeded"}
    assert len(profile.details()) == 24
    assert_one_job_each(profile, 24)
