"""What plans say is done once, whatever the API server answers: taken names, gone objects, no answer at all."""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from precision_api import names
from precision_api.report import ReportAttempt
from precision_api.wire import encode
from precision_operator.cluster import ApiError, paths
from precision_operator.core.observe.observed import JobView, PodView, ReportView, Termination
from precision_operator.core.observe.views import job_view, pod_view, report_view
from precision_operator.core.reasons import sentence
from precision_operator.core.results import ingest
from precision_operator.core.rollout.actions import Adopt, Close, Collect, Drop, MarkStale, Start, Withdraw
from precision_operator.core.rollout.plan import plan
from precision_operator.core.status.events import Note
from precision_operator.shell.act import ACTIONS_AT_ONCE, Actor
from precision_operator.shell.cache import Cache, ObjectKind
from precision_operator.shell.refusals import RefusedCreations
from tests.support.fake_cluster import TIMEOUT, FakeCluster
from tests.support.node_objects import resource_slice
from tests.support.result_objects import result
from tests.support.world import at_once, nodes, observed, profile
from tests.support.world import pod as pod_of

OWNER = profile()
JOBS, REPORTS, PODS, DETAILS = paths.jobs("ml"), paths.reports("ml"), paths.pods("ml"), paths.config_maps("ml")
INTERNAL = ApiError(500, "InternalError", "etcd is not well")


def start() -> Start:
    """The start of an agent on n1, as a plan gives it."""
    action = plan(observed([OWNER], nodes("n1"))).actions[0]
    assert isinstance(action, Start)
    return action


START = start()
JOB_NAME = START.job["metadata"]["name"]
REPORT_NAME = names.report_name("nightly", "uid-n1")


