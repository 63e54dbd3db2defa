"""Profiles each variant after all timed windows, under load and at the SM clock that its windows had.

The rules are in docs/development/method.md, "Profiles".
A GEMM slows down with the clock and a cast that waits for memory does not: the kernels' shares of another clock are
those of another step. And what a profiler attaches to a process slows down all that is timed later in it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from precision_agent.cases import Variant
from precision_agent.power.energy import Window
from precision_agent.power.sensor_sampling import Recording, values_within
from precision_agent.protocol import Load, Profile
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_agent.sampling.sample import STOPPED, first_failure
from precision_api.exchange.result import Failure

PROFILES = 3
"""Of each load: their spread is the uncertainty of the kernels' shares."""
MOST_SECONDS = 15.0
"""Of one load, while its clock does not fit. A profile at the right clock may take as long as it will."""
CLOCK_TOLERANCE = 0.05
"""Under a power cap the profiled steps, launched one by one, draw otherwise than the timed ones: on two H100 ten loads
were 3.3 % below to 4.8 % above their windows' clock. A clock 32 to 39 % higher moved the GEMMs' share of kernels by 0.2
to 1.6 % (measured there, three FP8 recipes), so 5 % move it by some 0.2 %. Gaps don't follow it: kernels are told at
the windows' clock before gaps are taken off."""
LONGEST_LEAD_SECONDS = 8.0

LoadKey = tuple[str, Load]
"""A variant's label and its load."""
Recorded = Callable[[], Mapping[str, Recording]]


@dataclass(frozen=True, slots=True)
class Leads:
    """Assumed, not tried on a GPU: seconds of a slice of load before the clock is looked at, and of the load within a
    session of the profiler, whose start leaves the GPU at rest. The lead is doubled where the clock did not fit.
    `own_call_seconds` are those of one repetition of Transformer Engine's own GEMM calls."""

    slice_seconds: float = 0.5
    lead_seconds: float = 0.4
    own_call_seconds: float = 0.1


LEADS = Leads()


@dataclass(frozen=True, slots=True)
class WantedProfiles:
    """A load to be profiled; `mhz` is the SM clock that its windows had, by device: a device that tells none is left
    out."""

    variant: Variant
    load: Load
    mhz: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadProfiles:
    """The profiles of one load. `runs`: those at the windows' clock, each of all devices in the order of their names.

    `seen` are all of them, whatever the clock: kernels' names are evidence at any. With `failure` there are fewer than
    PROFILES runs, and no figure is made of them. Clocks are means over the devices, None where none is told.
    """

    runs: tuple[tuple[Profile, ...], ...] = ()
    seen: tuple[Profile, ...] = ()
    failure: Failure | None = None
    sm_mhz: float | None = None
    windows_sm_mhz: float | None = None
    seconds: float = 0.0


def clocks_of(recordings: Mapping[str, Recording], names: Sequence[str], windows: Sequence[Window]) -> dict[str, float]:
    """Mean SM clock (MHz) of each device within the windows; a device without a reading there is left out."""
    readings = {name: values_within(recordings[name].sm_mhz, windows) for name in names if name in recordings}
    return {name: fmean(mhz) for name, mhz in readings.items() if mhz}


def profile_loads(
    devices: Devices,
    wanted: Sequence[WantedProfiles],
    recorded: Recorded,
    stop: Stop,
    report: Callable[[float], None],
    trace: Path | None = None,
    leads: Leads = LEADS,
) -> dict[LoadKey, LoadProfiles]:
    """Profiles of each load, on all devices at once; one that is cut off by `stop` says `not_profiled`."""
    taking = _Profiling(devices, recorded, stop, leads)
    profiles: dict[LoadKey, LoadProfiles] = {}
    for place, load in enumerate(wanted):
        report(place / len(wanted))
        path = trace and trace / f"trace-{load.variant.label}{'-gemms' if load.load == 'gemms' else ''}.json"
        profiles[load.variant.label, load.load] = taking.load(load, path)
    report(1.0)
    return profiles


