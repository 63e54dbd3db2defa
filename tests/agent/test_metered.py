"""A variant's windows on recordings: power of each part, pooled validity, the worst GPU's throttling, thinned trace."""

import math
from dataclasses import replace

import pytest

from precision_agent.power.energy import Window
from precision_agent.power.preflight import Health
from precision_agent.power.sensing import SensorFacts
from precision_agent.power.sensor_sampling import Recording, SensorRow, Tape
from precision_agent.power.throttle import KINDS
from precision_agent.protocol import Part
from precision_agent.results import power_windows
from precision_agent.sampling.sample import POWER_PARTS, PowerWindow
from precision_api.exchange.result import DeviceMemory, Gpu

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


def test_each_part_has_its_own_power_and_validity_is_pooled_over_all_of_them() -> None:
    found = powers(recorded(windows()), windows())
    assert {part: pytest.approx(watts, rel=0.05) for part, watts in WATTS.items()} == dict(found.watts)
    assert found.seconds == pytest.approx(12.0)
    assert found.updates >= 60


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


def test_samples_in_any_order_give_the_same_power() -> None:
    made = [replace(one, abba_block=place // 2) for place, one in enumerate(windows())]
    found = recorded(made)["GPU-0"]
    shuffled = replace(found, gpu=replace(found.gpu, power=found.gpu.power[::-1], counter=found.gpu.counter[::-1]))
    assert powers({"GPU-0": shuffled}, made) == powers({"GPU-0": found}, made)


def names(found: object) -> list[str]:
    assert isinstance(found, tuple)
    return [reason.name for reason in found]


def test_too_short_windows_and_a_gpu_without_recording_give_no_power() -> None:
    short = windows(seconds=1.0)
    assert names(powers(recorded(short), short)) == ["too_short"]
    assert names(powers(recorded(windows()), [])) == ["too_short"]
    both = recorded(windows())
    assert names(
        power_windows.node_power_by_part(both, windows(), ["GPU-0", "GPU-1"], SensorFacts(sensor_seconds=0.1))
    ) == ["no_sampler"]
    assert names(powers(both | recorded(windows(), "GPU-1", module=True), windows())) == ["module_shared"]


def test_one_part_or_gpu_that_is_locked_voids_the_power_and_the_mean_alone_does_not() -> None:
    made = windows()
    made[1] = PowerWindow(made[1].part, made[1].window, 0.1, 0.0)
    assert names(powers(recorded(windows()), made)) == ["phase_locked"]
    made = [replace(one, step_seconds=0.233, steps={"GPU-0": 0.2, "GPU-1": 0.266}) for one in windows()]
    both = recorded(windows()) | recorded(windows(), "GPU-1")
    assert names(powers(both, made)) == ["phase_locked"]
    free = [replace(one, step_seconds=0.2, steps={"GPU-0": 0.167, "GPU-1": 0.233}) for one in windows()]
    both = recorded(windows()) | recorded(windows(), "GPU-1")
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
    ("product", "numa_node", "with_reserve", "used", "counted"),
    [
        ("H200", None, False, 35, ""),
        ("H200", None, True, 35, "with the driver's reserve"),
        ("GB200", None, False, 28, "less what was in use before"),
        ("a GH200", 2, False, 28, "less what was in use before, with the system's pages (NUMA)"),
    ],
    ids=["v2", "v1, with the driver's reserve", "Grace, less the idle reading", "a NUMA node"],
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
