"""Fleet overview: how many nodes were profiled, which need a look, and how the pools stand."""

from typing import Any

from precision_operator.monitoring.dashboards.expressions import (
    CHOSEN_CLUSTER,
    CHOSEN_POOL,
    CHOSEN_PROFILE,
    CHOSEN_RECIPE,
    COMMON_CHOICES,
    PROFILE,
    RECIPE_CHOICE,
    RECIPE_LINES,
    lines,
    once,
    recorded,
)
from precision_operator.monitoring.dashboards.panel import Annotation, Colour, Dashboard, Mark, Panel, Query, Step, row
from precision_operator.monitoring.dashboards.tables import MADE_UP, banner, label, labels, table, value

NODE_UID = "precision-node"
MADE_UP_NODES = f"sum by (data) ({recorded('pool_data_nodes', CHOSEN_POOL, MADE_UP)})"
POOL_LEGEND = "{{pool}} {{profile}} {{cluster}}"
"""Of a panel that is repeated by pool."""

FAULTS = (
    Mark("slow", "orange", "slow"),
    Mark("fallback", "red", "silent fallback"),
    Mark("throttled", "purple", "throttled"),
    Mark("power_invalid", "yellow", "power not valid"),
    Mark("diverged", "purple", "loss diverged"),
    Mark("limited", "blue", "power limit"),
)
JUDGED = (Mark("1", "orange", "slow"), Mark("0", "green", "no"))
QUEUED = {"running": "blue", "queued": "purple", "waiting": "yellow"}
PHASE_LINES = lines("phase", {"succeeded": "green", "failed": "red"} | QUEUED | {"skipped": "grey"})
"""Red is for what failed, and for nothing else."""
NO_RESULT = "no result yet"
NONE_WAITS = "no node waits, has failed or is skipped"
SLOW, OTHERS, EXPLAINED = 'fault="slow"', 'fault!="slow"', 'fault=~"fallback|throttled"'
UNEXPLAINED = (
    f"{recorded('node_fault', CHOSEN_POOL, SLOW)} unless on ({PROFILE}, pool, node) "
    f"{recorded('node_fault', CHOSEN_POOL, EXPLAINED)}"
)
CAUSES = f"{recorded('node_fault', CHOSEN_POOL, OTHERS)} or ({UNEXPLAINED})"
"""Faults of nodes; a node that is slow because it is throttled or falls back is told by that cause alone."""


def _stat(title: str, description: str, unit: str, expr: str, steps: tuple[Step, ...], **options: Any) -> Panel:
    size, no_value = options.pop("size", (4, 4)), options.pop("no_value", NO_RESULT)
    return Panel("stat", title, description, unit, no_value, (Query(expr),), size, steps=steps, **options)


def _marked(title: str, mark: str, description: str, colour: Colour) -> Panel:
    nodes = recorded("pool_marked_nodes", CHOSEN_POOL, f'mark="{mark}"')
    return _stat(title, description, "nodes", f"sum ({nodes})", (Step(None, "green"), Step(1, colour)), size=(8, 3))


