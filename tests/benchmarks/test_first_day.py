"""The steps of a first day on a GPU: their order, the budget of time, what becomes of failures, and files' sizes."""

import importlib.util
import json
import math
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.first_day import running
from benchmarks.first_day import running as runs
from benchmarks.first_day.__main__ import BUDGET_SECONDS, listed, main
from benchmarks.first_day.after_profiler import compared, verdict
from benchmarks.first_day.checks import Check, Notebook, between, holds, read_notebook
from benchmarks.first_day.cold_hot import hot_share, too_high
from benchmarks.first_day.collect import Refused, chip, collect
from benchmarks.first_day.collect import main as collect_main
from benchmarks.first_day.gpu_tests import outcomes_of
from benchmarks.first_day.keeping import MOST_BYTES, MOST_FILES, RECORD, compressed, pack, too_large
from benchmarks.first_day.nvidia import checks_of, forward_speedup, spreads
from benchmarks.first_day.plain_user import USER, bare, ways
from benchmarks.first_day.profile import checks_of as profile_checks
from benchmarks.first_day.profile import own_call
from benchmarks.first_day.steps import BY_NAME, HALF_HOUR, LONGEST_SECONDS, STEPS, Step
from tests.support.result_objects import recipe_result, result

MARGIN = runs.RESERVE_SECONDS + runs.GRACE_SECONDS


class Days:
    """Steps that take as long as they are said to, on a clock of their own."""

    def __init__(self, folder: Path, takes: dict[str, float], codes: dict[str, int | None] | None = None) -> None:
        self.folder, self.takes, self.codes = folder, takes, codes or {}
        self.now = 100.0
        self.began: list[tuple[str, float]] = []
        self.kept: list[int] = []

    def start(self, step: Step, seconds: float) -> runs.Ended:
        self.began.append((step.name, seconds))
        spent = min(self.takes[step.name], seconds)
        self.now += spent
        Notebook(self.notebook(step)).fact("spent", spent)
        return runs.Ended(self.codes.get(step.name, 0), spent, ("the last words",))

    def notebook(self, step: Step) -> Path:
        return self.folder / f"{step.name}.json"

    def run(self, budget: float, *steps: Step) -> tuple[runs.Record, ...]:
        return runs.run_steps(
            steps, budget, self.start, self.notebook, lambda rows: self.kept.append(len(rows)), lambda: self.now
        )


def step(name: str, least: float = 10, most: float = 100) -> Step:
    return Step(name, "whatever", least, most, "none")


def test_steps_run_in_their_order_and_are_kept_after_each(tmp_path: Path) -> None:
    days = Days(tmp_path, {"b": 5, "a": 7})
    records = days.run(540, step("b"), step("a"))
    assert [name for name, _ in days.began] == ["b", "a"] == [one.step for one in records]
    assert [one.status for one in records] == ["done", "done"]
    assert days.kept == [1, 2]


def test_a_failed_or_ended_step_is_a_result_with_its_words_and_the_others_go_on(tmp_path: Path) -> None:
    days = Days(tmp_path, {"a": 5, "b": 100, "c": 5}, {"a": 3, "b": None})
    first, second, third = days.run(540, step("a"), step("b"), step("c"))
    assert (first.status, second.status, third.status) == ("failed", "timed out", "done")
    assert first.error == "exit code 3\nthe last words"
    assert second.error == "ended after 100 s\nthe last words"
    assert first.facts == {"spent": 5}
    assert third.error == ""


def test_the_budget_leaves_time_to_end_and_no_step_takes_more(tmp_path: Path) -> None:
    days = Days(tmp_path, {"a": 60, "b": 60})
    days.run(60 + 40 + MARGIN, step("a"), step("b"))
    assert days.began == [("a", 100), ("b", 40)]
    assert runs.allowed(step("a"), 10 + MARGIN) == 10
    assert runs.allowed(step("a"), 9.9 + MARGIN) is None
    assert runs.allowed(step("a"), 1e9) == 100
    days = Days(tmp_path, {"a": 60, "long": 1, "short": 1})
    _, long, short = days.run(60 + 40 + MARGIN, step("a"), step("long", least=41), step("short"))
    assert (long.status, short.status) == ("no time left", "done")
    assert "in a command of its own" in long.error
    assert [name for name, _ in days.began] == ["a", "short"]


