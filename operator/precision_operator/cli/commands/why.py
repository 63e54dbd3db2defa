"""`kubectl precision why NODE`: where a node stands in each profile, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Annotated, Any

import typer

from precision_api.report import ReportAttempt
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.failure import did_you_mean, fail, note
from precision_operator.cli.gathering import Seen, gathered
from precision_operator.cli.object_ref import bare_node
from precision_operator.cli.options import (
    AllNamespaces,
    Context,
    FormOf,
    Kubeconfig,
    Namespace,
    OfProfile,
    Reach,
    RequestTimeout,
)
from precision_operator.cli.output import OutputFormat, as_columns, printed, say
from precision_operator.core.status.why import NodeAnswer, PeerComparison, why


def why_node(
    node: Annotated[str, typer.Argument(help="A node: NAME or node/NAME.", callback=bare_node)],
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = True,
    profile: OfProfile = None,
    output: FormOf = OutputFormat.TABLE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = "30s",
) -> None:
    """Say where a node stands in each profile, why, and what to do next; of all namespaces unless -n names one."""
    seen = ask_cluster(Reach(kubeconfig, context, request_timeout), lambda cluster: gathered(cluster, namespace, node))
    for told in seen.notes:
        note(told)
    known = [answer for answer in why(seen.plan, seen.observed, node) if answer.profile.uid not in seen.unread]
    answers = [answer for answer in known if namespace in (None, answer.profile.namespace)]
    chosen = [answer for answer in answers if profile in (None, answer.profile.name)]
    _check(node, namespace, profile, seen)
    rows = [row(node, answer) for answer in chosen]
    people = {False: lambda: text(node, chosen), True: lambda: wide(node, chosen)}
    say(printed(rows, output, lambda more: people[more](), rows, COLUMNS))


def _check(node: str, namespace: str | None, profile: str | None, seen: Seen) -> None:
    """Ends the command where there is no such node or profile, with the names that may be meant."""
    nodes = [str(raw["metadata"]["name"]) for raw in seen.observed.nodes.values()]
    gone = [report.node_name for report in seen.observed.reports]
    if node not in (*nodes, *gone):
        fail(f"there is no node {node}{did_you_mean(node, nodes, 'See kubectl get nodes')}")
    profiles = [p.name for p in seen.observed.profiles if namespace in (None, p.namespace)]
    if profile is not None and profile not in profiles:
        place = f" in namespace {namespace}" if namespace else ""
        fail(f"there is no profile {profile}{place}{did_you_mean(profile, profiles, 'See kubectl get pp -A')}")


def wide(node: str, answers: Sequence[NodeAnswer]) -> str:
    """A line for each profile, for those who have many."""
    if not answers:
        return text(node, answers)
    return as_columns(
        [
            {
                "profile": answer.profile.key,
                "state": answer.kind,
                "reason": answer.reason,
                "of median": _share(answer.standing),
                "blocked by": ", ".join(answer.blocked_by),
                "job": answer.job,
                "message": answer.message,
            }
            for answer in answers
        ]
    )


def _share(standing: PeerComparison | None) -> str | None:
    """`83.1%, slow`."""
    if standing is None:
        return None
    return f"{standing.judged.relative:.1%}{', slow' if standing.judged.slow else ''}"


def text(node: str, answers: Sequence[NodeAnswer]) -> str:
    """A paragraph for each profile, headed by profile, state and reason."""
    if not answers:
        return f"Node {node}: there is no profile to measure it. Create one: kubectl explain pp.spec"
    return "\n\n".join("\n".join(_paragraph(answer)) for answer in answers)


def _paragraph(answer: NodeAnswer) -> Iterator[str]:
    yield f"{answer.profile.key}: {answer.kind}, {answer.reason}"
    yield f"  {answer.message}"
    for title, words in _lines(answer):
        yield f"  {title:<13}{words}"


def _lines(answer: NodeAnswer) -> Iterator[tuple[str, str]]:
    """(title, words) of what led to where the node stands."""
    if answer.way == "claim":
        yield "GPUs", f"{answer.gpus} by resource claim (DRA)"
    if answer.blocked_by:
        yield "blocked by", ", ".join(answer.blocked_by)
    if answer.job is not None:
        yield "job", f"{answer.profile.namespace}/{answer.job}"
    if answer.due is not None:
        yield "due", f"{answer.due}: {answer.due_message}"
    yield from (("gave way", words) for words in answer.yielded)
    if answer.past.attempt is not None:
        yield "last attempt", _attempt(answer.past.attempt, answer.message)
        yield from zip(chain(("log",), repeat("")), (answer.past.attempt.log or "").splitlines(), strict=False)
    if answer.past.result_at is not None:
        yield "last result", f"{answer.past.result_at}, in {answer.past.report}"
    if answer.standing is not None:
        yield ("slow" if answer.standing.judged.slow else "not slow"), _stands(answer.standing)
    if answer.past.detail_problem is not None:
        yield "no detail", answer.past.detail_problem
    if answer.past.stale is not None:
        yield (
            "stale since",
            f"{answer.past.stale.last_transition_time}, {answer.past.stale.reason}: {answer.past.stale.message}",
        )
    if answer.past.quarantine is not None:
        held = answer.past.quarantine
        yield "quarantined", f"since {held.since}, {_named(held.reason, held.message)}"
    if not answer.judged and answer.kind != "unmatched":
        yield "note", unserved(answer.profile.namespace)


def unserved(namespace: str) -> str:
    """What to look at when a profile's status is not of its present spec."""
    return (
        f"The operator has not judged the profile as it is now. If that stays so, see whether it runs and watches "
        f"namespace {namespace} (chart value watchNamespaces)."
    )


