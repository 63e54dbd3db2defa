"""An upgrade by Helm while agents run, and the way back: nothing is lost, and nothing is run twice.

From this tree's chart under another version to the tree's own, with policies, and back by `helm rollback`. The operator
is replaced each time. One story in steps; each test looks at what the steps left behind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from precision_api.facts.names import AGENT_APP, ANNOTATION_NODE, LABEL_APP
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.release.helm import Release
from tests.support.api_server import ApiServer
from tests.support.eventually import eventually
from tests.support.helm import command_in_docs
from tests.support.history import Change, History, Object, created
from tests.support.other_version import other_version
from tests.support.site import profile_manifest

pytestmark = pytest.mark.cluster

WATCHED = "training"
MEASURED, SOON, LATE = "measured-before", "ends-after-upgrade", "ends-after-rollback"
JOINED = NodeSpec("GB200", name="joins-after-upgrade", traits=("fault:hold",))
"""The newer operator starts its agent, the older one reads its result."""
FLEET = [
    NodeSpec("H100", name=MEASURED),
    NodeSpec("GB200", name=SOON, traits=("fault:hold",)),
    NodeSpec("GB200", name=LATE, traits=("fault:hold",)),
]
NOT_FOR_AGENTS = ["DriverChange", "HardwareChange", "SpecChange"]
"""`rerunOn` of a profile that is not measured again because the chart brings another agent."""
VALUES: Object = {"watchNamespaces": [WATCHED], "policies": {"idle": {"enabled": True}, "agents": {"enabled": True}}}


@dataclass(frozen=True)
class Step:
    """What there was when a step was over, before its operator had started."""

    running: set[str]
    """Nodes with an agent."""
    uids: dict[str, set[str]]
    policies: set[str]


@dataclass(frozen=True)
class Story:
    """The steps, and in the end all that ever became of the first profile's agents, and what its reports say."""

    before: Step
    upgraded: Step
    rolled_back: Step
    changes: list[Change]
    reports: dict[str, Object]
    """By node: the status of its report in the end."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A cluster of this module's own."""
    with start_lab(FLEET, LabSettings(agent_seconds=0.3)) as started:
        started.create_namespace(WATCHED)
        yield started


@pytest.fixture(scope="module")
def story(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """All of it, once."""
    release = Release(lab)
    release.put(other_version(tmp_path_factory.mktemp("older")).chart, watchNamespaces=[WATCHED])
    release.programs()["operator"].start()
    history = History(ApiServer(lab.kubeconfig), WATCHED, ("jobs", "pods"))
    lab.apply(profile_manifest(WATCHED, "story", rerunOn=NOT_FOR_AGENTS))
    eventually(lambda: (running(lab), measured(lab)) == ({SOON, LATE}, {MEASURED}))
    before = step(lab)

    lab.processes.stop("operator")
    release.helm(*command_in_docs("helm upgrade", "Upgrade"), "--values=-", stdin=json.dumps(VALUES))
    upgraded = step(lab)
    release.programs()["operator"].start()
    lab.annotate_node(SOON, fault=None)
    lab.add_node(JOINED, JOINED.name)
    eventually(lambda: (running(lab), measured(lab)) == ({LATE, JOINED.name}, {MEASURED, SOON}))

    lab.processes.stop("operator")
    release.helm(*command_in_docs("helm rollback", "Upgrade"))
    rolled_back = step(lab)
    release.programs()["operator"].start()
    for name in (LATE, JOINED.name):
        lab.annotate_node(name, fault=None)
    eventually(lambda: measured(lab) == {MEASURED, SOON, LATE, JOINED.name})
    lab.kubectl("wait", "--for=condition=Complete", "pp/story", "-n", WATCHED, "--timeout=60s")
    uid = lab.get("pp/story", "-n", WATCHED)["metadata"]["uid"]
    reports = {report["spec"]["nodeName"]: report["status"] for report in lab.get("npr", "-n", WATCHED)["items"]}
    yield Story(before, upgraded, rolled_back, history.changes(uid), reports)
    history.close()


def step(lab: Lab) -> Step:
    objects = {kind: lab.get(kind, "-n", WATCHED)["items"] for kind in ("pp", "npr", "jobs", "pods")}
    policies = lab.get("validatingadmissionpolicies", "--selector=app.kubernetes.io/instance=precision-profiler")
    return Step(
        running(lab),
        {kind: {item["metadata"]["uid"] for item in items} for kind, items in objects.items()},
        {item["metadata"]["name"] for item in policies["items"]},
    )


def running(lab: Lab) -> set[str]:
    pods = lab.get("pods", "-n", WATCHED, "-l", f"{LABEL_APP}={AGENT_APP}")["items"]
    return {pod["spec"].get("nodeName", "") for pod in pods if pod["status"]["phase"] == "Running"}


def measured(lab: Lab) -> set[str]:
    reports = lab.get("npr", "-n", WATCHED)["items"]
    return {r["spec"]["nodeName"] for r in reports if r.get("status", {}).get("state") == "Measured"}


def test_agents_run_on_through_the_upgrade_and_through_the_way_back(story: Story) -> None:
    assert (story.before.running, story.upgraded.running) == ({SOON, LATE}, {SOON, LATE})
    assert story.rolled_back.running == {LATE, JOINED.name}


def test_profiles_and_reports_stay_the_objects_that_they_were(story: Story) -> None:
    for kind in ("pp", "npr"):
        assert story.before.uids[kind] == story.upgraded.uids[kind]
        assert story.before.uids[kind] <= story.rolled_back.uids[kind]


def test_every_node_was_measured_once(story: Story) -> None:
    jobs = created(story.changes, "jobs")
    nodes = [job["metadata"]["annotations"][ANNOTATION_NODE] for job in jobs]
    assert Counter(nodes) == dict.fromkeys((MEASURED, SOON, LATE, JOINED.name), 1)
    assert len(created(story.changes, "pods")) == 4
    attempts = [status["attempt"] for status in story.reports.values()]
    assert {(attempt["outcome"], attempt["number"]) for attempt in attempts} == {("succeeded", 1)}


def test_what_one_operator_starts_the_other_reads_with_its_figures(story: Story) -> None:
    for status in story.reports.values():
        rows = {row["recipe"]: row for row in status["results"]}
        assert rows.keys() == {"bf16", "fp8_current"}
        assert float(rows["fp8_current"]["gemmSpeedup"]["autocast"]) > 1


def test_policies_come_and_go_with_the_release_that_has_them(story: Story) -> None:
    assert story.upgraded.policies
    assert story.before.policies == story.rolled_back.policies == set()
