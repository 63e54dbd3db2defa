"""`kubectl precision plan`: its forms, its exit codes, and a page that stands alone."""

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from precision_operator.cli import app
from tests.support.fleets import fleet, job, node, pool, rate

AT = "--at=2026-12-01T00:00:00Z"
UNIT = "spec.jobs.0.tokens: write a number and K, M, B or T, for example 15T, not '15 trillion'"

NOT_FOUND = [
    job("a", tokens="10B"),
    job("long", after=["a"], tokens="200B", minGPUs=128, priority=9),
    job("short", after=["a"], minGPUs=128, deadlineDays="1"),
]
"""The job of higher priority goes first, and the other one is late: not found, and not proved."""


def run(
    folder: Path, *arguments: str, jobs: Any = None, name: str = "q1", provenance: str = "measured", **changes: Any
) -> Result:
    document = {
        "apiVersion": "precisionprofiler.io/v1alpha1",
        "kind": "CapacityPlan",
        "metadata": {"name": name},
        "spec": {"jobs": [job("a"), job("b", after=["a"])] if jobs is None else jobs, "whatIfs": []} | changes,
    }
    (folder / "plan.yaml").write_text(yaml.safe_dump(document))
    known = fleet(pool("H100", node("n", [rate("bf16"), rate("fp8_current", 1e5)], count=16, provenance=provenance)))
    (folder / "fleet.json").write_text(known.model_dump_json(by_alias=True))
    files = ("-f", str(folder / "plan.yaml"), "--fleet", str(folder / "fleet.json"))
    return CliRunner().invoke(app, ["plan", *files, AT, *arguments])


MORE = ["TFLOP/S/GPU", "TIME", "POWER", "MWH", "COST", "$/MTOKEN", "DEADLINE"]


def test_a_plan_fits_80_columns_without_what_only_wide_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(tmp_path).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    head = next(line for line in shown if line.startswith("JOB")).split()
    assert head == ["JOB", "POOL", "RECIPE", "GPUS", "TFLOP/S/GPU", "TIME", "COST", "DEADLINE"]
    assert "MWH" in run(tmp_path, "-o", "wide").stdout


def test_the_table_says_pool_recipe_gpus_and_days(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.exit_code == 0
    answer, _, head, first, *_ = found.stdout.splitlines()
    assert head.split() == ["JOB", "POOL", "RECIPE", "GPUS", *MORE]
    assert first.split()[:4] == ["a", "H100", "fp8_current", "128"]
    assert answer.startswith("run a on 128 GPUs of H100 with fp8_current")


@pytest.mark.parametrize("jobs", [None, [job("a", workload={"preset": "qwen3-8b"})]], ids=["its own rate", "predicted"])
def test_a_plan_of_figures_that_nobody_measured_begins_with_that_and_says_it_once(tmp_path: Path, jobs: Any) -> None:
    found = run(tmp_path, jobs=jobs, fleet={"allow": ["simulated"]}, provenance="simulated")
    words = found.stdout.lower()
    assert found.stdout.startswith("SIMULATED")
    assert words.count("simulated") == 1
    assert words.count("predicted") == (jobs is not None)
    assert "measured" not in words


def test_json_yaml_and_csv_hold_the_status_and_a_row_for_each_job(tmp_path: Path) -> None:
    as_json = json.loads(run(tmp_path, "-o", "json").stdout)
    assert as_json["phase"] == "Solved"
    assert yaml.safe_load(run(tmp_path, "-o", "yaml").stdout) == as_json
    rows = list(csv.DictReader(io.StringIO(run(tmp_path, "-o", "csv").stdout)))
    assert [row["name"] for row in rows] == ["a", "b"]
    assert float(rows[0]["daysLow"]) <= float(rows[0]["daysMid"]) <= float(rows[0]["daysHigh"])


class Seen(HTMLParser):
    """The tags of a page, closed in order, and whatever it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href", "srcset")]
        if tag not in ("meta", "link") and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_is_closed(tmp_path: Path) -> None:
    found = run(tmp_path, "-o", "html")
    seen = Seen()
    seen.feed(found.stdout)
    assert seen.open == []
    assert {"svg", "rect", "path", "table"} <= seen.tags
    assert seen.loads == ["data:,"], "an empty icon, so that the browser asks for none"
    assert "http" not in found.stdout
    assert "script" not in seen.tags


def test_what_a_user_wrote_is_escaped_on_the_page(tmp_path: Path) -> None:
    found = run(tmp_path, "-o", "html", name="<script>alert(1)</script>")
    assert "<script>" not in found.stdout
    assert "&lt;script&gt;" in found.stdout


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"jobs": [job(deadlineDays="0.5")]}, 5, "more days for job train"),
        ({"jobs": [job(pools=["B300"])]}, 2, "no such pool"),
        ({"jobs": [job(tokens="15 trillion")]}, 2, UNIT),
        ({"jobs": NOT_FOUND}, 8, "spec.jobs: no plan was found, "),
        ({"jbos": 1}, 2, "spec.jbos is no field here"),
    ],
    ids=["clash", "pool", "unit", "not known", "spelling"],
)
def test_exit_codes_and_words(tmp_path: Path, changes: dict[str, Any], code: int, said: str) -> None:
    found = run(tmp_path, **changes)
    assert found.exit_code == code
    assert said in found.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [("kind: Pod\n", "there is no CapacityPlan in it"), ("kind: CapacityPlan\napiVersion: v1\n", "apiVersion is 'v1'")],
)
def test_a_file_without_a_plan_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    found = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "x.yaml")])
    assert found.exit_code == 2
    assert said in found.stderr


def test_a_damaged_fleet_file_is_refused_with_its_name(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "fleet.json").write_text("{")
    files = ("-f", str(tmp_path / "plan.yaml"), "--fleet", str(tmp_path / "fleet.json"))
    found = CliRunner().invoke(app, ["plan", *files])
    assert found.exit_code == 2
    assert "fleet.json" in found.stderr
