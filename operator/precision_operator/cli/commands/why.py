"""`kubectl precision why NODE`: where a node stands in each profile, why, and what to do next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Annotated, Any

import typer

from precision_api.facts.names import DEFAULT_POOL_LABEL
from precision_api.facts.recipes import recipe_name
from precision_api.kinds.report import ReportAcceptance, ReportAttempt
from precision_operator.cli.columns import Column, Columns, as_cells, as_row, keys
from precision_operator.cli.condition_words import ACTS, SEE, condition_said, headline
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.gathering import Seen, gathered
from precision_operator.cli.object_ref import bare_node
from precision_operator.cli.options import AllNamespaces, FormOf, Namespace, OfProfile, Reach, asks_cluster
from precision_operator.cli.output import OutputFormat, as_columns, printed, wrapped
from precision_operator.cli.results import node_name, unserved
from precision_operator.cli.terminal import did_you_mean, fail, no_profile, note, say
from precision_operator.cluster import paths
from precision_operator.core.results.outliers import Judged
from precision_operator.core.results.slowness import PeerComparison
from precision_operator.core.status.why import NodeAnswer, why


@asks_cluster
def why_node(
    node: Annotated[str, typer.Argument(help="A node: NAME or node/NAME.", callback=bare_node)],
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = True,
    profile: OfProfile = None,
    plan: Annotated[bool, typer.Option("--plan", help="Read the whole fleet, and plan as the operator does.")] = False,
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Say where a node stands in each profile, why, and what to do next; of all namespaces unless -n names one."""
    seen = ask_cluster(reach, lambda cluster: gathered(cluster, namespace, node, plan))
    note(*seen.notes)
    readable = [answer for answer in why(seen.plan, seen.observed, node) if answer.profile.uid not in seen.unread]
    answers = [answer for answer in readable if namespace in (None, answer.profile.namespace)]
    chosen = [answer for answer in answers if profile in (None, answer.profile.name)]
    _check(node, namespace, profile, seen, reach)
    there = seen.observed.facts_of(DEFAULT_POOL_LABEL).values()
    condition = next((condition_said(facts) for facts in there if facts.name == node), None)
    asking = [it for it in readable if it.profile.spec is not None and it.profile.spec.acceptance is not None]
    if condition is not None and asking and all(it.kind == "unmatched" for it in asking):
        condition["next"] = f"no run: profile {asking[0].profile.key} leaves it out: {asking[0].message}"
    said, table = _on_node(node, condition), columns(node, condition)
    rows = [as_row(table, answer) for answer in chosen]
    say(printed(rows, output, lambda more: said + (wide if more else text)(node, chosen), rows, keys(table)))


def _check(node: str, namespace: str | None, profile: str | None, seen: Seen, reach: Reach) -> None:
    """Ends the command where there is no such node or profile, with the names that may be meant."""
    nodes = [node_name(raw) for raw in seen.observed.nodes.values()]
    if node not in (*nodes, *(report.node_name for report in seen.observed.reports)):
        nodes = ask_cluster(reach, lambda cluster: cluster.list_views(paths.NODES, node_name))
        fail(f"there is no node {node}{did_you_mean(node, nodes, 'See kubectl get nodes')}")
    profiles = [p.name for p in seen.observed.profiles if namespace in (None, p.namespace)]
    if profile is not None and profile not in profiles:
        no_profile(profile, profiles, namespace)


def wide(node: str, answers: Sequence[NodeAnswer]) -> str:
    """A line for each profile, for those who have many."""
    if not answers:
        return text(node, answers)
    table = columns(node)
    return as_columns([as_cells(table, as_row(table, answer)) for answer in answers])


def _share(standing: Mapping[str, Any] | None) -> str | None:
    """`83.1%, slow`."""
    if standing is None:
        return None
    return f"{standing['ofMedian']:.1%}{', slow' if standing['slow'] else ''}"


def text(node: str, answers: Sequence[NodeAnswer]) -> str:
    """A paragraph for each profile, headed by profile, state and reason."""
    if not answers:
        return f"Node {node}: there is no profile to measure it. Create one: kubectl explain pp.spec"
    return "\n\n".join(_head(answer) + _titled(_lines(answer)) for answer in answers)