class Scene:
    """A fake cluster, the cache, and the actor between them."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cache = Cache()
        self.refusals = RefusedCreations()
        self.actor = Actor(self.cluster, self.cache, self.refusals)  # type: ignore[arg-type]

    def refused(self) -> tuple[str, str, str]:
        """Reason, stage and words of what the cluster refused to n1."""
        found = self.refusals.standing(observed([OWNER], nodes("n1")))[OWNER.uid, "uid-n1"]
        return found.reason, found.stage, found.words

    async def started(self) -> JobView:
        assert await self.actor.act([START]) == 0
        return self.job()

    def job(self) -> JobView:
        view = job_view(self.cluster.objects[f"{JOBS}/{JOB_NAME}"])
        assert view is not None
        return view

    def report(self) -> ReportView:
        view = report_view(self.cluster.objects[f"{REPORTS}/{REPORT_NAME}"])
        assert view is not None
        return view

    def attempt(self) -> ReportAttempt:
        """The newest attempt of the report."""
        status = self.report().status
        assert status is not None
        assert status.attempt is not None
        return status.attempt

    async def ended(self, phase: str = "Succeeded", message: bytes | None = None) -> tuple[JobView, PodView]:
        """The agent has ended with a good result, unless told otherwise; its pod and log are there."""
        job = replace(await self.started(), finished="Complete", finished_at=datetime.now(UTC))
        published = encode(result(run=job.run, request_hash=job.request_hash, node="n1"))
        text = (published.message if message is None else message).decode()
        marks = {**START.job["metadata"]["labels"], "batch.kubernetes.io/job-name": job.name}
        marks["batch.kubernetes.io/controller-uid"] = job.uid
        state = {"terminated": {"exitCode": 0, "message": text}} if phase != "Running" else {"running": {}}
        raw = {
            "metadata": {"name": f"{job.name}-x", "namespace": "ml", "labels": marks},
            "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "containerStatuses": [{"name": "agent", "state": state}]},
        }
        stored = await self.cluster.create(PODS, raw)
        self.cluster.logs[f"{job.name}-x"] = "\n".join(published.lines).encode()
        pod = pod_view(stored)
        assert pod is not None
        return job, pod

    def held(self, kind: ObjectKind) -> list[str]:
        """Names of what the cache holds."""
        return [raw["metadata"]["name"] for raw in self.cache.all(kind).values()]

    def asked(self, method: str) -> list[str]:
        return [path for how, path in self.cluster.requests if how == method]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_start_makes_the_report_then_the_job_and_both_are_known_at_once(scene: Scene) -> None:
    await scene.started()
    assert scene.asked("POST") == [f"{REPORTS}/{REPORT_NAME}", f"{JOBS}/{JOB_NAME}"]
    assert (scene.held("jobs"), scene.held("reports")) == ([JOB_NAME], [REPORT_NAME])


TEMPLATES = paths.collection("resource.k8s.io/v1", "resourceclaimtemplates", "ml")
BY_CLAIM = observed(
    [OWNER], nodes("n1", labels={}, gpus=None), slices=(resource_slice("NVIDIA H100 80GB HBM3", count=8),)
)


def start_by_claim() -> Start:
    """The start of an agent on a node whose GPUs come by claim."""
    action = plan(BY_CLAIM).actions[0]
    assert isinstance(action, Start)
    return action


async def test_the_template_of_a_claim_is_there_before_the_job_and_is_asked_for_once(scene: Scene) -> None:
    action = start_by_claim()
    assert action.template is not None
    template = f"{TEMPLATES}/{action.template['metadata']['name']}"
    for _ in range(2):
        assert await scene.actor.act([action]) == 0
    job = f"{JOBS}/{action.job['metadata']['name']}"
    report = f"{REPORTS}/{REPORT_NAME}"
    assert scene.asked("POST") == [report, template, job, report, job]


async def test_who_leads_after_a_crash_between_template_and_job_goes_on_with_that_template(scene: Scene) -> None:
    action = start_by_claim()
    scene.cluster.fail("POST", JOBS, ApiError(500, "InternalError", "the operator is killed here"))
    await scene.actor.act([action])
    assert scene.held("jobs") == []
    again = Actor(scene.cluster, Cache())  # type: ignore[arg-type]
    assert await again.act([action]) == 0
    there = [path for path in scene.cluster.objects if path.startswith((TEMPLATES, JOBS))]
    assert len(there) == 2


async def test_a_template_that_is_there_is_taken_if_it_asks_for_the_same(scene: Scene) -> None:
    action = start_by_claim()
    assert action.template is not None
    await scene.cluster.create(TEMPLATES, dict(action.template))
    assert await scene.actor.act([action]) == 0
    assert len(scene.held("jobs")) == 1


async def test_a_template_that_asks_for_something_else_keeps_the_job_back(scene: Scene) -> None:
    action = start_by_claim()
    assert action.template is not None
    await scene.cluster.create(TEMPLATES, {**action.template, "spec": {"spec": {}}})
    assert await scene.actor.act([action]) == 0
    assert scene.held("jobs") == []
    assert scene.refused()[:2] == ("NameTaken", "ResourceClaimTemplate")


async def test_a_claim_that_a_quota_refuses_takes_the_job_back_and_tells_the_quota(scene: Scene) -> None:
    said = (
        "PodResourceClaim gpus: create ResourceClaim : "
        'resourceclaims.resource.k8s.io "pp-1-x-gpus-npphw" is forbidden: '
        "exceeded quota: q, requested: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=8, "
        "used: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=4, "
        "limited: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=8"
    )
    assert await scene.actor.act([start_by_claim()]) == 0
    raw = next(raw for path, raw in scene.cluster.objects.items() if path.startswith(f"{JOBS}/"))
    job = job_view(raw)
    assert job is not None
    pod = pod_of(replace(job, creation_problem=said), "Pending", claims=True)
    action = plan(replace(BY_CLAIM, jobs=(replace(job, creation_problem=said),), pods=(pod,))).actions[0]
    assert isinstance(action, Withdraw)
    assert await scene.actor.act([action]) == 0
    assert scene.held("jobs") == []
    words = "exceeded quota: q: 4 of 8 gpu.nvidia.com.deviceclass.resource.k8s.io/devices used, 8 more requested"
    assert scene.refused() == ("QuotaExceeded", "ResourceClaim", words)


async def test_a_start_done_twice_makes_one_job(scene: Scene) -> None:
    first = await scene.started()
    again = Actor(scene.cluster, Cache())  # type: ignore[arg-type]
    assert await again.act([START]) == 0
    assert scene.job().uid == first.uid


async def test_a_job_of_that_name_that_is_another_attempt_is_not_taken_for_ours(scene: Scene) -> None:
    foreign = {**START.job, "metadata": {**START.job["metadata"], "labels": {}}}
    await scene.cluster.create(JOBS, dict(foreign))
    assert await scene.actor.act([START]) == 0
    assert scene.held("jobs") == []
    assert scene.refused()[:2] == ("NameTaken", "Job")


async def test_a_job_of_that_name_that_is_being_deleted_is_waited_for(scene: Scene) -> None:
    dying = {**START.job, "metadata": {**START.job["metadata"], "deletionTimestamp": "2026-11-21T09:00:00Z"}}
    await scene.cluster.create(JOBS, dict(dying))
    assert await scene.actor.act([START]) == 0
    assert scene.held("jobs") == []
    assert scene.refused()[0] == "NameTaken"


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
    assert [raw["metadata"]["ownerReferences"][0]["uid"] for raw in scene.cache.all("reports").values()] == ["uid-new"]


@pytest.mark.parametrize("after", [False, True], ids=["it did not happen", "it happened"])
@pytest.mark.parametrize("error", [TIMEOUT, INTERNAL], ids=["no answer", "500"])
async def test_a_creation_without_an_answer_is_looked_up_before_anything_is_planned(
    scene: Scene, error: ApiError, after: bool
) -> None:
    scene.cluster.fail("POST", JOBS, error, after)
    assert await scene.actor.act([START]) == 1
    assert scene.held("jobs") == []
    scene.cluster.fail("GET", JOBS, INTERNAL)
    with pytest.raises(ApiError, match="etcd"):
        await scene.actor.starts.confirm()
    assert scene.actor.starts.unconfirmed, "still not known"
    await scene.actor.starts.confirm()
    assert (scene.held("jobs"), scene.actor.starts.unconfirmed) == ([JOB_NAME] if after else [], {})
    if not after:
        assert scene.refused()[:2] == ("CreationFailed", "Job")


async def test_a_namespace_in_which_nothing_may_be_looked_up_keeps_nobody_waiting(scene: Scene) -> None:
    scene.cluster.fail("POST", JOBS, TIMEOUT)
    await scene.actor.act([START])
    forbidden = ApiError(403, "Forbidden", "GET", words='jobs.batch is forbidden: User "o" cannot get resource "jobs"')
    scene.cluster.fail("GET", JOBS, forbidden)
    await scene.actor.starts.confirm()
    assert scene.actor.starts.unconfirmed == {}
    assert scene.refused()[0] == "PermissionMissing"


async def test_a_start_that_we_stumble_over_rests_as_a_refused_one_does(scene: Scene) -> None:
    broken = replace(START, job={**START.job, "metadata": {}})
    assert await scene.actor.act([broken]) == 1
    reason, stage, words = scene.refused()
    assert (reason, stage) == ("CreationRefused", "Job")
    assert "KeyError" in words


async def test_a_creation_that_was_refused_is_not_looked_up(scene: Scene) -> None:
    scene.cluster.fail("POST", JOBS, ApiError(403, "Forbidden", "POST: no", words="it is forbidden: no"))
    assert await scene.actor.act([START]) == 0
    assert scene.actor.starts.unconfirmed == {}
    assert scene.refused() == ("DeniedByPolicy", "Job", "it is forbidden: no")
    assert scene.cache.changed.is_set(), "the next candidate goes at once"


async def test_a_webhook_that_does_not_answer_is_a_refusal_although_the_answer_is_a_500(scene: Scene) -> None:
    words = 'Internal error occurred: failed calling webhook "w.example": context deadline exceeded'
    scene.cluster.fail("POST", JOBS, ApiError(500, "InternalError", "POST", words=words))
    assert await scene.actor.act([START]) == 0
    assert scene.actor.starts.unconfirmed == {}
    assert scene.refused()[0] == "WebhookUnavailable"


async def test_what_one_node_is_told_of_all_spares_the_others_their_try(scene: Scene) -> None:
    actions = plan(observed([profile(rollout=at_once(9))], nodes(*(f"n{n}" for n in range(9))))).actions
    words = 'jobs.batch "pp-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    for _ in actions:
        scene.cluster.fail("POST", JOBS, ApiError(403, "Forbidden", "POST", words=words))
    assert await scene.actor.act(actions) == 0
    assert len([path for path in scene.asked("POST") if "/jobs/" in path]) <= ACTIONS_AT_ONCE


async def test_a_job_whose_pod_is_refused_goes_and_nothing_is_written_to_its_report(scene: Scene) -> None:
    words = 'Error creating: pods "pp-1-x" is forbidden: violates PodSecurity "restricted:latest"'
    job = replace(await scene.started(), creation_problem=words)
    assert await scene.actor.act([Withdraw(job, START.mark, "DeniedByPolicy", "")]) == 0
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects
    assert scene.report().status is None
    assert scene.refused() == ("DeniedByPolicy", "pod", 'pods is forbidden: violates PodSecurity "restricted:latest"')


REFUSED_DETAILS = {
    "quota": (ApiError(403, "Forbidden", "POST", words="exceeded quota: q"), False, False),
    "size": (ApiError(422, "Invalid", "POST", words="Too long: must have at most 1048576 bytes"), False, False),
    "webhook": (
        ApiError(400, "BadRequest", "POST", words='admission webhook "w" denied the request: no'),
        False,
        False,
    ),
    "trouble that may pass": (INTERNAL, False, True),
    "trouble that did not pass": (INTERNAL, True, False),
}


@pytest.mark.parametrize(("error", "long_ago", "later"), REFUSED_DETAILS.values(), ids=REFUSED_DETAILS)
async def test_a_detail_that_cannot_be_written_leaves_the_summary_with_the_reason(
    scene: Scene, error: ApiError, long_ago: bool, later: bool
) -> None:
    job, pod = await scene.ended()
    if long_ago:
        job = replace(job, finished_at=datetime(2026, 1, 1, tzinfo=UTC))
    scene.cluster.fail("POST", DETAILS, error)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == later
    status = scene.report().status
    assert (f"{JOBS}/{JOB_NAME}" in scene.cluster.objects) == later
    if not later:
        assert status is not None
        assert status.run is not None
        assert (status.state, len(status.results), status.run.detail) == ("Measured", 7, None)
        told = f"DetailNotWritten: {sentence('DetailNotWritten', detail=error.words)}"
        assert status.run.detail_problem == told


async def test_a_result_that_an_older_crd_refuses_is_a_failure_with_its_reason_and_not_tried_for_ever(
    scene: Scene,
) -> None:
    """The operator was upgraded, its CRDs were not: `crds.enabled=false` leaves them to somebody else."""
    job, pod = await scene.ended()
    words = f'{REPORT_NAME} is invalid: status.results[6].recipe: Unsupported value: "nvfp4"'
    error = ApiError(422, "Invalid", "PATCH", words=words, causes=("FieldValueNotSupported",))
    scene.cluster.fail("PATCH", REPORT_NAME, error)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    status = scene.report().status
    assert status is not None
    assert status.attempt is not None
    assert (status.attempt.outcome, status.attempt.reason) == ("failed", "ResultNewer")
    assert 'Unsupported value: "nvfp4"' in (status.attempt.message or "")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_one_action_that_fails_does_not_stop_the_others(scene: Scene) -> None:
    await scene.started()
    scene.cluster.fail("DELETE", JOBS, INTERNAL)
    job = scene.job()
    other = Drop("NodePrecisionReport", "ml", REPORT_NAME, scene.report().uid, "RetentionOver", "its node is gone")
    assert await scene.actor.act([Drop("Job", "ml", job.name, job.uid, "ResultWritten", "done"), other]) == 1
    assert (scene.held("jobs"), scene.held("reports")) == ([JOB_NAME], [])


async def test_what_ends_is_done_before_what_begins(scene: Scene) -> None:
    job = await scene.started()
    scene.cluster.requests.clear()
    await scene.actor.act([START, Drop("Job", "ml", job.name, job.uid, "ResultWritten", "done")])
    writes = [method for method, _ in scene.cluster.requests]
    assert writes.index("DELETE") < writes.index("POST")


async def test_a_result_is_written_with_its_detail_and_then_the_job_is_deleted(scene: Scene) -> None:
    job, pod = await scene.ended()
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1", nvlink_domain="d.1")]) == 0
    status = scene.report().status
    assert status is not None
    assert status.run is not None
    assert status.hardware is not None
    assert (status.hardware.pool, status.hardware.nvlink_domain) == ("pool-1", "d.1")
    assert (status.state, status.run.detail, status.run.detail_problem) == ("Measured", f"{REPORT_NAME}-detail", None)
    detail = scene.cluster.objects[f"{DETAILS}/{REPORT_NAME}-detail"]
    full = json.loads(gzip.decompress(b64decode(detail["binaryData"]["result.json.gz"])))
    assert (full["node"], full["request_hash"]) == ("n1", job.request_hash)
    assert detail["metadata"]["ownerReferences"][0]["uid"] == scene.report().uid
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects
    assert scene.held("jobs") == []
    assert [method for method, _ in scene.cluster.requests[-4:]] == ["LOG", "POST", "PATCH", "DELETE"]


@pytest.mark.parametrize("broken", ["configmaps", "/status", "jobs"])
@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
async def test_killed_at_any_write_a_result_is_collected_again_and_not_lost(
    scene: Scene, broken: str, after: bool
) -> None:
    job, pod = await scene.ended()
    method = {"configmaps": "POST", "/status": "PATCH", "jobs": "DELETE"}[broken]
    scene.cluster.fail(method, broken, TIMEOUT, after)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 1
    fresh = Actor(scene.cluster, Cache())  # type: ignore[arg-type]
    assert await fresh.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    status = scene.report().status
    assert status is not None
    assert (status.state, len(status.results)) == ("Measured", 7)
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_a_pod_that_the_watch_shows_running_is_read_anew(scene: Scene) -> None:
    job, pod = await scene.ended()
    stale = replace(pod, phase="Running", termination=None)
    for shown in (stale, None):
        scene.cluster.requests.clear()
        await scene.actor.act([Collect(job, shown, scene.report(), "pool-1")])
        assert scene.asked("LIST") == [f"{PODS}?batch.kubernetes.io/job-name={JOB_NAME}&"]
    status = scene.report().status
    assert status is not None
    assert status.state == "Measured"


async def test_a_pod_that_has_not_ended_yet_is_waited_for(scene: Scene) -> None:
    job, pod = await scene.ended(phase="Running")
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 1
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
    job, pod = await scene.ended()
    if long_ago:
        job = replace(job, finished_at=datetime(2026, 1, 1, tzinfo=UTC))
    scene.cluster.fail("LOG", "", error)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == later
    status = scene.report().status
    if later:
        assert status is None
    else:
        assert status is not None
        assert status.run is not None
        assert "The agent's log could not be read" in (status.run.detail_problem or "")


async def test_a_failed_attempt_keeps_the_end_of_its_log_and_then_its_job_goes(scene: Scene) -> None:
    job, pod = await scene.ended(message=b"")
    scene.cluster.logs[pod.name] = b"Traceback\nCUDA error: \x1b[31munspecified launch failure\x1b[0m\n"
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    attempt = scene.attempt()
    assert (attempt.reason, attempt.log) == ("ResultMissing", "Traceback\nCUDA error: unspecified launch failure")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects
    order = [method for method, _ in scene.cluster.requests if method in ("LOG", "PATCH", "DELETE")]
    assert order == ["LOG", "PATCH", "DELETE"], "read while its pod is there"


@pytest.mark.parametrize(("error", "long_ago", "later"), LOG_ERRORS.values(), ids=LOG_ERRORS)
async def test_a_failed_attempt_whose_log_cannot_be_read_is_closed_all_the_same_and_says_why(
    scene: Scene, error: ApiError, long_ago: bool, later: bool
) -> None:
    job, pod = await scene.ended(message=b"")
    if long_ago:
        job = replace(job, finished_at=datetime(2026, 1, 1, tzinfo=UTC))
    scene.cluster.fail("LOG", "", error)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == later
    assert (f"{JOBS}/{JOB_NAME}" in scene.cluster.objects) == later
    if not later:
        assert scene.attempt().log == f"(no log: {error.message})"


async def test_a_kubelet_without_the_container_is_not_taken_for_the_agents_log(scene: Scene) -> None:
    """An evicted pod's container is removed at once; the kubelet then answers with 200 and this text."""
    job, pod = await scene.ended(message=b"")
    scene.cluster.logs[pod.name] = b"unable to retrieve container logs for containerd://950e5ebe7015d5b3"
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    assert scene.attempt().log == "(no log: unable to retrieve container logs for containerd://950e5ebe7015d5b3)"


