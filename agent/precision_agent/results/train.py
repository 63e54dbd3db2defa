"""Samples of a short model -> the training figure of the full-depth model, of all GPUs of the node, with its energy.

Every GPU's own full-depth step comes first, then the node: a slow GPU is seen, and one that failed fails the whole.

Whether a variant differs from the baseline is docs/development/method.md, "Intervals and noise".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from precision_agent.cases import BF16, Cases, Variant
from precision_agent.method.full_depth import (
    Depth,
    FullDepth,
    NodeRates,
    depth_of,
    full_depth,
    full_depth_watts,
    node_rates,
    speedup,
)
from precision_agent.power.energy import EnergyReading
from precision_agent.power.reasons import Reason
from precision_agent.power.token_energy import token_energy, void
from precision_agent.protocol import RegionName
from precision_agent.results.power_windows import NodePower
from precision_agent.sampling.sample import LEAST_ABBA_BLOCKS, CaseKey, Samples
from precision_api.exchange import result, stats
from precision_api.exchange.result import Difference, Interval
from precision_api.facts.products import part
from precision_api.models.flop_shares import flops_by_format, mfu
from precision_api.models.workload import ResolvedWorkload

PowerOrReason = NodePower | tuple[Reason, ...] | result.Failure
"""A variant's power, or why there is none."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All that the samples say, and what they were taken of."""

    cases: Cases
    samples: Samples
    workload: ResolvedWorkload
    names: tuple[str, ...]
    gpus: tuple[result.Gpu, ...] = ()
    """None in a trial on a CPU, whatever the names."""
    control: result.Interval | None = None
    layers_bf16: int | None = None
    """Last layers that stay in BF16 with NVFP4, as asked: computed from BF16's layer times, not run."""
    repeats: Mapping[CaseKey, tuple[float, ...]] = field(default_factory=dict)
    """Of kernel-only times: their mean by each profile alone, seconds."""
    gaps: Mapping[CaseKey, float | None] = field(default_factory=dict)
    """Seconds between the kernels of a graph."""

    def kept_by(self, variant: Variant) -> int:
        """Layers that stay in BF16 with the variant."""
        model = self.workload.model
        return variant.parts.layers_in_bf16(model.num_hidden_layers, self.layers_bf16) if model else 0


@dataclass(frozen=True, slots=True)
class Steps:
    """A variant's full-depth micro batches: the node's rates, each GPU's seconds by ABBA block."""

    rates: NodeRates
    seconds: Mapping[str, tuple[float, ...]]
    depth: Depth


@dataclass(frozen=True, slots=True)
class RecipePower:
    """A variant's power, or why there is none; `idle_watts` by scope, of all sensors together.

    `baseline` is the baseline's power, for the ratio to it; `bf16` is BF16's, for layers that stay in it.
    """

    power: PowerOrReason
    idle_watts: Mapping[result.PowerScope, float]
    accuracy: result.SensorAccuracy = "unverified"
    baseline: PowerOrReason = ()
    bf16: PowerOrReason = ()


def steps_of(variant: Variant, run: Measured) -> Steps | result.Failure:
    """The variant's full-depth steps on every GPU; a Failure where one of them has none, or ABBA blocks are too few."""
    case = run.cases.training
    if case is None:
        return run.cases.no_training or result.Failure(reason="not_requested")
    values = run.samples.by_device(variant, case)
    if isinstance(values, result.Failure):
        return values
    if len(values) < LEAST_ABBA_BLOCKS:
        return result.Failure(reason="too_few_palindromes", message=f"{len(values)} complete: an interval needs 2")
    fact = run.samples.facts[variant.label, case]
    kept = run.kept_by(variant)
    depth = depth_of(
        run.workload,
        fact.layers_measured or case.layers,
        layers_bf16=kept,
        optimizer_parameters=fact.optimizer_parameters,
        dense_measured=fact.dense_measured,
    )
    seconds: dict[str, tuple[float, ...]] = {}
    missing: tuple[RegionName, ...] = ()
    for place, name in enumerate(run.names):
        higher = run.samples.regions_of(BF16, place) if kept else None
        step = full_depth(run.samples.regions_of(variant, place), depth, higher)
        if isinstance(step, result.Failure):
            return step.model_copy(update={"message": f"{name}: {step.message}"[:1024]})
        seconds[name] = step.values
        missing = _left_out(step, run.workload)
    rates = node_rates(seconds, case.tokens, run.workload.workload.tensor_parallel, missing)
    return Steps(rates, seconds, depth)


