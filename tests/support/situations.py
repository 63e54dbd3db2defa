"""For every reason that a node can have, a situation that it is the reason of, with the facts that its sentence names.

The node is always n1, the profile ml/nightly. What an agent left behind is read as the operator reads it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from precision_api import names
from precision_api.profile import Condition
from precision_api.report import Quarantine, ReportRun, ReportStatus
from precision_api.result import MeasurementResult
from precision_api.wire import LOG_MAX_CHARACTERS, encode, read_message
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.device_class import DeviceClass
from precision_operator.core.observe.fleet_limits import FleetLimits
from precision_operator.core.observe.gpu_slices import SliceView, slice_view
from precision_operator.core.observe.observed import JobView, Observed, Occupancy, PodView, Stage, Termination, Yield
from precision_operator.core.observe.pod_requests import Requests
from precision_operator.core.observe.stop import Stop
from precision_operator.core.observe.waiting_pods import WaitingPod
from precision_operator.core.results import ingest
from precision_operator.core.rollout.actions import Close, Collect
from precision_operator.core.rollout.plan import plan
from precision_operator.core.rollout.refusal import Answer, mark_of, noted
from tests.support.node_objects import gpu_device, resource_slice, slice_object
from tests.support.report_objects import recipe_row, report_status
from tests.support.result_objects import recipe_result, result
from tests.support.world import MINUTE, NOW, job, nodes, observed, pod, profile, report, tried

Told = Literal["stand", "attempt", "due", "detail", "slow"]
LATER = 30 * MINUTE
NVLINK = "nvidia.com/gpu.clique"
H100 = "NVIDIA-H100-80GB-HBM3"


@dataclass(frozen=True)
class Situation:
    """A world in which `facts` fill the sentence; `told` says where: stand, last attempt, due, detail, or slow."""

    seen: Observed
    facts: Mapping[str, object]
    told: Told = "stand"


def node_with(labels: Mapping[str, str] | None = None, **changes: Any) -> Observed:
    """n1 with these labels beside the product's."""
    product = {"nvidia.com/gpu.product": H100}
    return observed([profile()], nodes("n1", labels=product | dict(labels or {}), **changes))


EIGHT_BY_CLAIM = resource_slice("NVIDIA H100 80GB HBM3", count=8)
AGENT = job()
TRAINER = WaitingPod("team/train-0", "uid-train-0", "uid-train", 1000, 8, NOW - MINUTE)
YIELD = Yield("uid-nightly", "n1", "uid-n1", AGENT.uid, TRAINER.key, TRAINER.uid, TRAINER.owner, 1000, NOW - MINUTE)
VFIO = {"name": "gpu-vfio-0", "attributes": {"type": {"string": "vfio"}}}


def of(*devices: dict[str, Any]) -> SliceView:
    """A slice of n1 with these devices."""
    view = slice_view(slice_object(devices=devices))
    assert view is not None
    return view


def by_claim(*slices: SliceView, **changes: Any) -> Observed:
    """n1 without a device plugin, and what its DRA driver publishes."""
    return observed([profile()], nodes("n1", labels={}, gpus=None), slices=slices, **changes)


def taint(key: str) -> dict[str, str]:
    return {"key": key, "value": "yes", "effect": "NoSchedule"}


def rolled(fleet: Mapping[str, Any] | None = None, *running: str, **rollout: Any) -> Observed:
    """A rollout with room for ten unless told otherwise, and agents on the nodes `running`."""
    live = tuple(job(name) for name in running)
    own = profile(rollout={"maxConcurrent": 10} | rollout)
    return observed([own], fleet or nodes("n1", "n2"), jobs=live, pods=tuple(pod(each) for each in live))


def in_a_fleet(seen: Observed, **limits: Any) -> Observed:
    """The same under the operator's own limits for all namespaces together."""
    return replace(seen, settings=replace(seen.settings, fleet_limits=FleetLimits.model_validate(limits)))


def ended(of: JobView, left: PodView | None, **rollout: Any) -> Observed:
    """What follows when the plan has ended an attempt, in a profile that doesn't retry."""
    own = profile(rollout={"retry": {"limit": 0}}, **rollout)
    pods = (left,) if left is not None else ()
    return after(observed([own], jobs=(of,), pods=pods))


def after(seen: Observed) -> Observed:
    """The world in which the attempt on n1 has been ended as the plan says, and its end is in the report."""
    action = next(action for action in plan(seen).actions if isinstance(action, Close | Collect))
    if isinstance(action, Close):
        problem: Any = ingest.NoResult(action.reason, action.message, action.outcome)
    else:
        problem = ingest.summary_of(action.job, action.pod, action.drained)
    status = ingest.failed_status(problem, action.job, action.report or report(), seen.now, action.keeping)
    return replace(seen, jobs=(), pods=(), reports=(report(status=status),))


