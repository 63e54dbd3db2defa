"""All dashboards, in the order in which a reader meets them."""

from precision_operator.monitoring.dashboards import fleet, node, operation, pools, recipes

DASHBOARDS = (fleet.DASHBOARD, pools.DASHBOARD, node.DASHBOARD, recipes.DASHBOARD, operation.DASHBOARD)
