"""Whether one more agent may start now: a table of small checks, each named for what is wrong.

A new limit is one function, one row here, one reason in the table of reasons, one test. Limits on what is physical (a
rack, a pool, watts) count every agent of the profile's namespace there: of the rack, of the pool, and for the profile's
own watts of the nodes that it matches. They bind the profiles of the namespace that want to start on a node that their
profile matches, unless it is suspended. What binds all namespaces together is the operator's own configuration.
`maxConcurrent`, canary and failures count the profile's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from precision_api.facts.names import LABEL_WATTS_PER_GPU
from precision_api.kinds.fields import IntOrPercent
from precision_api.kinds.profile import Rollout
from precision_operator.core.admission import blockers
from precision_operator.core.admission.blockers import Blockers
from precision_operator.core.admission.budget_view import AdmissionRequest, Cap, recent
from precision_operator.core.admission.caps import beyond_watts, full
from precision_operator.core.attempts.refusal import refusal_facts
from precision_operator.core.attempts.retry import rest_over
from precision_operator.core.observe.clock import format_time, parse_time
from precision_operator.core.observe.pod_requests import cpu_text, memory_text
from precision_operator.core.observe.raw_object import millis, quantity
from precision_operator.core.observe.stop import stopped
from precision_operator.core.observe.tenants import shown_pod, words
from precision_operator.core.reasons import Facts, Said, said


@dataclass(frozen=True)
class Limit:
    """One row: a check, its reason, and what else there is to know of it."""

    code: str
    """Of several answers (what the cluster refuses, what a node lacks) one."""
    check: Callable[[AdmissionRequest], Said | None]
    blockers: Blockers | None = None
    """Who stands in the way while it holds a node back; None where nobody can be named."""
    field: str | None = None
    """Of a rollout, for a limit of what is physical, which binds other profiles of its namespace too."""


def concurrency_limit(limit: IntOrPercent, eligible: int) -> int:
    """Most at once: `limit`, or that per cent of `eligible` nodes, rounded down, at least 1."""
    if isinstance(limit, int):
        return limit
    return max(1, eligible * int(limit.removesuffix("%")) // 100)


def stopped_by_admin(request: AdmissionRequest) -> Said | None:
    stop = request.view.observed.stop
    return stopped(stop) if stop is not None else None


def suspended(request: AdmissionRequest) -> Said | None:
    return said("Suspended") if request.view.profile.spec.suspend else None


def too_many_failures(request: AdmissionRequest) -> Said | None:
    most, tally = request.view.rollout.max_failures, request.view.tally
    if most is None or tally.failed <= concurrency_limit(most, tally.eligible):
        return None
    return said("TooManyFailures", failed=tally.failed, limit=most)


def canary_failed(request: AdmissionRequest) -> Said | None:
    canary, tally = request.view.rollout.canary, request.view.tally
    if canary is None or not tally.failed or tally.succeeded >= canary:
        return None
    return said("CanaryFailed", failed=tally.failed, canary=canary)


def canary_first(request: AdmissionRequest) -> Said | None:
    canary, tally = request.view.rollout.canary, request.view.tally
    if canary is None or tally.succeeded >= canary or tally.succeeded + request.view.agents < canary:
        return None
    return said("CanaryFirst", canary=canary, succeeded=tally.succeeded)


def max_concurrent_reached(request: AdmissionRequest) -> Said | None:
    limit = concurrency_limit(request.view.rollout.max_concurrent, request.view.tally.eligible)
    return said("MaxConcurrentReached", limit=limit) if request.view.agents >= limit else None


def measured_by_another_profile(request: AdmissionRequest) -> Said | None:
    return said("MeasuredByAnotherProfile", profile=request.taken_by) if request.taken_by else None


def ramping(request: AdmissionRequest) -> Said | None:
    """Between two creations in one domain of the first topology key (else in the profile) a rack's load may settle."""
    view = request.view
    seconds = view.rollout.ramp_seconds
    newest = view.newest.get(view.ramp_group(view.profile.uid, request.facts.labels)) if seconds else None
    if newest is None:
        return None
    return said("Ramping", seconds=seconds, until=format_time(newest + timedelta(seconds=seconds)))


def pool_limit_reached(request: AdmissionRequest) -> Said | None:
    cap = full(request.view, request.view.caps(request.facts))
    return said("PoolLimitReached", pool=cap.value, limit=cap.agents) if cap is not None else None


def topology_limit_reached(request: AdmissionRequest) -> Said | None:
    for rack in request.view.rollout.per_topology:
        group = request.facts.labels.get(rack.key)  # without it of no group: then it is no candidate
        if group is not None and request.view.used(Cap(rack.key, ("label", rack.key), group)) >= rack.max:
            return said("TopologyLimitReached", limit=rack.max, key=rack.key, group=group)
    return None


