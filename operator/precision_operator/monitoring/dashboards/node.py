"""One node: all of its recipes against the pool's median, its history, and what is wrong with it."""

from functools import partial

from precision_operator.exporter.families.node import INFO
from precision_operator.monitoring.dashboards.expressions import (
    CHOSEN_POOL,
    COMMON_CHOICES,
    NODE_CHOICE,
    ONE_NODE,
    RECIPE_LINES,
    once,
    over_pool_median,
    recorded,
)
from precision_operator.monitoring.dashboards.fleet import FAULTS
from precision_operator.monitoring.dashboards.panel import Dashboard, Mark, Panel, Query, SeriesColour, Step, row
from precision_operator.monitoring.dashboards.tables import MADE_UP, banner, label, labels, table, value

_Panel, _table = partial(Panel, level="node"), partial(table, level="node")
NO_RESULT = "this node has no result yet"
SHOWN_INFO = ("cluster", "profile", "workload", "pool", *INFO)
NOT_TOLD = "NVML tells nothing of a replay"
BY, EACH = "max by (recipe)", "max by (cluster, profile, recipe)"
BLUE = (Step(None, "blue"),)
VERDICTS = (
    Mark("verified", "green"),
    Mark("partial", "yellow"),
    Mark("emulated", "yellow"),
    Mark("fallback", "red", "silent fallback"),
    Mark("unknown", "yellow"),
    Mark("assumed", "grey"),
)


def _stat(title: str, description: str, unit: str, expr: str, steps: tuple[Step, ...] = BLUE, empty: str = "") -> Panel:
    return _Panel("stat", title, description, unit, empty or NO_RESULT, (Query(expr),), (4, 4), steps, empty=empty)


NOW = row(
    "Now",
    banner(f"sum by (data) ({once('precision_node_info', ONE_NODE, MADE_UP)})", "node"),
    _stat(
        "Worst recipe",
        "The lowest of the node's rates, of its pool's median. Equal nodes differ by 1 to 2 %; beside it stands "
        "whether the node is slow by the profile's limit.",
        "percent",
        f"min ({over_pool_median(ONE_NODE)})",
    ),
    _stat(
        "Marked slow",
        "1 where the operator judges the node slow; not judged while its pool has fewer than 3 results.",
        "count",
        f"max ({once('precision_node_slow', ONE_NODE)})",
        (Step(None, "green"), Step(1, "orange")),
    ),
    _stat(
        "Throttled",
        "Largest share of a recipe's measured time in which the clocks were held down; only where it is marked.",
        "percent",
        f"max ({once('precision_node_throttled_ratio', ONE_NODE)})",
        (Step(None, "orange"), Step(0.2, "red")),
        "not throttled",
    ),
    _stat(
        "Valid power",
        "Share of the recipes whose power reading can be trusted.",
        "percent",
        f"avg ({once('precision_node_power_valid', ONE_NODE)})",
        (Step(None, "yellow"), Step(1, "green")),
    ),
    _stat(
        "Age",
        "Time since the newest run with a result has ended.",
        "seconds",
        f"time() - max ({once('precision_node_last_success_timestamp_seconds', ONE_NODE)})",
    ),
    _stat(
        "Last run",
        "How long the newest run with a result has taken: what a measurement costs this node.",
        "seconds",
        f"max ({once('precision_node_last_duration_seconds', ONE_NODE)})",
    ),
)

_FLOPS, _RATE = (
    f"{EACH} ({once(f'precision_node_training_{name}_per_second', ONE_NODE)})" for name in ("gpu_flops", "tokens")
)
_SPEEDUP = [
    f"{EACH} ({once(f'precision_node_training_speedup{end}_ratio', ONE_NODE)})" for end in ("", "_lower", "_upper")
]
RECIPES = row(
    "Recipes",
    _table(
        "All recipes against the pool's median",
        "Training rate of the whole node, and against its pool's median; the speedup over the baseline with its "
        "95 % interval; tokens per joule where power is valid.",
        "tokens_per_second",
        NO_RESULT,
        label("recipe", sort="asc"),
        *labels("profile", "cluster"),
        value(f"{_FLOPS} / 1e12", "TFLOP/s per GPU", "teraflops"),
        value(_RATE, "Tokens/s", "tokens_per_second"),
        value(f"min by (cluster, profile, recipe) ({over_pool_median(ONE_NODE)})", "Of the pool's median", "percent"),
        value(_SPEEDUP[0], "Speedup", "speedup"),
        value(_SPEEDUP[1], "at least", "speedup"),
        value(_SPEEDUP[2], "at most", "speedup"),
        value(f"{EACH} ({once('precision_node_training_tokens_per_joule', ONE_NODE)})", "Tokens/J", "tokens_per_joule"),
        size=(24, 8),
    ),
    _Panel(
        "bars",
        "Rate over the pool's median, by recipe",
        "All recipes low: the node is slow. One recipe low: that recipe has a fault here.",
        "percent",
        NO_RESULT,
        (Query(f"min by (recipe) ({over_pool_median(ONE_NODE)})", "Of the median"),),
        size=(12, 8),
        bar="recipe",
    ),
    _table(
        "Did each recipe really run?",
        "The verdict from the kernels that were seen: a silent fallback ran in a higher precision than was asked for.",
        "count",
        NO_RESULT,
        label("recipe", sort="asc"),
        label("verdict", marks=VERDICTS),
        label("workload"),
        query=f"max by (recipe, verdict, workload) ({once('precision_node_verification', ONE_NODE)})",
        size=(12, 8),
    ),
)

