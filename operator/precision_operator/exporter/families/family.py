"""One metric family: name, help (of help.json), labels, level, and the rows that a subject gives."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
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
HELP: Mapping[str, str] = json.loads(files(__package__).joinpath("help.json").read_text(encoding="utf-8"))
_UNITS = {
    "tokens_per_second": "tokens/s",
    "tokens_per_joule": "tokens/J",
    "flops_per_second": "FLOP/s",
    "ratio": "ratio",
    "seconds": "seconds",
    "nodes": "nodes",
    "gpus": "GPUs",
    "bytes": "bytes",
    "watts": "W",
    "joules": "J",
}
"""By the ends of names."""


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """One metric family, a gauge. `detail`: it is shown from that metricsLevel on.

    `rows` leave out the labels of the node, which all rows of a node family share.
    A figure over several nodes has the label `stat` (min, p10, p50 ...): promlint leaves `quantile` to summaries, whose
    sums and counts never fall. `stability` is for the readers of docs.
    """

    name: str
    labels: tuple[str, ...]
    rows: Callable[[Subject], Iterable[SampleRow]]
    detail: bool = False
    stability: Stability = "alpha"

    @property
    def help(self) -> str:
        return HELP[self.name]

    @cached_property
    def level(self) -> Level:
        """From which metricsLevel on it is shown."""
        return "detail" if self.detail else "node" if self._of_nodes else "pool"

    @property
    def unit(self) -> str:
        """What the end of the name says, for the readers of docs and dashboards; empty where it says none."""
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(f"_{end}")), "")

    @cached_property
    def head(self) -> bytes:
        """The HELP and TYPE lines."""
        return header(self.name, self.help, "gauge")

    def full_rows(self, subject: Subject) -> Iterator[SampleRow]:
        """An object's rows with the values of all labels."""
        shared = self._shared(subject)
        return ((shared + labels, value) for labels, value in self.rows(subject))

    def render(self, subject: Subject) -> bytes:
        """This family's lines of an object; empty when it has none. Raises ValueError for what is no time."""
        return samples(self._template, self.rows(subject), self._shared(subject))

    @cached_property
    def _of_nodes(self) -> bool:
        return self.labels[: len(NODE)] == NODE

    def _shared(self, subject: Subject) -> tuple[str, ...]:
        """The values of NODE, where the subject is one."""
        return subject.labels if self._of_nodes else ()  # type: ignore[attr-defined]

    @cached_property
    def _template(self) -> Template:
        return sample_template(self.name, self.labels, shared=len(NODE) if self._of_nodes else 0)


def stable(name: str, labels: tuple[str, ...], rows: Callable[[Subject], Iterable[SampleRow]]) -> Family[Subject]:
    """A family that stays as it is within a major version."""
    return Family(name, labels, rows, stability="stable")
