"""`python -m tests.rehearsal.calls CALLS RESULT`: did the profiler begin after the last timed window, and see kernels?

CALLS is what a run with `--calls CALLS` wrote: the backend's calls in each process, and the profiler's sessions, with
when they began and ended. With `--no-kernels` the profiler's traces hold none: then each profile of RESULT must be a
failure that says so.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CALLS, NO_KERNELS = "REHEARSAL_CALLS", "REHEARSAL_NO_KERNELS"
"""Environment of a run: the file of its calls, and whether traces lose their kernels."""
TIMED = frozenset({"measure", "power_window", "second_depth", "own_gemm_calls", "plain"})
"""The backend's calls that are timed windows."""
PROFILER = "profiler"
Call = Mapping[str, Any]


def noted(what: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, with a line in the file of calls where the environment names one."""

    def noting(*arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return work(*arguments, **named)
        finally:
            line = json.dumps({"process": os.getpid(), "call": what, "began": began, "ended": time.monotonic()})
            with open(os.environ[CALLS], "a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    return noting if CALLS in os.environ else work


def backend_notes(factory: Any) -> None:
    """Timed windows of each backend that is built in a process of its own."""
    build = factory.build

    def built(opening: Any) -> Any:
        backend = build(opening)
        for name in TIMED:
            setattr(backend, name, noted(name, getattr(backend, name)))
        return backend

    factory.build = built


def profiler_notes(profiler: Any) -> None:
    """Sessions of the profiler; their traces lose the kernels where that is asked."""
    profiled = noted(PROFILER, profiler.profiled)

    def without_kernels(*arguments: Any, **named: Any) -> Mapping[str, Any]:
        trace = profiled(*arguments, **named)
        return {**trace, "traceEvents": [event for event in trace["traceEvents"] if event.get("cat") != "kernel"]}

    profiler.profiled = without_kernels if os.environ.get(NO_KERNELS) else profiled


def wrong_order(calls: Sequence[Call]) -> list[str]:
    """What is not as it must be in the processes that time: each profiles, and only after its last timed window."""
    timing = {call["process"] for call in calls if call["call"] in TIMED}
    told = [] if timing else ["nothing was timed"]
    for process in sorted(timing):
        mine = [call for call in calls if call["process"] == process]
        last = max(mine, key=lambda call: call["ended"] if call["call"] in TIMED else 0.0)
        early = [call for call in mine if call["call"] == PROFILER and call["began"] < last["ended"]]
        if not any(call["call"] == PROFILER for call in mine):
            told.append(f"process {process}: nothing was profiled")
        if early:
            told.append(f"process {process}: {len(early)} profiles began before the last {last['call']} ended")
    return told


def wrong_profiles(result: Mapping[str, Any], no_kernels: bool) -> list[str]:
    """What is not as it must be of the result's profiles: all good ones, or all failed for want of kernels."""
    told = []
    for row in result["recipes"]:
        for one in row.get("kernel_profiles", ()):
            reason = (one.get("failure") or {}).get("reason", "")
            if reason != ("no_kernels" if no_kernels else ""):
                told.append(f"{row['recipe']}, {one['load']}: {reason or 'profiled without kernels'}")
    seen = [one for row in result["recipes"] for one in row.get("kernel_profiles", ())]
    return told if seen else [*told, "the result has no profile"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal.calls", description=__doc__)
    parser.add_argument("calls", type=Path, metavar="CALLS")
    parser.add_argument("result", type=Path, metavar="RESULT")
    parser.add_argument("--no-kernels", action="store_true", help="the run was made with --no-kernels")
    asked = parser.parse_args(arguments)
    calls = [json.loads(line) for line in asked.calls.read_text(encoding="utf-8").splitlines()]
    result = json.loads(asked.result.read_text(encoding="utf-8"))
    told = [*wrong_order(calls), *wrong_profiles(result, asked.no_kernels)]
    timed = sum(call["call"] in TIMED for call in calls)
    print("\n".join(told) or f"{timed} timed windows, then {sum(c['call'] == PROFILER for c in calls)} profiles")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
