"""The families of a node's newest result. A figure that a report lacks has no row: never 0, never an empty label."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from precision_api.kinds.report import AcceptanceCheck, ReportRun
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, Reading, RecipeRow
from precision_operator.exporter.families import measures
from precision_operator.exporter.families.family import NODE, RECIPE, Family, stable
from precision_operator.exporter.reading import RelativeRate, seconds
from precision_operator.exporter.text import SampleRow

ReportFigure = Callable[[RecipeRow], float | None]
NodeRows = Callable[[Reading], Iterable[SampleRow]]

SPEEDUP, GEMM_SPEEDUP = (*RECIPE, "scope", "baseline"), (*RECIPE, "mode", "scope", "baseline")
GONE = "NodeGone"
"""A node that is gone has neither failed nor is in quarantine: its report is only kept for a while."""
INFO = ("gpu_product", "gpus", "nvlink_domain", "driver", "cuda", "te", "data", "backend")


def _by_recipe(figure: ReportFigure, *labels: Callable[[RecipeRow], str]) -> NodeRows:
    """Rows of each recipe that has the figure, with the labels that follow `recipe`."""

    def rows(result: Reading) -> list[SampleRow]:
        rows = result.rows.values()
        return [
            ((row.recipe, *[label(row) for label in labels]), float(value))
            for row in rows
            if (value := figure(row)) is not None
        ]

    return rows


_power_scope = attrgetter("power_scope")


def _speedup(figure: ReportFigure) -> NodeRows:
    """The same with what it is over."""
    by_recipe = _by_recipe(figure)

    def rows(result: Reading) -> list[SampleRow]:
        run = result.run
        return [((*recipe, run.scope, run.baseline), value) for recipe, value in by_recipe(result)] if run else []

    return rows


def _gemm_speedup(result: Reading) -> Iterator[SampleRow]:
    for row in result.rows.values() if result.run else ():
        for mode, value in sorted(row.gemm_speedup.items()):
            yield (row.recipe, mode, result.group.scope, result.group.baseline), value


def _gemm_end(end: str) -> NodeRows:
    """The lower or upper end of the interval, of the mode that training runs in."""

    def rows(result: Reading) -> Iterator[SampleRow]:
        ends = ((recipe, result.intervals(recipe).get("gemm_autocast")) for recipe in result.rows)
        of = result.group
        yield from (((name, "autocast", of.scope, of.baseline), round(getattr(it, end), 6)) for name, it in ends if it)

    return rows


def _of_run(figure: Callable[[ReportRun], str | float]) -> NodeRows:
    return lambda result: [((), float(figure(result.run)))] if result.run else []


def _gpu_memory(result: Reading) -> list[SampleRow]:
    memory = result.run.device_memory if result.run else None
    states = (("used", memory.used_bytes), ("total", memory.total_bytes)) if memory else ()
    return [((state, memory.counted or "nvml"), float(size)) for state, size in states if memory and size is not None]


def _info(result: Reading) -> Iterator[SampleRow]:
    hardware, software, run = result.hardware, result.software, result.run
    if not (hardware and run):
        return
    versions = (result.driver, software.cuda, software.transformer_engine) if software else (None, None, None)
    figures = (hardware.product, str(hardware.gpus), hardware.nvlink_domain, *versions, result.data)
    yield (*(text or "" for text in figures), run.backend), 1.0


def _power_limit(result: Reading) -> Iterator[SampleRow]:
    hardware = result.hardware
    if hardware and hardware.gpus and hardware.limit_watts:
        yield (), hardware.limit_watts / hardware.gpus


def _labelled(label: Callable[[Reading], str | None]) -> NodeRows:
    """Always 1, with this one label; no row where there is none."""
    return lambda result: [((text,), 1.0)] if (text := label(result)) else []


def _failed(result: Reading) -> Iterator[SampleRow]:
    attempt = result.attempt
    if attempt is not None and attempt.outcome == "failed" and result.stale != GONE:
        yield (attempt.reason or "",), 1.0


def _accepted(result: Reading) -> Iterator[SampleRow]:
    if result.acceptance and result.stale != GONE:
        yield (result.acceptance.verdict or "", result.acceptance.reason), 1.0


def _worst_check(figure: Callable[[AcceptanceCheck], float | None]) -> NodeRows:
    def rows(result: Reading) -> list[SampleRow]:
        worst = result.acceptance.worst[:1] if result.acceptance else ()
        return [((it.recipe, it.check), round(value / 100, 6)) for it in worst if (value := figure(it)) is not None]

    return rows


def _failing_gpu(result: Reading) -> Iterator[SampleRow]:
    failing = result.acceptance.failing if result.acceptance and result.acceptance.verdict == "Fail" else ()
    for check in [check for check in failing if check.gpu][:1]:
        yield ("" if check.number is None else str(check.number), check.gpu or "", check.pci or ""), 1.0


def _judged(figure: Callable[[RelativeRate], float]) -> Callable[[RelativeRate], Iterable[SampleRow]]:
    return lambda standing: [((), figure(standing))]


NODE_FAMILIES: tuple[Family[Reading], ...] = (
    stable(
        "precision_node_info",
        "Always 1; what the node's newest result was measured on and with. data is measured, replayed, simulated or "
        "trial (of a CPU): only measured figures are this hardware's own. nvlink_domain is a rack as a rule, empty "
        "outside of any.",
        (*NODE, *INFO),
        _info,
    ),
    Family(
        "precision_node_slowest_gpu_info",
        "Always 1; the UUID of the GPU that falls behind the most. Absent where a run did not compare the GPUs. The "
        "label is written as dcgm-exporter writes it.",
        (*NODE, "UUID"),
        _labelled(lambda result: result.hardware.slowest_gpu if result.hardware else None),
    ),
    Family(
        "precision_node_training_gpu_flops_per_second",
        "Model FLOPs per second of one GPU in training, the mean of the node's; no MFU: it is over no peak.",
        RECIPE,
        _by_recipe(measures.flops_of),
    ),
    stable(
        "precision_node_training_tokens_per_second",
        "Training tokens per second of the whole node (all GPUs, full-depth model, no communication between nodes or "
        "experts).",
        RECIPE,
        _by_recipe(attrgetter("tokens_per_second")),
    ),
    stable(
        "precision_node_training_power_watts",
        "Mean draw of all GPUs of the node while training; absent where the power reading is not valid.",
        (*RECIPE, "power_scope"),
        _by_recipe(attrgetter("watts"), _power_scope),
    ),
    stable(
        "precision_node_training_tokens_per_joule",
        "Training tokens per joule = tokens/s per watt; x1e6 = tokens/s per MW. Absent where power is not valid.",
        (*RECIPE, "power_scope"),
        _by_recipe(attrgetter("tokens_per_joule"), _power_scope),
    ),
    *(
        stable(f"precision_node_training_speedup{end}_ratio", words, SPEEDUP, _speedup(attrgetter(f"speedup{end}")))
        for end, words in (
            (
                "",
                "Training speedup over the baseline recipe, paired within the same run (1.31 = 31 % more tokens per "
                "second). scope says which linear layers ran in the recipe: all, or those of the MLP.",
            ),
            ("_lower", "Lower end of the 95 % interval of the training speedup."),
            ("_upper", "Upper end of the 95 % interval of the training speedup."),
        )
    ),
    stable(
        "precision_node_verification",
        "1 for the current verdict on whether the recipe's precision really ran: verified, partial, emulated, "
        "fallback, unknown; assumed where figures are replayed or simulated. Absent for recipes that the GPUs "
        "do not support.",
        (*RECIPE, "verdict"),
        _by_recipe(lambda recipe: None if recipe.availability == "unsupported" else 1.0, attrgetter("verdict")),
    ),
    Family(
        "precision_node_loss_verdict",
        "1 for the verdict of the recipe's loss runs where it speaks against the recipe: not_learning, diverging or "
        "diverged. Absent where they were healthy, and where none ran (benchmarks.loss). A smoke test: it shows no "
        "parity.",
        (*RECIPE, "verdict"),
        _by_recipe(lambda recipe: None if recipe.learns else 1.0, attrgetter("loss_verdict")),
    ),
    stable(
        "precision_node_power_valid",
        "1 where the power reading was valid, 0 where it was not; reason is the first thing wrong with it.",
        (*RECIPE, "reason"),
        _by_recipe(attrgetter("power_valid"), lambda recipe: next(iter(recipe.power_reasons), "")),
    ),
    Family(
        "precision_node_gpu_power_limit_watts",
        "Enforced power limit of one GPU, mean of the node's.",
        NODE,
        _power_limit,
    ),
    stable(
        "precision_node_throttled_ratio",
        "Share of the timed windows (0 to 1) in which heat or the power brake held the clocks back, on the GPU it hit "
        "most. Only where it was more than 0.001: absent means that the figures are not marked.",
        (*RECIPE, "reason"),
        _by_recipe(attrgetter("throttled_share"), lambda row: row.throttle_reason or ""),
    ),
    stable(
        "precision_node_last_success_timestamp_seconds",
        "When the newest run with a result ended, seconds since 1970.",
        NODE,
        _of_run(lambda run: seconds(run.finished_at)),
    ),
    stable(
        "precision_node_last_attempt_timestamp_seconds",
        "When the newest attempt ended, good or bad, seconds since 1970.",
        NODE,
        lambda result: [((), seconds(result.attempt.finished_at))] if result.attempt else [],
    ),
    stable(
        "precision_node_last_duration_seconds",
        "How long the newest run with a result took.",
        NODE,
        _of_run(lambda run: run.duration_seconds),
    ),
    Family(
        "precision_node_gemm_speedup_ratio",
        "Speedup of all matrix multiplications of the workload over the baseline; mode autocast includes quantisation, "
        "prequantized does not.",
        GEMM_SPEEDUP,
        _gemm_speedup,
        detail=True,
    ),
    *(
        Family(f"precision_node_gemm_speedup_{end}_ratio", words, GEMM_SPEEDUP, _gemm_end(end), detail=True)
        for end, words in (("lower", "Lower end of its 95 % interval."), ("upper", "Upper end of its 95 % interval."))
    ),
    Family(
        "precision_node_quantization_tax_ratio",
        "Non-GEMM kernel time beyond the baseline's (casts, fused or not), as a share of it and the GEMM time. Where "
        "kernels can't be split: at least.",
        RECIPE,
        _by_recipe(attrgetter("quantization_tax")),
        detail=True,
    ),
    Family(
        "precision_node_gpu_spread_ratio",
        "Slowest GPU's rate over the mean of the node's GPUs; times tokens per second it is a synchronous job's rate.",
        RECIPE,
        _by_recipe(attrgetter("gpu_spread")),
        detail=True,
    ),
    Family(
        "precision_node_training_net_tokens_per_joule",
        "Training tokens per joule with the idle draw taken off. Absent where power is not valid.",
        (*RECIPE, "power_scope"),
        _by_recipe(attrgetter("tokens_per_joule_net"), _power_scope),
        detail=True,
    ),
    Family(
        "precision_node_model_memory_bytes",
        "Memory of one GPU that trains the full model in this recipe: an estimate from the model's dimensions, by a "
        "formula that was checked against the short model. Absent where they disagree or nothing was trained.",
        RECIPE,
        _by_recipe(attrgetter("model_memory_bytes")),
    ),
    Family(
        "precision_node_allocated_peak_bytes",
        "The allocator's peak of one GPU in this recipe alone, of the benchmark's short model: a few layers, not the "
        "model's memory.",
        RECIPE,
        _by_recipe(attrgetter("allocated_peak_bytes")),
    ),
    Family(
        "precision_node_gpu_memory_bytes",
        "Memory in use by NVML (state used), highest while the benchmark's short model trained, of the fullest GPU, "
        "and all that it has (total): of the run, whose recipes lie in one process. counted is nvml, or says that the "
        "driver's reserve or, on a NUMA node, the system's pages are among it, or that what was in use before is not.",
        (*NODE, "state", "counted"),
        _gpu_memory,
    ),
    Family(
        "precision_node_failed",
        "1 while the node's newest attempt is one that failed; reason is why. pool is empty before a first result.",
        (*NODE, "reason"),
        _failed,
    ),
    Family(
        "precision_node_quarantined",
        "1 while the node is left alone since run after run failed; reason is that of the last failure.",
        (*NODE, "reason"),
        _labelled(lambda it: it.quarantine.reason if it.quarantine and it.stale != GONE else None),
    ),
    Family(
        "precision_node_accepted",
        "1 for the verdict on the node (Pass, Fail, Inconclusive) against the reference of spec.acceptance, with its "
        "reason. Absent where the profile asks for none.",
        (*NODE, "verdict", "reason"),
        _accepted,
    ),
    Family(
        "precision_node_acceptance_ratio",
        "How far the verdict's worst check is off what the reference expects: -0.05 is 5 % slower. check is reference "
        "(the node against it), node (a GPU against its node's others) or change (against its own first Pass).",
        (*RECIPE, "check"),
        _worst_check(lambda check: check.off),
    ),
    Family(
        "precision_node_acceptance_limit_ratio",
        "At or below this that check fails. Absent where the reference can promise nothing by it.",
        (*RECIPE, "check"),
        _worst_check(lambda check: None if check.limit is None else -check.limit),
    ),
    Family(
        "precision_node_failing_gpu_info",
        "Always 1; the GPU that a Fail names first: its number, UUID and PCI address.",
        (*NODE, "gpu", "UUID", "pci"),
        _failing_gpu,
    ),
    Family(
        "precision_node_outdated",
        "1 while the node's figures describe it no longer; reason is what has changed: SpecChange, DriverChange, "
        "AgentChange, HardwareChange, or NodeGone. A new run that was only asked for makes nothing outdated.",
        (*NODE, "reason"),
        _labelled(lambda result: result.stale if result.stale not in HOLDS_UNTIL_REPLACED else None),
    ),
)

STANDING_FAMILIES: tuple[Family[RelativeRate], ...] = (
    stable(
        "precision_node_slow",
        "1 where the operator judged the node slow, 0 where it is not: its best recipe's synchronous rate against the "
        "nodes of its kind. Absent while the figures are out of date or it has fewer than three peers.",
        NODE,
        _judged(lambda standing: float(standing.slow)),
    ),
    stable(
        "precision_node_relative_performance_ratio",
        "The node's synchronous rate over the median of the nodes of its kind, best recipe; what precision_node_slow "
        "is decided by.",
        NODE,
        _judged(lambda standing: standing.relative),
    ),
)
"""What a node is beside its peers: known only when all reports of its pool are looked at together."""
