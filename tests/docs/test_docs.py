"""What the pages say of this repository is so: links, commands, paths, metrics, values of the chart, shown output.

And pages stay short, and use the terms of Kubernetes and GPU engineers; the index of decisions is whole.

Every profile that a reader can copy, from examples/ or from a page, is one that the operator takes.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from typer.testing import CliRunner

from precision_agent.run.check import NO_FIGURE
from precision_agent.run.cli import app as agent
from precision_api.exchange.exits import EXITS, exit_of
from precision_api.facts.names import PROFILE_KIND
from precision_api.models.presets import PRESETS
from precision_api.models.workload import Workload, resolve
from precision_lab.fleet.fleet import demo_fleet, manifests
from precision_operator.cli import COMMANDS, app
from precision_operator.cli import app as plugin
from precision_operator.cli.condition_words import ACTS
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.eligibility.checks import matches
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.observe.observed import Observed, Raw, Settings
from precision_operator.core.observe.views import profile_view
from precision_operator.core.reasons import REASONS, VERDICTS, Kind
from precision_operator.core.status.reasons_page import SECTIONS
from precision_operator.exporter.families.table import FAMILIES
from tests.support.golden import beside

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TOP_FOLDERS = ("operator", "agent", "crds", "charts", "tests", "lab", "docs", "examples", "benchmarks", ".ci")
IMAGE = "registry.example.com/agent"
SETTINGS = Settings(
    agent_image=f"{IMAGE}:1", allowed_images=(IMAGE,), priority_class="agent", agent_service_account="agent"
)


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


DECISIONS = ROOT / "docs" / "development" / "decisions"
INDEX = dict(re.findall(r"^\| \[(\d{4})\]\([^)]+\) \| (.+) \|$", text_of(DECISIONS / "README.md"), re.MULTILINE))
STATUS = re.compile(r"\A# .+\n\n\*\*Replaced (in part )?by \[(\d{4})\]\(\2-[\w-]+\.md\)")


def test_the_index_has_every_page_and_tells_of_replacements() -> None:
    pages = sorted(DECISIONS.glob("0*.md"))
    assert list(INDEX) == [page.name[:4] for page in pages]
    statuses = {page.name[:4]: STATUS.match(text_of(page)) for page in pages}
    replaced = {number: f"(replaced {match[1] or ''}by {match[2]})" for number, match in statuses.items() if match}
    assert "0042" in replaced
    assert {number: row[row.index("(replaced") :] for number, row in INDEX.items() if "(replaced" in row} == replaced


NAME = re.compile(r"`([A-Z]+[a-z]\w+)`")
STATES = {"Accepted", "Complete", "Invalid"}
"""Conditions and phases of a profile, which are written as reasons are."""


def test_the_page_for_symptoms_names_every_refusal_of_the_cluster_and_no_reason_that_is_none() -> None:
    text = text_of(ROOT / "docs" / "troubleshooting.md")
    refusals = text.partition("## The cluster refuses an agent\n")[2].partition("\n## ")[0]
    assert {*NAME.findall(refusals)} == {*RULES}
    named = {*NAME.findall(text)} - STATES
    assert len(named) > 40
    assert named - REASONS.keys() == set()


def test_each_reason_of_a_verdict_has_an_act_by_name() -> None:
    judges = *ROOT.glob("crds/precision_api/acceptance/*.py"), *ROOT.glob("operator/precision_operator/core/*/*ce.py")
    agents, code = ROOT / "agent/precision_agent/run/check.py", re.compile(r'"((?:[A-Z][a-z]+|GPU)[A-Z]*\w+)"')
    ours, checks = ({word for file in files for word in code.findall(text_of(file))} for files in (judges, [agents]))
    ours |= {words.split()[0] for words in VERDICTS}
    ours, page = ours - {"Pass", "Fail", "Inconclusive", "Verdict", "Kept"}, text_of(ROOT / "docs" / "verdict.md")
    assert ours == ACTS.keys()
    named = ours - {"WithinLimits"} | checks | {exit_of(code).reason for code in NO_FIGURE}
    assert named - {*re.findall(r"`(\w+)`", page)} == {"Pass", "Fail", "Inconclusive"}


MOST_WORDS = 28_000 + 800 + 600 + 200 + 480 + 120 + 60 + 300 + 350 + 150 + 220
"""800: the page that issue 39 asks for, docs/verdict.md; 600: that of issue 41, docs/node-condition.md, and 200 its
alerts in the runbooks; 480: what docs/first-profile.md has more since issue 44, a page for who has no checkout, and
120 `doctor`; 60: the alert on memory, and 350: docs/scale.md (issue 40); 300: mixtures, FP8 attention and primary
weights (issue 45); 150: sizes and failures of plans (issue 46); 220:
larger fleets than were run (issue 47)."""
WRITTEN_BLOCK = re.compile(
    r"^<!-- written by .*?^<!-- end of what is written -->$|^```\n\$ kubectl-precision .*?^```$",
    re.DOTALL | re.MULTILINE,
)


def words(text: str) -> int:
    """The words of a page that people write, as by `wc -w`.

    Without pages that are generated (their first line says so) and blocks that a command writes into a page, as the
    plugin's output is by UPDATE_GOLDEN.
    """
    if text.startswith("<!-- Generated by"):
        return 0
    return len(WRITTEN_BLOCK.sub("", text).split())


def test_the_users_pages_are_within_their_budget() -> None:
    counts = {page: words(text_of(page)) for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
    assert len(counts) > 15
    assert sum(counts.values()) <= MOST_WORDS, sorted((count, page.name) for page, count in counts.items())
    assert words("<!-- Generated by `make generate`. -->\n\na b c\n") == 0
    assert words("a b\n<!-- written by `x` -->\nc d\n<!-- end of what is written -->\ne\n") == 3
    assert words("a\n```\n$ kubectl-precision plan\nb c\n```\nd\n```\n$ make x\n```\n") == 7


INSTEAD: dict[str, str] = beside(__file__)
"""Pattern (any case): the field's term."""

