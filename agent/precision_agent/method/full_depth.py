"""From the timed regions of a short model to the full-depth model: the only training figure that leaves the agent.

Seconds of one micro batch on one GPU, and joules alike:

    (L - kept) x layer + kept x layer in BF16 + head + optimizer x scale / accumulation

with layer = (forward + backward [+ forward again where activations are recomputed]) / layers that ran. A model with
expert layers and dense ones has this sum for each of the two kinds, each from regions of its own. The short
model's own rate is no stand-in: at 4 layers of an 8B model the head is a third of the FLOPs, and tokens/s come out 5.6
times too high. Pure; one value in for each ABBA block, one out, so that ratios stay paired and intervals carry over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, get_args

from precision_agent.protocol import PARTS, Part, RegionName
from precision_api.exchange import stats
from precision_api.exchange.result import Failure, Interval
from precision_api.models.flops import experts_of_one_gpu, sharded_weights, training_flops_per_token, weights_of_one_gpu
from precision_api.models.model import SlidingWindow
from precision_api.models.shapes import Split
from precision_api.models.workload import ResolvedWorkload

REGIONS: tuple[RegionName, ...] = get_args(RegionName)
PART_OF: Mapping[RegionName, Part] = {name: part for part, names in PARTS.items() for name in names}
"""Which power window stands for which timed region: the layers' two passes are replayed together."""
Values = Mapping[RegionName, Sequence[float] | Failure]
"""One value an ABBA block of each region. A region that is absent did not fit into memory."""
MAY_BE_MISSING = frozenset({"out_of_memory", "did_not_fit"})


@dataclass(frozen=True, slots=True)
class Depth:
    """What the full step is made of: `layers` of the model, of which `measured` ran.

    Where `dense_measured` layers with a dense MLP were timed apart, `dense` of the `layers` are such, and `measured`
    are of the others, which have experts. Else all layers are alike.

    `optimizer_scale`: weights of the full model whose optimizer state one GPU holds, over those that the timed
    optimizer held. An optimizer step is bound by memory traffic, so its time goes with the weights.
    `layers_bf16`: the last layers, which run in BF16. Dense layers are the first ones.
    """

    layers: int
    measured: int
    gradient_accumulation: int = 8
    recompute: Literal["None", "Full"] = "None"
    layers_bf16: int = 0
    optimizer_scale: float = 1.0
    dense: int = 0
    dense_measured: int = 0

    def __post_init__(self) -> None:
        if self.measured < 1 or not 0 <= self.layers_bf16 <= self.layers:
            raise ValueError(f"{self.measured} layers measured, {self.layers_bf16} of {self.layers} in BF16")
        if (self.dense > 0) != (self.dense_measured > 0) or not 0 <= self.dense <= self.layers:
            raise ValueError(f"{self.dense_measured} dense layers measured of {self.dense} among {self.layers}")

    @property
    def kinds(self) -> "tuple[LayerKind, ...]":
        others = self.layers - self.dense
        last = min(others, self.layers_bf16)
        plain, rest = LayerKind("layers", others, self.measured, last), self.layers_bf16 - last
        return (plain, LayerKind("dense", self.dense, self.dense_measured, rest)) if self.dense else (plain,)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers that are alike: how many the model has, how many ran, how many stay in BF16."""

    part: Literal["layers", "dense"]
    layers: int
    measured: int
    layers_bf16: int

    @property
    def regions(self) -> tuple[RegionName, ...]:
        """Forward and backward pass."""
        return PARTS[self.part]


@dataclass(frozen=True, slots=True)
class FullDepth:
    """The full-depth value of each ABBA block; `missing` names the regions that it is without."""

    values: tuple[float, ...]
    missing: tuple[RegionName, ...] = ()


def depth_of(
    workload: ResolvedWorkload,
    measured: int,
    *,
    layers_bf16: int = 0,
    optimizer_parameters: int | None = None,
    dense_measured: int = 0,
) -> Depth:
    """The depth of a resolved model workload of which `measured` layers ran, beside `dense_measured` dense ones.

    `optimizer_parameters`: weights that the timed optimizer held; left out, those of the measured layers and the head.
    """
    model, asked = workload.model, workload.workload
    assert model is not None, "bare shapes have no depth"
    split = Split(asked.tensor_parallel, asked.expert_parallel)
    held = optimizer_parameters or weights_of_one_gpu(model, measured + dense_measured, split)
    whole, experts = (of(model, model.num_hidden_layers, split) for of in (weights_of_one_gpu, experts_of_one_gpu))
    stepped = sharded_weights(whole, experts, split, asked.optimizer_shards)
    return Depth(
        layers=model.num_hidden_layers,
        measured=measured,
        gradient_accumulation=asked.gradient_accumulation,
        recompute=asked.recompute,
        layers_bf16=layers_bf16,
        optimizer_scale=float(stepped) / held,
        dense=model.dense_layers if dense_measured else 0,
        dense_measured=dense_measured,
    )


def window_of(workload: ResolvedWorkload) -> SlidingWindow | None:
    """The model's sliding window; None where it has none, or a sequence is no longer than it: layers are alike then."""
    model, sequence = workload.model, workload.workload.sequence_length
    window = model.sliding_window if model else None
    return window if window and sequence and window.size < sequence else None


