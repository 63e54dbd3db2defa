"""nvidia-ml-py on a compiled, scripted library: what is asked of a driver, and what is made of its answers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from precision_agent.power import reasons as why
from precision_agent.power import sensor_sampling
from precision_agent.power.energy import StepPace, Window, counter_off, mean_power, sensor_period
from precision_agent.power.preflight import Health, findings
from precision_agent.power.sensor_sampling import Recording, Sampler, SensorRow, Tape
from precision_agent.power.throttle import marking, shares
from precision_agent.power.token_energy import node_power, token_energy
from tests.support.eventually import eventually
from tests.support.fake_nvml import FakeNvml
from tests.support.golden import beside

TABLES = beside(__file__)

Scripted = Callable[[str], FakeNvml]
QUIET = StepPace(step_seconds=0.233)

READ = """
import json
from precision_agent.power import nvml
found = nvml.read()
print(json.dumps({"gpus": [gpu.model_dump() for gpu in found.gpus], "driver": found.driver,
                  "failure": found.failure and found.failure.reason}))
"""
HEALTH = """
import json, sys, pynvml
from dataclasses import asdict
from precision_agent.power.preflight import health, refusal
pynvml.nvmlInit()
found = health(pynvml, sys.argv[1:])
refused = refusal(found)
print(json.dumps({"health": [asdict(gpu) for gpu in found], "refused": refused and [refused[0].reason, refused[1]]}))
"""
VIRTUAL = "import sys; from tests.support.fake_nvml.virtual import main; main(float(sys.argv[1]), sys.argv[2:])"


@pytest.fixture
def scripted(library: Path, by: subprocess.Popen[str], tmp_path: Path) -> Scripted:
    """The library with a script of GPUs, each `gpu UUID` and its lines."""

    def write(script: str) -> FakeNvml:
        path = tmp_path / "script.txt"
        path.write_text(script)
        return FakeNvml(library, path, by)

    return write


def sampled(fake: FakeNvml, seconds: float, *uuids: str) -> dict[str, Recording]:
    return Tape(SensorRow(**row) for row in fake.run(VIRTUAL, str(seconds), *(uuids or ("GPU-0",)))).recordings()


TWO = "driver 999.1\ngpu GPU-b\nname NVIDIA GB200\nlimit_mw 1200000\nmemory 200000000000 400000000\ngpu GPU-a\n"


def test_gpus_are_known_by_uuid_with_their_enforced_limit(scripted: Scripted) -> None:
    output = scripted(TWO).run(READ)
    assert (output["driver"], output["failure"]) == ("999.1", None)
    assert [gpu["uuid"] for gpu in output["gpus"]] == ["GPU-b", "GPU-a"]
    assert output["gpus"][0]["enforced_limit_watts"] == 1200.0
    assert output["gpus"][0]["memory_bytes"] == 200_000_000_000


@pytest.mark.parametrize(("lines", "used"), [("", 500_000_000), ("unsupported second_call\n", 900_000_000)])
def test_a_driver_without_the_second_call_tells_memory_with_its_reserve_and_says_so(
    scripted: Scripted, lines: str, used: int
) -> None:
    fake = scripted(f"gpu GPU-0\nmemory 150000000000 500000000\nreserve 400000000\n{lines}")
    assert {row["used_bytes"] for row in fake.run(VIRTUAL, "0.2", "GPU-0")} == {used}
    (health,) = fake.run(HEALTH, "GPU-0")["health"]
    assert (health["memory_used_bytes"], health["memory_with_reserve"]) == (used, bool(lines) or None)


def test_a_driver_that_does_not_start_and_what_none_tells_have_named_reasons_or_bar_nothing(scripted: Scripted) -> None:
    assert scripted("init_error 9\n").run(READ)["failure"] == "nvml_unavailable"
    script = "gpu GPU-0\nunsupported mig remap ecc memory utilisation limit serial reasons\n"
    output = scripted(script).run(HEALTH, "GPU-0")
    assert output["refused"] is None
    assert {key for key, value in output["health"][0].items() if value is not None} == {"uuid"}


def test_a_healthy_gpu_passes_and_preflight_tells_every_finding_of_another(scripted: Scripted) -> None:
    output = scripted("gpu GPU-0\necc_aggregate 12\nserial X1\n").run(HEALTH, "GPU-0")
    assert output["refused"] is None
    expected = Health(
        uuid="GPU-0", mig_enabled=False, remap_pending=False, remap_failed=False, ecc_volatile_uncorrectable=0,
        ecc_aggregate_uncorrectable=12, memory_used_bytes=500_000_000, utilisation_percent=0,
        enforced_limit_watts=700.0, module="X1", clock_reasons=0,
    )  # fmt: skip
    assert Health(**output["health"][0]) == expected
    output = scripted("gpu GPU-0\nmig 1\nremap_pending 1\n").run(HEALTH, "GPU-0", "GPU-elsewhere")
    reasons = [one.reason for one in findings([Health(**gpu) for gpu in output["health"]])]
    assert reasons == ["gpu_unreachable", "mig_enabled", "row_remap_pending"]
    assert all(reason in output["refused"][1] for reason in reasons)


@pytest.mark.parametrize(("lines", "reason"), TABLES["preflight"])
def test_preflight_names_the_gpu_and_what_is_wrong_with_it(scripted: Scripted, lines: str, reason: str) -> None:
    output = scripted(f"gpu GPU-good\ngpu GPU-bad\n{lines}\n").run(HEALTH, "GPU-good", "GPU-bad")
    told = findings([Health(**gpu) for gpu in output["health"]])
    assert [(one.uuid, one.reason) for one in told] == [("GPU-bad", reason)]
    assert output["refused"][1].startswith(f"{reason}: GPU-bad ")


CURVES = {
    "idle": ("power 0 72", 72.0 * 12),
    "ramp": ("power 0 100\npower 15 700", 12 * (100 + 40 * 8.0)),
    "steps of 2 s": (
        "power 0 300\n" + "\n".join(f"power {t} {a}\npower {t} {b}" for t, a, b in ((4, 300, 690), (6, 690, 300))),
        300.0 * 12 + 390 * 2,
    ),
    "at the cap": ("power 0 692\ncounter_start_mj 18446744073000000", 692.0 * 12),
}
WINDOWS = [Window(2.0, 6.0), Window(6.0, 10.0), Window(10.0, 14.0)]


@pytest.mark.parametrize("name", CURVES)
def test_energy_end_to_end_is_the_scripts_own_within_one_percent(scripted: Scripted, name: str) -> None:
    lines, joules = CURVES[name]
    found = mean_power(sampled(scripted(f"gpu GPU-0\n{lines}\n"), 15)["GPU-0"].gpu, WINDOWS, QUIET)
    assert (found.reasons, found.joules) == ((), pytest.approx(joules, rel=0.01))
    assert 115 <= found.updates <= 125


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("unsupported power", why.NO_INSTANT_POWER),
        ("unsupported energy", why.NO_ENERGY_COUNTER),
        ("lost 9", why.SENSOR_LOST),
        ("counter_reset 7", why.COUNTER_RESET),
        ("update_ms 400", why.TOO_FEW_UPDATES),
    ],
)
def test_a_sensor_that_fails_gives_no_energy_but_its_reason(scripted: Scripted, lines: str, reason: why.Reason) -> None:
    script = f"gpu GPU-0\npower 0 300\n{lines}\n"
    found = mean_power(sampled(scripted(script), 15)["GPU-0"].gpu, WINDOWS, QUIET)
    assert found.joules is None
    assert reason in found.reasons


def test_a_power_reading_apart_from_its_counter_and_a_step_locked_to_its_period_are_caught(scripted: Scripted) -> None:
    trace = sampled(scripted("gpu GPU-0\npower 0 300\nlag_ms 1900\npower 2 300\npower 2 690\n"), 15)["GPU-0"].gpu
    assert counter_off(trace, [WINDOWS])
    trace = sampled(scripted("gpu GPU-0\npower 0 500\n"), 15)["GPU-0"].gpu
    assert sensor_period(trace.counter) == pytest.approx(0.1, rel=1e-6)
    assert mean_power(trace, WINDOWS, StepPace(0.2)).reasons == (why.PHASE_LOCKED,)
    assert mean_power(trace, WINDOWS, StepPace(0.2, longest_pause_seconds=0.025)).joules == pytest.approx(
        6000, rel=0.01
    )


def test_a_sampler_that_comes_late_makes_no_ticks_up_and_the_energy_stays_right(scripted: Scripted) -> None:
    fake = scripted("gpu GPU-0\npower 0 100\npower 15 700\n")
    rows = fake.run("from tests.support.fake_nvml.virtual import main; main(15.0, ['GPU-0'], late=0.22)")
    trace = Tape(SensorRow(**row) for row in rows).recordings()["GPU-0"].gpu
    times = [sample.at for sample in trace.power]
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.02
    assert max(later - earlier for earlier, later in pairwise(times)) > 0.22
    assert mean_power(trace, WINDOWS, QUIET).joules == pytest.approx(12 * (100 + 40 * 8.0), rel=0.01)


def test_one_lost_gpu_leaves_the_others_measured(scripted: Scripted) -> None:
    script = "gpu GPU-0\npower 0 400\ngpu GPU-1\npower 0 600\nlost 5\n"
    found = sampled(scripted(script), 15, "GPU-0", "GPU-1", "GPU-nowhere")
    assert found["GPU-1"].lost == "GPU is lost"
    assert found["GPU-nowhere"].lost is not None
    assert found["GPU-1"].gpu.power[-1].at == pytest.approx(4.95)
    assert mean_power(found["GPU-0"].gpu, WINDOWS, QUIET).joules == pytest.approx(4800, rel=0.01)


@pytest.mark.parametrize("lines", ["", "unsupported throttle\n"], ids=["counters", "sampled reasons"])
def test_throttling_is_a_share_with_its_reason_and_a_power_cap_marks_nothing(scripted: Scripted, lines: str) -> None:
    script = f"""gpu GPU-0
