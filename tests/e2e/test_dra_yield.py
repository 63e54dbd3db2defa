"""Pods of higher priority that wait for an agent's claimed GPUs, by the real scheduler: it preempts nobody there."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from precision_lab.fleet.fleet import NodeSpec
from precision_operator.core.observe.clock import parse_time
from tests.support.claimant import PODS, asked, gone, gpus, priority_class, runs
from tests.support.eventually import eventually
from tests.support.history import created
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, Site

pytestmark = pytest.mark.cluster

WITHIN = timedelta(seconds=60)
BY_CLAIM = NodeSpec("H100", traits=("dra", "agent-seconds:600"))


@pytest.fixture
def urgent(site: Site) -> Iterator[str]:
    """A PriorityClass above the agents'."""
    with priority_class(site, "dra-urgent") as name:
        yield name


def running(profile: Profile, number: int) -> bool:
    return sum(pod["status"].get("phase") == "Running" for pod in profile.pods()) == number


def test_a_pod_that_waits_runs_within_a_minute_and_one_that_can_run_elsewhere_ends_no_agent(
    scene: Scene, urgent: str, tmp_path: Path
) -> None:
    site = scene.site
    ours = scene.add_nodes(BY_CLAIM, BY_CLAIM)
    profile = scene.apply(target={"nodeNames": ours})
    (free,) = scene.add_nodes(NodeSpec("H100", traits=("dra",)))
    eventually(partial(running, profile, 2))

    elsewhere = asked(site, [*ours, free], gpus(8), urgent)
    waits = asked(site, ours, gpus(8), urgent)
    eventually(partial(runs, site, elsewhere))
    eventually(partial(runs, site, waits))
    eventually(lambda: [row["outcome"] for row in profile.status().get("yields", ())] == ["Helped"])
    (row,) = profile.status()["yields"]
    assert (row["pod"], row["priority"]) == ("a pod of another namespace", 1000)
    pod = site.get(f"{PODS}/{waits}")
    began = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")["lastTransitionTime"]
    assert parse_time(began) - parse_time(pod["metadata"]["creationTimestamp"]) < WITHIN

    node = row["node"]
    assert pod["spec"]["nodeName"] == node
    attempt = profile.attempts()[node]
    assert (attempt["outcome"], attempt["reason"], attempt.get("failures", 0)) == ("disrupted", "Yielded", 0)
    assert len(created(profile.history(), "jobs")) == 2, "one agent was ended, and the node is not measured meanwhile"
    why = Plugin.of(scene.lab, tmp_path)("why", node)
    assert "for a pod of another namespace (priority 1000), which was scheduled then" in why
    gone(site, elsewhere, waits)
