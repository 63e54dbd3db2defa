"""`check`: what each call answers by exit code and last line, and what must never become a Pass or a Fail."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from precision_agent.power.nvml import GpuReadings, identities
from precision_agent.power.preflight import Health
from precision_agent.run import check as program
from precision_agent.run.cli import app
from precision_api.acceptance.reference import sha256_of, text_of
from precision_api.acceptance.values import Verdict
from precision_api.exchange.result import Failure, Gpu, MeasurementResult, Training
from tests.support import golden_nodes
from tests.support.golden import beside
from tests.support.golden_nodes import GPUS, NONE_FAILS, golden_draft, gpu_names, hot, made, measured_node, with_verdict
from tests.support.result_objects import interval

TABLES = beside(__file__)

SEED, changed = 1, golden_nodes.changed
REFERENCE = golden_draft(SEED).model_copy(update={"resources": {"cpu": "4"}})
TEXT, ENDED = text_of(REFERENCE), "2099-11-01T10:00:00Z"
DRIVER = "580.95.05"
PLAIN, BAD = measured_node("new", SEED), measured_node("new", SEED, gpu_off=-9.0)
Runs = Iterator[MeasurementResult | Verdict | int]


class Machine:
    """Runs that end as they are told; `boot` is the present one."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder, self.patch, self.ran = folder, patch, 0
        self.state = "--state", str(folder / "state")
        self.runs: list[MeasurementResult | Verdict | int] = []
        self.file = folder / "reference.json"
        self.file.write_text(TEXT)
        self.sees(*gpu_names("new"))
        patch.setattr(program.Call, "_run", self.run)
        patch.setattr(program.preflight, "read_health", lambda uuids: (self.ill,) if self.ill else ())
        self.ill: Health | None = None
        patch.setenv("PRECISION_TERMINATION_LOG", str(folder / "message"))

    def sees(self, *uuids: str) -> None:
        """The GPUs that NVML shows."""
        gpus = tuple(Gpu(uuid=uuid, name="NVIDIA H100 80GB HBM3", enforced_limit_watts=700) for uuid in uuids)
        self.seen(GpuReadings(gpus, DRIVER, None if gpus else Failure(reason="nvml_unavailable")))

    def seen(self, reading: GpuReadings) -> None:
        self.patch.setattr(program.nvml, "read", lambda: reading)

    def run(self, number: int) -> MeasurementResult | Verdict:
        self.ran += 1
        end = self.runs[min(self.ran, len(self.runs)) - 1]
        if isinstance(end, int):
            raise typer.Exit(end)
        return end

    def check(self, *words: str, runs: tuple[MeasurementResult | Verdict | int, ...] = ()) -> Result:
        self.runs, self.ran = list(runs or self.runs), 0
        return CliRunner().invoke(app, ["check", "--reference", str(self.file), *words])

    def kept_as(self, **fields: Any) -> None:
        """Changes what the kept runs say of themselves."""
        (file,) = (self.folder / "state").iterdir()
        file.write_text(json.dumps([row | fields for row in json.loads(file.read_text())]) if fields else "{")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def last(done: Result) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def test_a_sound_node_passes_by_one_run(machine: Machine) -> None:
    machine.sees()
    done = machine.check("--reference-sha256", f"sha256:{sha256_of(TEXT).upper()}", runs=(PLAIN,))
    line = last(done)
    assert (done.exit_code, machine.ran, line["verdict"], line["memoryless"]) == (0, 1, "Pass", True)
    assert (line["reference"], line["subject"]["gpus"]) == (sha256_of(TEXT), list(gpu_names("new")))
    assert (line["subject"]["driver"], line["subject"]["watts"]) == ("580.95.05", [700.0] * GPUS)
    assert json.loads((machine.folder / "message").read_text()) == line
    machine.file.write_text(TEXT.replace('"split":{}', '"split":{"cooling":"water"}'))
    for split, code in (("", 31), ("cooling=air", 31), ("cooling=water", 0)):
        told = (done := machine.check("--split", split)).stderr
        assert (done.exit_code, f"--split is '{split}', the reference's 'cooling=water'" in told) == (code, code > 0)


