"""kubectl's conventions, for every command of the plugin.

What a spec may hold: as strict as the API server, and told in words.
"""

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from precision_api.facts.names import API_VERSION, PLAN_KIND, PROFILE_KIND
from precision_api.kinds.capacity_plan import PlanSpec
from precision_api.kinds.profile import ProfileSpec
from precision_operator.cli import COMMANDS, app, command_first
from precision_operator.cli.allowed import strictly
from precision_operator.cli.examples import EXAMPLES
from precision_operator.cli.output import OutputFormat, as_names, printed
from precision_operator.cli.terminal import sentences
from precision_operator.cluster import paths
from precision_operator.shell.settings import BINDINGS
from tests.cli.api import Api
from tests.cli.test_dry_run import nodes_file, profile_file
from tests.cli.test_status_and_nodes import measured, story
from tests.support.fleets import fleet, job
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.report_objects import recipe_row

EXAMPLES_FOLDER = Path(__file__).parents[2] / "examples"
OF_THE_AGENT = ("run", "explain", "verify-trace")
"""Commands whose options are another program's."""
CLUSTER_OPTIONS = ("--context", "--kubeconfig", "--request-timeout", "--as", "--token")
WITHOUT_CLUSTER = ("shapes", "plan", *OF_THE_AGENT)
WRITES_A_FILE = ("report", "support-bundle")
"""Commands whose -o names a file."""
OURS = [name for name in COMMANDS if name not in OF_THE_AGENT]
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "why": ("good-0",),
    "compare": ("pool/P", "pool/P"),
    "rerun": ("nightly",),
    "reference": ("list",),
    "report": ("nightly",),
    "dry-run": ("-f", str(EXAMPLES_FOLDER / "quick-llama3-8b.yaml")),
    "plan": ("-f", str(EXAMPLES_FOLDER / "capacity-plan.yaml")),
    "shapes": ("--preset", "llama3-8b"),
}
"""What a command is called with, where it needs arguments."""

runner = CliRunner()
MODELS = {PROFILE_KIND: ProfileSpec, PLAN_KIND: PlanSpec}
WRONG: dict[str, tuple[dict[str, Any], str]] = beside(__file__) | {
    "many": ({"target": {"nodeNames": [{}] * 200}}, "spec: it has too many elements, or too many of them are wrong"),
}


def command(name: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.get_command(None, name)


def options(name: str) -> set[str]:
    return {flag for parameter in command(name).params for flag in getattr(parameter, "opts", ())}


@pytest.mark.parametrize("name", COMMANDS)
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


def test_help_list_and_version_are_as_others_show_them() -> None:
    told = runner.invoke(app, ["run", "-h"])
    assert (told.exit_code, told.stdout) == (0, runner.invoke(app, ["run", "--help"]).stdout)
    lines = runner.invoke(app, ["-h"]).stdout.splitlines()
    listed = lines[lines.index("Commands:") + 1 :]
    assert [line.split(maxsplit=1) for line in listed] == [[name, summary] for name, (_, summary) in COMMANDS.items()]
    assert runner.invoke(app, ["--version"]).stdout == f"kubectl-precision {metadata.version('precision-profiler')}\n"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_CLUSTER])
def test_what_asks_a_cluster_takes_kubectls_options(name: str) -> None:
    assert options(name) >= {*CLUSTER_OPTIONS, "--namespace", "-n", "--output", "-o"}


def test_kubectls_options_may_stand_before_the_command() -> None:
    for typed, taken in (
        (["-n", "ml", "status"], ["status", "-n", "ml"]),
        (["--namespace=ml", "-A", "why", "n1"], ["why", "--namespace=ml", "-A", "n1"]),
        (["--context", "prod", "nodes", "-o", "json"], ["nodes", "--context", "prod", "-o", "json"]),
        *((same, same) for same in (["status", "-n", "ml"], ["--help"], ["-n"], list[str]())),
    ):
        assert command_first(typed) == taken


