"""All dashboards, in the order in which a reader meets them."""

from precision_operator.monitoring.dashboards import fleet, node, operation, pools, recipes
from precision_operator.monitoring.dashboards.panel import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    fleet.DASHBOARD,
    pools.DASHBOARD,
    node.DASHBOARD,
    recipes.DASHBOARD,
    operation.DASHBOARD,
)
