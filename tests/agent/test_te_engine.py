"""What of the GPU's engine needs no GPU: the profiler's trace, and where it is kept.

When a captured program may be timed, and how regions are averaged.

Rotations, depths and what is given up where memory ends.
"""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.profiler import trace_of
from precision_agent.backends.te import sizes
from precision_agent.backends.te.api import Api
from precision_agent.backends.te.session import graphs
from precision_agent.backends.te.steps.attention_backend import backend, choosing, refusals
from precision_agent.backends.te.tiers.saved import has_own_storage, saved_by
from precision_agent.backends.trace import range_name
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.model import SlidingWindow
from precision_api.models.presets import PRESETS
from precision_api.models.room import layer_bytes
from precision_api.models.shapes import WHOLE, Split
from tests.support.golden import beside
from tests.support.te_device import FakeEngine, FakeGpu

TABLES = beside(__file__)

pytestmark = pytest.mark.torch
LLAMA = PRESETS["llama3-8b"].model
LARGE = PRESETS["llama3.1-405b"].model
GIB = 1 << 30
SEVEN: tuple[Recipe, ...] = ("bf16", *["mxfp8"] * 5, "bf16")
"""Of seven variants: a baseline, five recipes, the control."""


def profiled() -> Any:
    """A profiler that has ended; it writes its trace once."""
    told = torch.profiler.record_function(range_name("forward", "mlp", "layers_forward"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found, told:
        torch.ones(2, 2) @ torch.ones(2, 2)
    return found


def names(trace: Any) -> set[str]:
    return {event.get("name", "") for event in trace["traceEvents"]}


def test_a_kept_trace_lies_where_it_was_asked_for_and_nowhere_without_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "pp:forward:mlp:layers_forward" in names(trace_of(profiled()))
    assert list(tmp_path.iterdir()) == []
    place = tmp_path / "traces" / "run-1" / "trace-fp8_current.json"
    trace = trace_of(profiled(), place)
    assert "pp:forward:mlp:layers_forward" in names(trace)
    assert names(json.loads(place.read_text())) == names(trace)
    trace_of(profiled(), place)  # a second one takes its place
    assert [path.name for path in place.parent.iterdir()] == [place.name]


class Wrapper(torch.Tensor):
    """A tensor that only wraps its parts, as Transformer Engine's quantised tensors do."""

    @staticmethod
    def __new__(cls, part: torch.Tensor) -> "Wrapper":
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, part.shape, dtype=torch.bfloat16)
        made.part = part
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_a_kept_quantised_weight_has_no_bytes_of_its_own_and_is_not_asked_for_them() -> None:
    wrapped = Wrapper(torch.zeros(4, 4, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="invalid python storage"):
        wrapped.untyped_storage().data_ptr()
    assert not has_own_storage(wrapped)
    assert has_own_storage(torch.zeros(4))
    assert has_own_storage(torch.nn.Parameter(torch.zeros(4)))


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(Wrapper(x.to(torch.uint8)))
        return x.clone()


def test_what_a_module_keeps_wrapped_is_counted_by_its_parts() -> None:
    module = torch.nn.Linear(8, 8, dtype=torch.bfloat16)
    module.forward = Keeping.apply
    module.quantizers = {"scaling_fwd": [type("Float8Quantizer", (), {})()]}
    (saved,) = saved_by({"m": module}, lambda first: module(torch.ones(4, 8, dtype=torch.bfloat16, requires_grad=True)))
    assert (saved.module, saved.kind, saved.kept, saved.format) == ("m", "Linear", 1.0, 1.0)


def test_attention_is_chosen_anew_and_the_backend_and_reasons_are_read_from_the_log() -> None:
    logger, levels = logging.getLogger("DotProductAttention"), SimpleNamespace(_log_level=logging.WARNING)
    cache: dict[str, object] = {"attention_params": "of a step before"}
    package = SimpleNamespace(utils=SimpleNamespace(AttentionLogging=levels), _attention_backends=cache)
    attention = SimpleNamespace(dot_product_attention=package)
    with choosing(Api("2.20.2", SimpleNamespace(attention=attention), None, None, "", "")) as said:
        logger.setLevel(levels._log_level)
        for message in ("Running with it", *["Disabling it for that"] * 2, "Selected backend = X."):
            logger.debug(message)
    assert (cache["attention_params"], backend(said), refusals(said)) == (None, "X", ["Disabling it for that"])
    assert (levels._log_level, logger.level, backend([])) == (logging.WARNING, logging.WARNING, None)


@pytest.mark.parametrize(
    ("evidence", "fault"),
    [
        (graphs.ReplayEvidence(), None),
        (graphs.ReplayEvidence(scales_moved=True, gradients_differ=True), None),
        (graphs.ReplayEvidence(scales_moved=False), "delayed scales do not move over replays"),
        (
            graphs.ReplayEvidence(gradients_differ=False),
            "two replays round the gradients alike, which is not stochastic",
        ),
        (graphs.ReplayEvidence(finite=False), "a replay's gradients are not finite"),
    ],
)
def test_a_graph_is_used_only_if_what_must_change_does(evidence: graphs.ReplayEvidence, fault: str | None) -> None:
    assert graphs.graph_fault(evidence) == fault


@pytest.mark.parametrize(
    ("message", "expected"),
    TABLES["refused_captures"],
)
def test_a_refused_capture_is_no_fatal_error(message: str, expected: bool) -> None:
    assert graphs.fatal(RuntimeError(message)) is expected


def program(gpu: FakeGpu, engine: FakeEngine) -> graphs.Program:
    regions = tuple(
        graphs.Region(name, batch_kind, lambda name=name, spent=spent: gpu.kernel(name, spent))  # type: ignore[misc]
        for batch_kind, times in (("first", (30.0, 10.0)), ("rest", (20.0, 10.0)))
        for name, spent in zip(("forward", "backward"), times, strict=True)
    )
    cycle = tuple(
        (name, batch_kind) for batch_kind in ("first", "rest", "rest", "rest") for name in ("forward", "backward")
    )
    return graphs.Program(engine, regions, cycle)


def test_a_regions_mean_is_in_the_cycles_proportion_and_lacking_ones_are_left_out() -> None:
    gpu = FakeGpu()
    timings = program(gpu, FakeEngine(gpu)).measure(200e-6)
    assert timings.cycles == 1
    means = graphs.by_name(timings, ("forward", "backward", "absent"))
    assert {name: spent * 1e6 for name, spent in means.items()} == pytest.approx({"forward": 22.5, "backward": 10.0})
    timings = graphs.Timings(0.0, 1.0, 1, {("a", "x"): 2.0}, {("a", "x"): 1})
    assert graphs.by_name(timings, ("a", "b")) == {"a": 2.0}


@pytest.mark.parametrize(("seconds", "cycles"), [(0.0, 1), (129e-6, 1), (1e-3, 7)])
def test_as_many_cycles_as_fit_are_run_and_at_least_one(seconds: float, cycles: int) -> None:
    gpu = FakeGpu()
    made = program(gpu, FakeEngine(gpu))
    made.pace()
    assert (made.cycle_seconds, made.measure(seconds).cycles) == (pytest.approx(130e-6), cycles)


def test_a_refused_capture_is_told_and_a_fatal_error_not_hidden() -> None:
    gpu = FakeGpu()
    made = program(gpu, FakeEngine(gpu, capture_as="refused"))
    made.capture(lambda program: graphs.ReplayEvidence())
    assert made.execution == "eager"
    assert made.reason.startswith("graph_unsupported: RuntimeError: CUDA error: operation not permitted")
    assert made.measure(0.0).cycles == 1
    made = program(gpu, FakeEngine(gpu))

    def check(program: graphs.Program) -> graphs.ReplayEvidence:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(RuntimeError, match="device-side assert"):
        made.capture(check)


@given(st.integers(1, 1 << 32), st.integers(1, 1 << 28))
def test_rotated_buffers_together_are_at_least_twice_the_cache(working_set: int, l2: int) -> None:
    turns = sizes.rotations(working_set, l2)
    assert 1 <= turns <= sizes.MOST_ROTATIONS
    assert turns == sizes.MOST_ROTATIONS or turns * working_set >= 2 * l2
    assert turns == 1 or (turns - 1) * working_set < 2 * l2


def test_large_layers_are_not_rotated_and_depth_is_given_up_first() -> None:
    assert sizes.rotations(sizes.working_set_bytes(8192, 4096, 28672), 50 << 20) == 1
    assert sizes.rotations(sizes.working_set_bytes(128, 1024, 1024, groups=8), 50 << 20) == 5
    shallow = (sizes.Trial(4), sizes.Trial(2), sizes.Trial(1))
    assert sizes.ladder(32, head=True) == (
        *shallow,
        sizes.Trial(1, optimizer=False),
        sizes.Trial(1, head=False, optimizer=False),
    )
    assert sizes.ladder(1, head=False) == (sizes.Trial(1, head=False), sizes.Trial(1, head=False, optimizer=False))


def test_models_fit_with_their_variants_and_gemms_by_less_depth() -> None:
    trials = sizes.ladder(32, head=True)
    assert sizes.first_trial(LLAMA, 8192, WHOLE, SEVEN, 80 * GIB, trials) == sizes.Trial(4)
    assert sizes.first_trial(LARGE, 8192, WHOLE, SEVEN, 180 * GIB, trials).layers == 1
    assert sizes.first_trial(LARGE, 8192, WHOLE, SEVEN, GIB, trials) == trials[-1]
    gemms = 7 * sizes.unit_bytes(8192, 4096, 28672, 1, 50 << 20)  # of llama3-8b's widest layer alone, in all variants
    assert sizes.first_trial(LLAMA, 8192, WHOLE, SEVEN, 80 * GIB, trials, gemms) == sizes.Trial(2)
    assert sizes.first_trial(LLAMA, 8192, WHOLE, SEVEN, 80 * GIB, trials, 80 * GIB) == sizes.Trial(1)
    assert sizes.first_trial(LARGE, 8192, WHOLE, SEVEN, GIB, trials, gemms) == trials[-1]


@given(st.integers(1, 8), st.integers(1, 8))
def test_a_deeper_model_and_more_variants_need_more(layers: int, variants: int) -> None:
    def needs(deep: int, many: int) -> int:
        return sizes.needed_bytes(LLAMA, 4096, WHOLE, sizes.Trial(deep), ["nvfp4"] * many)

    assert needs(layers + 1, variants) > needs(layers, variants)
    assert needs(layers, variants + 1) > needs(layers, variants)
    without = sizes.needed_bytes(LLAMA, 4096, WHOLE, sizes.Trial(layers, optimizer=False), ["nvfp4"] * variants)
    assert without < needs(layers, variants)


@pytest.mark.parametrize("preset", ["llama3-8b", "kimi-k2", "qwen3-30b-a3b"])
def test_what_is_said_to_fit_before_a_run_is_what_the_last_trial_needs(preset: Any) -> None:
    model, split = PRESETS[preset].model, Split(expert=2 if PRESETS[preset].model.moe else 1)
    last = sizes.trials_of(model)[-1]
    assert sizes.needed_bytes(model, 4096, split, last, RECIPE_NAMES) == layer_bytes(model, 4096, split, RECIPE_NAMES)


@pytest.mark.parametrize(("measured", "layers", "other"), [(4, 32, 2), (2, 32, 1), (1, 32, 2), (1, 1, None), (3, 3, 1)])
def test_the_check_is_made_at_another_depth(measured: int, layers: int, other: int | None) -> None:
    assert sizes.second_depth(measured, layers) == other


@pytest.mark.parametrize(("short", "depth", "expected"), [(21, 4, 2), (42, 4, 4), (0, 4, 0), (35, 6, 5)])
def test_windowed_layers_are_in_the_short_model_by_their_share(short: int, depth: int, expected: int) -> None:
    window = SlidingWindow(size=4096, windowed_layers=short) if short else None
    model = LLAMA.model_copy(update={"num_hidden_layers": 42, "sliding_window": window})
    assert sum(sizes.windowed(model, depth)) == expected