def test_an_option_may_come_before_the_command_and_names_need_objects(capsys: pytest.CaptureFixture[str]) -> None:
    told = runner.invoke(app, ["-o", "json", "shapes", "--shape", "16x16x16"])
    assert told.exit_code == 0
    assert told.stdout.startswith("{")
    with pytest.raises(typer.Exit):
        printed({}, OutputFormat.NAME, lambda wide: "", [{"m": 1}], ["m"])
    assert "lists no objects" in capsys.readouterr().err


def test_names_are_written_as_kubectl_writes_them() -> None:
    for row, name in (
        ({"namespace": "ml", "profile": "p", "node": "n1"}, "node/n1"),
        ({"namespace": "ml", "profile": "p"}, "precisionprofile.precisionprofiler.io/p"),
        ({"kind": "profile", "namespace": "ml", "name": "p"}, "precisionprofile.precisionprofiler.io/p"),
        ({"kind": "node", "namespace": "", "name": "n1"}, "node/n1"),
    ):
        assert as_names([row, row]) == name


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nosuch"], "--nosuch"),
        (["--request-timeout"], "requires an argument"),
        (["a", "b", "c", "d"], "(extra argument|missing option)"),
    ],
)
def test_a_wrong_command_line_is_one_line_that_names_help_and_code_2(name: str, words: list[str], told: str) -> None:
    if words == ["--request-timeout"] and name == "shapes":
        words = ["--preset"]
    done = runner.invoke(app, [name, *words])
    assert (done.exit_code, done.stdout) == (2, "")
    line = rf"error: (?![A-Z])[^\n]*{told}[^\n]*\. See kubectl precision {name} --help\n"
    assert re.fullmatch(line, done.stderr), done.stderr


