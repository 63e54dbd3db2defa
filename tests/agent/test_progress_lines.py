"""The lines that an agent writes while it works: for `kubectl logs -f`, and for what a killed one leaves.

How long a run will take, told before it begins.

And how the seconds of a slot are shared out, so that energy gets what it needs of them.
"""

import io
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from precision_agent.cases import variants_of
from precision_agent.method.duration import as_document, as_text, phases, timed_share, total_seconds
from precision_agent.method.slot import BETWEEN_SECONDS, abba_blocks, slot_of
from precision_agent.power.energy import LIMITS
from precision_agent.run.cli import app
from precision_agent.run.progress import WORDS, Lines
from precision_agent.run.publish import TERMINATION_LOG_ENV
from precision_api.exchange.progress_line import LINE_SECONDS, Progress, last_progress
from precision_api.exchange.request import LOSS_BY_DEFAULT, TIMINGS, LossRuns, MeasurementRequest, Timing
from precision_api.facts.names import REQUEST_ENV
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.workload import Workload
from tests.support.eventually import eventually
from tests.support.result_objects import request, request_text

PLAN = phases(request())
REPLAY = [sys.executable, "-m", "precision_agent", "run", "--request", "env", "--backend", "replay"]
LINE = re.compile(r" *[0-9]+ s  (.*)")
FIVE: tuple[Recipe, ...] = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
SLOW_SENSOR_SECONDS = 0.15
"""A slow sensor: 150 ms from one update to the next."""
LATE_SECONDS = 0.05
"""How much later than the first the last GPU of a node may begin a power window."""


def environment(asked: str) -> dict[str, str]:
    """As a container without a home and without a user's name has it."""
    return {"PATH": os.environ["PATH"], REQUEST_ENV: asked}


@pytest.fixture(scope="module")
def pod_log() -> list[str]:
    """Both streams of a run in one, as a container runtime keeps them."""
    ran = subprocess.run(
        REPLAY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(request_text()), text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    return ran.stdout.splitlines()


def texts(lines: list[str]) -> list[str]:
    """What the lines of progress say, without their seconds."""
    return [found[1] for line in lines if (found := LINE.fullmatch(line))]


def test_the_lines_say_whose_run_it_is_and_each_phase_in_order(pod_log: list[str]) -> None:
    first = next(number for number, line in enumerate(pod_log) if line.startswith("PPR1 "))
    assert all(line.startswith("PPR1 ") for line in pod_log[first:])
    spoken = [text for text in texts(pod_log[:first]) if text in WORDS.values()]
    assert spoken == [WORDS[phase] for phase in ("preflight", "start", "probe", "prepare", "measure", "verify")]
    asked, said = request(), texts(pod_log)
    assert said[0].startswith(f"node {asked.node.name}: {asked.namespace}/{asked.profile}, run {asked.run}, attempt 1")
    assert "4 x GB200, measured by replay" in said


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("probe_failed", "recipe nvfp4: probe_failed: replayed fault: the narrowest recipe fails its probe"),
        ("gemm_failed", "recipe nvfp4: qkv fprop autocast: cuda_error: "),
    ],
)
def test_what_fails_is_said_with_its_recipe_and_reason(fault: str, line: str, tmp_path: Path) -> None:
    around = {REQUEST_ENV: request_text(gpus=1), TERMINATION_LOG_ENV: str(tmp_path / "message")}
    ran = CliRunner(env=around).invoke(app, [*REPLAY[3:], "--replay-fault", fault])
    assert ran.exit_code == 0, ran.output
    said = texts(ran.stderr.splitlines())
    assert [text for text in said if text.startswith(line)], said


def test_a_killed_agent_leaves_the_lines_up_to_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    timing = Timing(passes=64, segment_seconds=3.0, discard_seconds=1.0)
    asked = request_text(timing=timing, workload=Workload(preset="llama3-8b"))
    with (
        log.open("wb") as stream,
        subprocess.Popen(REPLAY, stdout=stream, stderr=subprocess.STDOUT, env=environment(asked)) as agent,
    ):
        try:
            eventually(lambda: "2 palindromes were complete" in log.read_text(), seconds=60)
        finally:
            agent.kill()
    assert agent.returncode == -signal.SIGKILL, "the run was over: it proves nothing"
    said = texts(log.read_text().splitlines())
    assert WORDS["measure"] in said
    assert WORDS["verify"] not in said


