"""Any recipe as baseline: of the run itself, or asked for afterwards; NVIDIA's model on B300 by every reader."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import cases_of
from precision_agent.results.explain import explain
from precision_agent.run.publish import verdict_text
from precision_api.exchange.result import Interval, MeasurementResult
from precision_api.exchange.stats import paired_ratio, ratio
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.kinds.profile import PoolStatus
from precision_api.kinds.report import ReportStatus
from precision_api.models.workload import Workload, resolve
from precision_operator.cli.operands import setting_of
from precision_operator.cluster import paths
from precision_operator.core.observe.kept_report import kept_report
from precision_operator.core.results.pool import Pool
from precision_operator.core.results.reading import read
from precision_operator.core.results.rebase import rebased
from precision_operator.report.facts import status_of_result
from tests.agent.test_replay import CODONFM, replayed
from tests.cli.api import Api
from tests.exporter.test_families import body_of, parsed
from tests.support.golden import FOLDER, beside
from tests.support.node_objects import node_object
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status
from tests.support.result_objects import request

TABLES = beside(__file__)

TABLE: dict[str, Any] = json.loads((FOLDER / "te_gemm_profiling.json").read_text(encoding="utf-8"))
PUBLISHED = TABLE["b300_sxm6_autocast"]
LAYER = PUBLISHED["layer"]["mxfp8"] / PUBLISHED["layer"]["nvfp4"]
SHAPES = {name: row["mxfp8"] / row["nvfp4"] for name, row in PUBLISHED["fprop_ops"].items()}


def b300(baseline: str) -> MeasurementResult:
    recipes = ("bf16", "mxfp8", "nvfp4")
    return replayed(
        product="B300", workload=CODONFM, last_layers_bf16=0, recipes=recipes, listed=True, baseline=baseline
    )


def report_of(result: MeasurementResult) -> dict[str, Any]:
    status = status_of_result(result).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return report_object(result.node, status=status)


@pytest.mark.parametrize("baseline", ["bf16", "mxfp8"])
def test_nvfp4_over_mxfp8_on_b300_is_as_published_by_command_page_and_metric(
    baseline: str, api: Api, tmp_path: Path
) -> None:
    result, page, file = b300(baseline), tmp_path / "page.html", tmp_path / "result.json"
    api.profiles(profile_object(status={"pools": [{"name": "B300", "product": "B300", "nodes": 1, "speedup": "9.9"}]}))
    api.reports(report_of(result))
    (pool,) = api.printed("status", "nightly", "--baseline", "mxfp8")[0]["pools"]
    (row,) = (row for row in pool["recipes"] if row["recipe"] == "nvfp4")
    layer = row["intervals"]["gemmSpeedup"]
    assert ("speedup" in pool, row["baseline"], layer["kind"]) == (False, "mxfp8", "interval")
    assert layer["lower"] < layer["value"] < layer["upper"]
    assert layer["value"] == pytest.approx(LAYER, rel=0.03)
    output = api.run("status", "nightly", "--baseline", "mxfp8")
    assert f"{layer['value']:.2f}x ±" in output.stdout
    rows = {row.figure: row for row in explain(result, "mxfp8") if row.of.startswith("nvfp4")}
    assert float(rows["GEMMs (autocast) speedup"].value.split()[0]) == pytest.approx(LAYER, rel=0.03)
    assert ("come from those over bf16" in rows["speedup"].source) == (baseline == "bf16")
    back = {row.figure: row.value for row in explain(result, "bf16") if row.of.startswith("mxfp8")}
    assert "(95 %: " in back["GEMMs (autocast) speedup"], "of the recorded baseline too"
    assert "Speedups are over mxfp8." in output.stdout
    assert ("come from those over bf16" in output.stderr) == (baseline == "bf16")

    file.write_text(result.model_dump_json(by_alias=True, exclude_none=True))
    assert api.run("report", str(file), "--baseline", "mxfp8", "-o", str(page)).exit_code == 0
    cells = r"<tr><t.[^>]*>(\w+)</t.><td>(?:fprop|all)</td><td>autocast</td><td>[^<]*</td><td>(.*?)x \["
    rows = re.findall(cells, page.read_text())
    assert {name: float(text) for name, text in rows} == pytest.approx({**SHAPES, "together": LAYER}, rel=0.03)

    series = parsed(body_of([report_of(b300("mxfp8"))], [profile_object()]))
    found = {
        sample.name: sample.value
        for sample in series
        if sample.labels.get("recipe") == "nvfp4"
        and sample.labels.get("mode") == "autocast"
        and sample.labels.get("stat", "p50") == "p50"
        and (sample.labels["scope"], sample.labels["baseline"]) == ("all", "mxfp8")
    }
    lower, value, upper = (found[f"precision_node_gemm_speedup{end}_ratio"] for end in ("_lower", "", "_upper"))
    assert lower < value < upper
    assert value == pytest.approx(LAYER, rel=0.03)
    assert found["precision_pool_gemm_speedup_ratio"] == value


def test_what_a_run_measures_does_not_depend_on_its_baseline() -> None:
    made = [request(baseline=name, recipes=RECIPE_NAMES, recipe_scope="mlp") for name in RECIPE_NAMES]
    cases = [cases_of(asked, resolve(asked.workload)) for asked in made]
    assert {(of.gemms, of.training, frozenset(of.variants[:-1])) for of in cases} == {
        (cases[0].gemms, cases[0].training, frozenset(cases[0].variants[:-1]))
    }


logs = st.lists(st.tuples(*[st.floats(-1, 1)] * 3), min_size=2, max_size=12)


@given(logs)
def test_the_ratio_of_two_paired_ratios_is_that_of_the_pairs_and_no_narrower(of: list[tuple[float, ...]]) -> None:
    base, first, second = ([math.exp(log) for log in arm] for arm in zip(*of, strict=True))
    made, exact = ratio(paired_ratio(first, base), paired_ratio(second, base)), paired_ratio(first, second)
    assert made.value == pytest.approx(exact.value)
    assert made.lower <= exact.lower * (1 + 1e-9)
    assert made.upper >= exact.upper * (1 - 1e-9)


def test_a_speedup_over_the_recorded_baseline_and_back_is_its_inverse() -> None:
    before = read("n", "p", ReportStatus.model_validate(report_status()))
    after, said = rebased(before, "mxfp8")
    back = after.rows["bf16"]
    assert said == "Speedups over mxfp8 come from those over bf16, whose noise was not recorded: no verdicts."
    assert back.speedup == pytest.approx(1 / before.rows["mxfp8"].speedup)
    assert (back.speedup_lower, back.speedup_upper) == pytest.approx((1 / 1.384, 1 / 1.36), rel=1e-3)
    assert (back.gemm_speedup["autocast"], after.rows["mxfp8"].speedup) == (pytest.approx(1 / 1.509, rel=1e-3), None)
    assert back.difference is None, "the report does not say how noisy its run was"


STEPS = ("separate", "primary-weights")
OLD = {"scope": "mlp", "baseline": "fp8_block", "timing": "1/quick/mlp"}
REFUSED = TABLES["refused"]


def test_runs_over_different_baselines_are_compared_but_not_those_that_kept_attention_in_theirs() -> None:
    mlp = {"scope": "mlp", "baseline": "bf16"}
    steps = [{"timing": f"1/quick/{step}"} for step in ("mxfp8-attention", "fp8_current-attention", *STEPS)]
    runs = ({}, {"baseline": "mxfp8"}, mlp, OLD | {"timing": "1/quick/mlp-bf16"}, OLD, {"timing": "1/quick"}, *steps)
    statuses = [ReportStatus.model_validate(report_status(**run)) for run in runs]
    methods = [setting_of(read("n", "p", status)).method for status in statuses]
    assert (methods[0], methods[2], methods[0]) == (methods[1], methods[3], methods[5])
    assert len(set(methods)) == 7
    assert methods[6] == "replay, scope all, attention's core in mxfp8"


@pytest.mark.parametrize(("row", "run", "words"), REFUSED.values(), ids=REFUSED)
def test_ratios_that_a_run_does_not_allow_are_refused_in_words(row: Any, run: Any, words: str, api: Api) -> None:
    rows = [recipe_row("bf16"), recipe_row("mxfp8", 1.3) | row, recipe_row("fp8_block", 1.2)]
    api.profiles(profile_object())
    api.reports(report_object(status=report_status(rows, **run)))
    output = api.run("status", "nightly", "--baseline", "mxfp8")
    assert words in " ".join(output.stderr.split())
    assert not re.search(r"\dx", output.stdout)
    full = replayed(product="H100", workload=Workload(preset="llama3-8b"), recipes=("bf16", "fp8_current"))
    with pytest.raises(ValueError, match="no figures of mxfp8; take one of bf16, fp8_current"):
        explain(full, "mxfp8")


def test_where_the_recorded_baseline_has_no_figures_ratios_are_those_of_rates(api: Api, tmp_path: Path) -> None:
    asked = {"product": "H100", "workload": Workload(preset="llama3-8b"), "baseline": "mxfp8"}
    page, result = tmp_path / "page.html", replayed(recipes=("bf16", "fp8_current"), **asked)
    (file := tmp_path / "h.json").write_text(result.model_dump_json(by_alias=True, exclude_none=True))
    assert api.run("report", str(file), "--baseline", "bf16", "-o", str(page)).exit_code == 0
    assert "Training speedups over bf16 are ratios of rates: the run has none over mxfp8." in page.read_text()
    before = read("n", "p", status_of_result(result))
    made = rebased(before, "bf16")[0].rows["fp8_current"]
    rate, plain = (before.intervals(recipe)["tokens_per_second"] for recipe in ("fp8_current", "bf16"))
    assert (made.speedup, made.difference) == (pytest.approx(rate.value / plain.value), "faster")
    assert made.speedup_lower <= rate.lower / plain.upper * 1.001
    bare = status_of_result(replayed(recipes=("bf16", "fp8_current"), **asked, training=False))
    assert "no figures of mxfp8, the run's baseline, so no ratios" in rebased(read("n", "p", bare), "bf16")[1]


def test_ratios_over_a_baseline_that_fell_back_are_withheld_with_the_reason_by_every_reader(
    api: Api, tmp_path: Path
) -> None:
    asked = {"workload": Workload(preset="llama3-8b"), "recipes": ("bf16", "mxfp8"), "baseline": "nvfp4"}
    result = replayed(ReplayOptions(fault="silent_fallback"), product="B300", **asked)
    why = "over nvfp4 are withheld: nvfp4 fell back to another precision."
    text = verdict_text(result)
    assert (f"mxfp8: Speedups {why}" in text, re.search(r"\d+x", text)) == (True, None)
    rows = explain(result)
    assert [row.value for row in rows if re.search("speedup|quantisation tax", row.figure)] == ["over nvfp4"]
    told = {row.of.split()[0]: row.source for row in rows if row.figure == "meaning"}
    assert told["mxfp8"] == told["bf16"] == f"Speedups {why}"
    page, file = tmp_path / "page.html", tmp_path / "result.json"
    recorded = result.recipes[2].model_copy(update={"training": of_mxfp8(result)})
    older = result.model_copy(update={"recipes": (*result.recipes[:2], recorded)})  # an agent that withheld nothing
    for made, over in ((result, None), (older, None), (older, "bf16")):
        file.write_text(made.model_dump_json(by_alias=True, exclude_none=True))
        option = ("--baseline", over) if over else ()
        assert api.run("report", str(file), *option, "-o", str(page)).exit_code == 0
        assert not re.search(r"(?<!\d)9\.9\d*x", page.read_text())
        assert "9.9000" not in str(explain(made, over))
    assert f"bf16 are ratios of rates; those {why}" in str(explain(older, "bf16"))
    api.profiles(profile_object())
    api.reports(report_of(result))
    output = api.run("status", "nightly", "--baseline", "bf16")
    assert f"bf16 are ratios of rates; those {why}" in " ".join(output.stderr.split())
    bare = replayed(ReplayOptions(fault="silent_fallback"), product="B300", **asked, training=False)
    assert f"ratios {why[:-1]}" in rebased(read("n", "p", status_of_result(bare)), "bf16")[1]


def of_mxfp8(result: MeasurementResult) -> Any:
    """Its training figures with a speedup that should not be there."""
    row = next(row for row in result.recipes if row.recipe == "mxfp8")
    return row.training and row.training.model_copy(update={"speedup": Interval(value=9.9, lower=9.9, upper=9.9, n=3)})


def test_a_mixture_is_a_recipe_to_every_reader(api: Api, tmp_path: Path) -> None:
    name, page = "nemotron3-super.nbbnmb", tmp_path / "page.html"
    words = "nemotron3-super is a mixture: nvfp4, but attention in bf16, attentionOut in bf16, mambaOut in mxfp8; "
    words += "metrics and JSON add .nbbnmb to its name."
    status, other = (report_status([recipe_row("mxfp8", 1.3), recipe_row(of, 1.35)]) for of in (name, name[:-1] + "n"))
    api.profiles(profile_object())
    api.reports(*(report_object(node, status=status) for node in "ab"))
    assert api.run("report", "nightly", "--baseline", "mxfp8", "-o", str(page), "--price", "2").exit_code == 0
    assert all(part in page.read_text() for part in (">nemotron3<", ">-super<", "<td>nemotron3-super</td>", words))
    pages = page.read_text(), *(api.run(*asked).stdout for asked in (("nodes",), ("status", "nightly")))
    for text in (*pages, told := api.run("status", "nightly", "--baseline", "nemotron3-super").stdout):
        assert (words in " ".join(text.split()), name in text) == (True, False)
    assert "0.96x" in told
    assert "nemotron3-super 1.04x over mxfp8" in " ".join(pages[0].split())
    assert api.printed("nodes")[0]["best"] == name
    assert name in api.run("compare", "a", "b", "-o", "json").stdout
    api.reports(*(report_object(node, status=status) for node in "ab"), report_object("c", status=other))
    done = api.run("compare", "a", "c")
    assert "nemotron3-super has other parts in B than in A: not compared" in " ".join(done.stderr.split())
    assert "nemotron3-super.n" not in done.stdout
    assert api.run("report", "nightly", "-o", str(page)).exit_code == 0
    pages = page.read_text(), *(api.run(*asked).stdout for asked in (("nodes",), ("status", "nightly")))
    for text in pages:
        assert all(f"{it} is a mixture" in " ".join(text.split()) for it in (name, f"{name[:-1]}n")), text[-900:]
    assert "-super.nbbnmb" in pages[0]
    assert "nemotron3-super 1.35x (nbbnmn)" in pages[1]
    refused = api.run("status", "nightly", "--baseline", "nemotron3-super").stderr
    assert f"mixtures of several kinds have this name; take one of {name}, {name[:-1]}n" in " ".join(refused.split())
    over = api.run("status", "nightly", "--baseline", name)
    assert (f"c: no figures of {name} to compare with" in over.stderr, f"over {name}." in over.stdout) == (True, True)


def test_attention_and_weights_of_a_step_are_named_by_every_reader(api: Api) -> None:
    step = "attention's core in mxfp8, weights in the recipe's format alone"
    title = "1/quick/mxfp8-attention/primary-weights"
    rows = [recipe_row("bf16"), recipe_row("mxfp8", 1.6)]
    status = report_status(rows, timing=title)
    summary = Pool((read("n", "p", ReportStatus.model_validate(status)),)).summary
    pool = PoolStatus(name="NVIDIA-GB200", **summary).model_dump(mode="json", by_alias=True, exclude_none=True)
    api.profiles(profile_object("plain"), profile_object("core", status={"pools": [pool]}))
    api.reports(report_object("a", "plain", status=report_status(rows)), report_object("a", "core", status=status))
    core, plain = api.printed("nodes")
    assert (core["step"], plain["step"]) == (step, None)
    for words in (("nodes", "-o", "wide"), ("status", "core")):
        assert f"mxfp8 1.60x ({step})" in " ".join(api.run(*words).stdout.split())
    recipes = api.printed("status", "core")[0]["pools"][0]["recipes"]
    assert {row["recipe"]: row["step"] for row in recipes} == {"bf16": None, "mxfp8": step}
    infos = [
        it for it in parsed(body_of([report_object("a", status=status)], [profile_object()])) if "_info" in it.name
    ]
    assert {it.labels["step"] for it in infos if "step" in it.labels} == {step}
    api.hold(paths.NODES, node_object(name="a"))
    api.hold(paths.collection("resource.k8s.io/v1", "resourceslices"))
    rated = api.run("fleet").stdout
    assert (rated.count(f"mxfp8 ({step})"), rated.count("mxfp8  ")) == (1, 1)


def test_a_pool_says_which_baseline_its_speedups_are_over_and_says_nothing_without_any(api: Api) -> None:
    rows = [recipe_row("bf16"), recipe_row("mxfp8", 1.3)]
    other = report_status(rows, baseline="mxfp8")
    other["hardware"] = {**other["hardware"], "pool": "B300"}
    api.profiles(profile_object())
    api.reports(report_object("a", status=report_status(rows)), report_object("b", status=other))
    assert "Speedups are over mxfp8 in B300, bf16 in NVIDIA-GB200." in api.run("status", "nightly").stdout
    api.reports(report_object("b", status=other))
    told = api.run("status", "nightly", "--baseline", "bf16").stdout
    assert ("GEMMS" in told, "Speedups are over bf16." in told) == (True, True)
    bare = [row | {"verdict": "fallback"} for row in rows]
    api.reports(report_object("b", status=report_status(bare, baseline="mxfp8", provenance="measured", simulated=[])))
    assert "Speedups are over" not in api.run("status", "nightly").stdout


def test_nothing_is_faster_than_a_baseline_whose_precision_is_in_doubt() -> None:
    rows = [recipe_row("mxfp8", verdict="fallback"), recipe_row("nvfp4", 1.3)]
    status = ReportStatus.model_validate(report_status(rows, baseline="mxfp8", provenance="measured", simulated=[]))
    for of in (status, kept_report(status)):
        assert read("n", "p", of).rows["nvfp4"].speedup is None


@pytest.mark.parametrize(
    ("words", "said"),
    TABLES["impossible"],
)
def test_a_baseline_that_can_not_be_is_refused(words: tuple[str, ...], said: str, api: Api) -> None:
    api.profiles(profile_object())
    api.reports(report_object())
    output = api.run(*words)
    assert output.exit_code == 2
    assert said in " ".join(output.stderr.split())
