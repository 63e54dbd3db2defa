"""A whole run on scripted GPUs: preflight, a process a GPU, real sampling, calibration, warm-up, and how it ends."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from precision_agent.power import reasons as why
from precision_agent.protocol import Refusal
from precision_agent.run.open import chosen
from precision_api.exchange.exits import exit_of
from precision_api.exchange.request import Timing
from precision_api.exchange.result import DeviceMemory, MeasurementResult
from tests.support.fake_nvml import FakeNvml
from tests.support.result_objects import TINY_WORKLOAD, request_text

RUN = """
import json, sys
from precision_agent.run.open import Wanted
from precision_agent.run.run import Surroundings, run_wanted
from precision_agent.sampling.steady import WarmUp
place = ("tests.support.worker_backend", sys.argv[4])
wanted = Wanted("torch", "cuda", gpu=sys.argv[2] or None, idle_seconds=0.4, places={"torch": place})
around = Surroundings(warm_up=WarmUp(longest_seconds=3.0, slice_seconds=0.05), waves=int(sys.argv[3]))
outcome = run_wanted(sys.argv[1], wanted, around)
print(json.dumps({"exit": outcome.exit_code, "message": outcome.message.decode(),
                  "result": outcome.result and outcome.result.model_dump(mode="json", by_alias=True)}))
"""
GPU = "gpu GPU-{0}\nname NVIDIA H200\npower 0 {1}\nmemory 150000000000 500000000\ntemperature 60\nsm_clock 1800\n"
TWO = GPU.format("a", 500) + GPU.format("b", 520)
Run = Callable[..., dict[str, Any]]


def go(
    library: Path,
    folder: Path,
    script: str,
    gpu: str = "",
    waves: int = 1,
    backend: str = "WorkerBackend",
    by: Popen[str] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A short run of a request for two GPUs on a script, in a process of its own."""
    path = folder / "script.txt"
    path.write_text(script)
    timing = Timing(passes=2, segment_seconds=0.12, discard_seconds=0.0)
    defaults = {"product": "H200", "gpus": 2, "recipes": ("bf16", "nvfp4"), "timing": timing}
    text = request_text(**(defaults | {"gemm_modes": ("autocast",)} | changes))
    return dict(FakeNvml(library, path, by).run(RUN, text, gpu, str(waves), backend))


@pytest.fixture
def run(library: Path, tmp_path: Path, by: Popen[str]) -> Run:
    return partial(go, library, tmp_path, by=by)


