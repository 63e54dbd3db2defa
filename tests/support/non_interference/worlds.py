"""Whether what a tenant makes changes anything for others: the same world with its objects, and with their shadow."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

from precision_operator.core.attempts.actions import Action, Close, Collect, Drop, Start, Withdraw
from precision_operator.core.observe.claims import claim_keys, claimed_gpus
from precision_operator.core.observe.observed import Observed, Occupancy
from precision_operator.core.observe.pod_requests import NOTHING, Requests
from precision_operator.core.observe.tenants import holding, pods_within_namespace, within_namespace
from precision_operator.core.observe.views import job_view, occupancy, pod_view, profile_view, report_view
from precision_operator.core.observe.waiting_pods import WaitingPod, could_be_helped, waiting_pod
from precision_operator.core.plan import Plan, plan
from precision_operator.core.results.ingest import status_json
from precision_operator.core.status.events import notes
from precision_operator.core.status.profile_status import profile_status, status_before
from precision_operator.core.status.why import why
from tests.support.non_interference import hostile_objects as hostile
from tests.support.non_interference.neighbours import neighbours
from tests.support.world import MINUTE

T = TypeVar("T")
SEED = "non-interference"


@dataclass
class Drawn:
    """What the worlds had, and where something differed."""

    worlds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """In how many worlds each kind of trick was."""
    reasons: Counter[str] = field(default_factory=Counter)
    """In how many worlds a node of another namespace had each reason: where it stands, last, or why it is due."""
    differing: dict[int, str] = field(default_factory=dict)
    """The first difference, by the world's number."""


def check(numbers: Iterable[int]) -> Drawn:
    """Each world with the tenant's objects and with their shadow."""
    drawn = Drawn()
    for number in numbers:
        rng = Random(f"{SEED}/{number}")
        others = neighbours(rng, number)
        objects = hostile.Tenant(rng, victims(others)).objects()
        offered = hostile.offers(others.nodes.values())
        shadow = objects.shadow(offered)
        seen = {
            "objects": of_others(beside(others, objects, partial(_read, objects, offered))),
            "shadow": of_others(beside(others, shadow, partial(_counted, shadow))),
        }
        drawn.worlds += 1
        drawn.kinds.update(objects.kinds)
        drawn.reasons.update(_reasons(seen["objects"]))
        difference = first_difference(seen["objects"], seen["shadow"])
        if difference:
            drawn.differing[number] = f"{sorted(objects.kinds)}: {difference}"
    return drawn


def first_differing(numbers: Iterable[int]) -> int | None:
    """The number of the first world in which something differs."""
    return next((number for number in numbers if check([number]).differing), None)


def _reasons(seen: Mapping[str, Sequence[Any]]) -> set[str]:
    """All that is said of nodes."""
    said = {row[2] for row in seen["states"]}
    for answer in seen["why"]:
        attempt, standing = answer.past.attempt, answer.standing
        said |= {answer.reason, answer.due, attempt and attempt.reason, standing and standing.reason}
        said.add((answer.past.detail_problem or "").partition(":")[0])
        said |= {"NoPeers"} if answer.no_peers else set()
    return said - {None, ""}


def victims(others: Observed) -> hostile.Victims:
    """What a tenant could learn of them."""
    return hostile.Victims(
        now=others.now,
        nodes={uid: str(node["metadata"]["name"]) for uid, node in others.nodes.items()},
        profiles={profile.uid: profile.key for profile in others.profiles},
        jobs={job.uid: job.name for job in others.jobs},
    )


def beside(others: Observed, tenant: hostile.Hostile, here: Callable[[str], Occupancy]) -> Observed:
    """The world of others with a tenant's objects in it, as the operator reads it; `here` is what they hold by node."""
    profiles = (*others.profiles, *_views(profile_view, tenant.profiles))
    homes = {profile.uid: profile.namespace for profile in profiles}
    every_job = (*others.jobs, *_views(job_view, tenant.jobs))
    jobs = within_namespace(every_job, homes)
    job_homes = {job.uid: job.namespace for job in every_job}
    claimed = {raw["metadata"]["uid"] for raw in tenant.pods if _has_claimed(raw, tenant)}
    theirs = holding(_views(pod_view, tenant.pods), others.nodes.values(), claimed)
    waits = tuple(_waiting(raw, others) for raw in tenant.pods if could_be_helped(raw))
    return replace(
        others,
        profiles=profiles,
        jobs=jobs,
        pods=pods_within_namespace((*others.pods, *theirs), homes, job_homes),
        reports=within_namespace((*others.reports, *_views(report_view, tenant.reports)), homes),
        occupancy={name: _together(before, here(name)) for name, before in others.occupancy.items()},
        own_jobs={**others.own_jobs, **tenant.own},
        waiting_pods=(*others.waiting_pods, *waits),
    )


