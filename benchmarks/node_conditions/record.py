"""What a reader of the Nodes' conditions sees: results, writes, and what changed meanwhile."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from precision_api.exchange.result import MeasurementResult

BAD, STRICT = -7.0, -3.5
"""Per cent below the golden nodes: planted deficits lie between 9 and 14, noise within 3; mild ones at 5 fail alone by
a profile that asks for the stricter limit."""
REFUSED = -100.0
"""What a run counts as that a GPU's health counter refused."""
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"


class Subject(NamedTuple):
    """What a verdict is of."""

    uid: str
    boot: str
    driver: str
    gpus: str

    @property
    def ending(self) -> str:
        """Of a message about it."""
        return f" (node {self.uid}, boot {self.boot})"


def subject_of(raw: dict[str, Any]) -> Subject:
    """Of a Node as it is now."""
    labels, status = raw["metadata"]["labels"], raw["status"]
    gpus = status["allocatable"]["nvidia.com/gpu"]
    return Subject(raw["metadata"]["uid"], status["nodeInfo"]["bootID"], labels[DRIVER_LABEL], gpus)


@dataclass
class Measured:
    """One result as its agent gave it."""

    node: str
    run: str
    subject: "Subject"
    at: datetime
    worst: float
    """Of its slowest GPU, per cent off the golden nodes' median."""
    counts: bool
    """Whether it was measured, whole, cool, and by the software of the golden nodes."""
    process: int = 0
    """Which one wrote it into the report."""
    profile: str = "nightly"


@dataclass
class Written:
    """A condition as it was written, and what stood there before."""

    process: int
    name: str
    subject: Subject
    at: datetime
    before: dict[str, Any]
    row: dict[str, Any]
    guarded: bool
    """Whether a policy held the account to its condition."""

    @property
    def was_of_subject(self) -> bool:
        """Whether what stood there before was of this boot of this node."""
        return bool(self.before.get("message", "").endswith(self.subject.ending))

    @property
    def closes(self) -> bool:
        return (self.before.get("status"), self.row["status"]) == ("True", "False")


@dataclass
class Record:
    """All that the reader sees."""

    measured: list[Measured] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    moved: list[tuple[datetime, str]] = field(default_factory=list)
    """When a node's boot, driver or GPUs changed, by UID."""
    limits: list[tuple[datetime, str, float]] = field(default_factory=list)
    """From when on a profile fails a GPU that lies so far off."""
    forgotten: list[tuple[datetime, str]] = field(default_factory=list)
    """When what was measured ceased to count: of a profile that was deleted, of a node whose report was, or whose
    condition was removed by hand."""
    nodes: int = 0
    golden: float = 0.0

    def counting(self, subject: Subject, at: datetime, process: int = 0) -> list[Measured]:
        """Runs on this boot that count at that time: all, or what one process wrote."""
        since = [(when, of) for when, of in self.forgotten if when <= at]
        return [
            m for m in self.measured
            if m.subject == subject and m.at <= at and m.process and m.counts and process in (0, m.process)
            and not any(m.at <= when and of in (m.profile, m.node) for when, of in since)
        ]  # fmt: skip

    def is_bad(self, m: Measured, at: datetime) -> bool:
        """Whether its profile fails it, as it asks at that time."""
        return m.worst < next((it for when, of, it in reversed(self.limits) if of == m.profile and when <= at), BAD)


def rates_of(result: MeasurementResult) -> dict[str, float]:
    training = result.recipes[0].training if result.recipes else None
    return dict(training.tokens_per_second_by_gpu) if training is not None else {}


def worst_off(result: MeasurementResult, golden: float) -> float:
    """Of its slowest GPU, per cent off the golden nodes' median."""
    return min((100 * math.log(rate / golden) for rate in rates_of(result).values()), default=math.nan)
