"""A whole run above fake devices and fake sensors: what happens to a node, told by its result."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

import pytest

from precision_agent.backends.replay import Replay
from precision_agent.backends.replay_sensors import ReplaySensors, sensing
from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import Case, GemmCase, TrainingCase, Variant
from precision_agent.power.energy import Trace
from precision_agent.power.preflight import Health
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recordings, SensorRow, Tape
from precision_agent.protocol import LossPlan, LossTrack, Profile, ProfiledKernel
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.run import Clock, Outcome, Surroundings, run_request, run_wanted
from precision_agent.sampling.devices import LocalDevices, Stop
from precision_api.exchange.request import LossRuns, MeasurementRequest
from precision_api.exchange.result import Failure, MeasurementResult, Sensor
from precision_api.exchange.wire import read_message
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.result_objects import of, request_text

MOMENT = Clock(wall=lambda: 1_795_252_800.0, monotonic=lambda: 0.0)


def replayed(fault: str | None = None, **changes: Any) -> Outcome:
    return run_request(request_text(**changes), "replay", ReplayOptions(fault=fault), clock=MOMENT)


def result(outcome: Outcome) -> MeasurementResult:
    assert outcome.result is not None, outcome.message
    return outcome.result


def on_fakes(*devices: FakeBackend, facts: SensorFacts | None = None, around: Any = None, **changes: Any) -> Outcome:
    """A run on these devices, each opening gives the same ones, in surroundings that differ by `around`."""
    text = request_text(gpus=len(devices), recipes=("bf16", "nvfp4"), last_layers_bf16=0, **changes)
    opener = lambda *_: Opened(devices_of(*devices), facts or SensorFacts())  # noqa: E731
    return run_wanted(text, Wanted("torch"), Surroundings(**({"clock": MOMENT, "opener": opener} | (around or {}))))


def test_a_run_that_is_ended_after_its_abba_blocks_is_partial_too() -> None:
    ended: list[bool] = []

    def profiled(variant: Variant) -> Failure:
        ended.append(True)
        return Failure(reason="terminated", message="the agent was told to stop")

    around = {"terminated": lambda: bool(ended)}
    outcome = result(on_fakes(FakeBackend(profiles=profiled), around=around, loss=LossRuns(steps=10)))
    assert outcome.partial.reason == "terminated"
    assert all(row.loss is None for row in outcome.recipes)
    assert outcome.recipes[0].training.tokens_per_second is not None


# --- GPUs in step


def test_one_slow_gpu_in_eight_is_flagged_and_sets_the_pace_and_a_sound_node_has_none() -> None:
    found = replayed("slow_gpu", gpus=8)
    slow = result(found).gpus[7].uuid
    training = of(found, "bf16").training
    assert (training.slowest_gpu, training.gpu_spread) == (slow, pytest.approx(0.8 / (7.8 / 8), rel=0.01))
    synchronous = training.synchronous_tokens_per_second.value / training.tokens_per_second.value
    assert synchronous == pytest.approx(training.gpu_spread, rel=1e-3)
    assert training.tokens_per_second_by_gpu[slow] == min(training.tokens_per_second_by_gpu.values())
    assert 64 / training.step_seconds.value == pytest.approx(training.tokens_per_second_by_gpu[slow], rel=1e-4)
    summary = read_message(found.message)
    assert summary.slowest_gpu == slow
    assert summary.recipes[0].gpu_spread == pytest.approx(training.gpu_spread, rel=1e-4)
    training = of(replayed(gpus=8), "bf16").training
    assert training.gpu_spread > 0.99


def test_the_nodes_rate_is_the_sum_over_its_gpus_and_speedups_are_of_the_node() -> None:
    def seconds(slowness: float) -> Callable[[Case, Variant], float | Failure]:
        return lambda case, variant: slowness * (0.5 if variant.recipe == "nvfp4" else 1.0)

    training = of(on_fakes(*(FakeBackend(seconds(s), uuid=f"GPU-{s}") for s in (1.0, 2.0))), "nvfp4").training
    assert training.tokens_per_second.value == pytest.approx(64 / 0.5 + 64 / 1.0)
    assert training.speedup.value == pytest.approx(2.0)
    assert (training.slowest_gpu, training.difference) == ("GPU-2.0", "faster")


# --- a failure makes nothing smaller


def broken(where: str, only_gpu: int | None = None) -> list[FakeBackend]:
    """Four devices on which NVFP4 fails somewhere: at a GEMM, or at its training step, on all or on one of them."""

    def seconds(index: int) -> Callable[[Case, Variant], float | Failure]:
        def one(case: Case, variant: Variant) -> float | Failure:
            name = case.name if isinstance(case, GemmCase) else "training"
            hit = variant.recipe == "nvfp4" and name == where and only_gpu in (None, index)
            return Failure(reason="cuda_error", message="misaligned address") if hit else 1.0

        return one

    return [FakeBackend(seconds(index), uuid=f"GPU-{index}") for index in range(4)]


@pytest.mark.parametrize("only_gpu", [None, 2])
@pytest.mark.parametrize("where", ["qkv", "mlp_down", "lm_head", "training"])
def test_a_failed_part_leaves_no_sum_that_is_smaller_anywhere(where: str, only_gpu: int | None) -> None:
    found = of(on_fakes(*broken(where, only_gpu)), "nvfp4")
    whole = of(on_fakes(*broken("nothing")), "nvfp4")
    assert whole.training is not None
    for part, sound in zip(found.sums, whole.sums, strict=True):
        assert (part.seconds is None) == (where != "training")
        assert part.seconds is None or part.seconds == sound.seconds
        assert part.failure is None or part.failure.reason == "part_failed"
    assert (found.training.tokens_per_second is None) == (where == "training")
    if where == "training":
        assert found.training.failure.reason == "cuda_error"
        assert ("GPU-2" in found.training.failure.message) == (only_gpu == 2)
        assert (found.training.energy, found.training.model_flops_per_second) == (None, None)


def test_a_failed_baseline_leaves_no_speedup_and_no_recommendation() -> None:
    def seconds(case: Case, variant: Variant) -> float | Failure:
        return Failure(reason="failed") if variant.recipe == "bf16" else 1.0

    outcome = result(on_fakes(FakeBackend(seconds)))
    assert outcome.control_ratio is None
    assert all(part.speedup is None for recipe in outcome.recipes for part in recipe.sums)
    assert outcome.recommendation.by_speed is None


def test_a_result_tells_what_each_phase_took_and_all_of_them_are_the_run() -> None:
    ticks = count(1_000_000_000)
    clock = Clock(wall=lambda: float(next(ticks)))
    outcome = result(run_request(request_text(), "replay", ReplayOptions(), clock=clock))
    assert [*outcome.phase_seconds] == ["preflight", "start", "probe", "prepare", "measure", "profile", "verify"]
    assert all(seconds >= 1 for seconds in outcome.phase_seconds.values())
    assert sum(outcome.phase_seconds.values()) == outcome.duration_seconds - 1  # a tick until the first phase begins


def test_what_fails_while_it_is_prepared_is_never_timed_and_models_are_built_first() -> None:
    asked: list[bool] = []

    def prepares(case: Case, variant: Variant) -> Failure | None:
        asked.append(isinstance(case, TrainingCase))

    on_fakes(FakeBackend(prepares=prepares))
    assert (asked, set(asked)) == (sorted(asked, reverse=True), {True, False})

    def prepares(case: Case, variant: Variant) -> Failure | None:
        bad = variant.recipe == "nvfp4" and isinstance(case, TrainingCase)
        return Failure(reason="numerical_error", message="dw") if bad else None

    device = FakeBackend(prepares=prepares)
    assert of(on_fakes(device), "nvfp4").training.failure.reason == "numerical_error"
    assert ("nvfp4", "training") not in device.asked


# --- out of memory


def full(case: Case, variant: Variant) -> Failure | None:
    big = isinstance(case, TrainingCase) and case.tokens > 64
    return Failure(reason="out_of_memory", message="2 GiB") if big else None


BIG = {"workload": {"name": "x", "model": {"hiddenSize": 128, "intermediateSize": 256, "numAttentionHeads": 4,
       "numHiddenLayers": 2, "vocabSize": 512}, "microBatchSize": 4, "sequenceLength": 64}}  # fmt: skip


def test_out_of_memory_halves_the_micro_batch_only_where_the_request_allows_it_and_the_run_says_why() -> None:
    halved = on_fakes(FakeBackend(prepares=full), may_halve_micro_batch=True, **BIG)
    assert of(halved, "bf16").notes == ("the micro batch was halved to 1: bf16: 2 GiB",)
    assert of(halved, "bf16").training.tokens_per_second is not None
    whole = on_fakes(FakeBackend(), may_halve_micro_batch=True, **BIG).result
    assert halved.result.request_hash == whole.request_hash, "it answers the request as it came"
    assert halved.result.workload_hash != whole.workload_hash, "with the workload as it ran"
    assert of(on_fakes(FakeBackend(prepares=full), **BIG), "bf16").training.failure.reason == "out_of_memory"
    said: list[str] = []
    on_fakes(FakeBackend(prepares=full), around={"note": said.append}, may_halve_micro_batch=True, **BIG)
    began = ["1 x CPU, measured by replay", "2 of 2 recipes run here: bf16, nvfp4"]
    sizes = [f"the micro batch was halved to {size}: bf16: 2 GiB" for size in (2, 1)]
    assert said[1:] == [*began, sizes[0], *began, sizes[1], *began]


# --- loss


def test_a_loss_that_is_no_number_is_a_divergence_and_its_recipe_is_not_recommended() -> None:
    def losses(variant: Variant, plan: LossPlan) -> LossTrack | Failure:
        return LossTrack((6.0, 5.0, math.nan if variant.recipe == "nvfp4" else 4.0), (1.0, 1.0, 1.0))

    def seconds(case: Case, variant: Variant) -> float | Failure:
        return 0.5 if variant.recipe == "nvfp4" else 1.0

    outcome = on_fakes(FakeBackend(seconds, losses=losses), loss=LossRuns(steps=10))
    found = of(outcome, "nvfp4").loss
    assert (found.verdict, found.runs[0].diverged_step, found.runs[0].reason) == ("diverged", 3, "non_finite")
    assert found.runs[0].loss[-1] is None
    assert result(outcome).recommendation.by_speed == "bf16"
    assert "nvfp4: its loss diverged in the smoke test, at step 3." in result(outcome).recommendation.sentence
    told = read_message(outcome.message).recipes[1]
    assert (told.diverged_step, told.loss_verdict) == (3, "diverged")


def test_a_recipe_that_learns_nothing_or_whose_loss_run_fails_is_named() -> None:
    def losses(variant: Variant, plan: LossPlan) -> LossTrack | Failure:
        start = math.log(512)
        fall = 0.0 if variant.recipe == "nvfp4" else 0.2 + 0.01 * (plan.seed % 3)
        return LossTrack(tuple(start - fall * step for step in range(10)), (1.0,) * 10)

    def seconds(case: Case, variant: Variant) -> float | Failure:
        return 0.5 if variant.recipe == "nvfp4" else 1.0

    outcome = on_fakes(FakeBackend(seconds, losses=losses), loss=LossRuns(steps=10, seeds=3))
    found, baseline = of(outcome, "nvfp4").loss, of(outcome, "bf16").loss
    assert (baseline.verdict, baseline.difference) == ("healthy", None)
    assert (found.verdict, [run.reason for run in found.runs]) == ("not_learning", ["loss_stayed"] * 3)
    assert found.difference.nats == pytest.approx(8.5 * 0.21, rel=1e-3)
    assert found.difference.lower < found.difference.nats
    assert result(outcome).recommendation.by_speed == "bf16"
    assert "nvfp4: its loss stays far above what can be learnt" in result(outcome).recommendation.sentence
    assert read_message(outcome.message).recipes[1].loss_verdict == "not_learning"
    found = of(on_fakes(FakeBackend(), loss=LossRuns(steps=10)), "bf16").loss
    assert (found.verdict, found.failure and found.failure.reason) == (None, "not_available")


def test_the_replayed_divergence_hits_the_narrowest_recipe_alone() -> None:
    outcome = result(replayed("diverged", loss=LossRuns()))
    assert {row.recipe: row.loss and row.loss.verdict for row in outcome.recipes} == {
        **dict.fromkeys(("bf16", "fp8_current", "mxfp8"), "healthy"), "nvfp4": "diverged",
    }  # fmt: skip
    assert outcome.recommendation.by_speed != "nvfp4"


# --- heat


def test_a_node_held_back_by_heat_is_measured_twice_and_marked_and_a_sound_one_not() -> None:
    outcome = replayed("throttled")
    found = of(outcome, "bf16")
    assert (found.throttled.reason, found.throttled.share) == ("hardware_thermal", pytest.approx(0.1, rel=0.01))
    assert (found.clocks.celsius, found.notes[-1]) == (92, "palindromes measured twice, for heat or brake: 1")
    assert found.training.tokens_per_second is not None, "the figure stands"
    told = read_message(outcome.message).recipes[0]
    assert (told.throttle_reason, told.throttled) == ("hardware_thermal", pytest.approx(0.1, rel=0.01))
    found = of(replayed(), "bf16")
    assert found.throttled is None
    assert not any("measured twice" in note for note in found.notes)


# --- sensors


@dataclass
class ScriptedSensors:
    """The replay's sensors with something done to their rows."""

    inner: ReplaySensors
    change: Callable[[Recordings], Recordings]
    stops: list[int] = field(default_factory=list)

    def recordings(self) -> Recordings:
        return self.change(self.inner.recordings())

    def stop(self) -> None:
        self.stops.append(1)