def not_profiled(ended: Failure) -> Failure:
    """Why a load that was timed has no shares: the run had to end."""
    return Failure(reason="not_profiled", message=f"the run ended before its kernels were seen: {ended.message}"[:1024])


class _Profiling:
    def __init__(self, devices: Devices, recorded: Recorded, stop: Stop, leads: Leads) -> None:
        self.devices, self.recorded, self.stop, self.leads = devices, recorded, stop, leads
        self.names = devices.machine().names

    def load(self, wanted: WantedProfiles, trace: Path | None) -> LoadProfiles:
        """Profiles; where the clock did not fit loads until it does and profiles again, for MOST_SECONDS at most."""
        profiles = LoadProfiles(windows_sm_mhz=_mean(wanted.mhz))
        lead, mhz, lost = self.leads.lead_seconds, dict[str, float](), 0.0
        fits = True  # most likely: the GPU comes from the windows, or from another load
        while len(profiles.runs) < PROFILES:
            ended = self.stop()
            if ended:
                return replace(profiles, failure=not_profiled(ended))
            if lost >= MOST_SECONDS:
                return replace(profiles, sm_mhz=_mean(mhz), failure=_clock_differs(wanted, mhz))
            profiling = fits
            seconds = lead if profiling else self.leads.slice_seconds
            answers, spent = self._asked(wanted, seconds, profiling, trace)
            profiles = replace(profiles, seconds=profiles.seconds + spent)
            failure = first_failure(self.names, answers)
            if failure:
                return replace(profiles, failure=not_profiled(failure) if failure.reason in STOPPED else failure)
            mhz = self._clocks(answers)
            fits = all(name in mhz and abs(mhz[name] / of - 1) <= CLOCK_TOLERANCE for name, of in wanted.mhz.items())
            lost += 0.0 if fits else spent
            if not profiling:
                continue
            profiles = replace(profiles, seen=(*profiles.seen, *answers))
            if fits:
                clocks = [mhz[name] / wanted.mhz[name] if name in wanted.mhz else 1.0 for name in self.names]
                run = tuple(replace(seen, clock=clock) for seen, clock in zip(answers, clocks, strict=True))
                profiles = replace(profiles, runs=(*profiles.runs, run), sm_mhz=_mean(mhz))
            else:
                lead = min(2 * lead, LONGEST_LEAD_SECONDS)
        return profiles

    def _asked(
        self, wanted: WantedProfiles, seconds: float, profiling: bool, trace: Path | None
    ) -> tuple[tuple[Any, ...], float]:
        """The answers to a profile or a slice of load, and the seconds that they took: at least those of the load."""
        variant, load = wanted.variant, wanted.load
        arguments = (variant, load, seconds, trace) if profiling else (variant, seconds, load)
        began = time.monotonic()
        answers = self.devices.all(Call("profile" if profiling else "settle", arguments, seconds, variant))
        return answers, max(seconds, time.monotonic() - began)

    def _clocks(self, answers: Sequence[Any]) -> dict[str, float]:
        recordings = self.recorded()
        clocks: dict[str, float] = {}
        for name, answer in zip(self.names, answers, strict=True):
            if answer.start < answer.end:
                clocks |= clocks_of(recordings, [name], [Window(answer.start, answer.end)])
        return clocks


def _mean(mhz: Mapping[str, float]) -> float | None:
    return round(fmean(mhz.values()), 1) if mhz else None


def _clock_differs(wanted: WantedProfiles, mhz: Mapping[str, float]) -> Failure:
    apart = max(wanted.mhz, key=lambda name: abs(mhz.get(name, 0.0) / wanted.mhz[name] - 1))
    here = f"{mhz[apart]:.0f} MHz" if apart in mhz else "no clock"
    message = (
        f"{apart}: {here} under load while it was profiled, {wanted.mhz[apart]:.0f} MHz in its timed windows; after "
        f"{MOST_SECONDS:.0f} s of load they were not within {CLOCK_TOLERANCE:.0%}: look for what changed the power "
        "limit or the temperature, and measure again"
    )
    return Failure(reason="clock_differs", message=message)
