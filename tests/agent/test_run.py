"""A request goes in, an outcome comes out: a result, or a named reason why there is none.

What is written where, and in which order.

The fullest result that a node can have still fits into the log and the termination message.
"""

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.cases import cases_of
from precision_agent.run.publish import TERMINATION_LOG_ENV, Places, checkpoint, places, publish, replace_file
from precision_agent.run.run import Clock, Outcome, run_request
from precision_api.exchange import result as results
from precision_api.exchange.exits import exit_of
from precision_api.exchange.message import RecipeSummary
from precision_api.exchange.request import TIMINGS, LossRuns, timing_title
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.summary import MESSAGE_MAX_BYTES, STEPS, summarize
from precision_api.exchange.wire import AgentRefused, encode, read_log, read_message
from precision_api.facts.recipes import MOST_LISTED, RECIPE_NAMES
from precision_api.models.presets import PresetName
from precision_api.models.workload import Workload, resolve
from tests.support.golden import FOLDER
from tests.support.result_objects import hash_of, request, request_text

MOMENT = Clock(wall=lambda: 1_795_252_800.0, monotonic=lambda: 0.0)
LOG_MAX_BYTES = 256 * 1024
PALINDROMES = TIMINGS["standard"].model_copy(update={"passes": 4})
"""A third of the standard's: enough for every figure, and a result has as many digits of four as of twelve."""
SOME = RECIPE_NAMES[: MOST_LISTED + 1]
NAMES = [row["name"] for row in json.loads((FOLDER / "kernel_names.json").read_text())["kernels"]]


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


def test_a_deadline_or_a_signal_ends_the_run_with_what_is_complete_if_anything_is() -> None:
    clock = ticking(600 / (3.2 * samples_in_an_abba_block()))
    outcome = run_request(request_text(deadline_seconds=600), "replay", clock=clock)
    assert (outcome.result.partial.reason, outcome.result.recipes[0].sums[0].seconds.n) == ("deadline", 2)
    found = refusal(run_request(request_text(deadline_seconds=600), "replay", clock=ticking(30)))
    assert found == ("NothingFinished", "the deadline of 600 s was reached; no palindrome was complete")
    outcome = run_request(request_text(), "replay", clock=MOMENT, terminated=after(samples_in_an_abba_block() * 2))
    assert outcome.result.partial.reason == "terminated"
    assert read_message(outcome.message).partial == "terminated: the agent was told to stop"
    found = refusal(run_request(request_text(), "replay", terminated=lambda: True))
    assert found == ("NothingFinished", "the agent was told to stop; no palindrome was complete")


def after(asked: int) -> Callable[[], bool]:
    left = iter(range(asked))
    return lambda: next(left, None) is None


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
    "and another baseline": ({"recipe_scope": "mlp", "baseline": "mxfp8"}, "1/quick/mlp-bf16"),
    "gradients apart": ({"weight_gradients": "separate"}, "1/quick/separate"),
    "fused gradients, as by default": ({"weight_gradients": "fused"}, "1/quick"),
}


@pytest.mark.parametrize(("changes", "title"), LIKE.values(), ids=LIKE)
def test_what_bears_on_rates_beside_the_workload_is_in_the_timings_title(changes: dict[str, Any], title: str) -> None:
    assert timing_title(request(timing=TIMINGS["quick"]).model_copy(update=changes)) == title
    other = TIMINGS["quick"].model_copy(update={"segment_seconds": 2.0})
    assert timing_title(request(timing=other).model_copy(update={**changes, "timing": other})) != title


def test_the_message_is_written_in_place_the_log_ends_with_lines_or_none_and_the_file_is_whole(tmp_path: Path) -> None:
    assert places({TERMINATION_LOG_ENV: str(tmp_path / "m")}, None).message == tmp_path / "m"
    message = tmp_path / "termination-log"
    message.write_text("x" * 10_000)
    inode = message.stat().st_ino
    sent = run_request(request_text(), "replay")
    publish(sent, Places(message, None), io.BytesIO())
    assert (message.read_bytes(), message.stat().st_ino) == (sent.message, inode)
    stdout = io.BytesIO()
    stdout.write(b"progress without a newline")
    publish(sent, Places(None, None), stdout)
    assert stdout.getvalue().decode().splitlines()[1:] == list(sent.lines)
    stdout = io.BytesIO()
    publish(sent, Places(None, None), stdout, lines=False)
    assert stdout.getvalue() == b""
    (tmp_path / "file").mkdir()
    publish(sent, Places(None, tmp_path / "file" / "out.json"), io.BytesIO())
    assert MeasurementResult.model_validate_json((tmp_path / "file" / "out.json").read_bytes()) == sent.result
    assert [path.name for path in (tmp_path / "file").iterdir()] == ["out.json"]
    checkpoint(sent, Places(tmp_path / "m", None))
    assert read_message((tmp_path / "m").read_bytes()).run == "r1"


