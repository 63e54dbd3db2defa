"""The program as the kubelet starts it: its own process, its environment, its exit code.

It runs too as a user whom /etc/passwd does not name, as containers start it.
"""

import getpass
import json
import os
import pwd
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from precision_agent.run import cli
from precision_agent.run.cli import app, settle_user
from precision_agent.run.publish import TERMINATION_LOG_ENV, verdict_text
from precision_api.exchange.request import Timing
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import AgentRefused, WireError, agree, read_log, read_message
from precision_api.facts.names import REQUEST_ENV
from precision_api.models.shapes import Shape
from precision_api.models.workload import Workload
from tests.support.eventually import eventually
from tests.support.golden import beside
from tests.support.result_objects import hash_of, request_text

TABLES = beside(__file__)

AGENT = [sys.executable, "-m", "precision_agent"]
ON_CPU = {
    "product": "CPU",
    "gpus": 1,
    "recipes": ("bf16", "fp8_current", "mxfp8"),
    "workload": Workload(name="tiny", shapes=(Shape(m=64, k=128, n=96),)),
    "timing": Timing(passes=2, segment_seconds=0.02, discard_seconds=0.01),
}
MINE = pwd.struct_passwd(("me", "x", 1000, 1000, "", "/nowhere/home", "/bin/sh"))


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    # One thread: the cores are shared with other tests, and OpenMP threads that wait for each other crawl.
    return os.environ | {TERMINATION_LOG_ENV: str(tmp_path / "message"), "OMP_NUM_THREADS": "1"} | more


def run(tmp_path: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*AGENT, *arguments], capture_output=True, env=environment(tmp_path, **more), timeout=120, check=False
    )


def called(*arguments: str, **environment: str) -> Result:
    """The same program in this process: for what is not about the process. The devices have processes all the same."""
    return CliRunner(env=environment).invoke(app, list(arguments))


def refused(tmp_path: Path) -> AgentRefused:
    with pytest.raises(AgentRefused) as caught:
        read_message((tmp_path / "message").read_bytes())
    return caught.value


def test_a_replay_by_environment_publishes_message_and_log_and_never_imports_torch(tmp_path: Path) -> None:
    around = {REQUEST_ENV: request_text(), "PYTHONPROFILEIMPORTTIME": "1"}
    ran = run(tmp_path, "run", "--backend", "replay", **around)
    assert ran.returncode == 0, ran.stderr
    summary = read_message((tmp_path / "message").read_bytes(), hash_of())
    result = read_log(ran.stderr + ran.stdout, summary.detail, hash_of())
    agree(summary, result)
    assert result.provenance == "simulated"
    imported = [line.split(b"|")[-1].strip() for line in ran.stderr.splitlines() if line.startswith(b"import time:")]
    assert b"precision_agent.backends.replay" in imported
    assert not [name for name in imported if name.partition(b".")[0] == b"torch"]


