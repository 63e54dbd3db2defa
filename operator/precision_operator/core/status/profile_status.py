"""A profile's status from its plan and its nodes' reports: counts, reasons, pools, conditions, kubectl's columns."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from pydantic import ValidationError

from precision_api.facts import names
from precision_api.facts.names import grouped
from precision_api.facts.plain_text import shortened
from precision_api.facts.recipes import recipe_text
from precision_api.facts.schema import decimal
from precision_api.kinds.profile import Condition, NodeCounts, NodeRefusal, PoolStatus, ProfileStatus, ReasonCount
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan, next_run
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.conditions import condition
from precision_operator.core.eligibility.request import ResolvedProfile
from precision_operator.core.observe.clock import format_time
from precision_operator.core.reasons import REASONS, Said, sentence
from precision_operator.core.results.outliers import Judged, Peers
from precision_operator.core.results.pool import Pool
from precision_operator.core.results.reading import Reading, number
from precision_operator.core.status.ended import ended
from precision_operator.core.status.node_readings import readings
from precision_operator.core.status.progress import eta, eta_text, keeps_from_measuring, waits_for
from precision_operator.core.status.yields import yield_rows

REASONS_SHOWN = 32
POOLS_SHOWN = PEERS_SHOWN = 64
OUTLIERS_SHOWN = 16
REFUSALS_SHOWN = 32
PLAN_FAILED = "PlanFailed"
TOLD = ("skipped", "failed")
"""States whose reasons a user wants to read, beside those of nodes that wait."""

_RELEASE = "Fix them, then release each with kubectl precision rerun NODE."

Phase = Literal["Pending", "Running", "Suspended", "Complete", "Degraded", "Invalid"]


def profile_status(
    plan: ProfilePlan, now: datetime, nodes_in_cluster: int, peers: Peers | None = None
) -> ProfileStatus:
    """The status of one profile, whole: what it says replaces what was there.

    `peers` are all results (`peers_of_all`); left out, the profile's alone.
    """
    if isinstance(plan.asked, Said) and REASONS[plan.asked.reason].undecided:
        return unplanned_status(plan, now, plan.asked.message, plan.asked.reason)
    before = status_before(plan)
    measured = readings(plan)
    peers = peers or Peers(measured)
    spec = plan.profile.spec
    judged = peers.judged(measured, spec.thresholds.slow_node_percent) if spec is not None else ()
    slow = tuple(node for node in judged if node.slow)
    counts = _counts(plan, measured, slow)
    pools, rows = _pools(measured, slow), peers.rows(measured)
    of = {node_state.facts.name: node_state for node_state in plan.node_states}
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
        last_run=max((reading.finished_at for reading in measured if reading.finished_at is not None), default=None),
        next_run=format_time(again) if (again := next_run(plan, now)) is not None else None,
        progress=f"{counts.succeeded + counts.failed}/{counts.eligible}",
        best=_best_text(largest),
        teraflops_per_gpu=decimal(number(largest.teraflops_per_gpu), 3) if largest is not None else None,
        tokens_per_joule=decimal(number(largest.tokens_per_joule), 3) if largest is not None else None,
        data=_data(measured),
        reasons=_reasons([*plan.node_states, *(of[node].waiting(alone) for node, alone in peers.alone(measured))]),
        refusals=_refusals(plan),
        yields=yield_rows(plan.yields),
        pools=tuple(pools),
        peers=tuple(rows[:PEERS_SHOWN]),
        peers_left_out=max(0, len(rows) - PEERS_SHOWN),
    )


def unplanned_status(plan: ProfilePlan, now: datetime, message: str, reason: str = PLAN_FAILED) -> ProfileStatus:
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


def _counts(plan: ProfilePlan, measured: Sequence[Reading], slow: Sequence[Judged]) -> NodeCounts:
    states, matched = Counter(node_state.state for node_state in plan.node_states), len(plan.node_states)
    statuses = (node_state.report.status for node_state in plan.node_states if node_state.report)
    verdicts = Counter(status.acceptance.verdict for status in statuses if status and status.acceptance)
    return NodeCounts(
        matched=matched,
        eligible=matched - states["skipped"],
        skipped=states["skipped"],
        waiting=states["waiting"],
        queued=states["queued"],
        running=states["running"],
        succeeded=states["succeeded"],
        failed=states["failed"],
        stale=sum(_again(node_state) for node_state in plan.node_states),
        slow=len(slow),
        fallback=sum(bool(reading.fallen_back) for reading in measured),
        throttled=sum(reading.throttled for reading in measured),
        accepted=verdicts["Pass"],
        not_accepted=verdicts["Fail"],
        quarantined=sum(map(_quarantined, plan.node_states)),
        simulated=sum(reading.made_up for reading in measured),
    )


def _quarantined(node_state: NodeState) -> bool:
    """Whether the node rests since its last runs all failed; the run that brought it there may still be the newest."""
    status = node_state.report.status if node_state.report is not None else None
    return node_state.reason == "Quarantined" or (status is not None and status.quarantine is not None)


def _again(node_state: NodeState) -> bool:
    """Whether the node is to be measured again, or is at it."""
    return node_state.current is not None and node_state.current.due not in (None, "FirstRun")


def _reasons(node_states: Iterable[NodeState]) -> tuple[ReasonCount, ...]:
    """Why nodes wait, are skipped or failed: most frequent first, bounded, an example for each."""
    groups = grouped(
        (node_state.reason, node_state)
        for node_state in node_states
        if node_state.state in TOLD or node_state.reason == "NoPeers" or keeps_from_measuring(node_state)
    )
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[:REASONS_SHOWN]
    return tuple(
        ReasonCount(
            reason=reason, count=len(group), example=group[0].facts.name, message=shortened(group[0].message, 1024)
        )
        for reason, group in ordered
    )


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


def _pools(measured: Sequence[Reading], slow: Sequence[Judged]) -> list[PoolStatus]:
    groups = grouped((reading.pool, reading) for reading in measured)
    largest = sorted(groups, key=lambda name: (-len(groups[name]), name))[:POOLS_SHOWN]
    return [_pool(name, groups[name], slow) for name in sorted(largest)]


def _pool(name: str, group: Sequence[Reading], slow: Sequence[Judged]) -> PoolStatus:
    pool = Pool(tuple(group))
    best = pool.best
    return PoolStatus(
        name=name[:253],
        nodes=len(group),
        best_recipe=best,
        best_recipe_by_energy=pool.best_by_energy,
        last_layers_bf16=pool.layers_bf16(best),
        speedup=decimal(pool.median("speedup", best)),
        teraflops_per_gpu=decimal(pool.median("teraflops_per_gpu", best)),
        tokens_per_second=decimal(pool.median("tokens_per_second", best)),
        tokens_per_joule_p10=decimal(pool.quantile("tokens_per_joule", best, 0.1)),
        tokens_per_joule=decimal(pool.median("tokens_per_joule", best)),
        tokens_per_joule_p90=decimal(pool.quantile("tokens_per_joule", best, 0.9)),
        watts=decimal(pool.median("watts", best)),
        fallback_nodes=sum(bool(reading.fallen_back) for reading in group),
        throttled_nodes=sum(reading.throttled for reading in group),
        slow_nodes=tuple(node.node for node in slow if node.pool == name)[:OUTLIERS_SHOWN],
        simulated=any(reading.made_up for reading in group),
    )


def _data(measured: Sequence[Reading]) -> str | None:
    """What the figures are, for kubectl's column."""
    if not measured:
        return None
    made_up = sum(reading.made_up for reading in measured)
    if made_up:
        return f"SIMULATED ({made_up}/{len(measured)})"
    trials = sum(reading.data == "trial" for reading in measured)
    return f"TRIAL ({trials}/{len(measured)})" if trials else "measured"


