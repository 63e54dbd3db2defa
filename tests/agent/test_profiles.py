"""When and at which clock a variant is profiled, and what becomes of a figure that lacks its profiles."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from precision_agent.cases import Case, GemmCase, Variant
from precision_agent.power.energy import Trace
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording, Recordings
from precision_agent.protocol import KernelSeconds, Load, Profile, ProfiledKernel, Sample
from precision_agent.run.open import Opened, Wanted
from precision_agent.run.run import Outcome, Surroundings, run_wanted
from precision_agent.run.stops import AFTER_TERMINATED_SECONDS, RunStops
from precision_agent.sampling import profiles as profiling
from precision_agent.sampling.devices import Stop
from precision_agent.sampling.profiles import LEADS, Leads, LoadProfiles, profile_loads
from precision_api.exchange.request import TIMINGS, LossRuns, MeasurementRequest, Timing
from precision_api.exchange.result import Backend, Execution, Failure
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.golden import beside
from tests.support.result_objects import of, request_text

TABLES = beside(__file__)

BF16 = Variant("bf16", "bf16")
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
HOT, COLD = 1425, 1980


@dataclass
class Clocked(FakeBackend):
    """A device that tells its clock: `profiled_at` and `loaded_at` are what it has at each of its profiles and loads.

    Prequantized GEMMs are timed with their quantisation; `share` of their kernels' time is the GEMM's.
    """

    profiled_at: list[int] = field(default_factory=list)
    loaded_at: list[int] = field(default_factory=list)
    share: Callable[[Variant, int], float] = lambda variant, number: 0.8
    busy: float = 1.0
    gaps: float | None = 0.0
    execution: Execution = "graph"
    told: list[tuple[float, int]] = field(default_factory=list)
    leads: list[float] = field(default_factory=list)

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        found = super().measure(case, variant, seconds)
        if isinstance(found, Failure):
            return found
        self.tell(found.start, found.end, HOT)
        kernels_alone = isinstance(case, GemmCase) and case.mode == "prequantized"
        return replace(found, holds_quantization=kernels_alone, execution=self.execution)

    def settle(self, variant: Variant, seconds: float, load: Load | None = None) -> Sample | Failure:
        found = super().settle(variant, seconds, load)
        self.tell(found.start, found.end, self.loaded_at.pop(0) if self.loaded_at else HOT)
        return found

    def profile(self, variant: Variant, load: Load, lead_seconds: float, trace: Any = None) -> Profile | Failure:
        super().profile(variant, load, lead_seconds, trace)
        self.leads.append(lead_seconds)
        start, self.now = self.now, self.now + lead_seconds
        self.tell(start, self.now, self.profiled_at.pop(0) if self.profiled_at else HOT)
        share = self.share(variant, len(self.leads))
        seen = KernelSeconds(self.busy * share, self.busy * (1 - share), gaps=self.gaps)
        names = [(name, pass_) for name in GEMMS for pass_ in ("fprop", "dgrad", "wgrad")]
        kernels = (ProfiledKernel(GEMM, 1.0),)
        gemms = dict.fromkeys(names, seen)
        return Profile(kernels, self.busy, 10, start, self.now, gemms, gaps=self.gaps if load == "training" else None)

    def tell(self, start: float, end: float, mhz: int) -> None:
        self.told += [((start + end) / 2, mhz)]

    def recordings(self) -> Recordings:
        own = Recording(Trace(), Trace(scope="module"), (), (), tuple(self.told))
        return Recordings({"device-0": own})

    def stop(self) -> None: ...


GEMMS = ("qkv", "attn_out", "mlp_up", "mlp_down", "lm_head")


def ran(device: Clocked, terminated: Callable[[], bool] = lambda: False, **changes: Any) -> Outcome:
    def opener(wanted: Wanted, asked: MeasurementRequest, stop: Stop) -> Opened:
        return Opened(devices_of(device), SensorFacts(sensors=device))

    text = request_text(gpus=1, **({"recipes": ("bf16", "nvfp4")} | changes))
    return run_wanted(text, Wanted("torch"), Surroundings(opener=opener, terminated=terminated))


def profiled(device: Clocked, stop: Stop = lambda: None, mhz: float | None = HOT) -> LoadProfiles:
    wanted = profiling.WantedProfiles(BF16, "gemms", {} if mhz is None else {"device-0": mhz})
    told = lambda done: None  # noqa: E731
    found = profile_loads(devices_of(device), [wanted], lambda: device.recordings().gpus, stop, told)
    return found["bf16", "gemms"]


@pytest.mark.parametrize("name", ["replay", "torch-cpu", "torch-cuda", "transformer-engine"])
def test_no_profiler_starts_before_the_last_timed_window_whatever_the_backend(name: Backend) -> None:
    """A second depth is timed too; loss runs are not."""
    device = Clocked(name=name, depths=lambda variant: device._sample(1.5, 1.0))
    timing = Timing(passes=TIMINGS["standard"].passes, segment_seconds=0.1, discard_seconds=0.1)
    depths: list[float] = []
    device.depths = lambda variant: depths.append(device.now) or Failure(reason="out_of_memory")  # type: ignore[func-returns-value]
    of(ran(device, timing=timing, loss=LossRuns(steps=10)), "bf16")
    first = next(place for place, (_, what) in enumerate(device.asked) if what.startswith("profile/"))
    assert not [what for _, what in device.asked[first:] if not what.startswith("profile/")]
    assert [what for _, what in device.asked[:first]].count("own calls") == 2, "each says that it has none"
    assert len(depths) == 2
    assert len(device.asked) - first == 2 * 2 * profiling.PROFILES, "two recipes, two loads"


def test_profiles_at_the_clock_of_the_windows_or_of_an_untold_one_are_taken_three_times_however_busy_the_host_is() -> (
    None
):
    found = profiled(Clocked())
    assert (len(found.runs), found.failure, found.sm_mhz, found.windows_sm_mhz) == (3, None, HOT, HOT)
    found = profiled(Clocked(profiled_at=[COLD] * 9), mhz=None)
    assert (len(found.runs), found.windows_sm_mhz) == (3, None)
    wanted = profiling.WantedProfiles(BF16, "gemms", {"device-0": HOT})
    device, slow = Clocked(profiled_at=[HOT, COLD, HOT, HOT]), Leads(lead_seconds=0.9 * profiling.MOST_SECONDS)
    devices = devices_of(device)
    slowly = profile_loads(
        devices, [wanted], lambda: device.recordings().gpus, lambda: None, lambda _: None, None, slow
    )
    assert (len(slowly["bf16", "gemms"].runs), slowly["bf16", "gemms"].failure) == (3, None)
    assert slowly["bf16", "gemms"].seconds > 2 * profiling.MOST_SECONDS


def test_a_profile_at_another_clock_is_taken_again_and_given_up_after_a_minute() -> None:
    device = Clocked(profiled_at=[COLD, HOT, 1500, HOT, 1490], loaded_at=[COLD, HOT, HOT])
    found = profiled(device)
    assert (len(found.runs), found.failure) == (3, None)
    lead = LEADS.lead_seconds
    assert device.leads == pytest.approx([lead, 2 * lead, 2 * lead, 4 * lead, 4 * lead])
    assert len(device.settled) == 3
    assert len(found.seen) == 5, "names of kernels are evidence at any clock"
    device = Clocked(loaded_at=[COLD] * 999, profiled_at=[COLD])
    found = profiled(device)
    assert found.failure.reason == "clock_differs"
    assert found.failure.message.startswith("device-0: 1980 MHz under load while it was profiled, 1425 MHz in its")
    assert profiling.MOST_SECONDS <= found.seconds < profiling.MOST_SECONDS + 2


def test_without_profiles_at_the_clock_there_is_no_kernel_only_figure_and_the_rest_stands() -> None:
    found = of(ran(Clocked(loaded_at=[], profiled_at=[COLD] * 99)), "nvfp4")
    reasons = {part.mode: part.failure and part.failure.reason for part in found.sums}
    assert reasons["autocast"] is None
    assert reasons["prequantized"] == "part_failed"
    assert {case.failure.reason for case in found.gemms if case.failure} == {"clock_differs"}
    assert {one.failure and one.failure.reason for one in found.kernel_profiles} == {"clock_differs"}
    assert found.training.tokens_per_second is not None
    assert found.verification.kernels, "what ran is seen at any clock"


def test_the_spread_of_the_shares_is_in_the_interval_of_the_kernel_only_speedup() -> None:
    spread = [0.78, 0.80, 0.82]
    half: dict[bool, float] = {}
    for steady in (True, False):
        share = lambda variant, number: 0.8 if steady or variant == BF16 else spread[number % 3]  # noqa: E731, B023
        sums = {part.mode: part for part in of(ran(Clocked(share=share), recipes=("bf16", "mxfp8")), "mxfp8").sums}
        speedup = sums["prequantized"].speedup
        assert speedup.value == pytest.approx(1.0, rel=1e-6 if steady else 1e-3)
        half[steady] = speedup.upper / speedup.value - 1
    assert half[True] == pytest.approx(0, abs=1e-9)
    assert half[False] == pytest.approx(0.064, abs=0.002)  # t of two degrees of freedom, 2.5 % spread, three profiles


@pytest.mark.parametrize(("execution", "busy", "gaps", "reason"), TABLES["gaps"])
def test_kernels_that_do_not_fill_the_timed_step_give_no_kernel_only_time(
    execution: Execution, busy: float, gaps: float | None, reason: str | None
) -> None:
    found = of(ran(Clocked(execution=execution, busy=busy, gaps=gaps)), "nvfp4")
    alone = [case.failure for case in found.gemms if case.mode == "prequantized"]
    assert {failure.reason if failure else None for failure in alone} == {reason}
    if reason in ("cpu_bound", "kernel_gaps"):
        assert all(
            failure.message.endswith("kernel-only time is 6.84e+05 to 8.08e+05 us") for failure in alone if failure
        )
    assert found.cpu_bound is (execution == "eager" and busy < 0.95)
    assert found.kernel_time_share == pytest.approx(busy)
    notes = [note for note in found.notes if note.startswith("profiled kernels lasted")]
    words = "gaps are" if gaps is None else "gaps between short kernels"
    assert [words in note for note in notes] == [True] * (busy < 0.95)
    training = next(one for one in found.kernel_profiles if one.load == "training")
    assert training.launch_gaps == (None if gaps is None else pytest.approx(gaps))


@pytest.mark.parametrize(
    ("busy", "gaps", "between", "clock"),
    [(0.9, 0.1, 0.1, 1), (0.9, 0.3, 0.1, 1), (0.9, 0.0, 0.0, 1), (1.02, 0.1, 0.0, 1), (0.9, 0.1, 0.1, 0.96),
     (0.9, 0.1, 0.1, 1.04)],
)  # fmt: skip
def test_gaps_are_in_no_kernel_only_time_and_no_longer_than_the_kernels_leave(
    busy: float, gaps: float, between: float, clock: float
) -> None:
    """A profiler may make gaps longer: of a step of a second they have what its kernels do not take.

    Kernels follow the clock of a profile, gaps don't.
    """
    device = Clocked(busy=busy / clock, gaps=gaps, profiled_at=[round(clock * HOT)] * 99)
    sums = {part.mode: part for part in of(ran(device), "nvfp4").sums}
    calls = sums["autocast"].seconds.value  # each takes a second
    assert sums["prequantized"].seconds.value == pytest.approx(calls * 0.8 * (1 - between), rel=1e-3)
    assert sums["prequantized"].launch_gaps == pytest.approx(calls * between, abs=1e-6)
    assert sums["autocast"].launch_gaps is None


@pytest.mark.parametrize(("own", "told"), [(0.8, 0), (0.81, 0), (0.9, 1)])
def test_a_library_call_that_disagrees_beyond_both_intervals_is_a_note(own: float, told: int) -> None:
    """Kernel-only seconds are 0.8 here, give or take the spread of the shares."""
    spread = [0.79, 0.8, 0.81]
    device = Clocked(share=lambda variant, n: spread[n % 3], own_calls=lambda variant: {("qkv", "fprop"): own})
    found = of(ran(device), "nvfp4")
    row = next(row for row in found.gemms if (row.name, row.pass_, row.mode) == ("qkv", "fprop", "prequantized"))
    assert row.own_call_seconds.value == pytest.approx(own)
    notes = [note for note in found.notes if "own GEMM call" in note]
    assert len(notes) == told
    assert all(note.endswith("most of all qkv fprop, 0.89 times as long") for note in notes)


def test_what_was_timed_is_profiled_after_a_wish_to_end_and_not_after_a_cut() -> None:
    device = Clocked()
    asked_to_end = lambda: len([what for _, what in device.asked if what == "training"]) > 3 * 6  # noqa: E731
    found = ran(device, asked_to_end, timing=Timing(passes=9, segment_seconds=0.1, discard_seconds=0.0))
    assert found.result.partial is not None
    assert {part.mode: part for part in of(found, "nvfp4").sums}["prequantized"].speedup is not None
    device = Clocked()
    ended = Failure(reason="deadline", message="the deadline of 60 s was reached")
    found = profiled(device, lambda: ended if len(device.leads) > 1 else None)
    assert found.failure.reason == "not_profiled"
    assert "the deadline of 60 s" in found.failure.message
    assert len(found.runs) == 2


# --- when a run ends


def stops(clock: list[float], ended: list[bool], deadline: float = 100.0) -> RunStops:
    return RunStops(lambda: bool(ended), lambda: clock[0], deadline, profile_seconds=20.0)


def test_sampling_ends_early_enough_and_leaves_time_for_profiles() -> None:
    clock = [0.0]
    found = stops(clock, [])
    clock[0] = 74.9
    assert found.sampling() is None
    clock[0] = 75.0
    told = found.sampling()
    assert told.reason == "deadline"
    assert found.everything() is None
    clock[0] = 95.0
    assert found.everything() is not None
    clock, ended = [10.0], [True]
    found = stops(clock, ended)
    found.timed(2)
    assert found.sampling() is not None
    assert found.everything() is None
    clock[0] += AFTER_TERMINATED_SECONDS
    told = found.everything()
    assert told.reason == "terminated"


@pytest.mark.parametrize(("blocks", "profiled"), [(0, False), (1, False), (2, True)])
def test_a_wish_to_end_before_there_is_a_figure_or_after_the_profiles_ends_everything_at_once(
    blocks: int, profiled: bool
) -> None:
    found = stops([10.0], [True])
    found.timed(blocks)
    if profiled:
        found.profiled()
    assert found.everything() is not None
