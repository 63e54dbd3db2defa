"""The page: its words come first, its figures are honest, and it needs nothing but itself."""

import re
from dataclasses import replace
from html import escape, unescape
from itertools import combinations
from typing import Any

import pytest

from precision_api.exchange.result import Failure, GemmSum, Meaning, MeasurementResult, Software, Verdict, Verification
from precision_api.facts.plain_text import three_digits
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.kinds.report import ReportStatus
from precision_operator.core.results.reading import read
from precision_operator.drawing.figure import RECIPE_COLOURS, RECIPE_DASHES
from precision_operator.report.facts import Given, reading_of_result
from precision_operator.report.figures import figures
from precision_operator.report.figures.cost import dollars
from precision_operator.report.figures.figure import of_nodes, of_result
from precision_operator.report.figures.table import table
from precision_operator.report.page import NODES_LISTED, page
from precision_operator.report.verdict import verdict
from tests.report.sample import MADE_AT, fleet, fleet_page, full_result, gemms, node_page, slow_page, status, sums
from tests.support.report_objects import recipe_row, report_status, without_energy
from tests.support.result_objects import recipe_result

PAGES = {"a node": node_page, "a fleet": fleet_page}
each_page = pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)


def said(given: Given) -> str:
    return "\n".join(each.text for each in verdict(given))


def figure(given: Given, key: str) -> Any:
    return next(each for each in figures(given) if each.key == key)


@each_page
def test_the_page_is_the_same_loads_nothing_begins_with_the_verdict_and_has_figures_as_tables(make: Any) -> None:
    text = page(make())
    assert not re.search(r"<script|@import|url\((?!#failed|#missing)|src=|https?://", text)
    assert text.index("nvfp4 trains fastest") < text.index("<figure")
    for each in figures(make()):
        assert each.title, each.key
        assert each.caption, each.key
        assert "node" in each.source, each.key
        assert all(len(row) == len(each.head) for row in each.rows), each.key
        assert not each.svg or 'aria-label="' in each.svg
    assert page(make()) == page(make())


def test_a_node_has_all_figures_and_a_fleet_has_its_pools() -> None:
    keys = [figure.key for figure in figures(node_page())]
    assert keys == ["speedup", "gemms", "shapes", "efficiency", "cost", "power", "loss", "table"]
    keys = [figure.key for figure in figures(fleet_page())]
    assert keys[0] == "speedup"
    assert {"nodes-NVIDIA-GB200", "nodes-NVIDIA-H100-80GB-HBM3"} < set(keys)


def test_a_source_names_the_driver_that_its_run_was_begun_for_where_the_agent_read_none() -> None:
    replayed = status()
    basis = replayed.attempt.model_copy(update={"basis": {"driver": "580.126.20"}})
    software = replayed.software.model_copy(update={"driver": None})
    read_none = replayed.model_copy(update={"attempt": basis, "software": software})
    assert "; driver 580.126.20; " in of_nodes([read("n", "p", read_none)])
    core = full_result().model_copy(update={"timing": "1/quick/mxfp8-attention"})
    assert "attention's core in mxfp8" in of_result(core)
    assert "; steps with attention's core in mxfp8." in of_nodes([reading_of_result(core)])


# Failures are shown as failures.


def test_a_recipe_that_failed_keeps_its_row_with_the_reason() -> None:
    drawn = figure(node_page(), "speedup")
    reasons = {row[1].partition(" (")[0]: row[-1] for row in drawn.rows}
    assert list(reasons) == list(RECIPE_NAMES)
    assert "out_of_memory" in reasons["fp8_delayed"]
    assert "fallback" in reasons["nvfp4_no_rht"]
    assert drawn.svg.count("out_of_memory") == 1


def test_a_stack_is_a_sum_hatched_where_a_part_failed_and_marked_where_it_fell_back() -> None:
    drawn = figure(node_page(), "gemms")
    rows = {(row[0], row[1]): row for row in drawn.rows}
    assert rows["fp8_delayed", "autocast"][-3:] == ("–", "–", "out_of_memory: mlp_up wgrad")
    assert drawn.svg.count("url(#failed)") == 3, "two bars of fp8_delayed, and fp8_block that is not supported"
    assert ("bf16", "prequantized") not in rows, "bf16 quantises nothing: that is no failure"
    assert "fallback: these bars are not nvfp" in figure(node_page(), "gemms").svg
    row = next(row for row in drawn.rows if row[:2] == ("bf16", "autocast"))
    parts = [float(cell) for cell in row[2:6]]
    assert drawn.head[2:6] == ("qkv", "attn_out", "mlp_up", "mlp_down")
    assert parts == pytest.approx([3 * 0.3 * weight for weight in (1.0, 0.6, 3.2, 1.9)])
    assert float(row[6].split()[0]) == pytest.approx(sum(parts), abs=0.002)
    assert "lm_head" in drawn.caption


