"""How a result travels: a summary in the termination message, the whole in PPR1 lines at the end of the log.

The full result is canonical JSON, gzipped, base64, cut into lines `PPR1 <i>/<n> <payload>` of at most 8 KiB. The
summary carries their number, the bytes and the SHA-256 of the gzip. Whatever comes back may be damaged, cut, mixed with
stderr, foreign or hostile: reading gives the exact result or raises a `WireError` with a named code, nothing else.
"""

import base64
import contextlib
import gzip
import hashlib
import itertools
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from pydantic import ValidationError

from precision_api.exchange.exits import exit_named
from precision_api.exchange.message import Detail, Refusal, Summary
from precision_api.exchange.request import canonical
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.summary import compact, fitted, summarize
from precision_api.facts.json_text import first_wrong, read_json, rows_of

LINE_MAX_BYTES = 8 * 1024
"""Half of what a container runtime keeps in one piece, so that a little stderr in front doesn't split a line."""
PAYLOAD = LINE_MAX_BYTES - len("PPR1 256/256 \n") - 2
"""Base64 characters a line: a multiple of 4, so that each line could be decoded alone."""
RESULT_MAX_BYTES = 8 * 1024 * 1024
GZIP_MAX_BYTES = 1 << 20
KUBELET_MAX_BYTES = 4_096
LOG_MAX_CHARACTERS = 64 * 1024 * 1024
MARKS_MAX = 2048
"""How many beginnings of lines are looked at: eight of each of the most lines."""
COMBINATIONS_MAX = 64
"""How many choices among contradictory lines are tried against the digest."""

Code = Literal[
    "AgentRefused",
    "ResultMissing",
    "ResultDamaged",
    "ResultForeign",
    "ResultNewer",
    "ResultTruncated",
    "ResultDigestMismatch",
    "ResultTooLarge",
]

_LINE = re.compile(r"PPR1 ([1-9][0-9]{0,2})/([1-9][0-9]{0,2}) ")
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")


class WireError(ValueError):
    """There is no result to be had from what came back; `code` fits a condition's reason, the text a person."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message


class AgentRefused(WireError):
    """The agent itself said why there is no result; `reason` is one of the exit codes' reasons."""

    def __init__(self, refusal: Refusal) -> None:
        exit_row = exit_named(refusal.reason)
        super().__init__("AgentRefused", refusal.message or (exit_row.sentence if exit_row else refusal.reason))
        self.reason = refusal.reason


@dataclass(frozen=True, slots=True)
class Published:
    """What an agent leaves behind: the termination message, and the lines that end its log (without newlines)."""

    message: bytes
    lines: tuple[str, ...]


def encode(result: MeasurementResult) -> Published:
    """The result as it travels; WireError ResultTooLarge where its gzip would pass 1 MiB."""
    text = canonical(result.model_dump(mode="json", by_alias=True, exclude_none=True)).encode()
    packed = gzip.compress(text, mtime=0)
    if len(packed) > GZIP_MAX_BYTES or len(text) > RESULT_MAX_BYTES:
        raise WireError("ResultTooLarge", f"the result takes {len(packed)} bytes: measure fewer shapes or recipes")
    payload = base64.b64encode(packed).decode()
    pieces = [payload[start : start + PAYLOAD] for start in range(0, len(payload), PAYLOAD)]
    detail = Detail(lines=len(pieces), bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest())
    lines = tuple(f"PPR1 {i}/{len(pieces)} {piece}" for i, piece in enumerate(pieces, start=1))
    return Published(message=compact(fitted(summarize(result, detail))), lines=lines)


def encode_refusal(reason: str, message: str) -> bytes:
    """The termination message of an agent without a result; the text is cut so that it always fits."""
    plain = message.encode("ascii", "replace").decode()[:1000]
    return canonical(Refusal(reason=reason, message=plain).model_dump(mode="json")).encode()


def read_message(text: str | bytes | None, request_hash: str | None = None) -> Summary:
    """The summary from a pod's termination message.

    Raises AgentRefused when the agent says why there is no result, else WireError. With `request_hash` a summary that
    answers another request is ResultForeign.
    """
    body = _text(text).strip()
    if not body:
        raise WireError("ResultMissing", "the pod ended without a termination message")
    if len(body) > 16 * KUBELET_MAX_BYTES:
        raise WireError("ResultTooLarge", f"the termination message has {len(body)} characters")
    document = _message_json(body)
    if document.get("v") == "PPE1":
        try:
            refusal = Refusal.model_validate(document)
        except ValidationError as error:
            raise WireError("ResultDamaged", f"the agent's refusal is not valid: {first_wrong(error)}") from None
        raise AgentRefused(refusal)
    if document.get("v") != "PPS1":
        raise WireError("ResultForeign", "the termination message is not of this agent, or of a newer version")
    try:
        summary = Summary.model_validate(document)
    except (ValidationError, RecursionError, OverflowError) as error:
        raise _invalid("summary", error, body) from None
    if request_hash is not None and summary.request_hash != request_hash:
        raise WireError("ResultForeign", "the summary answers another request")
    return summary


def read_log(log: str | bytes, detail: Detail, request_hash: str) -> MeasurementResult:
    """The full result from the end of a pod's log, exact to the bit, or a WireError.

    The log may hold anything beside the lines: stderr before or between them, CRLF, lines twice or contradicting each
    other (the digest decides), lines that a runtime cut in two.
    """
    if len(log) > LOG_MAX_CHARACTERS:
        raise WireError("ResultTooLarge", f"the log has {len(log)} characters")
    result = _parsed(unpacked(_matching(_text(log), detail)))
    if result.request_hash != request_hash:
        raise WireError("ResultForeign", "the full result answers another request")
    return result


