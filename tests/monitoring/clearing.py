"""What makes each alert fire and then clear again."""

import json
from dataclasses import replace

from tests.monitoring.cases import (
    HOST,
    INSTALLED,
    MEASURED,
    N1,
    POOL_INFO,
    Case,
    nodes,
    of_node,
    verdict,
)
from tests.monitoring.series import (
    ERRORS,
    NOT_ACCEPTED,
    PROBLEMS,
    SIMULATED,
    SLOW,
    SLOW_RATE,
    THROTTLED,
    accepted,
    in_moe,
    limits,
    problem,
    waiting,
)
from tests.monitoring.written import written
from tests.support.golden import FOLDER, beside

HEAT = SIMULATED.replace("level_tokens_per_second", "throttled_ratio").replace("}", ',against="others"}')
DRIFTED = accepted("Inconclusive", "ReferenceDrifted")
FAILING_GPU = of_node("precision_node_failing_gpu_info", 'gpu="3",UUID="GPU-3",pci="0000:19:00.0"')
DIVERGED = of_node("precision_node_loss_verdict", 'recipe="nvfp4",verdict="diverged"')
DENIED = {nodes("queued"): "0x399 23x20", nodes("waiting"): "24x399 0x20", waiting("DeniedByPolicy"): "24x399 _x20"}
SUMMARIES: dict[str, str] = json.loads((FOLDER / "alert_summaries.json").read_text(encoding="utf-8"))
"""What each alert says when it fires."""
CLEARING = (
    *(
        written(row, DRIFTED=DRIFTED, DENIED=DENIED, FAILING_GPU=FAILING_GPU, HEAT=HEAT)
        for row in beside(__file__)["cases"]
    ),
    *(
        Case(alert, {series: "_x30 1x59 _x60", **MEASURED}, (20, 103), (50, 85), of | {"fault": fault})
        for alert, fault, series, of in (
            ("SilentFallback", "fallback", verdict("fallback"), HOST),
            ("ThrottledInProfile", "throttled", THROTTLED, HOST),
            ("LossDiverged", "diverged", DIVERGED, HOST),
        )
    ),
    Case(
        "NodeNotAccepted",
        {accepted("Fail"): "_x30 1x59 _x60", FAILING_GPU: "1x150", **MEASURED}
        | in_moe({FAILING_GPU.replace("GPU-3", "GPU-7"): "1x150"}),
        (20, 103),
        (45, 85),
        NOT_ACCEPTED,
        name="two GPUs are blamed",
    ),
    Case(
        "PowerLimitLow",
        limits(5, "900x199 _x3 900x196 1200x19") | dict.fromkeys(MEASURED, "0x420"),
        (900, 1400, 2020),
        (1450, 1900),
        HOST | {"fault": "limited"},
        step=5,
    ),
    *(
        Case(alert, {problem(name): "0x29 1x59 0x60"}, (20, 30, 105), (45, 85), INSTALLED | {"problem": name})
        for alert, name in PROBLEMS.items()
    ),
    *(
        Case("ReconcileErrors", {series: "0+2x99 200x60"}, (30, 120), (50, 95), INSTALLED, name=name)
        for name, series in (("faults", 'precision_operator_faults_total{where="report"}'), ("", ERRORS))
    ),
    Case(
        "NodeSlow",
        in_moe(
            {**SLOW_RATE, SLOW: "1x60 0x60", POOL_INFO: "1x120"}
            | {f'precision_node_info{{{N1},nvlink_domain="d.1",data="simulated"}}': "1x120"}
        ),
        (5, 100),
        (50,),
        HOST | {"fault": "slow", "data": "simulated", "nvlink_domain": "d.1"},
        name="simulated node",
    ),
)
FIRES_AND_CLEARS = tuple(replace(case, summary=SUMMARIES[case.cluster]) for case in CLEARING)