def _left_out(step: FullDepth, workload: ResolvedWorkload) -> tuple[RegionName, ...]:
    """What the figure is without; a model that has no vocabulary has no head to miss."""
    has_head = workload.model is not None and workload.model.vocab_size is not None
    return tuple(name for name in step.missing if name != "head" or has_head)


def training_of(
    variant: Variant, run: Measured, metering: RecipePower, depth_check: float | None = None
) -> result.Training:
    steps, case = steps_of(variant, run), run.cases.training
    if isinstance(steps, result.Failure) or case is None:
        return result.Training(failure=steps if isinstance(steps, result.Failure) else run.cases.no_training)
    rates, slowest = steps.rates, steps.rates.slowest_gpu
    ratio = training_speedup(steps, variant, run)
    flops = rates.tokens_per_second.value * case.flops_per_token
    several = len(run.names) > 1
    return result.Training(
        tokens_per_second=rates.tokens_per_second,
        synchronous_tokens_per_second=rates.synchronous,
        slowest_gpu=slowest if several else None,
        gpu_spread=rates.gpu_spread if several else None,
        tokens_per_second_by_gpu=rates.by_gpu if several else {},
        step_seconds=stats.rate_interval(steps.seconds[slowest]),
        model_flops_per_second=flops,
        teraflops_per_gpu=flops / len(run.gpus) / 1e12 if run.gpus else None,
        mfu=_mfu(variant, flops / len(run.names), run),
        speedup=ratio,
        difference=difference(ratio, run.control) if ratio else None,
        regions=tuple(
            result.Region(name=name, seconds=stats.mean_interval(values))
            for name, values in run.samples.regions_of(variant, run.names.index(slowest)).items()
        ),
        layers=steps.depth.layers,
        layers_measured=steps.depth.measured,
        dense_measured=steps.depth.dense_measured or None,
        trial_tokens_per_second=_trial_rate(variant, run),
        missing=steps.rates.missing,
        depth_check=depth_check,
        energy=_energy(variant, run, steps, metering).model_copy(update={"sensor_accuracy": metering.accuracy}),
        weight_gradients=run.samples.facts[variant.label, case].weight_gradients,
    )


def training_speedup(steps: Steps, variant: Variant, run: Measured) -> result.Interval | None:
    """The node's rate over the baseline's, paired; None for the baseline and where the two have no like figures."""
    if variant == run.cases.baseline:
        return None
    baseline = steps_of(run.cases.baseline, run)
    ratio = baseline if isinstance(baseline, result.Failure) else speedup(steps.rates, baseline.rates)
    return None if isinstance(ratio, result.Failure) else ratio


def _trial_rate(variant: Variant, run: Measured) -> float | None:
    """Tokens/s of the short model as it ran, of all devices: shown, never planned with."""
    case = run.cases.training
    assert case is not None
    values = run.samples.by_device(variant, case)
    assert not isinstance(values, result.Failure)
    device_seconds = [fmean(passes) for passes in zip(*values, strict=True)]
    return sum(case.tokens / seconds for seconds in device_seconds) / run.workload.workload.tensor_parallel


def _mfu(variant: Variant, flops: float, run: Measured) -> result.Utilisation | None:
    """Of one GPU that makes `flops` a second, by the formats that its parts run in; None where a peak is unknown."""
    kind, sequence = run.gpus and part(run.gpus[0].name), run.workload.workload.sequence_length
    if not kind or run.workload.model is None or sequence is None:
        return None
    recipes = {case.name: case.recipe_of(variant) for case in run.cases.gemms}
    by_format = flops_by_format(run.workload.model, sequence, recipes, variant.parts.mlp, run.kept_by(variant))
    value = mfu(by_format, kind.peaks, sum(by_format.values()) / flops)
    if value is None:
        return None
    name = f"{kind.name} dense {' and '.join(map(str.upper, by_format))}: {kind.source}"
    of_bf16 = flops / kind.bf16_flops
    return result.Utilisation(value=value, of_bf16_peak=of_bf16, peak_flops_per_second=flops / value, peak=name)