def refused(said: str, shown: str, code: int = 0, reason: str = "") -> Situation:
    """The cluster has just refused n1's Job with these words; without a code its pod."""
    stage: Stage = "Job" if code else "pod"
    key = (profile().uid, "uid-n1")
    answer = noted({}, key, Answer(said, code, reason), stage, mark_of(profile(), None), 0, NOW)
    seen = observed([profile()], refusals={key: answer})
    return Situation(seen, {"stage": stage, "words": shown, "namespace": "ml"})


FAILED = job(finished="Failed", finished_at=NOW)
COMPLETE = job(finished="Complete", finished_at=NOW)
STUCK = job(created=NOW - LATER)
POD_STUCK: dict[str, Any] = {"phase": "Pending", "created": STUCK.created}


UNSCHEDULED = Situation(
    observed([profile()], jobs=(STUCK,), pods=(pod(STUCK, unschedulable="Insufficient memory", **POD_STUCK),)),
    {"seconds": 300, "text": "Insufficient memory"},
)
"""An agent whose time to be scheduled is over."""
NO_DEVICES = "0/3 nodes are available: 1 cannot allocate all claims"
UNCLAIMED = {
    "ClaimNotCreated": Situation(
        observed([profile()], jobs=(STUCK,), pods=(pod(STUCK, claims=True, **POD_STUCK),)),
        {"seconds": 300, "text": "no event says why"},
    ),
    "ClaimNotAllocated": Situation(
        observed(
            [profile()],
            jobs=(STUCK,),
            pods=(pod(STUCK, claims=True, claims_created=True, unschedulable=NO_DEVICES, **POD_STUCK),),
        ),
        {"seconds": 300, "text": NO_DEVICES, "node": "n1"},
    ),
    "ClaimNotPrepared": Situation(
        observed(
            [profile()],
            jobs=(STUCK,),
            pods=(
                pod(
                    STUCK,
                    claims=True,
                    claims_created=True,
                    scheduled_at=STUCK.created,
                    claim_problem="Failed to prepare dynamic resources: dra.sock: connection refused",
                    **POD_STUCK,
                ),
            ),
        ),
        {
            "seconds": 300,
            "text": "Failed to prepare dynamic resources: dra.sock: connection refused",
            "node": "n1",
        },
    ),
}
"""Agents whose time to get their resource claim is over."""
UNRESPONSIVE = Situation(
    observed(
        [profile()],
        nodes("n1", ready="Unknown"),
        jobs=(job(),),
        pods=(pod(job(), deleting_since=NOW - 2 * MINUTE),),
    ),
    {
        "node": "n1",
        "why": "condition Ready is Unknown (KubeletReady)",
        "what": f"its pod was to be gone at {format_time(NOW - 2 * MINUTE)} and is still there",
    },
)
"""An agent whose pod nobody ends, since its kubelet is gone."""


def left(message: str = "", exit_code: int = 1, reason: str = "Error", **changes: Any) -> Observed:
    """What an agent that ended so leaves: read, and written to the report."""
    of = FAILED if exit_code else COMPLETE
    remains = pod(of, "Failed" if exit_code else "Succeeded", message, exit_code)
    return ended(of, replace(remains, termination=Termination(exit_code, reason, message), **changes))


def left_on(fleet: Mapping[str, Any], **changes: Any) -> Observed:
    """What a disrupted agent leaves on a node of this fleet."""
    remains = pod(FAILED, "Failed", "", 143, **changes)
    return after(observed([profile()], fleet, jobs=(FAILED,), pods=(remains,)))


def without_room(requests: Requests) -> Observed:
    """n1 is idle, and its pods request that much of 96 CPUs and 256Gi."""
    offered = {"cpu": "96", "memory": "256Gi", "nvidia.com/gpu": "8"}
    return observed([profile()], nodes("n1", allocatable=offered), occupancy={"n1": Occupancy(None, requests=requests)})


def with_log(log: str | None) -> Observed:
    """A result of which the summary came through, and this of the agent's log."""
    long = [f"{number:01000x}" for number in map(random.Random("notes").getrandbits, [4000] * 16)]
    recipes = tuple(recipe_result(recipe, notes=tuple(long[n::2])) for n, recipe in enumerate(("bf16", "fp8_delayed")))
    published = encode(result(recipes=recipes))
    whole = "\n".join(published.lines)
    changed = {"cut": "\n".join(published.lines[:-1]), "foreign": whole.replace("A", "B")}
    found = ingest.finding(read_message(published.message), log and changed.get(log, log), "connection refused")
    status = ingest.read_status(found, COMPLETE, report(), "pool", NOW)
    return observed([profile()], reports=(report(status=status),))


