"""The agent's summary, the report's row and the row that readers use have the same figures: none is in one alone."""

from typing import Any

import pytest

from precision_api.exchange.message import RecipeSummary
from precision_api.kinds.report import RecipeReport
from precision_operator.core.results.reading import read_rows
from precision_operator.core.results.rows import FIELDS, recipe_report
from tests.support.golden import beside
from tests.support.report_objects import recipe_row

BARE: dict[str, Any] = {"recipe": "mxfp8", "availability": "ok", "verdict": "verified"}
GIVEN: dict[str, Any] = beside(__file__)
"""A value for each field of the agent's summary, other than its default."""


def test_the_table_names_each_field_and_the_first_row_counts() -> None:
    assert set(FIELDS) == set(RecipeReport.model_fields)
    assert {source for source, _ in FIELDS.values()} == set(RecipeSummary.model_fields) == set(GIVEN)
    twice = [RecipeReport.model_validate(recipe_row("mxfp8", speedup)) for speedup in (1.3, 1.5)]
    assert read_rows(twice, "bf16")["mxfp8"].speedup == 1.3


@pytest.mark.parametrize("name", GIVEN)
def test_each_field_of_the_summary_reaches_the_report_and_its_readers(name: str) -> None:
    bare, changed = (RecipeSummary.model_validate(BARE | more) for more in ({}, {name: GIVEN[name]}))
    before, after = recipe_report(bare), recipe_report(changed)
    written = {field for field in RecipeReport.model_fields if getattr(before, field) != getattr(after, field)}
    assert written == {field for field, (source, _) in FIELDS.items() if source == name}
    assert [*read_rows([before], "bf16").values()] != [*read_rows([after], "bf16").values()]


@pytest.mark.parametrize("name", ["quantization_tax", "model_memory_bytes"])
def test_a_figure_that_no_rule_bears_on_is_read_by_the_reports_name(name: str) -> None:
    (row,) = read_rows([recipe_report(RecipeSummary.model_validate(BARE | {name: GIVEN[name]}))], "bf16").values()
    assert getattr(row, name) == GIVEN[name]
