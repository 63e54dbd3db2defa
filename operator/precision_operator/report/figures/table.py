"""What is known of the one node whose full result is at hand, as tables: of each recipe, and of a slow node's GPUs."""

from collections.abc import Iterator

from precision_api.exchange.result import Clocks, MeasurementResult, RecipeResult, Training
from precision_api.exchange.summary import USABLE, first_failure
from precision_api.facts.plain_text import three_digits
from precision_operator.core.results.slowness import PeerComparison
from precision_operator.drawing.figure import Figure
from precision_operator.report.figures.figure import cell, of_result, spread_text


def table(result: MeasurementResult) -> Figure:
    """A line for each figure; what is absent, or is not this recipe's own, is a dash."""
    columns = [_column(recipe, bool(result.gpus)) for recipe in result.recipes]
    return Figure(
        key="table",
        title=f"Node {result.node} in figures",
        svg="",
        caption="Intervals are of 95 %. synchronous: GPUs x slowest GPU, the pace of a job that waits for all of them. "
        "Memory is one GPU's, estimated by a formula that fits what the short model took."
        f"{_memory_text(result)}{_tax_text(result)} A dash: not measured, or the figure does not stand."
        + _peaks_text(result),
        source=of_result(result),
        head=("", *(recipe.recipe for recipe in result.recipes)),
        rows=tuple((line, *(column[line] for column in columns)) for line in (columns[0] if columns else ())),
    )


def _memory_text(result: MeasurementResult) -> str:
    """What a GPU has, and what NVML counted in the run."""
    memory, total = result.device_memory, result.gpus[0].memory_bytes if result.gpus else None
    has = f" The GPU has {three_digits(total / 1e9)} GB: a full model that takes more must be sharded." if total else ""
    if memory is None:
        return has
    used = f"{three_digits(memory.used_bytes / 1e9)} GB" + (f" ({memory.counted})" if memory.counted else "")
    return f"{has} While the short model trained, all recipes in one process, NVML counted up to {used} as used."


def _tax_text(result: MeasurementResult) -> str:
    """That a tax worked out of GEMMs' sums is not that of the rows above it, which have the layers in BF16."""
    kept = any(row.last_layers_bf16 and not row.quantization_tax_load for row in result.recipes)
    return " quantisation tax: of the layers that are not kept in BF16 alone." if kept else ""


def _peaks_text(result: MeasurementResult) -> str:
    """What MFU is a share of; that it is of nothing known where the product has no peaks in the table of products."""
    trained = [recipe.training for recipe in result.recipes if recipe.training and recipe.training.tokens_per_second]
    peaks = sorted({training.mfu.peak.partition(": ")[2] for training in trained if training.mfu})
    if peaks:
        return f" MFU: FLOPs, each part's over its format's dense peak, over the step's time; by {'; '.join(peaks)}."
    return f" MFU: the peak of {result.gpus[0].name} is unknown." if trained and result.gpus else ""


