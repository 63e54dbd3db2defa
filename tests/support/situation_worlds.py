"""Worlds in which a node has a reason: the parts that situations are made of.

The node is always n1, the profile ml/nightly. What an agent left behind is read as the operator reads it.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import encode, read_message
from precision_api.facts import names
from precision_api.kinds.profile import Condition
from precision_api.kinds.report import AcceptanceRuns, Quarantine, ReportAcceptance, ReportRun, ReportStatus
from precision_operator.core.attempts.actions import Close, Collect
from precision_operator.core.attempts.refusal import Answer, mark_of, noted
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.gpu_slices import SliceView, slice_view
from precision_operator.core.observe.observed import JobView, Observed, Occupancy, PodView, Stage, Termination, Yield
from precision_operator.core.observe.pod_requests import Requests
from precision_operator.core.observe.waiting_pods import WaitingPod
from precision_operator.core.plan import plan
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult, summary_of
from precision_operator.core.results.log_tail import explained
from tests.support.node_objects import resource_slice, slice_object
from tests.support.report_objects import recipe_row, report_status
from tests.support.result_objects import recipe_result, result
from tests.support.world import MINUTE, NOW, job, nodes, observed, pod, profile, report, tried

Told = Literal["stand", "attempt", "due", "detail", "slow", "alone"]
LATER = 30 * MINUTE
NVLINK = "nvidia.com/gpu.clique"
H100 = "NVIDIA-H100-80GB-HBM3"


@dataclass(frozen=True)
class Situation:
    """A world in which `facts` fill the sentence; `told` says where: stand, attempt, due, detail, slow or alone."""

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


def agent(of: JobView, fleet: Mapping[str, Any] | None = None, **changes: Any) -> Observed:
    """An agent's Job with its pod; `changes` are fields of the pod."""
    return observed([profile()], fleet, jobs=(of,), pods=(pod(of, **changes),))


def in_a_fleet(seen: Observed, **limits: Any) -> Observed:
    """The same under the operator's own limits for all namespaces together."""
    return replace(seen, settings=replace(seen.settings, fleet_limits=FleetLimits.model_validate(limits)))


def ended(of: JobView, left: PodView | None, log: str | None = None, **rollout: Any) -> Observed:
    """What follows when the plan has ended an attempt, in a profile that doesn't retry; `log` is the end of its log."""
    own = profile(rollout={"retry": {"limit": 0}}, **rollout)
    pods = (left,) if left is not None else ()
    return after(observed([own], jobs=(of,), pods=pods), log)


def after(seen: Observed, log: str | None = None) -> Observed:
    """The world in which the attempt on n1 has been ended as the plan says, and its end is in the report."""
    action = next(action for action in plan(seen).actions if isinstance(action, Close | Collect))
    if isinstance(action, Close):
        left = NoResult(action.said, action.outcome)
        problem: Any = explained(left, action.job.node_name, seen.now - (action.since or seen.now), log)
    else:
        problem = summary_of(action.job, action.pod, action.drained)
    status = ingest.failed_status(problem, action.job, action.report or report(), seen.now, action.keeping, log)
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
    agent(STUCK, unschedulable="Insufficient memory", **POD_STUCK), {"seconds": 300, "text": "Insufficient memory"}
)
"""An agent whose time to be scheduled is over."""
NO_DEVICES = "0/3 nodes are available: 1 cannot allocate all claims"
UNPREPARED = "Failed to prepare dynamic resources: dra.sock: connection refused"
UNCLAIMED = {
    "ClaimNotCreated": Situation(agent(STUCK, claims=True, **POD_STUCK), {"seconds": 300, "text": "no event says why"}),
    "ClaimNotAllocated": Situation(
        agent(STUCK, claims=True, claims_created=True, unschedulable=NO_DEVICES, **POD_STUCK),
        {"seconds": 300, "text": NO_DEVICES, "node": "n1"},
    ),
    "ClaimNotPrepared": Situation(
        agent(
            STUCK, claims=True, claims_created=True, scheduled_at=STUCK.created, claim_problem=UNPREPARED, **POD_STUCK
        ),
        {"seconds": 300, "text": UNPREPARED, "node": "n1"},
    ),
}
"""Agents whose time to get their resource claim is over."""
UNRESPONSIVE = Situation(
    agent(job(), nodes("n1", ready="Unknown"), deleting_since=NOW - 2 * MINUTE),
    {
        "node": "n1",
        "why": "condition Ready is Unknown (KubeletReady)",
        "what": f"its pod was to be gone at {format_time(NOW - 2 * MINUTE)} and is still there",
    },
)
"""An agent whose pod nobody ends, since its kubelet is gone."""


