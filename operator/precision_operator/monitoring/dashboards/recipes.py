"""Recipes: what each recipe gains, what quantisation costs, and whether the precision really ran."""

from precision_operator.monitoring.dashboards import fleet, pools
from precision_operator.monitoring.dashboards.expressions import (
    CHOSEN_RECIPE,
    COMMON_CHOICES,
    PROFILE,
    RECIPE_CHOICE,
    once,
    recorded,
)
from precision_operator.monitoring.dashboards.node import VERDICTS
from precision_operator.monitoring.dashboards.panel import Dashboard, Mark, Panel, Query, row
from precision_operator.monitoring.dashboards.tables import banner, label, labels, table, value

LOSSES = (Mark("diverged", "red"), Mark("diverging", "orange"), Mark("not_learning", "orange", "learnt nothing"))


def _bar(expr: str) -> str:
    """The same with one label, `bar`, that names what it is of: a bar of Grafana's has one name."""
    over = ', "baseline"' if "baseline" in expr else ""
    return f'label_join({expr}, "bar", " ", "recipe"{over}, "pool", "profile", "cluster")'


AUTOCAST, PREQUANTIZED = (
    f"{pools.BY_BASELINE} ({recorded('pool_gemm_speedup_ratio:median', CHOSEN_RECIPE, mode)})"
    for mode in ('mode="autocast"', 'mode="prequantized"')
)

_TRAINED = f"{pools.BY_BASELINE} ({recorded('pool_speedup_ratio:median', CHOSEN_RECIPE)})"
_TAX = f"{pools.BY} ({recorded('pool_quantization_tax_ratio:median', CHOSEN_RECIPE)})"
GEMMS = row(
    "Matrix multiplications",
    banner(fleet.MADE_UP_NODES),
    Panel(
        "bars",
        "Speedup of the matrix multiplications: autocast beside prequantized",
        "Autocast quantises its inputs each time, as training does; prequantized is of the GEMM kernels alone. The "
        "gap is the price of quantising, and of gaps between kernels.",
        "speedup",
        fleet.NO_RESULT,
        (Query(_bar(AUTOCAST), "autocast"), Query(_bar(PREQUANTIZED), "prequantized")),
        size=(16, 12),
        bar="bar",
    ),
    Panel(
        "bars",
        "Quantisation tax",
        "Non-GEMM kernel time beyond the baseline's, as a share of it and the GEMM time: pool median. Where "
        "kernels can't be split it is at least that.",
        "percent",
        fleet.NO_RESULT,
        (Query(_bar(_TAX), "tax"),),
        size=(8, 12),
        bar="bar",
    ),
    table(
        "From the matrix multiplication to training",
        "What remains of a speedup on the way: prequantized, with quantising, and of the whole training step.",
        "speedup",
        fleet.NO_RESULT,
        label("pool", sort="asc"),
        *labels("recipe", "baseline", "profile", "profile_namespace", "cluster"),
        value(PREQUANTIZED, "Prequantized", "speedup"),
        value(AUTOCAST, "Autocast", "speedup"),
        value(_TRAINED, "Training", "speedup"),
        size=(24, 9),
    ),
    fleet.by_pool(
        "Quantisation tax over time",
        "Non-GEMM kernel time beyond the baseline's, at least. A step up after a software change is quantisation "
        "that no longer runs fused.",
        "percent",
        recorded("pool_quantization_tax_ratio:median", CHOSEN_RECIPE),
    ),
)

_BY = f"min by ({PROFILE}, pool, recipe, baseline)"
_LOW, _MIDDLE = (f"{_BY} ({recorded(f'pool_speedup_ratio:{end}', CHOSEN_RECIPE)})" for end in ("p10", "median"))
TRAINING = row(
    "Training",
    fleet.by_pool(
        "Training speedup: the median node",
        "Speedup over the baseline, paired within each run.",
        "speedup",
        recorded("pool_speedup_ratio:median", CHOSEN_RECIPE),
    ),
    Panel(
        "timeseries",
        "Training speedup: the lowest tenth of the nodes, behind the median",
        "How far the 10th percentile of the nodes' speedups is behind their median, in the worst recipe. A step "
        "up: some nodes don't get what a recipe promises.",
        "percent",
        fleet.NO_RESULT,
        (Query(f"1 - min by ({PROFILE}, pool) ({_LOW} / {_MIDDLE})", fleet.POOL_LEGEND),),
        size=(24, 7),
        minimum=0,
    ),
)

_OF_A_NODE = (label("node", link=fleet.NODE_UID), *labels("recipe", "pool", "profile", "profile_namespace", "cluster"))

_VERDICTS = once("precision_node_verification", CHOSEN_RECIPE)
_LOSSES = once("precision_node_loss_verdict", CHOSEN_RECIPE)
_NOT_RUN = once("precision_node_verification", CHOSEN_RECIPE, 'verdict!~"verified|emulated|assumed"')
VERIFICATION = row(
    "Verification",
    table(
        "Did the precision really run?",
        "Nodes by recipe and verdict. Figures of a fallback are of another precision than their name says.",
        "nodes",
        fleet.NO_RESULT,
        label("verdict", marks=VERDICTS, sort="asc"),
        *labels("recipe", "pool", "cluster"),
        value(f"count by (cluster, pool, recipe, verdict) ({_VERDICTS})", "Nodes", "nodes"),
        size=(12, 10),
        level="node",
    ),
    table(
        "Where it did not",
        "At most 50 lines: every recipe of a node that fell back or is in doubt; replays only assume.",
        "count",
        "every recipe ran in its precision on every node",
        label("verdict", marks=VERDICTS, sort="asc"),
        *_OF_A_NODE,
        query=f"topk (50, max by ({PROFILE}, node, pool, recipe, verdict) ({_NOT_RUN}))",
        size=(12, 10),
        empty="every recipe ran in its precision on every node",
        level="node",
    ),
    table(
        "Where loss runs speak against a recipe",
        "At most 50 lines. A recipe that diverges or learns nothing on one node alone is a fault of that node; on "
        "many, do not train with it as it is, however fast it is.",
        "count",
        "no loss run speaks against a recipe",
        label("verdict", header="Loss", marks=LOSSES, sort="asc"),
        *_OF_A_NODE,
        query=f"topk (50, max by ({PROFILE}, node, pool, recipe, verdict) ({_LOSSES}))",
        size=(24, 8),
        empty="no loss run speaks against a recipe; without benchmarks.loss none runs",
        level="node",
    ),
)

DASHBOARD = Dashboard(
    "precision-recipes",
    "Precision: Recipes",
    "What each recipe gains, what quantising costs, and whether the precision really ran.",
    (GEMMS, TRAINING, VERIFICATION),
    (*COMMON_CHOICES, RECIPE_CHOICE),
    (fleet.DRIVER_CHANGES,),
)
