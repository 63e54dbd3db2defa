"""A result comes back exactly, or as a named reason: whatever happens to the message and the log on the way."""

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_api.exchange import result as results
from precision_api.exchange import wire
from precision_api.exchange.exits import EXITS, exit_named, exit_of
from precision_api.exchange.message import Detail, Summary
from precision_api.exchange.summary import MESSAGE_MAX_BYTES, compact, fitted, summarize
from precision_api.exchange.wire import AgentRefused, WireError, agree, encode, encode_refusal, read_log, read_message
from precision_api.facts.recipes import MOST_LISTED, RECIPE_NAMES
from tests.support.result_objects import HASH, interval, recipe_result, result


def row(name: str, **figures: Any) -> results.GemmResult:
    sizes = {"m": 1, "k": 1, "n": 1, "count": 1}
    return results.GemmResult(**({"name": name, "pass_": "wgrad", "mode": "autocast"} | sizes | figures))


def long_result(gemms: int = 400) -> results.MeasurementResult:
    """A result of several lines: random digits do not compress."""
    chance = Random(1)
    rows = tuple(
        row(f"g{i}", m=chance.randrange(1 << 20), k=chance.randrange(1 << 20), n=8, seconds=interval(chance.random()))
        for i in range(gemms)
    )
    return result(recipes=tuple(recipe_result(recipe, gemms=rows) for recipe in ("bf16", "nvfp4")))


LONG = long_result()
LONG_PUBLISHED = encode(LONG)
LONG_DETAIL = read_message(LONG_PUBLISHED.message).detail
LONG_LOG = "".join(f"{line}\n" for line in LONG_PUBLISHED.lines)


def read(log: str | bytes) -> results.MeasurementResult:
    return read_log(log, LONG_DETAIL, HASH)


def code_of(log: str | bytes, detail: Detail = LONG_DETAIL, request_hash: str = HASH) -> str:
    with pytest.raises(WireError) as caught:
        read_log(log, detail, request_hash)
    return caught.value.code


def test_a_result_comes_back_exactly_in_the_same_bytes_and_in_lines_below_8_kib() -> None:
    for sent in (result(), LONG):
        published = encode(sent)
        summary = read_message(published.message, sent.request_hash)
        found = read_log("\n".join(published.lines), summary.detail, sent.request_hash)
        assert found == sent
        agree(summary, found)
    assert encode(result()) == encode(result())
    assert len(LONG_PUBLISHED.lines) == LONG_DETAIL.lines >= 4
    assert all(len(f"{line}\n".encode()) <= 8192 for line in LONG_PUBLISHED.lines)
    assert LONG_PUBLISHED.lines[1].startswith(f"PPR1 2/{LONG_DETAIL.lines} ")


def cut_in_pieces(log: str, size: int = 16 * 1024) -> str:
    """What a runtime makes of long lines."""
    lines = (line[start : start + size] for line in log.splitlines() for start in range(0, max(1, len(line)), size))
    return "".join(f"{line}\n" for line in lines)


LINES = LONG_PUBLISHED.lines
DISTURBED = {
    "stderr between the lines": "".join(f"{line}\nW: NCCL is chatty\n" for line in LINES),
    "stderr without a newline in front": "".join(f"W: progress 99%{line}\n" for line in LINES),
    "carriage returns": LONG_LOG.replace("\n", "\r\n"),
    "much before": "x" * 100_000 + "\n" + "noise\n" * 1000 + LONG_LOG,
    "the front of the noise rotated away": ("noise\n" * 1000 + LONG_LOG)[3:],
    "no newline at the end": LONG_LOG.rstrip("\n"),
    "every line twice": LONG_LOG + LONG_LOG,
    "another order": "\n".join(reversed(LINES)),
    "glued to stderr and cut into pieces of 16 KiB": cut_in_pieces(
        "".join(f"{'e' * 12_000}{line}\n" for line in LINES)
    ),
    "a broken copy first": LINES[0][:-40] + "A" * 40 + "\n" + LONG_LOG,
    "a broken copy last": LONG_LOG + LINES[0][:-40] + "A" * 40 + "\n",
    "a half line first": LINES[0][:200] + "\n" + LONG_LOG,
    "lines of another result": f"PPR1 1/99 {'A' * 400}\n" + LONG_LOG,
    "a hint that is none": "PPR1 x/y z\nPPR1 0/0 \nPPR1 1/\n" + LONG_LOG,
    "bytes that are not UTF-8": b"\xff\xfe\x00" + LONG_LOG.encode(),
}


