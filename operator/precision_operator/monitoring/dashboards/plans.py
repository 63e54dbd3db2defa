"""Plans: the answers of the CapacityPlans, as rows of the dashboard Pools and capacity.

No variable of the page fits: plans have namespaces of their own, and a pool of a plan may have no report. All are
shown.
"""

from precision_operator.monitoring.dashboards.expressions import once
from precision_operator.monitoring.dashboards.panel import Mark, Panel, Query, TableColumn, row
from precision_operator.monitoring.dashboards.tables import ValueColumn, label, labels, table, value

FEW_ROWS = 5
"""Plans are few: a table as high as its rows, and it scrolls where there are more."""
NO_PLAN = "no CapacityPlan has an answer yet"
NONE_HERE = "a fleet without a CapacityPlan has none"
ANY = 'cluster=~"$cluster", plan=~".+"'
PLAN = "{{plan_namespace}}/{{plan}} {{cluster}}"
PHASES = (
    Mark("Solved", "green"),
    Mark("Infeasible", "red"),
    *(Mark(phase, "orange") for phase in ("TimedOut", "NotFound", "Refused")),
)


def _of_plan(name: str) -> str:
    return f"max by (cluster, plan_namespace, plan) ({once(f'precision_plan_{name}', ANY)})"


def _of_pool(name: str) -> str:
    return f"max by (cluster, plan_namespace, plan, pool) ({once(f'precision_plan_pool_{name}', ANY)})"


def _table(
    title: str, description: str, unit: str, *columns: TableColumn | ValueColumn, sort: str = "plan", width: int = 8
) -> Panel:
    """A table of plans: which plan, then these columns."""
    plan = (label(name, sort="asc" if name == sort else None) for name in ("cluster", "plan_namespace", "plan"))
    return table(title, description, unit, NO_PLAN, *plan, *columns, size=(width, FEW_ROWS), empty=NONE_HERE)


def _line(title: str, description: str, unit: str, no_value: str, name: str, scale: str = "") -> Panel:
    """A figure of each plan over time; a bound of it where rates are upper bounds."""
    rows = (("", PLAN), ("least_", f"{PLAN}, at least"))
    queries = tuple(Query(f"{_of_plan(f'{prefix}{name}')}{scale}", legend) for prefix, legend in rows)
    return Panel("timeseries", title, description, unit, no_value, queries, size=(12, 6), empty=NONE_HERE)


_PHASES = f"max by (cluster, plan_namespace, plan, phase) ({once('precision_plan_phase', ANY)}) == 1"
_JOBS = f"sum by (cluster, plan_namespace, plan, pool, recipe, basis) ({once('precision_plan_jobs', ANY)})"
_DEADLINES = f"sum by (cluster, plan_namespace, plan, deadline) ({once('precision_plan_deadlines', ANY)}) > 0"
ROW = row(
    "Capacity plans",
    _table(
        "Answers of the plans",
        "Each CapacityPlan's phase, 1 where it holds. Infeasible: its limits clash, and its status says which. "
        "TimedOut, NotFound: the search ended without a plan, which proves nothing. Refused: its inputs can't be used.",
        "count",
        label("phase", marks=PHASES),
        value(_PHASES, "Holds", "count"),
        sort="plan_namespace",
        width=12,
    ),
    _table(
        "What the plans come to",
        "From the start to the end of the last job, the most power of the site at one time by enforced limits, and "
        "how far the answer may be from the optimum, and how old the answer is. It is solved again when its inputs "
        "move, so an old answer is one of a quiet fleet, or of an operator that is not running.",
        "seconds",
        value(_of_plan("duration_seconds"), "Duration", "long_seconds"),
        value(_of_plan("least_duration_seconds"), "At least", "long_seconds"),
        value(f"{_of_plan('peak_power_watts')} / 1e3", "Peak power", "kilowatts"),
        value(_of_plan("gap_ratio"), "Gap", "percent"),
        value(f"time () - {_of_plan('solved_timestamp_seconds')}", "Age", "long_seconds"),
        sort="plan_namespace",
        width=12,
    ),
    _table(
        "Pools in the plans",
        "GPUs that a plan could use, the most that it uses at one time, their share, and the slow and throttled "
        "nodes, which a synchronous job would wait for.",
        "count",
        label("pool"),
        value(_of_pool("gpus"), "GPUs", "count"),
        value(_of_pool("peak_gpus"), "In use at most", "count"),
        value(f"{_of_pool('peak_gpus')} / ({_of_pool('gpus')} > 0)", "Share", "percent"),
        value(_of_pool("slow_nodes"), "Slow nodes", "nodes"),
    ),
    _table(
        "Jobs by pool and recipe",
        "How many jobs a plan puts on a pool, with which precision, and where their rates come from.",
        "count",
        *labels("pool", "recipe", "basis"),
        value(_JOBS, "Jobs", "count"),
    ),
    _table(
        "Deadlines",
        "Deadlines that a plan promises at the high end of the band, and those that it can't promise: rates "
        "without communication promise none.",
        "count",
        label("deadline", marks=(Mark("notPromised", "orange", "not promised"),)),
        value(_DEADLINES, "Jobs", "count"),
    ),
    _line(
        "Cost of the plans, in dollars",
        "All jobs of a plan together; a plan without prices has no line. A step is a new answer: the fleet, a "
        "price or the plan has changed.",
        "dollars",
        "no plan has prices",
        "cost_dollars",
    ),
    _line(
        "Energy of the plans",
        "Energy of the site for all jobs of a plan, by measured draw; absent where the power of one job is not known.",
        "megawatt_hours",
        "no plan knows the power of all its jobs",
        "energy_joules",
        " / 3.6e9",
    ),
)