def _on_node(node: str, condition: Mapping[str, Any] | None) -> str:
    """A paragraph with what the Node's condition says, which comes first; nothing where it has none."""
    if condition is None:
        return ""
    lines = [(title, condition[title]) for title in ("since", "message", "next")]
    return f"Node {node}: ComputeAccepted is {headline(condition)}{_titled(lines)}\n\n"


def _titled(lines: Iterable[tuple[str, str]]) -> str:
    return "".join(f"\n{wrapped(f'  {title:<13}{words}', 15)}" for title, words in lines)


def _head(answer: NodeAnswer) -> str:
    """What comes first: that the node is slow, where it is."""
    state, standing = f"{answer.kind}, {answer.reason}\n  {answer.message}", answer.standing
    if standing is None or not standing.judged.slow:
        return wrapped(f"{answer.profile.key}: {state}", 2)
    acceptance = answer.past.acceptance
    to_do = () if acceptance is not None and acceptance.verdict == "Fail" else (standing.to_do,)
    lines = (standing.headline, standing.cost, f"{standing.reason}: {standing.what}", *to_do, state)
    return wrapped(", ".join((answer.profile.key, *_made_up(answer))) + ": " + "\n  ".join(lines), 2)


def _made_up(answer: NodeAnswer) -> tuple[str, ...]:
    """What the result is in capitals where nobody measured it on a GPU."""
    return () if answer.past.data in (None, "measured") else (answer.past.data.upper(),)


def _lines(answer: NodeAnswer) -> Iterator[tuple[str, str]]:
    """(title, words) of what led to where the node stands."""
    past = answer.past
    if answer.way == "claim":
        yield "GPUs", f"{answer.gpus} by resource claim (DRA)"
    if answer.blocked_by:
        yield "blocked by", ", ".join(answer.blocked_by)
    if answer.job is not None:
        yield "job", f"{answer.profile.namespace}/{answer.job}"
    if answer.due is not None:
        yield "due", f"{answer.due}: {answer.due_message}"
    yield from (("gave way", words) for words in answer.yielded)
    if past.attempt is not None:
        yield "last attempt", _attempt(past.attempt, answer.message)
        yield from zip(chain(("log",), repeat("")), (past.attempt.log or "").splitlines(), strict=False)
    if past.result_at is not None:
        yield "last result", ", ".join((past.result_at, f"in {past.report}", *_made_up(answer)))
    said = (("best", past.best), ("best", past.no_best and f"none: {past.no_best}"), ("risk", past.risk))
    yield from ((title, words) for title, words in said if words)
    if answer.standing is not None and not answer.standing.judged.slow:
        yield "not slow", _stands(answer.standing.judged)
    if answer.no_peers:
        yield "not compared", f"NoPeers: {answer.no_peers}"
    if past.detail_problem is not None:
        yield "no detail", past.detail_problem
    if (stale := past.stale) is not None:
        yield "stale since", f"{stale.last_transition_time}, {stale.reason}: {stale.message}"
    if (held := past.quarantine) is not None:
        yield "quarantined", f"since {held.since}, {_named(held.reason, held.message)}"
    if not answer.judged and answer.kind != "unmatched":
        yield "note", unserved(answer.profile.namespace)
    if past.acceptance is not None and past.acceptance.verdict is not None:
        yield from _verdict(past.acceptance)


AGAINST: Mapping[str, str] = {
    "reference": "the golden nodes", "node": "the median of the node's other GPUs", "change": "its own first Pass",
}  # fmt: skip