def other_windows(workload: ResolvedWorkload, measured: int, windowed: int) -> str | None:
    """That the layers that ran have sliding windows by another share than the model's, in words; else None.

    The full-depth step is made of the layers that ran: what that does to its FLOPs is told, what to its time is open.
    """
    window, model, asked = window_of(workload), workload.model, workload.workload
    if window is None or model is None or asked.sequence_length is None:
        return None
    layers = model.num_hidden_layers
    excess = window.windowed_layers / layers - windowed / measured
    if excess == 0:
        return None
    everywhere = window.model_copy(update={"windowed_layers": layers})
    none, all_ = (
        training_flops_per_token(model.model_copy(update={"sliding_window": sliding}), asked.sequence_length)
        for sliding in (None, everywhere)
    )
    more = excess * (none - all_) / training_flops_per_token(model, asked.sequence_length)
    than = f"{abs(more):.1%} {'more' if more > 0 else 'fewer'} FLOPs than the model's"
    return (
        f"{windowed} of the {measured} layers that ran have a sliding window, {window.windowed_layers} of the model's "
        f"{layers} do: the full-depth step is of such layers, {than}"
    )


def full_depth(values: Values, depth: Depth, higher: Values | None = None) -> FullDepth | Failure:
    """The full-depth value of each ABBA block from those of the regions, or why there is none.

    `higher`: BF16's regions of the same ABBA blocks, needed where layers stay in it. A head or optimizer
    that did not fit is named in `missing`; every other failed region fails the whole.
    """
    kept = (higher or {},) if depth.layers_bf16 else ()
    failed = _failed(values, depth) or next((_failed(whose, depth, "the layers in BF16: ") for whose in kept), None)
    if failed:
        return failed
    weights: dict[RegionName, float] = {"head": 1.0, "optimizer": depth.optimizer_scale / depth.gradient_accumulation}
    there = {name: region for name in weights if not isinstance(region := values.get(name), Failure) and region}
    layers = [whose[name] for whose in (values, *kept) for kind in depth.kinds for name in kind.regions]
    if len({len(region) for region in (*there.values(), *layers) if not isinstance(region, Failure)}) != 1:
        return Failure(reason="regions_differ", message="regions were timed in different numbers of palindromes")
    terms = [(_layer(values, depth, kind), float(kind.layers - kind.layers_bf16)) for kind in depth.kinds]
    terms += [(_layer(whose, depth, kind), float(kind.layers_bf16)) for whose in kept for kind in depth.kinds]
    terms += [(tuple(region), weights[name]) for name, region in there.items()]
    summed = stats.sums([part for part, _ in terms], [weight for _, weight in terms])
    return FullDepth(summed, tuple(name for name in weights if name not in there))


def _layer(values: Values, depth: Depth, kind: LayerKind) -> tuple[float, ...]:
    """One layer of a kind, forward and backward, in each ABBA block."""
    forward, backward = (values[name] for name in kind.regions)
    assert not isinstance(forward, Failure)
    assert not isinstance(backward, Failure)
    again = 2 if depth.recompute == "Full" else 1
    return tuple((again * f + b) / kind.measured for f, b in zip(forward, backward, strict=True))


def _failed(values: Values, depth: Depth, whose: str = "") -> Failure | None:
    """The first region whose failure leaves no figure: layers always, the others unless they did not fit."""
    layers = {name for kind in depth.kinds for name in kind.regions}
    for name in REGIONS:
        region = values.get(name)
        needed = name in layers
        if isinstance(region, Failure) and (needed or region.reason not in MAY_BE_MISSING):
            return _told(region, f"{whose}{name}: {region.message}")
        if needed and not region:
            return Failure(reason="region_not_measured", message=f"{whose}{name} was not timed: no full-depth figure")
    return None


def _told(failure: Failure, message: str) -> Failure:
    """`failure` with another message, cut to what fits."""
    return failure.model_copy(update={"message": message[:1024]})


