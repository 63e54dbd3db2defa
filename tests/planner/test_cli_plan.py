"""`kubectl precision plan`: its forms, its exit codes, and a page that stands alone.

The manual's worked examples are worked out again by hand and by the planner, and the pages show what the plugin prints.

The plan's page: the answer first, one axis of dates, what is due and what is not promised, and readable figures.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from playwright.sync_api import Browser
from typer.testing import CliRunner, Result

from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_api.models.flops import training_flops_per_token
from precision_api.models.presets import PRESETS
from precision_lab.pictures.pages import chromium
from precision_operator.cli import app
from precision_operator.planner.answer.charts import Calendar, gantt, pool_use, power, watermark
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.page import HEAD, page
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.answer.readable import readable_days, readable_dollars, readable_energy, readable_watts
from precision_operator.planner.answer.table import wide
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from precision_operator.planner.inputs.snapshot import fleet_of
from precision_operator.planner.inputs.terms import Failures
from precision_operator.planner.rates.failures import PER_GPU_HOUR, share
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.golden import beside

UNIT = "spec.jobs.0.tokens: write a number and K, M, B or T, for example 15T, not '15 trillion'"

NOT_FOUND = [
    job("a", tokens="10B"),
    job("long", after=["a"], tokens="200B", minGPUs=128, priority=9),
    job("short", after=["a"], minGPUs=128, deadlineDays="2.6"),
]
"""The job of higher priority goes first, and the other one is late: not found, and not proved."""
AT = "--at=2026-12-01T00:00:00Z"
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
EMPTY = Fleet(taken_at="2026-12-01T00:00:00Z")
PRICES = [
    {"name": name, "dollarsPerGPUHour": dollars, "priceIncludesPower": True,
     "scaling": [{"gpus": 8, "efficiency": "0.98"}, {"gpus": 4096, "efficiency": "0.85"}]}
    for name, dollars in (("H100", "3"), ("GB200", "8"))
]  # fmt: skip
JOBS = (
    job("pretrain", tokens="9T", deadlineDays="60", priority=10, maxGPUs=96, pools=["GB200"]),
    job("ablation", tokens="600B", deadlineDays="30", denyRecipes=["nvfp4"], maxGPUs=64),
    job("continue", tokens="1T", after=["pretrain"], deadlineDays="75", maxGPUs=64),
)


def run(
    folder: Path, *arguments: str, jobs: Any = None, name: str = "q1", provenance: str = "measured", **changes: Any
) -> Result:
    text = plan_text([job("a"), job("b", after=["a"])] if jobs is None else jobs, name, **changes)
    (folder / "plan.yaml").write_text(text)
    known = fleet(pool("H100", node("n", [rate("bf16"), rate("fp8_current", 1e5)], count=16, provenance=provenance)))
    (folder / "fleet.json").write_text(known.model_dump_json(by_alias=True))
    files = ("-f", str(folder / "plan.yaml"), "--fleet", str(folder / "fleet.json"))
    return CliRunner().invoke(app, ["plan", *files, AT, *arguments])


def plan_text(jobs: Any, name: str = "q1", **changes: Any) -> str:
    spec = {"jobs": jobs, "whatIfs": [], "goodput": "1"} | changes
    head = {"apiVersion": "precisionprofiler.io/v1alpha1", "kind": "CapacityPlan", "metadata": {"name": name}}
    return yaml.safe_dump(head | {"spec": spec})


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
    assert " ".join(head.split()) == "JOB POOL RECIPE GPUS TFLOP/S/GPU TIME POWER MWH COST $/MTOKEN DEADLINE"
    assert first.split()[:4] == ["a", "H100", "fp8_current", "128"]
    assert answer.startswith("run a on 128 GPUs of H100 with fp8_current")


@pytest.mark.parametrize("jobs", [None, [job("a", workload={"preset": "qwen3-8b"})]], ids=["its own rate", "predicted"])
def test_a_plan_of_figures_that_nobody_measured_begins_with_that_and_says_it_once(tmp_path: Path, jobs: Any) -> None:
    found = run(tmp_path, jobs=jobs, fleet={"allow": ["simulated"]}, provenance="simulated")
    words = found.stdout.lower()
    assert found.stdout.startswith("SIMULATED")
    assert (words.count("simulated"), words.count("predicted")) == (1, jobs is not None)
    assert "measured" not in words


def test_two_clusters_are_one_fleet_in_which_nothing_of_one_name_is_joined(tmp_path: Path) -> None:
    both = ("--fleet", f"east={tmp_path / 'east.json'}", "--fleet", f"west={tmp_path / 'west.json'}")
    for cluster, speed in (("east", 8e4), ("west", 16e4)):
        nodes = [node("n", [rate(tokens_per_second=speed)], count=16, rack="r")]
        (tmp_path / f"{cluster}.json").write_text(fleet(pool("H100", *nodes)).model_dump_json(by_alias=True))
    jobs = [job(name, pools=[where], globalBatch=10**6) for name, where in (("a", "west/H100"), ("b", "east/H100"))]
    (tmp_path / "plan.yaml").write_text(plan_text(jobs))
    done = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "plan.yaml"), *both, "-o", "json", AT])
    rows = {row["name"]: row for row in json.loads(done.stdout)["jobs"]}
    assert (rows["a"]["gpus"], rows["a"]["pool"], rows["b"]["pool"]) == (128, "west/H100", "east/H100")
    assert float(rows["b"]["days"]["mid"]) == pytest.approx(2 * float(rows["a"]["days"]["mid"]), rel=0.01)


@pytest.mark.parametrize("words", [["east.json", "west=b.json"], ["a=east.json", "a=east.json"], ["=east.json"]])
def test_fleets_of_several_clusters_want_a_name_each(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(plan_text([job("a")]))
    (tmp_path / "east.json").write_text(fleet().model_dump_json(by_alias=True))
    named = [word.replace("east.json", str(tmp_path / "east.json")) for word in words]
    files = [part for word in named for part in ("--fleet", word)]
    done = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "plan.yaml"), *files])
    assert (done.exit_code, "write CLUSTER=FILE for each" in done.stderr) == (2, True)


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


def test_the_page_stands_alone_is_closed_and_escapes_what_a_user_wrote(tmp_path: Path) -> None:
    found = run(tmp_path, "-o", "html", name="<script>alert(1)</script>")
    seen = Seen()
    seen.feed(found.stdout)
    assert seen.open == []
    assert {"svg", "rect", "path", "table"} <= seen.tags
    assert seen.loads == ["data:,"], "an empty icon, so that the browser asks for none"
    assert "http" not in found.stdout
    assert "<script" not in found.stdout
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
    (progress,) = share(Failures(), np.array([job.gpus]), PER_GPU_HOUR)
    assert float(job.days.mid) == pytest.approx(10e12 / (job.gpus * best[4]) / 86_400 / progress, rel=1e-5)
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
            assert found[0] == pytest.approx(1e12 / (2048 * fp8 * 1e12 / flops) / 86_400, rel=1e-4)


def test_one_percent_of_slow_nodes_costs_a_fifth_and_draining_them_buys_it_back() -> None:
    known = read_fleet((ROOT / "docs" / "planner" / "slow-nodes.json").read_text())
    found = worked("slow-nodes", known)
    (job,) = found.jobs
    none_slow = math.comb(990, 256) / math.comb(1000, 256)
    by_hand = 1 / (none_slow + (1 - none_slow) / 0.8)
    assert float(job.straggler) == pytest.approx(by_hand, abs=1e-4)
    drained = -float(found.what_ifs[0].days or 0) / float(job.days.mid)
    assert drained == pytest.approx(1 - by_hand, abs=1e-3)


def answered(jobs: tuple[Any, ...] = JOBS, rated: Any = None, **result: Any) -> tuple[PlanStatus, PlanAnswer]:
    """Three jobs on two pools, with prices and a power budget."""
    gb200 = [rate("bf16", 95_000.0, power_scope="module"),
             rate("nvfp4", 154_000.0, power_scope="module", last_layers_bf16=5, **rated or {})]  # fmt: skip
    known = fleet(
        pool("H100", node("h", [rate("bf16"), rate("fp8_current", 1e5)], count=16, **result)),
        pool("GB200", node("g", gb200, gpus=4, count=36, **result)),
    )
    changes: dict[str, Any] = {"pools": PRICES, "goodput": "0.92", "objective": ["time", "cost"]}
    changes["power"] = {"pue": "1.2", "overhead": {"gpu": "1.35", "module": "1.15"}, "budget": "600kW"}
    if result:
        changes["fleet"] = {"allow": ["simulated"]}
    made = plan(spec(*jobs, **changes), known, NOW)
    return status(made), made


@pytest.fixture(scope="module")
def solved() -> tuple[PlanStatus, PlanAnswer]:
    return answered()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_the_answer_comes_first_then_schedule_and_jobs_with_tflops_dates_and_deadlines_and_peaks_as_of_status(
    solved: tuple[PlanStatus, PlanAnswer],
) -> None:
    told, answer = solved
    text = page("q1", told, answer)
    assert told.recommendation
    places = [text.index(part) for part in (told.recommendation, 'id="gantt"', 'id="pools"', "<h2>Jobs</h2>")]
    assert places == sorted(places)
    assert [*HEAD].index("TFLOP/s per GPU") < [*HEAD].index("time")
    (drawn,) = gantt(told, answer, "")
    for one in told.jobs:
        assert f">{one.name}<" in drawn.svg
        start = datetime.fromisoformat(one.start)
        assert f"{start.day} {start:%b} to " in drawn.svg
    for due in ("30 Jan", "31 Dec", "14 Feb"):  # 60, 30 and 75 days after 1 December
        assert f">due {due}<" in drawn.svg
    (drawn,) = pool_use(answer, "")
    assert {row[0]: row[2] for row in drawn.rows} == {use.name: f"{use.peak_gpus:,}" for use in told.pools}
    assert all(f"at most {use.peak_gpus:,} of {use.gpus:,} GPUs" in drawn.svg for use in told.pools)
    (drawn,) = power(answer, "")
    assert told.totals
    assert told.totals.peak_megawatts
    assert readable_watts(float(told.totals.peak_megawatts) * 1e6) in drawn.title
    assert told.power == readable_watts(float(told.totals.peak_megawatts) * 1e6)
    assert "budget 600 kW" in drawn.svg


@pytest.mark.parametrize("name", PAGES := beside(__file__))
def test_the_pages_that_readers_got_do_not_contradict_themselves(name: str) -> None:
    plans = ROOT / "benchmarks" / "plan_readers"
    files = ["-f", str(plans / f"{name}.yaml"), "--fleet", str(plans / "fleet.json"), "--at=2026-12-01T00:00:00Z"]
    shown = unescape(CliRunner().invoke(app, ["plan", *files, "-o", "html"]).stdout)
    assert [words for words in PAGES[name]["said"] if words not in shown] == []
    assert not re.search(PAGES[name]["silent"], shown)


def test_a_deadline_that_is_not_promised_says_so() -> None:
    told, answer = answered((job("a", deadlineDays="3650", tokens="1B"), job("b", tokens="1B")))
    late = told.model_copy(update={"jobs": tuple(j.model_copy(update={"deadline": "notPromised"}) for j in told.jobs)})
    assert ", not promised<" in next(gantt(late, answer, "")).svg
    assert "not promised" not in next(gantt(told, answer, "")).svg


def test_simulated_and_emulated_figures_are_marked() -> None:
    status, answer = answered(provenance="simulated")
    text = page("q1", status, answer)
    assert '<p class="mark">SIMULATED: ' in text
    assert watermark(status) == "SIMULATED"
    drawings = re.findall(r"<svg[^>]*viewBox.*?</svg>", text)
    assert len(drawings) == 4
    assert all(">SIMULATED</text>" in each for each in drawings)
    for changes in ({"verdict": "emulated"}, {"emulated": True}):
        status, answer = answered(rated=changes)
        assert "nvfp4 (last 5 in BF16) (emulated)" in next(gantt(status, answer, "")).svg


@pytest.mark.parametrize("days", [0.5, 2, 10, 47, 400, 3000])
def test_dates_on_the_axis_are_few_and_within_it(days: float) -> None:
    drawn = Calendar(datetime(2026, 12, 1, 9, 30, tzinfo=UTC), days).axis(0, 100)
    places = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="114"', drawn)]
    assert 2 <= len(places) <= 6
    assert min(b - a for a, b in pairwise(places)) > 40, "dates that lie on each other"


def test_watts_and_promises_are_in_readable_numbers() -> None:
    assert [readable_watts(value) for value in (640, 258_336, 1.2e6, 14.04e6)] == ["640 W", "258 kW", "1.2 MW", "14 MW"]
    spans = [(0.0659, 0.06, 0.08), (11.2345, 10.5, 11.7), (320.4, 305.1, 360), (0.001, 0.0009, 0.002), (4.26, 4, 5)]
    assert [readable_days(*span) for span in spans] == [
        "1.6 hours (1.44 to 1.92)", "11 days (10.5 to 11.7)", "320 days (305 to 360)", "1.4 minutes (1.3 to 2.88)",
        "4.3 days (4 to 5)",
    ]  # fmt: skip
    assert readable_days(0.00032) == "28 seconds"
    status, _ = answered()
    assert wide(status.jobs[0].model_copy(update={"megawatts": "0.00907"}))["power"] == "9.07 kW"
    assert [readable_energy(value) for value in (12_345, -0.00307, 1)] == ["12,300 MWh", "-3.07 kWh", "1 MWh"]
    assert [readable_dollars(value) for value in (1_234_567, -99.987, 0.012345)] == ["$1,230,000", "-$100", "$0.0123"]


def test_a_refused_plan_has_its_problems_and_no_picture() -> None:
    made = plan(spec(job(pools=["B300"])), fleet(), NOW)
    text = page("q1", status(made), made)
    assert 'class="warning"' in text
    assert "spec.jobs" in text
    assert "<figure" not in text


@pytest.mark.parametrize("width", [420, 1280])
def test_it_fits_the_screen_without_an_error_and_no_words_lie_on_others(
    browser: Browser, tmp_path: Path, solved: tuple[PlanStatus, PlanAnswer], width: int
) -> None:
    path, errors = tmp_path / "plan.html", list[str]()
    path.write_text(page("q1", *solved), encoding="utf-8")
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.on("console", lambda message: errors.append(message.text))
    tab.goto(path.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
    assert errors == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    met = tab.evaluate(
        """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const edge = svg.getBoundingClientRect();
            const all = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
            const cut = all.filter(([, b]) => b.left < edge.left - 1 || b.right > edge.right + 1).map(([t]) => t);
            return cut.concat(all.flatMap(([a, x], i) => all.slice(i + 1).filter(([, y]) =>
                Math.min(x.right, y.right) - Math.max(x.left, y.left) > 2 &&
                Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top) > 6).map(([b]) => `${a} / ${b}`)));
        })"""
    )
    assert met == []
