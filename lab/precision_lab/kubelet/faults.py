"""What can go wrong with an agent on a simulated node: one table, each row as a real runtime would show it."""

import base64
import gzip
import hashlib
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from precision_api.exchange.exits import exit_named
from precision_api.exchange.wire import PAYLOAD, encode_refusal
from precision_lab import names

SIGTERM_EXIT, SIGKILL_EXIT, SEGFAULT_EXIT = 143, 137, 139
MESSAGE_BYTES = 4096
"""The most that a kubelet takes over from the termination log."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a container left behind; `log` is None when the log file is lost."""

    exit_code: int
    message: str = ""
    log: bytes | None = b""
    reason: str = ""
    """As the runtime says it; empty: Completed or Error by the exit code."""
    pod_reason: str = ""
    """Why the kubelet itself ended the pod: Evicted, DeadlineExceeded."""
    disruption: str = ""
    """Reason of the condition DisruptionTarget, which tells a Job that its pod is not to blame."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to go wrong."""

    about: str
    change: Callable[[Ended, str], Ended] = lambda ended, argument: ended
    runs: bool = True
    """Whether the agent's program is run at all."""
    ends: bool = True
    held: bool = False
    """Whether the agent measures once the node has this fault no more, and ends well then."""
    waiting: str = ""
    """Why the container does not even start (ImagePullBackOff)."""
    agent_options: Callable[[str], tuple[str, ...]] = lambda argument: ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What one agent on one node will go through."""

    seconds: float
    scale: str = "1"
    fault: Fault = Fault("nothing goes wrong")
    argument: str = ""

    @property
    def agent_arguments(self) -> tuple[str, ...]:
        """The agent's command line: the replay of this node."""
        replay = ("run", "--backend", "replay", "--replay-scale", self.scale)
        return (*replay, *self.fault.agent_options(self.argument))


def plan_of(annotations: Mapping[str, str], earlier_runs: int, seconds: float) -> Plan:
    """The plan for a node's next agent, from the node's annotations and how many agents it had before.

    ValueError for an unknown fault.
    """
    seconds = float(annotations.get(names.AGENT_SECONDS, seconds))
    scale = annotations.get(names.SCALE, "1")
    name, _, argument = annotations.get(names.FAULT, "").partition(":")
    limit = annotations.get(names.FAULT_RUNS)
    if not name or (limit is not None and earlier_runs >= int(limit)):
        return Plan(seconds, scale)
    if name not in FAULTS:
        raise ValueError(f"annotation {names.FAULT}: unknown fault {name!r}, choose from {', '.join(FAULTS)}")
    return Plan(seconds, scale, FAULTS[name], argument)


Change = Callable[[Ended, str], Ended]


def _left(instead: Ended) -> Change:
    """This is left, whatever the agent did."""
    return lambda ended, argument: instead


def _exit(ended: Ended, argument: str) -> Ended:
    return Ended(int(argument), log=f"precision-agent: leaving with {argument}\n".encode())


def _refuse(ended: Ended, argument: str) -> Ended:
    """The agent ends without a result, and says why in its message."""
    row = exit_named(argument)
    assert row, f"the agent has no exit code for {argument}"
    message = encode_refusal(row.reason, row.sentence).decode()
    return Ended(row.code, message, f"precision-agent: {message}\n".encode())


def _message(message: str) -> Change:
    return lambda ended, argument: replace(ended, message=message)


def _part_of_log(kept: Callable[[list[int]], slice]) -> Change:
    """Of the log these lines are there, by the places of the result's lines; all of it when the agent refused."""

    def change(ended: Ended, argument: str) -> Ended:
        lines = _lines(ended)
        places = _result_lines(lines)
        return replace(ended, log=b"".join(lines[kept(places)])) if places else ended

    return change


def _noisy_log(ended: Ended, argument: str) -> Ended:
    """stderr between the result lines, and a line of 40 KiB before them, which the runtime stores in three pieces."""
    noisy = b"".join(line + b"WARNING: a library says something on stderr\n" for line in _lines(ended))
    return replace(ended, log=b"x" * 40960 + b"\n" + noisy)


