"""Two streams of JSON lines held against each other: every difference, named by where it stands."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

SHOWN = 160
"""Characters of a value that a difference shows."""
ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """`place` is the world and step, `path` leads to the value inside of it."""

    place: str
    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.place}: {self.path}: {_short(self.old)} -> {_short(self.new)}"

    def is_allowed(self, patterns: Sequence[str]) -> bool:
        """Whether a pattern (as a shell's) names the path; list indices are left out: `profiles.status.pools.*`."""
        path = re.sub(r"\[\d+\]", "", self.path)
        return any(fnmatchcase(path, pattern) for pattern in patterns)


def patterns(path: Path | None) -> tuple[str, ...]:
    """What a file names that may differ: one pattern a line, comments begin with #."""
    lines = path.read_text().splitlines() if path else []
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def differences(old: Iterable[str], new: Iterable[str]) -> Iterator[Difference]:
    """All differences; a stream that ends early is one, at its end."""
    for number, (before, after) in enumerate(itertools.zip_longest(old, new), start=1):
        if before == after:
            continue
        if before is None or after is None:
            yield Difference(f"line {number}", "", before or ABSENT, after or ABSENT)
            return
        one, other = json.loads(before), json.loads(after)
        place = f"world {one['world']} step {one['step']}" if "world" in one else f"line {number}"
        yield from _between(one, other, "", place)


def _between(one: Any, other: Any, path: str, place: str) -> Iterator[Difference]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            inside = f"{path}.{key}" if path else key
            yield from _between(one.get(key, ABSENT), other.get(key, ABSENT), inside, place)
    elif isinstance(one, list) and isinstance(other, list):
        for index, (a, b) in enumerate(itertools.zip_longest(one, other, fillvalue=ABSENT)):
            yield from _between(a, b, f"{path}[{index}]", place)
    elif type(one) is not type(other) or one != other:
        yield Difference(place, path, one, other)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
