"""A profile's status from its plan and its nodes' reports: counts, reasons, pools, conditions, kubectl's columns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import ValidationError

from precision_api.facts import names
from precision_api.facts.names import grouped
from precision_api.facts.plain_text import shortened
from precision_api.facts.recipes import recipe_text
from precision_api.facts.schema import decimal
from precision_api.kinds.profile import Condition, NodeCounts, NodeRefusal, PoolStatus, ProfileStatus, ReasonCount
from precision_operator.core.attempts.node_state import (
    AGAIN,
    BEING_MEASURED_AGAIN,
    QUARANTINED,
    NodeStates,
    ProfilePlan,
    next_run,
)
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.conditions import condition
from precision_operator.core.eligibility.request import ResolvedProfile
from precision_operator.core.observe.book import Book
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import BEING_READ
from precision_operator.core.reasons import REASONS, Kind, Said, sentence
from precision_operator.core.results.outliers import Judged, Part, Peers
from precision_operator.core.results.reading import number
from precision_operator.core.status.ended import ended
from precision_operator.core.status.node_readings import readings
from precision_operator.core.status.progress import eta, eta_text, keeps, most, waits_for
from precision_operator.core.status.yields import yield_rows

REASONS_SHOWN = 32
POOLS_SHOWN = PEERS_SHOWN = 64
OUTLIERS_SHOWN = 16
REFUSALS_SHOWN = 32
COUNTED: tuple[Kind, ...] = ("skipped", "waiting", "queued", "running", "succeeded", "failed")
"""States that a status counts, each by its own name."""
TOLD = ("skipped", "failed")
"""States whose reasons a user wants to read, beside those of nodes that wait."""

_RELEASE = "Fix them, then release each with kubectl precision rerun NODE."

Phase = Literal["Pending", "Running", "Suspended", "Complete", "Degraded", "Invalid"]


def profile_status(
    plan: ProfilePlan, now: datetime, nodes_in_cluster: int, peers: Peers | None = None, distinct: int | None = None
) -> ProfileStatus:
    """The status of one profile, whole: what it says replaces what was there.

    `peers` are all results (`peers_of_all`), and `distinct` is the profile's count of `distinct_nodes`; left out, the
    profile's alone, and all.
    """
    if isinstance(plan.asked, Said) and REASONS[plan.asked.reason].undecided:
        is_read = BEING_READ not in plan.asked.message
        return unplanned_status(plan, now, plan.asked.message, plan.asked.reason) if is_read else status_before(plan)
    before = status_before(plan)
    measured = readings(plan, Book(peers.kept) if peers is not None else None)
    peers = peers or Peers([measured])
    spec = plan.profile.spec
    slow = peers.slow(measured, spec.thresholds.slow_node_percent) if spec is not None else ()
    counts = _counts(plan, measured, slow, distinct)
    pools, rows = _pools(measured, slow), peers.rows(measured)
    run = plan.asked.run if isinstance(plan.asked, ResolvedProfile) else None
    conditions = _conditions(plan, counts, measured, before, now, nodes_in_cluster)
    largest = max(pools, key=lambda pool: pool.nodes, default=None)
    end = eta(plan, counts, now)
    return ProfileStatus(
        observed_generation=plan.profile.generation,
        phase=_phase(plan, counts),
        conditions=conditions,
        run=run,
        nodes=counts,
        eta=eta_text(end, now) if end is not None else None,
        eta_time=format_time(end) if end is not None else None,
        waits_for=waits_for(plan.node_states),
        last_run=measured.last_run,
        next_run=format_time(again) if (again := next_run(plan, now)) is not None else None,
        progress=f"{counts.succeeded + counts.failed}/{counts.eligible}",
        best=_best_text(largest),
        teraflops_per_gpu=decimal(number(largest.teraflops_per_gpu), 3) if largest is not None else None,
        tokens_per_joule=decimal(number(largest.tokens_per_joule), 3) if largest is not None else None,
        data=_data(measured),
        reasons=_reasons(plan.node_states, measured, peers),
        refusals=_refusals(plan),
        yields=yield_rows(plan.yields),
        pools=tuple(pools),
        peers=tuple(rows[:PEERS_SHOWN]),
        peers_left_out=max(0, len(rows) - PEERS_SHOWN),
    )


def unplanned_status(plan: ProfilePlan, now: datetime, message: str, reason: str = "PlanFailed") -> ProfileStatus:
    """The status as it was, with the reason that it stands still: nothing could be planned for this profile."""
    before = status_before(plan)
    rows = ((names.PROGRESSING, False), (names.DEGRADED, True))
    generation = plan.profile.generation
    changed = [condition(before.conditions, *row, reason, message, now, generation) for row in rows]
    others = [row for row in before.conditions if row.type not in (names.PROGRESSING, names.DEGRADED)]
    order = (names.ACCEPTED, names.PROGRESSING, names.COMPLETE, names.DEGRADED)
    conditions = sorted([*others, *changed], key=lambda row: order.index(row.type) if row.type in order else len(order))
    return before.model_copy(update={"phase": "Degraded", "conditions": tuple(conditions)})


def status_before(plan: ProfilePlan) -> ProfileStatus:
    """The status that the profile has now; an unreadable one counts as none (it is written anew)."""
    try:
        return ProfileStatus.model_validate(dict(plan.profile.status))
    except ValidationError:
        return ProfileStatus()


def _counts(plan: ProfilePlan, measured: Part, slow: Sequence[Judged], distinct: int | None) -> NodeCounts:
    states, tallies, matched = plan.node_states.kinds, plan.node_states.tallies, len(plan.node_states)
    return NodeCounts(
        matched=matched,
        eligible=matched - states["skipped"],
        distinct=None if distinct == matched - states["skipped"] else distinct,
        **{kind: states[kind] for kind in COUNTED},
        stale=tallies[AGAIN],
        slow=len(slow),
        fallback=measured.marked["fallback"],
        throttled=measured.marked["throttled"],
        accepted=tallies["verdict Pass"],
        not_accepted=tallies["verdict Fail"],
        quarantined=tallies[QUARANTINED],
        simulated=measured.marked["made up"],
    )


def _reasons(node_states: NodeStates, measured: Part, peers: Peers) -> tuple[ReasonCount, ...]:
    """Why nodes wait, are skipped, failed or have no peers: most frequent first, bounded, an example for each."""
    alone = [row for compared in peers.compared(measured) for row in compared.alone]
    counts = {why: count for why, count in node_states.reasons.items() if REASONS[why].kind in TOLD or keeps(why)}
    counts |= {"NoPeers": len(alone)} if alone else {}
    rows = []
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:REASONS_SHOWN]:
        if reason == "NoPeers":
            reading, others = min(alone, key=lambda row: row[0].node)
            example, message = reading.node, peers.no_peers(reading, others).message
        else:
            first = node_states.first(reason)
            example, message = first.facts.name, first.message
        rows.append(ReasonCount(reason=reason, count=count, example=example, message=shortened(message, 1024)))
    return tuple(rows)


def _refusals(plan: ProfilePlan) -> tuple[NodeRefusal, ...]:
    """What the cluster refused to create, by node, bounded."""
    named = sorted((plan.nodes[uid].name, refused) for uid, refused in plan.refusals.items() if uid in plan.nodes)
    return tuple(
        NodeRefusal(
            node=name,
            stage=refused.stage,
            reason=refused.reason,
            message=refused.words,
            times=refused.times,
            last_try=format_time(refused.at),
            next_try=format_time(refused.until),
        )
        for name, refused in named[:REFUSALS_SHOWN]
    )


def _pools(measured: Part, slow: Sequence[Judged]) -> list[PoolStatus]:
    groups, names = measured.by_pool, grouped((node.pool, node.node) for node in slow)
    largest = sorted(groups, key=lambda name: (-len(groups[name]), name))[:POOLS_SHOWN]
    slowest = {name: tuple(names.get(name, ())[:OUTLIERS_SHOWN]) for name in sorted(largest)}
    return [PoolStatus(name=name[:253], slow_nodes=of, **groups[name].pool.summary) for name, of in slowest.items()]


def _data(measured: Part) -> str | None:
    """What the figures are, for kubectl's column."""
    for mark, word in (("made up", "SIMULATED"), ("trial", "TRIAL")):
        if count := measured.marked[mark]:
            return f"{word} ({count}/{len(measured)})"
    return "measured" if measured else None


