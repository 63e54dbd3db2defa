"""Why a node is measured again, and how its run stands."""

from __future__ import annotations

from precision_operator.core.reasons.row import POLL_SECONDS, Reason

ROWS = (
    Reason(
        "FirstRun",
        "due",
        "it has not been measured for this profile",
        "It is measured when its turn comes.",
    ),
    Reason(
        "RerunNode",
        "due",
        "a rerun of this node was requested",
        "It is measured when its turn comes.",
    ),
    Reason(
        "Rerun",
        "due",
        "a rerun of the profile was requested",
        "It is measured when its turn comes.",
    ),
    Reason(
        "DriverChange",
        "due",
        "its GPU driver changed from {before} to {after}",
        "It is measured when its turn comes.",
    ),
    Reason(
        "HardwareChange",
        "due",
        "its GPUs changed from {before} to {after}",
        "It is measured when its turn comes.",
    ),
    Reason(
        "AgentChange",
        "due",
        "the agent image changed",
        "It is measured when its turn comes.",
    ),
    Reason(
        "SpecChange",
        "due",
        "what the profile measures changed",
        "It is measured when its turn comes.",
    ),
    Reason(
        "Scheduled",
        "due",
        "the schedule started a run at {tick}",
        "It is measured when its turn comes.",
    ),
    Reason(
        "TooOld",
        "due",
        "its result is older than spec.schedule.maxAge ({limit})",
        "It is measured when its turn comes.",
    ),
    Reason(
        "StoppedByAdmin",
        "queued",
        "the cluster's administrator {does}: {words} (set in {origin})",
        "It continues automatically when that is lifted: ask the operator's administrator.",
        gave_way=True,
    ),
    Reason("Suspended", "queued", "the profile is suspended", "Set spec.suspend to false to continue."),
    Reason(
        "BackingOff",
        "queued",
        "the last attempt ended with {why}",
        "The next one starts automatically at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "CheckingIdle",
        "queued",
        "the operator is checking whether its GPUs are idle",
        "It starts automatically if they are.",
        POLL_SECONDS,
        tentative=True,
    ),
    Reason(
        "ProfileNotAccepted",
        "waiting",
        "the profile can't be measured as it is: {why}",
        "It continues automatically when the profile's condition Accepted is True.",
        POLL_SECONDS,
    ),
    Reason(
        "AgentStarting",
        "running",
        "attempt {attempt} is starting: {why}",
        "Follow it with kubectl get jobs,pods.",
        POLL_SECONDS,
        tentative=True,
    ),
    Reason(
        "AgentUnschedulable",
        "running",
        "the pod of attempt {attempt} can't be scheduled: {why}",
        "Free what the scheduler's message names. After spec.idle.pendingTimeoutSeconds the operator deletes the Job "
        "and measures other nodes first.",
        POLL_SECONDS,
        stuck=True,
    ),
    Reason(
        "PullingImage",
        "running",
        "node {node} has been pulling the image of attempt {attempt}, or creating its container, since {since}",
        "No action needed: it does not count as a failure. The operator deletes the Job at {until}; if pulls take "
        "longer, raise spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
        POLL_SECONDS,
        stuck=True,
    ),
    Reason(
        "ImagePullFailing",
        "running",
        "node {node} can't pull the image of attempt {attempt}: {why}",
        "Check spec.agent.image and spec.agent.imagePullSecrets, or agent.image and agent.imagePullSecrets of the "
        "chart, and that the node reaches the registry. The operator deletes the Job at {until}.",
        POLL_SECONDS,
        stuck=True,
    ),
    Reason(
        "AgentUnreachable",
        "running",
        "node {node} is unreachable while attempt {attempt} runs on it: {why}",
        "It continues automatically if the node comes back; otherwise the attempt is given up {until}. See "
        "kubectl describe node {node}.",
        POLL_SECONDS,
        stuck=True,
    ),
    Reason("AgentRunning", "running", "attempt {attempt} is running", "Follow it with kubectl logs job/{job}."),
    Reason("Collecting", "running", "attempt {attempt} has ended", "Its result is being read."),
    Reason("Measured", "succeeded", "measured in attempt {attempt}", "See kubectl precision report {node}."),
)