throttle 74 0 100
throttle 270 4 5.5
reasons 0x4 0 100
reasons 0x40 4 5.5
{lines}"""
    found = shares(sampled(scripted(script), 15)["GPU-0"].throttle, 2.0, 14.0)
    by_name = {one.reason: one for one in found}
    assert by_name["power_cap"].share == pytest.approx(1.0)
    assert by_name["hardware_thermal"].share == pytest.approx(1.5 / 12, rel=0.02)
    assert {one.sampled for one in found} == {bool(lines)}
    assert marking(found).reason == "hardware_thermal"
    assert marking([by_name["power_cap"]]) is None


def test_without_counters_and_reasons_throttling_is_unknown_not_zero(scripted: Scripted) -> None:
    found = sampled(scripted("gpu GPU-0\nunsupported throttle reasons\n"), 3)["GPU-0"]
    assert shares(found.throttle, 0.0, 3.0) == ()
    assert (found.celsius[0], found.sm_mhz[0]) == ((0.0, 40), (0.0, 1980))


MODULE = """gpu GPU-0
serial M1
power 0 800
power 15 830
module_extra 150
gpu GPU-1
serial M1
power 0 900
power 15 930
module_extra 150
"""
"""Two GPUs and a CPU of 300 W on one module; the load rises slowly, so that each update shows."""


def test_a_modules_watts_are_counted_once_against_the_tokens_of_both_its_gpus(scripted: Scripted) -> None:
    fake = scripted(MODULE)
    found = sampled(fake, 15, "GPU-0", "GPU-1")
    modules = {gpu["uuid"]: gpu["module"] for gpu in fake.run(HEALTH, "GPU-0", "GPU-1")["health"]}
    energies = {uuid: mean_power(one.module, WINDOWS, QUIET) for uuid, one in found.items()}
    node = node_power(energies, modules)
    assert (node.scope, node.reasons) == ("module", ())
    assert node.watts == pytest.approx(800 + 900 + 300 + 2 * 16, rel=0.01)
    energy = token_energy(node, tokens=24_384.0, idle_watts=1016.0)
    assert energy.tokens_per_joule == pytest.approx(1.0, rel=0.01)
    assert energy.tokens_per_joule_net == pytest.approx(2.0, rel=0.02)
    assert energy.joules_per_token == pytest.approx(1.0, rel=0.01)


@pytest.fixture
def on_fake(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """As `scripted`, and processes that this one starts load it."""

    def write(script: str) -> FakeNvml:
        fake = scripted(script)
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        return fake

    return write


def started(tmp_path: Path, *uuids: str) -> Sampler:
    found = sensor_sampling.start(uuids or ("GPU-0",), tmp_path)
    assert isinstance(found, Sampler), found
    return found


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has(sampler: Sampler, least: int) -> Callable[[], bool]:
    def look() -> bool:
        found = sampler.recordings().gpus.get("GPU-0")
        return found is not None and len(found.gpu.power) >= least

    return look


def test_the_sampler_runs_beside_us_at_20_hz_on_our_clock_and_ends_when_told(on_fake: Scripted, tmp_path: Path) -> None:
    on_fake("gpu GPU-0\npower 0 500\n")
    began = time.monotonic()
    with started(tmp_path) as sampler:
        eventually(has(sampler, 20), 30)
        found = sampler.stop()
        ended = time.monotonic()
    times = [sample.at for sample in found.gpus["GPU-0"].gpu.power]
    assert began <= times[0] <= times[-1] <= ended
    assert times == sorted(times)
    assert len(times) <= 21 * (ended - began)
    assert not alive(sampler.pid)
    assert found.failure is None
    assert sampler.stop() is found


def test_a_gpu_lost_under_the_sampler_is_told_and_what_was_seen_stays(on_fake: Scripted, tmp_path: Path) -> None:
    on_fake("gpu GPU-0\npower 0 500\nlost 3\n")
    with started(tmp_path) as sampler:
        eventually(lambda: not alive(sampler.pid), 30)
        found = sampler.stop()
    assert found.failure is None
    assert found.gpus["GPU-0"].lost == "GPU is lost"
    assert found.gpus["GPU-0"].gpu.lost
    assert len(found.gpus["GPU-0"].gpu.power) > 2


def test_a_sampler_that_was_killed_is_told_from_one_that_ended(on_fake: Scripted, tmp_path: Path) -> None:
    on_fake("gpu GPU-0\npower 0 500\n")
    with started(tmp_path) as sampler:
        eventually(has(sampler, 3), 30)
        os.kill(sampler.pid, signal.SIGKILL)
        eventually(lambda: not alive(sampler.pid), 30)
        found = sampler.stop()
    assert found.failure is why.NO_SAMPLER
    assert len(found.gpus["GPU-0"].gpu.power) >= 3


def test_a_sampler_that_hangs_in_the_driver_is_killed_and_its_samples_stay(on_fake: Scripted, tmp_path: Path) -> None:
    on_fake("gpu GPU-0\npower 0 500\n")
    with started(tmp_path) as sampler:
        eventually(has(sampler, 3), 30)
        os.kill(sampler.pid, signal.SIGSTOP)
        found = sampler.stop(patience=0.2)
    assert not alive(sampler.pid)
    assert len(found.gpus["GPU-0"].gpu.power) >= 3


ORPHAN = """
import json, os, signal, sys
from pathlib import Path
from precision_agent.power import sensor_sampling as sampling
sampler = sampling.start(["GPU-0"], Path(sys.argv[1]))
sibling = os.fork()
if not sibling:
    signal.pause()