def _views(view: Callable[[hostile.Raw], T | None], raws: Sequence[hostile.Raw]) -> Iterator[T]:
    """What can be read of the objects that a watch by label shows."""
    for raw in raws:
        try:
            read = view(raw)
        except Exception:
            continue
        if read is not None:
            yield read


def _waiting(raw: hostile.Raw, others: Observed) -> WaitingPod:
    return waiting_pod(raw, int(raw["metadata"]["uid"].rpartition("-")[2]) % 9, others.now - MINUTE)


def _has_claimed(raw: hostile.Raw, tenant: hostile.Hostile) -> bool:
    node = raw["spec"].get("nodeName")
    return _read(replace(tenant, pods=[raw]), {node: ()}, node).holder is not None


def _read(tenant: hostile.Hostile, offered: Mapping[str, Container[str]], node: str) -> Occupancy:
    """What the product finds that the tenant's pods hold of a node."""
    made = {name: claimed_gpus(device.claim, node) for name, device in tenant.claims.items()}
    made[hostile.NEVER_MADE] = frozenset()
    pods = [raw for raw in tenant.pods if raw["spec"].get("nodeName") == node]
    return occupancy(pods, {key: made.get(key[2]) for pod in pods for key in claim_keys(pod)}, offered.get(node))


def _counted(shadow: hostile.Hostile, node: str) -> Occupancy:
    """What the shadow holds there, counted without the product."""
    holder, gpus, cpu_millis = shadow.holds(node)
    return Occupancy(holder, gpus, Requests(cpu_millis))


def _together(before: Occupancy, here: Occupancy) -> Occupancy:
    """Who holds GPUs of a node: others, or the tenant's pods there."""
    holders = [holder for holder in (before.holder, here.holder) if holder is not None]
    requests = before.requests + here.requests if here.requests != NOTHING else before.requests
    return Occupancy(min(holders, default=None), before.gpus + here.gpus, requests)


def of_others(seen: Observed) -> Mapping[str, list[Any]]:
    """All that is decided and said of other namespaces: actions, node states, statuses, events, and answers to why."""
    decided = plan(seen)
    others = [item for item in decided.profiles if item.profile.namespace != hostile.TENANT]
    states, statuses = [], []
    for item in others:
        states += [
            (item.profile.key, state.facts.name, state.reason, state.message, state.since, state.current)
            for state in item.node_states
        ]
        status = profile_status(item, seen.now, len(seen.nodes))
        statuses.append((item.profile.key, status_json(status), notes(status_before(item), status)))
    return {
        "actions": [action for action in decided.actions if _namespace(action) != hostile.TENANT],
        "states": states,
        "statuses": statuses,
        "why": list(_answers(decided, seen)),
    }


def _answers(decided: Plan, seen: Observed) -> Iterator[object]:
    there = [str(node["metadata"]["name"]) for node in seen.nodes.values()]
    left = [item.node_name for item in (*seen.jobs, *seen.reports) if item.namespace != hostile.TENANT]
    for node in dict.fromkeys([*there, *left]):
        for answer in why(decided, seen, node):
            if answer.profile.namespace != hostile.TENANT:
                yield answer


def _namespace(action: Action) -> str:
    match action:
        case Start():
            return action.profile.namespace
        case Drop():
            return action.namespace
        case Collect() | Close() | Withdraw():
            return action.job.namespace
        case _:
            return action.report.namespace


def first_difference(objects: Mapping[str, Sequence[Any]], shadow: Mapping[str, Sequence[Any]]) -> str:
    """The first row that is not the same on both sides; empty where all are."""
    for part, rows in objects.items():
        others = shadow[part]
        for row, other in zip(rows, others, strict=False):
            if row != other:
                return f"{part}: {_apart(str(row), str(other))}"
        if len(rows) != len(others):
            return f"{part}: {len(rows)} rows / with the shadow {len(others)}"
    return ""


def _apart(text: str, other: str) -> str:
    """Where two texts begin to differ, with some words before and after."""
    pairs = enumerate(zip(text, other, strict=False))
    at = max(0, next((place for place, (here, there) in pairs if here != there), 0) - 80)
    return f"...{text[at : at + 240]} / with the shadow ...{other[at : at + 240]}"
