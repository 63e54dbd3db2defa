"""A process a device: what dies, hangs or is told to stop takes no more with it than it must.

A Transformer Engine that is installed and can't be loaded: torch measures in its place, and the result says why.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from precision_agent.backends.factory import CLASSES, Opening
from precision_agent.cases import GemmCase, Variant
from precision_agent.power.sensing import SensorFacts
from precision_agent.protocol import Probe, Refusal, Sample
from precision_agent.run.open import Opened, Wanted, open_node
from precision_agent.run.run import Outcome, Surroundings, run_wanted
from precision_agent.sampling.devices import Call, Stop
from precision_agent.sampling.process_pool import Patience, ProcessPool
from precision_api.exchange.exits import BACKEND_UNAVAILABLE, exit_of
from precision_api.exchange.request import MeasurementRequest, Timing
from precision_api.exchange.result import Failure, MeasurementResult, Memory
from precision_api.exchange.wire import read_message
from tests.support.result_objects import request, request_text

CASE = GemmCase("qkv", "fprop", 64, 64, 64, 1, mode="autocast")
BF16, NVFP4 = Variant("bf16", "bf16"), Variant("nvfp4", "nvfp4")
QUICK = Patience(start=120.0, call=4.0)
Faults = dict[str, str]
STAND_IN = ("tests.support.worker_backend", "WorkerBackend")


class Wish:
    """A wish to stop that comes when it was asked for `left` times."""

    left: int | None = None

    def __call__(self) -> Failure | None:
        if self.left is None:
            return None
        self.left -= 1
        return Failure(reason="terminated", message="told to stop") if self.left < 0 else None


class Pools:
    """Process pools of a test, closed at its end."""

    def __init__(self) -> None:
        self.open: list[ProcessPool] = []

    def __call__(self, *faults: Faults, stop: Stop = lambda: None, refuse: str = "") -> ProcessPool:
        asked = request(product="CPU", gpus=len(faults))
        openings = [Opening(STAND_IN, asked, "cpu", arguments={"faults": fault, "refuse": refuse}) for fault in faults]
        self.open.append(ProcessPool(openings, len(faults), stop, QUICK))
        return self.open[-1]


@pytest.fixture
def pool() -> Iterator[Pools]:
    pools = Pools()
    yield pools
    for one in pools.open:
        one.close()


def measure(variant: Variant) -> Call:
    return Call("measure", (CASE, variant, 0.01), 0.01, variant)


def reasons(answers: tuple[object, ...]) -> list[str]:
    return [answer.reason if isinstance(answer, Failure) else type(answer).__name__ for answer in answers]


def pids(found: ProcessPool) -> list[int]:
    answers = found.all(Call("memory", (BF16,)))
    return [answer.process_peak_bytes for answer in answers if isinstance(answer, Memory)]  # type: ignore[misc]


def test_a_fatal_fault_takes_one_variant_of_one_device_and_the_others_go_on(pool: Pools) -> None:
    found = pool({}, {"fp8_current": "cuda_error", "mxfp8": "died", "nvfp4": "hung"})
    seen = [pids(found)]
    for recipe, reason in (("fp8_current", "cuda_error"), ("mxfp8", "worker_died"), ("nvfp4", "hung")):
        arm = Variant(recipe, recipe)  # type: ignore[arg-type]
        first, again = found.all(measure(arm)), found.all(measure(arm))
        assert reasons(first) == ["Sample", reason]
        assert again[1] is first[1], "the arm is withdrawn, not tried again"
        assert reasons(found.all(measure(BF16))) == ["Sample", "Sample"]
        seen.append(pids(found))
    sound, struck = zip(*seen, strict=True)
    assert len(set(sound)) == 1, "the sound device keeps its process"
    assert len(set(struck)) == len(seen), "each fault costs the other one its process"


def test_out_of_memory_is_told_and_keeps_the_process(pool: Pools) -> None:
    found = pool({"nvfp4": "out_of_memory"})
    before = pids(found)
    answer = found.all(measure(NVFP4))[0]
    assert (answer.reason, "Tried to allocate" in answer.message) == ("out_of_memory", True)
    assert pids(found) == before


def test_calls_are_spread_and_what_a_worker_prints_is_not_told(pool: Pools, capfd: pytest.CaptureFixture[str]) -> None:
    answers = pool({}, {}).spread([Call("probe", (BF16,)), Call("probe", (NVFP4,)), Call("probe", (BF16,))])
    assert [type(answer) for answer in answers] == [Probe] * 3
    assert isinstance(pool({}).all(measure(BF16))[0], Sample)
    assert capfd.readouterr().out == ""


def test_a_wish_to_stop_is_heard_while_a_kernel_hangs_and_no_process_stays(pool: Pools) -> None:
    wish = Wish()
    found = pool({"nvfp4": "hung"}, stop=wish)
    process = pids(found)[0]
    wish.left = 3  # the call is out by then
    began = time.monotonic()
    assert reasons(found.all(measure(NVFP4))) == ["terminated"]
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_wish_to_stop_before_the_devices_are_known_is_no_missing_backend(pool: Pools) -> None:
    wish = Wish()
    wish.left = 0
    with pytest.raises(Refusal, match="no palindrome was complete") as caught:
        pool({}, stop=wish).machine()
    assert caught.value.exit.reason == "NothingFinished"


def test_a_backend_that_refuses_or_is_missing_is_told_in_its_words(pool: Pools) -> None:
    with pytest.raises(Refusal, match="no Transformer Engine here"):
        pool({}, refuse="no Transformer Engine here").machine()
    missing = Opening(("precision_agent.backends.of_nobody", "Nobody"), request(gpus=1), "cuda")
    found = ProcessPool([missing], 1, lambda: None)
    pool.open.append(found)
    with pytest.raises(Refusal, match="of_nobody") as caught:
        found.machine()
    assert caught.value.exit.reason == "BackendUnavailable"


def ran(pools: Pools, *faults: Faults, text: str | None = None) -> Outcome:
    def opener(wanted: Wanted, asked: MeasurementRequest, stop: Stop) -> Opened:
        return Opened(pools(*faults, stop=stop), SensorFacts())

    timing = Timing(passes=2, segment_seconds=0.05, discard_seconds=0.0)
    recipes = ("bf16", "fp8_current", "mxfp8", "nvfp4")
    wanted = {"product": "H100", "gpus": len(faults), "recipes": recipes, "timing": timing}
    text = text or request_text(**wanted, last_layers_bf16=0)
    return run_wanted(text, Wanted("torch"), Surroundings(opener=opener))


def failure(result: MeasurementResult, recipe: str) -> str | None:
    found = next(one for one in result.recipes if one.recipe == recipe)
    return found.training.failure.reason if found.training.failure else None


def test_a_run_names_each_fault_and_publishes_what_is_good(pool: Pools) -> None:
    outcome = ran(pool, {}, {"fp8_current": "cuda_error", "mxfp8": "hung"})
    assert exit_of(outcome.exit_code).reason == "ResultPublished"
    recipes = {"bf16": None, "fp8_current": "cuda_error", "mxfp8": "hung", "nvfp4": None}
    assert {recipe: failure(outcome.result, recipe) for recipe in recipes} == recipes
    told = {row.recipe: row.failure for row in read_message(outcome.message).recipes}
    assert told["fp8_current"].startswith("cuda_error: device-1")
    # the fake's steps have neither head nor optimizer: no rate of a full model goes out
    assert told["nvfp4"] == "incomplete: without head, optimizer"
    assert outcome.result.recipes[-1].training.speedup.value == pytest.approx(2.0)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name which fails to load, as one for another CUDA does."""
    (tmp_path / "transformer_engine").mkdir()
    raises = 'raise OSError("libcudart.so.13: cannot open shared object file")\n'
    (tmp_path / "transformer_engine" / "__init__.py").write_text(raises)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.torch
@pytest.mark.usefixtures("broken")
def test_auto_falls_back_to_torch_and_quotes_the_error() -> None:
    places = {"transformer-engine": CLASSES["transformer-engine"], "torch": STAND_IN}
    opened = open_node(Wanted("auto", "cuda", places=places), request(gpus=1, product="H200"), lambda: None)
    try:
        assert opened.devices.all(Call("name")) == ("replay",), "the stand-in for torch"
        (note,) = opened.notes
        assert note.startswith("measured by torch-cuda: loading Transformer Engine: OSError: libcudart.so.13")
    finally:
        opened.close()


@pytest.mark.torch
def test_transformer_engine_asked_for_by_name_is_refused_where_it_cannot_be_loaded() -> None:
    places = {"transformer-engine": ("tests.support.worker_backend", "Unloadable"), "torch": STAND_IN}
    wanted = Wanted("transformer-engine", "cuda", places=places)
    opened = open_node(wanted, request(gpus=1, product="H200"), lambda: None)
    try:
        with pytest.raises(Refusal, match=r"OSError: libcudart\.so\.13") as refused:
            opened.devices.machine()
        assert refused.value.exit == BACKEND_UNAVAILABLE
    finally:
        opened.close()