_ESTIMATE, _PEAK = (once(f"precision_node_{name}_bytes", ONE_NODE) for name in ("model_memory", "allocated_peak"))
_USED, _TOTAL = (once("precision_node_gpu_memory_bytes", ONE_NODE, f'state="{state}"') for state in ("used", "total"))
_NVML = "The highest while the benchmark's short model trained: of the run, for all recipes lie in one process."
MEMORY = row(
    "Memory",
    _stat("In use by NVML", _NVML, "bytes", f"max ({_USED})", empty=NOT_TOLD),
    _stat("GPU's memory", "All that this GPU has.", "bytes", f"max ({_TOTAL})", empty=NOT_TOLD),
    _table(
        "Memory of one GPU, by recipe",
        "What the full model takes, by a formula, beside what the allocator gave the short model that ran.",
        "bytes",
        NO_RESULT,
        label("recipe", sort="asc"),
        value(f"{BY} ({_ESTIMATE})", "Full model (estimate)", "bytes"),
        value(f"{BY} ({_PEAK})", "Short model (allocator)", "bytes"),
        size=(16, 8),
    ),
)

FAULTS_OF_NODE = row(
    "Faults",
    _table(
        "Faults of this node",
        "What the operator has marked.",
        "count",
        "no fault",
        label("fault", marks=FAULTS, sort="asc"),
        *labels("cluster", "profile", "pool"),
        query=f"max by (cluster, fault, profile, pool) ({recorded('node_fault', ONE_NODE)})",
        size=(8, 7),
        empty="the node has no fault",
    ),
    _table(
        "Throttling",
        "Share of the measured time in which clocks were held down, and what for.",
        "percent",
        "not throttled",
        label("recipe", sort="asc"),
        label("reason"),
        value(
            f"max by (recipe, reason) ({once('precision_node_throttled_ratio', ONE_NODE)})",
            "Of the time",
            "percent",
            steps=(Step(None, "orange"),),
        ),
        size=(8, 7),
        empty="the node is not throttled",
    ),
    _table(
        "Power readings that are not valid",
        "The first thing wrong with each. Such a recipe has no watts and no tokens per joule here.",
        "count",
        "all power readings are valid",
        label("recipe", sort="asc"),
        label("reason"),
        query=f"max by (recipe, reason) ({once('precision_node_power_valid', ONE_NODE)} == 0)",
        size=(8, 7),
        empty="all power readings of the node are valid",
    ),
)

_LIMIT = once("precision_pool_slow_below_ratio", CHOSEN_POOL)
HISTORY = row(
    "History",
    _Panel(
        "timeseries",
        "Behind the pool's median: history",
        "The series of this one node. A step up is the day on which it became slow; the red line is the profile's "
        "limit for slow nodes.",
        "percent",
        NO_RESULT,
        (
            Query(f"1 - min by (recipe) ({over_pool_median(ONE_NODE)})", "{{recipe}}"),
            Query(f'label_replace(1 - max ({_LIMIT}), "recipe", "limit", "", "")', "{{recipe}}"),
        ),
        size=(12, 9),
        colours=(*RECIPE_LINES, SeriesColour("recipe", "limit", "red")),
    ),
    _Panel(
        "timeseries",
        "Tokens per joule: history",
        "A line that ends is a power reading that is no longer valid.",
        "tokens_per_joule",
        "no recipe has a valid power reading",
        (Query(f"max by (recipe) ({once('precision_node_training_tokens_per_joule', ONE_NODE)})", "{{recipe}}"),),
        size=(12, 9),
        colours=RECIPE_LINES,
        empty="the node's power readings are not valid",
    ),
    _table(
        "Measured on and with",
        "Hardware and software of the newest result. Only data that is measured is this hardware's own.",
        "count",
        NO_RESULT,
        *labels(*SHOWN_INFO),
        query=f"max by ({', '.join(SHOWN_INFO)}) ({once('precision_node_info', ONE_NODE)})",
        size=(24, 6),
    ),
)

DASHBOARD = Dashboard(
    "precision-node",
    "Precision: Node",
    "One node: all recipes against its pool, its faults, its history.",
    (NOW, RECIPES, MEMORY, FAULTS_OF_NODE, HISTORY),
    (*COMMON_CHOICES, NODE_CHOICE),
)
