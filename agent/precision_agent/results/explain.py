"""Where each figure of a result comes from, in words: what was timed, how it was worked out, how sure it is. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from textwrap import wrap

from precision_agent.power.reasons import REASONS as POWER_REASONS
from precision_agent.protocol import RegionName
from precision_api.exchange.rebase import result_over
from precision_api.exchange.request import attention_recipe, step_words
from precision_api.exchange.result import Backend, Energy, GemmSum, Interval, MeasurementResult, RecipeResult, Training
from precision_api.facts.plain_text import digits
from precision_api.facts.recipes import Recipe, recipe_name
from precision_api.models.flops import TRAINING_FLOPS

WIDTH = 110
AUTOCAST = "with the quantisation of their operands"
ALONE: Mapping[Backend, str] = {
    "transformer-engine": "alone: the GEMM kernels' share of profiled steps, applied to the timed ones",
    "torch-cuda": "alone: both operands were quantised before the clock started",
    "torch-cpu": "alone: both operands were quantised before the clock started",
    "replay": "alone: operands quantised before, by the published tables",
}
"""What `prequantized` means: each backend has its own way."""
SENTENCES: Mapping[str, str] = {reason.name: reason.sentence for reason in POWER_REASONS}


Figure = tuple[str, str, str]
"""What it is called, its value as text, and where it comes from."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One figure: what it is of, what it is called, its value as text, and where it comes from."""

    of: str
    figure: str
    value: str
    source: str


def explain(result: MeasurementResult, over: Recipe | None = None) -> tuple[Explanation, ...]:
    """A row for each figure that the result holds, and for each that it lacks with a reason; with speedups over that
    recipe of the run. ValueError for one that it did not measure."""
    result, said = result_over(result, over or result.baseline)
    mark = "" if result.provenance == "measured" else f" ({result.provenance})"
    run = (Explanation(f"run {result.run} on {result.node}", *figure) for figure in _run(result, said))
    pairs = ((recipe_name(row.recipe), figure) for row in result.recipes for figure in _recipe(row, result))
    rows = (*run, *(Explanation(f"{recipe}{mark}", *figure) for recipe, figure in pairs))
    return tuple(replace(row, source=said) if said and row.figure.endswith("speedup") else row for row in rows)


def as_text(rows: tuple[Explanation, ...]) -> str:
    """The rows under a heading for each recipe."""
    lines: list[str] = []
    of = ""
    for row in rows:
        if row.of != of:
            lines += ["", row.of] if lines else [row.of]
            of = row.of
        lines.append(f"  {row.figure}: {row.value}")
        lines += wrap(row.source, WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def as_document(rows: tuple[Explanation, ...]) -> list[dict[str, str]]:
    return [asdict(row) for row in rows]


def _run(result: MeasurementResult, said: str) -> Iterator[Figure]:
    gpus = f"{len(result.gpus)} x {result.gpus[0].name}" if result.gpus else result.product
    yield ("machine", gpus, f"backend {result.backend}; every rate is of {_scope(result)}")
    yield ("provenance", result.provenance, _provenance(result))
    for made_up in result.simulated:
        yield (f"simulated {made_up.field}", "not measured", made_up.assumption)
    if result.method == "nvidia":
        yield ("method", "nvidia", "benchmark_gemm.py's: forward GEMMs only, for comparison, never exported")
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.phase_seconds.items())
    if phases:
        yield ("phases", phases, "by this machine's clock; `precision-agent run --plan` says what was expected")
    if result.partial:
        yield ("partial", result.partial.reason, f"the run ended early: {result.partial.message}")
    software = result.software.model_dump(exclude_none=True, exclude={"stack_hash"})
    versions = ", ".join(f"{name} {version}" for name, version in software.items())
    yield ("software", result.software.stack_hash, f"hash over the stack without the driver: {versions}")
    yield ("workload", f"{result.workload_name} ({result.workload_hash})", "hash over what is measured")
    if result.recipe_scope == "mlp":
        kept = attention_recipe(result.baseline, result.timing)
        yield ("recipes' scope", "mlp", f"attention's projections stay in {kept} with every recipe but bf16")
    if step := step_words(result.timing):
        yield ("step", "; ".join(step), "of every recipe; cores and weights of bf16 stay in BF16")
    if result.training_flops_per_token:
        formula = f"{TRAINING_FLOPS.name}/{TRAINING_FLOPS.version}"
        how = f"{formula}: {TRAINING_FLOPS.text}" if result.formula == formula else f"formula {result.formula}"
        yield ("training FLOPs", f"{result.training_flops_per_token:.4g} a token", how)
    if memory := result.device_memory:
        total = f" of {memory.total_bytes / 2**30:.1f}" if memory.total_bytes else ""
        how = "by NVML, the highest while the short model trained, of the fullest GPU: all recipes lie in one process"
        yield ("memory in use", f"{memory.used_bytes / 1e9:.1f}{total} GB", f"{how}. {memory.counted}".rstrip(". "))
    if said:
        yield ("speedups", f"over {result.baseline}", said)
    yield from _noise(result)


