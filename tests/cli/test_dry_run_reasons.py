"""A dry run over all reasons that there are: each is told with its own sentence, or stands in a list with the cause why
a dry run can't tell it. A new reason fails a test here until it is in one of the two."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import typer

from precision_api.facts.names import DEFAULT_PRIORITY_CLASS
from precision_operator.cli.commands.dry_run import plan_text
from precision_operator.cli.output import WIDTH, OutputFormat
from precision_operator.cluster import paths
from precision_operator.core.observe.observed import Observed
from precision_operator.core.plan import plan
from precision_operator.core.reasons import REASONS, sentence
from precision_operator.core.status.decisions import DECISIONS, WOULD_START
from precision_operator.core.status.why import NodeAnswer, why
from precision_operator.shell.observing.local_queues import GROUP, PLURAL
from tests.cli.api import Api
from tests.cli.test_dry_run import profile_file
from tests.cli.test_gathering import ALLOWED, IMAGE, deployment, installed
from tests.support.fake_cluster import discovery
from tests.support.node_objects import node_object
from tests.support.situation_worlds import STUCK, UNCLAIMED, UNRESPONSIVE, UNSCHEDULED, Situation
from tests.support.situations import SITUATIONS
from tests.support.situations_after import SLOW, WITHOUT_DETAIL
from tests.support.small_model import FROM_CONFIG_MAP
from tests.support.world import observed, profile

KEY = "ml/nightly"

NOT_TOLD: Mapping[str, str] = {
    "Eligible": "no node stays so: one whose turn has come would start, any other says what it waits for",
    "FirstRun": "attempt 1 that would start says it: there is nothing that has changed",
    "ProfileNotAccepted": "the refusal itself ends the command, with its own reason and sentence",
    "TooManyProfiles": "of a profile that is there: tests/core/test_bound.py",
    "NamespaceForbidden": "only the operator meets it: what its own account may list, no user can tell",
    "InvalidSpec": "the file is read field by field before anything is planned: every wrong field gets its own line",
    "PodLost": "said of an attempt that is over: the node itself is queued again, or would start",
    **dict.fromkeys(
        ("Preempted", "Yielded", "Drained", "PodRejected", "ContainerLost", "Evicted", "Disrupted"),
        "said of an attempt that is over: the node itself backs off (BackingOff names it), or would start",
    ),
    **dict.fromkeys(WITHOUT_DETAIL, "the node is Measured; that its full result is lost is said in its report"),
    **dict.fromkeys(SLOW, "the node is Measured; how it compares with its peers is said by why and nodes"),
    "NoNodesMatch": "a condition of the profile as a whole: here every node has its row, NotMatched with its cause",
    **dict.fromkeys(
        ("NothingEligible", "AllMeasured", "SomeFailed", "SomeWaiting"),
        "a condition of the profile as a whole: here every node has its row, and they are counted",
    ),
}
"""Reasons that a dry run, by its nature, does not give a node or a profile, and why."""

ABOUT_TO_END: Mapping[str, Situation] = {
    "QueueTimeout": Situation(
        observed(
            [profile(agent={"queueName": "gpus"}, idle={"queueTimeoutSeconds": 600})],
            jobs=(replace(STUCK, suspended=True),),
        ),
        {"seconds": 600},
    ),
    "PendingTooLong": UNSCHEDULED,
    **UNCLAIMED,
    "NodeUnresponsive": UNRESPONSIVE,
}
"""What the operator is about to do to an attempt, where the common situation is of the time after."""

STANDS: Mapping[str, Situation] = {
    **{code: found for code, found in SITUATIONS.items() if found.told == "stand" and code not in NOT_TOLD},
    **ABOUT_TO_END,
}
"""Where a node stands: told in its row, word by word as `why` does."""

DUE: Mapping[str, Situation] = {
    code: found for code, found in SITUATIONS.items() if found.told == "due" and code not in NOT_TOLD
}
"""Why a node is measured again: told in the row of the start that follows (WouldStart, in place of AgentStarting)."""

ODD = {"name": "odd", "shapes": [{"m": 33, "k": 64, "n": 64}]}


@dataclass(frozen=True)
class Refused:
    """A profile that can't be measured at all: what its spec says, how the operator is set up, what is there."""

    facts: Mapping[str, object]
    spec: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = (IMAGE, ALLOWED)
    objects: Mapping[str, Any] = field(default_factory=dict)
    priority_class: str = DEFAULT_PRIORITY_CLASS
    """The PriorityClass that there is."""