async def test_a_full_result_whose_log_is_gone_is_not_called_truncated(scene: Scene) -> None:
    job, pod = await scene.ended()
    scene.cluster.logs[pod.name] = b"unable to retrieve container logs for containerd://950e5ebe7015d5b3"
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    status = scene.report().status
    assert status is not None
    assert status.run is not None
    assert (status.run.detail_problem or "").startswith("LogUnavailable: ")


async def test_an_attempt_that_was_lost_without_its_pod_has_no_log(scene: Scene) -> None:
    job, _ = await scene.ended()
    del scene.cluster.objects[f"{PODS}/{job.name}-x"]
    assert await scene.actor.act([Collect(job, None, scene.report(), "pool-1")]) == 0
    assert (scene.attempt().reason, scene.attempt().log) == ("PodLost", None)
    assert scene.asked("LOG") == []


HOSTILE = [b"", b"hello", b'{"v":"PPS1"}', b"{" * 4000, b'{"v":"PPE1","reason":"Nonsense"}']


@pytest.mark.parametrize("message", HOSTILE)
async def test_a_hostile_message_is_a_reason_in_the_report_and_the_job_goes(scene: Scene, message: bytes) -> None:
    job, pod = await scene.ended(message=message)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 0
    status = scene.report().status
    assert status is not None
    assert status.attempt is not None
    assert status.attempt.outcome == "failed"
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_a_closed_attempt_says_why_and_its_job_goes(scene: Scene) -> None:
    job = await scene.started()
    close = Close(job, scene.report(), "disrupted", "PendingTooLong", "It did not start.")
    assert await scene.actor.act([close]) == 0
    status = scene.report().status
    assert status is not None
    assert status.attempt is not None
    assert (status.attempt.outcome, status.attempt.reason) == ("disrupted", "PendingTooLong")
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def overdue(scene: Scene) -> Close:
    """The end of an agent that runs on an hour after the start of its container."""
    job, pod = await scene.ended(phase="Running")
    began = datetime.now(UTC) - timedelta(hours=1)
    message = sentence("DeadlineExceeded", seconds=1860, what="its log is read first")
    live = replace(job, finished=None, finished_at=None)
    return Close(live, scene.report(), "failed", "DeadlineExceeded", message, pod=pod, since=began)