def test_invalid_power_is_told_and_a_diverged_run_ends_with_a_cross() -> None:
    drawn = figure(node_page(), "efficiency")
    row = next(row for row in drawn.rows if row[1] == "mxfp8")
    assert row[-3:] == ("–", "–", "PhaseLocked")
    assert "No energy figure: mxfp8 on GB200: PhaseLocked." in drawn.caption
    assert ">mxfp8<" not in drawn.svg
    drawn = figure(node_page(), "loss")
    assert "nvfp4_no_rht diverged" in drawn.svg
    assert ("nvfp4_no_rht", "1", "6.200", "7.900", "diverged at step 31: loss_rose") in drawn.rows
    assert "proves no parity" in drawn.caption


def test_a_gap_in_the_trace_breaks_the_line() -> None:
    drawn = figure(node_page(), "power")
    assert max(re.findall(r'd="([^"]+)"', drawn.svg), key=len).count("M") == 2
    assert "6 samples are missing" in drawn.caption
    (field,) = re.findall(
        r'<rect x="([^"]+)" y="[^"]+" width="([^"]+)" height="[^"]+" fill="url\(#missing\)"', drawn.svg
    )
    assert float(field[1]) > 0


@pytest.mark.parametrize("verdict", ["emulated", "assumed"])
def test_an_emulated_recipe_is_marked_in_every_drawing_that_has_it(verdict: Verdict) -> None:
    """A replay's verdict is `assumed`: that the chip would emulate it is the table's word."""
    full = full_result()
    changes = {"availability": "emulated", "verification": Verification(verdict=verdict)}
    recipes = tuple(row.model_copy(update=changes) if row.recipe == "nvfp4" else row for row in full.recipes)
    origin = "replayed" if verdict == "assumed" else "measured"
    result = full.model_copy(update={"recipes": recipes, "provenance": origin})
    facts = node_page(result=result, nodes=(reading_of_result(result),))
    assert "nvfp4 is emulated on GB200: its kernels are another recipe's." in said(facts)
    ran = dict(zip(figure(facts, "table").head, figure(facts, "table").rows[0], strict=True))
    assert ran["nvfp4"] == {"emulated": "emulated", "assumed": "assumed, emulated"}[verdict]
    drawn = {drawing.key: drawing.svg for drawing in figures(facts)}
    for key in ("speedup", "gemms", "efficiency", "cost", "loss"):
        assert "emulated" in drawn[key], key
        assert "emulated" not in figure(node_page(), key).svg, key
    rows = [recipe_row("bf16"), recipe_row("nvfp4", 1.4, verdict="emulated")]
    emulated = Given("x", MADE_AT, tuple(read(node.node, node.pool, status(results=rows)) for node in fleet(8)))
    assert "nvfp4 (emulated)" in figure(emulated, "nodes-NVIDIA-GB200").svg


def test_equal_speedups_of_two_pools_have_bars_of_equal_length() -> None:
    nodes = [read(f"{pool}-{i}", pool, status()) for pool in ("a", "b") for i in range(6)]
    drawn = figure(Given("x", MADE_AT, tuple(nodes)), "speedup")
    assert {row[0] for row in drawn.rows} == {"a", "b"}
    middles = re.findall(r'<circle cx="([^"]+)"', drawn.svg)
    assert middles[:2] == middles[2:]
    assert middles[0] != middles[1]


def test_notes_and_all_figures_but_the_main_one_are_folded() -> None:
    text = page(node_page())
    main, _, rest = text.partition("</figure>")
    assert 'id="speedup"' in main
    assert "<details class" not in main
    assert rest.count('<details class="fold">') == 1 + len(list(figures(node_page()))) - 1
    assert "<details open" not in text


# What stands apart is named.


