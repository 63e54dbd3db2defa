"""The one table of metric families: exporter, docs and dashboards are made from it.

A figure that a report lacks has no row: absence is shown as absence, never as 0. There are no counters: a projection
of objects that can be deleted can't count.
"""

from typing import Any

from precision_operator.exporter.families.family import Family
from precision_operator.exporter.families.node import NODE_FAMILIES, STANDING_FAMILIES
from precision_operator.exporter.families.plan import PLAN_FAMILIES
from precision_operator.exporter.families.pool import POOL_FAMILIES
from precision_operator.exporter.families.profile import PROFILE_FAMILIES

FAMILIES: tuple[Family[Any], ...] = NODE_FAMILIES + STANDING_FAMILIES + POOL_FAMILIES + PROFILE_FAMILIES + PLAN_FAMILIES
"""Node families are served by shards, the others on /metrics."""

__all__ = ["FAMILIES", "NODE_FAMILIES", "PLAN_FAMILIES", "POOL_FAMILIES", "PROFILE_FAMILIES", "STANDING_FAMILIES"]
