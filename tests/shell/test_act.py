"""What plans say is done once, whatever the API server answers: gone objects, hostile results, logs that are lost."""

import asyncio
import gzip
import json
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from precision_api.exchange.wire import encode
from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts.actions import Close, Collect, Drop
from precision_operator.core.observe.observed import Termination
from precision_operator.core.observe.views import pod_view
from precision_operator.core.reasons import Said, said
from precision_operator.core.status.events import Note
from precision_operator.shell.acting import act
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache
from tests.support.acting import DETAILS, INTERNAL, JOB_NAME, JOBS, OWNER, PODS, REPORT_NAME, REPORTS, START, Scene
from tests.support.fake_cluster import TIMEOUT
from tests.support.result_objects import result

DONE = Said("ResultWritten", words="done")


async def test_one_action_that_fails_does_not_stop_the_others(scene: Scene) -> None:
    await scene.started()
    scene.cluster.fail("DELETE", JOBS, INTERNAL)
    job = scene.job()
    gone = Said("RetentionOver", words="its node is gone")
    other = Drop("NodePrecisionReport", "ml", REPORT_NAME, scene.report().uid, gone)
    assert await scene.actor.act([Drop("Job", "ml", job.name, job.uid, DONE), other]) == 1
    assert (scene.held("jobs"), scene.held("reports")) == ([JOB_NAME], [])


async def test_what_ends_is_done_before_what_begins(scene: Scene) -> None:
    job = await scene.started()
    scene.cluster.requests.clear()
    await scene.actor.act([START, Drop("Job", "ml", job.name, job.uid, DONE)])
    writes = [method for method, _ in scene.cluster.requests]
    assert writes.index("DELETE") < writes.index("POST")


async def test_a_result_is_written_with_its_detail_and_then_the_job_is_deleted(scene: Scene) -> None:
    job, pod = await scene.ended()
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1", nvlink_domain="d.1")]) == 0
    status, run = scene.status(), scene.run()
    assert (status.hardware.pool, status.hardware.nvlink_domain) == ("pool-1", "d.1")
    assert (status.state, run.detail, run.detail_problem) == ("Measured", f"{REPORT_NAME}-detail", None)
    detail = scene.cluster.objects[f"{DETAILS}/{REPORT_NAME}-detail"]
    full = json.loads(gzip.decompress(b64decode(detail["binaryData"]["result.json.gz"])))
    assert (full["node"], full["request_hash"]) == ("n1", job.request_hash)
    assert detail["metadata"]["ownerReferences"][0]["uid"] == scene.report().uid
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects
    assert scene.held("jobs") == []
    assert [method for method, _ in scene.cluster.requests[-4:]] == ["LOG", "POST", "PATCH", "DELETE"]


@pytest.mark.parametrize("broken", ["configmaps", "/status", "jobs"])
@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
async def test_killed_at_any_write_a_result_is_collected_again_not_lost(scene: Scene, broken: str, after: bool) -> None:
    job, pod = await scene.ended()
    method = {"configmaps": "POST", "/status": "PATCH", "jobs": "DELETE"}[broken]
    scene.cluster.fail(method, broken, TIMEOUT, after)
    assert await scene.collected(job, pod) == 1
    fresh = Actor(scene.cluster, Cache())  # type: ignore[arg-type]
    assert await fresh.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    status = scene.status()
    assert (status.state, len(status.results)) == ("Measured", 8)
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_a_pod_that_the_watch_shows_running_is_read_anew(scene: Scene) -> None:
    job, pod = await scene.ended()
    stale = replace(pod, phase="Running", termination=None)
    for shown in (stale, None):
        scene.cluster.requests.clear()
        await scene.collected(job, shown)
        assert scene.asked("LIST") == [f"{PODS}?batch.kubernetes.io/job-name={JOB_NAME}&"]
    assert scene.status().state == "Measured"


async def test_a_pod_that_has_not_ended_yet_is_waited_for(scene: Scene) -> None:
    job, pod = await scene.ended(phase="Running")
    assert await scene.collected(job, pod) == 1
    assert scene.report().status is None
    assert scene.job().uid == job.uid


async def test_a_result_without_its_report_gets_a_new_one(scene: Scene) -> None:
    job, pod = await scene.ended()
    del scene.cluster.objects[f"{REPORTS}/{REPORT_NAME}"]
    assert await scene.actor.act([Collect(job, pod, None, "pool-1")]) == 0
    assert scene.report().node_uid == "uid-n1"
    assert scene.report().status is not None


LOG_ERRORS: dict[str, tuple[ApiError, bool, bool]] = {
    "trouble that may pass, just now": (INTERNAL, False, True),
    "trouble that did not pass": (INTERNAL, True, False),
    "it will never be there": (ApiError(404, "NotFound", "not found"), False, False),
}


