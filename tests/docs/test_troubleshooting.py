"""The page for symptoms shows what users really read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_api.profile import Idle
from precision_operator.core.reasons import REASONS, begun, clause
from precision_operator.core.rollout.manifest import POD_GRACE_SECONDS
from precision_operator.core.rollout.refusal import RULES
from precision_operator.core.rollout.request import DEADLINE_SECONDS
from precision_operator.core.rollout.retry import QUARANTINE_LOSSES

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
ROW = re.compile(r"^\| [^|]+ \| `(\w+)` \| ([^|]+) \|$", re.MULTILINE)


def shown() -> list[tuple[str, str]]:
    """(reason, message) of each row about what the cluster refuses."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## The cluster refuses an agent\n")
    return ROW.findall(rest.partition("\n## ")[0])


def pattern(template: str) -> str:
    """The words of a template, with anything for its facts."""
    return "".join(".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", template))


def is_said(reason: str, message: str) -> bool:
    """Whether the operator would say this for that reason."""
    row = REASONS[reason]
    said = rf"{pattern(row.template)}\. {pattern(row.next_step)}"
    return re.fullmatch(said, message[:1].lower() + message[1:]) is not None or re.fullmatch(said, message) is not None


def test_every_refusal_of_the_cluster_has_a_row() -> None:
    assert {reason for reason, _ in shown()} == set(RULES)


def test_the_messages_are_those_that_users_read() -> None:
    assert [row for row in shown() if not is_said(*row)] == []


def test_a_message_of_another_version_is_seen() -> None:
    assert not is_said("InvalidJob", "The API server dislikes the agent's Job: no. Correct it.")
    assert not is_said("QuotaExceeded", shown()[0][1])


def test_the_words_for_a_lost_detail_are_those_of_its_report() -> None:
    row = REASONS["DetailNotWritten"]
    said = rf"{pattern(row.template.removeprefix('t'))}\. {pattern(row.next_step)}"
    assert re.search(said, PAGE.read_text(encoding="utf-8"))


def section(title: str) -> str:
    """The text below a title of the page."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")
    return rest.partition("\n## ")[0]


BEGINS = re.compile(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
ON_NODES = dict(BEGINS.findall(section("Nodes that die, images that never come")))
"""How the message of each reason begins, of nodes that die and images that never come."""
SEEN = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", section("Tested faults"), re.MULTILINE)[1:]
"""What users see of each tested fault."""
IN_FAULTS = dict(found.groups() for cell in SEEN if (found := re.search(r"`(\w+)`: (.+)", cell)))
"""How the message of each reason begins that a tested fault leads to."""

IDLE = Idle()
DEADLINE = DEADLINE_SECONDS["quick"] + POD_GRACE_SECONDS
AWAY = "condition Ready is Unknown (NodeStatusUnknown)"
FACTS: dict[str, dict[str, object]] = {
    "AgentUnreachable": {"attempt": 1, "why": AWAY},
    "AgentChange": {},
    "NodeUnresponsive": {"why": AWAY, "what": "its pod was to be gone at"},
    "NodeLost": {},
    "Quarantined": {"runs": f"{QUARANTINE_LOSSES} attempts", "why": "NodeUnresponsive"},
    "PullingImage": {"attempt": 1, "since": ""},
    "StartTooLong": {"seconds": IDLE.start_timeout_seconds, "text": ""},
    "ImagePullFailing": {"attempt": 1, "why": ""},
    "ImagePullFailed": {"image": "of the agent", "text": ""},
    "PendingTooLong": {"seconds": IDLE.pending_timeout_seconds, "text": ""},
    "ClaimNotPrepared": {"seconds": IDLE.pending_timeout_seconds, "text": ""},
    "InsufficientCPU": {"wanted": "4", "requested": "", "allocatable": ""},
    "InsufficientMemory": {"wanted": "32.0Gi", "requested": "", "allocatable": ""},
    "Evicted": {"by": "its kubelet", "text": ""},
    "ContainerLost": {"text": ""},
    "PodRejected": {"text": ""},
    "AgentHung": {"seconds": DEADLINE, "silent": "", "words": ""},
    "AgentOutOfMemory": {"limit": "limit"},
    "AgentOutOfStorage": {"text": ""},
    "GPUsMissing": {"gpus": 7, "all": 8},
    "Drained": {"text": ""},
    "Preempted": {"text": ""},
    "Yielded": {"pod": "", "priority": 0},
}
"""What the messages of the page are about, with the defaults of a profile; empty where the page leaves off."""


def is_beginning(code: str, shown: str) -> bool:
    """Whether the message of a reason begins so."""
    return begun(clause(code, node="NODE", **FACTS[code])).startswith(shown.strip().rstrip(".: ,"))


def test_what_users_read_of_nodes_that_die_and_of_tested_faults_begins_as_the_page_says() -> None:
    assert ON_NODES.keys() | IN_FAULTS.keys() == FACTS.keys()
    assert [row for row in [*ON_NODES.items(), *IN_FAULTS.items()] if not is_beginning(*row)] == []


def test_a_beginning_of_another_version_is_seen() -> None:
    assert not is_beginning("AgentHung", IN_FAULTS["AgentHung"].replace("hung", "was stuck"))
    assert not is_beginning("StartTooLong", ON_NODES["StartTooLong"].replace("1800", "1200"))


def test_every_reason_that_a_tested_fault_shows_is_one() -> None:
    named = [code for cell in SEEN for code in re.findall(r"`(\w+)`", cell)]
    assert len(SEEN) > 15
    assert [code for code in named if code not in REASONS] == []


@pytest.mark.parametrize("title", ["Nodes are skipped that should not be", "Agents fail"])
def test_every_reason_that_begins_a_row_is_one(title: str) -> None:
    named = re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)
    assert len(named) >= 5
    assert [code for code in named if code not in REASONS] == []