def _best_text(pool: PoolStatus | None) -> str | None:
    if pool is None or pool.best_recipe is None:
        return None
    return recipe_text(pool.best_recipe, number(pool.speedup), pool.last_layers_bf16)


def _conditions(
    plan: ProfilePlan,
    counts: NodeCounts,
    measured: Sequence[Reading],
    before: ProfileStatus,
    now: datetime,
    nodes_in_cluster: int,
) -> tuple[Condition, ...]:
    complete = _complete(plan, counts, before, nodes_in_cluster)
    end = ended(plan, counts, measured, complete)
    rows = [
        (names.ACCEPTED, *_accepted(plan)),
        (names.PROGRESSING, *_progressing(plan, counts)),
        (names.COMPLETE, *complete),
        (names.DEGRADED, *_degraded(plan, counts)),
    ]
    if end is not None:
        rows.append((end.condition, True, end.reason, end.message))
    generation = plan.profile.generation
    return tuple(condition(before.conditions, *row, now=now, generation=generation) for row in rows)


def _accepted(plan: ProfilePlan) -> tuple[bool, str, str]:
    if isinstance(plan.asked, Said):
        return False, plan.asked.reason, plan.asked.message
    return True, "Accepted", "The spec is understood and can be measured."


def _progressing(plan: ProfilePlan, counts: NodeCounts) -> tuple[bool, str, str]:
    if isinstance(plan.asked, Said):
        return False, "NotAccepted", plan.asked.message
    if plan.profile.spec is not None and plan.profile.spec.suspend:
        return False, "Suspended", _suspended(counts)
    if counts.running or counts.queued:
        return True, "Measuring", _measuring(counts)
    refused = _refused(plan, counts)
    return (False, *refused) if refused else (False, "Idle", "Nothing to do now.")


