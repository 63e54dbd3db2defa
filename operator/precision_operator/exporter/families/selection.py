"""Which families are shown: by metricsLevel, and by a list of names to allow or to deny, as kube-state-metrics has it.

https://github.com/kubernetes/kube-state-metrics/blob/main/docs/developer/cli-arguments.md: exact names or regular
expressions, one list or the other. Unlike there an expression must match the whole name, as in Prometheus.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from precision_operator.exporter.families.family import LEVELS, Family, Level


@dataclass(frozen=True)
class Selection:
    """What is shown of the table of families. Both lists are regular expressions over names; at most one is set."""

    level: Level = "node"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @cached_property
    def nodes(self) -> bool:
        """Whether single nodes are shown at all: below that level there are no shards to serve them."""
        return self.level != "pool"

    def shows(self, family: Family[Any]) -> bool:
        is_shown = self._answers.get(family.name)
        if is_shown is None:
            at_level = LEVELS.index(family.level) <= LEVELS.index(self.level)
            matches = any(re.fullmatch(expression, family.name) for expression in self.allow or self.deny)
            is_shown = self._answers[family.name] = at_level and matches == bool(self.allow)
        return is_shown

    def unmatched(self, names: Iterable[str]) -> tuple[str, ...]:
        """The expressions that match none of the names: a typing error, or a name of another version."""
        known_names = tuple(names)
        return tuple(
            pattern for pattern in (*self.allow, *self.deny) if not any(re.fullmatch(pattern, it) for it in known_names)
        )

    @cached_property
    def _answers(self) -> dict[str, bool]:
        """By name: what `shows` has said. It is asked for each family of each report."""
        return {}