print(json.dumps([sampler.pid, sibling]), flush=True)
signal.pause()
"""


def test_the_sampler_ends_with_its_parent_though_a_sibling_keeps_its_pipe(on_fake: Scripted, tmp_path: Path) -> None:
    on_fake("gpu GPU-0\npower 0 500\n")
    with subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        sampler, sibling = json.loads(parent.stdout.readline())
        try:
            assert alive(sampler)
            parent.kill()
            eventually(lambda: not alive(sampler), 30)
        finally:
            os.kill(sibling, signal.SIGKILL)


def test_a_sampler_without_a_driver_says_why_it_did_not_start(on_fake: Scripted, tmp_path: Path) -> None:
    on_fake("init_error 9\n")
    found: Any = sensor_sampling.start(["GPU-0"], tmp_path)
    assert (found.reason, found.message) == ("nvml_unavailable", "Driver Not Loaded")


def test_a_sampler_that_can_not_start_is_a_reason_and_nobody_samples_faster_than_20_hz(tmp_path: Path) -> None:
    found: Any = sensor_sampling.start(["GPU-0"], tmp_path / "nowhere")
    assert found.reason == "no_sampler"
    with pytest.raises(ValueError, match="at most 20 samples a second"):
        sensor_sampling.start(["GPU-0"], tmp_path, interval=0.01)