def with_sensors(change: Callable[[Recordings], Recordings], sensor: Sensor | None = None) -> Outcome:
    def opener(wanted: Wanted, asked: MeasurementRequest, stop: Stop) -> Opened:
        gpus = [Replay(asked, ReplayOptions(), index) for index in range(asked.node.gpus)]
        known = sensing(gpus)
        found = SensorFacts(ScriptedSensors(ReplaySensors(gpus), change), idle_watts=known.idle_watts, sensor=sensor)
        return Opened(LocalDevices(gpus, len(gpus)), found)

    return run_wanted(request_text(), Wanted("torch"), Surroundings(clock=MOMENT, opener=opener))


def lost(found: Recordings) -> Recordings:
    first = next(iter(found.gpus))
    gone = Tape([SensorRow(0.0, first, lost="GPU is lost")]).recordings()[first]
    return Recordings({**found.gpus, first: gone})


def energy_reasons(outcome: Outcome) -> tuple[str, ...]:
    training = of(outcome, "bf16").training
    assert training.tokens_per_second is not None, "the rate needs no sensor"
    assert (training.energy.watts is None) == (not training.energy.valid)
    return training.energy.reasons


def test_sensors_that_can_not_be_trusted_take_the_energy_and_say_so_and_nothing_else() -> None:
    assert energy_reasons(with_sensors(lambda sensor: sensor)) == (), "the same sensors without tampering give energy"
    assert "sensor_lost" in energy_reasons(with_sensors(lost))
    assert energy_reasons(with_sensors(lambda kept: Recordings(dict(list(kept.gpus.items())[1:])))) == ("no_sampler",)
    apart = with_sensors(lambda sensor: sensor, Sensor(agreement=1.2))
    assert energy_reasons(apart) == (), "a square wave alone may lock to the sensor"
    assert energy_reasons(replayed("power_invalid")) == ("counter_disagrees",), "the arithmetic finds a fast counter"


