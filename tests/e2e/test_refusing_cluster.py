"""A cluster that says no in every way that real ones do: each is named within seconds, and passes when it is mended.

All obstacles stand at once, each before a profile of its own, so that they are waited for together.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from precision_api.facts import names
from precision_lab.cluster.webhook import webhook
from precision_operator.core.observe.clock import parse_time
from tests.support import refusing
from tests.support.eventually import eventually
from tests.support.plugin import Plugin
from tests.support.refusing import AGENTS, OF_POLICY, PLACES, POLICY, QUOTAS, REFUSING, WEBHOOK, Rule
from tests.support.site import Profile, Scene, Site, reasons, specs

pytestmark = pytest.mark.cluster

SIGNAL_SECONDS = 30
"""How soon after its first signal a cause is named."""
ONE_NODE, GPUS, DETAILS = "one-node", "quota-gpus", "quota-configmaps"
"""Profiles that are measured all the same: past one denied node, one by one, and without a detail."""


@dataclass(frozen=True)
class Case:
    """A profile's name, which says who stands in its way, and what its status must say."""

    name: str
    reason: str
    says: str
    degraded: bool = True


DENIED = f'admission webhook "{WEBHOOK}" denied the request: no agents here'
HANGING = f'does not answer: Internal error occurred: failed calling webhook "{WEBHOOK}"'
CASES = (
    Case("job-400", "DeniedByPolicy", f"denies the agent's Job: {DENIED}"),
    Case("job-403", "DeniedByPolicy", f"denies the agent's Job: {DENIED}"),
    Case("job-hangs", "WebhookUnavailable", f"webhook for the agent's Job {HANGING}"),
    Case("pod-400", "DeniedByPolicy", f"denies the agent's pod: {DENIED}"),
    Case("pod-403", "DeniedByPolicy", f"denies the agent's pod: {DENIED}"),
    Case("pod-hangs", "WebhookUnavailable", f"webhook for the agent's pod {HANGING}"),
    Case(OF_POLICY, "DeniedByPolicy", f"'{POLICY}' with binding '{POLICY}' denied request: no agents by policy"),
    Case(
        "quota-jobs",
        "QuotaExceeded",
        "exceeded quota: quota-jobs: 0 of 0 count/jobs.batch used, 1 more requested",
        False,
    ),
    Case("quota-pods", "QuotaExceeded", "exceeded quota: quota-pods: 0 of 0 pods used, 1 more requested", False),
)
MANY = {OF_POLICY: 3, ONE_NODE: 4, GPUS: 3}
"""How many nodes a profile has that has more than one."""
AT_ONCE = {GPUS: 3}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))


@dataclass(frozen=True)
class Story:
    """All profiles and their nodes by name, and how to take the obstacles away."""

    profiles: Mapping[str, Profile]
    nodes: Mapping[str, list[str]]
    mend: Callable[[], None]