@pytest.mark.parametrize(("error", "long_ago", "later"), LOG_ERRORS.values(), ids=LOG_ERRORS)
async def test_a_log_that_cannot_be_read_is_asked_for_again_for_a_while(
    scene: Scene, error: ApiError, long_ago: bool, later: bool
) -> None:
    job, pod = await scene.ended(long_ago=long_ago)
    scene.cluster.fail("LOG", "", error)
    assert await scene.collected(job, pod) == later
    if later:
        assert scene.report().status is None
    else:
        assert "The agent's log could not be read" in (scene.run().detail_problem or "")


async def test_a_failed_attempt_keeps_the_end_of_its_log_and_then_its_job_goes(scene: Scene) -> None:
    job, pod = await scene.ended(message=b"")
    scene.cluster.logs[pod.name] = b"Traceback\nCUDA error: \x1b[31munspecified launch failure\x1b[0m\n"
    assert await scene.collected(job, pod) == 0
    attempt = scene.attempt()
    assert (attempt.reason, attempt.log) == ("ResultMissing", "Traceback\nCUDA error: unspecified launch failure")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects
    order = [method for method, _ in scene.cluster.requests if method in ("LOG", "PATCH", "DELETE")]
    assert order == ["LOG", "PATCH", "DELETE"], "read while its pod is there"


@pytest.mark.parametrize(("error", "long_ago", "later"), LOG_ERRORS.values(), ids=LOG_ERRORS)
async def test_a_failed_attempt_whose_log_cannot_be_read_is_closed_all_the_same_and_says_why(
    scene: Scene, error: ApiError, long_ago: bool, later: bool
) -> None:
    job, pod = await scene.ended(message=b"", long_ago=long_ago)
    scene.cluster.fail("LOG", "", error)
    assert await scene.collected(job, pod) == later
    assert (f"{JOBS}/{JOB_NAME}" in scene.cluster.objects) == later
    if not later:
        assert scene.attempt().log == f"(no log: {error.message})"


async def test_a_kubelet_without_the_container_is_not_taken_for_the_agents_log(scene: Scene) -> None:
    """An evicted pod's container is removed at once; the kubelet then answers with 200 and this text."""
    job, pod = await scene.ended(message=b"")
    scene.cluster.logs[pod.name] = b"unable to retrieve container logs for containerd://950e5ebe7015d5b3"
    assert await scene.collected(job, pod) == 0
    assert scene.attempt().log == "(no log: unable to retrieve container logs for containerd://950e5ebe7015d5b3)"


async def test_a_full_result_whose_log_is_gone_is_not_called_truncated(scene: Scene) -> None:
    job, pod = await scene.ended()
    scene.cluster.logs[pod.name] = b"unable to retrieve container logs for containerd://950e5ebe7015d5b3"
    assert await scene.collected(job, pod) == 0
    assert (scene.run().detail_problem or "").startswith("LogUnavailable: ")


async def test_an_attempt_that_was_lost_without_its_pod_has_no_log(scene: Scene) -> None:
    job, _ = await scene.ended()
    del scene.cluster.objects[f"{PODS}/{job.name}-x"]
    assert await scene.collected(job, None) == 0
    assert (scene.attempt().reason, scene.attempt().log) == ("PodLost", None)
    assert scene.asked("LOG") == []


@pytest.mark.parametrize("message", [b"", b"hello", b'{"v":"PPS1"}', b"{" * 4000, b'{"v":"PPE1","reason":"Nonsense"}'])
async def test_a_hostile_message_is_a_reason_in_the_report_and_the_job_goes(scene: Scene, message: bytes) -> None:
    job, pod = await scene.ended(message=message)
    assert await scene.collected(job, pod) == 0
    assert scene.attempt().outcome == "failed"
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_a_closed_attempt_says_why_and_its_job_goes(scene: Scene) -> None:
    job = await scene.started()
    close = Close(job, scene.report(), "disrupted", Said("PendingTooLong", words="It did not start."))
    assert await scene.actor.act([close]) == 0
    assert (scene.attempt().outcome, scene.attempt().reason) == ("disrupted", "PendingTooLong")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def overdue(scene: Scene) -> Close:
    """The end of an agent that runs on an hour after the start of its container."""
    job, pod = await scene.ended(phase="Running")
    began = datetime.now(UTC) - timedelta(hours=1)
    late = said("DeadlineExceeded", seconds=1860, what="its log is read first")
    live = replace(job, finished=None, finished_at=None)
    return Close(live, scene.report(), "failed", late, pod=pod, since=began)


async def test_a_hung_agents_log_is_read_before_its_job_goes_and_names_the_phase(scene: Scene) -> None:
    close = await overdue(scene)
    scene.cluster.logs[f"{JOB_NAME}-x"] = b"   99 s  measuring, about 9:11 left\n"
    assert await scene.actor.act([close]) == 0
    attempt = scene.attempt()
    told = "   99 s  measuring, about 9:11 left"
    assert (attempt.outcome, attempt.reason, attempt.log) == ("failed", "AgentHung", told)
    assert "s after its last progress (measuring)" in (attempt.message or "")
    order = [method for method, _ in scene.cluster.requests if method in ("LOG", "PATCH", "DELETE")]
    assert order == ["LOG", "PATCH", "DELETE"]


