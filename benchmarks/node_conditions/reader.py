"""Judges what was written to Nodes, with its own arithmetic and nothing of the operator's.

It knows the samples of the results, boots and processes.
"""

import re
from datetime import timedelta

from benchmarks.node_conditions.record import REFUSED, Measured, Record, Written

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DOUBTS = ("FailUnconfirmed", "FailHeld")
"""Reasons of a True that a second bad run may close."""
FAILED_BY = re.compile(r"; failed by ml/([^;]*?)(?:; | \(node )")


def wrong(record: Record) -> list[str]:
    """What was written to Nodes and should not have been, in words."""
    errors, closings = list[str](), dict[str, Written]()
    for number, write in enumerate(record.written):
        earlier = [other for other in record.written[:number] if other.subject.uid == write.subject.uid]
        faults = _opening_faults(record, write)
        if write.closes:
            closings[write.subject.uid] = write
            faults += _closing_faults(record, write, earlier, closings)
        faults += _text_faults(record, write, earlier)
        faults += _name_faults(record, write)
        status = write.before.get("status", "") or "nothing"
        change = f"{status} to {write.row['status']} ({write.row['reason']})"
        errors += [f"{write.name} at {write.at:%d %H:%M:%S}: {change}: {fault}" for fault in faults]
    return errors


def _opening_faults(record: Record, write: Written) -> list[str]:
    """Why a True should not have been written."""
    if write.row["status"] != "True":
        return []
    stays_open = write.before.get("status") == "True" and write.was_of_subject
    newest_of_process = {run.profile: run for run in record.counting(write.subject, write.at, write.process)}
    faults = []
    if not stays_open and all(record.is_bad(run, write.at) for run in newest_of_process.values()):
        faults.append("nothing sound was measured on this boot by this process")
    failing = _failing(record, write)
    if failing and (write.row["reason"] == "Pass" or not stays_open):
        faults.append(f"its newest runs do not pass: {failing}")
    return faults


def _failing(record: Record, write: Written) -> list[str]:
    """Profiles that fail the node: one bad run is a doubt, two within a day are a Fail, until its profile finds it
    sound."""
    bad_runs = dict[str, list[Measured]]()
    for run in record.counting(write.subject, write.at):
        recent = [other for other in bad_runs.get(run.profile, ()) if run.at - other.at < DAY]
        weight = 2 if run.worst == REFUSED else 1
        bad_runs[run.profile] = [*recent, *[run] * weight] if record.is_bad(run, write.at) else []
    return [f"{profile} {runs[-1].worst:.1f} %" for profile, runs in bad_runs.items() if len(runs) > 1]


def _closing_faults(
    record: Record, write: Written, earlier: list[Written], closings: dict[str, Written]
) -> list[str]:  # fmt: skip
    """Why a node should not have been closed, or not yet; `closings` are the last of each node until now.

    Who deletes a closed node's reports, or its condition, gives its place back; of a Node that is gone also who deletes
    every profile, and with it the reports.
    """
    runs = record.counting(write.subject, write.at, write.process)
    bad_runs, first_doubt = [run for run in runs if record.is_bad(run, write.at)], None
    for other in reversed(earlier):
        if other.row["reason"] not in DOUBTS:
            break
        first_doubt = other.at
    faults = []
    if not bad_runs or first_doubt is None:
        faults.append("no bad run of this process, or it was not said before")
    elif bad_runs[-1].at - first_doubt < HOUR - timedelta(seconds=2):
        faults.append("confirmed too soon")
    profiles, given_back = {of for _, of, _ in record.limits}, set[str]()
    for uid, it in closings.items():
        since = {of for at, of in record.forgotten if it.at <= at <= write.at}
        of_name = uid.rpartition("-")[0]
        others = {other for at, other in record.moved if it.at <= at <= write.at} - {uid}
        is_gone = of_name in {other.rpartition("-")[0] for other in others}
        given_back |= {uid} if it.name in since or (is_gone and since >= profiles) else set()
    if sum(write.at - it.at < DAY for uid, it in closings.items() if uid not in given_back) > max(
        1, record.nodes // 10
    ):
        faults.append("more than a tenth in a day")
    return faults


def _name_faults(record: Record, write: Written) -> list[str]:
    """Why a profile should still be named that failed the node: whatever became of it, it has to pass first."""
    message = write.before.get("message", "")
    if f"(node {write.subject.uid}," not in message:
        return []
    named, now = ({*names.split(", ml/")} for names in (_failed_by(message), _failed_by(write.row["message"])))
    runs = {run.profile: run for run in record.measured if _is_of(run, write)}
    wrongly = [it for it in named - now - {""} if it not in runs or record.is_bad(runs[it], write.at)]
    return [f"{name} failed it, has not passed since, and is no longer named" for name in sorted(wrongly)]


def _is_of(run: Measured, write: Written) -> bool:
    return run.subject.uid == write.subject.uid and run.counts and bool(run.process) and run.at <= write.at


def _failed_by(message: str) -> str:
    said = FAILED_BY.search(message)
    return said[1] if said else ""


def _text_faults(record: Record, write: Written, earlier: list[Written]) -> list[str]:
    """Why an Unknown, an unguarded write or its words are wrong."""
    statuses, faults = (write.before.get("status", ""), write.row["status"]), []
    if statuses == ("True", "Unknown") and write.was_of_subject:
        moves = [at for at, uid in record.moved if uid == write.subject.uid and at <= write.at]
        if not (earlier and any(earlier[-1].at <= at for at in moves)):
            faults.append("nothing of the subject changed")
    if not write.guarded:
        faults.append("no policy guarded this write")
    if not write.row["message"].endswith(write.subject.ending):
        faults.append("it names another node or boot")
    return faults
