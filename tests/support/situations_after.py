"""Situations of nodes whose agent was refused, ended, or left a result."""

import json
from dataclasses import replace
from datetime import timedelta

from precision_api.exchange.wire import LOG_MAX_CHARACTERS, encode
from precision_operator.core.observe.tenants import ANOTHERS_POD
from tests.support import situation_worlds as w
from tests.support.golden import beside
from tests.support.report_objects import recipe_row
from tests.support.result_objects import result
from tests.support.world import NOW, job, nodes, observed, pod, profile, report, tried

REFUSED: dict[str, w.Situation] = {reason: w.refused(*said) for reason, said in beside(__file__).items()}
"""What the cluster refused to create."""

WITHOUT_DETAIL: dict[str, w.Situation] = {
    "ResultTruncated": w.Situation(w.with_log("cut"), {"detail": "1 of 2 lines are missing, first 2"}, "detail"),
    "ResultDigestMismatch": w.Situation(w.with_log("foreign"), {}, "detail"),
    "ResultTooLarge": w.Situation(
        w.with_log(" " * (LOG_MAX_CHARACTERS + 1)),
        {"detail": f"the log has {LOG_MAX_CHARACTERS + 1} characters"},
        "detail",
    ),
    "DetailUnreadable": w.Situation(w.with_log(""), {"detail": "the log holds no line of the result"}, "detail"),
    "DetailNewer": w.Situation(
        w.with_newer_log(),
        {
            "detail": "the full result of agent '0.1.0' has what is not known here: surprise: Extra inputs are not "
            "permitted"
        },
        "detail",
    ),
    "DetailNotWritten": w.Situation(w.without_detail(), {"detail": "exceeded quota: details"}, "detail"),
    "LogUnavailable": w.Situation(w.with_log(None), {"detail": "connection refused"}, "detail"),
}
"""Measured, but the full result is lost."""

ENDS: dict[str, w.Situation] = {
    "AgentCrashed": w.Situation(w.left(exit_code=139), {"exit_code": 139, "node": "n1"}),
    "AgentOutOfMemory": w.Situation(w.left(exit_code=137, reason="OOMKilled"), {"limit": "limit"}),
    "AgentRefused": w.Situation(
        w.left(exit_code=14),
        {
            "name": "GPUBusy",
            "exit_code": 14,
            "detail": "A GPU was in use by somebody else before the measurement began.",
            "node": "n1",
        },
    ),
    "BackendUnavailable": w.Situation(
        w.left(exit_code=15),
        {"detail": "The agent image lacks PyTorch or Transformer Engine, or they can't be loaded."},
    ),
    "ImagePullFailed": w.Situation(
        w.ended(w.STUCK, pod(w.STUCK, waiting_reason="ErrImagePull", waiting_message="no such image", **w.POD_STUCK)),
        {"image": "of the agent", "text": "no such image"},
    ),
    **{code: w.Situation(w.after(case.seen), case.facts, "attempt") for code, case in w.UNCLAIMED.items()},
    "PendingTooLong": w.Situation(w.after(w.UNSCHEDULED.seen), w.UNSCHEDULED.facts, "attempt"),
    "StartTooLong": w.Situation(
        w.ended(w.STUCK, pod(w.STUCK, waiting_reason="ContainerCreating", **w.POD_STUCK)),
        {"seconds": 1800, "text": "ContainerCreating"},
    ),
    "PodNotCreated": w.Situation(w.ended(w.STUCK, None), {"seconds": 300}),
    "DeadlineExceeded": w.Situation(
        w.ended(replace(w.FAILED, failure_reason="DeadlineExceeded", created=NOW - w.LATER), None),
        {"seconds": 1800, "what": "its log is gone"},
    ),
    "AgentHung": w.Situation(
        w.overdue("  160 s  measuring, about 5:11 left"),
        {"seconds": 1860, "silent": 1700, "words": "measuring", "node": "n1"},
    ),
    "Failed": w.Situation(
        observed([profile()], reports=(report(status=tried("failed", failures=3, reason="OfAnotherVersion")),)), {}
    ),
    "ResultMissing": w.Situation(w.left(exit_code=0), {"node": "n1"}),
    "ResultDamaged": w.Situation(
        w.left('{"v": "PPS1"}', 0), {"detail": "the summary is not valid: run: Field required"}
    ),
    "ResultNewer": w.Situation(
        w.left(json.dumps({**json.loads(encode(result()).message), "surprise": 1}), 0),
        {"detail": "the summary of agent '0.1.0' has what is not known here: surprise: Extra inputs are not permitted"},
    ),
    "ResultForeign": w.Situation(
        w.left('{"v": "PPS9"}', 0), {"detail": "the termination message is not of this agent, or of a newer version"}
    ),
    "QueueTimeout": w.Situation(
        w.ended(replace(w.STUCK, suspended=True), None, agent={"queueName": "gpus"}, idle={"queueTimeoutSeconds": 600}),
        {"seconds": 600},
        "attempt",
    ),
    "AgentOutOfStorage": w.Situation(
        w.ended(
            w.FAILED, replace(pod(w.FAILED, "Failed", "", 137), failure="Evicted", failure_message="Usage is 9Gi. ")
        ),
        {"text": "Usage is 9Gi"},
    ),
    "PodRejected": w.Situation(
        w.ended(w.FAILED, pod(w.FAILED, "Failed", failure="UnexpectedAdmissionError", failure_message="no devices. ")),
        {"node": "n1", "text": "no devices"},
        "attempt",
    ),
    "ContainerLost": w.Situation(
        w.left(exit_code=255, reason="Unknown"), {"node": "n1", "text": "exit code 255, reason Unknown"}, "attempt"
    ),
    "PodLost": w.Situation(w.ended(w.FAILED, None), {}, "attempt"),
    "Disrupted": w.Situation(w.left(disruption="a drain"), {"text": "a drain"}, "attempt"),
    "Preempted": w.Situation(
        w.left(disruption="for team/a", disruption_reason="PreemptionByScheduler"), {"text": "for team/a"}, "attempt"
    ),
    "Yielded": w.Situation(
        w.after(
            w.by_claim(
                w.EIGHT_BY_CLAIM,
                jobs=(w.AGENT,),
                pods=(pod(w.AGENT, claims=True, claims_created=True, scheduled_at=NOW, started_at=NOW),),
                waiting_pods=(w.TRAINER,),
            )
        ),
        {"pod": ANOTHERS_POD, "priority": 1000},
        "attempt",
    ),
    "Evicted": w.Situation(
        w.left(disruption="disk is full", disruption_reason="TerminationByKubelet"),
        {"by": "its kubelet", "text": "disk is full"},
        "attempt",
    ),
    "Drained": w.Situation(
        w.left_on(
            nodes("n1", unschedulable=True), disruption="kubectl drain", disruption_reason="EvictionByEvictionAPI"
        ),
        {"text": "kubectl drain"},
        "attempt",
    ),
    "NodeUnresponsive": w.Situation(w.after(w.UNRESPONSIVE.seen), w.UNRESPONSIVE.facts, "attempt"),
    "NodeLost": w.Situation(observed([profile()], nodes("n2"), jobs=(job(),)), {"node": "n1"}),
    "NodeGone": w.Situation(w.gone(), {"node": "n1"}),
}
"""What came back. A disruption shows as the last attempt; the node itself is queued again."""

