"""What to do now: one frozen value in, one frozen value out. A dry run is this plan, printed.

Each matched node of each profile gets a stand (where it is, and why); each action carries the reason that it is taken
for. Applied twice, a plan changes nothing: what is started, collected or dropped is seen in the next `Observed`. With
the book of the plan before, what has not changed is not worked out again: it is the plan that is made from scratch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from precision_api.facts.names import DEFAULT_POOL_LABEL, grouped
from precision_operator.core.admission.others import next_release
from precision_operator.core.admission.turns import admit
from precision_operator.core.attempts.actions import Action, Close, Collect, Withdraw
from precision_operator.core.attempts.attempt import attempts
from precision_operator.core.attempts.cleanup import cleanup, next_end
from precision_operator.core.attempts.faults import Fault, fault_text
from precision_operator.core.attempts.node_state import ProfilePlan, draft, drained_nodes, next_run
from precision_operator.core.attempts.yielding import give_way
from precision_operator.core.observe.book import EMPTY, Book, Kept
from precision_operator.core.observe.observed import BEING_READ, Observed, ProfileView
from precision_operator.core.reasons import Said, said

STANDS_ANEW = 8_192
"""Stands of nodes that one plan works out for the new and edited profiles of a namespace: others wait for no more."""


@dataclass(frozen=True)
class Plan:
    """All profiles at once: two of them must not pick the same node."""

    profiles: tuple[ProfilePlan, ...]
    actions: tuple[Action, ...]
    nodes_to_probe: tuple[str, ...]
    """Nodes that would start an agent if they are idle: look, and plan again."""
    faults: tuple[Fault, ...] = ()
    """What could not be planned for: to be logged, counted and tried again."""
    look_again_at: datetime | None = None
    """When time alone will end an attempt, or the wait for a pod that nobody ends, or begin a run; None: never."""
    cut: bool = False
    """Whether candidates are left that had no turn; none of them comes before what starts."""
    book: Kept = field(default_factory=lambda: EMPTY, compare=False, repr=False)
    """What the next plan may take over."""


def plan(observed: Observed, whole: bool = True, book: Kept = EMPTY) -> Plan:
    """The plan for everything that is seen. What one profile, node, Job or report raises costs the others nothing.

    One that need not be `whole` may be cut, so that no start waits for thousands of candidates that can't.
    """
    observed = replace(observed, book=Book(book))
    faults = [*_unreadable(observed)]
    later = _turns_to_come(observed)
    drafts = [_draft(profile, observed, faults, profile.uid in later) for profile in observed.profiles]
    jobs = attempts(observed, drafts)
    admission = admit(drafts, jobs, observed, faults, whole)
    ends = tuple(cleanup(observed, admission.plans, jobs, faults))
    gives = give_way(observed, jobs, {end.job.uid for end in ends if isinstance(end, Close | Collect | Withdraw)})
    actions = (*ends, *gives, *admission.withdrawn, *admission.starts)
    moments = (next_end(observed, jobs), next_release(observed), *(next_run(draft, observed.now) for draft in drafts))
    look = observed.now if later else min((at for at in moments if at is not None), default=None)
    rest = (tuple(faults), look, admission.cut, observed.book.kept)
    return Plan(admission.plans, actions, admission.nodes_to_probe, *rest)


def _draft(profile: ProfileView, observed: Observed, faults: list[Fault], is_later: bool) -> ProfilePlan:
    """Where the profile's nodes stand; where that can't be worked out, or `is_later`, a plan without nodes."""
    why = observed.unserved.get(profile.namespace)
    if why is not None:
        return _undecided(profile, observed, said("NamespaceForbidden", namespace=profile.namespace, why=why))
    if profile.uid in observed.beyond:
        is_suspended = profile.spec is not None and profile.spec.suspend
        kind, verbs = ("suspended", "Delete") if is_suspended else ("active", "Suspend or delete")
        facts = {"namespace": profile.namespace, "most": observed.settings.profiles_per_namespace}
        return _undecided(profile, observed, said("TooManyProfiles", **facts, kind=kind, remedy=f"{verbs} others"))
    try:
        if (problem := observed.unread.get(profile.uid)) is not None:
            raise problem
        if profile.uid in observed.unread or is_later:
            return _undecided(profile, observed, said("PlanFailed", why=BEING_READ))
        return draft(profile, observed, faults)
    except Exception as error:
        faults.append(Fault("profile", profile.key, error))
        return _undecided(profile, observed, said("PlanFailed", why=fault_text(error)))


def _undecided(profile: ProfileView, observed: Observed, reason: Said) -> ProfilePlan:
    """Nothing is decided for the profile's nodes: its status stands as it was, with the reason."""
    has_jobs = profile.spec is not None and profile.uid in observed.jobs_of  # facts by a label of its own cost a pass
    nodes = observed.facts_of(profile.spec.pool_label if has_jobs else DEFAULT_POOL_LABEL) if profile.spec else {}
    return ProfilePlan(profile, reason, nodes=nodes, drained=drained_nodes(profile, nodes, observed))


def _unreadable(observed: Observed) -> Iterator[Fault]:
    """What stood at the world's door and could not be read: the others are planned for without it."""
    reports = chain.from_iterable(there.unreadable for there in observed.filed.values())
    yield from (Fault("report", f"{r.namespace}/{r.name}", r.unreadable) for r in reports if r.unreadable is not None)
    nodes = observed.facts_of(DEFAULT_POOL_LABEL).unreadable
    yield from (Fault("node", n.name, n.unreadable) for n in nodes if n.unreadable is not None)


def _turns_to_come(observed: Observed) -> set[str]:
    """UIDs of new and edited profiles that a later plan decides: those of a namespace take turns, by UID, and one plan
    works out the nodes of few. From scratch all are decided."""
    book, later = observed.book, set[str]()
    is_first, _ = book.last("planned") is None, book.keep("planned", (), True)
    unasked, at_once = observed.beyond | observed.unread.keys(), max(1, STANDS_ANEW // max(1, len(observed.nodes)))
    asking = (p for p in observed.profiles if p.spec is not None and p.uid not in unasked and not is_first)
    specs = ((p, book.last(("spec", p.uid))) for p in asking)
    edited = grouped((p.namespace, p.uid) for p, entry in specs if entry is None or entry[1] != p.spec)
    for namespace, uids in edited.items():
        last = (book.last(("turn", namespace)) or ((), ""))[1]
        uids = sorted(uids, key=lambda uid: (uid <= last, uid))
        later |= {*uids[at_once:]}
        book.keep(("turn", namespace), (), uids[:at_once][-1])
    return later
