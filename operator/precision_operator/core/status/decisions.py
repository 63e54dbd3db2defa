"""What a plan would do to each node now, and why: the rows of `dry-run`, which `doctor` counts by reason."""

from collections.abc import Mapping
from typing import Any

from precision_api.facts.names import LABEL_ATTEMPT
from precision_api.kinds.profile import ProfileSpec
from precision_operator.core.attempts.actions import Close, Start
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan
from precision_operator.core.eligibility.checks import mismatch, offer
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import Observed, Occupancy
from precision_operator.core.plan import Plan
from precision_operator.core.reasons import REASONS, Kind, sentence
from precision_operator.core.status.why import why

GONE = "gone"
"""The decision about a node that is not there any more."""
WOULD_START = "WouldStart"
"""The reason of a node on which an agent would start if the profile were applied now."""
DECISIONS: Mapping[Kind, str] = {
    "running": "run",
    "queued": "queue",
    "waiting": "wait",
    "skipped": "skip",
    "succeeded": "done",
    "failed": "failed",
    "unmatched": "ignore",
}
"""What is decided about a node, in one word, by the kind of its reason."""


def rows(planned: ProfilePlan, decided: Plan, seen: Observed) -> list[dict[str, Any]]:
    """A row for every node, matched or not, and for those that are gone; with what only -o wide shows.

    None for a profile that can't be read: nobody knows which nodes it means.
    """
    uid, spec = planned.profile.uid, planned.profile.spec
    if spec is None:
        return []
    starts = {a.facts.uid: a for a in decided.actions if isinstance(a, Start) and a.profile.uid == uid}
    closings = {a.job.node_uid: a for a in decided.actions if isinstance(a, Close) and a.job.profile_uid == uid}
    node_states = {node_state.facts.uid: node_state for node_state in planned.node_states}
    there = []
    for node in seen.facts_of(spec.pool_label).values():
        node_state = node_states.get(node.uid)
        act = starts.get(node.uid) or closings.get(node.uid)
        reason, message = _decided(node, node_state, act, spec, seen.occupancy.get(node.name))
        there.append(
            {
                "node": node.name,
                "decision": DECISIONS[REASONS[reason].kind] if reason != WOULD_START else "run",
                "reason": reason,
                "message": message,
                "product": node.gpu or "",
                "gpus": node.gpus,
                "by": node.way if node.gpus else "",
                "pool": node.pool,
                "due": _due(node_state) or "",
            }
        )
    return there + _gone(planned, decided, seen)


def _gone(planned: ProfilePlan, decided: Plan, seen: Observed) -> list[dict[str, Any]]:
    """What is left of nodes that are not there any more: their reports and Jobs."""
    there = {str(raw["metadata"]["name"]) for raw in seen.nodes.values()}
    left = [r.node_name for r in seen.reports if r.profile_uid == planned.profile.uid]
    left += [job.node_name for job in seen.jobs if job.profile_uid == planned.profile.uid]
    unknown: dict[str, Any] = {"product": "", "gpus": 0, "by": "", "pool": "", "due": ""}
    return [
        {"node": node, "decision": GONE, "reason": answer.reason, "message": answer.message} | unknown
        for node in sorted(set(left) - there)
        for answer in why(decided, seen, node)
        if answer.profile.uid == planned.profile.uid
    ]


def _decided(
    facts: NodeFacts, node_state: NodeState | None, act: Start | Close | None, spec: ProfileSpec, look: Occupancy | None
) -> tuple[str, str]:
    """(reason, message): what is about to happen to the node first, then where it stands; busy before a place taken."""
    if isinstance(act, Start):
        return WOULD_START, _would_start(facts, node_state, act, spec)
    if node_state is None:
        return "NotMatched", sentence("NotMatched", why=mismatch(spec.target, facts))
    if act is not None:
        return act.reason, act.message
    is_busy = spec.idle.required and look is not None and look.holder is not None
    if is_busy and look is not None and REASONS[node_state.reason].place_taken:
        return "Busy", sentence("Busy", pod=f"pod {look.holder}", gpus=look.gpus)
    return node_state.reason, node_state.message


def _would_start(facts: NodeFacts, node_state: NodeState | None, start: Start, spec: ProfileSpec) -> str:
    attempt = start.job["metadata"]["labels"][LABEL_ATTEMPT]
    idle = ", idle" if spec.idle.required else ""
    queue = spec.agent.queue_name
    does = f"be handed to Kueue's queue {queue}" if queue else "start"
    begins = node_state.current.begins if node_state is not None and node_state.current is not None else None
    due, again = _due(node_state), ""
    if due and begins is not None:  # without its next step: the node would be measured at once
        again = f" ({due}: {begins.message.removesuffix(REASONS[due].next_step).strip().removesuffix('.')})"
    return f"{offer(facts)}{idle}: attempt {attempt} would {does} now{again}."


def _due(node_state: NodeState | None) -> str | None:
    """Why a node is measured again; None where it is not, or for the first time."""
    due = node_state.current.due if node_state is not None and node_state.current is not None else None
    return None if due == "FirstRun" else due