def _complete(
    plan: ProfilePlan, counts: NodeCounts, before: ProfileStatus, nodes_in_cluster: int
) -> tuple[bool, str, str]:
    """True when no node is queued or running; it stays True within a run when a waiting node gets its turn later.

    A node that is measured again (a schedule, a rerun, another driver) turns it False: what stands is out of date.
    """
    if isinstance(plan.asked, Said):
        return False, "NotAccepted", plan.asked.message
    if counts.queued or counts.running:
        old = next((c for c in before.conditions if c.type == names.COMPLETE), None)
        if (
            old is not None
            and old.status == "True"
            and old.reason != "NothingEligible"
            and before.run == plan.asked.run
            and not any(state.state in ("queued", "running") and _again(state) for state in plan.node_states)
        ):
            return True, old.reason, old.message
        if plan.profile.spec is not None and plan.profile.spec.suspend:
            return False, "Suspended", _suspended(counts)
        return False, "Measuring", _measuring(counts)
    held = _held_up(plan, counts)
    return (False, *held) if held else (True, *_how_complete(plan, counts, nodes_in_cluster))


def _measuring(counts: NodeCounts) -> str:
    return f"Nodes being measured: {counts.running}; waiting their turn: {counts.queued}."


def _suspended(counts: NodeCounts) -> str:
    finish = f"Agents that still run and finish: {counts.running}. " if counts.running else ""
    return f"{finish}No new ones start; nodes that wait: {counts.queued}. Set spec.suspend to false to continue."


def _held_up(plan: ProfilePlan, counts: NodeCounts) -> tuple[str, str] | None:
    """Why a profile of which no node has its turn is not complete: it has stopped, or has not begun yet."""
    for reason in ("CanaryFailed", "TooManyFailures"):
        stopped = next((node_state for node_state in plan.node_states if node_state.reason == reason), None)
        if stopped is not None:
            return reason, stopped.message
    refused = _refused(plan, counts)
    if refused is not None:
        return refused
    first = next((node_state for node_state in plan.node_states if node_state.reason == "NotDueYet"), None)
    return ("NotDueYet", first.message) if first is not None and not counts.succeeded and not counts.failed else None


def _refused(plan: ProfilePlan, counts: NodeCounts) -> tuple[str, str] | None:
    """The refusal that keeps a profile from going on: it concerns all nodes, or no node was done before it."""
    states = [node_state for node_state in plan.node_states if node_state.reason in RULES]
    if not states:
        return None
    reason = Counter(node_state.reason for node_state in states).most_common(1)[0][0]
    if not RULES[reason].whole and (counts.succeeded or counts.failed):
        return None
    return reason, next(node_state.message for node_state in states if node_state.reason == reason)


def _how_complete(plan: ProfilePlan, counts: NodeCounts, nodes_in_cluster: int) -> tuple[str, str]:
    if not counts.matched:
        return "NothingEligible", sentence("NoNodesMatch", nodes=nodes_in_cluster)
    if not counts.eligible:
        example = _example(plan, "skipped")
        return "NothingEligible", sentence("NothingEligible", matched=counts.matched, example=example)
    if counts.failed:
        facts = {"failed": counts.failed, "count": counts.eligible, "example": _example(plan, "failed")}
        return "SomeFailed", sentence("SomeFailed", **facts)
    if counts.waiting:
        example = _example(plan, "waiting")
        measured = {"measured": counts.succeeded, "count": counts.eligible, "waiting": counts.waiting}
        return "SomeWaiting", sentence("SomeWaiting", example=example, **measured)
    return "AllMeasured", sentence("AllMeasured", count=counts.eligible)


def _example(plan: ProfilePlan, state: str) -> str:
    group = [s for s in plan.node_states if s.state == state]
    reason, count = Counter(s.reason for s in group).most_common(1)[0]
    return f"{reason} ({count}, e.g. {next(s.facts.name for s in group if s.reason == reason)})"


def _degraded(plan: ProfilePlan, counts: NodeCounts) -> tuple[bool, str, str]:
    refused = [s for s in plan.node_states if s.reason in RULES and RULES[s.reason].degrades]
    if refused and not counts.failed:
        text = f"Nodes without an agent: {len(refused)}, e.g. {refused[0].facts.name}. {refused[0].message}"
        return True, refused[0].reason, text
    if counts.quarantined and not counts.failed:
        example = next(node_state for node_state in plan.node_states if _quarantined(node_state))
        text = f"Quarantined nodes: {counts.quarantined}, e.g. {example.facts.name}. {_RELEASE}"
        return True, "NodesQuarantined", text
    if not counts.failed:
        return False, "NoFailures", "No node has failed."
    facts = {"failed": counts.failed, "count": counts.eligible, "example": _example(plan, "failed")}
    return True, "NodesFailed", sentence("SomeFailed", **facts)


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