def _stands(standing: PeerComparison) -> str:
    one = standing.judged
    if one.slow:
        return f"{standing.reason}: {standing.message}"
    told = f"{one.relative:.1%} of the median of {one.reference} comparable nodes ({one.recipe})"
    if one.limit <= 0:
        return f"{told}, which differ too much among themselves to call one of them slow"
    return f"{told}; below {one.limit:.1%} is slow"


def _attempt(attempt: ReportAttempt, shown: str) -> str:
    """How it ended, without its message where that is `shown` already."""
    what = f"number {attempt.number} of run {attempt.run} {attempt.outcome} at {attempt.finished_at}"
    message = None if attempt.message == shown else attempt.message
    return f"{what}, {_named(attempt.reason, message)}" if attempt.reason else what


def _named(reason: str, message: str | None) -> str:
    return f"{reason}: {message}" if message else reason


COLUMNS = (
    "node",
    "namespace",
    "profile",
    "state",
    "reason",
    "message",
    "blockedBy",
    "job",
    "due",
    "attempt",
    "resultAt",
    "report",
    "standing",
    "detailProblem",
    "stale",
    "quarantine",
    "judged",
)


def row(node: str, answer: NodeAnswer) -> dict[str, Any]:
    """The answer for programs: absent is null."""
    attempt, stale, held = answer.past.attempt, answer.past.stale, answer.past.quarantine
    return {
        "node": node,
        "namespace": answer.profile.namespace,
        "profile": answer.profile.name,
        "state": answer.kind,
        "reason": answer.reason,
        "message": answer.message,
        "gpus": answer.gpus or None,
        "gpusBy": answer.way,
        "blockedBy": list(answer.blocked_by),
        "job": answer.job,
        "due": {"reason": answer.due, "message": answer.due_message} if answer.due else None,
        "yields": list(answer.yielded) or None,
        "attempt": _json(attempt),
        "resultAt": answer.past.result_at,
        "report": answer.past.report,
        "standing": _standing(answer.standing),
        "detailProblem": answer.past.detail_problem,
        "stale": _json(stale),
        "quarantine": _json(held),
        "judged": answer.judged,
    }


def _standing(standing: PeerComparison | None) -> dict[str, Any] | None:
    """Shares of the median as numbers; reason and message are null where the node is not slow."""
    if standing is None:
        return None
    one = standing.judged
    return {
        "ofMedian": round(one.relative, 5),
        "slow": one.slow,
        "slowBelow": round(one.limit, 5) if one.limit > 0 else None,
        "recipe": one.recipe,
        "comparedNodes": one.reference,
        "reason": standing.reason or None,
        "message": standing.message or None,
    }


def _json(document: Any) -> Any:
    return None if document is None else document.model_dump(mode="json", by_alias=True, exclude_none=True)
