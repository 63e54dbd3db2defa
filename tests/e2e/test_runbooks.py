"""Every command of the runbooks runs, on the state that its alert names, and shows or does what the page says."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from precision_lab.fleet.fleet import NodeSpec
from precision_operator.cli import app
from tests.monitoring.clearing import FIRES_AND_CLEARS
from tests.support.eventually import eventually
from tests.support.site import Scene, reasons, specs

pytestmark = pytest.mark.cluster

PAGE = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")}
NOT_HERE = {
    "kubectl logs POD -n precision-system --previous": "the lab's programs are no pods",
    "kubectl apply": "the file is the user's",
}
BAD = {
    "PrecisionNodeSlow": "scale:0.8",
    "PrecisionSilentFallback": "fault:agent:silent_fallback",
    "PrecisionThrottledInProfile": "fault:agent:throttled",
    "PrecisionLossDiverged": "fault:agent:diverged",
    "PrecisionNodeFailed": "fault:crash",
    "PrecisionNodeQuarantined": "fault:crash",
    "PrecisionProfileFailing": "fault:crash",
}
"""What is wrong with the node of an alert; all are in one profile, of which three nodes fail."""
SHOWN = {
    ("PrecisionNodeSlow", "why"): "NODE is slow",
    ("PrecisionNodeSlow", "nodes"): "NODE",
    ("PrecisionNodeSlow", "cordon"): "node/NODE cordoned",
    ("PrecisionSilentFallback", "why"): "silently ran in another precision",
    ("PrecisionLossDiverged", "status"): "1 diverged",
    ("PrecisionNodeFailed", "why"): "AgentCrashed",
    ("PrecisionNodeQuarantined", "why"): "uarantine",
    ("PrecisionNodeQuarantined", "nodes"): "NODE",
    ("PrecisionProfileFailing", "status"): "AgentCrashed",
    ("PrecisionProfileFailing", "nodes"): "NODE",
    ("PrecisionProfileFailing", "why"): "AgentCrashed",
    ("PrecisionNoLeader", "auth"): "yes",
    ("PrecisionUnreadable", "delete"): "deleted",
}
"""What the command shows, by alert and verb."""
NAMED = {case.alertname for case in FIRES_AND_CLEARS if "profile" in case.labels}
"""Alerts that have the labels of a profile; for the others `why` prints it."""


def commands(section: str) -> list[str]:
    """Its commands, each once."""
    spans = (" ".join(span.split()) for span in re.findall(r"`(kubectl [^`]+)`", section))
    return list(dict.fromkeys(span for span in spans if span not in NOT_HERE and span != "kubectl precision"))


def run(scene: Scene, command: str) -> str:
    """What it prints; the plugin's commands run here, which spares Python's start."""
    _, *words = shlex.split(command)
    if words[0] != "precision":
        return scene.lab.kubectl(*words)
    done = CliRunner().invoke(app, [*words[1:], f"--kubeconfig={scene.lab.kubeconfig}"])
    assert done.exit_code == 0, f"{command}: {done.output}"
    return done.output


def test_each_command_of_a_runbook_shows_or_does_what_it_is_for(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked, restarted = dict[str, str](), dict[str, str]()
    scene.add_nodes(*specs(5, products=("H100",)))
    node_of = dict(zip(BAD, scene.add_nodes(*(NodeSpec("H100", traits=(bad,)) for bad in BAD.values())), strict=True))
    fleet = scene.apply("fleet", workload={"preset": "llama3-8b"}, benchmarks={"loss": {"enabled": True}})
    fleet.completes()
    quarantined = node_of["PrecisionNodeQuarantined"]
    for _ in range(2):
        before = fleet.attempts()[quarantined]["run"]
        run(scene, f"kubectl precision rerun {quarantined} -n {scene.site.namespace}")
        eventually(lambda before=before: fleet.attempts()[quarantined]["run"] != before)
    eventually(lambda: fleet.report_of(quarantined)["status"].get("quarantine"))
    good = scene.nodes()[0]["metadata"]["name"]

    for alert, section in SECTIONS.items():
        node = node_of.get(alert, good)
        report = eventually(lambda node=node: fleet.report_of(node))["metadata"]["name"]
        printed = f"{scene.site.namespace}/fleet:" if alert in NAMED else run(scene, f"kubectl precision why {node}")
        ((ns, profile), *_) = re.findall(r"^([\w-]+)/([\w-]+)[,:]", printed, re.MULTILINE)
        words = {"NS": ns, "PROFILE": profile, "NODE": node, "REPORT": report}
        for command in commands(section):
            told = re.sub(r"\b(NS|PROFILE|NODE|REPORT)\b", lambda found, words=words: words[found[0]], command)
            if "rerun" in told:
                asked[node] = told
                continue
            out = restarted[told] if told in restarted else run(scene, told)
            restarted |= {told: out} if "rollout" in told else {}
            verb = told.removeprefix("kubectl precision ").removeprefix("kubectl ").split()[0]
            shown = SHOWN.get((alert, verb), "").replace("NODE", node)
            assert shown in out, f"{alert}: {told}: {out}"
    assert {*node_of.values(), good} - {*asked} == {node_of["PrecisionLossDiverged"]}

    first = {node: attempt["run"] for node, attempt in fleet.attempts().items()}
    for node, told in asked.items():
        scene.lab.annotate_node(node, fault=None, scale=None)
        run(scene, told)
    slow = node_of["PrecisionNodeSlow"]
    eventually(lambda: reasons(fleet.status()) == {"Cordoned": 1})
    scene.lab.kubectl("uncordon", slow)
    fleet.completes()
    after = fleet.attempts()
    assert {node for node in asked if node != good and after[node]["run"] == first[node]} == set()
    counts = fleet.counts()
    assert {counts.get(of, 0) for of in ("failed", "fallback", "throttled", "quarantined", "slow")} == {0}