LONG: dict[str, dict[str, Any]] = {
    "two": {"script": TWO, "waves": 2},
    "one alone, without a word on heat": {
        "script": TWO + "unsupported throttle reasons\n", "gpu": "GPU-b", "recipes": ("bf16",),
    },
    "one lost": {"script": TWO + "lost 3.0\n"},
    "begun anew": {
        "script": TWO, "backend": "ShortOfMemory", "recipes": ("bf16",), "may_halve_micro_batch": True,
        "workload": TINY_WORKLOAD.model_copy(update={"micro_batch_size": 2}),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def long(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The runs of seconds by name, begun all together: they wait nearly all their time."""
    with ThreadPoolExecutor(len(LONG)) as pool:
        folder = tmp_path_factory.mktemp
        begun = {name: pool.submit(go, library, folder("run"), **given) for name, given in LONG.items()}

        def run(name: str) -> dict[str, Any]:
            """Once more, by itself, where the machine let the sampler wait beside the others."""
            first = begun[name].result()
            sensor = (first["result"] or {}).get("sensor") or {}
            had_gaps = why.SAMPLE_GAP.name in sensor.get("message", "")
            return go(library, folder("again"), **LONG[name]) if had_gaps else first

        yield run


def test_a_run_on_two_gpus_has_sensors_steadiness_clocks_memory_trace_and_health(long: Run) -> None:
    found = long("two")
    assert found["exit"] == 0, found["message"]
    result = MeasurementResult.model_validate(found["result"])
    assert ([gpu.uuid for gpu in result.gpus], result.sensor.accuracy) == (["GPU-a", "GPU-b"], "calibrated")
    assert result.sensor.agreement == pytest.approx(1.0, abs=0.05)
    assert result.sensor.counter_update_seconds == pytest.approx(0.1, rel=0.3)
    assert result.steadiness.state == "steady"
    assert [gpu.memory_used_bytes for gpu in result.health] == [500_000_000, 500_000_000]
    assert result.environment == {"NVTE_EXAMPLE": "1"}
    assert {round(watts) for watts in result.power_trace.watts if watts} == {1020}
    bf16 = result.recipes[0]
    assert (bf16.clocks.sm_mhz, bf16.clocks.celsius) == (1800, 60)
    assert result.device_memory == DeviceMemory(used_bytes=500_000_000, total_bytes=result.gpus[0].memory_bytes)
    by_recipe = {row.recipe: row.memory.allocated_peak_bytes for row in result.recipes}
    assert by_recipe == {"bf16": 4 * 10**9, "nvfp4": 5 * 10**9}, "recipes differ in the allocator's figure alone"
    assert {one.reason: one.share for one in bf16.throttle} == dict.fromkeys(
        ("power_cap", "software_thermal", "hardware_thermal", "power_brake"), 0.0
    )
    training = bf16.training
    assert training.tokens_per_second is not None
    assert set(training.tokens_per_second_by_gpu) == {"GPU-a", "GPU-b"}
    assert training.mfu.peak.startswith("H200 SXM dense BF16")
    assert "too_short" in training.energy.reasons, "seconds are not the ten that energy needs"


def test_one_gpu_is_measured_alone_without_a_word_on_heat_and_a_lost_one_takes_the_energy_alone(long: Run) -> None:
    result = MeasurementResult.model_validate(long("one alone, without a word on heat")["result"])
    assert [gpu.uuid for gpu in result.gpus] == ["GPU-b"]
    result = MeasurementResult.model_validate(long("one lost")["result"])
    training = result.recipes[0].training
    assert training.tokens_per_second is not None
    assert "sensor_lost" in training.energy.reasons
    said = "whether heat or the power brake held the clocks back is not known of GPU-b: the driver tells neither"
    blind, seen = (
        MeasurementResult.model_validate(long(name)["result"]).recipes[0].notes
        for name in ("one alone, without a word on heat", "two")
    )
    assert [note for note in blind if note.startswith(said)]
    assert not [note for note in seen if "held the clocks back is not known" in note]


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        (GPU.format("a", 500), "DeviceMissing", "names 2 GPUs, NVML shows 1"),
        (TWO + "mig 1\n", "MIGEnabled", "mig_enabled: GPU-b"),
        (TWO + "utilisation 97\n", "GPUBusy", "gpu_in_use: GPU-b is 97 % busy"),
        (TWO + "ecc_volatile 2\n", "GPUUnhealthy", "ecc_uncorrectable: GPU-b"),
        (TWO + "lost 0\n", "GPUUnhealthy", "nvml_failed: GPU is lost"),
    ],
    ids=lambda value: value if value.isalnum() else "",
)
def test_what_must_not_be_measured_is_refused_before_a_context(run: Run, script: str, reason: str, words: str) -> None:
    output = run(script)
    assert output["result"] is None
    assert exit_of(output["exit"]).reason == reason
    assert words in output["message"]


def test_a_run_begun_anew_after_out_of_memory_is_not_refused_for_what_it_left_on_the_gpus_itself(long: Run) -> None:
    found = long("begun anew")
    assert found["exit"] == 0, found["message"]
    result = MeasurementResult.model_validate(found["result"])
    assert result.recipes[0].notes[0].startswith("the micro batch was halved to 1")
    assert [gpu.memory_used_bytes for gpu in result.health] == [500_000_000, 500_000_000], "as before the first context"
    assert result.power_trace is not None, "the sensors went on"


def test_the_gpus_that_cuda_may_see_are_found_by_uuid_beginning_or_number() -> None:
    uuids = ["GPU-aa", "GPU-ab", "GPU-c"]
    assert (chosen(uuids, None, None), chosen(uuids, "GPU-c,GPU-aa", None)) == (uuids, ["GPU-c", "GPU-aa"])
    assert (chosen(uuids, "1", None), chosen(uuids, "7", None)) == (["GPU-ab"], [])
    assert chosen(uuids, None, "GPU-c") == ["GPU-c"]
    with pytest.raises(Refusal, match="no GPU 'GPU-x': there are GPU-aa"):
        chosen(uuids, "0", "GPU-x")
