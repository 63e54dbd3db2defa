"""What a report remembers of older runs: the figures of each, from when newer ones take their place in the report."""

from typing import Any

from precision_api.kinds.report import ReportPast, ReportStatus
from precision_operator.core.results.ingest import remembered, report_json
from tests.support.report_objects import recipe_row, report_status, without_energy

FIRST = {"run": "r1", "outcome": "succeeded", "finishedAt": "2026-11-20T06:30:00Z", "best": "mxfp8 1.37x"}


def past(run: str = "r2", **changes: Any) -> ReportPast:
    told = {"run": run, "outcome": "succeeded", "finishedAt": "2026-11-21T06:30:00Z"} | changes
    return ReportPast.model_validate(told)


def status(*rows: dict[str, Any], history: tuple[dict[str, Any], ...] = (FIRST,), **run: Any) -> ReportStatus:
    """A report whose newest result is run r1's."""
    return ReportStatus.model_validate(report_status(rows or None, **run) | {"history": [*history]})


def first_of(before: ReportStatus, newer: ReportPast | None = None) -> ReportPast:
    """What is remembered of run r1 once `newer` has ended."""
    return remembered(before, newer or past(), 3)[1]


MEASURED = {"provenance": "measured", "simulated": [], "backend": "transformer-engine"}


def test_a_run_keeps_every_recipes_rate_and_energy_when_a_newer_result_takes_its_place() -> None:
    rows = (recipe_row("bf16", tokensPerSecondError="0.003"), recipe_row("mxfp8", 1.4, tokensPerSecondError="0.012"))
    first = first_of(status(*rows, **MEASURED))
    assert first.recipe_tokens_per_second == {"bf16": "95000", "mxfp8": "133000"}
    assert first.recipe_tokens_per_joule == {"bf16": "19.5052", "mxfp8": "27.3073"}
    assert (first.data, first.workload_hash, first.driver) == ("measured", "5ad1f0c2", "580.95.05")
    assert (first.rate_error, first.throttled) == ("0.012", None)


def test_the_newest_run_is_told_in_short_and_a_failed_one_takes_no_place() -> None:
    newest, _ = remembered(status(), past(), 3)
    assert newest == past()
    assert first_of(status(), past(outcome="failed", reason="AgentCrashed")) == ReportPast.model_validate(FIRST)


def test_what_was_not_measured_or_throttled_stays_known_as_such() -> None:
    assert first_of(status(**(MEASURED | {"backend": "torch-cpu"}))).data == "trial"
    assert first_of(status(recipe_row("bf16", throttledShare="0.2"))).throttled is True


def test_a_figure_that_did_not_stand_then_is_not_remembered() -> None:
    rows = (
        without_energy("bf16"),
        recipe_row("fp8_current", 1.2, powerInvalid=["CounterStuck"]),
        recipe_row("mxfp8", 1.3, verdict="fallback"),
        recipe_row("nvfp4", tokensPerSecond=None),
    )
    first = first_of(status(*rows))
    assert set(first.recipe_tokens_per_second) == {"bf16", "fp8_current"}
    assert first.recipe_tokens_per_joule == {}


def test_what_is_remembered_travels_and_half_an_interval_is_none() -> None:
    rows = (recipe_row("bf16", tokensPerSecondError="0.003"), recipe_row("mxfp8", 1.4))
    assert first_of(status(*rows)).rate_error is None
    before = status(recipe_row("bf16", tokensPerSecondError="0.003"))
    after = before.model_copy(update={"history": remembered(before, past(), 3)})
    assert ReportStatus.model_validate(report_json(after)).history == after.history


def test_each_run_is_remembered_once_but_one_that_comes_again_after_another() -> None:
    before = status(history=tuple(FIRST | {"run": name} for name in ("r1", "r0", "q9")))
    assert [one.run for one in remembered(before, past(), 3)] == ["r2", "r1", "r0"]
    assert [one.run for one in remembered(before, past("r1"), 3)] == ["r1", "r0", "q9"]
    assert [one.run for one in remembered(None, past(), 3)] == ["r2"]
    other = FIRST | {"run": "r2", "recipeTokensPerSecond": {"bf16": "7"}}
    earlier = FIRST | {"recipeTokensPerSecond": {"bf16": "5"}}
    history = remembered(
        status(recipe_row("bf16", tokensPerSecond="9"), history=(FIRST, other, earlier)), past("r3"), 4
    )
    assert [(one.run, str(one.recipe_tokens_per_second["bf16"])) for one in history[1:]] == [
        ("r1", "9"),
        ("r2", "7"),
        ("r1", "5"),
    ]
