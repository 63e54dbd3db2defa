"""What a page can be drawn from, with defaults: a full result with every kind of trouble, and a fleet of reports."""

import math
from dataclasses import replace
from typing import Any

from precision_api.exchange.result import (
    Energy,
    Failure,
    GemmResult,
    GemmSum,
    Gpu,
    Loss,
    LossRun,
    Meaning,
    MeasurementResult,
    PowerTrace,
    RecipeResult,
    Sensor,
    Training,
    Verification,
)
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.kinds.report import ReportStatus
from precision_operator.core.results.outliers import Judged
from precision_operator.core.results.reading import Reading, read
from precision_operator.core.results.slowness import compared
from precision_operator.report.facts import Given, reading_of_result
from tests.support.report_objects import fresh_no_more, recipe_row, report_status, without_energy
from tests.support.result_objects import interval, recipe_result, result

LAYERS = 32
PARTS = (("qkv", 1.0), ("attn_out", 0.6), ("mlp_up", 3.2), ("mlp_down", 1.9))
PASSES = ("fprop", "dgrad", "wgrad")
MADE_AT = "2026-11-21T10:00:00Z"


def gemms(speed: float, quantised: float | None, broken: str = "") -> tuple[GemmResult, ...]:
    """All GEMMs of a layer and the head, in both modes; `quantised` is the kernels' speed, None has no such mode."""
    rows = []
    for mode, rate in (("autocast", speed), ("prequantized", quantised)):
        for name, weight in (*PARTS, ("lm_head", 24.0)):
            for pass_ in PASSES:
                why: dict[str, Any] = {"seconds": interval(3e-4 * weight / (rate or 1))}
                if rate is None:
                    why = {"failure": Failure(reason="no_prequantized_mode")}
                elif broken == f"{name} {pass_}":
                    why = {"failure": Failure(reason="out_of_memory", message="the workspace did not fit")}
                count = 1 if name == "lm_head" else LAYERS
                row = {"name": name, "pass": pass_, "m": 8192, "k": 4096, "n": 4096, "count": count, "mode": mode}
                rows.append(GemmResult.model_validate(row | why))
    return tuple(rows)


def sums(speed: float, quantised: float | None, broken: str = "") -> tuple[GemmSum, ...]:
    found = []
    for mode, rate in (("autocast", speed), ("prequantized", quantised)):
        if rate is None or broken:
            reason = "no_prequantized_mode" if rate is None else "part_failed"
            found.append(GemmSum.model_validate({"mode": mode, "failure": Failure(reason=reason)}))
        else:
            figures = {"seconds": interval(0.3 / rate, 0.02), "speedup": interval(rate, 0.01)}
            found.append(GemmSum.model_validate({"mode": mode, **figures}))
    return tuple(found)


def training(speed: float, energy: Energy | None = None) -> Training:
    watts = 4800 - 220 * speed
    return Training(
        tokens_per_second=interval(96_000 * speed, 0.004),
        step_seconds=interval(0.085 / speed),
        speedup=None if speed == 1 else interval(speed, 0.008),
        energy=energy or Energy(valid=True, scope="module", watts=watts, tokens_per_joule=96_000 * speed / watts),
        layers=LAYERS,
    )


def loss(final: float, diverged: int | None = None) -> Loss:
    """One loss run of 50 steps that falls to `final`, or ends where it diverged."""
    steps = 50 if diverged is None else diverged + 1
    falling = [final + (6.2 - final) * math.exp(-step / 12) for step in range(steps)]
    norms = [1.2 * math.exp(-step / 20) + 0.3 for step in range(steps)]
    if diverged is not None:
        falling[-3:], norms[-3:] = [5.1, 6.4, 7.9], [4.0, 9.0, 14.0]
    run = LossRun(
        seed=1,
        loss=tuple(falling),
        gradient_norm=tuple(norms),
        diverged_step=diverged,
        reason="loss_rose" if diverged is not None else None,
    )
    return Loss(verdict="healthy" if diverged is None else "diverged", runs=(run,), entropy=2.1)


def full_result(**changes: Any) -> MeasurementResult:
    """One node: mxfp8 lacks power, fp8_delayed a GEMM, the GPU fp8_block; nvfp4_no_rht fell back and diverged."""
    invalid = Energy(valid=False, reasons=("PhaseLocked",), scope="module")
    failed = Training(failure=Failure(reason="out_of_memory", message="the optimizer's state did not fit"))
    told = Meaning(
        kind="gemm_bound",
        expected_speedup=1.66,
        sentence="nvfp4 trains 1.62x as fast as bf16, about what its GEMMs give.",
    )
    diverged = {"verification": Verification(verdict="fallback", share=0.0), "loss": loss(2.4, diverged=31)}
    rows: tuple[RecipeResult, ...] = (
        _recipe("bf16", 1, None, training(1), loss=loss(2.3)),
        _recipe("fp8_delayed", 1.3, 1.7, failed, "mlp_up wgrad"),
        _recipe("fp8_current", 1.35, 1.75, training(1.28), loss=loss(2.33)),
        recipe_result("fp8_block", **_absent()),
        _recipe("mxfp8", 1.5, 1.85, training(1.41, invalid)),
        _recipe("nvfp4", 1.8, 2.9, training(1.62), loss=loss(2.4), meaning=told),
        _recipe("nvfp4_no_rht", 1.02, 1.03, training(1.02), **diverged),
        *(_recipe(recipe, 1.1, 1.2, training(1.1)) for recipe in RECIPE_NAMES[7:]),
    )
    watts = tuple(None if 40 <= i < 46 else 900 + 3700 * (i > 8) * (0.92 + 0.08 * math.sin(i / 3)) for i in range(120))
    gpus = tuple(Gpu(uuid=f"GPU-{i}", name="NVIDIA GB200", enforced_limit_watts=1200.0) for i in range(4))
    trace = PowerTrace(started_at="2026-11-21T09:00:00Z", interval_seconds=5.0, watts=watts)
    defaults = {"recipes": rows, "gpus": gpus, "power_trace": trace, "sensor": Sensor(), "workload_name": "llama3-8b"}
    return result(**(defaults | {"provenance": "measured", "backend": "transformer-engine"} | changes))


