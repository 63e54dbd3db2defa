"""All controls, in the order of docs/security.md."""

from __future__ import annotations

from tests.security.controls.of_agents import AGENT, READERS
from tests.security.controls.of_tenants import TENANT
from tests.security.controls.on_cluster import ON_CLUSTER
from tests.security.controls.on_nodes import ON_NODES

CONTROLS = TENANT + AGENT + READERS + ON_CLUSTER + ON_NODES