def overdue(log: str) -> Observed:
    """An agent that ran a minute past its deadline of half an hour was ended; the end of its log."""
    of = job(created=NOW - 2 * LATER, deadline_seconds=1800)
    return ended(of, pod(of, started_at=NOW - LATER - MINUTE), log)


def left(message: str = "", exit_code: int = 1, reason: str = "Error", **changes: Any) -> Observed:
    """What an agent that ended so leaves: read, and written to the report."""
    of = FAILED if exit_code else COMPLETE
    remains = pod(of, "Failed" if exit_code else "Succeeded", message, exit_code)
    return ended(of, replace(remains, termination=Termination(exit_code, reason, message), **changes))


def left_on(fleet: Mapping[str, Any], **changes: Any) -> Observed:
    """What a disrupted agent leaves on a node of this fleet."""
    return after(agent(FAILED, fleet, phase="Failed", message="", exit_code=143, **changes))


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


def measured_for(was: Mapping[str, str], seen: Observed, ago: timedelta = MINUTE) -> Observed:
    """n1 was measured, for a basis that differs from the present one in `was`."""
    status = tried(basis={**plan(seen).profiles[0].node_states[0].current.basis, **was}, ago=ago)
    marks = seen.reports[0].rerun if seen.reports else ""
    return replace(seen, reports=(replace(report(status=status), rerun=marks),))


def open_verdict() -> Observed:
    """n1 was measured, and its verdict wants another run."""
    seen = observed([profile(acceptance={"reference": {"name": "h100-jan", "sha256": "0" * 64}})])
    runs = AcceptanceRuns(run="r1", since=format_time(NOW), ended=format_time(NOW))
    view = measured_for({}, seen).reports[0]
    assert view.status is not None
    status = view.status.model_copy(update={"acceptance": ReportAcceptance(again=True, runs=runs)})
    return replace(seen, reports=(replace(view, status=status),))


def old_result() -> Observed:
    """A good result of two days ago, where one day is allowed."""
    seen = observed([profile(schedule={"maxAge": "1d"})])
    run = {"run": "r1", "requestHash": "ab", "backend": "replay", "provenance": "simulated", "durationSeconds": "9"}
    run |= {"finishedAt": format_time(NOW - timedelta(days=2)), "workloadHash": "cd"}
    status = tried(ago=timedelta(days=2)).model_copy(update={"run": ReportRun.model_validate(run)})
    return replace(seen, reports=(report(status=status),))


def like_nobody() -> Situation:
    """n1 was measured with 8 GPUs, three nodes with 4."""
    seen = beside_like(1000).seen
    n1, *others = seen.reports
    hardware = n1.status.hardware.model_copy(update={"gpus": 8}) if n1.status and n1.status.hardware else None
    assert n1.status is not None
    odd = replace(n1, status=n1.status.model_copy(update={"hardware": hardware}))
    facts = {"peers": 0, "needed": 3, "differs": "; 3 others differ: it has 8 GPUs, they have 4"}
    return Situation(replace(seen, reports=(odd, *others)), facts, "alone")


def beside_like(rate: int, *others: dict[str, Any], **changes: Any) -> Situation:
    """n1 gives `rate` tokens/s in BF16, three nodes like it 1,000; `changes` are of that row, `others` more rows."""
    rows = {"n1": [recipe_row("bf16", tokensPerSecond=str(rate), **changes), *others]}
    rows |= {name: [recipe_row("bf16", tokensPerSecond="1000")] for name in ("n2", "n3", "n4")}
    statuses = {name: ReportStatus.model_validate(report_status(found)) for name, found in rows.items()}
    reports = tuple(report(name, status=status) for name, status in statuses.items())
    facts = {
        "relative": f"{rate / 1000:.1%}",
        "limit": "95.0%",
        "count": 3 if changes else 4,
        "peers": "n2, n3, n4" if changes else "itself, n2, n3, n4",
    }
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
