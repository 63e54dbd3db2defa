"""Every reason that a user can meet - why a node is skipped, waits, is queued, has failed - as one table.

A reason is one CamelCase word (for conditions, events, reports and `kubectl get`), a sentence on what is so, and what
to do next. Sentences take facts from labels, pods and logs, which others write: facts are shown on one line, cut short.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal[
    "unmatched",
    "eligible",
    "skipped",
    "waiting",
    "queued",
    "running",
    "succeeded",
    "partial",
    "slow",
    "failed",
    "due",
    "profile",
]
"""skipped: can't be measured as it is; waiting: will be, by itself, when something passes; queued: its turn comes;
partial: measured, but the full result is lost and the summary stands alone; slow: measured, and too far below its like;
profile: said of the profile as a whole."""

_FIELD = re.compile(r"[a-z]\w*\.\w")
"""A field's path, which keeps its letters where a sentence begins with it."""
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_FACT_LENGTH = 300
POLL_SECONDS = 5.0
"""How soon to look again when something waits for what no watch shows (a busy node, a missing ConfigMap)."""


@dataclass(frozen=True)
class Reason:
    """One row: `template` and `next_step` are format strings over the same facts."""

    code: str
    kind: Kind
    template: str
    next_step: str
    poll_seconds: float | None = None
    """How soon to look again at what has this reason, where no watch shows its end."""


_OF_ITS_LIKE = (
    "it gives {relative} of the median of {count} nodes like it (pool {pool}, same GPUs, power limit, software, driver "
    "and workload; {recipe}, GPUs x slowest GPU), and below {limit} is slow"
)
_AGAIN = "kubectl precision rerun {node} -n {namespace} --profile {profile}"

