"""What an agent needs is created once, whatever the API server answers: taken names, refusals, no answer at all."""

from dataclasses import replace
from typing import Any

import pytest

from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts.actions import Start, Withdraw
from precision_operator.core.observe.views import job_view
from precision_operator.core.plan import plan
from precision_operator.core.reasons import Said
from precision_operator.shell.acting.act import ACTIONS_AT_ONCE, Actor
from precision_operator.shell.observing.cache import Cache
from tests.support.acting import INTERNAL, JOB_NAME, JOBS, OWNER, REPORT_NAME, REPORTS, START, Scene
from tests.support.fake_cluster import TIMEOUT
from tests.support.node_objects import resource_slice
from tests.support.world import at_once, nodes, observed, profile
from tests.support.world import pod as pod_of


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
    assert len([path for path in scene.cluster.objects if path.startswith((TEMPLATES, JOBS))]) == 2


@pytest.mark.parametrize("other", [{}, {"spec": {"spec": {}}}], ids=["the same", "something else"])
async def test_a_template_that_exists_is_taken_only_if_it_asks_the_same(scene: Scene, other: dict[str, Any]) -> None:
    action = start_by_claim()
    assert action.template is not None
    await scene.cluster.create(TEMPLATES, {**action.template, **other})
    assert await scene.actor.act([action]) == 0
    assert len(scene.held("jobs")) == (0 if other else 1)
    if other:
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


@pytest.mark.parametrize("meta", [{"labels": {}}, {"deletionTimestamp": "2026-11-21T09:00:00Z", "finalizers": ["a/b"]}])
async def test_a_job_of_that_name_that_is_another_attempt_or_being_deleted_is_not_taken_for_ours(
    scene: Scene, meta: dict[str, Any]
) -> None:
    await scene.cluster.create(JOBS, {**START.job, "metadata": START.job["metadata"] | meta})
    assert await scene.actor.act([START]) == 0
    assert scene.held("jobs") == []
    assert scene.refused()[:2] == ("NameTaken", "Job")
    assert scene.refused()[2].endswith(", with finalizers a/b" if "finalizers" in meta else "is still there")


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
    assert await scene.actor.act([replace(START, job={**START.job, "metadata": {}})]) == 1
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
    assert await scene.actor.act([Withdraw(job, START.mark, Said("DeniedByPolicy", words=""))]) == 0
    assert f"{JOBS}/{JOB_NAME}" not in scene.cluster.objects
    assert scene.report().status is None
    assert scene.refused() == ("DeniedByPolicy", "pod", 'pods is forbidden: violates PodSecurity "restricted:latest"')