async def test_a_hung_agents_log_is_read_before_its_job_goes_and_names_the_phase(scene: Scene) -> None:
    close = await overdue(scene)
    scene.cluster.logs[f"{JOB_NAME}-x"] = b"   99 s  measuring, about 9:11 left\n"
    assert await scene.actor.act([close]) == 0
    attempt = scene.attempt()
    assert (attempt.outcome, attempt.reason, attempt.log) == (
        "failed",
        "AgentHung",
        "   99 s  measuring, about 9:11 left",
    )
    assert "s after its last progress (measuring)" in (attempt.message or "")
    order = [method for method, _ in scene.cluster.requests if method in ("LOG", "PATCH", "DELETE")]
    assert order == ["LOG", "PATCH", "DELETE"]


async def test_an_agent_that_its_kubelet_ended_past_the_deadline_is_told_likewise(scene: Scene) -> None:
    """As after an operator that was away: the pod's own activeDeadlineSeconds came first."""
    job, pod = await scene.ended(message=b"")
    scene.cluster.logs[pod.name] = b"   99 s  measuring, about 9:11 left\n"
    began = datetime.now(UTC) - timedelta(hours=1)
    killed = replace(pod, failure="DeadlineExceeded", started_at=began, termination=Termination(137))
    assert await scene.actor.act([Collect(job, killed, scene.report(), "pool-1")]) == 0
    assert (scene.attempt().reason, scene.attempt().log) == ("AgentHung", "   99 s  measuring, about 9:11 left")