@pytest.fixture(scope="module")
def story(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The obstacles, and in front of each a profile with its nodes."""
    lab, rule = site.lab, Rule()
    scenes = {place: Scene(replace(site, namespace=place)) for place in PLACES}
    scenes = {place: replace(scene, mark=scenes[REFUSING].mark) for place, scene in scenes.items()}
    with ExitStack() as ends:
        hook = ends.enter_context(webhook(tmp_path_factory.mktemp("webhook"), rule))
        ends.callback(refusing.remove_policies, lab)
        ends.callback(refusing.remove_quotas, lab)
        lab.apply(hook.configuration(POLICY, REFUSING, AGENTS), *refusing.policy())
        refusing.apply_quotas(lab)
        nodes = nodes_of(scenes[REFUSING])
        rule.reserved.add(nodes[ONE_NODE][0])
        eventually(lambda: all(refusing.is_denied(lab, name) for name in ("job-400", OF_POLICY)))
        ends.callback(end, scenes.values())
        profiles = apply(scenes, nodes)

        def mend() -> None:
            rule.mended.set()
            refusing.remove_policies(lab)
            refusing.remove_quotas(lab)

        yield Story(profiles, nodes, mend)


def place_of(name: str) -> str:
    return name if name in QUOTAS else REFUSING


def nodes_of(scene: Scene) -> dict[str, list[str]]:
    """Nodes for all profiles; those that share a quota of GPUs have eight each, and agents that wait to be let go."""
    counts = {name: MANY.get(name, 1) for name in (*(case.name for case in CASES), ONE_NODE, GPUS, DETAILS)}
    slow = {GPUS: ("fault:hold",)}
    made = [specs(count, *slow.get(name, ()), products=("H100",)) for name, count in counts.items()]
    added = iter(scene.add_nodes(*(spec for each in made for spec in each)))
    return {name: [next(added) for _ in range(count)] for name, count in counts.items()}


def apply(scenes: Mapping[str, Scene], nodes: Mapping[str, list[str]]) -> dict[str, Profile]:
    bodies = {
        name: scenes[place_of(name)].manifest(
            name, target={"nodeNames": mine}, rollout={"maxConcurrent": AT_ONCE.get(name, 1), "maxFailures": 1}
        )
        for name, mine in nodes.items()
    }
    scenes[REFUSING].lab.apply(*bodies.values())
    return {name: scenes[place_of(name)].profile(name) for name in bodies}


def end(scenes: Any) -> None:
    """Deletes all profiles, and then their nodes."""
    for scene in scenes:
        scene.lab.kubectl("delete", "pp", "--all", "-n", scene.site.namespace)
        scene.close()


def row_of(profile: Profile, reason: str) -> dict[str, Any]:
    """The profile's only reason, once it is that one."""
    eventually(lambda: set(reasons(profile.status())) == {reason})
    (row,) = profile.status()["reasons"]
    return dict(row)


def events(profile: Profile, chosen: str) -> list[dict[str, Any]]:
    """The events of the profile's namespace that a field selector finds."""
    return list(profile.site.lab.get("events", "-n", profile.site.namespace, f"--field-selector={chosen}")["items"])


def test_a_quota_of_gpus_lets_healthy_nodes_wait_and_nothing_has_failed(story: Story) -> None:
    profile = story.profiles[GPUS]
    eventually(lambda: reasons(profile.status()) == {"QuotaExceeded": 2} and profile.counts()["running"] == 1)
    (row,) = profile.status()["reasons"]
    assert "8 of 8 requests.nvidia.com/gpu used, 8 more requested" in row["message"]
    assert profile.condition(names.DEGRADED)["status"] == "False"


@each_case
def test_what_the_cluster_refuses_is_named_and_nothing_is_said_to_run(case: Case, story: Story) -> None:
    profile = story.profiles[case.name]
    assert case.says in row_of(profile, case.reason)["message"]
    status = profile.status()
    told = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert (status["phase"], status.get("eta")) == ("Degraded" if case.degraded else "Pending", None)
    assert told["Progressing"] == told["Complete"] == ("False", case.reason)
    assert told["Degraded"] == (("True", case.reason) if case.degraded else ("False", "NoFailures"))
    assert status["waitsFor"].startswith(f"{case.reason} (")
    assert profile.attempts() == {}, "no attempt is spent"


@each_case
def test_the_profile_gets_one_event_with_the_servers_words(case: Case, story: Story) -> None:
    profile = story.profiles[case.name]
    row_of(profile, case.reason)
    (event,) = eventually(lambda: events(profile, f"involvedObject.uid={profile.uid},type=Warning"))
    assert event["reason"] == case.reason
    assert case.says in event["message"]


@pytest.mark.parametrize("name", ["pod-400", "pod-403", "quota-pods"])
def test_a_refused_pod_is_seen_within_seconds_of_the_clusters_first_signal(name: str, story: Story) -> None:
    profile = story.profiles[name]
    (refusal,) = eventually(lambda: profile.status().get("refusals"))
    assert refusal["stage"] == "pod"
    event, *_ = eventually(lambda: events(profile, f"involvedObject.uid={profile.uid},type=Warning"))
    signals = events(profile, "reason=FailedCreate,involvedObject.kind=Job")
    first = min(parse_time(signal["firstTimestamp"]) for signal in signals)
    assert (parse_time(event["firstTimestamp"]) - first).total_seconds() <= SIGNAL_SECONDS


def test_why_and_a_dry_run_say_the_same(story: Story, site: Site, tmp_path: Path) -> None:
    plugin, profile = Plugin.of(site.lab, tmp_path), story.profiles[OF_POLICY]
    row = row_of(profile, "DeniedByPolicy")
    answer = plugin.why(row["example"], profile)
    assert (answer["reason"], answer["message"]) == ("DeniedByPolicy", row["message"])
    manifest = tmp_path / "profile.yaml"
    manifest.write_text(json.dumps({key: profile.get()[key] for key in ("apiVersion", "kind", "metadata", "spec")}))
    planned = {row["node"]: row["reason"] for row in plugin.json("dry-run", "-f", str(manifest))}
    assert {planned[node] for node in story.nodes[OF_POLICY]} == {"DeniedByPolicy"}


def test_one_node_that_is_denied_does_not_keep_the_others_waiting(story: Story) -> None:
    profile, (denied, *others) = story.profiles[ONE_NODE], story.nodes[ONE_NODE]
    assert denied < min(others), "its turn comes first, and one agent may run at a time"
    status = profile.completes()
    assert set(profile.attempts()) == set(others)
    assert reasons(status) == {"DeniedByPolicy": 1}
    assert profile.condition(names.COMPLETE)["reason"] == "SomeWaiting"
    assert profile.condition(names.DEGRADED)["reason"] == "DeniedByPolicy"
    assert [(row["node"], row["stage"]) for row in status["refusals"]] == [(denied, "Job")]


def test_nodes_that_share_a_quota_of_gpus_are_measured_one_by_one(story: Story) -> None:
    profile = story.profiles[GPUS]
    for node in story.nodes[GPUS]:
        profile.site.lab.annotate_node(node, fault=None)
    profile.completes(240)
    assert profile.counts()["succeeded"] == len(story.nodes[GPUS])
    assert {attempt["number"] for attempt in profile.attempts().values()} == {1}, "no retry is spent"


def test_a_quota_of_config_maps_loses_the_detail_and_keeps_the_result(story: Story) -> None:
    profile, (node,) = story.profiles[DETAILS], story.nodes[DETAILS]
    profile.completes()
    run = profile.report_of(node)["status"]["run"]
    assert "detail" not in run
    assert run["detailProblem"].startswith("DetailNotWritten: The ConfigMap with the full result could not be")
    assert "exceeded quota: quota-configmaps: 1 of 1 count/configmaps used, 1 more requested" in run["detailProblem"]
    eventually(lambda: not profile.jobs())


def test_when_the_obstacles_are_gone_all_profiles_complete(story: Story) -> None:
    for case in CASES:
        row_of(story.profiles[case.name], case.reason)
    story.mend()
    for case in CASES:
        story.profiles[case.name].patch(rollout={"maxConcurrent": 2})  # a spec that has changed is tried at once
    for case in CASES:
        profile, count = story.profiles[case.name], len(story.nodes[case.name])
        eventually(lambda profile=profile, count=count: profile.counts().get("succeeded") == count, 120)  # type: ignore[misc]
        assert {attempt["number"] for attempt in profile.attempts().values()} == {1}
        assert "refusals" not in profile.status()
