"""One metric family: name, help, labels, level, and the rows that a subject gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeVar, get_args

from precision_operator.exporter.text import SampleRow, Template, header, sample_template, samples

Subject = TypeVar("Subject")
Level = Literal["pool", "node", "detail"]
LEVELS: tuple[Level, ...] = get_args(Level)
Stability = Literal["stable", "alpha"]

PROFILE = ("profile_namespace", "profile")
POOL_OF = (*PROFILE, "pool")
POOL = (*POOL_OF, "workload")
POOL_RECIPE = (*POOL, "recipe")
NODE = (*PROFILE, "node", "pool", "workload")
RECIPE = (*NODE, "recipe")


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """One metric family, a gauge. `level` says from which metricsLevel on it is shown.

    A figure over several nodes has the label `stat` (min, p10, p50 ...): promlint leaves `quantile` to summaries, whose
    sums and counts never fall. `unit`, `stability` and `formerly` (its old name, with the labels that are gone) are
    for the readers of docs and dashboards.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    level: Level
    rows: Callable[[Subject], Iterable[SampleRow]]
    unit: str = ""
    stability: Stability = "alpha"
    formerly: str = ""

    @cached_property
    def head(self) -> bytes:
        """The HELP and TYPE lines."""
        return header(self.name, self.help, "gauge")

    @cached_property
    def _template(self) -> Template:
        return sample_template(self.name, self.labels, shared=len(NODE) if self.labels[: len(NODE)] == NODE else 0)

    def render(self, *subjects: Subject) -> bytes:
        """This family's lines of some objects; empty when they have none. Raises ValueError for what is no time."""
        return samples(self._template, (row for subject in subjects for row in self.rows(subject)))


def shown_at(level: Level, family_level: Level) -> bool:
    """Whether a family of `family_level` is shown at metricsLevel `level`."""
    return LEVELS.index(family_level) <= LEVELS.index(level)