def _parsed(text: bytes) -> MeasurementResult:
    try:
        return read_json(MeasurementResult, text)
    except (ValidationError, RecursionError, OverflowError) as error:
        raise _invalid("full result", error, text) from None


def agree(summary: Summary, result: MeasurementResult) -> None:
    """Raises ResultForeign unless both tell of the same run, request, node, origin and recipes."""
    summarized, detailed = _identity(summary), _identity(result)
    wrong = [name for name in summarized if summarized[name] != detailed[name]]
    if wrong:
        raise WireError("ResultForeign", f"summary and full result disagree on {', '.join(wrong)}")


def _identity(document: Summary | MeasurementResult) -> dict[str, object]:
    names = ("run", "request_hash", "node", "backend", "provenance", "product", "finished_at")
    return {
        **{name: getattr(document, name) for name in names},
        "recipes": [(recipe.recipe, recipe.availability) for recipe in document.recipes],
    }


def _text(raw: str | bytes | None) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""


def _message_json(body: str) -> dict[str, Any]:
    """The JSON object in a message; a cut one is told from a foreign one by its beginning and its length."""
    if not body.startswith("{"):
        raise WireError("ResultForeign", "the termination message is not JSON: not from this agent, or it crashed")
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if len(body.encode("utf-8", "replace")) >= KUBELET_MAX_BYTES - 64:
            raise WireError("ResultTruncated", "the termination message was cut at the kubelet's limit") from None
        raise WireError("ResultDamaged", "the termination message is broken JSON") from None
    if not isinstance(document, dict):
        raise WireError("ResultForeign", "the termination message is not a JSON object")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _matching(text: str, detail: Detail) -> bytes:
    """The gzip whose digest is right, put together from the lines of the log."""
    size = 4 * -(-detail.bytes // 3)
    if -(-size // PAYLOAD) != detail.lines:
        raise WireError("ResultDamaged", f"{detail.bytes} bytes do not make {detail.lines} lines")
    candidates = _candidates(text, detail.lines, size)
    if not candidates:
        raise WireError("ResultMissing", "the log holds no line of the result")
    missing = [index for index in range(1, detail.lines + 1) if index not in candidates]
    if missing:
        raise WireError("ResultTruncated", f"{len(missing)} of {detail.lines} lines are missing, first {missing[0]}")
    choices = itertools.product(*(candidates[index] for index in sorted(candidates)))
    for choice in itertools.islice(choices, COMBINATIONS_MAX):
        with contextlib.suppress(ValueError):  # no base64
            packed = base64.b64decode("".join(choice), validate=True)
            if hashlib.sha256(packed).hexdigest() == detail.sha256:
                return packed
    raise WireError("ResultDigestMismatch", "the lines of the result do not have the digest that the summary names")


def _candidates(text: str, lines: int, size: int) -> dict[int, list[str]]:
    """By line number the distinct payloads of the right length: at most the first three."""
    by_number: dict[int, list[str]] = {}
    for line in itertools.islice(_LINE.finditer(text), MARKS_MAX):
        index = int(line[1])
        if int(line[2]) != lines or index > lines:
            continue
        payload = _payload(text, line.end(), min(PAYLOAD, size - (index - 1) * PAYLOAD))
        seen = by_number.setdefault(index, []) if payload else []
        if payload and payload not in seen and len(seen) < 3:
            seen.append(payload)
    return by_number


def _payload(text: str, start: int, length: int) -> str | None:
    """`length` base64 characters from `start`; where a runtime cut the line, its rest follows a line break."""
    match = _BASE64.match(text, start, start + length)
    head = match[0] if match else ""
    if len(head) == length:
        return head
    place = start + len(head)
    for newline in ("\n", "\r\n"):
        if text.startswith(newline, place):
            begin = place + len(newline)
            rest = _BASE64.match(text, begin, begin + length - len(head))
            if rest and len(head) + len(rest[0]) == length:
                return head + rest[0]
    return None


def unpacked(packed: bytes) -> bytes:
    """The JSON text of a gzip; never more than `RESULT_MAX_BYTES`, whatever it promises. Raises WireError."""
    if len(packed) > GZIP_MAX_BYTES:
        raise WireError("ResultTooLarge", f"the gzip of the result has {len(packed)} bytes")
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(packed, RESULT_MAX_BYTES)
    except zlib.error:
        raise WireError("ResultDamaged", "the result is not gzip") from None
    if not reader.eof:
        if len(text) >= RESULT_MAX_BYTES:
            raise WireError("ResultTooLarge", f"the result is too large: more than {RESULT_MAX_BYTES} bytes")
        raise WireError("ResultDamaged", "the gzip of the result is incomplete")
    return text


NEWER = frozenset({"extra_forbidden", "literal_error"})
"""What alone is wrong with the result of a newer agent: fields and words that did not exist."""


def _invalid(what: str, error: Exception, text: str | bytes) -> WireError:
    """ResultNewer where nothing but unknown fields and words is wrong, with the agent's version; else ResultDamaged."""
    if not isinstance(error, ValidationError):
        return WireError("ResultDamaged", f"the {what} is not valid: {type(error).__name__}")
    if not {row["type"] for row in rows_of(error)} <= NEWER:
        return WireError("ResultDamaged", f"the {what} is not valid: {first_wrong(error)}")
    return WireError("ResultNewer", f"the {what} of {_agent_of(text)} has what is not known here: {first_wrong(error)}")


def _agent_of(text: str | bytes) -> str:
    try:
        version = json.loads(text)["software"]["agent"]
    except (ValueError, RecursionError, KeyError, TypeError):
        version = None
    return f"agent {version[:32]!a}" if isinstance(version, str) else "an agent of no known version"