def test_slow_throttled_and_fallen_back_nodes_are_named_in_picture_and_words() -> None:
    given = fleet_page()
    drawn = figure(given, "nodes-NVIDIA-GB200")
    told = {row[0]: row[2] for row in drawn.rows}
    assert told["gb200-0059"] == "slow, as the operator judges"
    assert told["gb200-0058"].endswith("throttled 14.0% of the time (software_thermal)")
    for name in told:
        assert name in drawn.svg
        assert name in said(given)


def test_the_page_of_a_slow_node_leads_with_it_and_its_gpus() -> None:
    given = slow_page()
    first, cost, what, to_do, recipes = [each.text for each in verdict(given)][:5]
    rates = "1,220 against 1,520 TFLOP/s per GPU, 123,000 against 154,000 tokens/s at the pace of the slowest GPU"
    assert first == f"node-1 is slow: 80.0% of its peers' rate, {rates} (nvfp4)."
    assert "64 nodes with this one do the work of 51.2, 12.8 fewer" in cost
    assert what.startswith(
        "It reaches 80.0% of the median of 7 comparable nodes (itself, n2, n3, n4, 1 more; same GPUs"
    )
    assert what.endswith("one GPU (GPU-2) is slower than the others, at 80.0% of their mean.")
    assert to_do.startswith("kubectl precision rerun node-1 -n ml --profile nightly shows whether it repeats.")
    assert "dcgmi diag -r 3" in to_do
    assert "trains fastest" in recipes
    other = replace(given.standing, judged=replace(given.standing.judged, recipe="mxfp8"))
    assert other.headline.endswith("(mxfp8, which enough peers ran alike; its best is nvfp4)")
    shown = next(figures(given))
    assert (shown.key, shown.rows[2]) == ("gpus", ("2", "31,200", "81.0%", "1,200", "3", "GPU-2"))
    assert shown.rows[0][2:] == ("101.3%", "1,200", "–", "GPU-0")


def test_sums_are_of_bf16_layers_too_and_memory_stands_beside_the_gpus() -> None:
    text = page(node_page())
    assert "GEMMs of all layers, autocast" in text
    assert "Bars are without layers that stay in BF16, the whole model's speedup is with them." in unescape(text)
    gpus = [gpu.model_copy(update={"memory_bytes": 186 * 10**9}) for gpu in full_result().gpus]
    assert "The GPU has 186 GB: a full model that takes more must be" in table(full_result(gpus=gpus)).caption
    assert not any(words in table(full_result()).caption for words in ("The GPU has", "quantisation tax: of"))
    rows = [
        row.model_copy(update={"last_layers_bf16": 5, "quantization_tax_load": None}) for row in full_result().recipes
    ]
    assert "quantisation tax: of the layers that are not kept in BF16" in table(full_result(recipes=rows)).caption


def test_what_somebody_must_look_after_is_said_before_what_speedups_mean() -> None:
    texts = [each.text for each in verdict(fleet_page())]
    odd = [i for i, text in enumerate(texts) if text.startswith(("Slow against", "Throttled by", "A recipe silently"))]
    meant = [i for i, text in enumerate(texts) if text.startswith("On node ")]
    assert len(odd) == 3
    assert meant
    assert max(odd) < min(meant)


def test_where_nothing_else_was_trained_the_page_names_what_has_no_figure_and_why() -> None:
    none = {"recipe": "mxfp8", "availability": "ok", "verdict": "verified", "failure": "no FP8 attention"}
    for rows in ([recipe_row("bf16")], [recipe_row("bf16"), recipe_row("nvfp4", 0.9)]):
        status = report_status([*rows, none])
        said = " ".join(it.text for it in verdict(Given("x", MADE_AT, (read("n", "p", ReportStatus(**status)),))))
        assert ("only bf16 has a training figure" in said, "nothing trains faster than bf16" in said) == (
            len(rows) == 1,
            len(rows) == 2,
        )
        assert "No figure of mxfp8: no FP8 attention." in said