@pytest.mark.parametrize("error", [INTERNAL, TIMEOUT, ApiError(404, "NotFound", "not found")])
async def test_an_agent_whose_log_cannot_be_read_is_ended_at_once_and_its_report_says_why(
    scene: Scene, error: ApiError
) -> None:
    close = await overdue(scene)
    scene.cluster.fail("LOG", "", error)
    assert await scene.actor.act([close]) == 0
    assert (scene.attempt().reason, scene.attempt().log) == ("DeadlineExceeded", f"(no log: {error.message})")
    assert "there is no log of it" in (scene.attempt().message or "")
    assert scene.asked("LOG") == [f"{JOB_NAME}-x"], "asked for once"
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects


async def test_an_agent_that_ends_while_its_log_is_read_is_collected_with_its_result(scene: Scene) -> None:
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
    assert await scene.actor.act([Collect(finished, done, scene.report(), "pool-1")]) == 0
    assert (scene.attempt().outcome, scene.attempt().log) == ("succeeded", None)


@pytest.mark.parametrize("uid", ["", "uid-of-another"], ids=["gone", "another of that name"])
async def test_deleting_what_is_gone_or_replaced_is_done(scene: Scene, uid: str) -> None:
    job = await scene.started()
    if not uid:
        del scene.cluster.objects[f"{JOBS}/{JOB_NAME}"]
    assert await scene.actor.act([Drop("Job", "ml", job.name, uid or job.uid, "ResultWritten", "done")]) == 0
    assert (f"{JOBS}/{JOB_NAME}" in scene.cluster.objects) == bool(uid)