_CURRENT, _NODES = (once("precision_fleet_nodes", CHOSEN_CLUSTER, *of) for of in (('state="current"',), ()))
_WHY = " or ".join(once(f"precision_profile_{of}_nodes", CHOSEN_PROFILE) for of in ("waiting", "failed", "skipped"))
_INVALID = once("precision_profile_phase", CHOSEN_PROFILE, 'phase="Invalid"')
_RELATIVE = once("precision_node_relative_performance_ratio")
_BY_NODE = f"max by ({PROFILE}, node, pool)"
_SLOWEST = f"bottomk (20, min by ({PROFILE}, node, pool) ({_RELATIVE}))"
_LIMIT = f"0 * {_RELATIVE} + on ({PROFILE}, pool) group_left () {once('precision_pool_slow_below_ratio')}"
LOOK = row(
    "What needs a look",
    banner(MADE_UP_NODES),
    _stat(
        "Nodes with a current result",
        "Of all nodes that profiles can measure, each once, whatever profile is chosen above: those with a result "
        "that describes them as they are and is no older, but for a day, than its profile asks for. Without "
        "schedule and maxAge any age will do.",
        "percent",
        f"sum ({_CURRENT}) / clamp_min(sum ({_NODES}), 1)",
        (Step(None, "red"), Step(0.8, "yellow"), Step(0.95, "green")),
        no_value="no data",
    ),
    table(
        "What the others wait for",
        "Nodes that wait, are under way, failed or are skipped, by reason: docs/reasons.md says what to do. A "
        "profile that is Invalid says why in its status.",
        "nodes",
        NONE_WAITS,
        label("reason"),
        value(
            f"max by ({PROFILE}, reason) (topk (20, {_WHY}) "
            f'or label_replace(0 * {_INVALID}, "reason", "Invalid", "", ""))',
            "Nodes",
            "nodes",
            sort="desc",
            width=70,
        ),
        *labels("profile", "profile_namespace", "cluster"),
        size=(12, 4),
        empty=NONE_WAITS,
    ),
    _stat(
        "Degraded pools",
        "Pools whose median rate fell below 97 % of its best of the last seven days.",
        "count",
        f"sum (max by (cluster, pool) ({recorded('pool_degraded')}))",
        (Step(None, "green"), Step(1, "red")),
    ),
    _stat(
        "Slow nodes",
        "Nodes further below their pool's median than the profile allows, and neither throttled nor in a silent "
        "fallback: those are counted by their cause. One slow node slows every job that waits for all nodes.",
        "nodes",
        f"count (group by (cluster, node) ({UNEXPLAINED})) or 0 * count ({once('precision_node_slow')})",
        (Step(None, "green"), Step(1, "orange")),
        level="node",
    ),
    _marked(
        "Silent fallbacks",
        "fallback",
        "Nodes on which a recipe ran, but its low-precision kernels did not: jobs there pay for a speedup that "
        "they don't get.",
        "red",
    ),
    _marked(
        "Throttled nodes",
        "throttled",
        "Nodes that held their clocks down for heat or power while they were measured.",
        "purple",
    ),
    _marked(
        "Power not valid",
        "power_invalid",
        "Nodes whose power reading can't be trusted: they have no tokens per joule.",
        "yellow",
    ),
    table(
        "Faults by pool",
        "How many nodes of each pool have which fault. Many at once in one pool have one cause: a rack's cooling, "
        "a driver.",
        "nodes",
        "no node has a fault",
        label("fault", marks=FAULTS),
        value(f"count by (cluster, pool, fault) ({CAUSES})", "Nodes", "nodes", sort="desc", width=80),
        *labels("pool", "cluster"),
        size=(8, 9),
        empty="no node is slow, throttled, without valid power, or falls back",
        level="node",
    ),
    table(
        "Nodes that need a look",
        "Which nodes they are, at most 100, and in which NVLink domain: that of a rack as a rule, so nodes that "
        "throttle in one domain share their cooling or power feed. Choose a node's name to see all of its recipes.",
        "nodes",
        "no node has a fault",
        label("fault", marks=FAULTS, sort="asc"),
        label("node", link=NODE_UID),
        *labels("nvlink_domain", "pool", "profile", "profile_namespace", "cluster"),
        query=f"topk (100, max by ({PROFILE}, node, pool, nvlink_domain, fault) ({CAUSES}))",
        size=(8, 9),
        empty="no node is slow, throttled, without valid power, or falls back",
        level="node",
    ),
    table(
        "The 20 slowest nodes of their pools",
        "The node's rate, at its slowest GPU, over the median of its kind, in its best recipe; the profile's limit "
        "(thresholds.slowNodePercent); and what the operator judges. Equal nodes differ by 1 to 2 %.",
        "percent",
        NO_RESULT,
        label("node", link=NODE_UID),
        value(_SLOWEST, "Of the median", "percent", sort="asc"),
        value(f"{_BY_NODE} ({_LIMIT}) and on ({PROFILE}, node, pool) {_SLOWEST}", "Limit", "percent"),
        value(
            f"{_BY_NODE} ({once('precision_node_slow')}) and on ({PROFILE}, node, pool) {_SLOWEST}",
            "Slow",
            "count",
            legend="Judged slow",
            marks=JUDGED,
        ),
        *labels("pool", "profile", "profile_namespace", "cluster"),
        size=(8, 9),
        level="node",
    ),
)


def by_pool(title: str, text: str, unit: str, expr: str, no_value: str = NO_RESULT) -> Panel:
    """One panel for each pool, a line for each recipe in the recipe's colour, and for each baseline of speedups."""
    by, legend = (", baseline", "{{recipe}} over {{baseline}}") if unit == "speedup" else ("", "{{recipe}}")
    query = Query(f"max by ({PROFILE}, pool, recipe{by}) ({expr})", f"{legend} {{{{profile}}}} {{{{cluster}}}}")
    return Panel("timeseries", title, text, unit, no_value, (query,), (24, 8), colours=RECIPE_LINES, repeat="pool")


