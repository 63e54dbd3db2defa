"""60 kW over GB200 and H100 nodes: whatever the road to the API server and whoever asks, no more is ever under way."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from precision_api.facts import names
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import parse_time
from tests.support.api_server import MERGE_PATCH
from tests.support.eventually import eventually
from tests.support.history import Change, Object, created, has_ended, most_agents, owner_uid
from tests.support.lagging_proxy import lagging_proxy
from tests.support.site import Scene, reasons, specs

pytestmark = pytest.mark.cluster

BOARD_WATTS = {"NVIDIA-GB200": 1200, "NVIDIA-H100-80GB-HBM3": 700}
"""One GPU's limit by its node's label, from the datasheets: the product's own table is what is being checked."""


def default_watts(nodes: Iterable[Object]) -> dict[str, int]:
    """Watts of each node's GPUs before anything was measured there, by UID."""
    return {
        node["metadata"]["uid"]: BOARD_WATTS[node["metadata"]["labels"][names.DEFAULT_POOL_LABEL]]
        * int(node["status"]["allocatable"][names.GPU_RESOURCE])
        for node in nodes
    }


def drawn(changes: Iterable[Change], defaults: Mapping[str, int]) -> list[int]:
    """Watts of all nodes with an agent, after each change of a Job or a pod: from what a watch showed and nothing else.

    An agent is a Job that has not ended, suspended or not, or a pod that has not. A node counts with the limits that
    its newest report told when the change was made.
    """
    limits, live, sums = dict(defaults), dict[str, str](), list[int]()
    for change in changes:
        node = change.object["metadata"].get("labels", {}).get(names.LABEL_NODE_UID)
        if node not in defaults:
            continue
        if change.kind == "reports":
            told = change.object.get("status", {}).get("hardware", {}).get("limitWatts")
            limits[node] = told or limits[node]
        elif change.kind in ("jobs", "pods"):
            live.pop(change.uid, None)
            if change.type != "DELETED" and not has_ended(change.object):
                live[change.uid] = node
            sums.append(sum(limits[uid] for uid in set(live.values())))
    return sums


NODES = 50
BUDGET = 60_000
LARGEST = 8 * 700
"""Watts of the node that draws most: less room than this may be left over."""
ROLLOUT = {"maxConcurrent": NODES, "powerBudgetWatts": BUDGET}
LAG_SECONDS = 2.0
RAISED = 20_000
"""Watts of a node whose limits are unlike its product's: a third of the budget."""


@pytest.fixture(scope="module")
def defaults(stage: Scene) -> dict[str, int]:
    """Watts by node UID of a fleet of GB200 and H100 nodes, whose agents run so long that starts catch up."""
    stage.add_nodes(*specs(NODES, "agent-seconds:4", products=("GB200", "H100")))
    return default_watts(stage.nodes())


def assert_within_budget(history: Sequence[Change], profiles: int, defaults: dict[str, int]) -> None:
    """Never more than the budget, and nearly all of it at some time; each node once a profile, and by one at a time."""
    assert BUDGET - LARGEST < max(drawn(history, defaults)) <= BUDGET
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(history, "jobs"))
    assert (len(jobs), set(jobs.values())) == (NODES, {profiles})
    assert {most_agents(history, node) for node in defaults} == {1}


def test_sixty_kilowatts_are_never_exceeded_by_one_profile(stage: Scene, defaults: dict[str, int]) -> None:
    profile = stage.apply("alone", rollout=ROLLOUT)
    assert profile.completes()["progress"] == f"{NODES}/{NODES}"
    assert_within_budget(profile.history(), 1, defaults)


def test_sixty_kilowatts_are_never_exceeded_when_the_watch_lags_behind_the_operators_own_writes(
    stage: Scene, defaults: dict[str, int], tmp_path: Path
) -> None:
    with lagging_proxy(stage.site, tmp_path, LAG_SECONDS):
        profile = stage.apply("lagging", rollout=ROLLOUT)
        profile.completes(240)
    assert_within_budget(profile.history(), 1, defaults)


def test_sixty_kilowatts_are_shared_by_two_profiles_that_start_in_the_same_second(
    stage: Scene, defaults: dict[str, int]
) -> None:
    stage.lab.apply(*(stage.manifest(name, rollout=ROLLOUT) for name in ("one", "other")))
    profiles = [stage.profile(name) for name in ("one", "other")]
    begun = {parse_time(profile.get()["metadata"]["creationTimestamp"]) for profile in profiles}
    assert max(begun) - min(begun) <= timedelta(seconds=1)
    for profile in profiles:
        assert profile.completes(240)["progress"] == f"{NODES}/{NODES}"
    uids = {profile.uid for profile in profiles}
    history = [change for change in stage.site.history.changes() if owner_uid(change) in uids]
    assert_within_budget(history, 2, defaults)
    jobs = [owner_uid(change) for change in history if change.kind == "jobs" and change.type == "ADDED"]
    assert set(jobs[:NODES]) == uids, "the second profile began when the first was done"


def test_a_node_counts_with_the_limits_that_its_last_report_tells(scene: Scene) -> None:
    scene.add_nodes(*specs(6, "agent-seconds:2", products=("H100",)))
    before = scene.apply("before", rollout={"maxConcurrent": 6})
    before.completes()
    for report in before.reports():
        path = paths.item(paths.reports(scene.site.namespace), report["metadata"]["name"], "status")
        patch = {"status": {"hardware": {"limitWatts": RAISED}}}
        scene.site.api.ask("PATCH", path, patch, kind=MERGE_PATCH)
    eventually(lambda: {r["status"]["hardware"]["limitWatts"] for r in before.reports()} == {RAISED})
    scene.site.operator_has_looked()
    after = scene.apply("after", rollout=ROLLOUT)
    eventually(lambda: reasons(after.status()) == {"PowerBudgetReached": 3})
    (row,) = after.status()["reasons"]
    this_node = f"and this node {RAISED} W (enforced limits), together more than spec.rollout.powerBudgetWatts"
    assert this_node in row["message"]
    assert after.completes()["progress"] == "6/6"
    assert max(drawn(after.history(), dict.fromkeys(default_watts(scene.nodes()), RAISED))) == BUDGET