async def test_a_status_is_never_written_to_another_object_of_the_same_name(scene: Scene) -> None:
    await scene.started()
    other = replace(scene.report(), uid="uid-of-before")
    assert await scene.actor.act([MarkStale(other, "NodeGone", "It is gone.")]) == 1
    assert scene.report().status is None


async def test_a_status_that_another_leader_has_written_meanwhile_is_not_overwritten(scene: Scene) -> None:
    await scene.started()
    as_read = scene.report()
    assert await scene.actor.act([MarkStale(as_read, "DriverChange", "Another driver.")]) == 0
    assert await scene.actor.act([MarkStale(as_read, "NodeGone", "A late request.")]) == 1, "it is tried again later"
    status = scene.report().status
    assert status is not None
    assert status.state == "Stale"


async def test_a_report_of_a_vanished_node_is_marked(scene: Scene) -> None:
    await scene.started()
    assert await scene.actor.act([MarkStale(scene.report(), "NodeGone", "It is gone.")]) == 0
    status = scene.report().status
    assert status is not None
    assert status.state == "NodeGone"
    assert scene.cache.all("reports")[scene.report().uid]["status"]["state"] == "NodeGone"


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
    await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")])
    guard = next(body["metadata"] for where, body in scene.cluster.patches if where == path)
    assert guard == {"uid": stored["metadata"]["uid"], "resourceVersion": stored["metadata"]["resourceVersion"]}