def _recipe(
    recipe: Recipe, speed: float, quantised: float | None, trained: Training, broken: str = "", **more: Any
) -> RecipeResult:
    parts = {"gemms": gemms(speed, quantised, broken), "sums": sums(speed, quantised, broken)}
    return recipe_result(recipe, **parts, training=trained, **more)


def _absent() -> dict[str, Any]:
    why = {"availability": "unsupported", "availability_reason": "needs compute capability 9.0"}
    return why | {"verification": Verification(verdict="unknown"), "gemms": (), "sums": (), "training": None}


def node_page(**changes: Any) -> Given:
    found = full_result()
    given = Given(f"Node {found.node}, profile ml/nightly", MADE_AT, (reading_of_result(found),), found, price=10.5)
    return replace(given, **changes)


def slow_page() -> Given:
    """The page of one node of which one GPU runs at 80 % of the others."""
    rates = {f"GPU-{i}": 0.8 * 39_000 if i == 2 else 39_000.0 for i in range(4)}
    rows = [row if row.recipe != "nvfp4" else row.model_copy(update={"training": row.training.model_copy(
        update={"tokens_per_second_by_gpu": rates})}) for row in full_result().recipes]  # fmt: skip
    found = full_result(recipes=rows, health=[{"uuid": "GPU-2", "ecc_aggregate_uncorrectable": 3}])
    reading = read(found.node, "NVIDIA-GB200", status())
    slow = replace(
        reading,
        rows={recipe: row._replace(gpu_spread=0.8) for recipe, row in reading.rows.items()},
        hardware=reading.hardware.model_copy(update={"slowest_gpu": "GPU-2"}),
    )
    judged = Judged(found.node, "NVIDIA-GB200", 0.8, True, 0.95, "nvfp4", 7, slow, ("n2", "n3", "n4"), 4)
    return node_page(result=found, standing=compared(judged, "ml", "nightly"))


def status(speed: float = 1.0, **changes: Any) -> ReportStatus:
    """A measured report, all recipes `speed` times as fast as usual."""
    rows = changes.pop("results", None) or [
        _row("bf16", 96_000 * speed, 1.0, 20 * speed),
        _row("mxfp8", 134_000 * speed, 1.4 * (1 + (speed - 1) / 4), 29 * speed),
        _row("nvfp4", 154_000 * speed, 1.6 * (1 + (speed - 1) / 3), 34 * speed),
    ]
    raw = report_status(rows, provenance="measured", simulated=[], backend="transformer-engine", workload="llama3-8b")
    return ReportStatus.model_validate(raw | {"data": "measured"} | changes)


def _row(recipe: Recipe, rate: float, speedup: float, joules: float) -> dict[str, Any]:
    row = recipe_row(recipe, speedup) | {"tokensPerSecond": f"{rate:.0f}", "tokensPerJoule": f"{joules:.3f}"}
    bounds = ("speedup", "speedupLower", "speedupUpper")
    return {key: value for key, value in row.items() if recipe != "bf16" or key not in bounds}


def fleet(size: int = 60, pool: str = "NVIDIA-GB200") -> tuple[Reading, ...]:
    """Nodes that differ by a percent; the last is slow, the one before throttled, the one before that fell back."""
    speeds = [1 + 0.01 * math.sin(2.4 * i) + 0.004 * math.cos(7.1 * i) for i in range(size)]
    statuses = [status(speed) for speed in speeds]
    hot = [row.model_copy(update={"throttled_share": "0.14", "throttle_reason": "software_thermal"})
           for row in status(0.93).results]  # fmt: skip
    fell = [recipe_row("bf16"), recipe_row("mxfp8", 1.39), recipe_row("nvfp4", 1.01, verdict="fallback")]
    blind = [recipe_row("bf16"), without_energy("mxfp8", 1.4), without_energy("nvfp4", 1.6)]
    statuses[-4:] = [
        status(results=blind, conditions=[fresh_no_more("DriverChange")]),
        status(results=fell),
        status(0.93).model_copy(update={"results": tuple(hot)}),
        status(0.81),
    ]
    return tuple(read(f"{pool[7:].lower()}-{i:04}", pool, status) for i, status in enumerate(statuses))


def fleet_page(**changes: Any) -> Given:
    """The page of a profile over two pools, with one node's full result."""
    nodes = (*fleet(), *(replace(node, pool="NVIDIA-H100-80GB-HBM3") for node in fleet(12, "NVIDIA-H100")))
    given = Given("Profile ml/nightly", MADE_AT, nodes, full_result(node=nodes[0].node), price=4.2,
                  unmeasured=("3 nodes failed (AgentCrashed), for example gb200-0071.",))  # fmt: skip
    return replace(given, **changes)
