"""What the cluster refuses to create: named by the server's words, not asked for in a hot loop, and passed by."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from precision_operator.core.attempts.actions import Adopt, Start, Withdraw
from precision_operator.core.attempts.refusal import (
    RULES,
    SAME_ANSWERS,
    Answer,
    Refusals,
    accepted,
    classify,
    cleaned,
    mark_of,
    noted,
    standing,
)
from precision_operator.core.observe.observed import Observed, ProfileView, RefusedCreation, Stage
from precision_operator.core.plan import Plan, plan
from precision_operator.core.status.events import notes
from precision_operator.core.status.profile_status import profile_status
from tests.support.golden import beside
from tests.support.world import NOW, at_once, job, measured, nodes, observed, pod, profile, report

OWNER = profile()
FLEET = nodes("n1", "n2", "n3", "n4", "n5", "n6")
QUOTA = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=8, limited: {}"
GPUS = f'pods "pp-0f-x2k4v" is forbidden: {QUOTA.format("requests.nvidia.com/gpu=8")}'
WEBHOOK = 'admission webhook "v.example" denied the request: '
DENIED = WEBHOOK + "agents are not allowed"

ANSWERS: dict[str, dict[str, Answer]] = {
    reason: {what: Answer(*said) for what, said in rows.items()} for reason, rows in beside(__file__).items()
}
"""Answers of API servers by the reason that they are taken for."""


@pytest.mark.parametrize(
    ("reason", "answer"),
    [pytest.param(reason, answer, id=what) for reason, answers in ANSWERS.items() for what, answer in answers.items()],
)
def test_an_answer_is_named_by_its_words_before_its_code(reason: str, answer: Answer) -> None:
    assert classify(answer) == reason


SHOWN: dict[str, tuple[str, str]] = {
    "a quota": (GPUS, "exceeded quota: gpus: 8 of 8 requests.nvidia.com/gpu used, 8 more requested"),
    "two amounts of one": (
        "exceeded quota: q, requested: cpu=4,pods=1, used: cpu=6,pods=2, limited: cpu=8,pods=2",
        "exceeded quota: q: 6 of 8 cpu used, 4 more requested; 2 of 2 pods used, 1 more requested",
    ),
    "the name of a pod": ('Error creating: pods "pp-0f-x2k4v" is forbidden: no', "pods is forbidden: no"),
    "lines and what terminals obey": ("a\n\tb  c\x1b[31md", "a b c [31md"),
    "a long text": ("x" * 9999, "x" * 512),
}


@pytest.mark.parametrize(("said", "shown"), SHOWN.values(), ids=SHOWN)
def test_words_are_the_same_for_all_nodes_and_short(said: str, shown: str) -> None:
    assert cleaned(said) == shown


def say(
    answers: dict[str, str], at: datetime = NOW, known: Refusals | None = None, stage: Stage = "Job", agents: int = 0
) -> Refusals:
    """What is remembered after these answers, by node."""
    found = dict(known or {})
    for node, words in answers.items():
        key = (OWNER.uid, f"uid-{node}")
        found[key] = noted(found, key, Answer(words, 403), stage, mark_of(OWNER, None), agents, at)
    return found


def after(known: Refusals, owner: ProfileView = OWNER, seconds: float = 0.0, **world: object) -> Plan:
    """The plan some time later, with what still stands."""
    seen = replace(observed([owner], FLEET, **world), now=NOW + timedelta(seconds=seconds))  # type: ignore[arg-type]
    return plan(replace(seen, refusals=standing(known, seen)))


def started(decided: Plan) -> list[str]:
    return [action.facts.name for action in decided.actions if isinstance(action, Start)]


def reasons(decided: Plan) -> dict[str, str]:
    return {each.facts.name: each.reason for each in decided.profiles[0].node_states}


def test_nodes_denied_alone_hold_neither_place_nor_profile() -> None:
    decided = after(say({"n1": f"{WEBHOOK}n1 is reserved", "n2": f"{WEBHOOK}n2 is reserved"}))
    assert started(decided) == ["n3"]
    assert reasons(decided)["n1"] == "DeniedByPolicy"
    assert started(after(say({f"n{n}": f"{WEBHOOK}n{n} is reserved" for n in range(1, 6)}))) == ["n6"]


def test_a_denied_node_is_tried_again_after_the_others_and_waits_longer_each_time() -> None:
    first = say({"n1": f"{WEBHOOK}n1 is reserved"})
    assert started(after(first, seconds=31)) == ["n2"], "who was never tried goes first"
    alone = profile(target={"nodeNames": ["n1"]})
    assert [started(after(first, alone, seconds=s)) for s in (29, 31)] == [[], ["n1"]]
    second = say({"n1": f"{WEBHOOK}n1 is reserved"}, NOW + timedelta(seconds=31), first)
    waits = [each.until - each.at for each in (first[OWNER.uid, "uid-n1"], second[OWNER.uid, "uid-n1"])]
    assert waits[0] == timedelta(seconds=30)
    assert timedelta(seconds=60) <= waits[1] <= timedelta(seconds=75)


def test_what_three_nodes_are_told_alike_holds_the_profile() -> None:
    some = [f"n{n}" for n in range(1, SAME_ANSWERS + 1)]
    assert started(after(say(dict.fromkeys(some[:-1], DENIED)))) == [some[-1]]
    refusals = say(dict.fromkeys(some, DENIED))
    assert started(after(refusals)) == []
    assert set(reasons(after(refusals)).values()) == {"DeniedByPolicy"}
    assert started(after(refusals, profile(rollout=at_once(6)), seconds=31)) == ["n4"], "one try at a time"


@pytest.mark.parametrize("reason", sorted(reason for reason, rule in RULES.items() if rule.whole))
def test_what_concerns_all_is_asked_once_and_then_by_one_node_at_a_time(reason: str) -> None:
    words = next(answer.words for answer in ANSWERS[reason].values() if answer.code != 0)
    known = say({"n1": words}) if classify(Answer(words, 403)) == reason else {}
    if not known:
        refused = RefusedCreation(reason, words, "Job", NOW, NOW + RULES[reason].first, mark=mark_of(OWNER, None))
        known = {(OWNER.uid, "uid-n1"): refused}
    many = profile(rollout=at_once(6))
    assert started(after(known, many)) == []
    assert set(reasons(after(known, many)).values()) == {reason}
    assert started(after(known, many, seconds=RULES[reason].first.total_seconds() + 1)) == ["n2"]


def test_refusals_in_one_pass_are_one_round_and_the_wait_grows_with_rounds_up_to_its_longest() -> None:
    refusals = say(dict.fromkeys(("n1", "n2", "n3"), GPUS))
    assert {each.times for each in refusals.values()} == {1}
    at = NOW
    for _ in range(12):
        at = max(each.until for each in refusals.values())
        refusals = say({"n1": GPUS}, at, refusals)
    wait = refusals[OWNER.uid, "uid-n1"].until - at
    assert RULES["QuotaExceeded"].longest <= wait <= 1.25 * RULES["QuotaExceeded"].longest


def test_a_quota_has_room_again_when_an_agent_of_the_profile_ends() -> None:
    many, running = profile(rollout=at_once(3)), job("n6")
    refusals = say({"n1": GPUS, "n2": GPUS}, stage="pod", agents=1)
    full = after(refusals, many, jobs=(running,), pods=(pod(running),))
    assert started(full) == []
    assert reasons(full) == dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), "QuotaExceeded") | {"n6": "AgentRunning"}
    assert started(after(refusals, many)) == ["n3"]
    owner = profile(target={"nodeNames": ["n1"]})
    assert started(after(refusals, owner)) == ["n1"], "the node that was told of the quota need not wait for itself"


def test_an_agent_that_is_accepted_ends_what_was_said_of_all() -> None:
    assert accepted(say({"n1": GPUS}), (OWNER.uid, "uid-n2"), "Job", 1) == {}
    room = say({"n1": GPUS}, agents=1)
    assert accepted(room, (OWNER.uid, "uid-n2"), "Job", 1) == room, "it has room for one, which nobody doubted"
    assert accepted(room, (OWNER.uid, "uid-n2"), "Job", 2) == {}
    of_pods = say({"n1": GPUS}, stage="pod")
    assert accepted(of_pods, (OWNER.uid, "uid-n2"), "Job", 1) == of_pods, "a Job is no pod"
    assert accepted(of_pods, ("uid-other", "uid-n2"), "pod", 1) == of_pods, "another profile's"


def test_what_was_said_concerns_who_was_told_and_is_forgotten_with_it() -> None:
    known = accepted(say(dict.fromkeys(("n1", "n2", "n3"), DENIED)), (OWNER.uid, "uid-n4"), "Job", 1)
    assert started(after(known)) == ["n4"]
    assert reasons(after(known))["n1"] == "DeniedByPolicy"
    later = say({"n5": DENIED}, NOW + timedelta(seconds=40), known)
    assert later[OWNER.uid, "uid-n5"].times == 1, "no row of refusals goes on"
    known = say({"n1": GPUS, "n9": GPUS}) | {("uid-gone", "uid-n1"): say({"n1": GPUS})[OWNER.uid, "uid-n1"]}
    assert list(standing(known, observed([OWNER], FLEET))) == [(OWNER.uid, "uid-n1")]


CHANGES: dict[str, ProfileView] = {
    "another spec": replace(OWNER, generation=2),
    "a rerun": replace(OWNER, rerun="2026-11-21T08:59:00Z"),
}


@pytest.mark.parametrize("owner", CHANGES.values(), ids=CHANGES)
def test_who_changes_the_profile_or_asks_again_need_not_wait(owner: ProfileView) -> None:
    assert started(after(say({"n1": GPUS}), owner)) == ["n1"]


def bare(**changes: object) -> Observed:
    """n1 has a Job without a pod."""
    return observed([OWNER], FLEET, jobs=(job(**changes),))  # type: ignore[arg-type]


def test_a_job_whose_pod_is_refused_is_withdrawn_and_counts_as_no_failure() -> None:
    (action,) = plan(bare(creation_problem=f"Error creating: {GPUS}")).actions
    assert isinstance(action, Withdraw)
    assert (action.reason, action.mark) == ("QuotaExceeded", mark_of(OWNER, None))
    assert "8 of 8 requests.nvidia.com/gpu used" in action.message
    assert plan(bare(creation_problem=GPUS, suspended=True)).actions == (), "Kueue has not let it go"


def test_while_a_refused_pod_is_tried_again_nothing_is_said_to_run() -> None:
    trying = plan(replace(bare(), refusals=say({"n2": GPUS}, stage="pod"), now=NOW + timedelta(seconds=11)))
    assert reasons(trying)["n1"] == "QuotaExceeded"
    status = profile_status(trying.profiles[0], NOW, 6)
    assert (status.nodes.running, status.phase, status.eta) == (0, "Pending", None)


def status_after(words: str, *who: str, owner: ProfileView = OWNER, **world: object):  # type: ignore[no-untyped-def]
    return profile_status(after(say(dict.fromkeys(who, words)), owner, **world).profiles[0], NOW, 6)


def test_a_profile_that_a_quota_holds_is_pending_and_says_so() -> None:
    status = status_after(GPUS, "n1")
    told = {c.type: (c.status, c.reason) for c in status.conditions}
    assert (status.phase, status.eta, status.waits_for) == ("Pending", None, "QuotaExceeded (6)")
    assert told["Progressing"] == told["Complete"] == ("False", "QuotaExceeded")
    assert told["Degraded"] == ("False", "NoFailures"), "it is a wait"
    (row,) = status.refusals
    assert (row.node, row.stage, row.times, row.next_try) == ("n1", "Job", 1, "2026-11-21T09:00:10Z")
    assert row.message == "exceeded quota: gpus: 8 of 8 requests.nvidia.com/gpu used, 8 more requested"


def test_a_profile_whose_job_is_invalid_everywhere_is_degraded_and_one_event_says_why() -> None:
    words = 'Job.batch "pp-0f" is invalid: spec.template.spec.tolerations[2].key: Invalid value: "not a key!"'
    status = status_after(words, "n1", "n2", "n3")
    told = {c.type: (c.status, c.reason) for c in status.conditions}
    assert (status.phase, status.waits_for) == ("Degraded", "InvalidJob (6)")
    assert told["Degraded"] == ("True", "InvalidJob")
    assert told["Accepted"] == ("True", "Accepted")
    before = profile_status(plan(observed([OWNER], FLEET)).profiles[0], NOW, 6)
    (event,) = notes(before, status)
    assert (event.type, event.reason) == ("Warning", "InvalidJob")
    assert 'tolerations[2].key: Invalid value: "not a key!"' in event.message
    assert notes(status, status) == ()


def test_one_node_that_is_denied_does_not_keep_the_profile_from_its_end() -> None:
    done = tuple(report(name, status=measured()) for name in ("n2", "n3", "n4", "n5", "n6"))
    status = status_after(DENIED, "n1", reports=done)
    told = {c.type: (c.status, c.reason) for c in status.conditions}
    assert told["Complete"] == ("True", "SomeWaiting")
    assert told["Degraded"] == ("True", "DeniedByPolicy")
    assert status.progress == "5/6"


def test_reports_without_an_owner_are_the_profiles_of_their_name_and_are_adopted() -> None:
    orphan = replace(report("n1", status=measured()), profile_uid="")
    decided = plan(observed([profile(target={"nodeNames": ["n1"]})], FLEET, reports=(orphan,)))
    assert [type(action) for action in decided.actions] == [Adopt]
    assert reasons(decided) == {"n1": "Measured"}
    others = replace(orphan, profile="another")
    assert not [a for a in plan(observed([OWNER], FLEET, reports=(others,))).actions if isinstance(a, Adopt)]