def with_newer_log() -> Observed:
    """A result of which the summary came through, and whose full result has a field that this version does not know."""

    class NewerResult(MeasurementResult):
        surprise: int = 1

    published = encode(NewerResult.model_validate(result().model_dump()))
    found = ingest.finding(read_message(published.message), "\n".join(published.lines))
    return observed([profile()], reports=(report(status=ingest.read_status(found, COMPLETE, report(), "pool", NOW)),))


def without_detail() -> Observed:
    """A result that came through, and whose ConfigMap the cluster refused."""
    published = encode(result())
    found = ingest.finding(read_message(published.message), "\n".join(published.lines))
    kept = ingest.without_detail(found, "exceeded quota: details")
    return observed([profile()], reports=(report(status=ingest.read_status(kept, COMPLETE, report(), "pool", NOW)),))


def basis_of(seen: Observed) -> dict[str, str]:
    """What a run that begins now is begun for."""
    node_state = plan(seen).profiles[0].node_states[0]
    assert node_state.current is not None
    return dict(node_state.current.basis)


def measured_for(was: Mapping[str, str], seen: Observed, ago: timedelta = MINUTE) -> Observed:
    """n1 was measured, for a basis that differs from the present one in `was`."""
    status = tried(basis=basis_of(seen) | dict(was), ago=ago)
    marks = seen.reports[0].rerun if seen.reports else ""
    return replace(seen, reports=(replace(report(status=status), rerun=marks),))


def old_result() -> Observed:
    """A good result of two days ago, where one day is allowed."""
    seen = observed([profile(schedule={"maxAge": "1d"})])
    run = {"run": "r1", "requestHash": "ab", "backend": "replay", "provenance": "simulated", "durationSeconds": "9"}
    run |= {"finishedAt": format_time(NOW - timedelta(days=2)), "workloadHash": "cd"}
    status = tried(ago=timedelta(days=2)).model_copy(update={"run": ReportRun.model_validate(run)})
    return replace(seen, reports=(report(status=status),))


def beside_like(rate: int, *others: dict[str, Any], **changes: Any) -> Situation:
    """n1 gives `rate` tokens/s in BF16, three nodes like it 1,000; `changes` are of that row, `others` more rows."""
    rows = {"n1": [recipe_row("bf16", tokensPerSecond=str(rate), **changes), *others]}
    rows |= {name: [recipe_row("bf16", tokensPerSecond="1000")] for name in ("n2", "n3", "n4")}
    statuses = {name: ReportStatus.model_validate(report_status(found)) for name, found in rows.items()}
    reports = tuple(report(name, status=status) for name, status in statuses.items())
    facts = {"relative": f"{rate / 1000:.1%}", "limit": "95.0%", "count": 3 if changes else 4, "pool": H100}
    facts |= {"recipe": "bf16", "node": "n1", "namespace": "ml", "profile": "nightly"}
    facts |= {"gpus": "its GPUs were not compared with each other"}
    facts |= {"cause": changes.get("throttleReason"), "recipes": ", ".join(other["recipe"] for other in others)}
    return Situation(observed([profile()], nodes(*rows), reports=reports), facts, "slow")


def quarantined() -> Observed:
    held = Quarantine(since=format_time(NOW - LATER), reason="AgentCrashed", message="")
    seen = measured_for({"spec": "another"}, observed([profile()]))
    status = tried("failed", failures=1, basis={"spec": "another"}, reason="AgentCrashed")
    status = status.model_copy(update={"quarantine": held, "failed_runs": 3})
    return replace(seen, reports=(report(status=status),))


def failed_first(**rollout: Any) -> Observed:
    """n2 and n3 have failed for good; n1 comes after them."""
    status = tried("failed", failures=3, reason="AgentCrashed", message="It crashed.")
    reports = (report("n2", status=status), report("n3", status=status))
    return replace(rolled(nodes("n1", "n2", "n3"), **rollout), reports=reports)


def gone() -> Observed:
    fresh = {"type": names.FRESH, "status": "False", "reason": "NodeGone", "lastTransitionTime": format_time(NOW)}
    status = tried().model_copy(update={"conditions": (Condition.model_validate(fresh),)})
    return observed([profile()], nodes("n2"), reports=(report(status=status),))