_ROWS = (
    # Which nodes: decided from the Node object alone.
    Reason("NotMatched", "unmatched", "{why}", "Widen spec.target if this node should be measured."),
    Reason("Eligible", "eligible", "{gpus} whole {product} GPUs", "It is measured when its turn comes."),
    Reason(
        "ExcludedTaint",
        "skipped",
        "the node has the taint {taint}, which spec.target.excludeTaints names",
        "Take the entry out of excludeTaints to measure it.",
    ),
    Reason(
        "MIGEnabled",
        "skipped",
        "MIG is on: {why}",
        "Only whole GPUs are measured: label the node nvidia.com/mig.config=all-disabled, or leave it out of "
        "spec.target.",
    ),
    Reason(
        "GPUsSharedRenamed",
        "skipped",
        "its GPUs are shared under another name ({resource}), so no whole nvidia.com/gpu can be asked for",
        "End time-slicing or MPS on this node (device plugin config), or leave it out of spec.target.",
    ),
    Reason(
        "GPUsShared",
        "skipped",
        "its GPUs are shared between pods: {why}",
        "End time-slicing, MPS or vGPU on this node (device plugin config), or leave it out of spec.target.",
    ),
    Reason(
        "UnsupportedProduct",
        "skipped",
        "its GPU is {name}, which is none of {supported}",
        "Nothing to do, or leave such nodes out with spec.target.products.",
    ),
    Reason(
        "DRAClaimsNotSupported",
        "skipped",
        "allocatable nvidia.com/gpu is 0 although {why}: its GPUs are handed out by resource claims (DRA) only, or "
        "all of them are unhealthy, or the device plugin is down",
        "DRA claims are not supported yet. If the node should offer nvidia.com/gpu, look at the device plugin's pod on "
        "it; the node is measured once its GPUs are allocatable.",
    ),
    Reason(
        "UnknownProduct",
        "skipped",
        "it has GPUs ({why}), but no label names them",
        "Install GPU feature discovery (part of the NVIDIA GPU Operator) or label the node nvidia.com/gpu.product, "
        "for example NVIDIA-GB300.",
    ),
    Reason(
        "NoGPU",
        "skipped",
        "nothing shows an NVIDIA GPU on it: no nvidia.com/gpu resource and no GPU label",
        "If it has GPUs, install the NVIDIA GPU Operator; else narrow spec.target.",
    ),
    Reason(
        "UntoleratedTaint",
        "skipped",
        "it has the taint {taint}, which keeps the agent away",
        "If its owner agrees, add to spec.agent.tolerations: {toleration}.",
    ),
    Reason(
        "MIGReconfiguring",
        "waiting",
        "MIG is being switched off: {why}",
        "It is measured when the MIG manager is done; if that takes long, look at its pod on the node.",
    ),
    Reason(
        "NodeDeleting", "waiting", "the node is going away: {why}", "Nothing to do: no measurement starts on it now."
    ),
    Reason(
        "NotReady",
        "waiting",
        "the node is not ready: {why}",
        "It is measured when it is ready; see kubectl describe node {node}.",
    ),
    Reason(
        "NotInService",
        "waiting",
        "the taint {taint} says that the node is not in service yet",
        "It is measured when the taint is gone. Whatever put it there removes it; if that takes long, see "
        "kubectl describe node {node}.",
    ),
    Reason(
        "Cordoned",
        "waiting",
        "the node is cordoned",
        "It is measured after kubectl uncordon {node}, or while it is cordoned by a profile that names it in "
        "spec.target.nodeNames and sets spec.target.cordoned to Include.",
    ),
    Reason(
        "GPUsNotReady",
        "waiting",
        "it should have GPUs ({why}) but offers no nvidia.com/gpu yet",
        "Look at the device plugin's pod on the node. If GPUs are handed out by resource claims (DRA) only, they can't "
        "be measured yet.",
    ),
    # Whose turn: decided from everything that runs.
    Reason(
        "Busy",
        "waiting",
        "pod {pod} holds {gpus} of its GPUs",
        "It is measured when no pod holds its GPUs.",
        POLL_SECONDS,
    ),
    Reason(
        "InsufficientCPU",
        "waiting",
        "the agent requests {wanted} CPUs, and the pods on the node request {requested} of its {allocatable}",
        "It is measured when pods leave it; or lower spec.agent.resources.cpu.",
        POLL_SECONDS,
    ),
    Reason(
        "InsufficientMemory",
        "waiting",
        "the agent requests {wanted} of memory, and the pods on the node request {requested} of its {allocatable}",
        "It is measured when pods leave it; or lower spec.agent.resources.memory.",
        POLL_SECONDS,
    ),
    Reason(
        "MeasuredByAnotherProfile",
        "queued",
        "profile {profile} is measuring it",
        "It is measured when that run is done.",
    ),
    Reason(
        "MaxConcurrentReached",
        "queued",
        "as many agents run as spec.rollout.maxConcurrent allows ({limit})",
        "It is measured when one of them is done; raise spec.rollout.maxConcurrent to go faster.",
    ),
    Reason(
        "TooManyFailures",
        "waiting",
        "{failed} nodes have failed, more than spec.rollout.maxFailures ({limit}) allows: the rollout has stopped",
        "Look at the failed nodes in status.reasons, then raise maxFailures, or kubectl precision rerun the profile.",
    ),
    Reason(
        "CanaryFailed",
        "waiting",
        "of the first nodes {failed} failed, and spec.rollout.canary ({canary}) asks for good ones: no more start",
        "Look at the failed nodes in status.reasons, then kubectl precision rerun NODE, or take canary out.",
    ),
    Reason(
        "CanaryFirst",
        "queued",
        "{succeeded} of {canary} canary nodes are measured",
        "It is measured when they are.",
    ),
    Reason(
        "ImagePullLimitReached",
        "queued",
        "as many nodes pull the agent's image as spec.rollout.maxImagePulls allows ({limit}), and this one does not "
        "list it",
        "It is measured when one of them is done. Raise spec.rollout.maxImagePulls, or pull the image beforehand "
        "(docs/fleet-care.md).",
    ),
    Reason(
        "PoolLimitReached",
        "queued",
        "as many agents run in pool {pool} as spec.rollout.pools allows ({limit})",
        "It is measured when one of them is done.",
    ),
    Reason(
        "TopologyLimitReached",
        "queued",
        "as many agents run where {key} is {group} as spec.rollout.perTopology allows ({limit})",
        "It is measured when one of them is done.",
    ),
    Reason(
        "TopologyKeyMissing",
        "waiting",
        "it has no label {key}, by which spec.rollout.perTopology limits agents",
        "Label the node, or correct the key.",
    ),
    Reason(
        "PowerBudgetReached",
        "queued",
        "running agents may draw {drawn} W and this node {watts} W ({origin}), more than {name} ({budget} W)",
        "It is measured when there is room.",
    ),
    Reason(
        "LimitOfAnotherProfile",
        "queued",
        "profile {profile} limits this place: {detail}",
        "It is measured when there is room; or change the limit in that profile, or delete it.",
    ),
    Reason(
        "PowerBudgetTooSmall",
        "waiting",
        "this node alone may draw {watts} W ({origin}), more than {name} ({budget} W)",
        "Raise the budget, or leave such nodes out of spec.target.",
    ),
    Reason(
        "FleetLimitReached",
        "queued",
        "as many agents of all namespaces run {where} as the operator's limits allow ({limit})",
        "It is measured when one of them is done.",
    ),
    Reason(
        "FleetPowerReached",
        "queued",
        "running agents of all namespaces may draw {drawn} W {where} and this node {watts} W ({origin}), more than the "
        "operator's limits allow ({budget} W)",
        "It is measured when there is room.",
    ),
    Reason(
        "FleetPowerTooSmall",
        "waiting",
        "this node alone may draw {watts} W ({origin}), more than the operator's limits allow {where} ({budget} W)",
        "Ask who administers the operator to raise fleetLimits of its chart, or leave such nodes out of spec.target.",
    ),
    Reason(
        "Ramping",
        "queued",
        "another agent has just started, and spec.rollout.rampSeconds ({seconds}) keeps load from stepping",
        "It may start at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "NotDueYet",
        "waiting",
        "the schedule has not begun a run yet",
        "It is measured from {at} on. kubectl precision rerun begins a run now.",
        POLL_SECONDS,
    ),
    Reason(
        "Quarantined",
        "waiting",
        "{runs} in a row ended without a result on it, the last by {why}",
        "Mend the node, then release it with kubectl precision rerun {node}.",
    ),
    Reason(
        "Retrying",
        "queued",
        "attempt {attempt} failed: {why}",
        "Retry {retry} of {limit} starts by itself at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "WaitsInQueue",
        "queued",
        "Kueue holds its agent in queue {queue}",
        "It starts when Kueue admits it. See kubectl get workloads.",
        POLL_SECONDS,
    ),
    Reason(
        "QueueTimeout",
        "failed",
        "Kueue held its agent for {seconds} s",
        "It is tried again by itself. Look at the queue's quota, or raise spec.idle.queueTimeoutSeconds.",
    ),
    # Why a node is measured again.
    Reason(
        "FirstRun",
        "due",
        "it was never measured for this profile",
        "It is measured when its turn comes.",
    ),
    Reason(
        "RerunNode",
        "due",
        "somebody asked to measure this node again",
        "It is measured when its turn comes.",
    ),
    Reason(
        "Rerun",
        "due",
        "somebody asked to measure the profile again",
        "It is measured when its turn comes.",
    ),
    Reason(
        "DriverChange",
        "due",
        "its GPU driver went from {before} to {after}",
        "It is measured when its turn comes.",
    ),
    Reason(
        "HardwareChange",
        "due",
        "its GPUs went from {before} to {after}",
        "It is measured when its turn comes.",
    ),
    Reason(
        "AgentChange",
        "due",
        "the agent image is another",
        "It is measured when its turn comes.",
    ),
    Reason(
        "SpecChange",
        "due",
        "the profile measures something else now",
        "It is measured when its turn comes.",
    ),
    Reason(
        "Scheduled",
        "due",
        "the schedule began a run at {tick}",
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
        "the cluster's administrator {does}: {words} (said in {origin})",
        "It goes on by itself once that is lifted: ask whoever runs the operator.",
    ),
    Reason("Suspended", "queued", "the profile is suspended", "Set spec.suspend to false to go on."),
    Reason(
        "BackingOff",
        "queued",
        "the last attempt ended with {why}",
        "The next one starts by itself at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "CheckingIdle",
        "queued",
        "whether its GPUs are free is being looked up",
        "It starts by itself if they are.",
        POLL_SECONDS,
    ),
    Reason(
        "ProfileNotAccepted",
        "waiting",
        "the profile can't be measured as it is: {why}",
        "It goes on by itself once the profile's condition Accepted is True.",
        POLL_SECONDS,
    ),
    Reason(
        "AgentStarting",
        "running",
        "attempt {attempt} is starting: {why}",
        "Follow it with kubectl get jobs,pods.",
        POLL_SECONDS,
    ),
    Reason(
        "AgentUnschedulable",
        "running",
        "the pod of attempt {attempt} can't be scheduled: {why}",
        "Make room for it: the message is the scheduler's. The attempt gives its place back after "
        "spec.idle.pendingTimeoutSeconds.",
        POLL_SECONDS,
    ),
    Reason(
        "PullingImage",
        "running",
        "node {node} pulls the image of attempt {attempt} or makes its container, since {since}",
        "Nothing to do: it counts as no failure. Its place is given back at {until}; if pulls take longer, raise "
        "spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
        POLL_SECONDS,
    ),
    Reason(
        "ImagePullFailing",
        "running",
        "node {node} can't pull the image of attempt {attempt}: {why}",
        "Check spec.agent.image and spec.agent.imagePullSecrets, and that the node reaches the registry. The place is "
        "given back at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "AgentUnreachable",
        "running",
        "node {node} does not answer while attempt {attempt} is on it: {why}",
        "It goes on by itself if the node comes back; else its place is given back {until}. See kubectl describe node "
        "{node}.",
        POLL_SECONDS,
    ),
    Reason("AgentRunning", "running", "attempt {attempt} is running", "Follow it with kubectl logs job/{job}."),
    Reason("Collecting", "running", "attempt {attempt} has ended", "Its result is being read."),
    Reason("Measured", "succeeded", "measured in attempt {attempt}", "See kubectl get npr {report} -o yaml."),
    # What the cluster refuses to create. The words are the API server's.
    Reason(
        "QuotaExceeded",
        "waiting",
        "namespace {namespace} has no room for the agent's {stage}: {words}",
        "It goes on by itself when there is room: free some of it, or raise the quota. The node is not at fault.",
        POLL_SECONDS,
    ),
    Reason(
        "InvalidJob",
        "waiting",
        "the API server finds the agent's {stage} invalid: {words}",
        "Correct the field that it names, most often under spec.agent: a changed profile is tried at once.",
        POLL_SECONDS,
    ),
    Reason(
        "DeniedByPolicy",
        "waiting",
        "a policy of the cluster denies the agent's {stage}: {words}",
        "Change the profile as it asks, or have the policy's owner admit agents in namespace {namespace}. It is tried "
        "again by itself within ten minutes, at once after kubectl precision rerun.",
        POLL_SECONDS,
    ),
    Reason(
        "WebhookUnavailable",
        "waiting",
        "an admission webhook that has to admit the agent's {stage} does not answer: {words}",
        "Mend the webhook, or its failurePolicy. It is tried again by itself within two minutes.",
        POLL_SECONDS,
    ),
    Reason(
        "NamespaceTerminating",
        "waiting",
        "namespace {namespace} is being deleted, so that the agent's {stage} can't be created: {words}",
        "Nothing to do; or apply the profile in another namespace.",
        POLL_SECONDS,
    ),
    Reason(
        "PermissionMissing",
        "waiting",
        "the operator may not create the agent's {stage} in namespace {namespace}: {words}",
        "Restore the operator's RoleBinding there: upgrade the chart with the namespace in watchNamespaces. It goes on "
        "by itself within five minutes.",
        POLL_SECONDS,
    ),
    Reason(
        "CreationRefused",
        "waiting",
        "the API server refuses the agent's {stage}: {words}",
        "Change what its words name. It is tried again by itself within ten minutes, at once after kubectl precision "
        "rerun.",
        POLL_SECONDS,
    ),
    Reason(
        "CreationFailed",
        "waiting",
        "the API server could not create the agent's {stage}: {words}",
        "It is tried again by itself within a minute. If that goes on, look at the API server.",
        POLL_SECONDS,
    ),
    Reason(
        "NameTaken",
        "waiting",
        "an older object has the name of the agent's {stage}: {words}",
        "It is replaced when that one is gone. If that goes on, see what holds it (metadata.finalizers).",
        1.0,
    ),
    # What came back: read from the agent's pod.
    Reason(
        "AgentCrashed",
        "failed",
        "the agent ended with exit code {exit_code}",
        "The end of its log stands in its report (status.attempt.log) and in kubectl precision why {node}. If it "
        "repeats on one node only, look at that node's GPUs.",
    ),
    Reason(
        "AgentOutOfMemory",
        "failed",
        "the agent was killed for using more than its {limit} of memory",
        "Raise spec.agent.resources.memory, or choose a smaller workload.",
    ),
    Reason(
        "AgentRefused",
        "failed",
        "the agent could not measure: {name} (exit code {exit_code}): {detail}",
        "Mend what it names on the node, then kubectl precision rerun NODE. The end of its log stands in its report "
        "(status.attempt.log).",
    ),
    Reason(
        "BackendUnavailable",
        "failed",
        "the agent image can't measure: {detail}",
        "Name an image with PyTorch and Transformer Engine, in agent.image of the chart or spec.agent.image of the "
        "profile. The node is not at fault.",
    ),
    Reason(
        "ImagePullFailed",
        "failed",
        "image {image} could not be pulled: {text}",
        "Check spec.agent.image and spec.agent.imagePullSecrets, and that the node reaches the registry.",
    ),
    Reason(
        "PendingTooLong",
        "failed",
        "the agent's pod was not scheduled within {seconds} s: {text}",
        "It is tried again by itself, after other nodes. Check spec.agent.resources and spec.agent.tolerations against "
        "the node.",
    ),
    Reason(
        "StartTooLong",
        "failed",
        "the agent's container did not start within {seconds} s of being scheduled: {text}",
        "kubectl get events shows what its kubelet waited for. If it pulled the image all the time, raise "
        "spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
    ),
    Reason(
        "DeadlineExceeded",
        "failed",
        "the agent was ended after {seconds} s",
        "Measure less: fewer spec.recipes, or spec.benchmarks.preset quick.",
    ),
    Reason(
        "PodNotCreated",
        "failed",
        "the agent's Job has had no pod for {seconds} s, and no event says why",
        "Check that the cluster's controller manager runs: its Job controller creates pods.",
    ),
    Reason(
        "Failed",
        "failed",
        "the last attempt failed",
        "See status.attempt of the node's report.",
    ),
    Reason(
        "PodLost",
        "failed",
        "the agent's pod was deleted before its result was read",
        "Nothing to do: it is tried again.",
    ),
    Reason(
        "NodeLost",
        "failed",
        "node {node} was deleted during the run",
        "Nothing to do: a node that comes back under this name is measured as a new one.",
    ),
    Reason(
        "NodeUnresponsive",
        "failed",
        "node {node} does not answer ({why}), and its agent was given up: {what}",
        "It is tried again when the node is ready, and doesn't count as a failure. See kubectl describe node {node}.",
    ),
    Reason(
        "NodeGone",
        "failed",
        "node {node} is no longer in the cluster",
        "Nothing to do: its report is deleted after spec.retention.deletedNodes.",
    ),
    Reason(
        "Preempted",
        "failed",
        "the agent's pod gave way to one of higher priority: {text}",
        "Nothing to do: it is tried again when the GPUs are free, and this attempt doesn't count.",
    ),
    Reason(
        "Drained",
        "failed",
        "the agent's pod was evicted from a node that is being drained: {text}",
        "Nothing to do: it is tried again when the node takes pods again, and this attempt doesn't count.",
    ),
    Reason(
        "Evicted",
        "failed",
        "the agent's pod was ended by {by}: {text}",
        "It is tried again, and this attempt doesn't count as a failure. If it repeats, look at the node's pressure "
        "conditions and taints, and at what evicts pods.",
    ),
    Reason(
        "Disrupted",
        "failed",
        "the agent's pod was moved away: {text}",
        "Nothing to do: it is tried again, and this attempt doesn't count.",
    ),
    Reason(
        "ResultMissing",
        "failed",
        "the agent ended well but left no result",
        "Check that spec.agent.image is the image of this version. The end of its log stands in its report "
        "(status.attempt.log) and in kubectl precision why {node}.",
    ),
    Reason(
        "ResultDamaged",
        "failed",
        "the agent's termination message is not a valid result: {detail}",
        "Check that spec.agent.image is the image of this version.",
    ),
    Reason(
        "ResultForeign",
        "failed",
        "what the agent left is no answer to this request: {detail}",
        "It is thrown away. Check that spec.agent.image is the image of this version, and that nothing else writes to "
        "the agent's termination log.",
    ),
    Reason(
        "ResultNewer",
        "failed",
        "agent and operator are of different versions: {detail}",
        "Upgrade the operator (and its CRDs) to the agent's version, or set spec.agent.image to the image of the "
        "operator's version.",
    ),
    Reason(
        "DetailNewer",
        "partial",
        "agent and operator are of different versions, and the full result can't be used: {detail}",
        "The summary stands. Upgrade the operator (and its CRDs) to the agent's version, or set spec.agent.image to "
        "the image of the operator's version.",
    ),
    Reason(
        "ResultTruncated",
        "partial",
        "the agent's log does not hold all lines of the full result: {detail}",
        "The summary stands. For the full result raise containerLogMaxSize of the kubelet and measure again.",
    ),
    Reason(
        "ResultDigestMismatch",
        "partial",
        "the full result in the agent's log doesn't have the digest that its summary names",
        "The summary stands. If it repeats, check the log of the agent on this node for foreign writers.",
    ),
    Reason(
        "ResultTooLarge",
        "partial",
        "the full result is too large: {detail}",
        "The summary stands. Measure fewer shapes or recipes in one profile.",
    ),
    Reason(
        "DetailUnreadable",
        "partial",
        "the full result in the agent's log can't be used: {detail}",
        "The summary stands. If it repeats, check that spec.agent.image is the image of this version.",
    ),
    Reason(
        "DetailNotWritten",
        "partial",
        "the ConfigMap with the full result could not be written: {detail}",
        "The summary stands. For the full result make room (quota, policy), then measure again.",
    ),
    Reason(
        "LogUnavailable",
        "partial",
        "the agent's log could not be read: {detail}",
        "The summary stands. Check that the API server reaches the kubelet of the node.",
    ),
    # How a measured node stands against its like: said beside where it stands.
    Reason(
        "Slow",
        "slow",
        _OF_ITS_LIKE,
        f"A synchronous job that gets it runs at its speed. {_AGAIN} shows whether it was an accident; if not, "
        "kubectl cordon {node}, and see the runbook of PrecisionNodeSlow.",
    ),
    Reason(
        "SlowThrottled",
        "slow",
        f"{_OF_ITS_LIKE}; {{cause}} held it back while it was measured",
        f"See to its cooling or its power feed (runbook PrecisionThrottledInProfile), then {_AGAIN}.",
    ),
    Reason(
        "SlowFallback",
        "slow",
        f"{_OF_ITS_LIKE}; on it {{recipes}} silently ran in another precision",
        "Compare Transformer Engine, CUDA and the environment with those of a good node (runbook "
        f"PrecisionSilentFallback), then {_AGAIN}.",
    ),
    # The profile as a whole.
    Reason(
        "PlanFailed",
        "waiting",
        "the operator met an error of its own while it planned: {why}",
        "It tries again by itself; the trace is in its log (kubectl logs, PlanFailed). Please report it.",
    ),
    Reason(
        "ImageNotAllowed",
        "profile",
        "spec.agent.image {image} starts with none of the allowed prefixes ({allowed})",
        "Use an allowed image, or have the cluster's administrator extend the operator's allow-list.",
    ),
    Reason(
        "ImageMissing",
        "profile",
        "no agent image is named",
        "Set spec.agent.image, or have the cluster's administrator set the operator's default.",
    ),
    Reason(
        "ConfigMapMissing",
        "profile",
        "ConfigMap {name}, which spec.workload names, does not exist in namespace {namespace}",
        "Create it, or correct the name.",
    ),
    Reason(
        "ConfigMapKeyMissing",
        "profile",
        "ConfigMap {name} has no key {key}",
        "Add the key, or correct it in spec.workload. Keys that it has: {keys}.",
    ),
    Reason("InvalidSpec", "profile", "the spec can't be read: {detail}", "Correct the field that is named."),
    Reason("InvalidWorkload", "profile", "spec.workload can't be measured: {detail}", "Correct spec.workload."),
    Reason(
        "PriorityClassMissing",
        "profile",
        "PriorityClass {name} does not exist, without which agents could push other pods away",
        "Install the chart again, or create it.",
    ),
    Reason(
        "QueueMissing",
        "profile",
        "there is no Kueue LocalQueue {name} in namespace {namespace}",
        "Create it (kubectl get localqueues says whether Kueue is installed), or correct spec.agent.queueName.",
    ),
    Reason("InvalidSchedule", "profile", "{detail}", "Correct spec.schedule; the profile then goes on by itself."),
    Reason(
        "NoNodesMatch",
        "profile",
        "none of the cluster's {nodes} nodes matches spec.target",
        "Compare spec.target with kubectl get nodes --show-labels.",
    ),
    Reason(
        "NothingEligible",
        "profile",
        "none of the {matched} matched nodes can be measured; most often: {example}",
        "See status.reasons of the profile.",
    ),
    Reason(
        "AllMeasured",
        "profile",
        "all {count} eligible nodes are measured",
        "See kubectl get npr for each node's result.",
    ),
    Reason(
        "SomeFailed",
        "profile",
        "{failed} of {count} eligible nodes failed; most often: {example}",
        "See status.reasons of the profile.",
    ),
    Reason(
        "SomeWaiting",
        "profile",
        "{measured} of {count} eligible nodes are measured, {waiting} wait; most often: {example}",
        "kubectl precision why NODE says what each of them waits for.",
    ),
)

