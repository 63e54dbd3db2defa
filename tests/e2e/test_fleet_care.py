"""When and how far a rollout goes: schedules, changed drivers, canaries, failures, retries, deletion at any time."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_operator.core.observe.clock import format_time, parse_time
from tests.support.eventually import eventually
from tests.support.history import Object, created
from tests.support.site import Profile, Scene, reasons, specs

pytestmark = pytest.mark.cluster

ONCE = {"limit": 0}
"""No retries."""
CRASHES = "fault:crash"


@pytest.fixture(scope="module", autouse=True)
def nightly(stage: Scene) -> tuple[Profile, datetime]:
    """A profile whose schedule begins a run a minute from here, while other tests are at work; and that time."""
    # The first full minute that is at least ten seconds away.
    tick = (datetime.now(UTC) + timedelta(seconds=70)).replace(second=0, microsecond=0)
    stage.add_nodes(*specs(3))
    cron = f"{tick.minute} {tick.hour} * * *"
    return stage.apply("nightly", rollout={"maxConcurrent": 3}, schedule={"cron": cron}), tick


def statuses(profile: Profile) -> list[Object]:
    return [c.object["status"] for c in profile.history() if c.kind == "profiles" and "status" in c.object]


def change_driver(scene: Scene, nodes: list[str], version: str) -> None:
    """As GPU feature discovery does after a driver's update."""
    parts = dict(zip(("major", "minor", "revision"), version.split("."), strict=True))
    labels = [f"nvidia.com/cuda.driver-version.{part}={text}" for part, text in {**parts, "full": version}.items()]
    for node in nodes:
        scene.lab.kubectl("label", "--overwrite", "node", node, *labels)


def is_stale(status: Object) -> bool:
    """Whether a report is marked as of another driver, and still has its result."""
    told = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", ())}
    return told.get(names.FRESH) == ("False", "DriverChange") and bool(status["results"]) and bool(status["run"])


def test_a_new_driver_on_three_of_twenty_nodes_measures_those_three_again_and_no_other(scene: Scene) -> None:
    nodes = scene.add_nodes(*specs(20))
    profile = scene.completed()
    updated, version = nodes[4:7], "590.44.01"
    old_runs = {node: attempt["run"] for node, attempt in profile.attempts().items()}
    change_driver(scene, updated, version)

    def measured_again() -> bool:
        now = profile.attempts()
        new = [node for node in nodes if now[node]["run"] != old_runs[node] and now[node]["outcome"] == "succeeded"]
        return new == updated

    eventually(measured_again)
    scene.site.operator_has_looked()
    history = profile.history()
    jobs = Counter(job["metadata"]["annotations"][names.ANNOTATION_NODE] for job in created(history, "jobs"))
    assert jobs == Counter(nodes) + Counter(updated)
    reports = [c.object for c in history if c.kind == "reports" and "status" in c.object]
    stale = [report for report in reports if is_stale(report["status"])]
    assert {report["spec"]["nodeName"] for report in stale} == set(updated)
    assert all(r["status"]["run"]["run"] == old_runs[r["spec"]["nodeName"]] for r in stale)
    for node in updated:
        status = profile.report_of(node)["status"]
        assert status["attempt"]["basis"]["driver"] == version
        assert {c["type"]: c["status"] for c in status["conditions"]} == {names.FRESH: "True", names.SUCCEEDED: "True"}