REFUSED: Mapping[str, Refused] = {
    "ImageNotAllowed": Refused(
        {"image": "elsewhere.example/agent:2", "allowed": "registry.example/"},
        {"agent": {"image": "elsewhere.example/agent:2"}},
    ),
    "ImageMissing": Refused({}, arguments=(ALLOWED,)),
    "ConfigMapMissing": Refused(
        {"name": "my-model", "namespace": "ml", "key": "config.json"}, {"workload": FROM_CONFIG_MAP}
    ),
    "ConfigMapKeyMissing": Refused(
        {"name": "my-model", "key": "config.json", "keys": "a, b"},
        {"workload": FROM_CONFIG_MAP},
        objects={paths.item(paths.config_maps("ml"), "my-model"): {"data": {"a": "", "b": ""}}},
    ),
    "InvalidWorkload": Refused(
        {
            "detail": "recipe mxfp8: 33x64x64: mxfp8 needs dimensions that are multiples of 32, but m=33; use m=64, "
            "or leave mxfp8 out (change the shape, or take mxfp8 out of spec.recipes)"
        },
        {"workload": ODD, "recipes": ["mxfp8"]},
    ),
    "PriorityClassMissing": Refused({"name": DEFAULT_PRIORITY_CLASS}, priority_class="of-another-name"),
    "QueueMissing": Refused(
        {"name": "profiling", "namespace": "ml"},
        arguments=(IMAGE, ALLOWED, '--agent-defaults={"queueName":"profiling"}'),
    ),
    "InvalidSchedule": Refused(
        {
            "detail": "spec.schedule.timeZone Mars/Base is no time zone that is known: write an IANA name such as "
            "Europe/Berlin or UTC"
        },
        {"schedule": {"cron": "0 2 * * 6", "timeZone": "Mars/Base"}},
    ),
}
"""Why a profile is refused as a whole: told on stderr, with exit code 2 and no rows."""


def test_every_reason_is_in_one_table_and_its_row_has_its_sentence_and_decision() -> None:
    assert sorted([*STANDS, *DUE, *REFUSED, *NOT_TOLD]) == sorted(REASONS), "each in one table, and in one alone"
    rows = {reason: row_of(situation.seen) for reason, situation in STANDS.items()}
    found = {reason: (row["reason"], row["message"], row["decision"]) for reason, row in rows.items()}
    assert found == {
        reason: (reason, sentence(reason, **situation.facts), decision(reason)) for reason, situation in STANDS.items()
    }


def row_of(seen: Observed) -> dict[str, Any]:
    document: list[dict[str, Any]] = json.loads(plan_text(KEY, plan(seen), seen, OutputFormat.JSON))
    return next(row for row in document if row["node"] == "n1")


def answer(seen: Observed) -> NodeAnswer:
    return next(found for found in why(plan(seen), seen, "n1") if found.profile.key == KEY)


def line_of(seen: Observed, form: OutputFormat) -> str:
    return next(line for line in plan_text(KEY, plan(seen), seen, form).splitlines() if line.startswith("n1 "))


GONE = ("NodeLost", "NodeGone")
"""Said of a node that is not there any more."""


def decision(reason: str) -> str:
    return "gone" if reason in GONE else DECISIONS[REASONS[reason].kind]


def test_a_dry_run_and_why_say_the_same_of_a_node_in_every_situation() -> None:
    """A start is told ahead by a dry run, and as a start by why; a profile that is refused has no rows."""
    seen = {
        reason: situation.seen
        for reason, situation in (SITUATIONS | STANDS).items()
        if reason not in REFUSED_AS_A_WHOLE
    }
    rows = {reason: row_of(each) for reason, each in seen.items()}
    answers = {reason: answer(each) for reason, each in seen.items()}
    starts = {reason for reason, row in rows.items() if row["reason"] == WOULD_START}
    assert {reason: (row["reason"], row["message"]) for reason, row in rows.items() if reason not in starts} == {
        reason: (found.reason, found.message) for reason, found in answers.items() if reason not in starts
    }
    assert {answers[reason].reason for reason in starts} == {"AgentStarting"}


REFUSED_AS_A_WHOLE = ("ProfileNotAccepted",)