def test_a_slow_gpu_fails_by_two_runs_and_leaves_evidence(machine: Machine) -> None:
    machine.patch.setattr(program, "NODE", "n" * 253)
    done, _ = (machine.check("--evidence", str(machine.folder / "kept"), "-o", "json", runs=(BAD,)) for _ in range(2))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, machine.ran, lines[-1]["reason"]) == (30, 2, "TooSlow")
    assert (lines[0]["outcome"], lines[0]["gpu"], lines[0]["check"]) == ("Fail", gpu_names("new")[0], "node")
    assert lines[-1]["failing"] == [lines[0]]
    file, _ = (machine.folder / "kept").glob(f"*-{200 * 'n'}.json")
    kept = json.loads(file.read_text())
    assert ([row["run"] for row in kept["results"]], len(kept["checks"])) == (["r1", "r1"], GPUS + 1)
    assert machine.check(runs=(BAD,)).stdout.startswith(f"GPU {gpu_names('new')[0]} is -")


def test_the_last_line_fits_a_message_however_much_fails(machine: Machine) -> None:
    rates = {gpu: 700 * 0.7**at for at, gpu in enumerate(gpu_names("new"))}
    training = Training(tokens_per_second=interval(1), tokens_per_second_by_gpu=rates)
    done = machine.check(runs=(golden_nodes.with_rows(PLAIN, training=training),))
    assert (done.exit_code, len(done.stdout.splitlines()[-1]) <= 2048) == (30, True)