POOLS = row(
    "Pools",
    Panel(
        "timeseries",
        "Pool's median rate, behind its best of seven days",
        "How far the median training rate of each pool is behind its best median of the last seven days. A step "
        "up of a whole pool is a change that all its nodes share: a driver, a firmware, a clock limit. From 3 % "
        "on the pool counts as degraded.",
        "percent",
        "no pool has been measured for long enough",
        (Query(f"1 - min by ({PROFILE}, pool) ({recorded('pool_degradation_ratio', CHOSEN_RECIPE)})", POOL_LEGEND),),
        size=(12, 8),
        steps=(Step(None, "green"), Step(0.03, "red")),
        minimum=0,
    ),
    Panel(
        "timeseries",
        "Nodes with a fault",
        "How many nodes have each fault. A rack that throttles is a step of many nodes at once.",
        "nodes",
        "no node has a fault",
        (Query(f"count by (fault) ({CAUSES})", "{{fault}}"),),
        size=(12, 8),
        minimum=0,
        empty="no node is slow, throttled, without valid power, or falls back",
        level="node",
        colours=lines("fault", {mark.pattern: mark.colour for mark in FAULTS}),
    ),
    by_pool(
        "Training speedup over the baseline",
        "Median over the pool's nodes of the speedup, paired within each run. 1.3 is 30 % more tokens per second.",
        "speedup",
        recorded("pool_speedup_ratio:median", CHOSEN_RECIPE),
    ),
    by_pool(
        "Tokens per joule",
        "Tokens per second of all nodes with valid power, over their watts. Times 1e6: tokens per second per MW.",
        "tokens_per_joule",
        recorded("pool_tokens_per_joule", CHOSEN_RECIPE),
        "no node of this pool has a valid power reading",
    ),
)

_BUCKETS = f"sum by (le) ({recorded('pool_relative_performance:bucket')})"
SPREAD = row(
    "Spread and change",
    Panel(
        "heatmap",
        "Spread of the nodes around their pool's median, over time",
        "How many nodes lie in each band of rate over the median of their kind. A second band below 1 is a group "
        "of nodes with one cause.",
        "nodes",
        NO_RESULT,
        (Query(_BUCKETS, "{{le}}"),),
        size=(16, 9),
    ),
    table(
        "Pools behind their best, by recipe",
        "Now, and for each recipe: where all recipes are behind alike, the cause is not the recipe.",
        "percent",
        "no pool has been measured for long enough",
        value(
            f"topk (20, 1 - min by (cluster, pool, recipe) ({recorded('pool_degradation_ratio', CHOSEN_RECIPE)}))",
            "Behind",
            "percent",
            steps=(Step(None, "green"), Step(0.03, "red")),
            sort="desc",
            width=110,
        ),
        *labels("recipe", "pool", "cluster"),
        size=(8, 9),
    ),
)

CAMPAIGNS = row(
    "Campaigns",
    Panel(
        "timeseries",
        "Nodes of the campaigns, by phase",
        "The phases exclude each other: they add up to the nodes that the profiles select.",
        "nodes",
        "no profile selects a node",
        (Query(f"sum by (phase) ({recorded('profile_nodes', CHOSEN_PROFILE)})", "{{phase}}"),),
        size=(16, 8),
        stacked=True,
        minimum=0,
        colours=PHASE_LINES,
    ),
    table(
        "Progress of the campaigns",
        "Finished nodes, good or bad, of those that can be measured.",
        "percent",
        "no profile has an eligible node",
        *labels("cluster", "profile_namespace", "profile"),
        value(
            f"max by ({PROFILE}) ({recorded('profile_progress_ratio', CHOSEN_PROFILE)})",
            "Done",
            "percent",
            steps=(Step(None, "yellow"), Step(1, "green")),
        ),
        size=(8, 8),
    ),
)

DRIVER_CHANGES = Annotation(
    "Driver changes",
    f"({recorded('pool_driver_nodes')} unless {recorded('pool_driver_nodes')} offset 1h) "
    f"and on ({PROFILE}, pool) {recorded('pool_driver_nodes')} offset 1h",
    "{{cluster}} {{pool}}: driver {{driver}}",
)

DASHBOARD = Dashboard(
    "precision-fleet",
    "Precision: Fleet overview",
    "Which nodes need a look, and how the pools stand. Begin here.",
    (LOOK, POOLS, SPREAD, CAMPAIGNS),
    (*COMMON_CHOICES, RECIPE_CHOICE),
    (DRIVER_CHANGES,),
)