def _best_text(pool: PoolStatus | None) -> str | None:
    if pool is None or pool.best_recipe is None:
        return None
    kept, over = pool.last_layers_bf16, pool.baseline or "bf16"
    return recipe_text(pool.best_recipe, number(pool.speedup), kept, over, pool.step)


def _conditions(
    plan: ProfilePlan, counts: NodeCounts, measured: Part, before: ProfileStatus, now: datetime, nodes_in_cluster: int
) -> tuple[Condition, ...]:
    complete = _complete(plan, counts, before, nodes_in_cluster)
    refused = plan.asked if isinstance(plan.asked, Said) else None
    why = refused or Said("Accepted", words="The spec is understood and can be measured.")
    rows = [
        (names.ACCEPTED, refused is None, why.reason, why.message),
        (names.PROGRESSING, *_progressing(plan, counts)),
        (names.COMPLETE, *complete),
        (names.DEGRADED, *_degraded(plan, counts)),
    ]
    end = ended(plan, counts, measured, complete)
    rows += [end] if end is not None else []
    generation = plan.profile.generation
    return tuple(condition(before.conditions, *row, now=now, generation=generation) for row in rows)


def _progressing(plan: ProfilePlan, counts: NodeCounts) -> tuple[bool, str, str]:
    if isinstance(plan.asked, Said):
        return False, "NotAccepted", plan.asked.message
    if plan.profile.spec is not None and plan.profile.spec.suspend:
        finish = f"Agents that still run and finish: {counts.running}. " if counts.running else ""
        rest = f"No new ones start; nodes that wait: {counts.queued}. Set spec.suspend to false to continue."
        return False, "Suspended", f"{finish}{rest}"
    if counts.running or counts.queued:
        return True, "Measuring", f"Nodes being measured: {counts.running}; waiting their turn: {counts.queued}."
    refused = _refused(plan, counts)
    return (False, *refused) if refused else (False, "Idle", "Nothing to do now.")