FAST = Training(tokens_per_second=interval(1e300), tokens_per_second_by_gpu=dict.fromkeys(gpu_names("new"), 1e300))
FULL = Training(failure=Failure(reason="out_of_memory"))
SPOILED: Mapping[str, tuple[str, MeasurementResult]] = {
    **{reason: (reason, spoil(BAD)) for reason, spoil in NONE_FAILS.items()},
    "out of memory": ("NotMeasured", golden_nodes.with_rows(BAD, training=FULL)),
    "rates of other GPUs": ("NotMeasured", PLAIN.model_copy(update={"gpus": measured_node("other", SEED).gpus})),
    "faster than can be": ("NotMeasured", golden_nodes.with_rows(PLAIN, training=FAST)),
    "heat": ("Throttled", hot(PLAIN)),
    "a limit": ("OtherKey", golden_nodes.capped(BAD)),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_no_measurement_of_the_gpus_is_inconclusive_and_not_remembered(machine: Machine, name: str) -> None:
    reason, result = SPOILED[name]
    for _ in range(3):
        spoiled = machine.check(*machine.state, runs=(result,))
        assert (spoiled.exit_code, last(spoiled)["reason"], machine.ran) == (31, reason, 1)
        assert not any((machine.folder / "state").iterdir())
    assert machine.check(*machine.state, runs=(PLAIN,)).exit_code == 0


def both(result: MeasurementResult, verdict: str = "verified") -> MeasurementResult:
    """The same speeds with two recipes, of which the second says something else of its kernels."""
    second = with_verdict(result, verdict).recipes[0].model_copy(update={"recipe": "mxfp8"})
    return result.model_copy(update={"recipes": (*result.recipes, second)})


def test_trouble_with_a_recipe_hides_no_other_ones_runs(machine: Machine) -> None:
    golden = {f"n{at}": both(measured_node(f"n{at}", SEED)) for at in range(8)}
    machine.file.write_text(text_of(made(golden, {})[0]))
    done = machine.check(*machine.state, runs=(both(BAD, "fallback"),))
    assert (done.exit_code, last(done)["reason"], machine.ran) == (30, "TooSlow", 2), "though the node can't pass"
    for words, ran in ((("--recipes", "bf16"), 1), (("--recipes", "bf16"), 0), ((), 0)):
        done = machine.check(*machine.state, *words, runs=(both(PLAIN, "fallback"),))
        assert (done.exit_code, machine.ran) == (30, ran)
    done = last(machine.check("--recipes", "mxfp8", *machine.state, runs=(both(PLAIN),)))
    assert (done["verdict"], done["recipes"]) == ("Pass", ["mxfp8"])
    rows = (both(BAD).recipes[0], hot(both(BAD)).recipes[1])
    for run, ran in ((BAD.model_copy(update={"recipes": rows}), 2), (both(PLAIN), 1)):
        done = machine.check("--recipes", "bf16", "--state", str(machine.folder / "beside"), runs=(run,))
        assert (done.exit_code, machine.ran) == (30, ran), "by heat with a recipe that nobody judges"


def test_a_reference_that_was_replaced_is_old_or_of_other_gpus_is_inconclusive_before_a_run(machine: Machine) -> None:
    replaced = machine.check("--reference-sha256", "0" * 64, runs=(PLAIN,))
    assert (replaced.exit_code, last(replaced)["reason"]) == (31, "ReferenceReplaced")
    for option in ("--reference-sha256", "--state", "--evidence"):
        assert machine.check(option, "").exit_code == 2
    for shown, visible in ((7, "0,1,2,3,4,5,6,7"), (8, "")):
        machine.sees(*gpu_names("new")[:shown])
        machine.patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert last(machine.check())["reason"] == "OtherGPUs"
    machine.file.write_text(TEXT.replace(ENDED, "2026-01-01T00:00:00Z", 1))
    assert last(machine.check())["reason"] == "ReferenceTooOld"
    assert machine.ran == 0


@pytest.mark.parametrize(("given", "files", "shown", "node", "reason"), TABLES["parts_of_nodes"])
def test_a_part_of_a_node_is_refused_or_skipped_but_no_smaller_one_nor_one_that_lost_a_gpu(
    machine: Machine, given: str, files: int, shown: int, node: int, reason: str
) -> None:
    for name in ("nvidiactl", *(f"nvidia{at}" for at in range(files)), *(f"0000:{at}:00.0" for at in range(node))):
        (machine.folder / name).touch()
    for where in ("DEVICES", "OF_NODE"):
        machine.patch.setattr(program, where, machine.folder)
    machine.patch.setenv("NVIDIA_VISIBLE_DEVICES", given)
    machine.sees(*gpu_names("new")[:shown])
    for option, skips in (("refuse", False), ("skip", reason == "PartialNode")):
        done = machine.check("--partial", option)
        answer = (0, "Skipped") if skips else (31, "Inconclusive")
        assert (done.exit_code, last(done)["verdict"], last(done)["reason"]) == (*answer, reason)
    machine.sees(*gpu_names("new"))
    assert (machine.check("--partial", "skip", runs=(PLAIN,)).exit_code, machine.ran) == (0, 1), "NVML shows all"


@pytest.mark.parametrize(("ill", "code", "reason"), TABLES["broken_gpus"])
def test_a_gpu_that_a_run_broke_is_seen_after_it(machine: Machine, ill: dict[str, Any], code: int, reason: str) -> None:
    machine.ill = Health(gpu_names("new")[0], **ill)
    done = machine.check("--evidence", str(machine.folder / "kept"), runs=(PLAIN,))
    assert (done.exit_code, last(done)["reason"], machine.ran) == (code, reason, 1)
    machine.patch.setattr(program.nvml, "read", iter([GpuReadings(), GpuReadings(PLAIN.gpus, DRIVER)]).__next__)
    assert last(machine.check())["reason"] == reason, "though NVML showed nothing before the run"
    (file,) = (machine.folder / "kept").iterdir()
    assert len(json.loads(file.read_text())["results"]) == 1


@pytest.mark.parametrize("code", [1, 2, 10, 16, 137, 143])
def test_a_crash_is_no_verdict_and_has_no_last_line(machine: Machine, code: int) -> None:
    done = machine.check(runs=(code,))
    assert (done.exit_code, done.stdout) == (code, "")


def test_season_heat_and_recipes_come_from_the_command_line(machine: Machine) -> None:
    for shift, reason in (("-4", "ReferenceDrifted"), ("-0.94", "ReferenceDrifted"), ("0.94", "WithinLimits")):
        assert last(machine.check("--shift", shift, runs=(PLAIN,)))["reason"] == reason
    assert last(machine.check(runs=(hot(PLAIN),)))["reason"] == "Throttled"
    assert last(machine.check(runs=(hot(BAD),)))["verdict"] == "Fail"
    assert [machine.check("--recipes", recipe).exit_code for recipe in ("bf16", "mxfp8")] == [30, 2]
    for seen in (GpuReadings(PLAIN.gpus), GpuReadings(driver=DRIVER), BROKEN):
        machine.seen(seen)
        assert machine.check("--accept-simulated").exit_code == 2
    machine.sees()
    assert machine.check("--shift", "nan").exit_code == 2
    machine.patch.setattr(program, "DRIVER", machine.file)
    assert machine.check("--accept-simulated").exit_code == 2
    assert "had: cpu 4, /dev/shm 8Gi" in machine.check("--plan").stdout
    assert json.loads(machine.check("--plan", "-o", "json").stdout)["resources"] == {"cpu": "4", "/dev/shm": "8Gi"}
    assert machine.ran == 0


def test_retries_add_to_the_average_and_are_repeated_after_three(machine: Machine) -> None:
    """20 calls of a GPU that did not pass in three runs: whatever it would show now, it is not asked."""
    assert machine.check(*machine.state, runs=(BAD,)).exit_code == 30
    for call in range(20):
        done = machine.check(*machine.state, runs=(PLAIN,))
        assert (done.exit_code, machine.ran) == ((30, 1) if call == 0 else (30, 0)), call
    assert last(done)["subject"].items() >= {"driver": DRIVER, "stackHash": PLAIN.software.stack_hash}.items()
    machine.file.write_text(text_of(REFERENCE.model_copy(update={"made_by": "another"})))
    machine.sees(*gpu_names("other"))
    assert machine.check(*machine.state, runs=(measured_node("other", SEED),)).exit_code == 0
    machine.sees(*gpu_names("new"))
    assert (machine.check(*machine.state).exit_code, machine.ran) == (30, 0), "by any reference of the key"


ROUNDS_ALIKE = changed(PLAIN, 'limit_watts":700.0', 'limit_watts":700.01')
OTHER = changed(PLAIN, gpu_names("new")[7], "GPU-other")
WARMER = measured_node("new", SEED, off=-2.5)
SOUND, SLOW = (changed(result, gpu_names("new")[0], "GPU-other") for result in (WARMER, BAD))
UNSEEN, BROKEN = (GpuReadings(failure=Failure(reason=why)) for why in ("nvml_unavailable", "nvml_failed"))
LATER: Mapping[str, tuple[GpuReadings, MeasurementResult | Verdict, str, int]] = {
    "a power limit that rounds alike": (GpuReadings(ROUNDS_ALIKE.gpus, DRIVER), ROUNDS_ALIKE, "TooSlow", 0),
    "our own version": (GpuReadings(PLAIN.gpus, DRIVER), PLAIN, "TooSlow", 0),
    "NVML shows nothing": (UNSEEN, PLAIN, "TooSlow", 5),
    "another GPU is swapped": (GpuReadings(OTHER.gpus, DRIVER), OTHER, "TooSlow", 1),
    "the slow GPU is swapped": (GpuReadings(SOUND.gpus, DRIVER), SOUND, "WithinLimits", 5),
    "for a slow one": (GpuReadings(SLOW.gpus, DRIVER), SLOW, "TooSlow", 3),
    "NVML is broken": (BROKEN, Verdict("Inconclusive", "Busy"), "Busy", 5),
    "another driver": (GpuReadings(BAD.gpus, "590.10"), NONE_FAILS["OtherKey"](BAD), "OtherKey", 5),
}


@pytest.mark.parametrize("name", LATER)
def test_a_fail_is_kept_by_key_and_gpu_whatever_else_changes(machine: Machine, name: str) -> None:
    seen, run, reason, runs = LATER[name]
    for _ in range(2):
        assert machine.check(*machine.state, runs=(BAD,)).exit_code == 30
    machine.seen(seen)
    machine.patch.setattr("importlib.metadata.distributions", lambda: ())
    for _ in range(5):
        assert last(machine.check(*machine.state, runs=(run,)))["reason"] == reason
        runs -= machine.ran
    machine.sees(*gpu_names("new"))
    assert (machine.check(*machine.state, runs=(PLAIN,)).exit_code, machine.ran, runs) == (30, 0, 0)


UNREAD: dict[str, dict[str, Any]] = {
    "no number": {"at": "x"}, "broken": {}, "no figure": {"speeds": {"bf16/verified/None": {}}},
    "no speed": {"speeds": {"bf16/verified/None": dict.fromkeys(gpu_names("new"), 1e308)}},
}  # fmt: skip
AGES = UNREAD | {"old": {"at": 0.0, "boot": ""}, "future": {"at": 4e9, "boot": ""}}


@pytest.mark.parametrize("name", AGES)
def test_what_is_kept_counts_for_a_day_and_must_be_readable(machine: Machine, name: str) -> None:
    assert machine.check(*machine.state, runs=(BAD,)).exit_code == 30
    machine.kept_as(**AGES[name])
    done = machine.check(*machine.state, runs=(PLAIN,))
    assert (done.exit_code, "can't be read" in done.stderr) == (0, name in UNREAD)
    assert last(done)["memoryless"] is (name in UNREAD or name == "future")
    assert len([*(machine.folder / "state").glob("*.unread")]) == (name in UNREAD)
    assert ("24 h away by this clock" in done.stderr) == (name in ("old", "future"))
    for fields in ({"at": time.time()}, {"at": 4e9, "boot": program._boot()[0]}) * (name in ("old", "future")):
        machine.kept_as(**fields)
        assert machine.check(*machine.state).exit_code == 30, "the clock was wrong"


def test_a_check_beside_another_on_one_folder_measures_nothing(machine: Machine) -> None:
    call, beside = ["check", "--reference", str(machine.file), "--state", str(machine.folder)], list[Result]()

    def run(*_: Any) -> MeasurementResult:
        beside.append(CliRunner().invoke(app, call))
        return PLAIN

    machine.patch.setattr(program.Call, "_run", run)
    assert (CliRunner().invoke(app, call).exit_code, len(beside)) == (0, 1)
    assert (beside[0].exit_code, last(beside[0])["reason"]) == (31, "CheckRunning")


def test_a_pass_is_never_repeated_without_a_run(machine: Machine) -> None:
    for _ in range(5):
        assert (machine.check(*machine.state, runs=(PLAIN,)).exit_code, machine.ran) == (0, 1)
    assert last(machine.check(*machine.state, runs=(hot(PLAIN),)))["reason"] == "Throttled"
    assert machine.check(*machine.state, runs=(BAD,)).exit_code == 30, "though two of three runs are good at first"
    assert machine.check(*machine.state, runs=(PLAIN,)).exit_code == 30


def test_a_full_disk_gives_a_verdict_all_the_same(machine: Machine) -> None:
    (machine.folder / "file").write_text("")
    below = str(machine.folder / "file" / "below")
    done = machine.check("--state", below, "--evidence", below, runs=(PLAIN,))
    assert (done.exit_code, last(done)["memoryless"], last(done)["evidence"]) == (0, True, False)
    assert (done.stderr.count("precision-agent: keeping "), "can't be locked" in done.stderr) == (2, True)


@pytest.mark.parametrize("source", ["env:NO_SUCH", "/nowhere", "env:PATH", "env:LARGE", "env:UNDATED"])
def test_a_reference_that_cannot_be_read_is_a_wrong_command_line(machine: Machine, source: str) -> None:
    machine.patch.setenv("LARGE", text_of(golden_draft(SEED, nodes=65)))
    machine.patch.setenv("UNDATED", TEXT.replace(ENDED, "yesterday", 1))
    done = CliRunner().invoke(app, ["check", "--reference", source])
    assert (done.exit_code, done.stdout) == (2, "")


CHILD = TABLES["child"]


@pytest.mark.parametrize("name", CHILD)
def test_how_a_run_ends_decides_what_is_said(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, message, exit_code, reason = CHILD[name]
    (tmp_path / "reference.json").write_text(TEXT)
    script = tmp_path / "agent"
    end = f"exit {code}" if code >= 0 else f"kill {code} $$"
    script.write_text(f"#!/bin/sh\necho '{message}' > $PRECISION_TERMINATION_LOG\necho noise\n{end}\n")
    script.chmod(0o755)
    monkeypatch.setattr(program.sys, "executable", str(script))
    done = CliRunner().invoke(app, ["check", "--reference", str(tmp_path / "reference.json")])
    assert done.exit_code == exit_code, done.stderr
    assert (last(done)["reason"] if done.stdout else "") == reason


def test_a_check_that_is_killed_leaves_no_run_behind(tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text(TEXT)
    os.mkfifo(fifo := tmp_path / "fifo")
    (script := tmp_path / "agent").write_text(f"#!/bin/sh\nexec 3>{fifo}\necho >&3\nsleep 5 3>&-\necho alive >&3\n")
    script.chmod(0o755)
    code = f"import sys; from precision_agent.run.cli import app; sys.executable = {str(script)!r}; app()"
    call = [sys.executable, "-c", code, "check", "--reference", str(tmp_path / "reference.json")]
    with subprocess.Popen(call) as process, fifo.open() as run:
        assert run.readline() == "\n"
        process.kill()
        assert run.read() == ""


def test_a_replayed_node_is_checked_in_a_process_of_its_own_through_the_labs_door_alone(tmp_path: Path) -> None:
    made = golden_nodes.replayed_draft(recipes=("bf16",), gpus=4, gemm_modes=("autocast",))
    (file := tmp_path / "reference.json").write_text(text_of(made))
    call = ["check", "--reference", str(file), "--backend", "replay", "--replay-seed", "77"]
    shut = CliRunner().invoke(app, call)
    assert (shut.exit_code, last(shut)["reason"]) == (31, "Simulated")
    assert CliRunner().invoke(app, [*call, "--accept-simulated"]).exit_code == 0
    slow = CliRunner().invoke(app, [*call, "--accept-simulated", "--replay-fault", "slow_gpu"])
    assert (slow.exit_code, last(slow)["failing"][0]["check"]) == (30, "node")


class Nvml:
    """One GPU, in the words of older bindings; it knows its serial, its address and how hot it is."""

    NVMLError = RuntimeError
    TOLD: Mapping[str, Any] = {
        "nvmlDeviceGetCount": 1, "nvmlDeviceGetSerial": b"165", "nvmlDeviceGetTemperature": 41,
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"0000:19:00.0"), "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
        "nvmlInit": None, "nvmlDeviceGetHandleByIndex": "handle",
    }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        def asked(*arguments: Any) -> Any:
            if name not in self.TOLD:
                raise RuntimeError("not supported")
            return self.TOLD[name]

        return asked


def test_evidence_has_what_a_vendor_asks_for_as_json() -> None:
    (row,) = json.loads(json.dumps(identities(Nvml())))
    assert {name: value for name, value in row.items() if value is not None} == {
        "serial": "165", "pci": "0000:19:00.0", "celsius": 41, "remappedRows": [0, 0, 0, 0],
    }  # fmt: skip
    assert identities() == [], "without a driver nobody is asked"
