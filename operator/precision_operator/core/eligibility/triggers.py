"""Why a node is measured (again): small checks over what its newest attempt was begun for and what is so now.

A run's identity follows from its basis: an attempt is of the current run exactly when nothing on the basis has changed.
Old results stay until new ones stand; they are marked stale with the reason found here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial

from precision_api.exchange.request import digest
from precision_api.kinds.profile import Schedule
from precision_api.kinds.report import ReportAcceptance, ReportAttempt
from precision_operator.core.eligibility.request import ResolvedProfile
from precision_operator.core.eligibility.schedule import last_tick, next_tick, tick_text
from precision_operator.core.observe.clock import duration, parse_time
from precision_operator.core.observe.nodes import NodeFacts, same_driver
from precision_operator.core.observe.observed import AcceptedProfile, ReportView
from precision_operator.core.reasons import Facts, Said, said


@dataclass
class RunInputs:
    """One node of one profile: what it was last measured for, and what it would be measured for now."""

    profile: AcceptedProfile
    facts: NodeFacts
    now: datetime
    attempt: ReportAttempt | None
    result_at: datetime | None
    """When the newest good result came in."""
    basis: Mapping[str, str]
    """What a run that begins now is begun for."""


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The run that the node is, or should be, in."""

    run: str
    basis: Mapping[str, str]
    attempt: ReportAttempt | None
    """The newest attempt of this run."""
    begins: Said | None = None
    """Why it begins anew; None: it has begun."""

    @property
    def due(self) -> str | None:
        """The reason why it begins anew."""
        return self.begins.reason if self.begins is not None else None


def run_inputs(
    asked: ResolvedProfile, facts: NodeFacts, report: ReportView | None, now: datetime, proof: str = ""
) -> RunInputs:
    """All that bears on whether the node is due. `proof`: which run its condition waits for."""
    profile = asked.profile
    status = report.status if report is not None else None
    basis = {
        "spec": asked.run,
        "agent": asked.image_digest,
        "driver": facts.driver or "",
        "hardware": f"{facts.gpu}/{facts.gpus}/{facts.memory_mib or ''}",
        "schedule": "" if profile.spec.suspend else _tick(profile.spec.schedule, profile.uid, profile.created, now),
        "rerun": _mark(profile.rerun),
        "rerunNode": _mark(report.rerun if report is not None else ""),
    }
    verdict = status.acceptance if status is not None and profile.spec.acceptance is not None else None
    if mark := f"{_open(verdict, facts) if verdict is not None else ''} {proof}".strip():
        basis["verdict"] = mark
    done = status.run.finished_at if status is not None and status.run is not None else None
    return RunInputs(
        profile=profile,
        facts=facts,
        now=now,
        attempt=status.attempt if status is not None else None,
        result_at=parse_time(done) if done else None,
        basis=basis,
    )


def current_run(node: RunInputs) -> CurrentRun:
    """The node's current run: the newest attempt's, unless a check finds it out of date."""
    if node.attempt is None:
        return _first_run(tuple(node.basis.items()))
    for code, check in CHECKS:
        changed = check(node)
        if changed is not None:
            basis = dict(node.basis)
            if code == "TooOld" and node.result_at is not None:
                basis["age"] = tick_text(node.result_at)
            identity = _identity(tuple(sorted(basis.items())), node.attempt.run)
            return CurrentRun(identity, basis, None, Said(code, changed))
    return CurrentRun(node.attempt.run, node.attempt.basis, node.attempt)


@lru_cache(maxsize=4096)
def _first_run(basis: tuple[tuple[str, str], ...]) -> CurrentRun:
    return CurrentRun(_identity(tuple(sorted(basis))), dict(basis), None, said("FirstRun"))


@lru_cache(maxsize=4096)
def _identity(basis: tuple[tuple[str, str], ...], before: str = "") -> str:
    """Of a run that is begun for `basis` after the run `before`: after a rollback a basis comes again."""
    return digest(dict(basis) | ({"before": before} if before else {}), 10)


def _mark(annotation: str) -> str:
    return digest(annotation, 10) if annotation else ""


@lru_cache(maxsize=256)
def _tick(schedule: Schedule, uid: str, created: datetime, now: datetime) -> str:
    tick = last_tick(schedule, uid, now)
    return tick_text(tick) if tick is not None and tick > created else ""