def test_steps_fit_a_command_and_the_half_hour_names_each_once() -> None:
    for one in STEPS:
        assert 0 < one.least_seconds <= one.most_seconds <= LONGEST_SECONDS < 600
        assert importlib.util.find_spec(f"benchmarks.first_day.{one.module}")
    assert len(BY_NAME) == len(STEPS)
    named = [name for command in HALF_HOUR for name in command.steps]
    assert len(set(named)) == len(named)
    assert set(named) <= set(BY_NAME)
    assert sum(command.seconds for command in HALF_HOUR) <= 28 * 60
    for command in HALF_HOUR:
        assert sum(BY_NAME[name].least_seconds for name in command.steps) <= command.seconds <= BUDGET_SECONDS < 600
        assert " ".join(f"--step {name}" for name in command.steps) in listed()


def test_steps_are_named_without_torch() -> None:
    code = (
        "import sys, benchmarks.first_day.__main__, benchmarks.first_day.worker as w; sys.exit('torch' in sys.modules)"
    )
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", code], env=around, check=False).returncode == 0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[runs.Log]:
    made = runs.Log(tmp_path / "log.txt")
    yield made
    made.close()


def test_a_process_that_ends_leaves_its_code_and_its_last_lines(log: runs.Log) -> None:
    code = "import sys; print(*range(100), sep='\\n'); sys.exit('the error')"
    ended = runs.run_process([sys.executable, "-c", code], 60, log)
    assert ended.code == 1
    assert ended.last_lines[-1] == "the error"
    assert len(ended.last_lines) == runs.LAST_LINES


