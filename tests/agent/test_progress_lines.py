"""The lines that an agent writes while it works: for `kubectl logs -f`, and for what a killed one leaves."""

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
from typer.testing import CliRunner

from precision_agent.method.duration import phases
from precision_agent.run.cli import app
from precision_agent.run.progress import WORDS, Lines
from precision_agent.run.publish import TERMINATION_LOG_ENV
from precision_api.exchange.progress_line import LINE_SECONDS, Progress, last_progress
from precision_api.exchange.request import Timing
from precision_api.facts.names import REQUEST_ENV
from precision_api.models.workload import Workload
from tests.support.eventually import eventually
from tests.support.result_objects import request, request_text

PLAN = phases(request())
REPLAY = [sys.executable, "-m", "precision_agent", "run", "--request", "env", "--backend", "replay"]
LINE = re.compile(r" *[0-9]+ s  (.*)")


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
