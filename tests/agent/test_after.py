"""What is looked at after the ABBA blocks: a second depth on every GPU, and nothing that fails in silence."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from precision_agent.cases import Case, Variant, cases_of
from precision_agent.protocol import Inspection, RegionName, Sample
from precision_agent.results.profiling import Looking, look
from precision_agent.results.train import Measured
from precision_agent.run.stops import RunStops
from precision_agent.sampling.sample import Samples
from precision_api.exchange.request import TIMINGS, Timing
from precision_api.exchange.result import Failure, RecipeResult
from precision_api.models.model import SlidingWindow
from precision_api.models.workload import resolve
from tests.agent.test_assess import Changed
from tests.agent.test_node_run import on_fakes
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.result_objects import TINY, TINY_WORKLOAD, of, request

STANDARD = {"timing": Timing(passes=TIMINGS["standard"].passes, segment_seconds=1.0, discard_seconds=0.0)}


def deeper(each: float, layers: int = 3) -> Callable[[Variant], Sample | Failure]:
    """Three layers for the two of the model, at these seconds a layer."""
    regions: dict[RegionName, float] = {"layers_forward": layers * each / 3, "layers_backward": layers * each * 2 / 3}
    return lambda variant: Sample(layers * each, 1, 0.0, 1.0, regions, layers_measured=layers)


def gpu(name: str, slowness: float, second: Callable[[Variant], Sample | Failure], **more: Any) -> FakeBackend:
    def seconds(case: Case, variant: Variant) -> float | Failure:
        return slowness

    return FakeBackend(seconds, uuid=name, depths=second, **more)


def checked(*devices: FakeBackend, recipe: str = "bf16") -> tuple[float | None, RecipeResult]:
    found = of(on_fakes(*devices, **STANDARD), recipe)
    return found.training.depth_check, found


def test_a_second_depth_is_a_check_one_predicted_wrong_a_note_and_none_or_a_quick_run_no_failure() -> None:
    ratio, right = checked(FakeBackend(depths=deeper(0.5)))
    assert (ratio, right.notes) == (pytest.approx(1.0), ())
    _, wrong = checked(FakeBackend(depths=deeper(0.55)))
    assert len(wrong.notes) == 1
    assert wrong.notes[0].startswith("a second depth was predicted at 0.909 of what it took")
    assert of(on_fakes(FakeBackend(depths=deeper(0.5))), "bf16").training.depth_check is None
    ratio, without = checked(FakeBackend())
    assert (ratio, without.notes) == (None, ())


@pytest.mark.parametrize("asked", [True, False])
def test_a_trace_that_was_asked_for_and_is_not_there_is_a_note(tmp_path: Path, asked: bool) -> None:
    silent = Failure(reason="not_available", message="kernel names are not available on the CPU")
    devices = devices_of(FakeBackend(profiles=lambda variant: silent))
    small = request(recipes=("bf16",))
    cases = cases_of(small, resolve(small.workload))
    samples = Samples(1, {}, {}, loads={("bf16", "training"): ()})
    run = Measured(cases, samples, resolve(small.workload), devices.machine().names)
    trace = tmp_path / "traces" if asked else None
    stops = RunStops(lambda: False, lambda: 0.0, 600, 0)
    found = look(Looking(devices, small, run, cases.variants, stops, trace=trace))
    assert found.notes["bf16"] == ((f"no trace was written: {silent.message}",) if asked else ())


def test_each_gpu_is_held_against_its_own_first_depth_and_the_worst_told() -> None:
    """Two GPUs of which one is half as fast: a mean of both predicts neither of them."""
    ratio, found = checked(gpu("GPU-0", 1.0, deeper(0.5)), gpu("GPU-1", 2.0, deeper(1.0)))
    assert (ratio, found.notes) == (pytest.approx(1.0), ())
    ratio, _ = checked(gpu("GPU-0", 1.0, deeper(0.505)), gpu("GPU-1", 1.0, deeper(0.625)))
    assert ratio == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda variant: Failure(reason="out_of_memory", message="no room"), "out_of_memory: GPU-1: no room"),
        (deeper(0.5, layers=2), "no_other_depth: GPU-1: the second model had 2 layers"),
        (
            lambda variant: Sample(1.0, 1, 0.0, 1.0, {"layers_forward": 0.5}, layers_measured=1),
            "region_not_measured: GPU-1: second depth: layers_backward was not timed: no full-depth figure",
        ),
        (
            lambda variant: Sample(
                1.0, 1, 0.0, 1.0, {"layers_forward": 0.5, "layers_backward": 1.0, "head": 0.1}, layers_measured=3
            ),
            "parts_differ: GPU-1: the two depths were measured with different parts",
        ),
    ],
    ids=["failed", "same depth", "region missing", "other parts"],
)
def test_a_second_depth_that_fails_on_one_gpu_is_no_check_but_a_note_with_its_reason(second: Any, reason: str) -> None:
    ratio, found = checked(gpu("GPU-0", 1.0, deeper(0.5)), gpu("GPU-1", 1.0, second))
    assert ratio is None
    assert found.notes == (f"a second depth was not checked: {reason}",)
    assert found.training.tokens_per_second is not None


@pytest.mark.parametrize(
    ("sequence", "windows", "notes"),
    [(64, 3, 0), (64, 2, 2), (16, 2, 0)],
    ids=["all windowed, as the model's", "not all windowed", "no longer than the window"],
)
def test_depths_with_other_windows_are_not_held_against_each_other(sequence: int, windows: int, notes: int) -> None:
    model = TINY.model_copy(update={"sliding_window": SlidingWindow(size=32, windowed_layers=2)})
    workload = TINY_WORKLOAD.model_copy(update={"model": model, "sequence_length": sequence})
    second = deeper(0.5)(Variant("bf16", "bf16"))
    assert isinstance(second, Sample)
    first, deep = (partial(replace, windowed_layers=windowed) for windowed in (windows - 1, windows))
    device = Changed(depths=lambda variant: deep(second), change=first)
    found = of(on_fakes(device, workload=workload, **STANDARD), "bf16")
    told = [
        "1 of the 2 layers that ran have a sliding window, 2 of the model's 2 do: the full-depth step",
        "a second depth was not checked: windows_differ: 1 of 2 and 2 of 3 layers have a sliding window",
    ]
    assert [note.startswith(start) for note, start in zip(found.notes, told, strict=False)] == [True] * notes
    assert (found.training.depth_check is None) == bool(notes)


@pytest.mark.torch
def test_plain_torch_times_the_same_parts_at_both_depths_and_adams_state_before_neither() -> None:
    from precision_agent.backends.torch_gemm import TorchGemm
    from precision_agent.backends.torch_step import ShortModel, timed

    narrow = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 128, "num_hidden_layers": 4}
    deep = TINY_WORKLOAD.model_copy(update={"model": TINY.model_copy(update=narrow)})
    asked = request(product="CPU", gpus=1, workload=deep)
    training = cases_of(asked, resolve(asked.workload)).training
    assert training is not None
    backend = TorchGemm(asked, "cpu")
    variant = Variant("bf16", "bf16")
    first, second = backend.measure(training, variant, 0.0), backend.second_depth(variant, 0.0)
    assert set(first.regions) == set(second.regions) == {name for name in get_args(RegionName) if "dense" not in name}
    assert second.layers_measured == (first.layers_measured or 0) + 1
    assert (second.optimizer_parameters or 0) > (first.optimizer_parameters or 0)
    assert first.windowed_layers == second.windowed_layers == 0, "plain torch has no windows, and says so"

    model = backend._short(variant, 1)
    assert isinstance(model, ShortModel)
    waits: list[bool] = []
    timed(model, 0.0, lambda: waits.append(bool(model.optimizer.state)))
    untimed = 3  # after each part of a first step
    assert waits == [False] * untimed + [True] * (len(waits) - untimed)
    assert len(waits) > untimed + 3, "the clock starts when the state is there"


def test_a_look_inside_that_fails_is_a_note() -> None:
    def inspects(variant: Variant) -> Inspection:
        return Failure(reason="failed", message="no quantizers")  # type: ignore[return-value]

    found = of(on_fakes(FakeBackend(inspects=inspects)), "nvfp4")
    assert found.notes == ("nothing was seen of the quantizers: failed: no quantizers",)


@pytest.mark.parametrize(("nvfp4", "said"), [("B", ("attention ran in B, other recipes' in A",)), ("A", ())])
def test_recipes_whose_attention_differs_say_so(nvfp4: str, said: tuple[str, ...]) -> None:
    ran = {"nvfp4": nvfp4}
    result = on_fakes(FakeBackend(inspects=lambda variant: Inspection(attention=ran.get(variant.recipe, "A"))))
    assert (of(result, "nvfp4").verification.attention, of(result, "nvfp4").notes) == (nvfp4, said)