async def test_a_detail_of_a_report_that_is_gone_is_waited_for(scene: Scene) -> None:
    job, pod = await scene.ended()
    path = f"{DETAILS}/{REPORT_NAME}-detail"
    older = ingest.detail(replace(scene.report(), uid="uid-of-before"), b"theirs")
    scene.cluster._store(path, older)
    assert await scene.actor.act([Collect(job, pod, scene.report(), "pool-1")]) == 1
    assert scene.cluster.objects[path]["binaryData"] == older["binaryData"]


async def test_a_profiles_status_is_written_whole_to_that_very_profile(scene: Scene) -> None:
    stored: dict[str, Any] = {"metadata": {"name": "nightly", "namespace": "ml", "uid": OWNER.uid}, "spec": {}}
    await scene.cluster.create(paths.profiles("ml"), stored)
    await scene.actor.write_profile_status(OWNER, {"phase": "Running"})
    await scene.actor.write_profile_status(OWNER, {"progress": "1/2"})
    assert scene.cluster.objects[f"{paths.profiles('ml')}/nightly"]["status"] == {"progress": "1/2"}
    with pytest.raises(ApiError, match="test of the patch fails"):
        await scene.actor.write_profile_status(replace(OWNER, uid="uid-of-before"), {"phase": "Complete"})
