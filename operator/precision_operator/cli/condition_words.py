"""What the condition on a Node says, and what changes it, in the words of `why` and `acceptance`."""

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from precision_api.facts.names import grouped
from precision_operator.core.eligibility.proved import changed_subject
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.nodes import NodeFacts

_WORDS = json.loads(files(__package__).joinpath("condition_words.json").read_text("utf-8"))
ACTS: Mapping[str, str] = {reason: act for reasons, act in _WORDS["acts"].items() for reason in reasons.split()}
"""What one does, by the reason of a verdict."""
SEE: str = _WORDS["else"]
NEXT: Mapping[str, str] = _WORDS["next"]
"""What changes the condition, by status or reason, or what one does."""


def condition_said(facts: NodeFacts) -> dict[str, Any] | None:
    """For programs; `stale`: why it isn't of the node as it is, null where it is. None where the Node has none."""
    status, reason, message, since, _ = facts.verdict
    if not status:
        return None
    stale, usual = changed_subject(facts), NEXT["True"] if status == "True" else ACTS.get(reason, SEE)
    change = NEXT.get("stale" if stale else "False" if status == "False" else reason, usual)
    row = {"status": status, "reason": reason, "since": format_time(since) if since else "unknown"}
    return row | {"stale": stale or None, "message": message, "next": change}


def headline(row: Mapping[str, Any]) -> str:
    """`True, FailHeld, of this boot`."""
    whose = f"stale: {row['stale']}" if row["stale"] else "of this boot"
    return f"{row['status']}, {row['reason']}, {whose}"


def sentences(nodes: Iterable[NodeFacts]) -> list[str]:
    """A sentence on each thing that their conditions say: of how many, since when at the longest, and what is next."""
    rows = [(row, facts.name) for facts in nodes if (row := condition_said(facts))]
    says = grouped((headline(row), (row["since"], name, row["next"])) for row, name in rows)
    oldest = ((words, len(of), *min(of)) for words, of in sorted(says.items()))
    return [f"{number} {words}, since {since} ({name}): {change}" for words, number, since, name, change in oldest]
