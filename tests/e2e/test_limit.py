"""maxConcurrent holds, watched from outside, whatever the road between operator and API server is like.

One thing that goes wrong holds up itself alone, and an admin's stop is heard, on the real API server.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec, demo_fleet
from precision_lab.release.install import NAMESPACE
from tests.support.eventually import eventually
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
WORDS = "rack 12 is too hot"


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
    scene.add_nodes(*specs(24))
    with lagging_proxy(scene.site, tmp_path, LAG_SECONDS):
        profile = scene.apply(rollout={"maxConcurrent": LIMIT})
        profile.completes(240)
    assert_one_job_each(profile, 24)


def test_an_api_that_fails_in_every_way_costs_no_result_and_starts_no_fifth_agent(scene: Scene, tmp_path: Path) -> None:
    scene.add_nodes(*specs(24))
    with lagging_proxy(scene.site, tmp_path, 0.5, TROUBLES) as road:
        profile = scene.apply(rollout={"maxConcurrent": LIMIT})
        profile.completes(240)
    assert road.made.keys() == {row.kind for row in TROUBLES}
    assert profile.status()["progress"] == "24/24"
    assert ({a["outcome"] for a in profile.attempts().values()}, len(profile.details())) == ({"succeeded"}, 24)
    assert_one_job_each(profile, 24)


def test_an_admin_stops_all_agents_by_one_command_and_lifts_it_by_another(scene: Scene) -> None:
    (node,) = scene.add_nodes(NodeSpec("H100", traits=("agent-seconds:600",)))
    profile = scene.apply()
    eventually(lambda: profile.counts().get("running") == 1)
    kubectl = scene.lab.kubectl
    switch = next(arg for arg in scene.site.operator.argv if arg.startswith("--stop-config-map=")).split("=")[1]
    data = ("--from-literal=agents=End", f"--from-literal=message={WORDS}")
    kubectl("create", "configmap", switch, f"--namespace={NAMESPACE}", *data)
    try:
        eventually(lambda: profile.condition(names.STOPPED).get("reason") == "End")
        assert WORDS in profile.condition(names.STOPPED)["message"]
        eventually(lambda: not profile.jobs() and not profile.pods())
        assert profile.attempts()[node]["reason"] == "StoppedByAdmin"
        eventually(lambda: reasons(profile.status()) == {"StoppedByAdmin": 1})
        events = kubectl("get", "events", f"--namespace={scene.site.namespace}", "--output=json")
        told = [
            event["message"]
            for event in json.loads(events)["items"]
            if event["involvedObject"].get("uid") == profile.uid
        ]
        assert any(WORDS in message for message in told)
    finally:
        kubectl("delete", "configmap", switch, f"--namespace={NAMESPACE}")
    eventually(lambda: profile.condition(names.STOPPED).get("reason") == "Run")
    eventually(lambda: len(profile.jobs()) == 1)


def test_while_log_endpoints_hang_the_rest_of_the_fleet_is_measured(scene: Scene, tmp_path: Path) -> None:
    scene.add_nodes(*specs(6))
    with lagging_proxy(scene.site, tmp_path, troubles=[Trouble("hang", "GET", 2, "/log")]) as road:
        profile = scene.apply(rollout={"maxConcurrent": 4})
        eventually(lambda: profile.counts().get("succeeded", 0) >= 3 and road.hanging > 0)
