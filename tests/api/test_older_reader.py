"""The operator of the release before reads what today's agents write: a rollback may leave them to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from precision_api.message import RecipeSummary
from precision_api.result import Loss, LossVerdict, MeasurementResult, ModelMemory
from precision_api.summary import LATER, recipe_summaries
from precision_api.wire import encode, read_message
from precision_lab.release.older import older_release
from precision_operator.core.results.ingest import finding
from tests.agent.test_full_result import fullest
from tests.support.result_objects import recipe_result, result

READER = """
import json, sys
from precision_api.wire import WireError, read_message
def told(message):
    try:
        return read_message(message).model_dump(mode="json")
    except WireError as error:
        return {"problem": error.message}
print(json.dumps([told(message) for message in json.load(sys.stdin)]))
"""


def with_loss(verdict: LossVerdict) -> MeasurementResult:
    memory = ModelMemory(bytes=5 << 30, formula="adam/1")
    return result(recipes=(recipe_result("bf16", loss=Loss(verdict=verdict), model_memory=memory),))


def seven_recipes() -> MeasurementResult:
    return fullest("llama3-8b", 50)


RESULTS: dict[str, Callable[[], MeasurementResult]] = {
    "seven recipes with all figures": seven_recipes,
    "healthy": partial(with_loss, "healthy"),
    "not learning": partial(with_loss, "not_learning"),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the older code makes of each result's termination message."""
    older = older_release(tmp_path_factory.mktemp("older"))
    messages = [encode(made()).message.decode() for made in RESULTS.values()]
    around = {**os.environ, "PYTHONPATH": older.python_path}
    command = [sys.executable, "-c", READER]
    text = subprocess.run(command, input=json.dumps(messages), env=around, text=True, capture_output=True, check=True)
    return dict(zip(RESULTS, json.loads(text.stdout), strict=True))


@pytest.mark.parametrize("name", ["seven recipes with all figures", "healthy"])
def test_the_older_operator_reads_the_figures_that_it_knows(name: str, read: dict[str, dict[str, Any]]) -> None:
    told = read_message(encode(RESULTS[name]()).message).model_dump(mode="json")
    rows = [
        {field: row[field] for field in theirs}
        for row, theirs in zip(told["recipes"], read[name]["recipes"], strict=True)
    ]
    assert read[name] == {**told, "recipes": rows}
    assert all(row["tokens_per_second"] for row in rows)
    assert "model_memory_bytes" in told["dropped"]


def test_fields_that_the_older_operator_refuses_are_left_to_the_full_result(read: dict[str, dict[str, Any]]) -> None:
    """A new field of the message needs a step in LATER."""
    theirs = read["healthy"]["recipes"][0].keys()
    assert RecipeSummary.model_fields.keys() - theirs == {name for name, _ in LATER}


def test_a_verdict_that_the_older_operator_does_not_know_is_refused_and_not_passed_over(
    read: dict[str, dict[str, Any]],
) -> None:
    assert "loss_verdict" in read["not learning"]["problem"]


def test_a_summary_has_its_figures_again_once_the_full_result_is_there() -> None:
    for made in RESULTS.values():
        sent = made()
        published = encode(sent)
        found = finding(read_message(published.message), "\n".join(published.lines))
        assert found.summary.recipes == recipe_summaries(sent)