def test_a_process_that_is_late_is_asked_to_end_and_what_it_started_is_killed(log: runs.Log, tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"trap 'echo partial; exit 0' TERM; sleep 600 & echo $! > {child}; echo up; wait"
    ended = runs.run_process(["/bin/sh", "-c", script], 5.0, log, grace=30.0)
    assert ended.code is None
    assert ended.last_lines == ("up", "partial")
    assert eventually_gone(int(child.read_text()))


def eventually_gone(process: int) -> bool:
    """Whether a killed process is gone, or waits for whoever inherited it to collect it; within 30 s."""
    for _ in range(300):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_the_log_stays_below_its_limit_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    log = runs.Log(path, most_bytes=100)
    for _ in range(50):
        log.line("0123456789")
    log.close()
    text = path.read_text()
    assert text.count("0123456789") == 9
    assert text.endswith("(the log is full: what follows was on the screen alone)\n")


def test_an_archive_takes_what_fits_and_names_what_it_left_out_or_is_not_written(tmp_path: Path) -> None:
    assert pack((), tmp_path / "none.tar").kept == ()
    assert list(tmp_path.iterdir()) == []
    source = tmp_path / "traces"
    source.mkdir()
    for name, size in {"small": 1000, "middle": 30_000, "large": 90_000}.items():
        (source / name).write_bytes(os.urandom(size))
    files = compressed(source)
    assert [path.name for path in files] == ["small.gz", "middle.gz", "large.gz"]
    archive = tmp_path / "traces.tar"
    packed = pack(files, archive, most_bytes=50_000)
    assert packed.kept == ("small.gz", "middle.gz")
    assert list(packed.left_out) == ["large.gz"]
    assert archive.stat().st_size <= 50_000
    with tarfile.open(archive) as tar:
        assert tar.getnames() == list(packed.kept)
    assert compressed(source) == files  # again: nothing is compressed twice


def test_what_is_more_than_can_be_copied_off_is_told(tmp_path: Path) -> None:
    assert too_large(tmp_path) == []
    (tmp_path / "big").write_bytes(b"")
    os.truncate(tmp_path / "big", MOST_BYTES + 1)
    for number in range(MOST_FILES):
        (tmp_path / str(number)).touch()
    assert too_large(tmp_path) == [f"big has {MOST_BYTES + 1} bytes", f"{MOST_FILES + 1} files"]


def command_on(
    machine: dict[str, Any], out: Path, *records: runs.Record, results: dict[str, bytes] | None = None
) -> Path:
    """A folder as a command leaves it."""
    work = out.with_name(f"{out.name}-work")
    for folder in (out, work / "results", work / "traces"):
        folder.mkdir(parents=True)
    for name, text in (results or {}).items():
        (work / "results" / name).write_bytes(text)
    runs.Keeper(out, work, machine, {"steps": []})(records)
    return out


def a_machine(name: str = "NVIDIA H200", simulated: bool = False) -> dict[str, Any]:
    return {
        "gpus": [{"name": name, "uuid": "GPU-1"}], "driver": "580", "simulated": simulated, "python": "3.12",
        "packages": {"torch": "2.11.0", "triton": None}, "commit": "abc",
    }  # fmt: skip


def a_record(name: str = "smoke", **changes: Any) -> runs.Record:
    checks = [vars_of(between("a|b", 0.5, 0.0, 1.0, " s")), vars_of(holds("c", "so", False, "not so"))]
    fields = {"status": "done", "started_at": "2026-11-22T10:00:00Z", "seconds": 12.0, "allowed_seconds": 100.0}
    return runs.Record(step=name, **{**fields, "checks": checks, **changes})


def vars_of(check: Check) -> dict[str, str]:
    return {name: getattr(check, name) for name in ("name", "expected", "measured", "verdict", "why")}


def test_folders_of_a_day_become_one_folder_of_results(tmp_path: Path) -> None:
    turns = [{"script": {"speedup": value}} for value in (1.4, 1.5)]
    first = command_on(a_machine(), tmp_path / "1", a_record(), results={"smoke.json": b'{"a": 1}'})
    second = command_on(
        a_machine(), tmp_path / "2", a_record("nvidia", status="failed", error="exit code 1", facts={"turns": turns})
    )
    target = collect([first, second], tmp_path / "results")
    assert target == tmp_path / "results" / "h200" / "2026-11-22-1"
    assert (target / "smoke.json").read_bytes() == b'{"a": 1}'
    record = json.loads((target / "record.json").read_text())
    assert [one["steps"][0]["step"] for one in record] == ["smoke", "nvidia"]
    page = (target / "README.md").read_text()
    assert "| smoke | done | 12 | 1 | 1 | 0 |" in page
    assert "| a\\|b | at least 0 and at most 1 s | 0.5 s | as expected |" in page
    assert "exit code 1" in page
    assert "| script | 2 | 1.4500 |" in page
    assert "ehears" not in page
    with pytest.raises(Refused, match="there already"):
        collect([first, second], tmp_path / "results")


def test_folders_of_a_gpu_are_by_its_name_and_those_of_two_no_results(tmp_path: Path) -> None:
    one = command_on(a_machine(), tmp_path / "1", a_record())
    other = command_on(a_machine("NVIDIA B200"), tmp_path / "2", a_record())
    with pytest.raises(Refused, match="NVIDIA B200 GPU-1, NVIDIA H200 GPU-1"):
        collect([one, other], tmp_path / "results")
    with pytest.raises(Refused, match=RECORD):
        collect([tmp_path / "none"], tmp_path / "results")
    assert chip([{"machine": a_machine("NVIDIA GB10 (test)")}]) == "nvidia-gb10-test"
    assert chip([{"machine": a_machine("NVIDIA H100 80GB HBM3")}]) == "h100"


def test_a_rehearsal_is_not_put_beside_what_a_gpu_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = command_on(a_machine("Rehearsal (no GPU), like NVIDIA H200", True), tmp_path / "1", a_record())
    monkeypatch.chdir(tmp_path)
    assert collect_main([str(made)]) == 1
    assert "--into" in capsys.readouterr().err
    assert not (tmp_path / "benchmarks").exists()
    assert "no figure here is a measurement" in (collect([made], tmp_path / "elsewhere") / "README.md").read_text()


def test_the_command_keeps_a_failed_step_and_says_so_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(command: list[str], seconds: float, log: runs.Log) -> runs.Ended:
        log.line("no such device")
        return runs.Ended(1, 0.1, tuple(log.last))

    monkeypatch.setattr("benchmarks.first_day.__main__.run_process", fails)
    out = tmp_path / "out"
    assert main(["--step", "smoke", "--step", "nvidia", "--out", str(out)]) == 1
    told = json.loads((out / RECORD).read_text())
    assert [(one["step"], one["status"]) for one in told["steps"]] == [("smoke", "failed"), ("nvidia", "failed")]
    assert "no such device" in told["steps"][0]["error"]
    assert sorted(path.name for path in out.iterdir()) == [RECORD, "log.txt"]
    with pytest.raises(SystemExit):
        main(["--step", "smoke", "--out", str(out)])
    assert "results already" in capsys.readouterr().err


def test_a_command_says_what_to_give_and_options_reach_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (["--out", "x"], ["--step", "smoke"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert "--list" in capsys.readouterr().err
    asked = ["--recipe", "mxfp8", "--turns", "5", "--first-turn", "3"]
    assert running.worker_command(BY_NAME["nvidia"], 99.9, tmp_path, asked)[1:] == [
        "-m", "benchmarks.first_day.worker", "nvidia", "--work", str(tmp_path), "--seconds", "100", *asked
    ]  # fmt: skip


def test_a_notebook_is_whole_after_every_entry(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    assert read_notebook(path) == ({}, [])
    book = Notebook(path)
    book.fact("a", 1)
    assert read_notebook(path)[0] == {"a": 1}
    book.check(between("b", math.nan, 0, 1))
    assert [one["verdict"] for one in read_notebook(path)[1]] == ["not measured"]


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "as expected"), (1.0, "as expected"), (1.01, "differs"), (None, "not measured")]
)
def test_a_number_is_held_against_its_bounds(value: float | None, verdict: str) -> None:
    assert between("a", value, 0.5, 1.0).verdict == verdict
    assert between("a", value, -math.inf, 1.0).expected == "at most 1"


def test_slower_steps_after_a_profiler_and_cold_shares_are_seen() -> None:
    before = [1.0, 1.002, 0.999, 1.001, 1.0, 1.003, 0.998, 1.001]
    assert verdict("a", compared(before, [one * 1.001 for one in before])).verdict == "as expected"
    assert verdict("a", compared(before, [one * 1.15 for one in before])).verdict == "differs"
    one_late = [*before[:7], 3.0]
    assert compared(before, one_late)["ratio"] == pytest.approx(1.0, abs=0.003)
    assert verdict("a", compared(one_late, before)).verdict == "not measured"
    # FP8 current scaling on an H100, 1,980 against 1,425 MHz: some 7 %, and 2 % at a ratio of 1.10.
    cold = 0.78
    assert too_high(cold, hot_share(cold, 1.39)) == pytest.approx(0.07, abs=0.01)
    assert too_high(cold, hot_share(cold, 1.10)) == pytest.approx(0.02, abs=0.003)
    assert hot_share(cold, 1.0) == pytest.approx(cold)


def test_a_plain_user_has_no_name_home_or_compiler_and_needs_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    around = {"USER": "me", "LOGNAME": "me", "HOME": "/h", "CC": "cc", "PATH": "/bin", "NVTE_FUSED_ATTN": "0"}
    assert bare(around) == {"NVTE_FUSED_ATTN": "0", "PATH": "/nonexistent", "TMPDIR": "/tmp"}
    monkeypatch.setattr(os, "getuid", lambda: USER)
    assert [way.prefix for way in ways()] == [()]
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert ways()[0].user == USER


def test_outcomes_of_a_test_report_are_read_by_test(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure message="1 != 2">x</failure></testcase>'
        '<testcase name="c"><skipped message="no GPU"/></testcase></testsuite></testsuites>'
    )
    assert outcomes_of(report) == {"a": ("passed", ""), "b": ("failed", "1 != 2"), "c": ("skipped", "no GPU")}


def turn(script: float | None, method: float, blocks: float) -> dict[str, Any]:
    return {
        "script": None if script is None else {"speedup": script},
        "method": {"speedup": method},
        "blocks": {"speedup": blocks, "half_width": 0.002, "forward_speedup": blocks + 0.1},
    }


def test_spreads_of_the_turns_are_told_side_by_side_and_failures_left_out() -> None:
    found = spreads([turn(1.5, 1.5, 1.400), turn(1.6, 1.6, 1.402), turn(None, 1.55, 1.401)])
    assert found["script"]["turns"] == 2
    assert found["script"]["relative_spread"] == pytest.approx(0.0456, abs=1e-3)
    assert found["blocks"]["relative_spread"] == pytest.approx(0.0007, abs=1e-4)
    assert found["blocks, forward only"]["mean"] == pytest.approx(1.501)
    assert [one.verdict for one in checks_of(found)] == ["as expected"] * 3
    one = spreads([turn(1.5, 1.7, 1.4)])
    assert [check.verdict for check in checks_of(one)] == ["not measured", "not measured", "differs"]


def test_a_profile_is_held_against_the_plan_and_its_own_evidence() -> None:
    measured_result = result(recipes=(recipe_result("bf16"), recipe_result("fp8_current", 1.3)))
    told = {one.name: one for one in profile_checks(measured_result, {"preflight": 1.0, "idle": 3.0, "warm_up": 30.0})}
    assert told["seconds of phase preflight"].expected == "at least 0 and at most 5 s"
    assert told["seconds of phase warm_up"].verdict == "not measured"
    assert told["seconds of the run"].expected == "at least 0 and at most 42.5 s"
    assert {"bf16: the precision ran", "fp8_current: the precision ran"} <= set(told)
    assert own_call(measured_result.recipes[0]) is None
    assert forward_speedup(measured_result.model_copy(update={"recipes": ()}), "fp8_current") is None