def test_a_canary_that_fails_stops_the_rollout_until_its_node_is_mended_and_run_again(scene: Scene) -> None:
    canary, *_ = scene.add_nodes(NodeSpec("H100", traits=(CRASHES,)), *specs(3))
    profile = scene.apply(rollout={"maxConcurrent": 4, "canary": 1, "retry": ONCE})
    eventually(lambda: reasons(profile.status()) == {"AgentCrashed": 1, "CanaryFailed": 3})
    told = {row["reason"]: row["message"] for row in profile.status()["reasons"]}
    assert "1 of the first 1 nodes (spec.rollout.canary) failed" in told["CanaryFailed"]
    assert "kubectl precision rerun NODE" in told["CanaryFailed"]
    scene.site.operator_has_looked()
    assert len(created(profile.history(), "jobs")) == 1

    scene.lab.annotate_node(canary, fault=None)
    report = profile.report_of(canary)["metadata"]["name"]
    mark = f"{names.ANNOTATION_RERUN}={format_time(datetime.now(UTC))}"
    scene.lab.kubectl("annotate", "npr", report, mark, "-n", scene.site.namespace)
    eventually(lambda: profile.counts().get("succeeded") == 4)
    order = [job["metadata"]["annotations"][names.ANNOTATION_NODE] for job in created(profile.history(), "jobs")]
    assert (order[:2], len(order)) == ([canary, canary], 5)


def test_a_node_that_fails_once_is_measured_by_its_retry_and_one_that_keeps_failing_says_why(scene: Scene) -> None:
    once, always = scene.add_nodes(*specs(1, CRASHES, "fault-runs:1"), *specs(1, CRASHES))
    profile = scene.completed(rollout={"maxConcurrent": 2, "retry": {"limit": 2, "backoffSeconds": 2}})
    attempts = profile.attempts()
    assert (attempts[once]["outcome"], attempts[once]["number"], attempts[once]["failures"]) == ("succeeded", 2, 1)
    assert (attempts[always]["outcome"], attempts[always]["number"], attempts[always]["failures"]) == ("failed", 3, 3)
    assert reasons(profile.status()) == {"AgentCrashed": 1}
    assert "exit code 139" in attempts[always]["message"]
    rows = [row for status in statuses(profile) for row in status.get("reasons", ())]
    said = {row["message"] for row in rows if row["reason"] == "Retrying"}
    assert any(re.search(r"Retry [12] of 2 starts automatically at \S+Z\.$", message) for message in said), said


def test_kubectl_get_tells_during_a_rollout_how_far_it_is_what_it_waits_for_and_when_it_ends(scene: Scene) -> None:
    scene.add_nodes(*specs(2), *specs(5, "agent-seconds:600"))
    profile = scene.apply(rollout={"maxConcurrent": 2})

    def columns() -> dict[str, str]:
        head, row = scene.lab.kubectl("get", "pp", profile.name, "-n", scene.site.namespace).splitlines()
        starts = [found.start() for found in re.finditer(r"(?<!\S)\S", re.sub(r"(?<=\S) (?=\S)", "_", head))]
        return {head[a:b].strip(): row[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)}

    eventually(lambda: columns().get("WAITS FOR") == "MaxConcurrentReached (3)" and columns()["NODES"] == "2/7")
    told = columns()
    assert (told["PHASE"], told["FAILED"], told["DATA"]) == ("Running", "0", "SIMULATED (2/2)")
    assert re.fullmatch(r"\d\d:\d\dZ", told["ETA"])
    now = datetime.now(UTC)
    hour, minute = map(int, told["ETA"].removesuffix("Z").split(":"))
    ahead = (now.replace(hour=hour, minute=minute, second=0) - now) % timedelta(days=1)
    assert ahead < timedelta(minutes=5), "agents took seconds so far"


def test_a_schedule_begins_its_run_at_its_time_and_not_before(nightly: tuple[Profile, datetime]) -> None:
    profile, tick = nightly
    eventually(lambda: profile.counts().get("succeeded") == 3, 120)
    begun = [parse_time(job["metadata"]["creationTimestamp"]) for job in created(profile.history(), "jobs")]
    assert len(begun) == 3
    assert tick <= min(begun)
    assert max(begun) < tick + timedelta(seconds=20)
    first, *_, last = statuses(profile)
    assert (reasons(first), parse_time(first["nextRun"]), first.get("lastRun")) == ({"NotDueYet": 3}, tick, None)
    assert f"starts at {format_time(tick)}" in first["reasons"][0]["message"]
    assert parse_time(last["nextRun"]) == tick + timedelta(days=1)
    assert tick <= parse_time(last["lastRun"]) <= datetime.now(UTC)
