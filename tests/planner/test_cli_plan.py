"""`kubectl precision plan`: its forms, its exit codes, and a page that stands alone.

The manual's worked examples are worked out again by hand and by the planner, and the pages show what the plugin prints.
"""

import csv
import io
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_api.models.flops import training_flops_per_token
from precision_api.models.presets import PRESETS
from precision_operator.cli import app
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from precision_operator.planner.inputs.snapshot import fleet_of
from tests.support.fleets import NOW, fleet, job, node, pool, rate

AT = "--at=2026-12-01T00:00:00Z"
UNIT = "spec.jobs.0.tokens: write a number and K, M, B or T, for example 15T, not '15 trillion'"

NOT_FOUND = [
    job("a", tokens="10B"),
    job("long", after=["a"], tokens="200B", minGPUs=128, priority=9),
    job("short", after=["a"], minGPUs=128, deadlineDays="1"),
]
"""The job of higher priority goes first, and the other one is late: not found, and not proved."""
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
EMPTY = Fleet(taken_at="2026-12-01T00:00:00Z")


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


def worked(name: str, known: Fleet = EMPTY) -> PlanStatus:
    spec = PlanSpec.model_validate(yaml.safe_load((ROOT / "docs" / "planner" / f"{name}.yaml").read_text())["spec"])
    found = plan(spec, known, NOW)
    return status(found, what_ifs(spec, known, found, NOW))


def test_llama_405b_takes_the_published_days_and_an_empty_cluster_is_an_empty_fleet() -> None:
    rows = json.loads((GOLDEN / "megatron_bridge.json").read_text())["rows"]
    gpus = {"H100": 1024, "GB200": 256, "GB300": 256}
    best = max(rows, key=lambda row: gpus[row[1]] * row[4])
    (job,) = worked("published").jobs
    assert (job.pool, job.recipe, job.gpus) == (best[1], best[2], gpus[best[1]])
    assert float(job.days.mid) == pytest.approx(10e12 / (job.gpus * best[4]) / 86_400, rel=1e-5)
    assert fleet_of([], [], {}, NOW, "x").pools == ()


def test_published_rates_stand_in_one_row_with_product_recipe_and_gpus() -> None:
    rows = {
        (row["product"], row["recipe"], row["gpus"], row["tokens_per_s_gpu"])
        for row in json.loads((GOLDEN / "multinode_rows.json").read_text())["rows"]
        if (row["model"], row["software"]) == ("llama3.1-405b", "NeMo 26.06")
    }
    spec = yaml.safe_load((ROOT / "docs" / "planner" / "published.yaml").read_text())["spec"]
    quoted = [
        (pool["name"], rate["recipe"], rate["gpus"], float(rate["tokensPerSecondPerGPU"]))
        for pool in spec["pools"]
        for rate in pool["jobRates"]
    ]
    assert len(quoted) == 7
    assert set(quoted) <= rows


def test_nvfp4_saves_the_share_that_maxtext_publishes() -> None:
    rows = json.loads((GOLDEN / "maxtext_nvfp4.json").read_text())["rows"]
    days = {job.name: float(job.days.mid) for job in worked("nvfp4").jobs}
    flops = training_flops_per_token(PRESETS["llama3.1-405b"].model, 8192)
    for model, system, fp8, nvfp4 in rows:
        if model == "llama3.1-405b":
            found = days[f"{system.lower()}-fp8"], days[f"{system.lower()}-nvfp4"]
            assert found[0] / found[1] == pytest.approx(nvfp4 / fp8, rel=1e-4)
            assert found[0] == pytest.approx(1e12 / (1024 * fp8 * 1e12 / flops) / 86_400, rel=1e-4)


def test_one_percent_of_slow_nodes_costs_a_fifth_and_draining_them_buys_it_back() -> None:
    known = read_fleet((ROOT / "docs" / "planner" / "slow-nodes.json").read_text())
    found = worked("slow-nodes", known)
    (job,) = found.jobs
    none_slow = math.comb(990, 256) / math.comb(1000, 256)
    by_hand = 1 / (none_slow + (1 - none_slow) / 0.8)
    assert float(job.straggler) == pytest.approx(by_hand, abs=1e-4)
    drained = -float(found.what_ifs[0].days or 0) / float(job.days.mid)
    assert drained == pytest.approx(1 - by_hand, abs=1e-3)