def _void(why: tuple[Reason, ...] | result.Failure) -> result.Energy:
    return result.Energy(valid=False, reasons=(why.reason,)) if isinstance(why, result.Failure) else void(why)


def _mean_regions(variant: Variant, run: Measured, abba_block: int | None = None) -> dict[RegionName, float]:
    """Seconds of each region, the mean of all devices and of all ABBA blocks, or in one of them."""
    devices = run.samples.regions[variant.label]
    chosen = slice(None) if abba_block is None else slice(abba_block, abba_block + 1)
    return {name: fmean(value for device in devices for value in device[name][chosen]) for name in devices[0]}


def _energy(variant: Variant, run: Measured, steps: Steps, metering: RecipePower) -> result.Energy:
    """Joules of full-depth steps, from each part's power and its seconds at full depth."""
    power = metering.power
    if not isinstance(power, NodePower):
        return _void(power)
    higher = None
    if steps.depth.layers_bf16:
        if not isinstance(metering.bf16, NodePower):
            return _void(metering.bf16)
        higher = (_mean_regions(BF16, run), metering.bf16.watts)
    watts = full_depth_watts(_mean_regions(variant, run), power.watts, steps.depth, higher)
    if isinstance(watts, result.Failure):
        return _void(watts)
    tokens = steps.rates.tokens_per_second.value * power.seconds
    node = EnergyReading(watts * power.seconds, power.seconds, power.updates, power.scope, counted=power.counted)
    energy = token_energy(node, tokens, metering.idle_watts.get(power.scope))
    if not energy.valid:
        return energy
    # the very watts: joules over seconds may differ from them in the last digit
    return energy.model_copy(
        update={"watts": watts, "tokens_per_joule_ratio": _energy_ratio(variant, run, steps, metering)}
    )


def _energy_ratio(variant: Variant, run: Measured, steps: Steps, metering: RecipePower) -> result.Interval | None:
    """Tokens per joule over the baseline's, paired within ABBA blocks; None where the two have no like figures."""
    power, base_power, base_steps = metering.power, metering.baseline, steps_of(run.cases.baseline, run)
    if variant == run.cases.baseline or not isinstance(power, NodePower) or not isinstance(base_power, NodePower):
        return None
    if isinstance(base_steps, result.Failure) or set(steps.rates.missing) != set(base_steps.rates.missing):
        return None
    mine = _tokens_per_joule(variant, run, steps, power, metering.bf16)
    base = _tokens_per_joule(run.cases.baseline, run, base_steps, base_power, metering.bf16)
    both = sorted(mine.keys() & base.keys())
    if len(both) < LEAST_ABBA_BLOCKS:
        return None
    return stats.paired_ratio([mine[place] for place in both], [base[place] for place in both])


def _tokens_per_joule(
    variant: Variant, run: Measured, steps: Steps, power: NodePower, bf16: PowerOrReason
) -> dict[int, float]:
    """Of full-depth steps, by ABBA block: those in which the layers' power is known by itself."""
    rates: dict[int, float] = {}
    kept = bf16 if steps.depth.layers_bf16 and isinstance(bf16, NodePower) else None
    for place in power.abba_blocks() & (kept or power).abba_blocks():
        higher = (_mean_regions(BF16, run, place), kept.of_abba_block(place)) if kept else None
        watts = full_depth_watts(_mean_regions(variant, run, place), power.of_abba_block(place), steps.depth, higher)
        if not isinstance(watts, result.Failure):
            rates[place] = steps.rates.per_abba_block[place] / watts
    return rates


def difference(ratio: Interval, control: Interval | None) -> Difference:
    """`faster` or `slower` where the ratio's interval excludes 1 and it is beyond the noise floor.

    `ratio` is the variant's rate over the baseline's; `control` a second, equal baseline's over the first's. The floor
    is max(|control - 1| + its half-width, 0.5 %), and the 0.5 % alone where no control was measured.
    """
    if not stats.differs(ratio, control):
        return "no_difference"
    return "faster" if ratio.value > 1 else "slower"
