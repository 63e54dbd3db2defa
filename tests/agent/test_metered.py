"""A variant's windows on recordings: power of each part, pooled validity, the worst GPU's throttling, thinned trace.

How long the clocks were held back: from counters, from samples, or not known; and what marks a figure.

Joules to tokens: gross, net, and whose watts they are.
"""

import math
from dataclasses import replace

import pytest

from precision_agent.power import reasons as why
from precision_agent.power.energy import EnergyReading, Window
from precision_agent.power.preflight import Health
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording, SensorRow, Tape
from precision_agent.power.throttle import KINDS, ThrottleReading, marking, pooled, shares
from precision_agent.power.token_energy import node_power, token_energy
from precision_agent.protocol import Part
from precision_agent.results import power_windows
from precision_agent.sampling.sample import POWER_PARTS, PowerWindow
from precision_api.exchange.result import DeviceMemory, Energy, Gpu, ThrottleShare
from tests.support.golden import beside

TABLES = beside(__file__)

WATTS: dict[Part, int] = {"layers": 600, "head": 500, "optimizer": 300}
HEAT = next(kind.field for kind in KINDS if kind.name == "hardware_thermal")

REPLAYED: tuple[Part, ...] = tuple("layers" if part == "dense" else part for part in POWER_PARTS)
"""Of a model whose layers are all alike."""


def windows(seconds: float = 2.0, slots: int = 6, step: float = 0.233) -> list[PowerWindow]:
    """One window a slot, a second apart, as a quick run has them."""
    return [
        PowerWindow(REPLAYED[n % 6], Window(n * (seconds + 1), n * (seconds + 1) + seconds), step, 0.0)
        for n in range(slots)
    ]


def recorded(
    made: list[PowerWindow],
    uuid: str = "GPU-0",
    factor: float = 1.0,
    module: bool = False,
    later: tuple[float, float] = (math.inf, 1.0),
) -> dict[str, Recording]:
    """20 Hz samples of what each part draws, with a counter that fits; `later`: from when on, by what factor."""
    rows, joules = [], 0.0
    for tick in range(int(made[-1].window.end / 0.05) + 20):
        at = tick * 0.05
        now = next((one for one in made if one.window.start - 1e-9 <= at < one.window.end + 0.05), None)
        watts = factor * (WATTS[now.part] if now else 100) * (later[1] if at >= later[0] else 1.0)
        joules += watts * 0.05
        told = {"module_milliwatts" if module else "milliwatts": round(watts * 1000) + tick % 2}
        if not module:
            told["millijoules"] = round(joules * 1000)
        rows.append(SensorRow(at, uuid, **told))  # type: ignore[arg-type]
    return Tape(rows).recordings()


def powers(recorded: dict[str, Recording], made: list[PowerWindow]) -> object:
    return power_windows.node_power_by_part(recorded, made, list(recorded), SensorFacts(sensor_seconds=0.1))


