"""kubectl's conventions, for every command of the plugin."""

from __future__ import annotations

import shlex
from importlib import metadata
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from precision_operator.cli import COMMANDS, app, command_first
from precision_operator.cli.examples import EXAMPLES
from precision_operator.cli.output import OutputFormat, as_names, printed

OF_THE_AGENT = ("run", "verify-trace")
"""Commands whose options are another program's."""
CLUSTER_OPTIONS = ("--context", "--kubeconfig", "--request-timeout")
WITHOUT_CLUSTER = ("shapes", "plan", *OF_THE_AGENT)

runner = CliRunner()
each_command = pytest.mark.parametrize("name", COMMANDS)


def command(name: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.get_command(None, name)


def options(name: str) -> set[str]:
    return {flag for parameter in command(name).params for flag in getattr(parameter, "opts", ())}


@each_command
def test_every_command_has_examples_that_are_command_lines_of_it(name: str) -> None:
    for example in EXAMPLES[name]:
        line = example.partition("&& ")[2] or example
        program, plugin, shown, *words = shlex.split(line.partition(" > ")[0])
        assert (program, plugin, shown) == ("kubectl", "precision", name)
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert name in OF_THE_AGENT or flags <= options(name), example


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in OF_THE_AGENT])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_short_and_long_and_ends_with_the_examples(name: str, flag: str) -> None:
    told = runner.invoke(app, [name, flag])
    assert told.exit_code == 0
    assert "\n  Examples:\n" in told.stdout
    assert all(f"    {example}" in told.stdout for example in EXAMPLES[name])


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_CLUSTER])
def test_what_asks_a_cluster_takes_kubectls_options(name: str) -> None:
    assert options(name) >= {*CLUSTER_OPTIONS, "--namespace", "-n", "--output", "-o"} - (
        {"--output"} if name == "report" else set()
    )


def test_the_version_is_the_packages() -> None:
    assert runner.invoke(app, ["--version"]).stdout == f"kubectl-precision {metadata.version('precision-profiler')}\n"


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        (["-n", "ml", "status"], ["status", "-n", "ml"]),
        (["--namespace=ml", "-A", "why", "n1"], ["why", "--namespace=ml", "-A", "n1"]),
        (["--context", "prod", "nodes", "-o", "json"], ["nodes", "--context", "prod", "-o", "json"]),
        (["status", "-n", "ml"], ["status", "-n", "ml"]),
        (["--help"], ["--help"]),
        (["-n"], ["-n"]),
        ([], []),
    ],
)
def test_kubectls_options_may_stand_before_the_command(typed: list[str], taken: list[str]) -> None:
    assert command_first(typed) == taken


def test_an_option_before_the_command_is_the_commands() -> None:
    told = runner.invoke(app, ["-o", "json", "shapes", "--shape", "16x16x16"])
    assert told.exit_code == 0
    assert told.stdout.startswith("{")


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"namespace": "ml", "profile": "p", "node": "n1"}, "node/n1"),
        ({"namespace": "ml", "profile": "p"}, "precisionprofile.precisionprofiler.io/p"),
        ({"kind": "profile", "namespace": "ml", "name": "p"}, "precisionprofile.precisionprofiler.io/p"),
        ({"kind": "node", "namespace": "", "name": "n1"}, "node/n1"),
    ],
)
def test_names_are_written_as_kubectl_writes_them(row: dict[str, str], name: str) -> None:
    assert as_names([row, row]) == name


def test_where_there_are_no_objects_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        printed({}, OutputFormat.NAME, lambda wide: "", [{"m": 1}])
    assert "lists no objects" in capsys.readouterr().err
