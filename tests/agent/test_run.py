"""A request goes in, an outcome comes out: a result, or a named reason why there is none."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import cases_of
from precision_agent.run.run import Clock, Outcome, run_request
from precision_api.exchange.exits import exit_of
from precision_api.exchange.request import TIMINGS, timing_title
from precision_api.exchange.wire import AgentRefused, read_log, read_message
from precision_api.models.workload import resolve
from tests.support.result_objects import hash_of, request, request_text

MOMENT = Clock(wall=lambda: 1_795_252_800.0, monotonic=lambda: 0.0)


def refusal(outcome: Outcome) -> tuple[str, str]:
    """Reason and words of an outcome without a result, as the operator reads them."""
    assert outcome.result is None
    assert outcome.log == b""
    with pytest.raises(AgentRefused) as caught:
        read_message(outcome.message)
    assert exit_of(outcome.exit_code).reason == caught.value.reason
    return caught.value.reason, caught.value.message


def test_what_was_published_reads_back_with_the_title_of_its_timing() -> None:
    outcome = run_request(request_text(), "replay", clock=MOMENT)
    summary = read_message(outcome.message, hash_of())
    assert outcome.exit_code == 0
    assert read_log(b"W: stderr without newline" + outcome.log, summary.detail, hash_of()) == outcome.result
    outcome = run_request(request_text(timing=TIMINGS["standard"]), "replay", clock=MOMENT)
    assert outcome.result is not None
    assert outcome.result.timing == "1/standard"
    assert read_message(outcome.message, hash_of(timing=TIMINGS["standard"])).timing == "1/standard"


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(request_text()) | changes)


def of_model(**model: Any) -> str:
    return changed(workload={"name": "x", "microBatchSize": 1, "sequenceLength": 1, **model})


BAD_REQUESTS = {
    "not JSON": ("{", "InvalidRequest", "not JSON"),
    "nested too deep": ("[" * 20_000, "InvalidRequest", "not JSON"),
    "too long": (" " * 40_000, "InvalidRequest", "longer than 32768"),
    "a list": ("[]", "InvalidRequest", ""),
    "of a newer version": (changed(schema_version="2"), "UnknownRequestVersion", "request version '2'"),
    "an unknown recipe": (changed(recipes=["fp6"]), "InvalidRequest", "recipes.0"),
    "a field that is not known": (changed(colour="red"), "InvalidRequest", "colour"),
    "more GPUs than a node has": (request_text().replace('"gpus":4', '"gpus":17'), "InvalidRequest", "node.gpus"),
    "without recipes": (changed(recipes=[]), "InvalidRequest", "recipes"),
    "a model that can't be": (of_model(model={"hiddenSize": 0}), "InvalidRequest", "workload.model.hiddenSize"),
    "a config that lies in the cluster": (
        of_model(huggingFaceConfig={"configMapKeyRef": {"name": "a", "key": "b"}}),
        "InvalidRequest",
        "workload: huggingFaceConfig",
    ),
    "a product without figures": (request_text(product="A100"), "UnknownProduct", "'A100'"),
}


@pytest.mark.parametrize(("text", "reason", "words"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_a_bad_request_has_a_reason_and_names_the_place(text: str, reason: str, words: str) -> None:
    found = refusal(run_request(text, "replay"))
    assert found[0] == reason
    assert words in found[1]


@given(st.text(max_size=200))
def test_any_text_for_a_request_is_refused_in_words(text: str) -> None:
    assert refusal(run_request(text, "replay"))[0] == "InvalidRequest"


def test_an_unknown_backend_or_option_is_refused() -> None:
    assert "known are auto, replay, torch, transformer-engine" in refusal(run_request(request_text(), "magic"))[1]
    assert "power_invalid" in refusal(run_request(request_text(), "replay", ReplayOptions(fault="fire")))[1]
    assert "scale" in refusal(run_request(request_text(), "replay", ReplayOptions(scale=0)))[1]


def samples_in_an_abba_block() -> int:
    asked = request()
    cases = cases_of(asked, resolve(asked.workload))
    return 2 * len(cases.variants) * len(cases.all)


def ticking(step: float) -> Clock:
    """A clock on which every look takes `step` seconds."""
    now = iter(range(10**9))
    return Clock(wall=lambda: 1_795_252_800.0, monotonic=lambda: next(now) * step)


def test_a_deadline_ends_the_run_with_what_is_complete_if_anything_is() -> None:
    clock = ticking(600 / (3.2 * samples_in_an_abba_block()))
    outcome = run_request(request_text(deadline_seconds=600), "replay", clock=clock)
    assert outcome.result.partial.reason == "deadline"
    assert outcome.result.recipes[0].sums[0].seconds.n == 2
    found = refusal(run_request(request_text(deadline_seconds=600), "replay", clock=ticking(30)))
    assert found == ("NothingFinished", "the deadline of 600 s was reached; no palindrome was complete")


def after(asked: int) -> Callable[[], bool]:
    left = iter(range(asked))
    return lambda: next(left, None) is None


def test_a_terminated_run_publishes_what_is_complete_if_anything_is() -> None:
    outcome = run_request(request_text(), "replay", clock=MOMENT, terminated=after(samples_in_an_abba_block() * 2))
    assert outcome.result.partial.reason == "terminated"
    assert read_message(outcome.message).partial == "terminated: the agent was told to stop"
    found = refusal(run_request(request_text(), "replay", terminated=lambda: True))
    assert found == ("NothingFinished", "the agent was told to stop; no palindrome was complete")


def test_each_abba_block_that_allows_intervals_is_kept_before_the_next_begins() -> None:
    kept: list[Outcome] = []
    run_request(
        request_text(timing={"passes": 5, "segment_seconds": 1.0, "discard_seconds": 0.0}),
        "replay",
        clock=MOMENT,
        checkpoint=kept.append,
    )
    summaries = [read_message(outcome.message) for outcome in kept]
    assert [one.partial for one in summaries] == [f"unfinished: {n} palindromes were complete" for n in (2, 3, 4)]


LIKE: dict[str, tuple[dict[str, Any], str]] = {
    "the preset": ({}, "1/quick"),
    "another seed and deadline": ({"timing": TIMINGS["quick"].model_copy(update={"seed": 7})}, "1/quick"),
    "the longer preset": ({"timing": TIMINGS["standard"]}, "1/standard"),
    "the MLP alone": ({"recipe_scope": "mlp"}, "1/quick/mlp"),
    "gradients apart": ({"weight_gradients": "separate"}, "1/quick/separate"),
    "fused gradients, as by default": ({"weight_gradients": "fused"}, "1/quick"),
}


@pytest.mark.parametrize(("changes", "title"), LIKE.values(), ids=LIKE)
def test_what_bears_on_rates_beside_the_workload_is_in_the_timings_title(changes: dict[str, Any], title: str) -> None:
    assert timing_title(request(timing=TIMINGS["quick"]).model_copy(update=changes)) == title
    other = TIMINGS["quick"].model_copy(update={"segment_seconds": 2.0})
    assert timing_title(request(timing=other).model_copy(update={**changes, "timing": other})) != title