def lines_at(*moments: float) -> tuple[Lines, io.StringIO]:
    """Lines whose clock says these moments, one after another; the first is when they are made."""
    clock: Iterator[float] = iter(moments)
    out = io.StringIO()
    return Lines(PLAN, out, lambda: next(clock)), out


def test_a_long_phase_has_another_line_every_half_minute_at_most() -> None:
    # each written line asks for the time twice: whether it is due, and what it says
    soon, due = 7.0 + LINE_SECONDS - 1, 7.0 + LINE_SECONDS
    lines, out = lines_at(0.0, 7.0, 7.0, soon, due, due, due + 1, due + 1)
    for share in (0.0, 0.5, 0.6):
        lines("measure", share, 100.0)
    lines("verify", 0.0, math.nan)
    rows = [line.split("about")[0] for line in out.getvalue().splitlines()]
    assert rows == ["    7 s  measuring, ", "   37 s  measuring, ", "   38 s  proving what ran, "]


def test_a_line_has_the_time_left_of_phase_and_plan_where_there_is_one() -> None:
    lines, out = lines_at(0.0, 1.0, 1.0)
    lines("verify", 0.0, 10.0)
    assert out.getvalue() == "    1 s  proving what ran, about 0:11 left\n"
    lines, out = lines_at(*[0.0] * 5)
    lines("measure", 1.0, 0.0)
    lines("polishing", 0.5, math.nan)
    measured, polished = out.getvalue().splitlines()
    assert polished.startswith("    0 s  polishing, about ")
    assert polished.split(",")[1] == measured.split(",")[1]
    out = io.StringIO()
    Lines((), out, lambda: 0.0)("measure", 0.5, 100.0)
    assert out.getvalue() == "    0 s  measuring\n"


def test_the_operator_reads_the_phase_and_notes_of_one_line() -> None:
    lines, out = lines_at(0.0, 7.0, 7.0, 1240.4, 1240.4)
    lines("prepare", 0.5, 100.0)
    lines("measure", 0.0, math.nan)
    assert "about" in out.getvalue().splitlines()[-1]
    assert last_progress(out.getvalue() + "NCCL WARN timeout\n") == Progress(1240, WORDS["measure"])
    lines, out = lines_at(0.0, 31.0)
    lines.note("2 of 3 recipes run here: bf16,\nfp8_current")
    assert last_progress(out.getvalue()) == Progress(31, "2 of 3 recipes run here: bf16, fp8_current")
    lines, out = lines_at(0.0, 0.0)
    lines.note("out of memory:\nPPR1 1/1 x\r")
    assert out.getvalue() == "    0 s  out of memory: PPR1 1/1 x\n"


@pytest.mark.parametrize("log", ["", "Traceback\n", "(no log: it is empty)", "31 seconds", "  -1 s  measuring"])
def test_a_log_without_such_a_line_tells_no_phase(log: str) -> None:
    assert last_progress(log) is None


def test_a_run_goes_on_where_nobody_reads_its_lines() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    lines = Lines(PLAN, os.fdopen(writing, "w", buffering=1), lambda: 0.0)
    lines.note("nobody reads this")
    lines("measure", 0.0, math.nan)


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


def test_the_plan_adds_up_and_loss_runs_and_second_depth_take_time_where_they_run_with_allowances_named() -> None:
    found = phases(asked("quick"))
    lines = as_text(found).splitlines()
    assert (len(lines), lines[-1].split()[:2]) == (len(found) + 2, ["all", f"{total_seconds(found):.0f}"])
    document = as_document(found)
    assert document["seconds"] == total_seconds(found)
    assert document["timed_share"] == pytest.approx(timed_share(found), abs=1e-4)
    assert not {phase.name for phase in phases(asked("quick"))} & {"loss", "second_depth"}
    assert "second_depth" in {phase.name for phase in phases(asked("standard"))}
    assert "second_depth" not in {phase.name for phase in phases(asked("standard", training=False))}
    assert "loss" in {phase.name for phase in phases(asked("quick", loss=LossRuns()))}
    for phase in phases(asked("standard", loss=LossRuns())):
        assert phase.name in ("measure", "idle") or phase.why.startswith("allowance: ")


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
