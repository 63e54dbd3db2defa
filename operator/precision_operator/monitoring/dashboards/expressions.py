"""PromQL that every dashboard uses: one value for all exporters, the reader's choice, and common figures."""

from collections.abc import Mapping
from typing import Any

from precision_api.facts.recipes import LETTERS, PARTS, by_default
from precision_operator.drawing.figure import RECIPE_COLOURS
from precision_operator.monitoring import rules
from precision_operator.monitoring.dashboards.panel import SeriesColour, Variable

PROFILE = "cluster, profile_namespace, profile"
POOL = f"{PROFILE}, pool, workload"

CHOSEN_CLUSTER = 'cluster=~"$cluster"'
CHOSEN_NAMESPACE = f'{CHOSEN_CLUSTER}, profile_namespace=~"$namespace"'
CHOSEN_PROFILE = f'{CHOSEN_NAMESPACE}, profile=~"$profile"'
CHOSEN_POOL = f'{CHOSEN_PROFILE}, pool=~"$pool"'
CHOSEN_RECIPE = f'{CHOSEN_POOL}, recipe=~"$recipe"'
ONE_NODE = f'{CHOSEN_PROFILE}, node="$node"'

CLUSTER_CHOICE = Variable(
    "cluster", "Cluster", "By the label of the series; empty where they have none.", "precision_profile_nodes"
)
NAMESPACE_CHOICE = Variable(
    "namespace",
    "Namespace",
    "Namespaces of the profiles.",
    f"precision_profile_nodes{{{CHOSEN_CLUSTER}}}",
    "profile_namespace",
)
PROFILE_CHOICE = Variable("profile", "Profile", "PrecisionProfiles.", f"precision_profile_nodes{{{CHOSEN_NAMESPACE}}}")
POOL_CHOICE = Variable(
    "pool", "Pool", "Groups of nodes with equal hardware.", f"precision_pool_nodes{{{CHOSEN_PROFILE}}}"
)
MIXTURES = f"A mixture is its name, a dot, and the letter of the recipe in {', '.join(PARTS)}: " + ", ".join(
    f"{letter} {recipe}" for recipe, letter in LETTERS.items()
)
RECIPE_CHOICE = Variable(
    "recipe", "Recipe", f"{MIXTURES}.", f"precision_pool_training_tokens_per_second{{{CHOSEN_POOL}}}"
)
NODE_CHOICE = Variable(
    "node", "Node", "The node to look at.", f"precision_node_info{{{CHOSEN_POOL}}}", multiple=False, every=False
)


def lines(label: str, colours: Mapping[Any, str]) -> tuple[SeriesColour, ...]:
    """The lines of each value of the label in its colour."""
    return tuple(SeriesColour(label, value, colour) for value, colour in colours.items())


RECIPE_LINES = lines("recipe", {recipe: RECIPE_COLOURS[recipe] for recipe in by_default(None)})
"""Each recipe in the colour that it has in the report, too; variants, which few profiles list, in Grafana's own."""
COMMON_CHOICES = (CLUSTER_CHOICE, NAMESPACE_CHOICE, PROFILE_CHOICE, POOL_CHOICE)
"""Each one offers what the choices before it leave."""


def once(metric: str, *matchers: str) -> str:
    """The family with one series for all exporters that are scraped: they tell the same."""
    return rules.once(f"{metric}{_chosen(matchers)}", over="")


def recorded(name: str, *matchers: str) -> str:
    """A recorded series; recording has taken the exporters together already."""
    return f"precision:{name}{_chosen(matchers)}"


def _chosen(matchers: tuple[str, ...]) -> str:
    return f"{{{', '.join(matchers or (CHOSEN_POOL,))}}}"


def over_pool_median(*matchers: str) -> str:
    """Each node's training rate over the median of its pool, by recipe; 1 is the median.

    Not of a node whose figures are out of date: the median may be of another spec or driver than they are.
    """
    rate = once("precision_node_training_tokens_per_second", *matchers)
    held = f"({rate} unless on ({PROFILE}, pool, node) {once('precision_node_outdated', *matchers)})"
    return f"{held} / on ({POOL}, recipe) group_left () precision:pool_tokens_per_second:median"
