"""The one table of metric families: exporter, docs and dashboards are made from it.

A figure that a report lacks has no row: absence is shown as absence, never as 0. There are no counters: a projection
of objects that can be deleted can't count.
"""

from __future__ import annotations

from typing import Any

from precision_operator.exporter.family import Family
from precision_operator.exporter.node_families import NODE_FAMILIES, STANDING_FAMILIES
from precision_operator.exporter.plan_families import PLAN_FAMILIES
from precision_operator.exporter.pool_families import POOL_FAMILIES
from precision_operator.exporter.profile_families import PROFILE_FAMILIES

FAMILIES: tuple[Family[Any], ...] = (
    *NODE_FAMILIES,
    *STANDING_FAMILIES,
    *POOL_FAMILIES,
    *PROFILE_FAMILIES,
    *PLAN_FAMILIES,
)
"""Node families are served by shards, the others on /metrics."""

__all__ = ["FAMILIES", "NODE_FAMILIES", "PLAN_FAMILIES", "POOL_FAMILIES", "PROFILE_FAMILIES", "STANDING_FAMILIES"]
