"""Reports and full results are written to that very object, as it was read; what can't be written has a reason."""

import gzip
import json
from base64 import b64decode
from dataclasses import replace

import pytest

from precision_api.facts import names
from precision_api.kinds.profile import Retention, Retry
from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts.actions import Adopt, Close, Collect, Keeping, MarkStale
from precision_operator.core.reasons import Said, said, sentence
from precision_operator.core.results import ingest
from tests.support.acting import DETAILS, INTERNAL, JOB_NAME, JOBS, OWNER, REPORT_NAME, REPORTS, START, Scene


@pytest.mark.parametrize("there", [OWNER.uid, "uid-of-another"], ids=["ours", "another"])
async def test_a_report_of_a_deleted_profile_of_the_same_name_is_replaced_if_the_profile_is_still_ours(
    scene: Scene, there: str
) -> None:
    await scene.started()
    scene.cluster.objects[f"{REPORTS}/{REPORT_NAME}"]["metadata"]["ownerReferences"][0]["uid"] = "uid-of-before"
    del scene.cluster.objects[f"{JOBS}/{JOB_NAME}"]
    await scene.cluster.create(paths.profiles("ml"), {"metadata": {"name": "nightly", "uid": there}})
    assert await scene.actor.act([START]) == 0
    if there == OWNER.uid:
        assert scene.report().profile_uid == OWNER.uid
        assert f"{JOBS}/{JOB_NAME}" in scene.cluster.objects
    else:
        assert scene.report().profile_uid == "uid-of-before"
        assert scene.refused() == ("NameTaken", "report", "profile nightly has been replaced")
        assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects, "no Job without its report"


