"""One thing that goes wrong holds up itself alone, and an admin's stop is heard, on the real API server."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.release.install import NAMESPACE
from tests.support.eventually import eventually
from tests.support.lagging_proxy import Trouble, lagging_proxy
from tests.support.site import Scene, reasons, specs

pytestmark = pytest.mark.cluster

WORDS = "rack 12 is too hot"


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
    operator = scene.site.operator
    scene.add_nodes(*specs(6))
    with lagging_proxy(operator.kubeconfig, troubles=[Trouble("hang", "GET", 2, "/log")]) as road:
        slow = replace(operator, kubeconfig=road.kubeconfig(operator.kubeconfig, tmp_path / "kubeconfig"))
        with scene.site.operated_by(slow):
            profile = scene.apply(rollout={"maxConcurrent": 4})
            eventually(lambda: profile.counts().get("succeeded", 0) >= 3 and road.hanging > 0)