def test_the_table_shows_the_reason_and_the_start_of_the_sentence_and_wide_all_of_it() -> None:
    shown = {
        reason: (line_of(situation.seen, OutputFormat.TABLE), line_of(situation.seen, OutputFormat.WIDE))
        for reason, situation in STANDS.items()
    }
    for reason, (short, wide) in shown.items():
        whole = sentence(reason, **STANDS[reason].facts)
        start = short.partition(f" {reason} ")[2].strip()
        assert len(short) <= WIDTH, reason
        assert start, reason
        assert whole.startswith(start), f"{reason}: broken between words"
        assert wide.endswith(whole), reason


def test_a_start_says_what_the_node_is_measured_again_for_in_the_words_of_why() -> None:
    for reason, situation in DUE.items():
        row, same, whole = row_of(situation.seen), answer(situation.seen), sentence(reason, **situation.facts)
        what = whole.removesuffix(f". {REASONS[reason].next_step}")
        assert (row["decision"], row["reason"]) == ("run", WOULD_START), reason
        assert f"would start now ({reason}: {what})." in row["message"]
        assert (same.due, same.due_message) == (reason, whole)
        assert f" {reason} " in line_of(situation.seen, OutputFormat.WIDE)


def test_what_is_not_told_is_no_rows_reason_and_an_unaccepted_profile_ends_a_dry_run() -> None:
    """The list says what is so: in the situation of such a reason the row has another one."""
    listed = [code for code in NOT_TOLD if code in SITUATIONS and code not in REFUSED_AS_A_WHOLE]
    assert [code for code in listed if row_of(SITUATIONS[code].seen)["reason"] == code] == []
    with pytest.raises(typer.Exit):
        row_of(SITUATIONS["ProfileNotAccepted"].seen)


def operated(api: Api, case: Refused) -> None:
    """A cluster with one idle node, and the operator set up as the case says."""
    program = deployment(*case.arguments)
    api.profiles()
    for path in (paths.jobs("ml"), paths.pods("ml")):
        api.hold(path)
    api.hold(paths.NODES, node_object())
    (where, _), (bindings, binding) = installed(program)
    api.hold(bindings, binding)
    classes = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
    api.objects |= {paths.item(where, program["metadata"]["name"]): program}
    api.objects |= {paths.item(classes, case.priority_class): {}, **case.objects}


def in_the_cluster(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same profile, as it stands in the cluster."""
    meta = {"name": "nightly", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-11-20T06:30:00Z"}
    return {"metadata": meta, "spec": {"workload": {"preset": "llama3-8b"}} | dict(spec)}


@pytest.mark.parametrize(("reason", "case"), REFUSED.items(), ids=REFUSED)
def test_a_refused_profile_ends_with_code_2_and_why_says_the_same(api: Api, reason: str, case: Refused) -> None:
    operated(api, case)
    done = api.run("dry-run", "-f", profile_file(api.folder, **case.spec))
    refusal = sentence(reason, **case.facts)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: {reason}: {refusal}\n")
    api.profiles(in_the_cluster(case.spec))
    (told,) = api.printed("why", "n1")
    assert (told["reason"], told["message"]) == ("ProfileNotAccepted", sentence("ProfileNotAccepted", why=refusal))
    assert refusal.removesuffix(".") in told["message"], "the sentence is whole: facts are cut at 300 characters"


def test_what_the_operator_is_told_to_give_agents_counts_in_a_dry_run_and_in_why(api: Api) -> None:
    """The queue comes from the chart; the toleration too: without it the node's taint would keep the agent away."""
    defaults = json.dumps({"queueName": "profiling", "tolerations": [{"key": "rack", "operator": "Exists"}]})
    operated(api, Refused({}, arguments=(IMAGE, ALLOWED, f"--agent-defaults={defaults}")))
    api.objects |= discovery(GROUP, PLURAL, "v1beta2")
    api.objects[paths.item(paths.collection(f"{GROUP}/v1beta2", PLURAL, "ml"), "profiling")] = {}
    api.collections[paths.NODES] = [node_object(taints=[{"key": "rack", "value": "a", "effect": "NoSchedule"}])]
    done = api.run("dry-run", "-f", profile_file(api.folder), "-o", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    (row,) = json.loads(done.stdout)
    assert (row["decision"], row["reason"]) == ("run", WOULD_START)
    assert row["message"].endswith("attempt 1 would be handed to Kueue's queue profiling now.")
    api.profiles(in_the_cluster({}))
    (same,) = api.printed("why", "n1")
    assert (same["state"], same["reason"]) == ("running", "AgentStarting")