@dataclass(frozen=True, slots=True)
class NodeRates:
    """Tokens/s of the node's GPUs computing at once. `synchronous` = GPUs x slowest GPU: what a job in step gets."""

    per_abba_block: tuple[float, ...]
    tokens_per_second: Interval
    synchronous: Interval
    slowest_gpu: str
    gpu_spread: float
    """Slowest GPU's rate over the mean of all."""
    by_gpu: dict[str, float]
    missing: tuple[RegionName, ...] = ()


def node_rates(
    steps: Mapping[str, Sequence[float]], tokens: int, tensor_parallel: int = 1, missing: tuple[RegionName, ...] = ()
) -> NodeRates:
    """The rates from seconds of a full-depth micro batch by GPU (UUID) and ABBA block.

    `tokens` are a micro batch's; the GPUs of a tensor-parallel group share them. Raises ValueError where GPUs have
    different numbers of ABBA blocks or fewer than two.
    """
    rates = {uuid: [tokens / tensor_parallel / seconds for seconds in values] for uuid, values in steps.items()}
    summed = stats.sums(list(rates.values()), [1.0] * len(rates))
    means = {uuid: fmean(values) for uuid, values in rates.items()}
    slowest = min(means, key=lambda uuid: (means[uuid], uuid))
    return NodeRates(
        per_abba_block=summed,
        tokens_per_second=stats.rate_interval(summed),
        synchronous=stats.rate_interval([len(rates) * rate for rate in rates[slowest]]),
        slowest_gpu=slowest,
        gpu_spread=means[slowest] / fmean(means.values()),
        by_gpu=means,
        missing=missing,
    )


def speedup(variant: NodeRates, baseline: NodeRates) -> Interval | Failure:
    """Rate over the baseline's, paired within ABBA blocks; a Failure where one of them lacks a part the other has."""
    if set(variant.missing) != set(baseline.missing):
        lacking = ", ".join(sorted(set(variant.missing) ^ set(baseline.missing)))
        return Failure(reason="parts_differ", message=f"only one of the two was measured with {lacking}")
    return stats.paired_ratio(variant.per_abba_block, baseline.per_abba_block)


def full_depth_watts(
    seconds: Mapping[RegionName, float],
    watts: Mapping[Part, float],
    depth: Depth,
    higher: tuple[Mapping[RegionName, float], Mapping[Part, float]] | None = None,
) -> float | Failure:
    """Mean power of a full-depth step: each part's power, weighed with the seconds that it lasts at full depth.

    `seconds` are a mean micro batch's by region, `watts` the node's power while that part was replayed; `higher` the
    same two of BF16 where layers stay in it. Tokens/s over these watts are tokens per joule.
    """
    total = full_depth(_single(seconds), depth, _single(higher[0]) if higher else None)
    without = sorted({PART_OF[name] for name in seconds} - set(watts))
    if without:
        return Failure(reason="power_part_missing", message=f"no draw of {', '.join(without)}")
    joules = full_depth(_joules(seconds, watts), depth, _joules(*higher) if higher else None)
    if isinstance(total, Failure):
        return total
    return joules if isinstance(joules, Failure) else joules.values[0] / total.values[0]


def _single(values: Mapping[RegionName, float]) -> dict[RegionName, Sequence[float] | Failure]:
    return {name: (value,) for name, value in values.items()}


def _joules(seconds: Mapping[RegionName, float], watts: Mapping[Part, float]) -> Values:
    return _single({name: value * watts[PART_OF[name]] for name, value in seconds.items() if PART_OF[name] in watts})


def depth_check(values: Values, depth: Depth, second: Values, second_depth: Depth) -> float | Failure:
    """Predicted over measured seconds of a micro batch at the second depth, from means over the ABBA blocks.

    The model that ran at `second_depth.measured` layers is predicted from the first one's regions as any full model is.
    """
    scale = depth.optimizer_scale / second_depth.optimizer_scale
    dense = second_depth.dense_measured
    shorter = replace(
        depth, layers=second_depth.measured + dense, dense=dense, layers_bf16=0, optimizer_scale=scale,
        gradient_accumulation=1, recompute="None",
    )  # fmt: skip
    itself = replace(shorter, measured=second_depth.measured, dense_measured=dense, optimizer_scale=1.0)
    predicted, measured = full_depth(values, shorter), full_depth(second, itself)
    if isinstance(predicted, Failure):
        return predicted
    if isinstance(measured, Failure):
        return _told(measured, f"second depth: {measured.message}")
    if predicted.missing != measured.missing:
        return Failure(reason="parts_differ", message="the two depths were measured with different parts")
    return fmean(predicted.values) / fmean(measured.values)