@pytest.mark.parametrize("name", [name for name in OURS if name not in WRITES_A_FILE])
def test_every_list_refuses_a_form_that_there_is_not(name: str) -> None:
    done = runner.invoke(app, [name, *ARGUMENTS.get(name, ()), "-o", "xml"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: invalid value for '--output' / '-o': ")
    assert "'xml' is none of table, wide, json, yaml, csv, name" in done.stderr
    assert "Value error" not in done.stderr


@pytest.mark.parametrize("name", [name for name in OURS if name not in WITHOUT_CLUSTER])
def test_a_cluster_that_is_not_there_is_code_1_and_a_hint(name: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(api.folder)
    api.reachable = False
    done = api.run(name, *ARGUMENTS.get(name, ()), "--request-timeout=2s")
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(r"(?s)error: .*Try kubectl version\.\n", done.stderr)


each_reader = pytest.mark.parametrize("name", ["status", "nodes", "why", "compare", "report", "rerun"])


@each_reader
def test_a_cluster_without_the_crds_says_to_install_the_chart_and_a_missing_right_is_named(api: Api, name: str) -> None:
    done = api.run(name, *ARGUMENTS.get(name, ()))
    told = "error: this cluster has no PrecisionProfiles: install the chart, or choose another --context\n"
    assert (done.exit_code, done.stdout, done.stderr) == (4, "", told)
    told = 'User "u" cannot list resource "precisionprofiles" in API group "precisionprofiler.io" '
    api.refused[paths.profiles("ml")] = f'{told}in the namespace "ml"'
    api.refused[paths.profiles()] = f"{told}at the cluster scope"
    done = api.run(name, *ARGUMENTS.get(name, ()))
    assert (done.exit_code, done.stdout) == (3, "")
    assert "you may not list precisionprofiles.precisionprofiler.io in namespace ml" in done.stderr


@each_reader
@pytest.mark.parametrize("duration", ["", "soon", "-1s", "0x", "99d"])
def test_a_timeout_that_is_none_is_wrong_input(api: Api, name: str, duration: str) -> None:
    done = api.run(name, *ARGUMENTS.get(name, ()), f"--request-timeout={duration}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is no duration; write for example 30s or 2m" in done.stderr


def keys_of(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys_of(value)
    for each in document if isinstance(document, list) else ():
        yield from keys_of(each)


@pytest.mark.parametrize("name", ["status", "nodes", "compare", "shapes"])
def test_json_is_in_camel_case(name: str, api: Api) -> None:
    story(api)
    words = {"compare": ("node/good-0", "node/good-1")}.get(name, ARGUMENTS.get(name, ()))
    done = api.run(name, *words, "-o", "json")
    assert done.exit_code == 0, done.stderr
    keys = keys_of(json.loads(done.stdout))
    assert {key for key in keys if not re.fullmatch("[a-z]+([A-Z]?[a-z0-9]+)*(BF16|GPU)?", key)} == set()


WITHOUT_ROWS_AND_WITH: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("status", "-l", "team=none"), ("status",)),
    "nodes": (("nodes", "--only", "simulated"), ("nodes",)),
    "every node": (("nodes", "--all", "--only", "simulated"), ("nodes", "--all")),
    "why": (("why", "good-0", "-n", "empty"), ("why", "good-0")),
    "dry-run": (("dry-run", *ARGUMENTS["dry-run"], "--nodes", "none.yaml"), ("dry-run", *ARGUMENTS["dry-run"])),
    "compare": (("compare", "node/good-0", "node/other"), ("compare", "node/good-0", "node/good-1")),
    "plan": (
        ("plan", "-f", "late.yaml", "--fleet", "fleet.json"),
        ("plan", "-f", "plan.yaml", "--fleet", "fleet.json"),
    ),
}
"""Command lines that print no row, and such that print some."""


def a_world(api: Api) -> None:
    """A fleet with results, one node whose recipe no other one has, and files for the commands that read some."""
    story(api)
    other = measured("other", 9e4)
    other["status"]["results"] = [recipe_row("fp8_block", 1.1)]
    api.reports(other)
    api.hold(paths.NODES, *(node_object(name=name) for name in ("good-0", "good-1", "other")))
    for kind in (paths.pods, paths.jobs, paths.reports, paths.profiles):
        api.hold(kind("ml"))
        api.hold(kind("empty"))
    api.hold(BINDINGS)
    head = f"apiVersion: {API_VERSION}\nkind: CapacityPlan\nmetadata: {{name: p}}\nspec: "
    for name, changes in (("plan", {}), ("late", {"deadlineDays": "0.01"})):
        (api.folder / f"{name}.yaml").write_text(head + json.dumps({"jobs": [job(**changes)], "whatIfs": []}))
    (api.folder / "fleet.json").write_text(fleet().model_dump_json(by_alias=True))
    (api.folder / "none.yaml").write_text("[]")


@pytest.mark.parametrize(("without", "with_rows"), WITHOUT_ROWS_AND_WITH.values(), ids=WITHOUT_ROWS_AND_WITH)
def test_csv_has_one_header_with_and_without_rows(
    api: Api, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...], with_rows: tuple[str, ...]
) -> None:
    a_world(api)
    monkeypatch.chdir(api.folder)
    empty, full = (api.run(*words, "-o", "csv") for words in (without, with_rows))
    header, *rows = csv.reader(io.StringIO(full.stdout))
    assert rows, full.stderr
    assert list(csv.reader(io.StringIO(empty.stdout))) == [header], empty.stderr


@pytest.mark.parametrize(("spec", "said"), WRONG.values(), ids=WRONG)
def test_what_the_api_server_refuses_is_refused_in_one_line_that_says_what_to_write(
    tmp_path: Path, spec: dict[str, Any], said: str
) -> None:
    path, nodes = profile_file(tmp_path, **spec), nodes_file(tmp_path, node_object())
    done = CliRunner().invoke(app, ["dry-run", "-f", path, "--nodes", nodes])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: {said}\n")


def test_more_wrong_values_than_a_few_are_counted() -> None:
    with pytest.raises(ValidationError) as refused:
        ProfileSpec.model_validate({"target": {"nodeNames": [{}] * 200}})
    assert sentences(refused.value, "spec") == "spec: 201 things are wrong"


def test_every_example_is_taken_strictly() -> None:
    files = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))
    found = [each for path in files for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]
    specs = [(MODELS[each["kind"]], each["spec"]) for each in found if each.get("kind") in MODELS]
    assert {model for model, _ in specs} == {ProfileSpec, PlanSpec}
    for model, spec in specs:
        strictly(model, spec)
