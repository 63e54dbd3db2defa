"""Numbers in sentences have at most three digits: what status, report page and plan say of a replay."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from precision_api.exchange.result import MeasurementResult
from precision_api.facts.plain_text import three_digits
from precision_operator.planner.answer.table import lines
from precision_operator.report.facts import Given, reading_of_result
from precision_operator.report.figures import figures
from precision_operator.report.verdict import verdict
from tests.core.test_risk import shown
from tests.support import fleets

GOLDEN = Path(__file__).parents[1] / "golden" / "result_gb200.json"
MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
FIGURE = re.compile(
    rf"(?<!(?:{MONTHS}) )" + r"(?<![\w.,:/+-])[$~-]?(\d[\d,]*(?:\.\d+)?)(?:[x%])?(?![\w:/-]|\.\w)( \w+)?"
)
"""A number that is no part of a name, a date, a version or an address, and what follows it."""
COUNTS = re.compile(r" (nodes?|GPUs|layers|steps|samples|jobs?|of)$")


def long_figures(text: str) -> Iterator[str]:
    for match in FIGURE.finditer(text):
        digits = match[1].replace(",", "")
        significant = digits.lstrip("0.").replace(".", "") if "." in digits else digits.strip("0")
        if len(significant) > 3 and not (digits.isdigit() and COUNTS.search(match[2] or "")):
            yield match[0]


def replay() -> Iterator[str]:
    """Sentences of the replay's page, and the recommendation and meanings that the agent wrote."""
    result = MeasurementResult.model_validate_json(GOLDEN.read_text())
    page = Given("x", "now", (reading_of_result(result),), result, price=2.5)
    yield from (notice.text for notice in verdict(page))
    yield from (figure.caption for figure in figures(page))
    yield result.recommendation.sentence
    yield from (recipe.meaning.sentence for recipe in result.recipes if recipe.meaning)


def plan() -> Iterator[str]:
    jobs = [fleets.job(name=name, tokens=tokens) for name, tokens in (("a", "15T"), ("b", "1.2345T"))]
    slow = fleets.node("slow", count=37, rates=(fleets.rate(tokens_per_second=61_234.5),))
    facts = fleets.fleet(fleets.pool("H100", fleets.node("h100-0", count=617), slow))
    yield from lines(fleets.answered(facts, *jobs, whatIfs=[{"name": "risk", "allowRecipes": ["nvfp4"]}]))


def reports() -> Iterator[str]:
    found = shown({"nvfp4": {"speedup": "1.62345", "lastLayersBF16": 5}})
    yield from (found.status, found.page, found.plan, found.get, found.what_if)


@pytest.mark.parametrize("said", [replay, plan, reports])
def test_no_number_in_a_sentence_has_more_than_three_digits(said: object) -> None:
    texts = list(said())  # type: ignore[operator]
    assert any(FIGURE.search(text) for text in texts)
    assert {text: found for text in texts if (found := list(long_figures(text)))} == {}


def test_three_digits_and_nothing_more() -> None:
    values = (1.6, 1.62345, 812.3, 120_795.4, 0.012345, 99.96, 0.0)
    assert [three_digits(value) for value in values] == ["1.6", "1.62", "812", "121,000", "0.0123", "100", "0"]
    assert list(long_figures("1.623x in 120,795 tokens/s of llama3.1-405b, 11 of 1234 nodes")) == [
        "1.623x in",
        "120,795 tokens",
    ]