async def test_a_report_that_is_being_deleted_is_waited_for(scene: Scene) -> None:
    await scene.cluster.create(REPORTS, dict(START.report or {}))
    scene.cluster.objects[f"{REPORTS}/{REPORT_NAME}"]["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    assert await scene.actor.act([START]) == 0
    assert scene.refused()[:2] == ("NameTaken", "report")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects, "no Job without its report"


async def test_a_report_without_an_owner_is_kept_for_the_next_plan_to_adopt(scene: Scene) -> None:
    await scene.cluster.create(REPORTS, dict(START.report or {}))
    del scene.cluster.objects[f"{REPORTS}/{REPORT_NAME}"]["metadata"]["ownerReferences"]
    orphan = scene.report()
    assert await scene.actor.act([START]) == 0
    assert (scene.report(), scene.held("reports"), scene.held("jobs")) == (orphan, [REPORT_NAME], [])
    assert scene.refused()[:2] == ("NameTaken", "report")


async def test_a_report_without_an_owner_gets_the_profile_of_its_name(scene: Scene) -> None:
    await scene.started()
    del scene.cluster.objects[f"{REPORTS}/{REPORT_NAME}"]["metadata"]["ownerReferences"]
    orphan = scene.report()
    assert orphan.profile_uid == ""
    assert await scene.actor.act([Adopt(replace(OWNER, uid="uid-new"), orphan)]) == 0
    adopted = scene.cluster.objects[f"{REPORTS}/{REPORT_NAME}"]["metadata"]
    assert (scene.report().uid, scene.report().profile_uid) == (orphan.uid, "uid-new")
    assert adopted["labels"][names.LABEL_PROFILE_UID] == "uid-new"
    assert [report.profile_uid for report in scene.cache.all("reports").values()] == ["uid-new"]


REFUSED_DETAILS = {
    "quota": (ApiError(403, "Forbidden", "POST", words="exceeded quota: q"), False, False),
    "size": (ApiError(422, "Invalid", "POST", words="Too long: must have at most 1048576 bytes"), False, False),
    "hook": (ApiError(400, "BadRequest", "POST", words='admission webhook "w" denied the request: no'), False, False),
    "trouble that may pass": (INTERNAL, False, True),
    "trouble that did not pass": (INTERNAL, True, False),
}


@pytest.mark.parametrize(("error", "long_ago", "later"), REFUSED_DETAILS.values(), ids=REFUSED_DETAILS)
async def test_a_detail_that_cannot_be_written_leaves_the_summary_with_the_reason(
    scene: Scene, error: ApiError, long_ago: bool, later: bool
) -> None:
    job, pod = await scene.ended(long_ago=long_ago)
    scene.cluster.fail("POST", DETAILS, error)
    assert await scene.collected(job, pod) == later
    assert (f"{JOBS}/{JOB_NAME}" in scene.cluster.objects) == later
    if not later:
        status, run = scene.status(), scene.run()
        assert (status.state, len(status.results), run.detail) == ("Measured", 8, None)
        assert run.detail_problem == f"DetailNotWritten: {sentence('DetailNotWritten', detail=error.words)}"


async def test_a_profile_that_keeps_no_details_gets_what_the_log_says_and_no_config_map(scene: Scene) -> None:
    job, pod = await scene.ended()
    keeping = Keeping(Retry(), Retention(detail="None"))
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1", keeping)]) == 0
    why = f"DetailNotWritten: {sentence('DetailNotWritten', detail='spec.retention.detail is None')}"
    assert (scene.run().detail, scene.run().detail_problem, scene.held("jobs")) == (None, why, [])
    assert len(scene.status().results) == 8
    assert not [path for path in scene.cluster.objects if path.startswith(DETAILS)]


async def test_a_result_that_an_older_crd_refuses_is_a_failure_with_its_reason_not_tried_for_ever(scene: Scene) -> None:
    """The operator was upgraded, its CRDs were not: `crds.enabled=false` leaves them to somebody else."""
    job, pod = await scene.ended()
    words = f'{REPORT_NAME} is invalid: status.results[6].recipe: Unsupported value: "nvfp4"'
    error = ApiError(422, "Invalid", "PATCH", words=words, causes=("FieldValueNotSupported",))
    scene.cluster.fail("PATCH", REPORT_NAME, error)
    assert await scene.collected(job, pod) == 0
    attempt = scene.attempt()
    assert (attempt.outcome, attempt.reason) == ("failed", "ResultNewer")
    assert 'Unsupported value: "nvfp4"' in (attempt.message or "")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_a_status_is_written_to_that_very_object_as_it_was_read(scene: Scene) -> None:
    await scene.started()
    other = replace(scene.report(), uid="uid-of-before")
    assert await scene.actor.act([MarkStale(other, Said("NodeGone", words="It is gone."))]) == 1
    assert scene.report().status is None
    as_read, gone = scene.report(), Said("NodeGone", words="A late request.")
    assert await scene.actor.act([MarkStale(as_read, Said("DriverChange", words="Another driver."))]) == 0
    assert await scene.actor.act([MarkStale(as_read, gone)]) == 1, "it is tried again later"
    assert scene.status().state == "Stale"
    assert await scene.actor.act([MarkStale(scene.report(), Said("NodeGone", words="It is gone."))]) == 0
    assert scene.status().state == "NodeGone"
    assert scene.cache.all("reports")[scene.report().uid].status.state == "NodeGone"


async def test_a_detail_that_was_written_meanwhile_is_not_overwritten(scene: Scene) -> None:
    job, pod = await scene.ended()
    collect = Collect(job, pod, scene.report(), "pool-1")
    path = f"{DETAILS}/{REPORT_NAME}-detail"
    scene.cluster._store(path, {**ingest.detail(scene.report(), b"of an attempt before"), "data": {"by": "a leader"}})
    scene.cluster.fail("PATCH", path, ApiError(409, "Conflict", "the object has been modified"))
    assert await scene.actor.act([collect]) == 1, "another leader has written just now: it is looked at again"
    assert f"{JOBS}/{JOB_NAME}" in scene.cluster.objects
    assert await scene.actor.act([collect]) == 0
    full = gzip.decompress(b64decode(scene.cluster.objects[path]["binaryData"]["result.json.gz"]))
    assert json.loads(full)["node"] == "n1"


async def test_a_detail_is_replaced_only_as_the_version_that_was_read(scene: Scene) -> None:
    job, pod = await scene.ended()
    path = f"{DETAILS}/{REPORT_NAME}-detail"
    stored = scene.cluster._store(path, ingest.detail(scene.report(), b"of an attempt before"))
    await scene.collected(job, pod)
    guard = next(body["metadata"] for where, body in scene.cluster.patches if where == path)
    assert guard == {"uid": stored["metadata"]["uid"], "resourceVersion": stored["metadata"]["resourceVersion"]}


async def test_a_detail_of_a_report_that_is_gone_is_waited_for(scene: Scene) -> None:
    job, pod = await scene.ended()
    path = f"{DETAILS}/{REPORT_NAME}-detail"
    older = ingest.detail(replace(scene.report(), uid="uid-of-before"), b"theirs")
    scene.cluster._store(path, older)
    assert await scene.collected(job, pod) == 1
    assert scene.cluster.objects[path]["binaryData"] == older["binaryData"]


async def test_what_is_not_kept_of_a_report_outlives_a_failure_and_a_mark(scene: Scene) -> None:
    job, pod = await scene.ended()
    assert await scene.collected(job, pod) == 0
    first, uid = scene.status(), scene.report().uid
    assert first.history, first.recommendation
    await scene.actor.act([Close(job, scene.cache.all("reports")[uid], "disrupted", said("Disrupted", text="a drain"))])
    assert scene.attempt().outcome == "disrupted"
    mark = MarkStale(scene.cache.all("reports")[uid], Said("DriverChange", words="Another driver."))
    assert await scene.actor.act([mark]) == 0
    assert (scene.status().state, scene.status().conditions[0].reason) == ("Stale", "DriverChange")
    for part in ("results", "history", "recommendation", "run", "best"):
        assert getattr(scene.status(), part) == getattr(first, part)
