"""PromQL that every dashboard uses: one value for all exporters, the reader's choice, and common figures."""

from __future__ import annotations

from precision_operator.monitoring.dashboards.panel import Variable

PROFILE = "profile_namespace, profile"
POOL = f"{PROFILE}, pool, workload"

CHOSEN_PROFILE = 'profile_namespace=~"$namespace", profile=~"$profile"'
CHOSEN_POOL = f'{CHOSEN_PROFILE}, pool=~"$pool"'
CHOSEN_RECIPE = f'{CHOSEN_POOL}, recipe=~"$recipe"'
NOT_BASELINE = 'recipe!="bf16"'
ONE_NODE = f'{CHOSEN_PROFILE}, node="$node"'

NAMESPACE_CHOICE = Variable(
    "namespace", "Namespace", "Namespaces of the profiles.", "precision_profile_nodes", "profile_namespace"
)
PROFILE_CHOICE = Variable("profile", "Profile", "PrecisionProfiles.", "precision_profile_nodes", "profile")
POOL_CHOICE = Variable("pool", "Pool", "Groups of nodes with equal hardware.", "precision_pool_nodes", "pool")
RECIPE_CHOICE = Variable(
    "recipe", "Recipe", "Precision recipes.", "precision_pool_training_tokens_per_second", "recipe"
)
NODE_CHOICE = Variable(
    "node", "Node", "The node to look at.", "precision_node_info", "node", multiple=False, every=False
)
COMMON_CHOICES = (NAMESPACE_CHOICE, PROFILE_CHOICE, POOL_CHOICE)


def one(metric: str, *matchers: str) -> str:
    """The family with one series for all exporters that are scraped: they tell the same."""
    return f"max without (instance, pod, endpoint, container) ({metric}{_chosen(matchers)})"


def recorded(name: str, *matchers: str) -> str:
    """A recorded series; recording has taken the exporters together already."""
    return f"precision:{name}{_chosen(matchers)}"


def _chosen(matchers: tuple[str, ...]) -> str:
    return f"{{{', '.join(matchers or (CHOSEN_POOL,))}}}"


def with_domain(expr: str) -> str:
    """Series of nodes with a result, each with its NVLink domain as a label where it is in one."""
    node = f"{PROFILE}, pool, node"
    info = one("precision_node_info", CHOSEN_POOL)
    return f"({expr}) * on ({node}) group_left (nvlink_domain) topk by ({node}) (1, {info})"


def over_pool_median(*matchers: str) -> str:
    """Each node's training rate over the median of its pool, by recipe; 1 is the median."""
    rate = one("precision_node_training_tokens_per_second", *matchers)
    return f"{rate} / on ({POOL}, recipe) group_left () precision:pool_tokens_per_second:median"
