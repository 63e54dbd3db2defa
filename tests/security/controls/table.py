"""All controls, in the order of docs/security.md, and then those of rules that it does not claim."""

from tests.security.controls.of_agents import AGENT, READERS
from tests.security.controls.of_rules import RULES
from tests.security.controls.of_tenants import TENANT
from tests.security.controls.on_cluster import ON_CLUSTER
from tests.security.controls.on_nodes import ON_NODES

CONTROLS = TENANT + AGENT + READERS + ON_CLUSTER + ON_NODES + RULES
