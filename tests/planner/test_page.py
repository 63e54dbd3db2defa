"""The plan's page: the answer first, one axis of dates, what is due and what is not promised, and readable figures."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from precision_api.kinds.capacity_plan import PlanStatus
from precision_lab.pictures.pages import chromium
from precision_operator.planner.answer.charts import Calendar, gantt, pool_use, power, watermark
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.page import HEAD, page
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.answer.readable import readable_days, readable_dollars, readable_energy, readable_watts
from precision_operator.planner.answer.table import wide
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec

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


def test_the_answer_comes_first_then_schedule_and_jobs_with_tflops(solved: tuple[PlanStatus, PlanAnswer]) -> None:
    text = page("q1", *solved)
    assert solved[0].recommendation
    places = [text.index(part) for part in (solved[0].recommendation, 'id="gantt"', 'id="pools"', "<h2>Jobs</h2>")]
    assert places == sorted(places)
    assert [*HEAD].index("TFLOP/s per GPU") < [*HEAD].index("time")


def test_every_job_has_its_dates_and_its_deadline(solved: tuple[PlanStatus, PlanAnswer]) -> None:
    told, answer = solved
    (drawn,) = gantt(told, answer, "")
    for one in told.jobs:
        assert f">{one.name}<" in drawn.svg
        start = datetime.fromisoformat(one.start)
        assert f"{start.day} {start:%b} to " in drawn.svg
    for due in ("30 Jan", "31 Dec", "14 Feb"):  # 60, 30 and 75 days after 1 December
        assert f">due {due}<" in drawn.svg


def test_a_deadline_that_is_not_promised_says_so() -> None:
    told, answer = answered((job("a", deadlineDays="3650", tokens="1B"), job("b", tokens="1B")))
    late = told.model_copy(update={"jobs": tuple(j.model_copy(update={"deadline": "notPromised"}) for j in told.jobs)})
    assert ", not promised<" in next(gantt(late, answer, "")).svg
    assert "not promised" not in next(gantt(told, answer, "")).svg


def test_power_and_pools_use_reach_as_high_as_status_and_totals_say(solved: tuple[PlanStatus, PlanAnswer]) -> None:
    told, answer = solved
    (drawn,) = pool_use(answer, "")
    assert {row[0]: row[2] for row in drawn.rows} == {use.name: f"{use.peak_gpus:,}" for use in told.pools}
    assert all(f"at most {use.peak_gpus:,} of {use.gpus:,} GPUs" in drawn.svg for use in told.pools)
    told, answer = solved
    (drawn,) = power(answer, "")
    assert told.totals
    assert told.totals.peak_megawatts
    assert readable_watts(float(told.totals.peak_megawatts) * 1e6) in drawn.title
    assert told.power == readable_watts(float(told.totals.peak_megawatts) * 1e6)
    assert "budget 600 kW" in drawn.svg


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


@pytest.mark.parametrize(("days", "marks"), [(0.5, 6), (2, 6), (10, 6), (47, 6), (400, 6), (3000, 6)])
def test_dates_on_the_axis_are_few_and_within_it(days: float, marks: int) -> None:
    drawn = Calendar(datetime(2026, 12, 1, 9, 30, tzinfo=UTC), days).axis(0, 100)
    places = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="114"', drawn)]
    assert 2 <= len(places) <= marks
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
