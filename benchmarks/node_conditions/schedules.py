"""Faults in a row, and the guards that can be taken out."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from benchmarks.node_conditions.faults import EVENTS, FAULTS
from benchmarks.node_conditions.fleet import DAY, Fleet, Truth
from benchmarks.node_conditions.reader import wrong
from benchmarks.node_conditions.record import subject_of
from benchmarks.node_conditions.server import Server
from precision_operator.core.attempts import node_state
from precision_operator.core.observe.node_gate import GatedProfile, NodeVerdict
from precision_operator.core.results import acceptance, node_condition
from precision_operator.shell.acting.node_conditions import Collected, NodeConditions
from precision_operator.shell.acting.starts import Starts


class AtOnce(ThreadPoolExecutor):
    """Work for other threads, done where it is asked for: what befalls meanwhile is the same in every process."""

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


async def step(fleet: Fleet) -> str:
    """One thing happens; its name."""
    name, fault = fleet.dice.choice(fleet.names), fleet.dice.choice(EVENTS)
    await FAULTS[fault][0](fleet, name)
    await fleet.settle(fleet.dice.randint(1, 2))
    if fleet.stale:
        fleet.stale = False
        await fleet.settle(1)
    return fault


async def schedule(seed: int, steps: int = 25) -> list[str]:
    """What the reader finds in one schedule, and which good nodes are not open at its end."""
    fleet, events, errors, loop = Fleet(seed), list[str](), list[str](), asyncio.get_running_loop()
    loop.set_default_executor(AtOnce())
    loop.time = lambda: fleet.now().timestamp()  # type: ignore[method-assign]
    for _ in range(2 * (seed % 2)):  # a fleet in service, or a new one
        await fleet.settle()
        await fleet.end_agents()
    for _ in range(steps):
        events.append(await step(fleet))
        healthy = fleet.server.guarded and not fleet.stale and not fleet.server.failures and not fleet.server.kill_in
        for name, row in fleet.conditions().items() if healthy else ():
            subject = subject_of(fleet.node(name))
            tail = f"driver {subject.driver}, {subject.gpus} GPUs", subject.ending
            if row.get("status") == "True" and not all(part in row["message"] for part in tail):
                errors.append(f"{name}: a True of another boot or node stands after {events[-1]}")
    errors += wrong(fleet.record)
    await fleet.heal()
    errors += [it for it in wrong(fleet.record) if it not in errors]
    rows = fleet.conditions()
    good = {name for name in fleet.names if fleet.truths[name] == Truth()}
    mild = {name for name in fleet.names if fleet.truths[name].gpu_off == -5}
    is_open = {name for name, row in rows.items() if row.get("status") == "True"}
    drifted = {
        name for name, row in rows.items() if "ReferenceDrifted" in (row.get("reason"), row.get("message", "")[:16])
    }
    if len(good) < 2 / 3 * len(rows):  # the guard on the reference speaks then: it passes nobody, and fails nobody
        good, is_open = good - drifted, is_open - drifted
    if len(good - is_open) > 0.05 * len(good):
        errors.append(f"good nodes are not open at the end: {[(name, rows[name]) for name in good - is_open]}")
    held = {name for name in is_open if rows[name]["reason"] == "FailHeld"}
    if held and not any(it.closes and fleet.now() - it.at < DAY for it in fleet.record.written):
        errors.append(f"{sorted(held)} are held, and none was closed for a day")
    doubtful = {name for name in set(rows) - good - mild - drifted if rows[name].get("status") == "Unknown"}
    errors += [f"{name} is bad and Unknown: {rows[name]}" for name in doubtful]
    return [*errors, *(f"{name} is bad and open: {rows[name]}" for name in is_open - good - held - mild)]


async def _guarded(*_: Any) -> bool:
    return True


async def _as_reported(self: NodeConditions, report: Any, terms: Any, facts: Any) -> None:
    """Evidence from what the report says."""
    verdict, key = report.status.acceptance if report.status else None, (report.namespace, report.profile)
    if verdict is not None and verdict.verdict and verdict.subject:
        evidence = node_condition.Evidence("/".join(key), verdict, datetime.now(UTC))
        self._collected[*key, report.node_uid] = Collected(report.uid, report.status, "", None, evidence)


GUARDS: dict[str, tuple[Any, str, Any]] = {
    "evidence is of the present subject": (node_condition, "change", lambda *_: ""),
    "a changed subject is unknown": (node_condition, "changed_subject", lambda *_: ""),
    "a second run an hour later": (node_condition, "CONFIRM_AFTER", -DAY),
    "at most a tenth in a day": (node_condition, "MOST_CLOSED", 1.0),
    "closings are remembered": (NodeVerdict, "closed", None),
    "closings are kept in reports": (NodeConditions, "_keep_closings", lambda *_: iter(())),
    "the canary": (NodeConditions, "_is_guarded", _guarded),
    "what was collected alone": (NodeConditions, "judge", _as_reported),
    "what the list admits": (GatedProfile, "lacks", lambda *_: ""),
    "a measured result": (acceptance, "provenance_of", lambda *_: "measured"),
    "a waiting node is measured": (node_state, "run_to_prove", lambda *_: ""),
    "a Fail is tried again": (NodeVerdict, "failing_since", None),
    "a Job of its own": (Starts, "has_created", lambda *_: True),
    "the Node that was seen": (Server, "preconditions", False),
    "a profile that is gone": (NodeConditions, "_with_missing", lambda _, evidence, *__: evidence),
}
"""Each that can be taken out: where it is, and what stands there then."""