async def test_an_agent_that_its_kubelet_ended_past_the_deadline_is_told_likewise(scene: Scene) -> None:
    """As after an operator that was away: the pod's own activeDeadlineSeconds came first."""
    job, pod = await scene.ended(message=b"")
    scene.cluster.logs[pod.name] = b"   99 s  measuring, about 9:11 left\n"
    began = datetime.now(UTC) - timedelta(hours=1)
    killed = replace(pod, failure="DeadlineExceeded", started_at=began, termination=Termination(137))
    assert await scene.collected(job, killed) == 0
    assert (scene.attempt().reason, scene.attempt().log) == ("AgentHung", "   99 s  measuring, about 9:11 left")


@pytest.mark.parametrize("error", [INTERNAL, TIMEOUT, ApiError(404, "NotFound", "not found")])
async def test_an_agent_with_an_unreadable_log_is_ended_at_once_and_its_report_says_why(
    scene: Scene, error: ApiError
) -> None:
    close = await overdue(scene)
    scene.cluster.fail("LOG", "", error)
    assert await scene.actor.act([close]) == 0
    assert (scene.attempt().reason, scene.attempt().log) == ("DeadlineExceeded", f"(no log: {error.message})")
    assert "there is no log of it" in (scene.attempt().message or "")
    assert scene.asked("LOG") == [f"{JOB_NAME}-x"], "asked for once"
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_an_agent_that_ends_while_its_log_is_read_is_collected_with_its_result(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "GRACE_SECONDS", 1.0)
    close = await overdue(scene)
    hangs = scene.cluster.hanging[f"{JOB_NAME}-x"] = asyncio.Event()
    assert await scene.actor.act([close]) == 0
    assert scene.report().status is None, "its log is being read"
    pod = pod_view(scene.cluster.objects[f"{PODS}/{JOB_NAME}-x"])
    assert pod is not None
    published = encode(result(run=close.job.run, request_hash=close.job.request_hash, node="n1"))
    done = replace(pod, phase="Succeeded", termination=Termination(0, "Completed", published.message.decode()))
    hangs.set()
    finished = replace(close.job, finished="Complete", finished_at=datetime.now(UTC))
    assert await scene.collected(finished, done) == 0
    assert (scene.attempt().outcome, scene.attempt().log) == ("succeeded", None)


@pytest.mark.parametrize("uid", ["", "uid-of-another"], ids=["gone", "another of that name"])
async def test_deleting_what_is_gone_or_replaced_is_done(scene: Scene, uid: str) -> None:
    job = await scene.started()
    if not uid:
        del scene.cluster.objects[f"{JOBS}/{JOB_NAME}"]
    assert await scene.actor.act([Drop("Job", "ml", job.name, uid or job.uid, DONE)]) == 0
    assert (f"{JOBS}/{JOB_NAME}" in scene.cluster.objects) == bool(uid)


async def test_an_event_that_is_there_already_is_not_added_again_and_one_that_fails_stops_nothing(scene: Scene) -> None:
    events = paths.collection("v1", "events", "ml")
    note = Note("Warning", "NodesFailed", "2 of 24 failed.")
    await scene.actor.tell(OWNER, [note])
    await scene.actor.tell(OWNER, [note])
    assert len([path for path in scene.cluster.objects if path.startswith(events)]) == 1
    scene.cluster.fail("POST", events, INTERNAL)
    await scene.actor.tell(OWNER, [replace(note, message="3 of 24 failed."), replace(note, message="4 of 24 failed.")])
    assert len([path for path in scene.cluster.objects if path.startswith(events)]) == 2


async def test_an_event_that_says_the_same_again_is_counted(scene: Scene) -> None:
    note = Note("Warning", "NodesFailed", "2 of 24 failed.")
    for _ in range(3):
        await scene.actor.tell(OWNER, [note])
    events = paths.collection("v1", "events", "ml")
    (found,) = [body for path, body in scene.cluster.objects.items() if path.startswith(events)]
    assert found["count"] == 3
    assert found["lastTimestamp"] >= found["firstTimestamp"]


async def test_a_profiles_status_is_written_whole_to_that_very_profile(scene: Scene) -> None:
    stored: dict[str, Any] = {"metadata": {"name": "nightly", "namespace": "ml", "uid": OWNER.uid}, "spec": {}}
    await scene.cluster.create(paths.profiles("ml"), stored)
    await scene.actor.write_profile_status(OWNER, {"phase": "Running"})
    await scene.actor.write_profile_status(OWNER, {"progress": "1/2"})
    assert scene.cluster.objects[f"{paths.profiles('ml')}/nightly"]["status"] == {"progress": "1/2"}
    with pytest.raises(ApiError, match="test of the patch fails"):
        await scene.actor.write_profile_status(replace(OWNER, uid="uid-of-before"), {"phase": "Complete"})