def test_a_request_from_a_file_goes_to_a_file_and_nvidias_method_is_repeated_and_marked(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(request_text())
    out = tmp_path / "out.json"
    arguments = ["--request", str(tmp_path / "request.json"), "--output", str(out), "--no-lines"]
    ran = called("run", "--backend", "replay", *arguments)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert MeasurementResult.model_validate_json(out.read_bytes()).request_hash == hash_of()
    ran = called("run", "--backend", "replay", "--method", "nvidia", "--repeats", "2", *arguments)
    assert ran.exit_code == 0, ran.stderr
    result = MeasurementResult.model_validate_json(out.read_bytes())
    assert (result.method, result.recommendation.by_speed) == ("nvidia", None)
    assert "by NVIDIA's method" in verdict_text(result)


@pytest.mark.parametrize(
    ("arguments", "words"), [([], f"${REQUEST_ENV} is not set"), (["--request", "/nowhere.json"], "nowhere.json")]
)
def test_without_a_request_the_program_says_what_to_do(tmp_path: Path, arguments: list[str], words: str) -> None:
    around = {REQUEST_ENV: "", TERMINATION_LOG_ENV: str(tmp_path / "message")}
    assert called("run", "--backend", "replay", *arguments, **around).exit_code == 10
    assert words in refused(tmp_path).message


def test_a_message_that_can_not_be_written_has_its_own_code(tmp_path: Path) -> None:
    more = {REQUEST_ENV: request_text(gpus=1), TERMINATION_LOG_ENV: str(tmp_path)}
    ran = called("run", "--backend", "replay", **more)
    assert ran.exit_code == 16
    assert "publishing the result" in ran.stderr


def test_a_crash_is_told_in_the_message_and_traced_in_the_log(tmp_path: Path) -> None:
    # so slow that the seconds of all its GEMMs together are infinite, which no result may hold
    large = request_text(workload=Workload(preset="llama3.1-405b"))
    ran = run(tmp_path, "run", "--backend", "replay", "--replay-scale", "6e-309", **{REQUEST_ENV: large})
    assert ran.returncode == 1
    assert refused(tmp_path).reason == "AgentCrashed"
    assert b"Traceback" in ran.stderr


def test_help_shows_the_options_and_a_local_replay_is_of_the_named_product() -> None:
    ran = called("run", "--help")
    assert ran.exit_code == 0
    assert "--replay-scale" in ran.stdout
    for product, recipe, name in (("GB200", "mxfp8", "GB200"), ("NVIDIA-H200-NVL", "fp8_current", "H200 NVL")):
        asked = ("--product", product, "--gpus", "2", "--preset", "llama3-8b", "--recipe", recipe, "--no-training")
        ran = called("run", "--local", "--backend", "replay", *asked)
        assert ran.exit_code == 0, ran.stderr
        assert ran.stdout.startswith(f"llama3-8b on 2 x NVIDIA {name}: replay, simulated")


@pytest.mark.torch
def test_a_cpu_run_with_real_torch_gives_intervals_memory_and_the_same_schema(tmp_path: Path) -> None:
    around = {REQUEST_ENV: request_text(**ON_CPU), TERMINATION_LOG_ENV: str(tmp_path / "message")}
    ran = called("run", "--backend", "torch", **around)
    assert ran.exit_code == 0, ran.stderr
    summary = read_message((tmp_path / "message").read_bytes())
    result = read_log(ran.stdout_bytes, summary.detail, hash_of(**ON_CPU))
    assert (result.backend, result.provenance, result.product, result.gpus) == ("torch-cpu", "trial", "CPU", ())
    bf16, fp8, mxfp8 = result.recipes
    for found in (bf16, fp8):
        assert found.verification.verdict == "unknown"
        assert [gemm.pass_ for gemm in found.gemms] == ["fprop", "dgrad", "wgrad"] * 2
        assert all(gemm.seconds and gemm.seconds.n == 2 and gemm.seconds.value > 0 for gemm in found.gemms)
        assert found.memory.process_peak_bytes
        assert found.memory.process_peak_bytes > 50 * 1024 * 1024
    assert fp8.sums[0].speedup is not None
    assert mxfp8.availability == "unsupported"
    assert "Transformer Engine" in mxfp8.availability_reason
    assert result.control_ratio is not None


def test_sigterm_leaves_the_complete_abba_blocks_as_a_partial_result(tmp_path: Path) -> None:
    """Of a replay, which takes a minute and more at this pace; Ctrl-C, below, finds a device at work in its process."""
    asked = {"gpus": 1, "timing": Timing(passes=64, segment_seconds=3.0, discard_seconds=0.0)}
    with subprocess.Popen(
        [*AGENT, "run", "--backend", "replay", "--replay-pace", "0.01"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, **{REQUEST_ENV: request_text(**asked)}),
    ) as process:
        assert process.stderr is not None
        first = next(line for line in process.stderr if b"palindromes were complete" in line)
        assert b"2 palindromes" in first
        eventually(lambda: is_unfinished(tmp_path / "message"))
        process.send_signal(signal.SIGTERM)
        log, lines = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"ends early: the agent was told to stop" in lines
    summary = read_message((tmp_path / "message").read_bytes())
    assert summary.partial == "terminated: the agent was told to stop"
    seconds = read_log(log, summary.detail, hash_of(**asked)).recipes[0].sums[0].seconds
    assert 2 <= seconds.n < 64


def is_unfinished(message: Path) -> bool:
    """Whether the message of an agent at work, which writes it anew with each palindrome, says so."""
    with suppress(WireError):
        partial = read_message(message.read_bytes()).partial or ""
        found = re.fullmatch(r"unfinished: (\d+) palindromes were complete", partial)
        return found is not None and int(found[1]) >= 2
    return False


ON_THIS_CPU = ["run", "--local", "--device", "cpu", "--shape", "64x128x96"]


def test_a_gpu_that_is_not_here_and_a_wrong_preset_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = called("run", "--local", "--preset", "llama3-8b", "--gpu", "GPU-nowhere")
    assert (ran.exit_code, ran.stdout) == (12, "")
    assert "DeviceMissing: " in ran.stderr
    assert "--device cpu" in ran.stderr or "there is no such GPU here; give one of" in ran.stderr
    looked: list[str] = []
    monkeypatch.setattr("precision_agent.run.cli_run._seen", lambda: looked.append("GPUs"))
    ran = called("run", "--local", "--preset", "nosuch")
    assert (ran.exit_code, looked) == (10, [])
    assert "InvalidRequest: preset: " in ran.stderr


@pytest.mark.parametrize(("arguments", "words"), TABLES["wrong_local_runs"])
def test_a_wrong_local_run_says_what_to_do_next(arguments: list[str], words: str) -> None:
    ran = called("run", "--local", "--device", "cpu", *arguments)
    assert (ran.exit_code, ran.stdout) == (10, "")
    assert words in ran.stderr


def test_a_plan_is_told_without_measuring_a_gpu_or_the_word_local(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(request_text())
    from_request = called("run", "--plan", "--request", str(tmp_path / "request.json"))
    assert from_request.exit_code == 0
    assert from_request.stdout.splitlines()[0].split() == ["PHASE", "SECONDS", "TIMED", "WHY"]
    assert json.loads(called(*ON_THIS_CPU, "--plan", "-o", "json").stdout)["phases"][0]["phase"] == "preflight"
    asked = ["--preset", "llama3-8b", "--recipe", "bf16,fp8_delayed,fp8_current,mxfp8,nvfp4"]
    for arguments in (["--plan", *asked], ["--plan", "--local", *asked]):
        ran = called("run", *arguments)
        assert ran.exit_code == 0, ran.stderr
        assert "5 recipes" in ran.stdout
        assert "power windows" in ran.stdout, "a GPU's plan"


def test_a_plan_says_whether_a_layer_fits_before_anything_runs() -> None:
    """Of a product that is not here by the memory that its vendor prints; of experts also where they fit."""
    asked = ("--recipe", "fp8_current", "--baseline", "mxfp8", "--mixture", "ours:mlp=fp8_current,head=mxfp8")
    mixed = called("run", "--plan", "--product", "B200", "--preset", "kimi-k2", *asked).stderr
    assert "this is for one B200 GPU with mxfp8, fp8_current, ours\n" in mixed
    assert "(mxfp8, fp8_current, ours: " in mixed
    whole = called("run", "--plan", "--product", "H100", "--preset", "kimi-k2")
    assert (
        "H100: one layer with 384 experts on each GPU beside a dense one does not fit with all recipes at once (bf16, "
        in whole.stderr
    )
    spread = called("run", "--plan", "--product", "GB200", "--preset", "kimi-k2", "--expert-parallel", "32")
    assert (
        "GB200: one layer with 12 experts on each GPU beside a dense one fits with all recipes at once" in spread.stderr
    )
    assert "one layer" not in called("run", "--plan", "--product", "H100", "--preset", "llama3-8b").stderr


@pytest.mark.parametrize(("product", "variants"), [("GB200", 6), ("H100", 5), ("NVIDIA-H100-80GB-HBM3", 5)])
def test_gpu_minutes_are_planned_for_a_product_that_is_not_here(product: str, variants: int) -> None:
    ran = called("run", "--plan", "--product", product, "--gpus", "4", "--preset", "llama3-8b")
    assert ran.exit_code == 0, ran.stderr
    assert f"{variants} arms" in ran.stdout, "as many as the product has recipes, and a control"


@pytest.mark.parametrize(("arguments", "words"), TABLES["unused_options"])
def test_no_option_is_ignored_in_silence(arguments: list[str], words: str) -> None:
    ran = called("run", *arguments)
    assert ran.exit_code == 10
    assert words in ran.stderr


@pytest.mark.torch
def test_a_local_trial_ends_with_a_verdict_and_keeps_the_result(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    message = tmp_path / "message"
    timed = ["--segment-seconds", "0.02", "--output", str(out)]
    ran = called(*ON_THIS_CPU, *timed, **{TERMINATION_LOG_ENV: str(message)})
    assert ran.exit_code == 0, ran.stderr
    assert not message.exists(), "there is no kubelet to read it"
    assert "A trial on the CPU: these figures say nothing of a GPU." in ran.stdout
    assert "PPR1" not in ran.stdout
    assert "measuring, about" in ran.stderr
    assert f"explain {out}" in ran.stderr
    explained = called("explain", str(out))
    assert "bf16's seconds over these, paired within each of 4 palindromes" in " ".join(explained.stdout.split())
    rows = json.loads(called("explain", str(out), "-o", "json").stdout)
    assert {"of", "figure", "value", "source"} == set(rows[0])


@pytest.mark.torch
def test_ctrl_c_leaves_what_is_complete_marked_as_partial(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["--timing", "standard", "--segment-seconds", "0.05", "--output", str(out), "-o", "json"]
    with subprocess.Popen(
        [*AGENT, *ON_THIS_CPU, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        start_new_session=True,
    ) as process:
        eventually(out.exists, 240)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        shown, told = process.communicate(timeout=180)
    assert process.returncode == 0, told
    assert b"what is complete is kept" in told
    result = MeasurementResult.model_validate_json(shown)
    assert result == MeasurementResult.model_validate_json(out.read_bytes())
    assert result.partial.reason == "terminated"
    assert 2 <= result.recipes[0].sums[0].seconds.n < 12


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "reading the result"),
        (b"{}", "is no result of version 1"),
        (b"not json", "is no result of version 1"),
        (b"\xff\xfe", "is not text"),
        (b'{"recipes":[' + b"{}," * 20_000 + b"{}]}", "it has too many elements, or too many of them are wrong"),
    ],
)
def test_explain_says_which_file_it_wants(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "result.json"
    if content is not None:
        file.write_bytes(content)
    ran = called("explain", str(file))
    assert ran.exit_code == 2
    # typer breaks lines into a box: words are compared without it
    plain = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert words in plain
    assert "precision-agent run --output FILE" in plain


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user ID without an entry, and an environment that says nothing of it."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_user_without_an_entry_has_a_name_and_a_home_that_can_be_written(nobody: None) -> None:
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    settle_user(os.environ)
    assert getpass.getuser() == "precision"
    assert os.environ["USER"] == os.environ["LOGNAME"] == "precision"
    assert os.access(Path.home(), os.W_OK)


def test_the_program_settles_its_user_first_also_where_home_cannot_be_written(
    nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(cli, "app", lambda: told.append(getpass.getuser()))
    cli.main()
    assert told == ["precision"]
    environment = {"HOME": "/"}
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/")  # as it is for whoever is not root
    settle_user(environment)
    assert environment["HOME"] != "/"


@pytest.mark.parametrize("home", ["", "/nowhere", __file__], ids=["none", "missing", "a file"])
def test_a_home_that_is_of_no_use_gives_way(home: str, nobody: None) -> None:
    environment = {"HOME": home, "USER": "given", "LOGNAME": ""}
    settle_user(environment)
    assert (environment["USER"], environment["LOGNAME"]) == ("given", "precision")
    assert Path(environment["HOME"]).is_dir()
    assert environment["HOME"] != home
    (Path(environment["HOME"]) / f"precision-agent-{os.getpid()}").touch()
    (Path(environment["HOME"]) / f"precision-agent-{os.getpid()}").unlink()


def test_a_user_with_an_entry_keeps_name_and_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: MINE)
    environment = {"HOME": str(tmp_path)}
    settle_user(environment)
    assert environment == {"HOME": str(tmp_path), "USER": "me", "LOGNAME": "me"}
    environment = {"LOGNAME": "another", "USER": "another"}
    settle_user(environment)
    assert environment["USER"] == "another"
    assert environment["HOME"] != MINE.pw_dir  # it does not exist