def _scope(result: MeasurementResult) -> str:
    if result.product == "CPU":
        return f"this CPU, and says nothing of a GPU ({result.scope})"
    count = len(result.gpus)
    which = "one GPU alone" if count == 1 else f"{count} GPUs of the node computing at once, no traffic between them"
    return f"{which} ({result.scope})"


def _provenance(result: MeasurementResult) -> str:
    if result.provenance == "measured":
        return "taken on this machine"
    if result.provenance == "trial":
        return "taken on this machine's CPU: it says nothing of a GPU"
    return "this machine was not measured: " + ("; ".join(result.sources) or "see the assumptions")


def _noise(result: MeasurementResult) -> Iterator[Figure]:
    if result.steadiness:
        how = f"{result.steadiness.seconds:.0f} s; until temperature, SM clock and step time have no slope"
        yield ("warm-up", result.steadiness.state, f"{how}. {result.steadiness.message}")
    if result.sensor:
        how = f"energy counter against the integral of power under a square wave: {_number(result.sensor.agreement)}"
        yield ("power sensor", result.sensor.accuracy, f"{how}. {result.sensor.message}")
    if result.control_ratio:
        yield ("control", _interval(result.control_ratio), "a second, equal baseline over the first: 1 but for noise")
    if result.noise_floor is not None:
        how = "the least there is: no control has a figure"
        if result.control_ratio:
            how = "the control's distance from 1 and its half-width, at least 0.5 %"
        yield ("noise floor", f"{result.noise_floor:.2%}", f"{how}: a ratio nearer to 1 is no difference")


def _recipe(row: RecipeResult, result: MeasurementResult) -> Iterator[Figure]:
    yield ("availability", row.availability, row.availability_reason or _tried(result))
    if row.availability in ("ok", "emulated"):
        yield from _verification(row)
        for part in row.sums:
            yield from _sum(part, row, result)
        if row.quantization_tax is not None:
            yield ("quantisation tax", _tax_value(row), _tax_source(row, result))
        if row.training:
            yield from _training(row, row.training, result)
        yield from _conditions(row)
        if row.meaning:
            yield ("meaning", row.meaning.kind, row.meaning.sentence)
    for note in row.notes:
        yield ("note", "", note)


def _tried(result: MeasurementResult) -> str:
    if result.method == "nvidia":
        return "nothing was tried before: a shape that fails says so in its place"
    if result.backend == "replay":
        return "by the table of recipes and hardware: nothing ran"
    return "by one forward and backward pass"


def _kernel_time(row: RecipeResult) -> Iterator[Figure]:
    """How far the kernels fill the timed step, and at which clock they were profiled."""
    if row.kernel_time_share is not None:
        cause = "CPU-bound: the host launched too slowly" if row.cpu_bound else "the rest are gaps between kernels"
        share = f"{min(1.0, row.kernel_time_share):.1%}"
        yield ("kernel time", share, f"of the timed step; {cause}")
    for profiles in row.kernel_profiles:
        clock = "no SM clock was reported"
        if profiles.sm_mhz is not None:
            clock = f"at {profiles.sm_mhz:.0f} MHz, the timed windows at {profiles.windows_sm_mhz or 0:.0f} MHz"
        why = f"; {profiles.failure.reason}: {profiles.failure.message}" if profiles.failure else ""
        value = f"{profiles.profiles} of its {'GEMMs' if profiles.load == 'gemms' else 'training step'}"
        yield ("profiles", value, f"{clock}, in {profiles.seconds:.0f} s under load{why}")
        if profiles.launch_gaps is not None:
            source = "between the kernels of a micro batch, seen in replays of its timed graphs"
            yield ("launch gaps", f"{digits(profiles.launch_gaps * 1e3)} ms", source)