def _complete(plan: ProfilePlan, counts: NodeCounts, before: ProfileStatus, all_nodes: int) -> tuple[bool, str, str]:
    """True when no node is queued or running; it stays True within a run when a waiting node gets its turn later.

    A node that is measured again (a schedule, a rerun, another driver) turns it False: what stands is out of date.
    """
    if isinstance(plan.asked, Said):
        return _progressing(plan, counts)
    if counts.queued or counts.running:
        old = next((c for c in before.conditions if c.type == names.COMPLETE), None)
        if (
            old is not None
            and old.status == "True"
            and old.reason != "NothingEligible"
            and before.run == plan.asked.run
            and not plan.node_states.tallies[BEING_MEASURED_AGAIN]
        ):
            return True, old.reason, old.message
        return False, *_progressing(plan, counts)[1:]
    held = _held_up(plan, counts)
    return (False, *held) if held else (True, *_how_complete(plan, counts, all_nodes))


def _held_up(plan: ProfilePlan, counts: NodeCounts) -> tuple[str, str] | None:
    """Why a profile of which no node has its turn is not complete: it has stopped, or has not begun yet."""
    for reason in ("CanaryFailed", "TooManyFailures"):
        if plan.node_states.reasons[reason]:
            return reason, plan.node_states.first(reason).message
    refused = _refused(plan, counts)
    if refused is not None:
        return refused
    if not plan.node_states.reasons["NotDueYet"] or counts.succeeded or counts.failed:
        return None
    return "NotDueYet", plan.node_states.first("NotDueYet").message


def _refused(plan: ProfilePlan, counts: NodeCounts) -> tuple[str, str] | None:
    """The refusal that keeps a profile from going on: it concerns all nodes, or no node was done before it."""
    refusals = {reason: count for reason, count in plan.node_states.reasons.items() if reason in RULES}
    if not refusals:
        return None
    reason, _ = most(refusals)
    if not RULES[reason].whole and (counts.succeeded or counts.failed):
        return None
    return reason, plan.node_states.first(reason).message


def _how_complete(plan: ProfilePlan, counts: NodeCounts, nodes_in_cluster: int) -> tuple[str, str]:
    if not counts.matched:
        return "NothingEligible", sentence("NoNodesMatch", nodes=nodes_in_cluster)
    if not counts.eligible:
        example = _example(plan, "skipped")
        return "NothingEligible", sentence("NothingEligible", matched=counts.matched, example=example)
    if counts.failed:
        return "SomeFailed", _some_failed(plan, counts)
    if counts.waiting:
        example = _example(plan, "waiting")
        measured = {"measured": counts.succeeded, "count": counts.eligible, "waiting": counts.waiting}
        return "SomeWaiting", sentence("SomeWaiting", example=example, **measured)
    return "AllMeasured", sentence("AllMeasured", count=counts.eligible)


def _example(plan: ProfilePlan, state: str) -> str:
    reason, count = most({why: n for why, n in plan.node_states.reasons.items() if REASONS[why].kind == state})
    return f"{reason} ({count}, e.g. {plan.node_states.first(reason).facts.name})"


def _some_failed(plan: ProfilePlan, counts: NodeCounts) -> str:
    return sentence("SomeFailed", failed=counts.failed, count=counts.eligible, example=_example(plan, "failed"))


def _degraded(plan: ProfilePlan, counts: NodeCounts) -> tuple[bool, str, str]:
    if counts.failed:
        return True, "NodesFailed", _some_failed(plan, counts)
    refused = {why: n for why, n in plan.node_states.reasons.items() if why in RULES and RULES[why].degrades}
    if refused:
        first = plan.node_states.first(*refused)
        text = f"Nodes without an agent: {sum(refused.values())}, e.g. {first.facts.name}. {first.message}"
        return True, first.reason, text
    if counts.quarantined:
        example = next(node_state for node_state in plan.node_states if QUARANTINED in node_state.marks)
        text = f"Quarantined nodes: {counts.quarantined}, e.g. {example.facts.name}. {_RELEASE}"
        return True, "NodesQuarantined", text
    return False, "NoFailures", "No node has failed."


def _phase(plan: ProfilePlan, counts: NodeCounts) -> Phase:
    if isinstance(plan.asked, Said):
        return "Invalid"
    if plan.profile.spec is not None and plan.profile.spec.suspend and not counts.running:
        return "Suspended"
    if counts.running or counts.queued:
        return "Running" if counts.running or counts.succeeded or counts.failed else "Pending"
    if _degraded(plan, counts)[0]:
        return "Degraded"
    return "Pending" if _held_up(plan, counts) else "Complete"