def test_a_counter_that_covers_the_module_leaves_energy_by_the_integral_and_says_so() -> None:
    def faster(found: Recordings) -> Recordings:
        return Recordings({uuid: replace(one, gpu=of_module(one.gpu)) for uuid, one in found.gpus.items()})

    def of_module(own: Trace) -> Trace:
        """Its counter is the module's; its power is renewed with each reading, as no real draw stands still."""
        counter = tuple(replace(each, millijoules=each.millijoules * 7 // 5) for each in own.counter)
        power = tuple(replace(each, watts=each.watts + number % 2 / 1000) for number, each in enumerate(own.power))
        return replace(own, counter=counter, power=power)

    outcome = with_sensors(faster, Sensor(agreement=1.4, counter_scope="more"))
    assert energy_reasons(outcome) == ()
    training = of(outcome, "bf16").training
    assert (training.energy.method, training.energy.scope) == ("integral", "gpu")
    assert energy_reasons(with_sensors(faster, Sensor(agreement=1.4))) == ("counter_disagrees",)


def test_energy_is_of_full_depth_steps_with_idle_taken_off_in_the_net_figure() -> None:
    training = of(replayed(), "bf16").training
    energy = training.energy
    assert energy.joules_per_token == pytest.approx(energy.watts / training.tokens_per_second.value)
    assert energy.tokens_per_joule_net == pytest.approx(
        training.tokens_per_second.value / (energy.watts - energy.idle_watts)
    )
    assert energy.tokens_per_joule_ratio is None, "the baseline has no ratio to itself"
    assert energy.updates >= 60


# --- health


def test_the_health_of_the_gpus_is_in_the_result_and_fewer_are_no_result() -> None:
    known = SensorFacts(health=(Health("GPU-0", ecc_aggregate_uncorrectable=3, memory_used_bytes=7),))
    health = result(on_fakes(FakeBackend(uuid="GPU-0"), facts=known)).health
    assert [(gpu.uuid, gpu.ecc_aggregate_uncorrectable, gpu.memory_used_bytes) for gpu in health] == [("GPU-0", 3, 7)]
    fewer = Opened(LocalDevices([FakeBackend(uuid="GPU-0")], promised=4), SensorFacts())
    assert on_fakes(FakeBackend(), around={"opener": lambda *_: fewer}).exit_code == 12


# --- kernels


def test_what_a_profiled_step_shows_is_the_verdict_and_a_failed_one_is_a_note() -> None:
    def profiles(variant: Variant) -> Profile | Failure:
        if variant.recipe == "bf16":
            return Failure(reason="failed", message="CUPTI is in use")
        return Profile((ProfiledKernel("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", 1.0),), seconds=0.5, steps=10)

    found = on_fakes(FakeBackend(profiles=profiles))
    assert of(found, "nvfp4").verification.verdict == "fallback"
    assert of(found, "nvfp4").kernel_time_share == pytest.approx(0.5)
    assert of(found, "bf16").notes == tuple(
        f"the kernels of the {load} give no figure: failed: CUPTI is in use" for load in ("GEMMs", "training step")
    )
    assert result(found).recommendation.by_speed != "nvfp4"


# --- the noise floor


def test_equal_variants_are_no_difference_and_the_floor_is_in_the_result() -> None:
    chance = Random(5)

    def seconds(case: Case, variant: Variant) -> float | Failure:
        return 1.0 + 0.003 * chance.gauss()

    outcome = on_fakes(FakeBackend(seconds))
    assert of(outcome, "nvfp4").training.difference == "no_difference"
    assert result(outcome).noise_floor is not None
