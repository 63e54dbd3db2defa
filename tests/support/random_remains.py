"""What an agent can leave behind: a result, one of the lab's faults of it, or what no kubelet tells."""

import json
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from precision_api.exchange.wire import encode
from precision_api.facts import names
from precision_lab.kubelet.faults import FAULTS, Ended
from tests.support.result_objects import recipe_result, result

FAULTY_ENDS = (
    *("crash", "exit:1", "exit:134", "refuse:GPUBusy", "exit:12", "exit:15", "exit:19", "oom", "evict"),
    *("garbage-message", "foreign-message", "hostile-message", "cut-message", "no-message"),
)
FAULTY_LOGS = ("no-log", "log-without-end", "log-without-front", "damaged-log", "bomb", "other run")
UNTOLD = ("drained", "preempted", "deadline", "deadline", "other request", "bad figures", "lost", "policy", "no end")
"""Ends that are no fault of the lab's table."""


@dataclass(frozen=True)
class Remains:
    """How a container and its Job ended. `ended` None: no container says; `pod` False: the pod is gone."""

    ended: Ended | None
    disruption: str = ""
    job_reason: str = "BackoffLimitExceeded"
    pod: bool = True


def good(rng: Random, job: dict[str, Any], speed: float, trouble: str) -> Remains:
    """A result at `speed` times the usual rate; `trouble`: throttled, fallback, partial, measured or none.

    Now and then the log with the full result has suffered.
    """
    ended = _ended(job, round(speed * rng.uniform(0.999, 1.001), 4), trouble)
    if rng.random() >= 0.15:
        return Remains(ended)
    how = rng.choice(FAULTY_LOGS)
    return Remains(_with(ended, run="another") if how == "other run" else FAULTS[how].change(ended, ""))


def bad(rng: Random, job: dict[str, Any]) -> Remains:
    """An end without a usable result."""
    ended = _ended(job, 1.0, "")
    match rng.choice((*FAULTY_ENDS, *UNTOLD)):
        case "drained":
            return Remains(Ended(143), "a drain", "PodFailurePolicy")
        case "preempted":
            return Remains(ended if rng.random() < 0.3 else None, "preempted")
        case "deadline":
            return Remains(rng.choice([None, Ended(143)]), job_reason="DeadlineExceeded")
        case "other request":
            return Remains(_with(ended, request_hash="cd" * 32))
        case "bad figures":
            first, *others = json.loads(ended.message)["recipes"]
            return Remains(_with(ended, recipes=[first | {"watts": 1e300}, *others]))
        case "lost":
            return Remains(None, pod=False)
        case "policy":
            return Remains(None, "evicted", "PodFailurePolicy", pod=False)
        case "no end":
            return Remains(None)
        case fault:
            name, _, argument = fault.partition(":")
            return Remains(FAULTS[name].change(ended, argument))


def _with(ended: Ended, **fields: Any) -> Ended:
    """The same end with other fields of its message."""
    return replace(ended, message=json.dumps(json.loads(ended.message) | fields))


def _ended(job: dict[str, Any], speed: float, trouble: str) -> Ended:
    notes, labels = job["metadata"]["annotations"], job["metadata"]["labels"]
    digest, node = notes[names.ANNOTATION_REQUEST_HASH], notes[names.ANNOTATION_NODE]
    return _published(labels[names.LABEL_RUN], digest, node, speed, trouble)


@cache
def _published(run: str, request_hash: str, node: str, speed: float, trouble: str) -> Ended:
    """A good end, as the agent writes it."""
    rng = Random(node)
    notes = tuple(f"{rng.getrandbits(4000):01000x}" for _ in range(16))  # gzip can't shorten it: two lines
    braked = {"throttled": {"reason": "power_brake", "share": 0.2}} if trouble == "throttled" else {}
    fallen = {"verification": {"verdict": "fallback"}} if trouble == "fallback" else {}
    rows = (
        recipe_result("bf16", speed, notes=notes[:8], **braked),
        recipe_result("fp8_current", speed * 1.2, notes=notes[8:], **fallen),
    )
    marks: dict[str, Any] = {"provenance": "measured" if trouble == "measured" else "replayed"}
    if trouble == "partial":
        marks["partial"] = {"reason": "deadline", "message": "half of the passes"}
    whole = result(run=run, request_hash=request_hash, node=node, product="H100", recipes=rows, **marks)
    published = encode(whole)
    log = "\n".join(("some words of Transformer Engine", *published.lines, ""))
    return Ended(0, published.message.decode(), log.encode())