def fleet_limit_reached(request: AdmissionRequest) -> Said | None:
    cap = full(request.fleet, request.fleet_caps)
    return said("FleetLimitReached", where=cap.name, limit=cap.agents) if cap is not None else None


def power_budget(code: str, request: AdmissionRequest, alone: bool = False) -> Said | None:
    """`alone`: whether the node alone is above what the profile allows."""
    return beyond_watts(code, request.view, request.facts, request.view.caps(request.facts), "name", alone)


def fleet_power(code: str, request: AdmissionRequest, alone: bool = False) -> Said | None:
    """The same of what the operator allows."""
    return beyond_watts(code, request.fleet, request.facts, request.fleet_caps, "where", alone)


power_budget_too_small = partial(power_budget, "PowerBudgetTooSmall", alone=True)


def fleet_power_unknown(request: AdmissionRequest) -> Said | None:
    in_watts = any(cap.watts is not None for cap in request.fleet_caps)
    if request.fleet is None or not in_watts or request.fleet.watts(request.facts) is not None:
        return None
    return said("FleetPowerUnknown", gpu=request.facts.gpu or "an unnamed GPU", label=LABEL_WATTS_PER_GPU)


def limit_of_another_profile(request: AdmissionRequest) -> Said | None:
    """A rack that one profile spares is not filled by another."""
    mine = request.view.profile
    others = ((by, what) for by, what in request.elsewhere(mine.namespace, request.facts.uid) if by.uid != mine.uid)
    return next((said("LimitOfAnotherProfile", profile=by.key, detail=what.clause) for by, what in others), None)


def physical_limit_reached(request: AdmissionRequest) -> Said | None:
    """The limit of a profile that leaves no room there; what nobody can keep (a node above it) binds nobody."""
    reached = blocked_by(request, PHYSICAL_CHECKS)
    return reached if reached is None or power_budget_too_small(request) is None else None


def has_physical_limits(rollout: Rollout) -> bool:
    """Whether the profile limits a place, so that others on its nodes are bound too."""
    return any(getattr(rollout, limit.field) for limit in PHYSICAL_CHECKS if limit.field is not None)


def kept_for_pod(request: AdmissionRequest) -> Said | None:
    """An agent was ended for a pod of higher priority: none takes the GPUs before that pod has had its chance."""
    pod = request.view.observed.waited_for.get(request.facts.uid)
    if pod is None:
        return None
    pod_words = words(shown_pod(pod.pod, request.view.profile.namespace, request.view.observed))
    return said("KeptForPod", pod=pod_words, priority=pod.priority, since=format_time(pod.at))


def backing_off(request: AdmissionRequest) -> Said | None:
    if request.attempt is None or request.attempt.outcome != "disrupted":
        return None
    observed, ended = request.view.observed, parse_time(request.attempt.finished_at)
    until = rest_over(request.attempt, observed.settings.disruption_backoff, request.facts.uid)
    if not recent(ended, until - ended, observed.now):
        return None
    return said("BackingOff", until=format_time(until), why=request.attempt.reason or "Disrupted")


def profile_refused(request: AdmissionRequest) -> Said | None:
    """What the cluster refuses to every node is tried with one agent at a time; a quota has room when an agent ends."""
    view, hold = request.view, request.view.hold
    if hold is None or view.agents < hold.agents or (view.observed.now >= hold.until and not view.trying):
        return None
    return said(hold.reason, **refusal_facts(hold, view.profile))


def image_pull_limit_reached(request: AdmissionRequest) -> Said | None:
    """Nodes that have the image go on meanwhile."""
    limit = concurrency_limit(request.view.rollout.max_image_pulls, request.view.tally.eligible)
    if not request.cold() or request.view.pulling < limit:
        return None
    return said("ImagePullLimitReached", limit=limit)


def busy(request: AdmissionRequest) -> Said | None:
    occupancy = request.view.observed.occupancy.get(request.facts.name)
    if not _idle_required(request) or occupancy is None or occupancy.holder is None:
        return None
    pod = shown_pod(occupancy.holder, request.view.profile.namespace, request.view.observed)
    return said("Busy", pod=words(pod), gpus=occupancy.gpus)


def device_class_missing(request: AdmissionRequest) -> Said | None:
    """Nodes whose GPUs the device plugin hands out go on meanwhile."""
    seen = request.view.observed
    if request.facts.way != "claim" or seen.device_class.exists:
        return None
    return said("DeviceClassMissing", name=seen.settings.device_class)


def device_class_shares(request: AdmissionRequest) -> Said | None:
    seen = request.view.observed
    if request.facts.way != "claim" or seen.device_class.sharing is None:
        return None
    return said("DeviceClassShares", name=seen.settings.device_class, strategy=seen.device_class.sharing)


def not_looked_at(request: AdmissionRequest) -> Said | None:
    look = request.view.observed.occupancy.get(request.facts.name)
    return None if not _idle_required(request) or (look is not None and look.fresh) else said("CheckingIdle")


