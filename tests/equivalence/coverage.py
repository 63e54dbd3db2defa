"""How often each reason and each kind of action occurs in what a version gave: a comparison shows only what occurs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

LEAST = 20
NEVER = {"Eligible": "what a candidate is before turns are given: no plan ends with it"}
"""Reasons that no plan and no status can show, each with why."""
ACTIONS = (
    *("Start", "Collect", "Close", "Drop", "MarkStale", "MarkFresh"),
    *("Close failed", "Close disrupted", "Drop Job", "Drop NodePrecisionReport"),
    *("Drop ProfileDeleted", "Drop ResultWritten", "Drop RetentionOver"),
)
"""What is counted of actions: each kind, and what kinds are split into."""


def counts(rows: Iterable[Mapping[str, Any]], reasons: Sequence[Sequence[str]]) -> Counter[str]:
    """Occurrences by reason code and by kind of action; every row that must occur is there, with 0 where it doesn't."""
    patterns = [(code, _pattern(template, step)) for code, kind, template, step in reasons if kind == "profile"]
    known = {code for code, *_ in reasons}
    found: Counter[str] = Counter(dict.fromkeys((*(known - NEVER.keys()), *ACTIONS), 0))
    for row in rows:
        found.update(code for code in _codes(row) if code in known)
        found.update(code for text in _condition_texts(row) for code, p in patterns if p.fullmatch(text))
        found.update(name for action in row.get("actions", ()) for name in _kinds(action))
    return found


def _kinds(action: Mapping[str, Any]) -> Iterator[str]:
    kind = action["kind"]
    yield kind
    if kind == "Close":
        yield f"Close {action['outcome']}"
    if kind == "Drop":
        yield from (f"Drop {action['of']}", f"Drop {action['reason']}")


def _codes(row: Mapping[str, Any]) -> Iterator[str]:
    """Each code wherever it stands: node states, actions, attempts that are written, and what `why` says."""
    for each in row.get("rounds", ()):
        for *_, reason, _message, run, _since in each["nodes"]:
            yield reason
            yield from [run[2]] if run and run[2] else []
    yield from (action["reason"] for action in row.get("actions", ()))
    for write in row.get("writes", ()):
        status = write["status"]
        yield status.get("attempt", {}).get("reason") or ""
        yield status.get("run", {}).get("detailProblem", "").partition(":")[0]
    for answer in row.get("why", ()):
        yield from (answer["reason"], *(answer["slow"] or ())[:1])


def _condition_texts(row: Mapping[str, Any]) -> Iterator[str]:
    for profile in row.get("profiles", ()):
        yield from (c.get("message", "") for c in profile["status"].get("conditions", ()))


def _pattern(template: str, next_step: str) -> re.Pattern[str]:
    """The sentence of a row, whatever its facts are."""
    what = template[:1].upper() + template[1:] if not re.match(r"[a-z]\w*\.\w", template) else template
    parts = re.split(r"\{\w+\}", f"{what.removesuffix('.')}. {next_step}")
    first = "" if not parts[0] else re.escape(parts[0])
    return re.compile(".*".join([first, *map(re.escape, parts[1:])]), re.DOTALL)