@pytest.mark.parametrize("log", DISTURBED.values(), ids=DISTURBED.keys())
def test_a_disturbed_log_still_gives_the_whole_result(log: str | bytes) -> None:
    assert read(log) == LONG


def repacked(document: dict[str, Any] | bytes) -> tuple[str, Detail]:
    """A log and a detail that fit together, whatever the document is."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return repacked_gzip(gzip.compress(text))


def repacked_gzip(packed: bytes) -> tuple[str, Detail]:
    payload = base64.b64encode(packed).decode()
    pieces = [payload[i : i + wire.PAYLOAD] for i in range(0, len(payload), wire.PAYLOAD)]
    log = "".join(f"PPR1 {i}/{len(pieces)} {piece}\n" for i, piece in enumerate(pieces, 1))
    return log, Detail(lines=len(pieces), bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest())


def as_json(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result().model_dump_json(by_alias=True, exclude_none=True))
    return document | changes


BROKEN_LOGS = {
    "empty": ("", "ResultMissing"),
    "only noise": ("Traceback (most recent call last):\n" * 50, "ResultMissing"),
    "first line rotated away": ("\n".join(LINES[1:]), "ResultTruncated"),
    "last line missing": ("\n".join(LINES[:-1]), "ResultTruncated"),
    "last line short": (LONG_LOG.rstrip("\n")[:-1], "ResultTruncated"),
    "a character changed": (LONG_LOG.replace(LINES[1][50:60], "AAAAAAAAAA"), "ResultDigestMismatch"),
    "padding in the middle": (LONG_LOG.replace(LINES[1][50:60], "=========="), "ResultDigestMismatch"),
    "a hundred thousand lines": ("PPR1 1/7 AAAA\n" * 100_000, "ResultMissing"),
}


@pytest.mark.parametrize(("log", "code"), BROKEN_LOGS.values(), ids=BROKEN_LOGS.keys())
def test_a_broken_log_has_a_named_reason(log: str, code: str) -> None:
    assert code_of(log) == code


def test_contradictions_end_in_time_with_a_named_reason() -> None:
    copies = [f"{line[:-40]}{letter * 40}\n" for line in LINES for letter in "ABCDEFGH"]
    assert code_of("".join(copies) + LONG_LOG) == "ResultDigestMismatch"
    assert code_of(LONG_LOG, LONG_DETAIL.model_copy(update={"lines": 1})) == "ResultDamaged"


def test_so_many_beginnings_of_lines_are_looked_at_and_no_more() -> None:
    most = wire.MARKS_MAX - LONG_DETAIL.lines
    assert read("PPR1 1/1 " * most + LONG_LOG) == LONG
    assert code_of("PPR1 1/1 " * (most + 1) + LONG_LOG) == "ResultTruncated"


def test_the_result_of_another_request_is_foreign() -> None:
    assert code_of(LONG_LOG, request_hash="cd" * 32) == "ResultForeign"


HOSTILE_DOCUMENTS: dict[str, dict[str, Any] | bytes] = {
    "not JSON": b"\x00\xff",
    "another document": {"hello": "world"},
    "a list": b"[1, 2, 3]",
    "a figure that is not a number": json.dumps(as_json(duration_seconds=float("nan"))).encode(),
    "an endless figure": json.dumps(as_json(training_flops_per_token=float("inf"))).encode(),
    "a number of 5,000 digits": as_json(attempt=7) and json.dumps(as_json()).replace("600.0", "9" * 5000).encode(),
    "an integer beyond any float": json.dumps(as_json()).replace('"attempt": 1', f'"attempt": {10**400}').encode(),
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "a sum with neither a figure nor a reason": as_json(
        recipes=[as_json()["recipes"][0] | {"sums": [{"mode": "autocast"}]}]
    ),
    "a step with neither a figure nor a reason": as_json(recipes=[as_json()["recipes"][0] | {"training": {}}]),
    "a recipe twice": as_json(recipes=[as_json()["recipes"][0]] * 2),
    "simulated but not said so": as_json(simulated=[{"field": "x", "assumption": "y"}]),
    "half a surrogate": json.dumps(as_json()).replace('"tiny"', r'"\ud800"').encode(),
}


@pytest.mark.parametrize("document", HOSTILE_DOCUMENTS.values(), ids=HOSTILE_DOCUMENTS.keys())
def test_a_hostile_document_under_a_right_digest_is_damaged(document: dict[str, Any] | bytes) -> None:
    log, detail = repacked(document)
    assert code_of(log, detail) == "ResultDamaged"


NEWER_DOCUMENTS: dict[str, dict[str, Any] | bytes] = {
    "a newer version": as_json(schema_version="2"),
    "an unknown field": as_json(extra=1),
    "a verdict that did not exist": as_json(recipes=[as_json()["recipes"][0] | {"loss": {"verdict": "confused"}}]),
}


@pytest.mark.parametrize("document", NEWER_DOCUMENTS.values(), ids=NEWER_DOCUMENTS.keys())
def test_a_full_result_of_a_newer_agent_is_newer_not_damaged(document: dict[str, Any] | bytes) -> None:
    log, detail = repacked(document)
    assert code_of(log, detail) == "ResultNewer"


def test_a_zip_bomb_is_not_unpacked() -> None:
    log, detail = repacked(b" " * (wire.RESULT_MAX_BYTES * 8))
    assert code_of(log, detail) == "ResultTooLarge"


@pytest.mark.parametrize(
    "packed", [b"not gzip at all", gzip.compress(b"{}" * 500)[:-12], zlib.compress(b"{}")], ids=["text", "cut", "zlib"]
)
def test_what_is_not_a_whole_gzip_is_damaged(packed: bytes) -> None:
    log, detail = repacked_gzip(packed)
    assert code_of(log, detail) == "ResultDamaged"


def test_a_log_beyond_all_bounds_is_too_large() -> None:
    assert code_of("x" * (wire.LOG_MAX_CHARACTERS + 1)) == "ResultTooLarge"


def test_a_result_that_can_not_travel_is_refused_by_the_agent() -> None:
    chance = Random(2)
    rows = tuple(
        row(
            "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=64)),
            failure=results.Failure(
                reason="failed", message="".join(map(chr, chance.choices(range(0x4E00, 0x9FFF), k=900)))
            ),
        )
        for _ in range(100)
    )
    recipes = tuple(results.RecipeResult(recipe=recipe, availability="ok", gemms=rows) for recipe in RECIPE_NAMES)
    with pytest.raises(WireError) as caught:
        encode(result(recipes=recipes))
    assert caught.value.code == "ResultTooLarge"


MESSAGE = LONG_PUBLISHED.message.decode()


def changed_message(**changes: Any) -> str:
    return json.dumps(json.loads(MESSAGE) | changes)


def message_with(recipe: Mapping[str, Any], **changes: Any) -> str:
    """A message whose only recipe has these fields."""
    plain = {"recipe": "bf16", "availability": "ok", "verdict": "verified"}
    return changed_message(recipes=[plain | recipe], **changes)


BROKEN_MESSAGES = {
    "none": (None, "ResultMissing"),
    "blank": (" \n", "ResultMissing"),
    "the end of a log": ("RuntimeError: CUDA error\n", "ResultForeign"),
    "a list": ("[]", "ResultForeign"),
    "another program's JSON": ('{"v":"X"}', "ResultForeign"),
    "a newer version": (changed_message(v="PPS2"), "ResultForeign"),
    "half of it": (MESSAGE[: len(MESSAGE) // 2], "ResultDamaged"),
    "cut by the kubelet": ('{"v":"PPS1","node":"' + "x" * 4076, "ResultTruncated"),
    "a missing field": (json.dumps({"v": "PPS1"}), "ResultDamaged"),
    "a field of a newer agent": (changed_message(surprise=1), "ResultNewer"),
    "a verdict of a newer agent": (message_with({"loss_verdict": "confused"}), "ResultNewer"),
    "an unknown word beside a broken figure": (
        message_with({"loss_verdict": "confused", "watts": "many"}),
        "ResultDamaged",
    ),
    "not a number": (changed_message(duration_seconds=float("nan")), "ResultDamaged"),
    "recipes by column": (changed_message(recipes={"recipe": ["bf16", "mxfp8"], "watts": [1, 2]}), "ResultDamaged"),
    "recipes that are no list": (changed_message(recipes={"recipe": "bf16"}), "ResultDamaged"),
    "a verdict assumed by an agent that measured": (
        message_with({"verdict": "assumed"}, provenance="measured", simulated=[]),
        "ResultDamaged",
    ),
    "bounds out of order": (message_with({"speedup": [1, 2, 0, 3]}), "ResultDamaged"),
    "deeply nested": ('{"v":' + "[" * 30_000, "ResultTruncated"),
    "a number of 5,000 digits": (f'{{"v":"PPS1","gpus":{"9" * 5000}}}', "ResultTruncated"),
    "far too long": ("{" + "x" * 100_000, "ResultTooLarge"),
    "a refusal that is none": ('{"v":"PPE1","reason":"<b>"}', "ResultDamaged"),
}


@pytest.mark.parametrize(("message", "code"), BROKEN_MESSAGES.values(), ids=BROKEN_MESSAGES.keys())
def test_a_broken_message_has_a_named_reason(message: str | None, code: str) -> None:
    with pytest.raises(WireError) as caught:
        read_message(message)
    assert caught.value.code == code
    assert caught.value.message


def test_a_newer_agents_result_is_told_with_its_version_and_what_is_not_known() -> None:
    told = json.loads(MESSAGE)
    told["software"]["agent"] = "9.1.0"
    told["recipes"][0]["loss_verdict"] = "confused"
    with pytest.raises(WireError) as caught:
        read_message(json.dumps(told))
    assert caught.value.code == "ResultNewer"
    assert "agent '9.1.0'" in caught.value.message
    assert "recipes.0.loss_verdict" in caught.value.message


def test_the_summary_of_another_request_is_foreign() -> None:
    with pytest.raises(WireError, match="another request"):
        read_message(MESSAGE, "cd" * 32)


def test_a_refusal_comes_back_with_its_reason_and_words_and_fits() -> None:
    with pytest.raises(AgentRefused) as caught:
        read_message(encode_refusal("GPUBusy", "GPU-1 has 5 bytes in use"))
    assert (caught.value.code, caught.value.reason) == ("AgentRefused", "GPUBusy")
    assert caught.value.message == "GPU-1 has 5 bytes in use"
    with pytest.raises(AgentRefused) as caught:
        read_message(encode_refusal("MIGEnabled", ""))
    assert "MIG mode" in caught.value.message
    assert len(encode_refusal("AgentCrashed", "\u00e4\x00\n" * 5000)) <= wire.KUBELET_MAX_BYTES


@pytest.mark.parametrize("field", ["run", "node", "provenance", "product", "finished_at"])
def test_summary_and_result_of_different_runs_disagree(field: str) -> None:
    summary = read_message(MESSAGE).model_copy(update={field: {"provenance": "simulated"}.get(field, "other")})
    with pytest.raises(WireError, match=field) as caught:
        agree(summary, LONG)
    assert caught.value.code == "ResultForeign"


def longest(text: str = "x") -> Summary:
    """The summary with every field as long as the schema lets it be."""
    widest = results.Interval(value=-1.23456e-300, lower=-1.23457e-300, upper=-1.23455e-300, n=1_000_000)
    sent = result(
        run="r" * 63,
        node="n" * 253,
        product="p" * 64,
        backend="transformer-engine",
        provenance="simulated",
        simulated=tuple(results.Simulated(field=(f"{i}{text}" * 128)[:128], assumption="a") for i in range(32)),
        partial=results.Failure(reason="f" * 64, message=text * 1024),
        software=results.Software(**{name: name[0] * 64 for name in results.Software.model_fields}),
        finished_at="f" * 64,
        workload_hash="w" * 64,
        recommendation=results.Recommendation(
            by_speed="nvfp4_no_rht", by_energy="nvfp4_no_rht", fallback="fp8_delayed", sentence=text * 1024
        ),
    )
    summary = summarize(sent, Detail(lines=256, bytes=1 << 20, sha256="a" * 64))
    recipes = tuple(
        recipe.model_copy(
            update={
                "availability": "probe_failed",
                "tokens_per_second": widest,
                "speedup": widest,
                "gemm_speedup": {"autocast": 1.23456e-300, "prequantized": 1.23456e-300},
                "failure": text * 200,
            }
        )
        for recipe in summary.recipes
    )
    return summary.model_copy(update={"recipes": recipes})


@pytest.mark.parametrize("text", ["x", "\u00e4", "\U0001f600", '"'], ids=["ascii", "latin", "astral", "escaped"])
def test_the_longest_summary_fits_and_says_what_it_left_out(text: str) -> None:
    summary = fitted(longest(text))
    message = compact(summary)
    assert len(message) <= MESSAGE_MAX_BYTES
    assert {"sentence", "simulated", "failure"} <= set(summary.dropped)
    assert read_message(message) == summary
    assert summary.provenance == "simulated"
    assert summary.simulated
    assert [recipe.recipe for recipe in summary.recipes] == list(RECIPE_NAMES[: MOST_LISTED + 2])
    assert all(recipe.speedup and recipe.tokens_per_second for recipe in summary.recipes)


def test_a_summary_that_fits_is_left_alone_but_for_rounding_and_the_first_failure() -> None:
    summary = summarize(result(), Detail(lines=1, bytes=100, sha256="a" * 64))
    assert fitted(summary) == summary
    assert summary.dropped == ()
    failed = recipe_result("mxfp8", sums=(), training=None, gemms=()).model_copy(
        update={"availability": "unsupported", "availability_reason": "H100 has no mxfp8"}
    )
    summary = read_message(encode(result(recipes=(recipe_result("bf16"), failed))).message)
    assert summary.recipes[0].tokens_per_second.value == 123457.0
    assert (summary.recipes[0].failure, summary.recipes[1].failure) == (None, "unsupported: H100 has no mxfp8")
    assert summary.recipes[1].power_invalid == ("not_measured",)


def test_exit_codes_are_unique_and_stay_in_their_range() -> None:
    codes = [row.code for row in EXITS]
    assert len(set(codes)) == len(codes)
    assert all(code == 0 or 10 <= code <= 29 for code in codes)
    assert (exit_of(137).reason, exit_of(137).code, exit_of(14)) == ("AgentCrashed", 137, exit_named("GPUBusy"))
    assert exit_named("Nonsense") is None


def code_or(read_it: Callable[[], object]) -> object:
    """What was read, or the code of the WireError; any other exception fails the test."""
    try:
        return read_it()
    except WireError as error:
        return error.code


def mutated(data: bytes, chance: Random) -> bytes:
    """`data` with a few bytes changed, cut out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, width = chance.randrange(len(changed) + 1), chance.choice([1, 1, 2, 50, 9000])
        piece = bytes(chance.randrange(256) for _ in range(min(width, 4)))
        new = chance.choice(
            [piece, b"", bytes(changed[place : place + width]) * 2, b"\n", b"\r\n", b"PPR1 1/2 ", b"9" * 400]
        )
        changed[place : place + width * chance.randint(0, 1)] = new
        if not changed:
            break
    return bytes(changed)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_mutated_log_is_the_exact_result_or_a_wire_error(chance: Random) -> None:
    found = code_or(lambda: read(mutated(LONG_LOG.encode(), chance)))
    assert found in (LONG, "ResultMissing", "ResultTruncated", "ResultDigestMismatch")