def _damaged_log(ended: Ended, argument: str) -> Ended:
    """One character in the middle of the last result line is another one."""
    lines = _lines(ended)
    places = _result_lines(lines)
    if not places:
        return ended
    body = lines[places[-1]]
    middle = (body.rindex(b" ") + len(body)) // 2
    lines[places[-1]] = body[:middle] + (b"B" if body[middle : middle + 1] == b"A" else b"A") + body[middle + 1 :]
    return replace(ended, log=b"".join(lines))


def _bomb(ended: Ended, argument: str) -> Ended:
    """A log line that unpacks to 64 MiB, and a message that vouches for it."""
    packed = gzip.compress(bytes(64 << 20), mtime=0)
    encoded = base64.b64encode(packed)
    parts = [encoded[start : start + PAYLOAD] for start in range(0, len(encoded), PAYLOAD)]
    lines = [b"PPR1 %d/%d %s\n" % (number, len(parts), part) for number, part in enumerate(parts, 1)]
    summary = json.loads(ended.message or "{}")
    summary["detail"] = {"lines": len(parts), "bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    return replace(ended, message=json.dumps(summary, separators=(",", ":")), log=b"".join(lines))


def _result_lines(lines: list[bytes]) -> list[int]:
    """Where the result's lines stand among the log's; nowhere when the agent refused."""
    return [index for index, line in enumerate(lines) if line.startswith(b"PPR1 ")]


def _lines(ended: Ended) -> list[bytes]:
    return (ended.log or b"").splitlines(keepends=True)


_SEGFAULT = Ended(SEGFAULT_EXIT, log=b"Fatal Python error: Segmentation fault\n")
_OOM_KILLED = Ended(SIGKILL_EXIT, reason="OOMKilled")
_LOW_ON_STORAGE = "The node was low on resource: ephemeral-storage."
_EVICTED = Ended(SIGKILL_EXIT, _LOW_ON_STORAGE, pod_reason="Evicted", disruption="TerminationByKubelet")
_without_end = _part_of_log(lambda places: slice(places[-1]))
_without_front = _part_of_log(lambda places: slice(places[0] + 1, None))
_GARBAGE = random.Random(0).randbytes(2000).decode("latin-1").replace("\0", " ")

FAULTS: dict[str, Fault] = {
    "crash": Fault("the agent dies of a segmentation fault", _left(_SEGFAULT), runs=False),
    "exit": Fault("the agent leaves with the exit code that the argument names", _exit, runs=False),
    "refuse": Fault("the agent ends without a result, for the reason that the argument names", _refuse, runs=False),
    "oom": Fault("the kernel kills the agent for its memory", _left(_OOM_KILLED), runs=False),
    "evict": Fault("the kubelet evicts the pod", _left(_EVICTED), runs=False),
    "hang": Fault("the agent never ends by itself", ends=False, runs=False),
    "hold": Fault("the agent runs and waits until its node has no fault any more", held=True),
    "image-pull": Fault("the image can't be pulled", waiting="ImagePullBackOff", runs=False),
    "garbage-message": Fault("the termination message is noise", _message(_GARBAGE)),
    "foreign-message": Fault("the message is somebody else's JSON", _message('{"status":"ok","result":[1,2,3]}')),
    "hostile-message": Fault("the message is JSON of 4,096 levels", _message("[" * MESSAGE_BYTES)),
    "cut-message": Fault(
        "the message stops in the middle",
        lambda ended, _: replace(ended, message=ended.message[: len(ended.message) // 2]),
    ),
    "no-message": Fault("the message is empty", _message("")),
    "no-log": Fault("the log is lost", lambda ended, argument: replace(ended, log=None)),
    "log-without-end": Fault("the log stops before the last result line", _without_end),
    "log-without-front": Fault("rotation took the first result line", _without_front),
    "noisy-log": Fault("stderr and long lines stand between the result lines", _noisy_log),
    "damaged-log": Fault("one character of a result line is wrong", _damaged_log),
    "bomb": Fault("the result unpacks to 64 MiB of nothing", _bomb),
    "agent": Fault("the replay itself has a fault", agent_options=lambda name: ("--replay-fault", name)),
}