REASONS: Mapping[str, Reason] = {row.code: row for row in _ROWS}


def sentence(code: str, **facts: object) -> str:
    """What is so, and what to do next, in words. KeyError when the code, or a fact that its sentence needs, is missing.

    Facts are shown on one line and cut to 300 characters each.
    """
    return _sentence(code, **{name: str(value) for name, value in facts.items()})


@lru_cache(maxsize=4096)
def _sentence(code: str, **facts: str) -> str:
    """Thousands of queued nodes are told the same few sentences, pass after pass."""
    shown = {name: _one_line(text) for name, text in facts.items()}
    return f"{begun(clause(code, **facts))}. {REASONS[code].next_step.format_map(shown)}"


def clause(code: str, **facts: object) -> str:
    """What is so, without what to do next, as a part of another sentence. Raises as `sentence` does."""
    shown = {name: _one_line(str(value)) for name, value in facts.items()}
    return REASONS[code].template.format_map(shown).removesuffix(".")


def begun(what: str) -> str:
    """The same words as they begin a sentence: with a capital letter, but for a field's path."""
    return what if _FIELD.match(what) else what[:1].upper() + what[1:]


def _one_line(text: str) -> str:
    text = _BLANKS.sub(" ", text).strip()
    return text if len(text) <= _FACT_LENGTH else f"{text[: _FACT_LENGTH - 3]}..."
