"""The page for symptoms shows what users really read."""

from __future__ import annotations

import re
from pathlib import Path

from precision_operator.core.reasons import REASONS, begun, clause
from precision_operator.core.rollout.refusal import RULES

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


BEGINS = re.compile(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)


def begun_with() -> dict[str, str]:
    """How the message of each reason begins, in the section about nodes that die and images that never come."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## Nodes that die, images that never come\n")
    return dict(BEGINS.findall(rest.partition("\n## ")[0]))


ON_NODES = {
    "AgentUnreachable": {"attempt": 1, "why": "condition Ready is Unknown (NodeStatusUnknown)"},
    "NodeUnresponsive": {"why": "condition Ready is Unknown (NodeStatusUnknown)", "what": "its pod was to be gone at"},
    "NodeLost": {},
    "Quarantined": {"runs": "3 attempts", "why": "NodeUnresponsive"},
    "PullingImage": {"attempt": 1, "since": ""},
    "StartTooLong": {"seconds": 1800, "text": ""},
    "ImagePullFailing": {"attempt": 1, "why": ""},
    "ImagePullFailed": {"image": "of the agent", "text": ""},
    "PendingTooLong": {"seconds": 300, "text": ""},
    "InsufficientCPU": {"wanted": "4", "requested": "", "allocatable": ""},
    "InsufficientMemory": {"wanted": "32.0Gi", "requested": "", "allocatable": ""},
    "Evicted": {"by": "its kubelet", "text": ""},
    "ContainerLost": {"text": ""},
    "PodRejected": {"text": ""},
    "AgentOutOfStorage": {"text": ""},
    "Drained": {"text": ""},
    "Preempted": {"text": ""},
    "Yielded": {"pod": "", "priority": 0},
}
"""The facts that the page shows; empty where the page leaves off."""


def test_what_users_read_of_nodes_that_die_begins_as_the_page_says() -> None:
    said = {code: begun(clause(code, node="NODE", **facts)) for code, facts in ON_NODES.items()}
    shown_here = begun_with()
    assert shown_here.keys() == said.keys()
    assert [code for code, start in shown_here.items() if not said[code].startswith(start.rstrip(".: "))] == []