def test_names_in_the_drawing_of_four_pools_lie_apart_and_a_legend_has_them_all() -> None:
    nodes = [
        node for pool in ("NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-B200", "NVIDIA-H100") for node in fleet(12, pool)
    ]
    drawn = figure(Given("x", MADE_AT, tuple(nodes)), "efficiency").svg
    named = re.compile(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="\w+" font-size="([\d.]+)"[^>]*>(\w+)</text>')
    texts = [(float(x), float(y), float(size), name) for x, y, size, name in named.findall(drawn)]
    beside, legend = ([text for text in texts if text[3] in RECIPE_NAMES and text[2] == size] for size in (10, 10.5))
    assert [text[3] for text in legend] == ["bf16", "mxfp8", "nvfp4"]
    assert 0 < len(beside) < 12, "four pools at one place have no room for every name"
    assert all(abs(a[1] - b[1]) >= 10 or abs(a[0] - b[0]) > 6 * len(a[3]) for a, b in combinations(beside, 2))


def test_two_nodes_have_no_distribution_and_throttled_or_outdated_ones_no_figures() -> None:
    assert "nodes-NVIDIA-GB200" not in [each.key for each in figures(fleet_page(nodes=fleet(8)[:2]))]
    nodes = fleet(8)
    with_all = figure(Given("x", MADE_AT, nodes), "speedup")
    hot = [node for node in nodes if node.marks.throttled]
    assert len(hot) == len([node for node in nodes if node.stale]) == 1
    row = next(row for row in with_all.rows if row[1] == "mxfp8")
    assert row[with_all.head.index("nodes")] == "6"


# Where the data is from.

DATA: dict[str, tuple[dict[str, Any], str]] = {
    "simulated": ({"provenance": "simulated", "backend": "replay"}, "SIMULATED"),
    "replayed": ({"provenance": "replayed", "backend": "replay"}, "REPLAYED"),
    "a CPU": ({"backend": "torch-cpu"}, "CPU TRIAL"),
}


@pytest.mark.parametrize(("changes", "mark"), DATA.values(), ids=DATA)
def test_what_is_not_measured_on_a_gpu_is_watermarked_on_every_drawing(changes: dict[str, Any], mark: str) -> None:
    found = full_result(**changes)
    given = node_page(result=found, nodes=(reading_of_result(found),))
    drawn = [each.svg for each in figures(given) if each.svg]
    assert drawn
    assert all(f">{mark}</text>" in svg for svg in drawn)
    assert verdict(given)[0].kind == "warning"
    told = escape(verdict(given)[0].text)
    assert page(given).count(told) == 1
    assert f'<p class="mark">{told}</p>' in page(given)


def test_one_simulated_node_marks_the_whole_page_and_measured_data_has_no_mark() -> None:
    assert "SIMULATED" not in page(node_page())
    assert "rotate(-18" not in page(node_page())
    nodes = list(fleet(8))
    report = status()
    made_up = report.model_copy(update={"run": report.run.model_copy(update={"simulated": ("watts",)})})
    nodes[0] = read(nodes[0].node, nodes[0].pool, made_up)
    assert Given("x", MADE_AT, tuple(nodes)).watermark == "SIMULATED"


def test_nvidias_method_names_no_markup_and_dollars_are_gpu_hours() -> None:
    facts = node_page(result=full_result(method="nvidia"))
    assert "NVIDIA's method, forward only" in figure(facts, "gemms").source
    bare = full_result(software=Software(agent="1", stack_hash="x"))
    facts = node_page(result=bare, nodes=(reading_of_result(bare),))
    assert not [drawn.key for drawn in figures(facts) if "Engine unknown" in drawn.source or "CUDA" in drawn.source]
    assert dollars(3.6, 8, 1000.0) == pytest.approx(3.6 * 8 / 3600 / 1000 * 1e6)
    assert "cost" not in [drawn.key for drawn in figures(node_page(price=None))]
    nodes = tuple(replace(node, pool="<script>alert(1)</script>") for node in fleet(8))
    text = page(fleet_page(nodes=nodes))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


# Words.


def test_no_result_says_so_and_each_recipe_has_its_own_colour() -> None:
    given = Given("Profile ml/nightly", MADE_AT, (), unmeasured=("3 nodes: Busy.",))
    assert said(given) == "No node has a result yet.\n3 nodes: Busy."
    assert "<figure" not in page(given)
    assert set(RECIPE_COLOURS) == set(RECIPE_DASHES) == set(RECIPE_NAMES)
    assert len(set(RECIPE_COLOURS.values())) == len(set(RECIPE_DASHES.values())) == len(RECIPE_NAMES)


BASE, EVEN = recipe_row("bf16"), recipe_row("bf16", tokensPerJoule="20")
SOUND = " of the recipes whose loss was healthy:"
FASTEST = "mxfp8 trains fastest: 1,240 TFLOP/s per GPU, 124,000 tokens/s a node (sum of its GPUs), 1.30x bf16"
SAID: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "slower": ([BASE, recipe_row("mxfp8", 0.97, difference="slower")], ("nothing trains faster than bf16",)),
    "alike": (
        [BASE, recipe_row("mxfp8", 1.004, difference="no_difference")],
        ("mxfp8 makes no difference beyond noise on p.", "nothing trains faster than bf16"),
    ),
    "less energy": (
        [EVEN, recipe_row("mxfp8", 1.3, tokensPerJoule="18")],
        ("bf16 is the most energy-efficient: 20 tokens per joule.",),
    ),
    "within what sensors tell": (
        [EVEN, recipe_row("mxfp8", 1.3, tokensPerJoule="20.2")],
        ("No recipe gives 3% more tokens per joule than bf16.",),
    ),
    "beyond it": ([EVEN, recipe_row("mxfp8", 1.3, tokensPerJoule="24")], ("It is also the most energy-efficient: ",)),
} | {
    verdict: (
        [BASE, recipe_row("mxfp8", 1.3), recipe_row("nvfp4", 1.6, lossVerdict=verdict)],
        (
            FASTEST.replace(":", SOUND, 1),
            "It is also the most",
            f"On p nvfp4 {words} in the loss runs: do not train with it as it is.",
        ),
    )
    for verdict, words in (("diverged", "diverged"), ("not_learning", "learnt nothing"))
}


