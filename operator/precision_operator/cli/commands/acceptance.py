"""`kubectl precision acceptance`: what the verdict has done to each pool, what it would do, and how long that takes."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from precision_api.facts.names import grouped
from precision_operator.cli.columns import Column, Columns, as_cells, keys
from precision_operator.cli.condition_words import sentences
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.gathering import facts_of_nodes
from precision_operator.cli.options import FormOf, Namespace, OfProfile, Reach, asks_cluster
from precision_operator.cli.output import OutputFormat, as_columns, printed, wrapped
from precision_operator.cli.results import of_profile, results
from precision_operator.cli.terminal import fail, note, say
from precision_operator.cluster import Cluster
from precision_operator.core.admission.limits import concurrency_limit
from precision_operator.core.eligibility.checks import decide, matches
from precision_operator.core.eligibility.proved import changed_subject, waits_for_verdict
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import ProfileView, ReportView

USUAL_RUN = 600.0  # seconds of one agent, where none has given a result yet


@asks_cluster
def acceptance(
    namespace: Namespace = None, profile: OfProfile = None, output: FormOf = OutputFormat.TABLE, *, reach: Reach
) -> None:
    """Count each pool's nodes by their condition ComputeAccepted, and by what the newest verdicts would make of it."""

    async def work(cluster: Cluster) -> tuple[ProfileView, Sequence[ReportView], Sequence[NodeFacts]]:
        there = await results(cluster, namespace or cluster.namespace)
        asking = [it for it in there.profiles if it.spec is not None and it.spec.acceptance is not None]
        targets = [it.spec.target for it in asking if it.spec is not None]
        chosen = [it for it in asking if profile in (None, it.name)]
        if len(chosen) != 1 or chosen[0].spec is None:
            names = ", ".join(it.name for it in asking) or "none has"
            fail(f"--profile: name a profile that has spec.acceptance{there.where}: {names}")
        target, label = chosen[0].spec.target, chosen[0].spec.pool_label
        notes = list[str]()
        facts = await facts_of_nodes(cluster, chosen[0].namespace, label, notes)
        within = [it for it in facts if it.evidence and matches(target, it)]
        judged = {it.uid for it in facts if it.verdict.status} | {it.uid for it in within}  # perhaps by another profile
        if outside := sum(it.evidence is not None and it.uid not in judged for it in facts):
            note(f"Nodes with GPUs outside the profile's target, which no verdict opens: {outside}.")
        left = sorted(f.name for f in facts if f.verdict.status and not any(matches(t, f) for t in targets))
        if left:
            named = ", ".join(left[:5]) + ", ..." * (len(left) > 5)
            lack = f"have the condition and no profile with spec.acceptance{there.where} matches them"
            note(f"{len(left)} {lack}, so that no run renews it: {named}: kubectl precision why {left[0]}")
        note(*notes, *["The profile is suspended: nothing is measured."] * chosen[0].spec.suspend)
        return chosen[0], of_profile(there.reports, chosen[0]), within

    owner, reports, nodes = ask_cluster(reach, work)
    rows = _rows(owner, reports, nodes)
    say(printed(rows, output, lambda wide: _text(rows), rows, keys(COLUMNS)))
    if rows and all(row["neverJudged"] == row["nodes"] for row in rows):
        note("No Node has the condition: the chart value acceptance.nodeCondition.enabled has it written.")


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The pools, then what the conditions of each say, and what changes them."""
    says = (wrapped(f"{row['pool']}: {sentence}", 2) for row in rows for sentence in row["conditions"])
    return "\n".join((as_columns([as_cells(COLUMNS, row) for row in rows]), *says))


def _rows(owner: ProfileView, reports: Iterable[ReportView], nodes: Collection[NodeFacts]) -> list[dict[str, Any]]:
    """A row for each pool; they share the concurrency. A run takes as long as the median of those that gave results."""
    spec = owner.spec
    assert spec is not None, "it asks for a verdict"
    statuses = {it.node_uid: it.status for it in reports if it.status is not None}
    verdicts = {uid: status.acceptance.verdict for uid, status in statuses.items() if status.acceptance is not None}
    seconds = [float(status.run.duration_seconds) for status in statuses.values() if status.run is not None]
    run, rows = median(seconds or [USUAL_RUN]), list[dict[str, Any]]()
    at_once = max(1, concurrency_limit(spec.rollout.max_concurrent, len(nodes)))
    named = {it.uid: {*it.verdict.parts.get("failed", "").split(", ")} for it in nodes}
    held = {uid for uid, names in named.items() if names - {"", f"{owner.namespace}/{owner.name}"}}  # by other profiles
    waiting = ("", "SubjectChanged")  # where another verdict stands, be it no Pass, no run begins by itself
    said = {it.uid: decide(it, spec.target) for it in nodes if waits_for_verdict(it)}
    # The operator may tolerate any taint.
    skipped = {uid: it.reason for uid, it in said.items() if it.kind == "skipped" and it.reason != "UntoleratedTaint"}
    due = {it.uid for it in nodes if it.verdict.reason in waiting or "after" in it.verdict.parts or changed_subject(it)}
    due -= skipped.keys()
    minutes = math.ceil(math.ceil(len(due) / at_once) * run / 60)
    for pool, there in sorted(grouped((facts.pool, facts) for facts in nodes).items()):
        tally = Counter(it.verdict.status for it in there)
        passed = [it.verdict.status for it in there if verdicts.get(it.uid) == "Pass" and it.uid not in held]
        failed = [it.verdict.status for it in there if verdicts.get(it.uid) == "Fail"]
        reasons = grouped((skipped[it.uid], it.name) for it in there if it.uid in skipped)
        never = [f"{len(of)} can't be measured, {why}: kubectl precision why {min(of)}" for why, of in reasons.items()]
        rows.append({
            "pool": pool, "nodes": len(there), "true": tally["True"],
            "stale": sum(it.verdict.status == "True" and bool(changed_subject(it)) for it in there),
            "false": tally["False"], "unknown": tally["Unknown"], "neverJudged": tally[""],
            "held": sum(it.verdict.reason == "FailHeld" for it in there),
            "wouldOpen": len(passed) - passed.count("True"), "wouldClose": len(failed) - failed.count("False"),
            "minutes": minutes if any(it.uid in due for it in there) else 0,
            "conditions": [*sentences(there), *never],
        })  # fmt: skip
    return rows


HEADERS = {
    "pool": "pool", "nodes": "nodes", "true": "True", "stale": "of them stale", "false": "False", "unknown": "Unknown",
    "neverJudged": "never judged", "held": "held by 10 %", "wouldOpen": "would open", "wouldClose": "would close",
    "minutes": "minutes to measure",
}  # fmt: skip
"""`would`: by the verdicts that the reports hold, whatever the chart lets reach a Node."""
COLUMNS: Columns[Any] = (*(Column(key, header=header) for key, header in HEADERS.items()), Column("conditions"))