TWO_RACKS = nodes("n1", "n2", labels={"nvidia.com/gpu.product": H100, NVLINK: "a.1"})
POOL = {"name": H100}
DUE = format_time(NOW)
DRIVER = {"nvidia.com/cuda.driver-version.full": "580.95.05"}

NODES: dict[str, Situation] = {
    "NotMatched": Situation(
        observed([profile(target={"nodeNames": ["n2"]})]), {"why": "spec.target.nodeNames does not name it"}
    ),
    "ExcludedTaint": Situation(
        observed([profile(target={"excludeTaints": [{"key": "reserved"}]})], nodes("n1", taints=[taint("reserved")])),
        {"taint": "reserved=yes:NoSchedule"},
    ),
    "MIGEnabled": Situation(
        node_with({"nvidia.com/mig.config": "all-1g.10gb"}), {"why": "label nvidia.com/mig.config=all-1g.10gb"}
    ),
    "GPUsSharedRenamed": Situation(
        node_with(allocatable={"nvidia.com/gpu.shared": "16"}), {"resource": "nvidia.com/gpu.shared: 16"}
    ),
    "GPUsShared": Situation(node_with({"nvidia.com/gpu.replicas": "4"}), {"why": "label nvidia.com/gpu.replicas=4"}),
    "GPUsOfferedTwice": Situation(observed([profile()], slices=(EIGHT_BY_CLAIM,)), {"allocatable": 8, "published": 8}),
    "GPUsPassedThrough": Situation(by_claim(of(VFIO)), {"gpus": 1}),
    "UnsupportedProduct": Situation(
        node_with({"nvidia.com/gpu.product": "Tesla-T4"}),
        {"name": "Tesla-T4", "supported": "GB200, GB300, H100, H200, B200, B300"},
    ),
    "DRAClaimsNotSupported": Situation(
        node_with(allocatable={"nvidia.com/gpu": "0"}, capacity={"nvidia.com/gpu": "8"}), {"why": "capacity is 8"}
    ),
    "UnknownProduct": Situation(observed([profile()], nodes("n1", labels={})), {"why": "capacity nvidia.com/gpu: 8"}),
    "NoGPU": Situation(observed([profile(target={"nodeNames": ["n1"]})], nodes("n1", labels={}, gpus=None)), {}),
    "UntoleratedTaint": Situation(
        node_with(taints=[taint("team")]),
        {"taint": "team=yes:NoSchedule", "toleration": "{key: team, operator: Equal, value: yes, effect: NoSchedule}"},
    ),
    "MIGReconfiguring": Situation(
        node_with({"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "pending"}),
        {"why": "label nvidia.com/mig.config.state=pending"},
    ),
    "NodeDeleting": Situation(
        node_with(deletionTimestamp="2026-11-21T08:00:00Z"), {"why": "it has a deletionTimestamp"}
    ),
    "NotReady": Situation(
        node_with(ready="Unknown"), {"why": "condition Ready is Unknown (KubeletReady)", "node": "n1"}
    ),
    "NotInService": Situation(
        node_with(taints=[taint("readiness.k8s.io/driver")]),
        {"taint": "readiness.k8s.io/driver=yes:NoSchedule", "node": "n1"},
    ),
    "Cordoned": Situation(node_with(unschedulable=True), {"node": "n1"}),
    "GPUsNotReady": Situation(
        by_claim(resource_slice("NVIDIA H100 80GB HBM3", count=4, slices=2)),
        {
            "why": "4 GPUs in ResourceSlices of gpu.nvidia.com",
            "lack": "pool n1 has 1 of 2 ResourceSlices",
            "node": "n1",
        },
    ),
    "GPUsTainted": Situation(
        by_claim(of(gpu_device(0, taints=[taint("gpu.nvidia.com/xid")]))),
        {"gpus": "gpu-0 (gpu.nvidia.com/xid=yes:NoSchedule)", "node": "n1"},
    ),
}
"""Which nodes: decided from the Node object alone."""

TURNS: dict[str, Situation] = {
    "DeviceClassShares": Situation(
        replace(by_claim(EIGHT_BY_CLAIM), device_class=DeviceClass(sharing="TimeSlicing")),
        {"name": "gpu.nvidia.com", "strategy": "TimeSlicing"},
    ),
    "DeviceClassMissing": Situation(
        replace(by_claim(EIGHT_BY_CLAIM), device_class=DeviceClass(exists=False)), {"name": "gpu.nvidia.com"}
    ),
    "KeptForPod": Situation(
        replace(by_claim(EIGHT_BY_CLAIM), yields=(YIELD,)),
        {"pod": "team/train-0", "priority": 1000, "since": format_time(NOW - MINUTE)},
    ),
    "Busy": Situation(observed([profile()], busy={"n1": "team/train-0"}), {"pod": "team/train-0", "gpus": 8}),
    "InsufficientCPU": Situation(
        without_room(Requests(cpu_millis=93_500)), {"wanted": "4", "requested": "93500m", "allocatable": "96"}
    ),
    "InsufficientMemory": Situation(
        without_room(Requests(memory_bytes=250 * 1024**3)),
        {"wanted": "32.0Gi", "requested": "250.0Gi", "allocatable": "256.0Gi"},
    ),
    "CheckingIdle": Situation(observed([profile()], occupancy={}), {}),
    "MeasuredByAnotherProfile": Situation(
        observed([profile(), profile("other")], jobs=(job(owner="other"),)), {"profile": "ml/other"}
    ),
    "MaxConcurrentReached": Situation(rolled(None, "n2", maxConcurrent=1), {"limit": 1}),
    "TooManyFailures": Situation(failed_first(maxFailures=1), {"failed": 2, "limit": 1}),
    "CanaryFailed": Situation(failed_first(canary=1), {"failed": 2, "canary": 1}),
    "CanaryFirst": Situation(rolled(None, "n2", canary=1), {"succeeded": 0, "canary": 1}),
    "ImagePullLimitReached": Situation(
        replace(
            rolled(nodes("n1", "n2", images=()), maxImagePulls=1),
            jobs=(job("n2"),),
            pods=(pod(job("n2"), "Pending", scheduled_at=NOW),),
        ),
        {"limit": 1},
    ),
    "PoolLimitReached": Situation(rolled(None, "n2", pools=[POOL | {"maxConcurrent": 1}]), {"limit": 1, "pool": H100}),
    "TopologyLimitReached": Situation(
        rolled(TWO_RACKS, "n2", perTopology=[{"key": NVLINK, "max": 1}]), {"limit": 1, "key": NVLINK, "group": "a.1"}
    ),
    "LimitOfAnotherProfile": Situation(
        observed(
            [profile(), profile("other", rollout={"pools": [POOL | {"maxConcurrent": 1}]})],
            nodes("n1", "n2"),
            jobs=(job("n2", owner="other"),),
        ),
        {
            "profile": "ml/other",
            "detail": f"the number of agents in pool {H100} has reached its limit in spec.rollout.pools (1)",
        },
    ),
    "FleetLimitReached": Situation(
        in_a_fleet(rolled(None, "n2"), maxConcurrent=1), {"where": "in the cluster", "limit": 1}
    ),
    "FleetPowerReached": Situation(
        in_a_fleet(rolled(None, "n2"), pools=[{"name": H100, "powerBudgetWatts": 8000}]),
        {
            "drawn": 5600,
            "watts": 5600,
            "where": f"in pool {H100}",
            "origin": "H100 SXM default, not yet measured",
            "budget": 8000,
        },
    ),
    "FleetPowerTooSmall": Situation(
        in_a_fleet(rolled(), powerBudgetWatts=5000),
        {
            "watts": 5600,
            "where": "in the cluster",
            "origin": "H100 SXM default, not yet measured",
            "budget": 5000,
        },
    ),
    "TopologyKeyMissing": Situation(rolled(perTopology=[{"key": "rack", "max": 1}]), {"key": "rack"}),
    "PowerBudgetReached": Situation(
        rolled(None, "n2", powerBudgetWatts=8000),
        {
            "drawn": 5600,
            "watts": 5600,
            "origin": "H100 SXM default, not yet measured",
            "name": "spec.rollout.powerBudgetWatts",
            "budget": 8000,
        },
    ),
    "PowerBudgetTooSmall": Situation(
        rolled(powerBudgetWatts=5000),
        {
            "watts": 5600,
            "origin": "H100 SXM default, not yet measured",
            "name": "spec.rollout.powerBudgetWatts",
            "budget": 5000,
        },
    ),
    "Ramping": Situation(rolled(None, "n2", rampSeconds=60), {"seconds": 60, "until": format_time(NOW + MINUTE)}),
    "NotDueYet": Situation(
        observed([profile(schedule={"cron": "0 12 * * *"})]), {"at": format_time(NOW + timedelta(hours=3))}
    ),
    "Quarantined": Situation(quarantined(), {"runs": "3 runs", "why": "AgentCrashed", "node": "n1"}),
    "Retrying": Situation(
        observed(
            [profile()], reports=(report(status=tried("failed", failures=1, message="It crashed.", ago=0 * MINUTE)),)
        ),
        {"attempt": 1, "why": "It crashed.", "retry": 1, "limit": 2, "until": format_time(NOW + MINUTE)},
    ),
    "BackingOff": Situation(
        observed([profile()], reports=(report(status=tried("disrupted", reason="Disrupted", ago=0 * MINUTE)),)),
        {"why": "Disrupted", "until": format_time(NOW + timedelta(seconds=30))},
    ),
    "StoppedByAdmin": Situation(
        observed([profile()], stop=Stop("Hold", "Rack 12 is too hot.", "ConfigMap a/b")),
        {"does": "holds all agents", "words": "Rack 12 is too hot.", "origin": "ConfigMap a/b"},
    ),
    "PlanFailed": Situation(
        observed([profile()], reports=(report(status=tried("disrupted", finishedAt="2026-13-45T00:00:00Z")),)),
        {"why": "ValueError: month must be in 1..12"},
    ),
    "Suspended": Situation(observed([profile(suspend=True)]), {}),
    "ProfileNotAccepted": Situation(
        observed([profile()], priority_class_exists=False),
        {
            "why": "PriorityClass precision-profiler-agent does not exist; without it agents could preempt "
            "other pods. Upgrade or reinstall the chart, or create it."
        },
    ),
    "WaitsInQueue": Situation(
        observed([profile(agent={"queueName": "gpus"})], jobs=(job(suspended=True),)), {"queue": "gpus"}
    ),
    "AgentStarting": Situation(
        observed([profile()], jobs=(job(),), pods=(pod(job(), "Pending", waiting_reason="ContainerCreating"),)),
        {"attempt": 1, "why": "ContainerCreating"},
    ),
    "PullingImage": Situation(
        observed(
            [profile()], nodes("n1", images=()), jobs=(job(),), pods=(pod(job(), "Pending", scheduled_at=NOW - MINUTE),)
        ),
        {
            "attempt": 1,
            "node": "n1",
            "since": format_time(NOW - MINUTE),
            "until": format_time(NOW + timedelta(seconds=1740)),
        },
    ),
    "ImagePullFailing": Situation(
        observed(
            [profile()],
            jobs=(job(),),
            pods=(pod(job(), "Pending", scheduled_at=NOW, waiting_reason="ErrImagePull", waiting_message="not found"),),
        ),
        {"attempt": 1, "node": "n1", "why": "not found", "until": format_time(NOW + timedelta(seconds=300))},
    ),
    "AgentUnreachable": Situation(
        observed(
            [profile()],
            nodes("n1", ready="Unknown"),
            jobs=(job(),),
            pods=(pod(job(), deleting_since=NOW - timedelta(seconds=9)),),
        ),
        {
            "attempt": 1,
            "node": "n1",
            "why": "condition Ready is Unknown (KubeletReady)",
            "until": f"at {format_time(NOW + timedelta(seconds=51))}",
        },
    ),
    "AgentUnschedulable": Situation(
        observed([profile()], jobs=(job(),), pods=(pod(job(), "Pending", unschedulable="0/9 nodes are available"),)),
        {"attempt": 1, "why": "0/9 nodes are available"},
    ),
    "AgentRunning": Situation(
        observed([profile()], jobs=(job(),), pods=(pod(job()),)), {"attempt": 1, "job": job().name}
    ),
    "Collecting": Situation(
        observed([profile()], jobs=(COMPLETE,), pods=(pod(COMPLETE, "Succeeded", "{}"),)), {"attempt": 1}
    ),
    "Measured": Situation(
        observed([profile()], reports=(report(status=tried()),)), {"attempt": 1, "report": report().name}
    ),
}
"""Whose turn: decided from everything that runs and has run."""

POD_DENIED = 'Error creating: pods "pp-0123456789abcdef-x7kq2" is forbidden: violates PodSecurity "restricted:latest"'
REFUSED: dict[str, Situation] = {
    reason: refused(*said)
    for reason, said in {
        "QuotaExceeded": (
            'jobs.batch "pp-01" is forbidden: exceeded quota: gpus, requested: count/jobs.batch=1, '
            "used: count/jobs.batch=8, limited: count/jobs.batch=8",
            "exceeded quota: gpus: 8 of 8 count/jobs.batch used, 1 more requested",
            403,
            "Forbidden",
        ),
        "InvalidJob": (
            'Job.batch "pp-01" is invalid: spec.template.spec.tolerations[2].key: Invalid value: "not a key!"',
            'Job.batch is invalid: spec.template.spec.tolerations[2].key: Invalid value: "not a key!"',
            422,
            "Invalid",
        ),
        "DeniedByPolicy": (POD_DENIED, 'pods is forbidden: violates PodSecurity "restricted:latest"'),
        "WebhookUnavailable": (
            'Internal error occurred: failed calling webhook "w.example": context deadline exceeded',
            'Internal error occurred: failed calling webhook "w.example": context deadline exceeded',
            500,
            "InternalError",
        ),
        "NamespaceTerminating": (
            'jobs.batch "pp-01" is forbidden: unable to create new content in namespace ml because it is being '
            "terminated",
            "jobs.batch is forbidden: unable to create new content in namespace ml because it is being terminated",
            403,
            "Forbidden",
        ),
        "PermissionMissing": (
            *['jobs.batch is forbidden: User "o" cannot create resource "jobs" in API group "batch"'] * 2,
            403,
            "Forbidden",
        ),
        "CreationRefused": ("the request is too large", "the request is too large", 413, "RequestEntityTooLarge"),
        "CreationFailed": ("too many requests", "too many requests", 429, "TooManyRequests"),
        "NameTaken": ("another Job of that name", "another Job of that name", 409, "NameTaken"),
    }.items()
}
"""What the cluster refused to create."""

WITHOUT_DETAIL: dict[str, Situation] = {
    "ResultTruncated": Situation(with_log("cut"), {"detail": "1 of 2 lines are missing, first 2"}, "detail"),
    "ResultDigestMismatch": Situation(with_log("foreign"), {}, "detail"),
    "ResultTooLarge": Situation(
        with_log(" " * (LOG_MAX_CHARACTERS + 1)),
        {"detail": f"the log has {LOG_MAX_CHARACTERS + 1} characters"},
        "detail",
    ),
    "DetailUnreadable": Situation(with_log(""), {"detail": "the log holds no line of the result"}, "detail"),
    "DetailNewer": Situation(
        with_newer_log(),
        {
            "detail": "the full result of agent '0.1.0' has what is not known here: surprise: Extra inputs are not "
            "permitted"
        },
        "detail",
    ),
    "DetailNotWritten": Situation(without_detail(), {"detail": "exceeded quota: details"}, "detail"),
    "LogUnavailable": Situation(with_log(None), {"detail": "connection refused"}, "detail"),
}
"""Measured, but the full result is lost."""

ENDS: dict[str, Situation] = {
    "AgentCrashed": Situation(left(exit_code=139), {"exit_code": 139, "node": "n1"}),
    "AgentOutOfMemory": Situation(left(exit_code=137, reason="OOMKilled"), {"limit": "limit"}),
    "AgentRefused": Situation(
        left(exit_code=14),
        {
            "name": "GPUBusy",
            "exit_code": 14,
            "detail": "A GPU was in use by somebody else before the measurement began.",
            "node": "n1",
        },
    ),
    "BackendUnavailable": Situation(
        left(exit_code=15),
        {"detail": "The agent image lacks PyTorch or Transformer Engine, or they can't be loaded."},
    ),
    "ImagePullFailed": Situation(
        ended(STUCK, pod(STUCK, waiting_reason="ErrImagePull", waiting_message="no such image", **POD_STUCK)),
        {"image": "of the agent", "text": "no such image"},
    ),
    **{code: Situation(after(found.seen), found.facts, "attempt") for code, found in UNCLAIMED.items()},
    "PendingTooLong": Situation(after(UNSCHEDULED.seen), UNSCHEDULED.facts, "attempt"),
    "StartTooLong": Situation(
        ended(STUCK, pod(STUCK, waiting_reason="ContainerCreating", **POD_STUCK)),
        {"seconds": 1800, "text": "ContainerCreating"},
    ),
    "PodNotCreated": Situation(ended(STUCK, None), {"seconds": 300}),
    "DeadlineExceeded": Situation(
        ended(replace(FAILED, failure_reason="DeadlineExceeded", created=NOW - LATER), None), {"seconds": 1800}
    ),
    "Failed": Situation(
        observed([profile()], reports=(report(status=tried("failed", failures=3, reason="OfAnotherVersion")),)), {}
    ),
    "ResultMissing": Situation(left(exit_code=0), {"node": "n1"}),
    "ResultDamaged": Situation(left('{"v": "PPS1"}', 0), {"detail": "the summary is not valid: run: Field required"}),
    "ResultNewer": Situation(
        left(json.dumps({**json.loads(encode(result()).message), "surprise": 1}), 0),
        {"detail": "the summary of agent '0.1.0' has what is not known here: surprise: Extra inputs are not permitted"},
    ),
    "ResultForeign": Situation(
        left('{"v": "PPS9"}', 0), {"detail": "the termination message is not of this agent, or of a newer version"}
    ),
    "QueueTimeout": Situation(
        ended(
            replace(STUCK, suspended=True),
            None,
            agent={"queueName": "gpus"},
            idle={"queueTimeoutSeconds": 600},
        ),
        {"seconds": 600},
        "attempt",
    ),
    "AgentOutOfStorage": Situation(
        ended(FAILED, replace(pod(FAILED, "Failed", "", 137), failure="Evicted", failure_message="Usage is 9Gi. ")),
        {"text": "Usage is 9Gi"},
    ),
    "PodRejected": Situation(
        ended(FAILED, pod(FAILED, "Failed", failure="UnexpectedAdmissionError", failure_message="no devices. ")),
        {"node": "n1", "text": "no devices"},
        "attempt",
    ),
    "ContainerLost": Situation(
        left(exit_code=255, reason="Unknown"), {"node": "n1", "text": "exit code 255, reason Unknown"}, "attempt"
    ),
    "PodLost": Situation(ended(FAILED, None), {}, "attempt"),
    "Disrupted": Situation(left(disruption="a drain"), {"text": "a drain"}, "attempt"),
    "Preempted": Situation(
        left(disruption="for team/a", disruption_reason="PreemptionByScheduler"), {"text": "for team/a"}, "attempt"
    ),
    "Yielded": Situation(
        after(
            by_claim(
                EIGHT_BY_CLAIM,
                jobs=(AGENT,),
                pods=(pod(AGENT, claims=True, claims_created=True, scheduled_at=NOW, started_at=NOW),),
                waiting_pods=(TRAINER,),
            )
        ),
        {"pod": "team/train-0", "priority": 1000},
        "attempt",
    ),
    "Evicted": Situation(
        left(disruption="disk is full", disruption_reason="TerminationByKubelet"),
        {"by": "its kubelet", "text": "disk is full"},
        "attempt",
    ),
    "Drained": Situation(
        left_on(nodes("n1", unschedulable=True), disruption="kubectl drain", disruption_reason="EvictionByEvictionAPI"),
        {"text": "kubectl drain"},
        "attempt",
    ),
    "NodeUnresponsive": Situation(after(UNRESPONSIVE.seen), UNRESPONSIVE.facts, "attempt"),
    "NodeLost": Situation(observed([profile()], nodes("n2"), jobs=(job(),)), {"node": "n1"}),
    "NodeGone": Situation(gone(), {"node": "n1"}),
}
"""What came back. A disruption is told of the last attempt: the node itself is queued again."""

CHANGES: dict[str, Situation] = {
    "FirstRun": Situation(observed([profile()]), {}, "due"),
    "RerunNode": Situation(
        measured_for({"rerunNode": ""}, observed([profile()], reports=(report(rerun="2026-11-21T08:59:00.000001Z"),))),
        {},
        "due",
    ),
    "Rerun": Situation(
        measured_for({"rerun": ""}, observed([replace(profile(), rerun="2026-11-21T08:59:00.000001Z")])), {}, "due"
    ),
    "DriverChange": Situation(
        measured_for({"driver": "570.1"}, node_with(DRIVER)), {"before": "570.1", "after": "580.95.05"}, "due"
    ),
    "HardwareChange": Situation(
        measured_for({"hardware": "H100/7/81559"}, observed([profile()])),
        {"before": "H100/7/81559", "after": "H100/8/"},
        "due",
    ),
    "AgentChange": Situation(measured_for({"agent": "another"}, observed([profile()])), {}, "due"),
    "SpecChange": Situation(measured_for({"spec": "another"}, observed([profile()])), {}, "due"),
    "Scheduled": Situation(
        measured_for(
            {"schedule": "2026-11-20T09:00:00Z"},
            observed([profile(created=NOW - timedelta(days=2), schedule={"cron": "0 9 * * *"})]),
        ),
        {"tick": DUE},
        "due",
    ),
    "TooOld": Situation(old_result(), {"limit": "1d"}, "due"),
}
"""Why a node is measured (again)."""

SLOW: dict[str, Situation] = {
    "Slow": beside_like(800),
    "SlowThrottled": beside_like(800, throttledShare="0.2", throttleReason="power_brake"),
    "SlowFallback": beside_like(800, recipe_row("fp8_current", verdict="fallback")),
}
"""Measured, and well below its peers."""

SITUATIONS: Mapping[str, Situation] = NODES | TURNS | REFUSED | ENDS | WITHOUT_DETAIL | SLOW | CHANGES