def test_each_part_has_its_own_power_pooled_over_all_of_them_in_any_order_of_samples() -> None:
    found = powers(recorded(windows()), windows())
    assert {part: pytest.approx(watts, rel=0.05) for part, watts in WATTS.items()} == dict(found.watts)
    assert found.seconds == pytest.approx(12.0)
    assert found.updates >= 60
    made = [replace(one, abba_block=place // 2) for place, one in enumerate(windows())]
    one = recorded(made)["GPU-0"]
    shuffled = replace(one, gpu=replace(one.gpu, power=one.gpu.power[::-1], counter=one.gpu.counter[::-1]))
    assert powers({"GPU-0": shuffled}, made) == powers({"GPU-0": one}, made)


def test_each_abba_block_has_the_power_of_its_own_windows_and_that_of_the_nearest_for_what_it_lacks() -> None:
    made = [replace(one, abba_block=place // 2) for place, one in enumerate(windows(slots=8))]
    hot = made[4].window.start - 0.5  # from the third ABBA block on all draws are a tenth higher
    found = powers(recorded(made, later=(hot, 1.1)), made)
    assert {place: set(watts) for place, watts in found.by_abba_block.items()} == {
        0: {"layers", "head"},
        1: {"layers", "optimizer"},
        2: {"layers"},
        3: {"layers", "head"},
    }
    layers = [found.of_abba_block(place)["layers"] for place in range(4)]
    assert layers == pytest.approx([600, 600, 660, 660], rel=0.05)
    assert layers[2] / layers[1] > 1.05
    heads = [found.of_abba_block(place)["head"] for place in range(4)]
    assert heads[0] == heads[1] != heads[2] == heads[3] == found.by_abba_block[3]["head"]
    assert {found.of_abba_block(place)["optimizer"] for place in range(4)} == {found.watts["optimizer"]}
    assert found.abba_blocks() == {0, 1, 2, 3}


def names(found: object) -> list[str]:
    assert isinstance(found, tuple)
    return [reason.name for reason in found]


def test_short_windows_and_parts_or_gpus_without_recording_or_locked_give_no_power_and_a_locked_mean_does() -> None:
    short = windows(seconds=1.0)
    assert names(powers(recorded(short), short)) == ["too_short"]
    assert names(powers(recorded(windows()), [])) == ["too_short"]
    both = recorded(windows())
    assert names(
        power_windows.node_power_by_part(both, windows(), ["GPU-0", "GPU-1"], SensorFacts(sensor_seconds=0.1))
    ) == ["no_sampler"]
    assert names(powers(both | recorded(windows(), "GPU-1", module=True), windows())) == ["module_shared"]
    made = windows()
    made[1] = PowerWindow(made[1].part, made[1].window, 0.1, 0.0)
    assert names(powers(recorded(windows()), made)) == ["phase_locked"]
    made = [replace(one, step_seconds=0.233, steps={"GPU-0": 0.2, "GPU-1": 0.266}) for one in windows()]
    both = recorded(windows()) | recorded(windows(), "GPU-1")
    assert names(powers(both, made)) == ["phase_locked"]
    free = [replace(one, step_seconds=0.2, steps={"GPU-0": 0.167, "GPU-1": 0.233}) for one in windows()]
    assert isinstance(powers(both, free), power_windows.NodePower)


def test_throttling_is_told_of_the_gpu_that_it_hit_most() -> None:
    rows = [
        SensorRow(0.1 * n, uuid, throttle_ns={str(HEAT): round(share * 0.1 * n * 1e9)})
        for n in range(31)
        for uuid, share in (("GPU-0", 0.0), ("GPU-1", 0.2))
    ]
    held_back = power_windows.held_back(Tape(rows).recordings(), [Window(0.0, 1.0), Window(2.0, 3.0)])
    assert (held_back.marked.reason, held_back.marked.share) == ("hardware_thermal", pytest.approx(0.2))
    assert power_windows.held_back(Tape(rows[::2]).recordings(), [Window(0.0, 1.0)]).marked is None


def test_a_gpu_of_which_nothing_tells_of_heat_or_brake_is_named() -> None:
    hot = [SensorRow(0.1 * n, "GPU-0", throttle_ns={str(HEAT): 0}) for n in range(31)]
    masks = [SensorRow(0.1 * n, "GPU-1", reasons=0) for n in range(31)]
    dumb = [SensorRow(0.1 * n, "GPU-2", sm_mhz=1800, throttle_ns={"74": 0}) for n in range(31)]
    windows_ = [Window(0.0, 1.0), Window(2.0, 3.0)]
    found = Tape([*hot, *masks, *dumb]).recordings()
    assert power_windows.blind(found, windows_, ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]) == ("GPU-2", "GPU-3")
    assert power_windows.held_back(found, windows_).marked is None, "it would pass for a cool one"


def test_clocks_are_means_and_the_trace_is_thinned() -> None:
    rows = [SensorRow(float(n), "GPU-0", celsius=50 + n, sm_mhz=1000 + n) for n in range(10)]
    clocks = power_windows.clocks(Tape(rows).recordings(), [Window(1.0, 3.0)])
    assert (clocks.sm_mhz, clocks.celsius) == (1002.0, 53.0)
    assert power_windows.clocks({}, [Window(1.0, 3.0)]) is None
    rows = [SensorRow(n * 0.5, uuid, milliwatts=100_000) for n in range(4000) for uuid in ("GPU-0", "GPU-1")]
    rows = [row for row in rows if not (row.gpu == "GPU-1" and 500 < row.at < 700)]
    trace = power_windows.power_trace(Tape(rows).recordings(), "2026-11-21T09:00:00Z", 0.0)
    assert len(trace.watts) <= 600
    assert set(trace.watts) == {200.0, None}
    assert power_windows.power_trace({}, "2026-11-21T09:00:00Z", 0.0) is None


@pytest.mark.parametrize(
    ("product", "numa_node", "with_reserve", "used", "counted"), TABLES["memory"].values(), ids=TABLES["memory"]
)
def test_memory_in_use_is_the_fullest_gpus_highest_within_the_windows(
    product: str, numa_node: int | None, with_reserve: bool, used: int, counted: str
) -> None:
    rows = [
        SensorRow(float(n), uuid, used_bytes=more + 10 * n)
        for n in range(10)
        for uuid, more in (("GPU-0", 0), ("GPU-1", 5))
    ]
    gpus = [Gpu(uuid=f"GPU-{n}", name="GPU", memory_bytes=total) for n, total in ((0, 80), (1, 90))]
    idle = {"memory_used_bytes": 7, "memory_with_reserve": with_reserve, "numa_node": numa_node}
    health = [Health(f"GPU-{n}", **idle) for n in range(2)]
    found = power_windows.device_memory(Tape(rows).recordings(), [Window(1.0, 3.0)], gpus, health, product)
    assert found == DeviceMemory(used_bytes=used, total_bytes=90, counted=counted)
    assert power_windows.device_memory(Tape(rows).recordings(), [], gpus, health, product) is None, "nothing trained"


def throttle(reason: str, share: float, sampled: bool = False) -> ThrottleShare:
    return ThrottleShare(reason=reason, share=share, sampled=sampled)


def counted(field: int, *nanoseconds: int) -> list[ThrottleReading]:
    return [ThrottleReading(float(at), {field: value}) for at, value in enumerate(nanoseconds)]


def test_a_counters_difference_is_a_share_of_at_most_all_sampled_reasons_say_so_and_the_unknown_is_left_out() -> None:
    assert shares(counted(269, 0, 10**8, 5 * 10**8), 0.0, 2.0) == (throttle("software_thermal", 0.25),)
    assert [one.share for one in shares(counted(270, 0, 10**9, 10**9, 10**9), 1.0, 3.0)] == [0.0]
    assert [one.share for one in shares(counted(74, 0, 1_040_000_000), 0.0, 1.0)] == [1.0]
    for unknown in (counted(271, 5), counted(271, 10**9, 0), []):
        assert shares(unknown, 0.0, 5.0) == (), "rather than zero"
    masks = [0x4, 0x4 | 0x80, 0x4, 0x4]
    readings = [ThrottleReading(float(at), {74: at * 10**9}, mask) for at, mask in enumerate(masks)]
    found = {one.reason: one for one in shares(readings, 0.0, 3.0)}
    assert found["power_cap"] == throttle("power_cap", 1.0)
    assert found["power_brake"] == throttle("power_brake", 0.25, sampled=True)


@pytest.mark.parametrize(("reason", "share", "marked"), TABLES["throttling"])
def test_heat_and_brake_above_a_tenth_of_a_percent_mark_a_figure_and_the_cap_never(
    reason: str, share: float, marked: bool
) -> None:
    assert (marking([throttle(reason, share)]) is not None) == marked


def test_the_worst_reason_marks_and_windows_pool_by_their_time() -> None:
    found = marking([throttle("power_brake", 0.01), throttle("software_thermal", 0.2)])
    assert found.reason == "software_thermal"
    brake, sampled = throttle("power_brake", 0.1), throttle("power_brake", 0.5, sampled=True)
    found = pooled([(3.0, [brake]), (1.0, [sampled]), (10.0, [])])
    assert [(one.reason, one.sampled) for one in found] == [("power_brake", True)]
    assert found[0].share == pytest.approx(0.2)


def reading(watts: float = 500.0, **changes: object) -> EnergyReading:
    return EnergyReading(**({"joules": watts * 12, "seconds": 12.0, "updates": 120} | changes))  # type: ignore[arg-type]


def void(reason: why.Reason) -> EnergyReading:
    return EnergyReading(None, 12.0, 120, reasons=(reason,))


def figures(energy: Energy) -> tuple[object, ...]:
    return energy.tokens_per_joule, energy.joules_per_token, energy.tokens_per_joule_net, energy.net_reason


def test_a_token_costs_the_inverse_of_a_joule_gross_where_idle_is_not_below_the_load_or_there_are_reasons() -> None:
    assert figures(token_energy(reading(500.0), tokens=12_000.0, idle_watts=100.0)) == (2.0, 0.5, 2.5, None)
    assert token_energy(void(why.SAMPLE_GAP), 12_000.0, 100.0) == Energy(valid=False, reasons=("sample_gap",))
    assert token_energy(reading(), 0.0, 100.0) == Energy(valid=False, reasons=("no_tokens",))
    for idle, reason in ((None, why.IDLE_UNKNOWN), (500.0, why.IDLE_ABOVE_LOAD), (900.0, why.IDLE_ABOVE_LOAD)):
        assert figures(token_energy(reading(), 12_000.0, idle)) == (2.0, 0.5, None, reason.name)


def test_watts_add_up_over_gpus_and_modules_of_one_scope_and_one_void_gpu_voids_the_node() -> None:
    readings = {"a": reading(), "b": void(why.SAMPLE_GAP), "c": void(why.SAMPLE_GAP), "d": void(why.SENSOR_LOST)}
    found = node_power(readings, {})
    assert (found.joules, found.reasons) == (None, (why.SAMPLE_GAP, why.SENSOR_LOST))
    readings = {"a": reading(500.0), "b": reading(700.0, updates=80)}
    found = node_power(readings, {})
    assert (found.watts, found.updates) == (1200.0, 80)
    readings = {uuid: reading(2000.0, scope="module") for uuid in "abcd"}
    modules = {"a": "M1", "b": "M1", "c": "M2", "d": "M2"}
    assert node_power(readings, modules).watts == 4000.0
    assert node_power({uuid: readings[uuid] for uuid in "abc"}, modules).reasons == (why.MODULE_SHARED,)
    for meters in ({}, {"a": reading(), "b": reading(scope="module")}):
        with pytest.raises(ValueError, match="one scope"):
            node_power(meters, {})
