"""Does anything run: imports, the device, power and clocks as the driver tells them, one FP8 GEMM."""

import shutil
import subprocess
import time

from benchmarks.first_day.checks import between, holds
from benchmarks.first_day.device import bench
from benchmarks.first_day.steps import Context
from precision_agent.power import nvml
from precision_agent.precision.verification import ERROR_BANDS
from precision_api.facts.products import part

M, K, N = 8192, 4096, 14336
NVIDIA_SMI = ("nvidia-smi", "-q", "-d", "POWER,CLOCK,PERFORMANCE,MEMORY")


def run(context: Context) -> None:
    """Stops at the first part that fails; what came before is in the notebook."""
    book = context.book
    began = time.monotonic()
    import torch
    import transformer_engine
    import transformer_engine.pytorch

    book.fact("import_seconds", round(time.monotonic() - began, 1))
    book.fact("transformer_engine", transformer_engine.__version__)
    book.fact("torch", {"version": torch.__version__, "cuda": torch.version.cuda})
    properties = torch.cuda.get_device_properties(0)
    product_part = part(properties.name)
    book.fact(
        "device",
        {
            "name": properties.name,
            "compute": list(torch.cuda.get_device_capability()),
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None),
            "part": product_part.name if product_part else None,
        },
    )
    _driver(context)
    _calls(context)
    _gemm(context, product_part.fp8_flops if product_part else None, product_part.compute if product_part else None)


def _driver(context: Context) -> None:
    reading = nvml.read()
    context.book.check(
        holds(
            "NVML shows a GPU", "one or more, with power limit",
            bool(reading.gpus) and reading.gpus[0].enforced_limit_watts is not None,
            ", ".join(f"{gpu.name}, {gpu.enforced_limit_watts} W" for gpu in reading.gpus)
            or str(reading.failure),
        )
    )  # fmt: skip
    product_part = part(reading.gpus[0].name) if reading.gpus else None
    if product_part:
        watts = reading.gpus[0].enforced_limit_watts
        context.book.check(
            between("enforced power limit", watts, 1, product_part.power_limit_watts, " W", product_part.source)
        )
    if shutil.which(NVIDIA_SMI[0]) is None:
        context.book.fact("nvidia-smi", "not installed")
        return
    output = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, check=False, timeout=60)
    context.book.fact("nvidia-smi", (output.stdout or output.stderr)[:12000])


def _calls(context: Context) -> None:
    """Whether the installed Transformer Engine has all that the agent calls."""
    from precision_agent.backends.te.api import live_signatures, load, missing

    te = load()
    missing_names = missing(live_signatures(te.pytorch, te.recipe, te.manager))
    context.book.check(
        holds("Transformer Engine has what the agent calls", "all", not missing_names, str(missing_names or "all"))
    )


def _gemm(context: Context, peak: float | None, compute: tuple[int, int] | None) -> None:
    gpu = bench()
    context.book.fact("native_recipes", list(gpu.recipes))
    with gpu.engine.stream():
        unit = gpu.unit(M, K, N, "fp8_current")
        unit.measure(2.0)
        timings = unit.measure(1.0)
    errors, band = unit.errors, ERROR_BANDS["fp8_current"]
    for name, error in (("y", errors.y), ("dx", errors.dx), ("dw", errors.dw)):
        context.book.check(between(f"relative error of {name} in fp8_current", error, band.low, band.high))
    execution = unit.program.execution
    context.book.check(holds("steps are CUDA graphs", "graph", execution == "graph", unit.program.reason or execution))
    spent = sum(timings.seconds[key] * timings.runs[key] for key in timings.seconds)
    flops = 2 * M * K * N * sum(timings.runs.values())
    rate = flops * unit.copies / spent
    context.book.fact("fp8_current_flops_per_second", rate)
    why = "with quantisation; above the peak nothing real was timed, far below it the GPU is not itself"
    if peak:
        context.book.check(between("FP8 rate over the datasheet's peak", rate / peak, 0.25, 1.0, "", why))
