"""How long a run will take, told before it begins.

And how the seconds of a slot are shared out, so that energy gets what it needs of them.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.cases import variants_of
from precision_agent.method.duration import as_document, as_text, phases, timed_share, total_seconds
from precision_agent.method.slot import BETWEEN_SECONDS, abba_blocks, slot_of
from precision_agent.power.energy import LIMITS
from precision_api.exchange.request import LOSS_BY_DEFAULT, TIMINGS, LossRuns, MeasurementRequest, Timing
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.workload import Workload
from tests.support.result_objects import request

FIVE: tuple[Recipe, ...] = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
SLOW_SENSOR_SECONDS = 0.15
"""A slow sensor: 150 ms from one update to the next."""
LATE_SECONDS = 0.05
"""How much later than the first the last GPU of a node may begin a power window."""


def asked(preset: str, **changes: object) -> MeasurementRequest:
    """Five recipes of an 8B model."""
    return request(workload=Workload(preset="llama3-8b"), recipes=FIVE, timing=TIMINGS[preset], **changes)


@pytest.mark.parametrize(("preset", "most", "least_share"), [("quick", 380, 0.35), ("standard", 1200, 0.60)])
@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_five_recipes_of_an_8b_model_fit_their_time(preset: str, most: float, least_share: float, gpus: int) -> None:
    found = phases(asked(preset, gpus=gpus))
    assert total_seconds(found) <= most
    assert timed_share(found) >= least_share


@given(
    recipes=st.lists(st.sampled_from(FIVE), min_size=1, unique=True),
    passes=st.integers(2, 10),
    segment=st.floats(0.1, 10),
    discard=st.floats(0, 3),
    training=st.booleans(),
)
def test_abba_blocks_take_what_their_order_takes(
    recipes: list[Recipe], passes: int, segment: float, discard: float, training: bool
) -> None:
    timing = Timing(passes=passes, segment_seconds=segment, discard_seconds=discard)
    one = request(recipes=tuple(recipes), timing=timing, training=training)
    slots = sum(len(abba_block) for abba_block in abba_blocks(variants_of(one), passes, 0))
    found = next(phase for phase in phases(one) if phase.name == "measure")
    assert found.seconds == pytest.approx(slots * (discard + segment * (1 + training) + BETWEEN_SECONDS))
    assert found.timed_seconds == pytest.approx(slots * segment * (1 + training))


def test_loss_runs_and_second_depth_take_time_where_they_run_and_allowances_are_named() -> None:
    assert not {phase.name for phase in phases(asked("quick"))} & {"loss", "second_depth"}
    assert "second_depth" in {phase.name for phase in phases(asked("standard"))}
    assert "second_depth" not in {phase.name for phase in phases(asked("standard", training=False))}
    assert "loss" in {phase.name for phase in phases(asked("quick", loss=LossRuns()))}
    for phase in phases(asked("standard", loss=LossRuns())):
        assert phase.name in ("measure", "idle") or phase.why.startswith("allowance: ")


def test_loss_runs_leave_time_to_the_rest_and_a_hybrid_has_none_of_its_steps() -> None:
    of_all = asked("standard", loss=LOSS_BY_DEFAULT["standard"]).model_copy(update={"recipes": RECIPE_NAMES})
    found = {phase.name: phase.seconds for phase in phases(of_all, gpus=1)}
    assert found["loss"] < 0.25 * 5400
    assert sum(found.values()) < 0.6 * 5400
    assert {phase.name: phase.seconds for phase in phases(of_all, gpus=8)}["loss"] < 0.05 * 5400
    moe = Workload(preset="nemotron-h-56b")
    found = phases(request(workload=moe, recipes=FIVE, timing=TIMINGS["standard"], loss=LossRuns()))
    bare = phases(request(workload=moe, recipes=FIVE, timing=TIMINGS["standard"], training=False))
    assert not {"second_depth", "loss"} & {phase.name for phase in found}
    assert found == bare
    assert "training" not in as_text(found)


def test_the_plan_adds_up_in_words_and_for_programs() -> None:
    found = phases(asked("quick"))
    lines = as_text(found).splitlines()
    assert len(lines) == len(found) + 2
    assert lines[-1].split()[:2] == ["all", f"{total_seconds(found):.0f}"]
    document = as_document(found)
    assert document["seconds"] == total_seconds(found)
    assert document["timed_share"] == pytest.approx(timed_share(found), abs=1e-4)


@pytest.mark.parametrize("preset", list(TIMINGS))
def test_power_windows_suffice_and_steps_keep_time_for_several_micro_batches(preset: str) -> None:
    timing = TIMINGS[preset]
    windows = 2 * timing.passes
    seconds = slot_of(timing, gemms=True, training=True, metered=True).power - LATE_SECONDS
    assert windows * seconds >= LIMITS.seconds
    assert windows * int(seconds / SLOW_SENSOR_SECONDS) >= LIMITS.updates
    assert slot_of(TIMINGS[preset], gemms=True, training=True, metered=True).training >= 0.4


@given(
    passes=st.integers(2, 64),
    segment=st.floats(0.01, 60),
    gemms=st.booleans(),
    training=st.booleans(),
    metered=st.booleans(),
)
def test_each_figure_has_one_segment(passes: int, segment: float, gemms: bool, training: bool, metered: bool) -> None:
    slot = slot_of(Timing(passes=passes, segment_seconds=segment, discard_seconds=0.5), gemms, training, metered)
    assert slot.timed == pytest.approx(segment * (gemms + training))
    assert slot.seconds == pytest.approx(0.5 + slot.timed + slot.between)
    assert (slot.training > 0) == training
    assert (slot.power > 0) == (training and metered)
    assert not slot.power or 0.199 <= slot.training / segment <= 0.501
