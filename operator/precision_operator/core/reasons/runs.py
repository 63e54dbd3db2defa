"""Why a node is measured again, and how its run stands."""

from functools import partial

from precision_operator.core.reasons.row import POLL_SECONDS, Reason, of_kind

queued, running = of_kind("queued"), of_kind("running", POLL_SECONDS)
due = partial(of_kind("due"), next_step="It is measured when its turn comes.")
ROWS = (
    due("FirstRun", "it has not been measured for this profile"),
    due("RerunNode", "a rerun of this node was requested"),
    due("Rerun", "a rerun of the profile was requested"),
    due("DriverChange", "its GPU driver changed from {before} to {after}"),
    due("HardwareChange", "its GPUs changed from {before} to {after}"),
    due("AgentChange", "the agent image changed"),
    due("SpecChange", "what the profile measures changed"),
    due("Scheduled", "the schedule started a run at {tick}"),
    due("TooOld", "its result is older than spec.schedule.maxAge ({limit})"),
    due("VerdictOpen", "the verdict on it needs another run: to end a doubt, or after a restart"),
    queued(
        "StoppedByAdmin",
        "the cluster's administrator {does}: {words} (set in {origin})",
        "It continues automatically when that is lifted: ask the operator's administrator.",
        gave_way=True,
    ),
    queued("Suspended", "the profile is suspended", "Set spec.suspend to false to continue."),
    queued(
        "BackingOff", "the last attempt ended with {why}", "The next one starts automatically at {until}.", POLL_SECONDS
    ),
    queued(
        "CheckingIdle",
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
    running(
        "AgentStarting", "attempt {attempt} is starting: {why}", "Follow it with kubectl get jobs,pods.", tentative=True
    ),
    running(
        "AgentUnschedulable",
        "the pod of attempt {attempt} can't be scheduled: {why}",
        "Free what the scheduler's message names. After spec.idle.pendingTimeoutSeconds the operator deletes the Job "
        "and measures other nodes first.",
        stuck=True,
    ),
    running(
        "PullingImage",
        "node {node} has been pulling the image of attempt {attempt}, or creating its container, since {since}",
        "No action needed: it does not count as a failure. The operator deletes the Job at {until}; if pulls take "
        "longer, raise spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
        stuck=True,
    ),
    running(
        "ImagePullFailing",
        "node {node} can't pull the image of attempt {attempt}: {why}",
        "Check spec.agent.image and spec.agent.imagePullSecrets, or agent.image and agent.imagePullSecrets of the "
        "chart, and that the node reaches the registry. The operator deletes the Job at {until}.",
        stuck=True,
    ),
    running(
        "AgentUnreachable",
        "node {node} is unreachable while attempt {attempt} runs on it: {why}",
        "It continues automatically if the node comes back; otherwise the attempt is given up {until}. See "
        "kubectl describe node {node}.",
        stuck=True,
    ),
    Reason("AgentRunning", "running", "attempt {attempt} is running", "Follow it with kubectl logs job/{job}."),
    Reason("Collecting", "running", "attempt {attempt} has ended", "Its result is being read."),
    Reason("Measured", "succeeded", "measured in attempt {attempt}", "See kubectl precision report {node}."),
)
