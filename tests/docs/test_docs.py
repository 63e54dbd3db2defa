"""What the pages say of this repository is so: links, commands, paths, metrics, values of the chart, shown output."""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from typer.testing import CliRunner

from precision_agent.run.cli import app as agent
from precision_operator.cli import COMMANDS, app
from precision_operator.cli import app as plugin
from precision_operator.core.reasons import Kind
from precision_operator.core.status.reasons_page import SECTIONS
from precision_operator.exporter.families.table import FAMILIES

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TOP_FOLDERS = ("operator", "agent", "crds", "charts", "tests", "lab", "docs", "examples", "benchmarks", ".ci")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def parametrized(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(ROOT)))


each_page = parametrized(PAGES)
each_current_page = parametrized([path for path in PAGES if "\n**Replaced by [" not in text_of(path)])
"""Without decisions that another one has replaced: what those name may be gone."""


def blocks(text: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def code(text: str) -> list[str]:
    """Everything that a page sets as code: fenced blocks and `spans`."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return blocks(text) + re.findall(r"`([^`\n]+)`", prose)


def named(pattern: str, path: Path) -> set[str]:
    """What `pattern` finds in the code of a page."""
    return {found for piece in code(text_of(path)) for found in re.findall(pattern, piece)}


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> Iterator[str]:
    """Relative links of a page to a file or heading that is not there."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@each_page
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    assert list(broken_links(path)) == []


def test_a_link_to_nothing_is_found_and_every_kind_of_reason_has_a_section(tmp_path: Path) -> None:
    page_path = tmp_path / "page.md"
    page_path.write_text("# A heading\n[good](#a-heading) [bad](#none) [gone](gone.md) [web](https://example.com)\n")
    assert list(broken_links(page_path)) == ["#none", "gone.md"]
    assert list(SECTIONS) == list(get_args(Kind))


def is_chart_value(key: str) -> bool:
    values: Any = yaml.load(text_of(ROOT / "charts" / "precision-profiler" / "values.yaml"), yaml.CSafeLoader)
    for name in key.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values is not None


CLAIMS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "make target": (r"\bmake ([a-z][a-z-]*)", lambda name: f"\n{name}:" in text_of(ROOT / "Makefile")),
    "plugin command": (r"\bkubectl[ -]precision ([a-z][a-z-]*)", lambda name: name in COMMANDS),
    "metric": (
        r"\bprecision_(?:node|pool|profile|plan)_\w+",
        lambda name: name in {family.name for family in FAMILIES},
    ),
    "path": (rf"(?:^|\s)((?:{'|'.join(map(re.escape, TOP_FOLDERS))})/[\w./-]*)", lambda path: (ROOT / path).exists()),
    "chart value": (r"--set ([\w.]+)=", is_chart_value),
}
"""What pages name in code: how it is found, and whether there is one of that name."""

each_claim = pytest.mark.parametrize("claim", CLAIMS)


@each_current_page
@each_claim
def test_what_a_page_names_is_there(path: Path, claim: str) -> None:
    pattern, is_there = CLAIMS[claim]
    assert [name for name in sorted(named(pattern, path)) if not is_there(name)] == []


@each_claim
def test_the_readme_makes_claims_of_every_kind_and_one_that_does_not_hold_is_seen(claim: str) -> None:
    assert named(CLAIMS[claim][0], ROOT / "README.md")
    assert not CLAIMS[claim][1]("operator/none.such")


def shown_runs() -> list[tuple[str, str]]:
    """(command, output) of the blocks that show a run of the plugin."""
    runs = [block.removeprefix("$ ").partition("\n") for path in PAGES for block in blocks(text_of(path))]
    return [(command, output) for command, _, output in runs if command.startswith("kubectl-precision ") and output]


def renew(runs: list[tuple[str, str]]) -> None:
    """Write what the plugin prints now into the pages that show it."""
    for command, output in runs:
        now = CliRunner().invoke(app, shlex.split(command)[1:]).output
        for path in PAGES:
            if output in (text := path.read_text()):
                path.write_text(text.replace(output, now))


def test_what_the_plugin_is_shown_to_print_is_what_it_prints() -> None:
    runs = shown_runs()
    assert runs
    if os.environ.get("UPDATE_GOLDEN"):
        renew(runs)
        runs = shown_runs()
    for command, output in runs:
        assert CliRunner().invoke(app, shlex.split(command)[1:]).output == output


WRONG_USE = typer.BadParameter.__mro__[1]
"""click's UsageError, of the click that typer brings along."""
PROGRAMS = {"kubectl precision": plugin, "kubectl-precision": plugin, "precision-agent": agent}


def documented_commands() -> list[tuple[str, str]]:
    """(program, arguments) of every command line of ours that stands in a fenced block, or first in a table's row."""
    texts = [text_of(path) for path in PAGES]
    fenced = (line for text in texts for block in blocks(text) for line in block.replace("\\\n", " ").splitlines())
    rows = (found for text in texts for found in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    lines = (*fenced, *rows)
    plain = (line.strip().removeprefix("$ ").removeprefix(".venv/bin/") for line in lines)
    return sorted({(name, line[len(name) + 1 :]) for line in plain for name in PROGRAMS if line.startswith(f"{name} ")})


@pytest.mark.parametrize(("program", "rest"), documented_commands())
def test_every_command_that_a_page_shows_is_understood(program: str, rest: str) -> None:
    """Command, options and their values, up to the point where it would begin to work."""
    assert understood(program, rest)


def understood(program: str, rest: str) -> bool:
    arguments = list(takewhile(lambda word: word not in ("|", ">"), shlex.split(rest, comments=True)))
    group = typer.main.get_command(PROGRAMS[program])
    try:
        with group.make_context(program, arguments) as context:
            name, command, left = group.resolve_command(context, [*context._protected_args, *context.args])
            command.make_context(name, left, parent=context)
    except typer.Exit as end:  # --help
        return end.exit_code == 0
    except WRONG_USE:
        return False
    return True


@pytest.mark.parametrize("rest", ["nodes --no-such-option", "no-such-command", "nodes -o no-such-form"])
def test_a_command_that_does_not_exist_is_seen(rest: str) -> None:
    assert not understood("kubectl precision", rest)