def insufficient_cpu_and_memory(request: AdmissionRequest) -> Said | None:
    """Both at once: who lowers one of them would only learn of the other then."""
    shortages = _shortages(request)
    if len(shortages) < 2:
        codes = {"cpus": "InsufficientCPU", "memory": "InsufficientMemory"}
        return next((Said(codes[name], facts) for name, facts in shortages.items()), None)
    wanted = {name: facts["wanted"] for name, facts in shortages.items()}
    has = {f"{name}_{key}": facts[key] for name, facts in shortages.items() for key in ("requested", "allocatable")}
    return Said("InsufficientCPUAndMemory", wanted | has)


def _shortages(request: AdmissionRequest) -> dict[str, Facts]:
    """As the scheduler would find them: what is allocatable, less what the node's pods request; as users write it."""
    occupancy = request.view.observed.occupancy.get(request.facts.name)
    if not _idle_required(request) or occupancy is None:
        return {}
    resources, requests, facts = request.view.profile.spec.agent.resources, occupancy.requests, request.facts
    rows = (
        ("cpus", cpu_text, millis(resources.cpu), requests.cpu_millis, facts.cpu_millis),
        ("memory", memory_text, quantity(resources.memory), requests.memory_bytes, facts.memory_bytes),
    )
    return {
        name: {"wanted": text(wanted), "requested": text(requested), "allocatable": text(allocatable)}
        for name, text, wanted, requested, allocatable in rows
        if wanted is not None and allocatable is not None and requested + wanted > allocatable
    }


def _idle_required(request: AdmissionRequest) -> bool:
    return request.view.profile.spec.idle.required


PROFILE_CHECKS: tuple[Limit, ...] = (
    Limit("StoppedByAdmin", stopped_by_admin),
    Limit("Suspended", suspended),
    Limit("TooManyFailures", too_many_failures, blockers.failed_nodes),
    Limit("CanaryFailed", canary_failed, blockers.failed_nodes),
    Limit("CanaryFirst", canary_first, blockers.own_agents),
    Limit("QuotaExceeded", profile_refused),
    Limit("MaxConcurrentReached", max_concurrent_reached, blockers.own_agents),
)
"""What stops every candidate of the profile alike."""

KIND_CHECKS: tuple[Limit, ...] = (
    Limit("DeviceClassMissing", device_class_missing),
    Limit("DeviceClassShares", device_class_shares),
    Limit("PowerBudgetTooSmall", power_budget_too_small),
    Limit("FleetPowerUnknown", fleet_power_unknown),
    Limit("FleetPowerTooSmall", partial(fleet_power, "FleetPowerTooSmall", alone=True)),
    Limit("PoolLimitReached", pool_limit_reached, blockers.agents_in_pool, "pools"),
    Limit(
        "PowerBudgetReached",
        partial(power_budget, "PowerBudgetReached"),
        blockers.agents_on_nodes,
        "power_budget_watts",
    ),
    Limit("FleetLimitReached", fleet_limit_reached),
    Limit("FleetPowerReached", partial(fleet_power, "FleetPowerReached")),
)
"""What stops alike all nodes of one `kind` and pool."""

DOMAIN_CHECKS: tuple[Limit, ...] = (
    Limit("TopologyLimitReached", topology_limit_reached, blockers.agents_in_topology, "per_topology"),
    Limit("Ramping", ramping),
)
"""What stops alike all nodes in the same domains of `perTopology`."""

NODE_CHECKS: tuple[Limit, ...] = (
    Limit("MeasuredByAnotherProfile", measured_by_another_profile, blockers.agents_on_node),
    Limit("KeptForPod", kept_for_pod, blockers.waiting_pod),
    Limit("BackingOff", backing_off),
    Limit("ImagePullLimitReached", image_pull_limit_reached, blockers.own_agents),
    Limit("LimitOfAnotherProfile", limit_of_another_profile),
    Limit("Busy", busy, lambda wait: (f"pod {wait.occupancy.holder}",) if wait.occupancy is not None else ()),
    Limit("InsufficientCPUAndMemory", insufficient_cpu_and_memory),
    Limit("CheckingIdle", not_looked_at),
)
"""What stops one candidate; the next one may go."""

TABLES = (PROFILE_CHECKS, KIND_CHECKS, DOMAIN_CHECKS, NODE_CHECKS)
"""In the order in which their reasons are told."""
LIMITS: Mapping[str, Limit] = {limit.code: limit for table in TABLES for limit in table}
PHYSICAL_CHECKS = tuple(limit for limit in LIMITS.values() if limit.field is not None)


def blocked_by(request: AdmissionRequest, limits: Sequence[Limit]) -> Said | None:
    """What the first limit says that says no; None when all let the agent start."""
    return next(filter(None, (limit.check(request) for limit in limits)), None)
