"""Pools and capacity: what a GPU, a watt and a dollar give in each pool, and what the slowest node costs."""

from precision_operator.monitoring.dashboards import fleet, plans
from precision_operator.monitoring.dashboards.expressions import (
    CHOSEN_POOL,
    CHOSEN_RECIPE,
    COMMON_CHOICES,
    PROFILE,
    RECIPE_CHOICE,
    once,
    recorded,
)
from precision_operator.monitoring.dashboards.panel import Dashboard, Panel, Query, Step, Variable, row
from precision_operator.monitoring.dashboards.tables import banner, label, labels, table, value

NO_POWER = "no node of these pools has a valid power reading"
BY, BY_BASELINE = (f"max by ({PROFILE}, pool, recipe{more})" for more in ("", ", baseline"))

PUE = Variable("pue", "PUE", "Watts of the site for each watt of the GPUs' boards.", default="1.3")
GPU_HOUR = Variable("gpu_hour", "$ per GPU hour", "Price of one GPU for one hour, without energy.", default="2.50")

PER_GPU = f"{BY} ({recorded('pool_tokens_per_second_per_gpu', CHOSEN_RECIPE)})"
FLOPS = f"{BY} ({once('precision_pool_training_gpu_flops_per_second', CHOSEN_RECIPE)})"
PER_JOULE = f"{BY} ({recorded('pool_tokens_per_joule', CHOSEN_RECIPE)})"
DOLLARS = f"$gpu_hour / 3600 * 1e6 / {PER_GPU} + $kwh / 3.6 * $pue / {PER_JOULE}"
"""GPU hours for a million tokens, and their joules: 1e6 tokens / (tokens/J) / 3.6e6 J per kWh."""
ALL, NOT_SLOW = 'nodes="all"', 'nodes="not_slow"'
STRAGGLER = f"min by ({PROFILE}, pool) ({recorded('pool_slowest_ratio', CHOSEN_POOL, ALL)})"
DRAINED = f"min by ({PROFILE}, pool) ({recorded('pool_slowest_ratio', CHOSEN_POOL, NOT_SLOW)})"

NOW = row(
    "Now",
    banner(fleet.MADE_UP_NODES),
    table(
        "Each recipe in each pool",
        "What one GPU, one joule and one dollar give now. Rates are of single nodes, without communication between "
        "them; power is what the power scope of the profile covers. The price holds GPU hours, and energy times PUE.",
        "tokens_per_second_per_gpu",
        fleet.NO_RESULT,
        label("pool", sort="asc"),
        *labels("recipe", "profile", "profile_namespace", "cluster"),
        value(f"{FLOPS} / 1e12", "TFLOP/s per GPU", "teraflops"),
        value(PER_GPU, "Tokens/s per GPU", "tokens_per_second_per_gpu"),
        value(PER_JOULE, "Tokens/J", "tokens_per_joule"),
        value(f"{PER_JOULE} * 1e6 / $pue", "Tokens/s per MW", "tokens_per_second_per_mw"),
        value(DOLLARS, "$ per million tokens", "dollars_per_million_tokens"),
        size=(24, 10),
    ),
    Panel(
        "scatter",
        "Tokens per joule against tokens per second per GPU",
        "One point for each pool and recipe. Right is faster, up is cheaper to power; a point with both beats the "
        "others.",
        "tokens_per_joule",
        NO_POWER,
        (Query(PER_GPU, "Tokens/s per GPU", "tokens_per_second_per_gpu"), Query(PER_JOULE, "Tokens/J")),
        size=(24, 9),
    ),
    fleet.by_pool(
        "Tokens per second per GPU",
        "Sum of the nodes' training rates over their GPUs.",
        "tokens_per_second_per_gpu",
        recorded("pool_tokens_per_second_per_gpu", CHOSEN_RECIPE),
    ),
)

_RATIO = recorded("pool_driver_energy_ratio", CHOSEN_RECIPE)
ENERGY = row(
    "Energy",
    fleet.by_pool(
        "Tokens per joule",
        "Sum of tokens per second over sum of watts of the nodes whose power is valid.",
        "tokens_per_joule",
        recorded("pool_tokens_per_joule", CHOSEN_RECIPE),
        NO_POWER,
    ),
    table(
        "Tokens per joule of each driver",
        "Median over the nodes with this driver, and over the last 14 days; at least 5 nodes.",
        "tokens_per_joule",
        "no driver has 5 nodes with valid power",
        label("pool", sort="asc"),
        *labels("recipe", "driver", "cluster", "power_scope"),
        value(
            "max by (cluster, pool, recipe, driver, power_scope) "
            f"({recorded('pool_driver_tokens_per_joule:median_14d', CHOSEN_RECIPE)})",
            "Tokens/J",
            "tokens_per_joule",
        ),
        size=(12, 9),
    ),
    table(
        "New driver against the best older one, in tokens per joule",
        "Below 97 % the alert PrecisionEnergyRegression fires.",
        "percent",
        "no pool has had two drivers in 14 days",
        *labels("pool", "recipe"),
        label("driver", header="New driver"),
        label("cluster"),
        value(
            f"bottomk (20, min by (cluster, pool, recipe, driver) ({_RATIO}))",
            "Of the older driver",
            "percent",
            steps=(Step(None, "red"), Step(0.97, "yellow"), Step(0.99, "green")),
            sort="asc",
        ),
        size=(12, 9),
        empty="no pool has changed its driver in 14 days",
    ),
)

STRAGGLERS = row(
    "Stragglers",
    Panel(
        "timeseries",
        "Slowest node, behind the median of its kind",
        "How far the slowest node's rate, at its slowest GPU and in its best recipe, is behind the median of the "
        "nodes of its kind: of all nodes, and of those that are not marked slow. A synchronous job over many nodes "
        "runs at the rate of its slowest. Nodes whose figures are out of date are not among them.",
        "percent",
        fleet.NO_RESULT,
        (
            Query(f"1 - {STRAGGLER}", f"{fleet.POOL_LEGEND} all"),
            Query(f"1 - {DRAINED}", f"{fleet.POOL_LEGEND} not slow"),
        ),
        size=(12, 8),
        minimum=0,
    ),
    table(
        "Gain if the slow nodes were drained",
        "What a job over the whole pool would gain if it left out the nodes that are marked slow: slowest node "
        "without them over slowest node with them, minus 1.",
        "percent",
        fleet.NO_RESULT,
        *labels("pool", "profile", "profile_namespace", "cluster"),
        value(
            f"topk (20, {DRAINED} / {STRAGGLER} - 1)",
            "Gain",
            "percent",
            steps=(Step(None, "green"), Step(0.02, "yellow"), Step(0.05, "red")),
            sort="desc",
        ),
        size=(12, 8),
    ),
)

DASHBOARD = Dashboard(
    "precision-pools",
    "Precision: Pools and capacity",
    "What a GPU, a watt and a dollar give in each pool, and what the slowest nodes cost.",
    (NOW, ENERGY, STRAGGLERS, plans.ROW),
    (*COMMON_CHOICES, RECIPE_CHOICE, PUE, GPU_HOUR, Variable("kwh", "$ per kWh", "Price of energy.", default="0.08")),
    (fleet.DRIVER_CHANGES,),
)