def _column(recipe: RecipeResult, by_gpus: bool) -> dict[str, str]:
    stands = recipe.verification.verdict in USABLE
    training = recipe.training if stands else None
    energy = training.energy if training else None
    sums = {total.mode: total.speedup for total in recipe.sums if stands}
    memory, taken = recipe.model_memory.bytes if recipe.model_memory else None, recipe.memory.allocated_peak_bytes
    ran: str = recipe.verification.verdict if recipe.availability in ("ok", "emulated") else recipe.availability
    ran += ", emulated" if recipe.availability == "emulated" and ran == "assumed" else ""
    return {
        "verdict": ran,
        "TFLOP/s per GPU": cell(training.teraflops_per_gpu if training else None, ",.4g"),
        "tokens/s": spread_text(training.tokens_per_second if training else None, 0),
        "synchronous tokens/s": spread_text(training.synchronous_tokens_per_second if training else None, 0),
        "speedup": spread_text(training.speedup if training else None, 2, "x"),
        "GEMMs of all layers, autocast": spread_text(sums.get("autocast"), 2, "x"),
        "GEMMs of all layers, prequantized": spread_text(sums.get("prequantized"), 2, "x"),
        "quantisation tax": ("at least " if recipe.quantization_tax_most else "")
        + cell(recipe.quantization_tax, ".1%"),
        "MFU": _mfu(training, by_gpus),
        "of BF16 peak": cell(training.mfu.of_bf16_peak if training and training.mfu else None, ".1%"),
        "watts": cell(energy.watts if energy else None, ",.0f"),
        "tokens/J": cell(energy.tokens_per_joule if energy else None, ".2f"),
        "net tokens/J": cell(energy.tokens_per_joule_net if energy else None, ".2f"),
        "memory of the full model (estimate), GB": cell(memory / 1e9 if memory and stands else None, ".1f"),
        "memory of the short model (allocator's peak), GB": cell(taken / 1e9 if taken and stands else None, ".1f"),
        "throttled": f"{recipe.throttled.share:.1%} {recipe.throttled.reason}" if recipe.throttled else "–",
        "last layers in BF16": cell(recipe.last_layers_bf16, "d"),
        "failure": _failure(recipe),
    }


def _mfu(training: Training | None, by_gpus: bool) -> str:
    """`by_gpus`: real GPUs were measured, so that what is missing is the peak of their product."""
    if training is None or training.tokens_per_second is None or not (training.mfu or by_gpus):
        return "–"
    return cell(training.mfu.value, ".1%") if training.mfu else "unknown"


def _failure(recipe: RecipeResult) -> str:
    failure = first_failure(recipe)
    if failure is not None:
        return f"{failure.reason}: {failure.message}".rstrip(": ")
    if recipe.verification.verdict not in USABLE:
        return f"{recipe.verification.verdict}: its figures are not this recipe's"
    return "–"


def gpus(result: MeasurementResult, slow: PeerComparison) -> Figure:
    """A row for each GPU with the recipe that the node was compared in; a dash for what was not measured."""
    recipe = next((row for row in result.recipes if row.recipe == slow.judged.recipe), None)
    product = result.gpus[0].name if result.gpus else result.product
    return Figure(
        key="gpus",
        title=f"GPUs of {result.node}",
        svg="",
        caption=f"{len(result.gpus)} x {product}, numbered as the agent saw them, with {slow.judged.recipe}. Of peers: "
        f"over one GPU's share of their median rate. ECC: uncorrected errors of its memory so far. {_state(recipe)}",
        source=of_result(result),
        head=("GPU", "tokens/s", "of peers", "limit, W", "ECC", "UUID"),
        rows=tuple(_gpu_rows(result, recipe, slow.peers_rate)),
    )


def _gpu_rows(result: MeasurementResult, recipe: RecipeResult | None, peers_rate: float) -> Iterator[tuple[str, ...]]:
    rates = recipe.training.tokens_per_second_by_gpu if recipe and recipe.training else {}
    errors = {gpu.uuid: gpu.ecc_aggregate_uncorrectable for gpu in result.health}
    for index, gpu in enumerate(result.gpus):
        rate = rates.get(gpu.uuid)
        share = rate / peers_rate * len(result.gpus) if rate else None
        watts, ecc = cell(gpu.enforced_limit_watts), cell(errors.get(gpu.uuid))
        yield str(index), cell(rate), cell(share, ".1%"), watts, ecc, gpu.uuid


def _state(recipe: RecipeResult | None) -> str:
    """Clock, heat, power and throttling of all GPUs while the recipe was timed."""
    clocks = (recipe and recipe.clocks) or Clocks()
    energy = recipe.training.energy if recipe and recipe.training else None
    throttled = [f"{held.reason} {held.share:.1%} of the time" for held in (recipe.throttle if recipe else ())]
    return (
        f"While it was timed: mean SM clock {cell(clocks.sm_mhz)} MHz, hottest GPU {cell(clocks.celsius)} °C, all GPUs "
        f"{cell(energy.watts if energy else None)} W, {', '.join(throttled) or 'no throttling seen'}."
    )