def _tax_value(row: RecipeResult) -> str:
    interval = row.quantization_tax_interval
    low, high = (f"{interval.lower:.1%}", f"{interval.upper:.1%}") if interval else ("", "")
    bounds = ("at least ", f", at most {most:.1%}") if (most := row.quantization_tax_most) is not None else ("", "")
    return f"{bounds[0]}{row.quantization_tax or 0.0:.1%}{f' ({low} to {high})' if low != high else ''}{bounds[1]}"


def _tax_source(row: RecipeResult, result: MeasurementResult) -> str:
    if row.quantization_tax_load:
        steps = "steps" if row.quantization_tax_load == "training" else "GEMMs, each as often as the model has it"
        source = f"in profiled {steps}: non-GEMM kernel time beyond {result.baseline}'s, over it and the GEMM time"
        bound = "; a bound: no rule knows some kernels, or others than casts were faster than the baseline's"
        return source + (bound if row.quantization_tax_most is not None else "")
    gemms = "its GEMMs, without the layers in BF16, alone" if row.last_layers_bf16 else "the GEMMs alone"
    return f"no kernels at their clock were seen: what {gemms} take less than with quantisation, as a share of that"


def _verification(row: RecipeResult) -> Iterator[Figure]:
    verification = row.verification
    share = f", {verification.share:.0%} of GEMM time" if verification.share is not None else ""
    yield ("precision", f"{verification.verdict}{share}", verification.message or "nothing was looked at")
    for kernel in verification.kernels[:3]:
        yield ("kernel", kernel.class_, f"{kernel.name} (rule {kernel.rule})")
    if verification.attention:
        yield ("attention", verification.attention, "as Transformer Engine chose")
    if verification.errors:
        errors = ", ".join(f"{name} {_number(value)}" for name, value in verification.errors.model_dump().items())
        yield ("error against FP32", errors, "relative, on random data: too small is as suspect as too large")


def _sum(part: GemmSum, row: RecipeResult, result: MeasurementResult) -> Iterator[Figure]:
    name = f"GEMMs ({part.mode})"
    measured = [gemm for gemm in row.gemms if gemm.mode == part.mode]
    if part.seconds is None:
        failure = part.failure
        yield (name, "none", f"{failure.reason}: {failure.message}" if failure else "")
        return
    how, timed = ALONE[result.backend] if part.mode == "prequantized" else AUTOCAST, "in each segment"
    if result.method == "nvidia":
        how, timed = "forward calls only", "in each repeated run"
    kinds = f"{len(measured)} kinds, each timed {timed} and counted as often as the workload has it"
    kinds += f", those of the last {row.last_layers_bf16} layers with bf16's times" if row.last_layers_bf16 else ""
    yield (name, f"{_interval(part.seconds, 1e3)} ms", f"one GPU's GEMMs of a micro batch, {how}: {kinds}")
    if part.launch_gaps is not None:
        source = "between the kernels of the timed graphs, seen in their replays: in no kernel-only time"
        yield ("launch gaps", f"{digits(part.launch_gaps * 1e3)} ms", source)
    if part.speedup:
        source = f"{result.baseline}'s seconds over these, {_paired(part.speedup, result)}"
        yield (f"{name} speedup", f"{_interval(part.speedup)}", source)


