"""What looks like a fault and is none, for each alert."""

from tests.monitoring.cases import (
    MEASURED,
    N1,
    Case,
    medians,
    nodes,
    of_node,
)
from tests.monitoring.series import (
    ERRORS,
    FAR,
    GONE,
    LIMIT_OF,
    MOVED,
    PROBLEMS,
    hours,
    limits,
    many,
    named,
    pool,
    problem,
    waiting,
)
from tests.monitoring.written import written
from tests.support.golden import beside

POWER = of_node("precision_node_power_valid", 'recipe="bf16",reason="CounterStuck"')
CALM = {name: written(row, POWER=POWER) for name, row in beside(__file__)["cases"].items()} | {
    **{
        f"a pool of {count}, far below": Case(FAR, hours(pool(0, count), *[pool(0, count, cool=0.8)] * 3), (200,))
        for count in (1, 2)
    },
    "a pool whose nodes are slow, and not throttled": Case(
        "PoolThrottled",
        many(9, lambda node: {f"precision_node_relative_performance_ratio{{{node}}}": "0.6x100"}) | medians("100x100"),
        (90,),
    ),
    "nodes whose power reading is not valid": Case(
        "ManyNodes", many(6, lambda node: {f'{POWER.split("{")[0]}{{{node},recipe="bf16"}}': "0x100"}), (90,)
    ),
    "a node of another power limit than five that are gone": Case(
        "PowerLimitLow",
        limits(6, "900x400") | many(6, lambda node: {GONE.replace(N1, node): "1x400"}) | {GONE: "_", **MEASURED},
        (1490, 1900),
        step=5,
    ),
    "a power cap that has come to half of the nodes": Case(
        "PowerLimitLow",
        limits(10, "900x400") | many(5, lambda node: {f"{LIMIT_OF}{{{node}}}": "900x400"}),
        (1490, 1900),
        step=5,
    ),
    **{f"none {name}": Case(alert, {problem(name): "0x100"}, (90,)) for alert, name in PROBLEMS.items()},
    "a new driver under another workload": Case(
        "EnergyRegression",
        {key.replace("h1", "h2") if "590" in key else key: values for key, values in MOVED.items()},
        (130, 230, 300),
    ),
    **{
        f"a campaign that waits: {why}": Case(
            "CampaignStuck", {nodes("queued"): "2x400", nodes("succeeded"): "10x400", waiting(why): "2x310"}, (250, 390)
        )
        for why in ("Suspended", "StoppedByAdmin", "WaitsInQueue", "FleetLimitReached", "LimitOfAnotherProfile")
    },
    "errors that are scraped by two jobs": Case(
        "ReconcileErrors", {f'{ERRORS}{{job="{job}"}}': "0+0.2x300" for job in "ab"}, (60, 120, 290)
    ),
}
QUIET = named(CALM)
