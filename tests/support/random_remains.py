"""What an agent can leave behind: exit code, termination message and log, good, damaged, foreign or hostile."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from precision_api.exchange.wire import encode, encode_refusal
from precision_api.facts import names
from tests.support.result_objects import recipe_result, result

LINE = 8 * 1024 - len("PPR1 256/256 \n") - 2
"""Base64 characters that an agent writes in one line of its log."""
BOMB_BYTES = 8 * 1024 * 1024 + 1
"""One more than a result may unpack to."""
BAD_ENDS = (
    *("crashed", "crashed", "refused", "refused in words", "out of memory", "disrupted", "disrupted with message"),
    *("deadline", "deadline", "no result", "damaged", "foreign", "other request", "bad figures", "lost", "policy"),
    "no end",
)
LOGS = ("cut", "foreign", "bomb", "empty", "unread", "other run")
"""What can become of a good result's log."""


@dataclass(frozen=True)
class Remains:
    """How a container and its Job ended. `pod` False: the pod is gone; `log` None: it can't be read."""

    exit_code: int | None = 0
    reason: str = "Completed"
    message: str = ""
    log: str | None = ""
    disruption: str = ""
    job_reason: str = "BackoffLimitExceeded"
    pod: bool = True


def good(rng: Random, job: dict[str, Any], product: str, speed: float, trouble: str) -> Remains:
    """A result at `speed` times the usual rate; `trouble`: throttled, fallback, energy, partial or none.

    Now and then the log with the full result has suffered.
    """
    notes, labels = job["metadata"]["annotations"], job["metadata"]["labels"]
    message, lines = _published(
        run=labels[names.LABEL_RUN],
        request_hash=notes[names.ANNOTATION_REQUEST_HASH],
        node=notes[names.ANNOTATION_NODE],
        product=product,
        speed=round(speed * rng.uniform(0.999, 1.001), 4),
        trouble=trouble,
    )
    log = "some words of Transformer Engine\n" + "\n".join(lines)
    return _suffered(rng.choice(LOGS), message, log) if rng.random() < 0.15 else Remains(message=message, log=log)


def _suffered(how: str, message: str, log: str) -> Remains:
    match how:
        case "cut":
            return Remains(message=message, log=log[: log.rindex("\n")])
        case "foreign":
            return Remains(message=message, log=log.replace("A", "B"))
        case "empty":
            return Remains(message=message, log="")
        case "unread":
            return Remains(message=message, log=None)
        case "other run":
            document = json.loads(message) | {"run": "another"}
            return Remains(message=json.dumps(document), log=log)
    bomb, detail = _bomb()
    return Remains(message=json.dumps(json.loads(message) | {"detail": detail}), log=bomb)


@cache
def _bomb() -> tuple[str, dict[str, Any]]:
    """A log whose gzip unpacks to more than a result may have, and the detail that a summary names it by."""
    packed = gzip.compress(b" " * BOMB_BYTES, mtime=0)
    payload = base64.b64encode(packed).decode()
    pieces = [payload[start : start + LINE] for start in range(0, len(payload), LINE)]
    lines = [f"PPR1 {n}/{len(pieces)} {piece}" for n, piece in enumerate(pieces, start=1)]
    sha256 = hashlib.sha256(packed).hexdigest()
    return "\n".join(lines), {"lines": len(pieces), "bytes": len(packed), "sha256": sha256}


def bad(rng: Random, job: dict[str, Any], product: str) -> Remains:
    """An end without a usable result."""
    log = "Traceback (most recent call last):\n  \x1b[31mRuntimeError\x1b[0m: CUDA error\n"
    match rng.choice(BAD_ENDS):
        case "crashed":
            return Remains(rng.choice([1, 139, 134]), "Error", log=rng.choice([log, None, ""]))
        case "refused":
            return Remains(rng.choice([12, 14, 15, 19]), "Error", log=log)
        case "refused in words":
            refusal = encode_refusal("GPUBusy", "process 17 holds GPU 3").decode()
            return Remains(14, "Error", refusal, log)
        case "out of memory":
            return Remains(137, "OOMKilled")
        case "disrupted":
            return Remains(143, "Error", disruption="a drain", job_reason="PodFailurePolicy")
        case "disrupted with message":
            return good(rng, job, product, 1.0, "") if rng.random() < 0.3 else Remains(None, disruption="preempted")
        case "deadline":
            return Remains(rng.choice([None, 143]), "Error", job_reason="DeadlineExceeded")
        case "no result":
            return Remains(0, "Completed", "", log)
        case "damaged":
            return Remains(0, "Completed", rng.choice(['{"v": "PPS1"}', '{"v": "PP', '{"v": "PPE1"}', "[" * 5000]))
        case "foreign":
            return Remains(0, "Completed", rng.choice(['{"v": "PPS9"}', "hello", "[1]", "x" * 70_000]))
        case "other request":
            other = json.loads(good(rng, job, product, 1.0, "").message) | {"request_hash": "cd" * 32}
            return Remains(0, "Completed", json.dumps(other))
        case "bad figures":
            document = json.loads(good(rng, job, product, 1.0, "").message)
            document["recipes"][0]["watts"] = 1e300
            return Remains(0, "Completed", json.dumps(document))
        case "lost":
            return Remains(pod=False)
        case "policy":
            return Remains(pod=False, job_reason="PodFailurePolicy", disruption="evicted")
    return Remains(None)


@cache
def _published(
    run: str, request_hash: str, node: str, product: str, speed: float, trouble: str
) -> tuple[str, tuple[str, ...]]:
    """(termination message, lines of the log) of a result, as the agent writes them."""
    notes = tuple(f"{number:01000x}" for number in _noise(node))
    braked = {"throttled": {"reason": "power_brake", "share": 0.2}} if trouble == "throttled" else {}
    fallen = {"verification": {"verdict": "fallback"}} if trouble == "fallback" else {}
    rows = (
        recipe_result("bf16", speed, notes=notes[:8], **braked),
        recipe_result("fp8_current", speed * 1.2, notes=notes[8:], **fallen),
    )
    marks: dict[str, Any] = {"provenance": "measured" if trouble == "measured" else "replayed"}
    if trouble == "partial":
        marks["partial"] = {"reason": "deadline", "message": "half of the passes"}
    whole = result(run=run, request_hash=request_hash, node=node, product=product, recipes=rows, **marks)
    published = encode(whole)
    return published.message.decode(), published.lines


def _noise(seed: str) -> list[int]:
    """Digits that gzip can't shorten, so that a result takes two lines."""
    rng = Random(seed)
    return [rng.getrandbits(4000) for _ in range(16)]