figures = st.floats(allow_nan=False, allow_infinity=False)
notes = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(figures, min_size=3, max_size=3).map(sorted), notes, st.integers(0, 1 << 62))
def test_every_figure_and_note_survives_the_way(bounds: list[float], note: str, size: int) -> None:
    lower, value, upper = bounds
    sent = result(
        control_ratio=results.Interval(value=value, lower=lower, upper=upper, n=2),
        recipes=(
            recipe_result(
                "bf16",
                verification=results.Verification(verdict="partial", share=value, message=note),
                memory={"process_peak_bytes": size},
            ),
        ),
    )
    published = encode(sent)
    assert read_log("\n".join(published.lines), read_message(published.message).detail, HASH) == sent


@pytest.mark.parametrize("lacking", [("head",), ("head", "optimizer")])
def test_a_step_without_its_head_or_optimizer_has_no_rate_in_the_summary(lacking: tuple[str, ...]) -> None:
    whole = recipe_result("nvfp4", 1.6, sums=(), gemms=())
    without = whole.model_copy(update={"training": whole.training.model_copy(update={"missing": lacking})})
    detail = summarize(result(recipes=(without,)), Detail(bytes=1, sha256="0" * 64, lines=1)).recipes[0]
    figures = (detail.tokens_per_second, detail.speedup, detail.difference, detail.gpu_spread, detail.watts)
    assert figures == (None,) * 5
    assert detail.power_invalid == ("not_measured",)
    assert detail.failure == f"incomplete: without {', '.join(lacking)}"