@pytest.mark.parametrize(("rows", "words"), SAID.values(), ids=SAID)
def test_the_answer_is_the_fastest_sound_recipe_and_a_gain_beyond_what_is_known(
    rows: list[dict[str, Any]], words: tuple[str, ...]
) -> None:
    text = said(Given("x", MADE_AT, tuple(read(name, "p", status(results=rows)) for name in ("a", "b"))))
    assert [phrase for phrase in words if phrase not in text] == []


def test_without_power_nothing_is_said_of_energy() -> None:
    rows = [without_energy("bf16"), without_energy("nvfp4", 1.5)]
    text = said(Given("x", MADE_AT, (read("n", "p", status(results=rows)),)))
    assert "most energy-efficient" not in text
    assert "Without a valid power reading" in text


def test_a_hybrids_layers_differ_and_what_its_gemms_gain_is_said_without_a_training_figure() -> None:
    mixed = tuple(row.model_copy(update={"name": row.name.replace("mlp_up", "mamba_in")}) for row in gemms(1, 1.4))
    unknown = Meaning(kind="unknown", sentence="nvfp4: its GEMMs alone run 1.40x", gemm_speedup=1.4)
    rows = (recipe_result(name, gemms=mixed, training=None, meaning=unknown) for name in ("bf16", "nvfp4"))
    facts = node_page(result=full_result(recipes=tuple(rows)))
    assert figure(facts, "gemms").title == "Matrix multiplications of one step"
    assert f"On node {facts.result.node} nvfp4: its GEMMs alone run 1.40x" in said(facts)


def test_bare_shapes_have_a_step_and_an_absent_sum_no_interval() -> None:
    rows = [
        row.model_copy(update={"name": "2048x4096x4096", "count": 1}) for row in gemms(1, None) if row.name == "qkv"
    ]
    found: MeasurementResult = full_result(recipes=(recipe_result("bf16", gemms=tuple(rows), training=None),))
    assert figure(node_page(result=found), "gemms").title == "Matrix multiplications of one step"
    absent = (GemmSum(mode="autocast", failure=Failure(reason="too_few_passes")),)
    one = recipe_result("bf16", gemms=gemms(1, None), sums=absent)
    row = figure(node_page(result=full_result(recipes=(one,))), "gemms").rows[0]
    assert row[-1] == "too_few_passes"
    assert sums(1, None)[0].seconds is not None


def test_a_fleet_of_ten_thousand_has_a_page_that_can_be_mailed() -> None:
    few = fleet(50)
    given = fleet_page(nodes=tuple(replace(few[i % 50], node=f"gb200-{i:05}") for i in range(10_000)))
    text = page(given)
    assert len(text) < 1_000_000
    assert "<th>TFLOP/s per GPU</th><th>tokens/J</th>" in text.replace(' scope="col"', "")
    assert f"<td>{three_digits(few[0].rows[few[0].marks.best].teraflops_per_gpu)}</td>" in text
    assert f"the first {NODES_LISTED}; kubectl precision nodes lists {10_000 - NODES_LISTED} more" in text
