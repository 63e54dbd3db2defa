"""The families of what became of a node's newest attempt, by name: so that an alert can say which node it is, and why.

A node that is gone from the cluster has neither failed nor is in quarantine: its report is only kept for a while.
"""

from __future__ import annotations

from collections.abc import Iterator

from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading
from precision_operator.exporter.families.family import NODE, Family
from precision_operator.exporter.text import SampleRow

GONE = "NodeGone"


def _failed(result: Reading) -> Iterator[SampleRow]:
    attempt = result.attempt
    if attempt is not None and attempt.outcome == "failed" and result.stale != GONE:
        yield (attempt.reason or "",), 1.0


def _quarantined(result: Reading) -> Iterator[SampleRow]:
    if result.quarantine is not None and result.stale != GONE:
        yield (result.quarantine.reason,), 1.0


def _outdated(result: Reading) -> Iterator[SampleRow]:
    reason = result.stale
    if reason and reason not in HOLDS_UNTIL_REPLACED:
        yield (reason,), 1.0


NODE_STATE_FAMILIES: tuple[Family[Reading], ...] = (
    Family(
        "precision_node_failed",
        "1 while the node's newest attempt is one that failed; reason is why. pool is empty before a first result.",
        (*NODE, "reason"),
        _failed,
    ),
    Family(
        "precision_node_quarantined",
        "1 while the node is left alone since run after run failed; reason is that of the last failure.",
        (*NODE, "reason"),
        _quarantined,
    ),
    Family(
        "precision_node_outdated",
        "1 while the node's figures describe it no longer; reason is what has changed: SpecChange, DriverChange, "
        "AgentChange, HardwareChange, or NodeGone. A new run that was only asked for makes nothing outdated.",
        (*NODE, "reason"),
        _outdated,
    ),
)
