"""One metric family: name, help, labels, level, and the rows that a subject gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeVar, get_args

from precision_operator.exporter.text import Sampler, SampleRow, header

Subject = TypeVar("Subject")
Level = Literal["pool", "node", "detail"]
LEVELS: tuple[Level, ...] = get_args(Level)

PROFILE = ("profile_namespace", "profile")
POOL_OF = (*PROFILE, "pool")
POOL = (*POOL_OF, "workload")
POOL_RECIPE = (*POOL, "recipe")
NODE = (*PROFILE, "node", "pool", "workload")
RECIPE = (*NODE, "recipe")


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """One metric family. `level` says from which metricsLevel on it is shown.

    A row of a summary or histogram holds a `Spread` as its value; `unit` is told to readers of docs and dashboards.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    level: Level
    rows: Callable[[Subject], Iterable[SampleRow]]
    unit: str = ""
    type: Literal["gauge", "summary", "histogram"] = "gauge"

    @cached_property
    def head(self) -> bytes:
        """The HELP and TYPE lines."""
        return header(self.name, self.help, self.type)

    @cached_property
    def all_labels(self) -> tuple[str, ...]:
        """The labels, with the one that the type adds."""
        added = {"gauge": (), "summary": ("quantile",), "histogram": ("le",)}[self.type]
        return (*self.labels, *added)

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self.name, self.labels)

    def render(self, *subjects: Subject) -> bytes:
        """This family's lines of some objects; empty when they have none. Raises ValueError for what is no time."""
        return self._sampler.lines(row for subject in subjects for row in self.rows(subject))


def shown_at(level: Level, family_level: Level) -> bool:
    """Whether a family of `family_level` is shown at metricsLevel `level`."""
    return LEVELS.index(family_level) <= LEVELS.index(level)