CHANGES: dict[str, w.Situation] = {
    "FirstRun": w.Situation(observed([profile()]), {}, "due"),
    "RerunNode": w.Situation(
        w.measured_for(
            {"rerunNode": ""}, observed([profile()], reports=(report(rerun="2026-11-21T08:59:00.000001Z"),))
        ),
        {},
        "due",
    ),
    "Rerun": w.Situation(
        w.measured_for({"rerun": ""}, observed([replace(profile(), rerun="2026-11-21T08:59:00.000001Z")])), {}, "due"
    ),
    "DriverChange": w.Situation(
        w.measured_for({"driver": "570.1"}, w.node_with(w.DRIVER)), {"before": "570.1", "after": "580.95.05"}, "due"
    ),
    "HardwareChange": w.Situation(
        w.measured_for({"hardware": "H100/7/81559"}, observed([profile()])),
        {"before": "H100/7/81559", "after": "H100/8/"},
        "due",
    ),
    "AgentChange": w.Situation(w.measured_for({"agent": "another"}, observed([profile()])), {}, "due"),
    "SpecChange": w.Situation(w.measured_for({"spec": "another"}, observed([profile()])), {}, "due"),
    "Scheduled": w.Situation(
        w.measured_for(
            {"schedule": "2026-11-20T09:00:00Z"},
            observed([profile(created=NOW - timedelta(days=2), schedule={"cron": "0 9 * * *"})]),
        ),
        {"tick": w.DUE},
        "due",
    ),
    "TooOld": w.Situation(w.old_result(), {"limit": "1d"}, "due"),
    "VerdictOpen": w.Situation(w.open_verdict(), {}, "due"),
}
"""Why a node is measured (again)."""

SLOW: dict[str, w.Situation] = {
    "Slow": w.beside_like(800),
    "SlowThrottled": w.beside_like(800, throttledShare="0.2", throttleReason="power_brake"),
    "SlowFallback": w.beside_like(800, recipe_row("fp8_current", verdict="fallback")),
    "NoPeers": w.like_nobody(),
}
"""Measured, and well below its peers, or compared with nobody."""