def _open(verdict: ReportAcceptance, facts: NodeFacts) -> str:
    """Which run is to end the doubt, or prove the present boot; empty where none is."""
    if verdict.again and verdict.runs is not None:
        return f"after {verdict.runs.run}"
    before = verdict.subject.boot_id if verdict.subject is not None else verdict.unhealthy_boot_id
    return f"boot {facts.boot}" if before and facts.boot not in ("", before) else ""


def _asked_anew(key: str, node: RunInputs) -> Facts | None:
    """Where a rerun is asked for that the newest attempt has not honoured."""
    before = node.attempt.basis.get(key, "") if node.attempt is not None else ""
    return {} if node.basis.get(key) and not before.endswith(node.basis[key]) else None


def _changed(cause: str, key: str, node: RunInputs) -> Facts | None:
    """Where the profile measures again for this cause, and a part of the basis is known then and now, and differs."""
    before, after = node.attempt.basis.get(key) if node.attempt is not None else None, node.basis[key]
    is_other = bool(before) and bool(after) and before != after
    return {"before": before, "after": after} if is_other and cause in node.profile.spec.rerun_on else None


def driver_change(node: RunInputs) -> Facts | None:
    changed = _changed("DriverChange", "driver", node)
    return None if changed is None or same_driver(str(changed["before"]), str(changed["after"])) else changed


def hardware_change(node: RunInputs) -> Facts | None:
    return None if _waits_for_gpus(node.facts, node.attempt) else _other_hardware(node)


def fewer_gpus(node: RunInputs) -> Facts | None:
    """The same on a node that does not offer all of its GPUs; it begins no run (`waits_for_gpus`), so it comes last."""
    return _other_hardware(node) if _waits_for_gpus(node.facts, node.attempt) else None


def _waits_for_gpus(facts: NodeFacts, attempt: ReportAttempt | None) -> bool:
    """Whether some of the node's GPUs are not offered now (unhealthy or tainted ones), and the newest attempt gave a
    result, which may hold again when they are."""
    return 0 < facts.gpus < facts.all_gpus and attempt is not None and attempt.outcome == "succeeded"


def waits_for_gpus(facts: NodeFacts, run: CurrentRun, attempt: ReportAttempt | None) -> Facts | None:
    """Why nothing but missing GPUs begins no run: they come back as a rule, and the old result then holds as it is.

    docs/development/decisions/0039-an-ill-gpu-begins-no-run.md
    """
    if run.due != "HardwareChange" or not _waits_for_gpus(facts, attempt):
        return None
    return {"gpus": facts.gpus, "all": facts.all_gpus, "node": facts.name}


def _other_hardware(node: RunInputs) -> Facts | None:
    return _changed("HardwareChange", "hardware", node) if node.facts.gpus else None


def scheduled(node: RunInputs) -> Facts | None:
    """A tick that is later than the one that the newest attempt was begun for; never an earlier one."""
    before = node.attempt.basis.get("schedule", "") if node.attempt is not None else ""
    tick = node.basis["schedule"]
    return {"tick": tick} if tick > before else None


def too_old(node: RunInputs) -> Facts | None:
    limit = node.profile.spec.schedule.max_age
    if limit is None or node.result_at is None or node.now - node.result_at <= duration(limit):
        return None
    if node.attempt is not None and node.attempt.basis.get("age") == tick_text(node.result_at):
        return None
    return {"limit": limit}


CHECKS: tuple[tuple[str, Callable[[RunInputs], Facts | None]], ...] = (
    ("RerunNode", partial(_asked_anew, "rerunNode")),
    ("Rerun", partial(_asked_anew, "rerun")),
    ("DriverChange", driver_change),
    ("HardwareChange", hardware_change),
    ("AgentChange", partial(_changed, "AgentChange", "agent")),
    ("SpecChange", partial(_changed, "SpecChange", "spec")),
    ("Scheduled", scheduled),
    ("TooOld", too_old),
    ("VerdictOpen", partial(_asked_anew, "verdict")),
    ("HardwareChange", fewer_gpus),
)


def not_due_yet(profile: AcceptedProfile, run: CurrentRun, now: datetime) -> Facts | None:
    """Why a node that was never measured waits for the schedule; None when it may begin."""
    if run.due != "FirstRun" or profile.spec.schedule.cron is None or run.basis.get("schedule") or profile.spec.suspend:
        return None
    if run.basis.get("rerun") or run.basis.get("rerunNode"):
        return None
    return {"at": tick_text(next_tick(profile.spec.schedule, profile.uid, now))}