def test_a_failed_replacement_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError):
        replace_file(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@cache
def fullest(preset: PresetName, steps: int) -> results.MeasurementResult:
    """A replay of seven recipes on four GPUs, filled up with all that only a real GPU gives, no digits alike."""
    text = request_text(
        workload=Workload(preset=preset), recipes=SOME, product="GB200", timing=PALINDROMES,
        loss=LossRuns(steps=steps, seeds=3), deadline_seconds=3600,
    )  # fmt: skip
    found = run_request(text, "replay").result
    chance = Random(1)
    software = results.Software(
        agent="0.10.0+g0123456789ab", driver="580.159.04", cuda="13.1", torch="2.10.0a0+b4e4ee81d3.nv25.12",
        transformer_engine="2.10.0+769ed778", stack_hash="0123456789abcdef",
    )  # fmt: skip
    health = tuple(
        results.GpuHealth(uuid=gpu.uuid, ecc_volatile_uncorrectable=0, ecc_aggregate_uncorrectable=chance.randrange(99),
                  remap_pending=False, memory_used_bytes=chance.randrange(10**9), utilisation_percent=0)
        for gpu in found.gpus
    )  # fmt: skip
    return found.model_copy(
        update={
            "node": "gpu-node-" + "n" * 54,
            "software": software,
            "recipes": tuple(_filled(recipe, chance) for recipe in found.recipes),
            "power_trace": results.PowerTrace(
                started_at="2026-11-21T09:00:00Z",
                interval_seconds=2.0,
                watts=tuple(round(chance.uniform(600, 4800), 1) for _ in range(600)),
            ),
            "health": health,
            "environment": {f"NVTE_VARIABLE_{n}": str(chance.random()) for n in range(32)},
            "steadiness": results.Steadiness(
                state="not_steady", seconds=180.0, message="still moving: celsius, sm_mhz"
            ),
            "simulated": (
                *found.simulated,
                *(results.Simulated(field=f"f{n}", assumption="a" * 200) for n in range(10)),
            ),
        }
    )


def _filled(recipe: results.RecipeResult, chance: Random) -> results.RecipeResult:
    kernels = tuple(
        results.KernelSeen(name=f"{name}_{chance.randrange(10**9)}"[:1024], class_="bf16", rule="cublas-nvjet",
                   seconds=chance.random())
        for name in chance.sample(NAMES, 24)
    )  # fmt: skip
    return recipe.model_copy(
        update={
            "verification": recipe.verification.model_copy(
                update={
                    "kernels": kernels,
                    "flags": {"with_rht": True, "stochastic_rounding": True, "with_2d_quantization": False},
                    "errors": results.NumericErrors(y=chance.random(), dx=chance.random(), dw=chance.random()),
                    "saved_bytes_ratio": chance.random(),
                }
            ),
            "throttle": tuple(
                results.ThrottleShare(reason=reason, share=chance.random())
                for reason in ("power_cap", "software_thermal", "hardware_thermal", "power_brake")
            ),
            "throttled": results.ThrottleShare(reason="hardware_thermal", share=chance.random()),
            "clocks": results.Clocks(sm_mhz=chance.uniform(1000, 2000), celsius=chance.uniform(40, 90)),
            "notes": tuple(f"graph_unsupported: {chance.random()} " * 5 for _ in range(8)),
        }
    )


FIGURES = ("tokens_per_second", "gpu_spread", "speedup", "difference", "watts", "tokens_per_joule", "throttled")
"""Of every recipe of the fullest result, the baseline's own speedup apart: what the message itself always has."""
CUT = {name for name, _ in STEPS} - {"energy", "software", "power_invalid", "gpu_spread"}
"""What the message of seven recipes may leave to the full result: all steps but those that it never comes to."""


def test_where_much_failed_words_are_shortened_and_the_main_figures_stay() -> None:
    result = fullest("llama3.1-405b", 1000)
    lasting = results.Failure(reason="kernel_gaps", message="between its kernels the graph waits " * 20)
    failed = tuple(
        recipe.model_copy(update={"gemms": tuple(row.model_copy(update={"failure": lasting}) for row in recipe.gemms)})
        for recipe in result.recipes
    )
    whole = result.model_copy(update={"recipes": failed, "partial": lasting})
    summary = read_message(encode(whole).message)
    assert set(summary.dropped) <= CUT | {"gpu_spread"}
    assert summary.partial.startswith("kernel_gaps: ")
    assert {recipe.failure[:11] for recipe in summary.recipes if recipe.failure} == {"kernel_gaps"}
    figures = set(RecipeSummary.model_fields) - CUT - {"gpu_spread"}
    for recipe, kept in zip(summarize(whole, summary.detail).recipes, summary.recipes, strict=True):
        assert kept.model_dump(include=figures) == recipe.model_dump(include=figures)


@pytest.mark.parametrize(("preset", "steps"), [("llama3-8b", 50), ("mixtral-8x7b", 50), ("llama3.1-405b", 1000)])
def test_the_fullest_result_of_seven_recipes_on_four_gpus_fits(preset: PresetName, steps: int) -> None:
    result = fullest(preset, steps)
    published = encode(result)
    assert sum(len(line) + 1 for line in published.lines) < LOG_MAX_BYTES
    assert len(published.message) <= MESSAGE_MAX_BYTES
    summary = read_message(published.message)
    assert set(summary.dropped) <= CUT
    assert [recipe.recipe for recipe in summary.recipes] == list(SOME)
    lacking = {(recipe.recipe, name) for name in FIGURES for recipe in summary.recipes if getattr(recipe, name) is None}
    assert lacking == {("bf16", "speedup"), ("bf16", "difference")}
    assert read_log("\n".join(published.lines), summary.detail, result.request_hash) == result
