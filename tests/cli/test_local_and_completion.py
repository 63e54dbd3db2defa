"""What hands over to the agent's program; completion answers as kubectl asks; the table of exit codes."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from precision_operator.cli import COMMANDS, app
from precision_operator.cli.commands.local import executed
from precision_operator.cli.complete import answers, names_in_cluster
from precision_operator.cli.terminal import CODES
from tests.cli.api import KUBECTL, Api, stand_in
from tests.support.golden import beside
from tests.support.report_objects import FINISHED, profile_object, report_object, report_status

TABLES = beside(__file__)

DOC = Path(__file__).parents[2] / "docs" / "kubectl.md"


def test_a_program_ends_with_its_own_code_also_where_it_is_killed() -> None:
    assert executed([sys.executable, "-c", "import sys; sys.exit(len(sys.argv))", "a", "b"]) == 3
    assert executed([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]) == 143


def test_run_is_for_this_machine_only_and_its_further_options_the_agents() -> None:
    done = CliRunner().invoke(app, ["run"])
    assert (done.exit_code, "run measures this machine, with --local" in done.stderr) == (2, True)
    told = CliRunner().invoke(app, ["run", "--help"])
    assert told.exit_code == 0
    words = " ".join(told.stdout.split())
    assert "Those options are the agent's: kubectl precision run --local --help shows them" in words
    assert "--help Show this message; with --local: the agent's own options." in words


def run_elsewhere(folder: Path, *words: str, command: str = "run") -> subprocess.CompletedProcess[str]:
    """`kubectl-precision COMMAND WORDS` by a Python with nothing else in its folder, and `folder` as PATH."""
    program = (
        f"import sys; sys.executable = {str(folder / 'python')!r}; from precision_operator.cli import main; main()"
    )
    env = {"PATH": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    called = [sys.executable, "-c", program, command, *words]
    return subprocess.run(called, env=env, text=True, capture_output=True, check=False, timeout=60)


def test_without_the_agents_program_it_says_how_to_install_it(tmp_path: Path) -> None:
    done = run_elsewhere(tmp_path, "--local")
    assert (done.returncode, done.stdout) == (6, "")
    assert "pip install '.[agent]'" in done.stderr


@pytest.mark.parametrize(
    ("command", "words", "passed"),
    TABLES["passed"],
)
def test_the_agents_program_gets_all_options_and_its_exit_code_is_ours(
    tmp_path: Path, command: str, words: str, passed: str
) -> None:
    agent = tmp_path / "precision-agent"
    agent.write_text('#!/bin/sh\necho "$@"\nexit 17\n')
    agent.chmod(0o755)
    done = run_elsewhere(tmp_path, *words.split(), command=command)
    assert (done.returncode, done.stdout) == (17, f"{passed}\n")


# Completion.


def known(kind: str, given: Mapping[str, str]) -> Sequence[str]:
    """Names as a cluster would give them; those of namespace `other` when it is typed."""
    if given.get("-n") == "other" and kind == "profile":
        return ["weekly"]
    names = {"profile": ["nightly", "night-2"], "node": ["gb200-1", "h100-1"], "namespace": ["ml", "other"]}
    return (names | {"pool": ["NVIDIA-GB200", "NVIDIA-H200"], "driver": ["570.1", "580.2"], "run": ["a3f1c2"]})[kind]


ASKED: dict[str, tuple[list[str], list[str]]] = TABLES["completions"] | {"all commands": ([""], [*COMMANDS, ":4"])}


@pytest.mark.parametrize(("typed", "expected"), ASKED.values(), ids=ASKED)
def test_completion_offers_what_may_stand_there(typed: list[str], expected: list[str]) -> None:
    assert [line.split("\t")[0] for line in answers(typed, known)] == expected


def test_each_command_completes_its_options_with_help() -> None:
    for command in COMMANDS:
        lines = answers([command, "--"], known)
        assert lines[-1] == ":4"
        assert all(line.split("\t")[1] for line in lines[:-1]), command


def test_names_come_from_the_cluster_and_what_it_does_not_have_or_no_cluster_gives_none(api: Api) -> None:
    api.profiles(profile_object())
    assert names_in_cluster("profile", {"--context": "prod"}) == ["nightly"]
    assert "--context=prod" in (api.folder / "kubectl.log").read_text()
    assert names_in_cluster("node", {}) == ()
    stand_in(api.folder, "#!/bin/sh\necho error: no context >&2; exit 1\n")
    assert [*names_in_cluster("profile", {}), *names_in_cluster("pool", {})] == []


def test_pools_drivers_and_runs_are_those_of_the_reports_and_of_what_they_remember(api: Api) -> None:
    api.profiles(profile_object(), profile_object("weekly"))
    older = {"run": "r0", "outcome": "succeeded", "finishedAt": FINISHED, "driver": "570.124.06"}
    api.reports(report_object("a", status=report_status() | {"history": [older]}), report_object("b", status={}))
    other = report_status(run="w1") | {"hardware": {"product": "H100", "gpus": 8, "pool": "NVIDIA-H100"}}
    api.reports(report_object("c", "weekly", status=other))
    assert names_in_cluster("pool", {}) == ["NVIDIA-GB200", "NVIDIA-H100"]
    assert names_in_cluster("driver", {}) == ["580.95.05", "570.124.06"]
    assert names_in_cluster("run", {"--profile": "nightly"}) == ["r1", "r0"]


def test_a_cluster_that_never_answers_gives_no_names(api: Api) -> None:
    with TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{short}/s")
        silent.listen()
        stand_in(api.folder, KUBECTL.format(folder=api.folder, socket=f"{short}/s"))
        assert names_in_cluster("driver", {}, seconds=0.2) == ()


# The table of exit codes, and the page of the plugin.


def test_exit_codes_and_commands_are_told_in_the_docs_and_none_is_the_agents() -> None:
    text = DOC.read_text(encoding="utf-8")
    for code in CODES:
        assert f"| {code.number} | {code.name} | {code.meaning} |" in text
    assert len({code.number for code in CODES}) == len(CODES)
    assert not [code for code in CODES if 10 <= code.number <= 29]
    assert [command for command in COMMANDS if f"kubectl precision {command}" not in text] == []


BLOCKS = DOC.read_text(encoding="utf-8").split("```")[1::2]


@pytest.mark.parametrize("line", re.findall(r"^kubectl precision .*", "\n".join(BLOCKS), re.MULTILINE))
def test_every_command_line_in_the_docs_is_understood(line: str) -> None:
    _, _, command, *words = line.split()
    group: Any = typer.main.get_command(app)
    found = group.get_command(None, command)
    with contextlib.suppress(typer.Exit):  # --help ends the parsing
        found.make_context(command, words)