def _training(row: RecipeResult, training: Training, result: MeasurementResult) -> Iterator[Figure]:
    if training.tokens_per_second is None:
        failure = training.failure
        yield ("training", "none", f"{failure.reason}: {failure.message}" if failure else "")
        return
    if training.teraflops_per_gpu:
        yield ("TFLOP/s per GPU", digits(training.teraflops_per_gpu), "tokens/s x FLOPs a token, by GPU")
    yield ("tokens/s", _interval(training.tokens_per_second), _full_depth(training))
    if training.synchronous_tokens_per_second:
        spread = f", at {training.gpu_spread:.1%} of their mean" if training.gpu_spread is not None else ""
        source = f"GPUs x the slowest one ({training.slowest_gpu}{spread}): what a job that waits for all of them gets"
        if training.slowest_gpu:
            yield ("tokens/s in step", _interval(training.synchronous_tokens_per_second), source)
    if training.speedup:
        verdict = f"; verdict: {training.difference.replace('_', ' ')}" if training.difference else ""
        source = f"tokens/s over {result.baseline}'s, {_paired(training.speedup, result)}{verdict}"
        yield ("speedup", _interval(training.speedup), source)
    if training.mfu and training.mfu.value is not None:
        source = "FLOPs, each part's over the dense peak of the format that it ran in, over the step's time"
        yield ("MFU", f"{training.mfu.value:.1%}", f"{source}: {training.mfu.peak}")
    elif result.gpus and row.verification.verdict != "fallback":
        yield ("MFU", "unknown", f"the peak of {result.gpus[0].name} is unknown")
    if training.mfu and training.mfu.of_bf16_peak is not None:
        yield ("of BF16 peak", f"{training.mfu.of_bf16_peak:.1%}", "TFLOP/s of one GPU over its dense BF16 peak")
    if training.depth_check is not None:
        source = "predicted over measured step time of a model of another depth: within 3 % is agreement"
        yield ("depth check", f"{training.depth_check:.3f}", source)
    if training.energy:
        yield from _energy(training.energy, result)


def _full_depth(training: Training) -> str:
    """The formula with this run's numbers in it, where the regions are there."""
    seconds = {region.name: region.seconds.value for region in training.regions}
    source = "of the full-depth model, its interval for any day: layers x layer + head + optimizer's share"
    if training.layers and training.layers_measured and {"layers_forward", "layers_backward"} <= set(seconds):
        head, optimizer = (digits(seconds.get(name, 0) * 1e3) for name in ("head", "optimizer"))
        source += f"; a micro batch is {_layers(training, seconds)} + {head} ms of head + a share of {optimizer} ms"
        source += " of optimizer (once a step, scaled to all weights)"
    if training.missing:
        source += f"; WITHOUT {', '.join(training.missing)}, which did not fit"
    if training.trial_tokens_per_second:
        source += f"; the short model itself made {training.trial_tokens_per_second:,.0f} a second, which says nothing"
    return source


def _layers(training: Training, seconds: Mapping[RegionName, float]) -> str:
    """The layers' part of the formula; layers with experts and dense ones are a sum of two."""
    both = seconds["layers_forward"] + seconds["layers_backward"]
    dense = seconds.get("dense_forward", 0) + seconds.get("dense_backward", 0)
    ran = f"{digits(both * 1e3)} ms / {training.layers_measured}"
    if not training.dense_measured:
        return f"{training.layers} x {ran} layers that ran"
    return (
        f"{training.layers} layers: those with experts x {ran} that ran"
        f" + dense ones x {digits(dense * 1e3)} ms / {training.dense_measured} that ran"
    )


