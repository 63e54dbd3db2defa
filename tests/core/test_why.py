"""`kubectl precision why` and `rerun`: every reason gets its own sentence; names that are not there get a near one."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from precision_api.kinds.profile import NodeCounts
from precision_api.kinds.report import ReportStatus
from precision_operator.cli.columns import as_row
from precision_operator.cli.commands.why import columns, text, wide
from precision_operator.core.admission.budget_view import BudgetView
from precision_operator.core.admission.turns import _limit
from precision_operator.core.attempts.node_state import AcceptedPlan
from precision_operator.core.observe.observed import Observed
from precision_operator.core.plan import plan
from precision_operator.core.reasons import REASONS, sentence
from precision_operator.core.status.node_readings import peers_of_all
from precision_operator.core.status.profile_status import profile_status
from precision_operator.core.status.why import NodeAnswer, why
from tests.support.golden import beside
from tests.support.report_objects import recipe_row, report_status
from tests.support.situation_worlds import Situation, beside_like, rolled
from tests.support.situations import SITUATIONS
from tests.support.world import job, measured, nodes, observed, pod, profile, report, tried

TABLES = beside(__file__)

OF_A_NODE = "unmatched skipped waiting queued running succeeded failed partial slow alone due"
"""Kinds of reasons that are said of one node."""


def part(seen: Observed) -> Observed:
    """What of a world is read to answer for n1: it and its reports, places of Jobs, statuses of profiles."""
    decided = plan(seen)
    peers = peers_of_all(decided.profiles, seen)
    told = {each.profile.uid: profile_status(each, seen.now, len(seen.nodes), peers) for each in decided.profiles}
    here = {uid: raw for uid, raw in seen.nodes.items() if raw["metadata"]["name"] == "n1"}
    watts, owners = {}, {each.profile.uid: each for each in decided.profiles if isinstance(each, AcceptedPlan)}
    limits = partial(_limit, seen.filed.values(), {}, "ml")
    for of in seen.jobs:
        if (owner := owners.get(of.profile_uid)) is not None and of.node_uid in owner.nodes.keys() - here.keys():
            facts = owner.nodes[of.node_uid]
            view = BudgetView([], owner.nodes, seen, owner.profile, limits, frozenset(), NodeCounts(), {})
            there = seen.nodes[of.node_uid]
            here[of.node_uid] = there | {"metadata": there["metadata"] | {"deletionTimestamp": "now"}}
            watts[of.namespace, of.node_uid] = view.watts(facts)[0]
    reports = tuple(report for report in seen.reports if report.node_name == "n1")
    return replace(seen, nodes=here, reports=reports, profile_statuses=told, watts=watts)


def answer(situation: Situation) -> NodeAnswer:
    return next(each for each in why(plan(situation.seen), situation.seen, "n1") if each.profile.name == "nightly")


def told(situation: Situation) -> tuple[str | None, str | None]:
    """(reason, sentence) where the situation says that they are."""
    found = answer(situation)
    if situation.told == "due":
        return found.due, found.due_message
    if situation.told == "slow":
        return found.standing.reason, found.standing.message
    if situation.told == "alone":
        return "NoPeers", found.no_peers
    if situation.told == "attempt":
        return found.past.attempt.reason, found.past.attempt.message
    if situation.told == "detail":
        code, _, words = found.past.detail_problem.partition(": ")
        return code, words
    return found.reason, found.message


def test_every_reason_has_a_situation_and_its_sentence_is_printed() -> None:
    assert {row.code for row in REASONS.values() if row.kind in OF_A_NODE.split()} <= SITUATIONS.keys()
    printed = {reason: " ".join(text("n1", [answer(situation)]).split()) for reason, situation in SITUATIONS.items()}
    whole = {reason: (reason, sentence(reason, **found.facts)) for reason, found in SITUATIONS.items()}
    assert [reason for reason, parts in whole.items() if not all(part in printed[reason] for part in parts)] == []


def test_why_gives_each_reason_and_exactly_its_sentence() -> None:
    given = {reason: told(situation) for reason, situation in SITUATIONS.items()}
    assert given == {reason: (reason, sentence(reason, **found.facts)) for reason, found in SITUATIONS.items()}


def test_what_the_node_jobs_and_statuses_tell_gives_the_same_answers() -> None:
    worlds = {reason: (situation.seen, part(situation.seen)) for reason, situation in SITUATIONS.items()}
    answers = {reason: [answer(Situation(seen, {})) for seen in pair] for reason, pair in worlds.items()}
    rows = {reason: [as_row(columns("n1"), each) for each in pair] for reason, pair in answers.items()}
    differ = {r: [row["blockedBy"] for row in pair] for r, pair in rows.items() if pair[0] != pair[1]}
    failed = [["node n2 (AgentCrashed)", "node n3 (AgentCrashed)"], ["node n2 and 1 more (AgentCrashed)"]]
    assert differ == {"TooManyFailures": failed, "CanaryFailed": failed}
    assert {key for r in differ for key, value in rows[r][0].items() if value != rows[r][1][key]} == {"blockedBy"}


def test_the_watts_of_another_nodes_measured_limit_are_those_that_its_job_tells() -> None:
    last_report = report("n2", status=measured(limit_watts=4000))
    for budget, reason in ((9600, "AgentStarting"), (9599, "PowerBudgetReached")):
        seen = replace(rolled(None, "n2", powerBudgetWatts=budget), reports=(last_report,))
        assert [answer(Situation(world, {})).reason for world in (seen, part(seen))] == [reason, reason]


@pytest.mark.parametrize("data", ["measured", "simulated", "replayed"])
def test_a_result_that_nobody_measured_is_called_so(data: str) -> None:
    slow = answer(SITUATIONS["Slow"])
    line = next(
        line for line in text("n1", [replace(slow, past=replace(slow.past, data=data))]).splitlines()
        if line.startswith("  last result")
    )  # fmt: skip
    assert line.endswith(f", {data.upper()}") is (data != "measured")
    best = replace(slow.past, best="nvfp4 1.60x, 1,520 TFLOP/s per GPU")
    assert "\n  best         nvfp4 1.60x, 1,520 TFLOP/s per GPU" in text("n1", [replace(slow, past=best)])
    rows = [recipe_row("bf16", tokensPerSecond=None, failure="not_available: hybrid: no backend has the scan.")]
    seen = observed([profile()], reports=(report(status=ReportStatus.model_validate(report_status(rows))),))
    assert "\n  best         none: hybrid: no backend has the scan.\n" in text("n1", why(plan(seen), seen, "n1"))
    first = text("n1", [replace(slow, past=replace(slow.past, data=data))]).splitlines()[0]
    assert first.startswith(f"ml/nightly, {data.upper()}: n1 is slow") is (data != "measured")


def test_what_the_last_attempt_alone_is_told_of_is_a_disruption_and_no_failure_of_the_node() -> None:
    attempts = {code: answer(situation).past.attempt for code, situation in SITUATIONS.items()}
    ends = {code: attempts[code] for code, situation in SITUATIONS.items() if situation.told == "attempt"}
    assert [code for code, attempt in ends.items() if attempt is None or attempt.outcome != "disrupted"] == []


# What else an answer tells.


def test_profiles_that_match_come_first_broken_ones_say_so_and_no_trace_is_no_answer() -> None:
    seen = observed([profile("broken", problem="spec.workload: Field required")])
    (found,) = why(plan(seen), seen, "n1")
    assert found.reason == "ProfileNotAccepted"
    assert "spec.workload: Field required" in found.message
    seen = observed([profile("a", target={"nodeNames": ["n2"]}), profile("b")])
    assert [(each.profile.name, each.kind) for each in why(plan(seen), seen, "n1")] == [
        ("b", "running"),
        ("a", "unmatched"),
    ]
    seen = observed([profile()])
    assert why(plan(seen), seen, "n7") == ()


BLOCKERS = TABLES["blockers"]


def test_what_stands_in_the_way_is_named() -> None:
    answers = {reason: answer(situation) for reason, situation in SITUATIONS.items()}
    named = {reason: [*found.blocked_by] for reason, found in answers.items()}
    assert named == {reason: BLOCKERS.get(found.reason, []) for reason, found in answers.items()}


def test_what_came_of_an_agent_that_was_ended_for_a_pod_is_told() -> None:
    said = {
        "Waiting": "its GPUs are kept for it",
        "Helped": "which was scheduled then, or another pod of its owner",
        "Taken": "which still waits: a pod of another owner got the GPUs",
        "NotHelped": "that did not help: it still waits. For 60 minutes no agent is ended for it.",
        "Gone": "which is gone",
    }
    seen = SITUATIONS["KeptForPod"].seen
    for outcome, words in said.items():
        there = replace(seen, yields=(replace(seen.yields[0], outcome=outcome),))
        (found,) = why(plan(there), there, "n1")
        (told,) = found.yielded
        assert "its agent was ended for a pod of another namespace (priority 1000)" in told
        assert words in told


def test_of_many_blockers_five_are_named_and_none_of_another_pool() -> None:
    fleet = nodes("n1", "n2") | nodes("n3", labels={"nvidia.com/gpu.product": "NVIDIA-GB200"})
    pools = [{"name": "NVIDIA-H100-80GB-HBM3", "maxConcurrent": 1}]
    owner = profile(rollout={"maxConcurrent": 9, "pools": pools})
    seen = observed([owner], fleet, jobs=(job("n2"), job("n3")))
    (found,) = why(plan(seen), seen, "n1")
    assert found.blocked_by == ("agent of ml/nightly on node n2",)
    running = [f"n{i}" for i in range(2, 9)]
    seen = observed(
        [profile(rollout={"maxConcurrent": 7})], nodes("n1", *running), jobs=tuple(job(name) for name in running)
    )
    (found,) = why(plan(seen), seen, "n1")
    assert [found.blocked_by[0], len(found.blocked_by), found.blocked_by[-1]] == [
        "agent of ml/nightly on node n2",
        6,
        "2 more",
    ]


def test_a_slow_node_stays_measured_and_its_figure_stands_in_the_text_and_in_the_json() -> None:
    reply = answer(SITUATIONS["Slow"])
    assert (reply.kind, reply.reason) == ("succeeded", "Measured")
    assert text("n1", [reply]).splitlines()[:3] == [
        "ml/nightly, SIMULATED: n1 is slow: 80.0% of its peers' rate, 950 against 1,190 TFLOP/s per GPU, 800 against "
        "1,000 tokens/s at the pace of the slowest GPU (bf16)",
        "  A synchronous job waits for its slowest node in every step: 64 nodes with this one do the work of 51.2, "
        "12.8 fewer, where the others run as its peers and compute sets the pace.",
        f"  Slow: {reply.standing.what}",
    ]
    assert as_row(columns("n1"), reply)["standing"] == {
        "ofMedian": 0.8,
        "slow": True,
        "slowBelow": 0.95,
        "recipe": "bf16",
        "comparedNodes": 4,
        "reason": "Slow",
        "message": sentence("Slow", **SITUATIONS["Slow"].facts),
    }
    assert wide("n1", [reply]).splitlines()[1].split()[3:5] == ["80.0%,", "slow"]


@pytest.mark.parametrize(("spread", "said"), TABLES["spreads"])
def test_a_slow_node_says_whether_one_gpu_or_all_of_them_are_slow(spread: str | None, said: str) -> None:
    assert said in answer(beside_like(800, gpuSpread=spread)).standing.message


def test_the_end_of_a_failed_agents_log_is_told_and_its_reason_once() -> None:
    situation = SITUATIONS["AgentRefused"]
    assert text("n1", [answer(situation)]).count(sentence("AgentRefused", **situation.facts)) <= 1
    status = tried("failed", failures=9, reason="AgentCrashed", message="It crashed.", log="Traceback\n  at 0x1")
    seen = observed([profile()], reports=(report(status=status),))
    (found,) = why(plan(seen), seen, "n1")
    assert "\n  log          Traceback\n                 at 0x1" in text("n1", [found])
    assert json.loads(json.dumps(as_row(columns("n1"), found)))["attempt"]["log"] == "Traceback\n  at 0x1"


def test_a_status_counts_the_rows_of_peers_that_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_operator.core.status.profile_status.PEERS_SHOWN", 0)
    (status,) = part(SITUATIONS["Slow"].seen).profile_statuses.values()
    assert (status.peers, status.peers_left_out) == ((), 1)


def test_a_node_that_is_not_slow_says_so_and_one_without_peers_nothing() -> None:
    reply = answer(beside_like(1010))
    told = "101.0% of the median of 4 comparable nodes (bf16); below 95.0% is slow"
    assert f"\n  not slow     {told}" in text("n1", [reply])
    assert as_row(columns("n1"), reply)["standing"]["reason"] is None
    reply = answer(SITUATIONS["Measured"])
    assert reply.standing is None
    assert "slow" not in text("n1", [reply])
    assert (as_row(columns("n1"), reply)["standing"], wide("n1", [reply]).splitlines()[1].split()[3]) == (None, "-")


@pytest.mark.parametrize("changes", TABLES["no_longer_meant"].values(), ids=TABLES["no_longer_meant"])
def test_results_that_hold_stay_peers_whatever_becomes_of_their_profile(changes: dict[str, Any]) -> None:
    seen = beside_like(800).seen
    mine, *others = seen.reports
    wide = [replace(each, profile="wide", profile_uid="uid-wide") for each in others]
    fix = profile(target={"nodeNames": ["n1"]})
    reply = answer(Situation(replace(seen, profiles=(fix, profile("wide", **changes)), reports=(mine, *wide)), {}))
    assert (reply.standing.reason, reply.standing.judged.peers) == ("Slow", ("n2", "n3", "n4"))


def test_a_profile_whose_status_is_of_an_older_spec_is_marked_as_not_judged() -> None:
    seen = observed([profile(status={"observedGeneration": 1}, generation=2)])
    (found,) = why(plan(seen), seen, "n1")
    assert not found.judged
    assert "watches namespace ml (chart value watchNamespaces)" in text("n1", [found])
    assert "watchNamespaces" not in text("n1", [replace(found, profile=replace(found.profile, generation=1))])


def test_for_programs_an_answer_is_json_and_no_log_is_told_of_an_older_operator() -> None:
    seen = observed([profile()], reports=(report(status=tried("failed", failures=9, reason="AgentCrashed")),))
    (found,) = why(plan(seen), seen, "n1")
    document = json.loads(json.dumps(as_row(columns("n1"), found)))
    assert (document["state"], document["quarantine"], document["attempt"]["number"]) == ("failed", None, 1)
    assert "  log " not in text("n1", [found])


def test_a_node_of_the_past_or_not_meant_any_more_keeps_its_agent() -> None:
    of = job(finished="Complete")
    seen = observed([profile()], nodes("n2"), jobs=(of,), pods=(pod(of, "Succeeded", "{}"),))
    (found,) = why(plan(seen), seen, "n1")
    assert (found.reason, found.job) == ("NodeGone", of.name)
    narrowed = profile(target={"nodeNames": ["n2"]})
    seen = observed([narrowed], jobs=(job(attempt=2),), reports=(report(status=tried()),))
    (found,) = why(plan(seen), seen, "n1")
    assert (found.reason, found.job) == ("NotMatched", job(attempt=2).name)
    assert found.past.attempt is not None