CHART = ROOT / "charts" / "precision-profiler"
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "crds").glob("*.yaml"))]
TEXTS += sorted([*CHART.glob("files/**/*.yaml"), *CHART.glob("files/**/*.json"), *CHART.glob("*.*")])


def odd_words(text: str) -> list[str]:
    """The phrases of `text` that INSTEAD replaces, each with the better term."""
    patterns = INSTEAD.items()
    return [f"{m.group()!r} -> {term}" for pattern, term in patterns for m in re.finditer(pattern, text, re.IGNORECASE)]


def test_pages_reasons_and_refusals_use_the_fields_terms() -> None:
    texts = {str(path.relative_to(ROOT)): text_of(path) for path in TEXTS}
    texts |= {f"reason {name}": f"{row.template} {row.next_step}" for name, row in REASONS.items()}
    texts |= {f"exit {row.code}": row.sentence for row in EXITS}
    assert {name: words for name, text in texts.items() if (words := odd_words(text))} == {}
    assert odd_words("Mend the node: it is slower than its like.") == ["'its like' -> peers", "'Mend' -> fix"]


def documents(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if path.suffix == ".md" else [text]
    return [
        document
        for block in blocks
        for document in yaml.load_all(block, yaml.CSafeLoader)
        if isinstance(document, dict)
    ]


def profiles() -> list[Any]:
    """One parameter for each profile: it, and the data of the ConfigMaps beside it."""
    paths = [*sorted((ROOT / "examples").glob("*.yaml")), ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    rows = []
    for path in paths:
        found = documents(path)
        maps = {item["metadata"]["name"]: item["data"] for item in found if item.get("kind") == "ConfigMap"}
        of_kind = [item for item in found if item.get("kind") == PROFILE_KIND]
        rows += [pytest.param(p, maps, id=f"{path.relative_to(ROOT)}:{p['metadata']['name']}") for p in of_kind]
    return rows


def example(name: str) -> dict[str, Any]:
    return next(item for item in documents(ROOT / "examples" / f"{name}.yaml") if item["kind"] == PROFILE_KIND)


def asked(raw: Raw, maps: dict[str, dict[str, str]]) -> Any:
    """What the profile asks of a node, with these ConfigMaps in its namespace."""
    view = profile_view(raw)
    texts = {(view.namespace, name): data for name, data in maps.items()}
    return resolve_profile(view, Observed(now=datetime.now(UTC), settings=SETTINGS, config_maps=texts))


@pytest.mark.parametrize(("raw", "maps"), profiles())
def test_a_profile_that_a_reader_can_copy_is_accepted_as_it_stands(raw: Raw, maps: dict[str, dict[str, str]]) -> None:
    assert profile_view(raw).problem == ""
    assert isinstance(asked(raw, maps), ResolvedProfile), asked(raw, maps)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").iterdir()), ids=lambda path: path.name)
def test_every_file_in_examples_holds_a_profile_that_kubectl_reads_as_we_do(path: Path) -> None:
    assert PROFILE_KIND in [item["kind"] for item in documents(path)]
    assert yaml_booleans(path.read_text(encoding="utf-8")) == set()


def yaml_booleans(text: str) -> set[str]:
    """Bare words that kubectl (YAML 1.1) reads as true or false and we (PyYAML) as text, such as the key n."""
    scalars = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken) and token.plain]
    return {str(token.value) for token in scalars} & {"y", "Y", "n", "N"}


def test_examples_are_those_of_readme_presets_and_yaml_that_all_read_alike() -> None:
    assert yaml_booleans('{n: 1, "n": 2, k: y}') == {"n", "y"}
    assert example("demo") in documents(ROOT / "README.md")
    maps = {"qwen3-8b": documents(ROOT / "examples" / "huggingface-configmap.yaml")[0]["data"]}
    assert asked(example("huggingface-configmap"), maps).resolved.model == PRESETS["qwen3-8b"].model
    preset = resolve(Workload.model_validate({"preset": "codonfm-5b"}))
    explicit = asked(example("explicit-shapes"), {}).resolved
    sizes = [{(gemm.pass_, gemm.m, gemm.k, gemm.n) for gemm in each.gemms} for each in (preset, explicit)]
    assert sizes[0] == sizes[1]


def test_the_demo_profile_takes_in_every_node_of_the_demo_fleet() -> None:
    spec = profile_view(example("demo")).spec
    facts = [node_facts(node, spec.pool_label, ()) for node in manifests(demo_fleet())]
    assert [each.name for each in facts if not matches(spec.target, each)] == []
    assert spec.rollout.max_concurrent == 4


def test_the_readme_lists_every_preset_with_its_kind() -> None:
    rows = [line.split("|")[1:3] for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    listed = {name: kind.strip() for kind, names in rows for name in re.findall(r"`([^`]+)`", names)}
    for name, row in PRESETS.items():
        words = ("Mamba-2", "latent attention", "mixture of experts", "dense")
        model = row.model
        kinds = (model.hybrid is not None, model.latent_attention is not None, model.moe is not None, True)
        assert words[kinds.index(True)] in listed[name], name
