"""Transformer Engine's own GEMM call on operands that are quantised already: a check of kernel-only times.

It is the call that the modules make for each pass, timed by events and without a profiler, each among the same layer's
timed steps so that the clock is theirs. Scales that the call would reorder first are reordered beforehand where the
version can do so; where it can't, the call takes that much longer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from precision_agent.backends.te.session.graphs import Program, Region, ReplayEvidence, by_name
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import DTYPE
from precision_agent.backends.te.tiers.gemm_tier import Unit
from precision_api.models.shapes import PASSES, Pass

LOADS = 40
"""The load before each round of calls is such a part of the one before the first: 20 ms where that is 0.8 s."""
OPERANDS: dict[Pass, tuple[str, str, str]] = {
    "fprop": ("weight", "input", "TN"),
    "dgrad": ("weight", "gradient", "NN"),
    "wgrad": ("input", "gradient", "NT"),
}
"""Operands and layout of each pass, as Transformer Engine's linear layer calls it."""
SPLIT: dict[Pass, tuple[str, bool]] = {
    "fprop": ("fp8_gemm_fprop", False),
    "dgrad": ("fp8_gemm_dgrad", True),
    "wgrad": ("fp8_gemm_wgrad", True),
}
"""Where a recipe keeps whether a pass accumulates in parts, and what it is usually."""


def own_seconds(
    units: Sequence[Unit], call: Callable[..., Any], lead_seconds: float, seconds: float, repeats: int
) -> list[list[dict[Pass, float]]]:
    """By repetition and unit the seconds of a single GEMM of each pass.

    After `lead_seconds` of all layers' timed steps each repetition takes about `seconds`, in which those steps and
    these calls alternate.
    """
    programs = [_program(unit, call) for unit in units]
    for unit in units:
        unit.measure(lead_seconds / len(units))
    return [
        [
            _timed(unit, program, seconds / len(units), lead_seconds / LOADS)
            for unit, program in zip(units, programs, strict=True)
        ]
        for _ in range(repeats)
    ]


def _program(unit: Unit, call: Callable[..., Any]) -> Program:
    with unit.present():
        operands = [_quantised(unit, place) for place in range(unit.rotated)]
        regions = tuple(Region(pass_, "only", _calls(unit, call, operands, pass_)) for pass_ in PASSES)
        program = Program(unit.engine, regions, tuple((pass_, "only") for pass_ in PASSES))
        program.warm_up()
        program.capture(lambda _: ReplayEvidence())
    return program


def _timed(unit: Unit, program: Program, seconds: float, load_seconds: float) -> dict[Pass, float]:
    spent, rounds = dict.fromkeys(PASSES, 0.0), 0
    end = monotonic() + seconds
    while not rounds or monotonic() < end:
        unit.measure(load_seconds)
        timings = by_name(program.time(1), PASSES)
        spent = {pass_: spent[pass_] + timings[pass_] for pass_ in PASSES}
        rounds += 1
    return {pass_: total / rounds / unit.copies for pass_, total in spent.items()}


def _quantised(unit: Unit, place: int) -> dict[str, Any]:
    """The operands of one of the unit's equal modules, as its own quantizers leave them."""
    module = unit.modules[place]
    weight = next(module.parameters()).detach()
    plain = {"input": unit.inputs[place].detach(), "weight": weight, "gradient": unit.gradients[place]}
    quantizers = recipes.quantizers(module)
    if not quantizers:
        return dict(plain)
    with _for_gemms(quantizers):
        return {role: quantizers[role](tensor) for role, tensor in plain.items()}  # type: ignore[index]


@contextmanager
def _for_gemms(quantizers: Any) -> Iterator[None]:
    """The quantizers give all that a GEMM wants of a tensor, scales in its order; they are left as they were."""
    before = [
        (quantizer, quantizer.rowwise_usage, quantizer.columnwise_usage, getattr(quantizer, "optimize_for_gemm", None))
        for quantizer in quantizers.values()
    ]
    try:
        for quantizer, *_, ordered in before:
            quantizer.set_usage(rowwise=True, columnwise=True)
            if ordered is not None:
                quantizer.optimize_for_gemm = True
        yield
    finally:
        for quantizer, rowwise, columnwise, ordered in before:
            quantizer.set_usage(rowwise=rowwise, columnwise=columnwise)
            if ordered is not None:
                quantizer.optimize_for_gemm = ordered


def _calls(unit: Unit, call: Callable[..., Any], operands: list[dict[str, Any]], pass_: Pass) -> Callable[[], None]:
    first, second, layout = OPERANDS[pass_]
    place, usual = SPLIT[pass_]
    split = bool(getattr(getattr(unit.te_recipe, place, None), "use_split_accumulator", usual))
    keywords = {"out_dtype": DTYPE, "layout": layout, "grad": pass_ != "fprop", "use_split_accumulator": split}

    def run() -> None:
        for operand in operands:
            call(operand[first], operand[second], **keywords)

    return run
