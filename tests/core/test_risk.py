"""What has a known risk is named by no reader of reports, unless the profile lists it by name: then with its source."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from precision_api.kinds.report import ReportStatus
from precision_operator.cli.commands.compare import verdict as compare_words
from precision_operator.cli.commands.nodes import row as node_row
from precision_operator.cli.commands.status import _pool as told_pool
from precision_operator.cli.operands import _point
from precision_operator.cli.pool_recipes import pool_recipes, recipes_table
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan
from precision_operator.core.eligibility.request import resolve_profile
from precision_operator.core.eligibility.triggers import CurrentRun
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.reasons import Said
from precision_operator.core.results.compare import compare
from precision_operator.core.results.ingest import best_row, read_rows
from precision_operator.core.results.reading import read
from precision_operator.core.results.sides import Side
from precision_operator.core.status.profile_status import profile_status
from precision_operator.drawing.figure import Figure
from precision_operator.planner.answer.table import wide
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, racks, report_facts
from precision_operator.report.facts import Given
from precision_operator.report.figures import figures
from precision_operator.report.verdict import verdict
from tests.support import fleets, world
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status

Rows = Mapping[str, dict[str, Any]]
NO_RHT, NONE_KEPT = "may degrade convergence quality", "keep the last 15% of the layers in BF16"


def shown(rows: Rows, **run: Any) -> SimpleNamespace:
    """What each reader says of one GB200 node with these rows beside BF16, MXFP8 and FP8 delayed."""
    plain = {"bf16": {}, "mxfp8": {"speedup": "1.3"}, "fp8_delayed": {"speedup": "1.4"}}
    results = [
        recipe_row(name, float(more.get("speedup", 1.0)), **{k: v for k, v in more.items() if k != "speedup"})
        for name, more in {**plain, **rows}.items()
    ]
    status = ReportStatus.model_validate(report_status(results, **run))
    owner = world.profile()
    facts = NodeFacts(name="n", uid="uid-n", product="GB200", gpus=4, pool="GB200")
    view = world.report("n", status=status)
    state = NodeState(facts, Said("Measured", words=""), view, CurrentRun("r1", {}, None, None))
    of_profile = profile_status(ProfilePlan(owner, resolve_profile(owner, world.observed()), (state,)), world.NOW, 9)
    page = " ".join(notice.text for notice in verdict(Given("x", "now", (read("n", "GB200", status),))))
    row = best_row(read_rows(status.results, "bf16").values())
    asked = profile_facts(profile_object())
    assert asked
    node = {"metadata": {"name": "n", "uid": "uid-n", "labels": {}}}
    measured = [report_facts(report_object("n", status=report_status(results)))]
    fleet = fleet_of(measured, [asked], racks([node]), fleets.NOW, "x")
    plan, by_name = (
        fleets.answered(
            fleet, fleets.job(recipes=names), fleet={"allow": ["simulated"]}, objective=["time"],
            whatIfs=[{"name": "risk", "allowRecipes": ["nvfp4_no_rht"]}],
        )
        for names in ([], ["nvfp4_no_rht"])
    )  # fmt: skip
    return SimpleNamespace(
        get=row.title(run.get("baseline", "bf16")) if row else "",
        get_profile=of_profile.best or "", nodes=node_row(view, None)["best"],
        by_energy=of_profile.pools[0].best_recipe_by_energy, status=told_pool(of_profile.pools[0]), page=page,
        plan=plan.recommendation or "", plan_by_name=by_name.recommendation or "",
        what_if=plan.what_ifs[0].answer if plan.what_ifs else "", recipes=recipes_table(pool_recipes([view])),
        plan_row=[(wide(job)["recipe"], job.basis) for job in plan.jobs],
        figures=drawn(status), compared=compared(status),
    )  # fmt: skip


def drawn(status: ReportStatus) -> dict[str, Figure]:
    given = Given("x", "now", (read("n", "GB200", status),), price=1.0)
    return {figure.key: figure for figure in figures(given)}


def compared(status: ReportStatus) -> list[str]:
    points = (_point(read("n", "GB200", status)),)
    return [*compare_words(compare(Side("A", points), Side("B", points)))]


KEPT = {"lastLayersBF16": 5}


def test_layers_in_bf16_are_shown_wherever_a_recipes_figures_are() -> None:
    found, titled = (
        shown({"nvfp4": {"speedup": "1.6", "difference": "no_difference", **KEPT}}),
        "nvfp4 (last 5 in BF16)",
    )
    assert f"tokens/J with {titled}" in found.status
    assert found.plan_row == [(titled, "simulated")]
    for words in (found.recipes, found.page, found.plan, *found.compared[-1:]):
        assert titled in words
    for key in ("speedup", "efficiency", "cost"):
        assert titled in [row[1] for row in found.figures[key].rows], key
        assert "last 5 in BF16" in found.figures[key].svg, key


def test_a_faster_recipe_that_nobody_listed_or_that_diverged_is_told_apart() -> None:
    views = shown({"nvfp4": {"speedup": "1.9", "lastLayersBF16": 0, "tokensPerJoule": "0.2617"}})
    assert "0.262" in views.recipes
    assert "fp8_delayed trains fastest of the recipes without a known risk: " in views.page
    assert "most energy-efficient of these: " in views.page
    barred = [line for line in views.recipes.splitlines() if line.endswith("; not BEST: not listed")]
    assert [line.split()[1] for line in barred] == ["nvfp4"]
    sound = shown({})
    assert "fp8_delayed trains fastest, without a known risk: " in sound.page
    assert sound.plan.endswith(". No recipe in it has a known risk.")
    assert "not BEST" not in sound.recipes
    absent = {"tokensPerSecond": None, "failure": "not_available: hybrid: why"}
    assert shown({"mxfp8": absent}).recipes.endswith("\nNo training figures of mxfp8: hybrid: why.")
    none = read("n", "GB200", ReportStatus.model_validate(report_status([recipe_row("bf16", **absent)])))
    assert verdict(Given("x", "now", (none,)))[1].text.endswith("no recipe has a usable training figure: hybrid: why.")
    views = shown({"nvfp4_no_rht": {"speedup": "1.9", "listed": True, "lossVerdict": "diverged", **KEPT}})
    assert (views.nodes, views.by_energy) == ("fp8_delayed", "fp8_delayed")
    assert "nvfp4_no_rht" not in views.plan


def test_where_nobody_lists_them_no_reader_names_a_risky_recipe() -> None:
    text = shown(
        {"nvfp4": {"speedup": "1.6", **KEPT}, "nvfp4_no_rht": {"speedup": "1.9", "lossVerdict": "healthy"} | KEPT}
    )
    assert (text.get, text.get_profile) == ("nvfp4 1.60x (last 5 in BF16)",) * 2
    assert (text.nodes, text.by_energy) == ("nvfp4", "nvfp4")
    assert "nvfp4 1.60x (last 5 in BF16)" in text.status
    assert "nvfp4 (last 5 in BF16) trains fastest of the recipes without a known risk: " in text.page
    assert "with nvfp4 (last 5 in BF16)" in text.plan
    for words in (text.get, text.get_profile, text.status, text.plan):
        assert "nvfp4_no_rht" not in words
    assert (
        f'Risk of nvfp4_no_rht (nobody listed it, so nothing here recommends it): NVFP4 without RHT "{NO_RHT}'
        in text.page
    )
    assert "It is also the most energy-efficient of these" in text.page
    assert text.what_if.startswith("with nvfp4_no_rht (at risk): -"), "allowRecipes names it"
    assert "with nvfp4_no_rht" in text.plan_by_name, "the plan's own list names it"
    over = shown({"nvfp4": {"speedup": "1.6", **KEPT}}, baseline="mxfp8")
    assert (over.get, over.get_profile) == ("nvfp4 1.60x over mxfp8 (last 5 in BF16)",) * 2
    assert "nvfp4 1.60x over mxfp8 (last 5 in BF16)" in over.status
    assert NO_RHT in text.plan_by_name


@pytest.mark.parametrize(
    ("recipe", "kept", "risk"),
    [("nvfp4_no_rht", 5, NO_RHT), ("nvfp4", 0, NONE_KEPT), ("m.rbbbbb", 5, NO_RHT), ("m.mmmnnb", 0, NONE_KEPT)],
    ids=["no RHT", "none kept", "part of a mixture", "none kept with a part"],
)
def test_what_the_profile_lists_is_named_with_its_risk(recipe: str, kept: int, risk: str) -> None:
    row = {"speedup": "1.9", "lastLayersBF16": kept}
    unlisted, listed = shown({recipe: row}), shown({recipe: row | {"listed": True}})
    assert (unlisted.nodes, unlisted.get) == ("fp8_delayed", "fp8_delayed 1.40x")
    assert (listed.nodes, listed.by_energy) == (recipe, recipe)
    text = f"{recipe.partition('.')[0]} 1.90x (at risk{', last 5 in BF16' if kept else ''})"
    assert (listed.get, listed.get_profile) == (text, text)
    assert text in listed.status
    assert risk in listed.page
    assert "." in recipe or risk in listed.plan, "plans use no mixtures"
    assert recipe not in unlisted.status + unlisted.plan
