"""Which part of the step a power window replays: in turn by slot, the same again where an ABBA block is repeated."""

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from precision_agent.cases import Case, TrainingCase, Variant, cases_of
from precision_agent.protocol import Part, RegionName, Sample
from precision_agent.sampling.sample import HOOKS, POWER_PARTS, Hooks, Samples, take
from precision_api.exchange.request import Timing
from precision_api.exchange.result import Failure
from precision_api.models.workload import resolve
from tests.support.fake_backend import FakeBackend, devices_of
from tests.support.result_objects import request

TIMING = Timing(passes=4, segment_seconds=1.0, discard_seconds=0.0, seed=100)
WHOLE: dict[RegionName, float] = {"layers_forward": 0.3, "head": 0.1, "layers_backward": 0.6, "optimizer": 0.2}


@dataclass
class Metered(FakeBackend):
    """Writes down each power window: variant, part, seed."""

    regions: dict[RegionName, float] = field(default_factory=lambda: WHOLE)
    replayed: list[tuple[str, Part, int]] = field(default_factory=list)

    def measure(self, case: Case, variant: Variant, seconds: float) -> Sample | Failure:
        found = super().measure(case, variant, seconds)
        if isinstance(case, TrainingCase) and isinstance(found, Sample):
            return replace(found, regions=self.regions)
        return found

    def power_window(self, variant: Variant, part: Part, *more: Any) -> Sample | Failure:
        self.replayed.append((variant.label, part, more[2]))
        return super().power_window(variant, part, *more)

    def of(self, label: str) -> list[tuple[Part, int]]:
        return [(part, seed) for variant, part, seed in self.replayed if variant == label]


def taken(*devices: Metered, hooks: Hooks = HOOKS) -> Samples:
    """All ABBA blocks on these devices."""
    asked = request(recipes=("nvfp4",))
    cases = cases_of(asked, resolve(asked.workload))
    return take(devices_of(*devices), cases, cases.variants, TIMING, lambda: None, 0.1, hooks)


def test_windows_replay_the_parts_in_turn_and_again_where_measured_again() -> None:
    device = Metered()
    for label in taken(device).windows:
        slots = 2 * TIMING.passes
        expected = [POWER_PARTS[i % len(POWER_PARTS)] for i in range(slots)]
        assert [part for part, _ in device.of(label)] == ["layers" if part == "dense" else part for part in expected]
        assert [seed for _, seed in device.of(label)] == [TIMING.seed + i for i in range(slots)]
    assert set(POWER_PARTS[: 2 * 3]) == {"layers", "head", "optimizer", "dense"}
    device = Metered()
    taken(device, hooks=hot_in(1))
    first, again = device.of("nvfp4")[:2], device.of("nvfp4")[2:4]
    assert first == again
    assert device.of("nvfp4")[4][0] == POWER_PARTS[2]
    windows = taken(Metered(), hooks=hot_in(2))
    assert windows.repeated == 1
    assert [one.abba_block for one in windows.windows["nvfp4"]] == [0, 0, 1, 1, 2, 2, 3, 3]


def hot_in(abba_block: int) -> Hooks:
    asked = count(1)
    return Hooks(hot=lambda windows: next(asked) == abba_block)


def test_layers_stand_in_for_lacking_parts_and_each_gpus_steps_choose_the_pause() -> None:
    device = Metered(regions={"layers_forward": 0.3, "layers_backward": 0.6})
    taken(device)
    assert {part for part, _ in device.of("bf16")} == {"layers"}
    quick = {"layers_forward": 0.06, "layers_backward": 0.1}
    slow = {name: seconds * 1.25 for name, seconds in quick.items()}
    window = taken(Metered(regions=quick), Metered(regions=slow)).windows["bf16"][0]  # type: ignore[arg-type]
    assert window.longest_pause_seconds > 0
    assert len(window.steps) == len(window.running) == 2
