"""Raw Kubernetes objects become values; a damaged one becomes a problem or nothing, and never an error."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts import names
from precision_operator.core.observe.claims import claim_keys, claimed_gpus
from precision_operator.core.observe.device_class import device_class
from precision_operator.core.observe.observed import Occupancy, Termination
from precision_operator.core.observe.views import job_view, occupancy, pod_view, profile_view, report_view
from precision_operator.shell.observing.cache import TRIM
from tests.support.golden import beside
from tests.support.report_objects import profile_object, report_object, report_status

TABLES = beside(__file__)

MARKS = {names.LABEL_PROFILE_UID: "p", names.LABEL_NODE_UID: "u", names.LABEL_RUN: "r1", names.LABEL_ATTEMPT: "2"}
NOTES = {names.ANNOTATION_PROFILE: "nightly", names.ANNOTATION_NODE: "n1", names.ANNOTATION_REQUEST_HASH: "ab"}
MOMENT = "2026-11-21T09:30:00Z"


def job(*conditions: dict[str, Any], **meta: Any) -> dict[str, Any]:
    told = {"name": "pp-1", "namespace": "ml", "uid": "uid-job", "labels": MARKS, "annotations": NOTES}
    return {"metadata": told | {"creationTimestamp": MOMENT} | meta, "status": {"conditions": list(conditions)}}


def pod(state: dict[str, Any] | None = None, *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    labels = MARKS | {"batch.kubernetes.io/job-name": "pp-1", "batch.kubernetes.io/controller-uid": "uid-job"}
    statuses = [] if state is None else [{"name": "sidecar"}, {"name": "agent", "state": state}]
    return {
        "metadata": {"name": "pp-1-x", "namespace": "ml", "labels": labels, "annotations": NOTES},
        "spec": {},
        "status": {"phase": "Pending", "containerStatuses": statuses, "conditions": list(conditions)} | status,
    }


def test_a_pod_belongs_to_the_job_that_made_it_and_to_the_node_where_it_is_bound() -> None:
    forged = pod()
    forged["metadata"]["ownerReferences"] = [
        {"kind": "Queue", "uid": "uid-queue"},
        {"kind": "Job", "uid": "uid-forger", "controller": True},
    ]
    for raw, job_uid in ((forged, "uid-forger"), (pod(), "uid-job")):
        view = pod_view(TRIM["pods"](raw))
        assert view.job_uid == job_uid
    view = pod_view(pod())
    assert (view.job, view.job_uid, view.node_name, view.live) == ("pp-1", "uid-job", "", True)
    view = pod_view(pod() | {"spec": {"nodeName": "n2"}})
    assert view.node_name == "n2"
    raw = pod()
    raw["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "theirs"}
    assert pod_view(raw) is None


def test_a_job_says_whose_attempt_it_is_and_a_pod_why_it_waits() -> None:
    view = job_view(job())
    assert (view.profile_uid, view.node_uid, view.node_name, view.run, view.attempt) == ("p", "u", "n1", "r1", 2)
    assert (view.live, view.created) == (True, datetime(2026, 11, 21, 9, 30, tzinfo=UTC))
    unbound = pod_view(pod(None, {"type": "PodScheduled", "status": "False", "message": "no room"}))
    pulling = pod_view(pod({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}))
    ended = pod_view(pod({"terminated": {"exitCode": 3, "reason": "Error", "message": "{}"}}, phase="Failed"))
    evicted = pod_view(pod(None, {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}))
    assert unbound.unschedulable == "no room"
    assert (pulling.waiting_reason, pulling.waiting_message) == ("ImagePullBackOff", "not found")
    assert (ended.termination, ended.live) == (Termination(3, "Error", "{}"), False)
    assert evicted.disruption == "EvictionByEvictionAPI"


@pytest.mark.parametrize("number", ["", "0", "-1", "1" * 10, "two"])
def test_a_job_with_an_attempt_that_no_report_can_hold_is_not_ours(number: str) -> None:
    assert job_view(job(labels=MARKS | {names.LABEL_ATTEMPT: number})) is None


@pytest.mark.parametrize("basis", [{str(part): "x" for part in range(10)}, {"spec": "x" * 254}, {"x" * 254: "y"}])
def test_a_basis_that_no_report_can_hold_counts_as_none(basis: dict[str, str]) -> None:
    """Else its attempt could never be written, and its Job would stay."""
    assert job_view(job(annotations=NOTES | {names.ANNOTATION_BASIS: json.dumps(basis)})).basis == {}
    most = {str(part): "x" for part in range(9)}  # of a rerun for its age, while its verdict wants another run
    assert job_view(job(annotations=NOTES | {names.ANNOTATION_BASIS: json.dumps(most)})).basis == most


@pytest.mark.parametrize(("conditions", "finished", "reason"), TABLES["ends"].values(), ids=TABLES["ends"])
def test_a_job_is_over_when_its_condition_is_true(conditions: Any, finished: Any, reason: str) -> None:
    view = job_view(job(*conditions))
    assert (view.finished, view.failure_reason) == (finished, reason)


@pytest.mark.parametrize("label", [names.LABEL_PROFILE_UID, names.LABEL_NODE_UID, names.LABEL_ATTEMPT])
def test_a_job_that_does_not_say_whose_it_is_is_none_of_ours(label: str) -> None:
    assert job_view(job(labels={k: v for k, v in MARKS.items() if k != label})) is None


WITH_GPUS = [{"name": "agent", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
MADE_UP = "nvidia.com/mig-none"
"""No agent asks for such, and a kubelet whose node has none admits the pod."""
MADE = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "c"}]}


@pytest.mark.parametrize(
    ("spec", "status", "holds"),
    [
        ({"nodeName": "n2", "containers": WITH_GPUS}, {}, True),
        ({"nodeName": "n2", "resourceClaims": [{"name": "gpus"}]}, MADE, True),
        ({"nodeName": "n2", "resourceClaims": [{"name": "gpus"}]}, {}, False),
        ({"nodeName": "n2", "containers": [{"name": "agent"}]}, {}, False),
        ({"containers": WITH_GPUS}, {}, False),
        ({"nodeName": "n2", "containers": [{"name": "agent", "resources": {"limits": {MADE_UP: "1"}}}]}, {}, False),
    ],
)
def test_a_pod_holds_gpus_that_is_bound_and_asks_for_them_or_has_its_claim(spec: Any, status: Any, holds: bool) -> None:
    """As the cache keeps it, too."""
    raw = {**pod(), "spec": spec, "status": status}
    assert [pod_view(each).holds_gpus for each in (raw, TRIM["pods"](raw))] == [holds, holds]


def test_a_spec_is_read_with_its_defaults_or_names_the_field_that_cannot_be() -> None:
    view = profile_view(profile_object(generation=3, creationTimestamp=MOMENT))
    assert (view.key, view.generation, view.problem) == ("ml/nightly", 3, "")
    assert view.spec.rollout.max_concurrent == 1
    view = profile_view(
        profile_object() | {"spec": {"workload": {"preset": "llama3-8b"}, "rollout": {"maxConcurent": 2}}}
    )
    assert view.spec is None
    assert view.problem.startswith("spec.rollout.maxConcurent: ")
    many = profile_view(profile_object() | {"spec": {"suspend": "maybe", "x": 1}})
    assert many.problem.endswith("(and 2 more)")


def test_a_report_belongs_to_its_owner_and_counts_as_not_measured_if_unreadable() -> None:
    view = report_view(
        report_object(ownerReferences=[{"kind": "Other", "uid": "o"}, {"kind": names.PROFILE_KIND, "uid": "p"}])
    )
    assert (view.profile_uid, view.node_name, view.status is not None) == ("p", "gb200-0001", True)
    for broken in ({"results": [{"recipe": "fp7"}]}, {"attempt": {"number": 0}}, "text", None):
        view = report_view(report_object() | {"status": broken})
        assert view.status is None


def holding(name: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": name}, "spec": spec, "status": {"phase": phase}}


def asking(amount: str, resource: str = "nvidia.com/gpu", where: str = "requests") -> dict[str, Any]:
    return {"resources": {where: {"cpu": "4", resource: amount}}}


HOLDERS: dict[str, tuple[list[dict[str, Any]], Occupancy]] = {
    "nobody": ([], Occupancy(None)),
    "pods without GPUs": ([holding("dns", containers=[{"resources": {"requests": {"cpu": "1"}}}])], Occupancy(None)),
    "a pod with GPUs": ([holding("a", containers=[asking("4")])], Occupancy("team/a", 4)),
    "a pod that is over": ([holding("a", "Succeeded", containers=[asking("4")])], Occupancy(None)),
    "a pod that is about to start": ([holding("a", "Pending", containers=[asking("4")])], Occupancy("team/a", 4)),
    "two pods": (
        [holding("b", containers=[asking("2")]), holding("a", containers=[asking("1"), asking("1")])],
        Occupancy("team/a", 4),
    ),
    "limits alone": ([holding("a", containers=[asking("4", where="limits")])], Occupancy("team/a", 4)),
    "an init container": ([holding("a", initContainers=[asking("2")])], Occupancy("team/a", 2)),
    "an init container before one that gets its GPUs": (
        [holding("a", containers=[asking("8")], initContainers=[asking("8"), asking("2")])],
        Occupancy("team/a", 8),
    ),
    "a MIG slice": ([holding("a", containers=[asking("1", "nvidia.com/mig-1g.10gb")])], Occupancy("team/a", 1)),
    "a shared GPU": ([holding("a", containers=[asking("1", "nvidia.com/gpu.shared")])], Occupancy("team/a", 1)),
    "a resource claim that was never made": ([holding("a", resourceClaims=[{"name": "gpu"}])], Occupancy(None)),
    "none asked for": ([holding("a", containers=[asking("0")])], Occupancy(None)),
}


def device(name: str, driver: str = "gpu.nvidia.com", pool: str = "n1", **more: Any) -> dict[str, Any]:
    return {"request": "gpus", "driver": driver, "pool": pool, "device": name} | more


def claim(*devices: dict[str, Any]) -> dict[str, Any]:
    """A ResourceClaim that has got these devices."""
    return {"status": {"allocation": {"devices": {"results": list(devices)}}}}


def claiming(name: str, *claims: str, **status: Any) -> dict[str, Any]:
    """A pod with claims that were made from templates."""
    made = [{"name": f"c{number}", "resourceClaimName": each} for number, each in enumerate(claims)]
    pod = holding(name, resourceClaims=[{"name": f"c{number}"} for number in range(len(claims))])
    return pod | {"status": {"phase": "Running", "resourceClaimStatuses": made} | status}


MAPPED = {"resourceClaimName": "m", "requestMappings": [{"containerName": "a", "resourceName": "nvidia.com/gpu"}]}
CLAIMS = {
    "two": claim(device("gpu-0"), device("gpu-1")),
    "same": claim(device("gpu-1")),
    "cut": claim(device("gpu-0-mig-1g10gb-19-0"), device("gpu-0-mig-1g10gb-19-1")),
    "nic": claim(device("nic-0", "dra.net")),
    "imex": claim(device("channel-0", "compute-domain.nvidia.com")),
    "monitor": claim(device("gpu-0", adminAccess=True)),
    "pending": {"status": {}},
    "m": claim(*(device(f"gpu-{number}") for number in range(4))),
}
CLAIMERS: dict[str, tuple[list[dict[str, Any]], Occupancy]] = {
    "two GPUs": ([claiming("a", "two")], Occupancy("team/a", 2)),
    "one GPU that two claims name": ([claiming("a", "two"), claiming("b", "same")], Occupancy("team/a", 2)),
    "two MIG slices of one GPU": ([claiming("a", "cut")], Occupancy("team/a", 1)),
    "a NIC": ([claiming("a", "nic")], Occupancy(None)),
    "an NVLink channel": ([claiming("a", "imex")], Occupancy(None)),
    "a monitor with admin access": ([claiming("a", "monitor")], Occupancy(None)),
    "a claim without an allocation": ([claiming("a", "pending")], Occupancy(None)),
    "a NIC beside a GPU": ([claiming("a", "nic", "same")], Occupancy("team/a", 1)),
    "a claim that nobody may read": ([claiming("a", "secret")], Occupancy("team/a", 1)),
    "a request that is a claim": (
        [holding("a", containers=[asking("4")]) | {"status": {"extendedResourceClaimStatus": MAPPED}}],
        Occupancy("team/a", 4),
    ),
    "a request beside a claim of its own": (
        [holding("a", containers=[asking("4")]), claiming("b", "two")],
        Occupancy("team/a", 6),
    ),
    "a claim of a pod that is over": ([claiming("a", "two", phase="Succeeded")], Occupancy(None)),
}


@pytest.mark.parametrize(("pods", "found"), CLAIMERS.values(), ids=CLAIMERS)
def test_gpus_of_claims_are_counted_each_once(pods: list[Any], found: Occupancy) -> None:
    read = {key: claimed_gpus(CLAIMS[key[2]]) for pod in pods for key in claim_keys(pod) if key[2] in CLAIMS}
    seen = occupancy(pods, read)
    assert (seen.holder, seen.gpus) == (found.holder, found.gpus)


@pytest.mark.parametrize(("pods", "found"), HOLDERS.values(), ids=HOLDERS)
def test_whoever_holds_gpus_in_any_form_makes_a_node_busy(pods: list[Any], found: Occupancy) -> None:
    seen = occupancy(pods)
    assert (seen.holder, seen.gpus) == (found.holder, found.gpus)


def test_a_pod_holds_what_its_node_offers_and_a_claim_gpus_of_its_own() -> None:
    """A kubelet leaves such requests out before it admits a pod, which so would cost neither a GPU nor a quota."""
    pods = [holding(kind, containers=[asking("1", kind)]) for kind in ("nvidia.com/gpu", "nvidia.com/mig-made-up")]
    assert occupancy(pods, offered={"cpu": "8", "nvidia.com/gpu": "0"}).gpus == 1
    assert occupancy(pods[1:], offered={"nvidia.com/gpu": "4"}).holder is None
    raw = claim(device("gpu-0"))
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    raw["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    assert [len(claimed_gpus(raw, node)) for node in ("n1", "n2", None)] == [1, 0, 1]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "status", "phase", "state", "exitCode", "nvidia.com/gpu"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(status=st.dictionaries(st.sampled_from(["conditions", "phase", "containerStatuses"]), JUNK), spec=JUNK)
def test_no_status_or_spec_makes_reading_fail(status: dict[str, Any], spec: Any) -> None:
    assert job_view(job() | {"status": status}) is not None
    assert pod_view(pod() | {"status": status, "spec": spec}) is not None
    assert report_view(report_object() | {"status": status}) is not None
    assert profile_view(profile_object() | {"spec": spec, "status": status}).problem
    assert occupancy([pod() | {"status": status, "spec": spec}]).gpus >= 0
    assert claimed_gpus({"status": status}) == frozenset()
    assert device_class({"spec": spec}).exists


def test_reports_with_the_same_fields_remember_them_together_and_a_copy_remembers_its_own() -> None:
    first, second = (report_view(report_object(node, status=report_status(), node_uid=node)) for node in ("n1", "n2"))
    row, other = first.status.results[0], second.status.results[0]
    assert row.model_fields_set is other.model_fields_set
    assert "gpu_spread" not in row.model_fields_set
    assert "gpu_spread" in row.model_copy(update={"gpu_spread": "0.1"}).model_fields_set
    assert "gpu_spread" not in other.model_fields_set