def _verdict(acceptance: ReportAcceptance) -> Iterator[tuple[str, str]]:
    """What fails, or comes closest to it; by how much; against what; and the one thing to do."""
    until = f", until {acceptance.valid_until}" if acceptance.verdict == "Pass" and acceptance.valid_until else ""
    said, worst = f"{acceptance.verdict}{until}, {acceptance.reason}", next(iter(acceptance.worst), None)
    if worst is None or acceptance.reference is None or acceptance.verdict == "Inconclusive":
        yield "verdict", f"{said}: {acceptance.message}"
    else:
        what = f"GPU {worst.number} ({worst.gpu}, PCI {worst.pci or 'unknown'})" if worst.gpu else "the node"
        yield "verdict", f"{said}{':' if acceptance.failing else '; worst:'} {what}"
        limit = "nothing can be promised" if worst.limit is None else f"it fails at {-worst.limit:+.1f} %"
        yield "by", f"{worst.off:+.1f} % with {recipe_name(worst.recipe)}; {limit}"
        name, sha256 = acceptance.reference.name, acceptance.reference.sha256
        yield "against", f"{AGAINST[worst.check]}, by reference {name} ({sha256[:12]})"
    yield "do", ACTS.get(acceptance.reason, SEE)


def _stands(judged: Judged) -> str:
    share = f"{judged.relative:.1%} of the median of {judged.reference} comparable nodes ({recipe_name(judged.recipe)})"
    if judged.limit <= 0:
        return f"{share}, which differ too much among themselves to call one of them slow"
    return f"{share}; below {judged.limit:.1%} is slow"


def _attempt(attempt: ReportAttempt, shown: str) -> str:
    """How it ended, without its message where that is `shown` already."""
    what = f"number {attempt.number} of run {attempt.run} {attempt.outcome} at {attempt.finished_at}"
    message = None if attempt.message == shown else attempt.message
    return f"{what}, {_named(attempt.reason, message)}" if attempt.reason else what


def _named(reason: str, message: str | None) -> str:
    return f"{reason}: {message}" if message else reason


def columns(node: str, condition: Mapping[str, Any] | None = None) -> Columns[NodeAnswer]:
    """What is told of the node's answers; absent is null."""
    return (
        Column("node", lambda _: node),
        Column("nodeCondition", lambda _: condition),
        Column("namespace", lambda answer: answer.profile.namespace),
        Column("profile", lambda answer: answer.profile.name),
        Column(header="profile", cell=lambda row: f"{row['namespace']}/{row['profile']}"),
        Column("state", lambda answer: answer.kind, "state"),
        Column("reason", lambda answer: answer.reason, "reason"),
        Column("message", lambda answer: answer.message),
        Column("gpus", lambda answer: answer.gpus or None),
        Column("gpusBy", lambda answer: answer.way),
        Column(header="of median", cell=lambda row: _share(row["standing"])),
        Column("blockedBy", lambda answer: list(answer.blocked_by)),
        Column(header="blocked by", cell=lambda row: ", ".join(row["blockedBy"])),
        Column("job", lambda answer: answer.job, "job"),
        Column("due", lambda answer: {"reason": answer.due, "message": answer.due_message} if answer.due else None),
        Column("yields", lambda answer: list(answer.yielded) or None),
        Column("attempt", lambda answer: _json(answer.past.attempt)),
        Column("resultAt", lambda answer: answer.past.result_at),
        Column("report", lambda answer: answer.past.report),
        Column("best", lambda answer: answer.past.best),
        Column("noBest", lambda answer: answer.past.no_best),
        Column("risk", lambda answer: answer.past.risk),
        Column("standing", lambda answer: _standing(answer.standing)),
        Column("noPeers", lambda answer: answer.no_peers or None),
        Column("detailProblem", lambda answer: answer.past.detail_problem),
        Column("stale", lambda answer: _json(answer.past.stale)),
        Column("acceptance", lambda answer: _json(answer.past.acceptance)),
        Column("quarantine", lambda answer: _json(answer.past.quarantine)),
        Column("judged", lambda answer: answer.judged),
        Column(header="message"),
    )


def _standing(standing: PeerComparison | None) -> dict[str, Any] | None:
    """Shares of the median as numbers; reason and message are null where the node is not slow."""
    if standing is None:
        return None
    judged = standing.judged
    return {
        "ofMedian": round(judged.relative, 5),
        "slow": judged.slow,
        "slowBelow": round(judged.limit, 5) if judged.limit > 0 else None,
        "recipe": judged.recipe,
        "comparedNodes": judged.reference,
        "reason": standing.reason or None,
        "message": standing.message or None,
    }


def _json(document: Any) -> Any:
    return None if document is None else document.model_dump(mode="json", by_alias=True, exclude_none=True)