def _energy(energy: Energy, result: MeasurementResult) -> Iterator[Figure]:
    if not energy.valid or energy.watts is None:
        said = (f"{reason}: {SENTENCES[reason]}" if reason in SENTENCES else reason for reason in energy.reasons)
        yield ("energy", "none", f"no figure, for: {' '.join(said)}")
        return
    windows = f"over {energy.seconds:.0f} s" if energy.seconds else "over power windows"
    updates = f" and {energy.updates} updates of the sensor" if energy.updates else ""
    whose = "GPUs'" if energy.scope == "gpu" else "modules'"
    by_counter = energy.method == "counter" and energy.scope == "gpu"  # a module has no counter
    counted = "energy counter" if by_counter else f"integral of the {whose} power alone"
    source = f"{counted} {windows}{updates}, each part of the step replayed; scope {energy.scope}, sensor "
    yield ("power", f"{energy.watts:,.0f} W", f"{source}{energy.sensor_accuracy}")
    yield ("tokens/J", _number(energy.tokens_per_joule), "tokens/s over these watts, idle draw included")
    if energy.tokens_per_joule_ratio:
        ratio = energy.tokens_per_joule_ratio
        source = (
            f"tokens/J over {result.baseline}'s, {_paired(ratio, result)}; each has the layers' draw of its own power "
            "windows, and of head and optimizer, which are replayed less often, that of the nearest palindrome"
        )
        yield ("tokens/J ratio", _interval(ratio), source)
    if energy.tokens_per_joule_net is not None:
        idle = f"{energy.idle_watts:,.0f} W" if energy.idle_watts is not None else "the draw"
        yield ("tokens/J net", _number(energy.tokens_per_joule_net), f"with {idle} before the run taken off")
    elif energy.net_reason:
        yield ("tokens/J net", "none", f"{energy.net_reason}: {SENTENCES.get(energy.net_reason, '')}")


def _conditions(row: RecipeResult) -> Iterator[Figure]:
    memory = {
        "allocated_peak_bytes": "by the allocator, of this recipe alone",
        "reserved_peak_bytes": "reserved by the allocator, all recipes so far",
        "process_peak_bytes": "of the process, all recipes so far",
        "activation_bytes": "kept by its layers of a forward pass",
        "state_bytes": "weights, gradients, optimizer and data",
    }
    for name, how in memory.items():
        size = getattr(row.memory, name)
        if size is not None:
            yield ("short model's memory", f"{size / 1e9:.1f} GB", how)
    yield from _model_memory(row)
    if row.throttled:
        source = f"{row.throttled.reason}: {'sampled' if row.throttled.sampled else 'by the driver’s counters'}"
        yield ("throttled", f"{row.throttled.share:.1%} of the timed windows", source)
    yield from _kernel_time(row)
    if row.loss:
        entropy = f"; no loss goes below {row.loss.entropy:.2f} nats for long" if row.loss.entropy is not None else ""
        verdict = row.loss.verdict or (row.loss.failure.reason if row.loss.failure else "none")
        source = f"{len(row.loss.runs)} short runs on a seeded Markov chain, a smoke test and no proof of parity"
        yield ("loss", verdict, f"{source}{entropy}")
        if gap := row.loss.difference:
            band = f" ({gap.lower:+.3f} to {gap.upper:+.3f})" if gap.lower is not None and gap.upper is not None else ""
            source = f"mean of the last {gap.steps} steps minus the baseline's of the same seed, over {gap.seeds} seeds"
            yield ("loss beside the baseline's", f"{gap.nats:+.3f} nats{band}", source)


def _model_memory(row: RecipeResult) -> Iterator[Figure]:
    memory = row.model_memory
    if memory is None:
        return
    if memory.bytes is None:
        why = f"{memory.failure.reason}: {memory.failure.message}" if memory.failure else ""
        yield ("full model's memory", "none", why)
        return
    fits = ", ".join(f"{name} {ratio:.2f}" for name, ratio in memory.agreement.items())
    source = f"of one GPU, estimated ({memory.formula}); measured over predicted of the short model: {fits}"
    yield ("full model's memory", f"{memory.bytes / 1e9:.1f} GB", source)


def _paired(ratio: Interval, result: MeasurementResult) -> str:
    if ratio.n == 1:
        return "one single run each: nothing is known of the spread"
    if result.method == "nvidia":
        return f"paired within each of {ratio.n} whole runs, geometric mean, 95 % t-interval"
    return f"paired within each of {ratio.n} palindromes (A B C ... C B A), geometric mean, 95 % t-interval"


def _interval(interval: Interval, scale: float = 1.0) -> str:
    if interval.n == 1:
        return f"{digits(interval.value * scale, 5)} (no interval: n = 1)"
    value, low, high = (digits(bound * scale, 5) for bound in (interval.value, interval.lower, interval.upper))
    return f"{value} (95 %: {low} to {high}, n = {interval.n})"


def _number(value: float | None) -> str:
    return "not known" if value is None else digits(value)
