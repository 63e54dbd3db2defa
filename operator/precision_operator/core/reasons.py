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

from precision_api.plain_text import one_line

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
partial: measured, but the full result is lost and the summary stands alone; slow: measured, and well below its peers;
profile: said of the profile as a whole."""

_FIELD = re.compile(r"[a-z]\w*\.\w")
"""A field's path, which keeps its letters where a sentence begins with it."""
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


_AGAINST_PEERS = (
    "it reaches {relative} of the median of its {count} peers (pool {pool}, same GPUs, power limit, software, driver "
    "and workload; {recipe}, GPUs x slowest GPU), and less than {limit} is slow"
)
_AGAIN = "kubectl precision rerun {node} -n {namespace} --profile {profile}"

_ROWS = (
    # Which nodes: decided from the Node object alone.
    Reason("NotMatched", "unmatched", "{why}", "Widen spec.target if this node should be measured."),
    Reason("Eligible", "eligible", "{offer}", "It is measured when its turn comes."),
    Reason(
        "ExcludedTaint",
        "skipped",
        "the node has the taint {taint}, which spec.target.excludeTaints lists",
        "Remove the entry from excludeTaints to measure it.",
    ),
    Reason(
        "MIGEnabled",
        "skipped",
        "MIG is enabled: {why}",
        "Only whole GPUs are measured: label the node nvidia.com/mig.config=all-disabled, or exclude it in "
        "spec.target.",
    ),
    Reason(
        "GPUsSharedRenamed",
        "skipped",
        "its GPUs are shared under another resource name ({resource}), so whole nvidia.com/gpu can't be requested",
        "Disable time-slicing or MPS on this node (device plugin config), or exclude it in spec.target.",
    ),
    Reason(
        "GPUsShared",
        "skipped",
        "its GPUs are shared between pods: {why}",
        "Disable time-slicing, MPS or vGPU on this node (device plugin config), or exclude it in spec.target.",
    ),
    Reason(
        "GPUsOfferedTwice",
        "skipped",
        "its GPUs are offered twice: {allocatable} as nvidia.com/gpu by the device plugin and {published} in "
        "ResourceSlices by the DRA driver, so that two pods can get the same GPU",
        "Run one of the two on this node: both charts take a node selector. It is measured once one of them is gone.",
    ),
    Reason(
        "GPUsPassedThrough",
        "skipped",
        "its {gpus} GPUs are passed through to virtual machines (vfio)",
        "Leave such nodes out of spec.target, or bind the GPUs to NVIDIA's driver again.",
    ),
    Reason(
        "UnsupportedProduct",
        "skipped",
        "its GPU is {name}, which is none of {supported}",
        "Nothing to do. To measure it all the same, its peaks unknown, name it in spec.target.products.",
    ),
    Reason(
        "DRAClaimsNotSupported",
        "skipped",
        "allocatable nvidia.com/gpu is 0 although {why}: its GPUs are handed out by resource claims (DRA) only, or "
        "all of them are unhealthy, or the device plugin is down",
        "Resource claims need Kubernetes 1.34 (resource.k8s.io/v1) and the chart's value dra.enabled. If the node "
        "should offer nvidia.com/gpu, look at the device plugin's pod on it; the node is measured once its GPUs are "
        "allocatable.",
    ),
    Reason(
        "UnknownProduct",
        "skipped",
        "it has GPUs ({why}), but no label says which product they are",
        "Install GPU feature discovery (part of the NVIDIA GPU Operator) or label the node nvidia.com/gpu.product, "
        "for example NVIDIA-GB300.",
    ),
    Reason(
        "NoGPU",
        "skipped",
        "nothing shows an NVIDIA GPU on it: no nvidia.com/gpu resource and no GPU label",
        "If it has GPUs, install the NVIDIA GPU Operator; otherwise narrow spec.target.",
    ),
    Reason(
        "UntoleratedTaint",
        "skipped",
        "it has the taint {taint}, which the agent does not tolerate",
        "If the node's owner agrees, add to spec.agent.tolerations: {toleration}.",
    ),
    Reason(
        "MIGReconfiguring",
        "waiting",
        "MIG is being disabled: {why}",
        "It is measured when the MIG manager is done; if that takes long, check the MIG manager's pod on the node.",
    ),
    Reason(
        "NodeDeleting", "waiting", "the node is being removed: {why}", "No action needed: no measurement starts on it."
    ),
    Reason(
        "NotReady",
        "waiting",
        "the node is not ready: {why}",
        "It is measured when it is Ready; see kubectl describe node {node}.",
    ),
    Reason(
        "NotInService",
        "waiting",
        "the taint {taint} marks the node as not yet in service",
        "It is measured when the taint is removed by the component that added it; if that takes long, see "
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
        "it should have GPUs ({why}), but {lack}",
        "It is measured when they are there. If that takes long, look at the pods of the device plugin or of the DRA "
        "driver on it: kubectl get pods -A --field-selector spec.nodeName={node}.",
    ),
    Reason(
        "GPUsTainted",
        "waiting",
        "every GPU that it publishes has a taint that keeps claims away: {gpus}",
        "It is measured when a taint is gone. NVIDIA's DRA driver sets them for XID errors and lost GPUs, and takes "
        "them off when it is started again: look at the GPUs of {node} first.",
    ),
    # Whose turn: decided from everything that runs.
    Reason(
        "DeviceClassMissing",
        "waiting",
        "there is no DeviceClass {name}, which the agents' resource claims name",
        "Install the NVIDIA DRA driver's chart, which makes it, or name another one in the chart's value "
        "dra.deviceClass.",
        POLL_SECONDS,
    ),
    Reason(
        "DeviceClassShares",
        "waiting",
        "DeviceClass {name}, which the agents' resource claims name, shares GPUs between pods (sharing.strategy is "
        "{strategy})",
        "Name a DeviceClass of whole GPUs without sharing in the chart's value dra.deviceClass.",
        POLL_SECONDS,
    ),
    Reason(
        "Busy",
        "waiting",
        "pod {pod} holds {gpus} of its GPUs",
        "It is measured when no pod holds its GPUs.",
        POLL_SECONDS,
    ),
    Reason(
        "KeptForPod",
        "waiting",
        "an agent was ended on it at {since} for pod {pod} (priority {priority}), which waits for GPUs",
        "It is measured when that pod runs or is gone, or after a minute in which the GPUs did not help it.",
    ),
    Reason(
        "InsufficientCPU",
        "waiting",
        "the agent requests {wanted} CPUs, and the pods on the node already request {requested} of {allocatable}",
        "It is measured when enough pods have left; or lower spec.agent.resources.cpu.",
        POLL_SECONDS,
    ),
    Reason(
        "InsufficientMemory",
        "waiting",
        "the agent requests {wanted} of memory, and the pods on the node already request {requested} of {allocatable}",
        "It is measured when enough pods have left; or lower spec.agent.resources.memory.",
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
        "the number of running agents has reached spec.rollout.maxConcurrent ({limit})",
        "It is measured when one of them is done; raise spec.rollout.maxConcurrent to go faster.",
    ),
    Reason(
        "TooManyFailures",
        "waiting",
        "{failed} nodes have failed, more than spec.rollout.maxFailures ({limit}) allows: the rollout has stopped",
        "Check the failed nodes in status.reasons, then raise maxFailures or run kubectl precision rerun.",
    ),
    Reason(
        "CanaryFailed",
        "waiting",
        "{failed} of the first {canary} nodes (spec.rollout.canary) failed: the rollout has stopped",
        "Check the failed nodes in status.reasons, then run kubectl precision rerun NODE, or remove canary.",
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
        "the number of nodes that pull the agent's image has reached spec.rollout.maxImagePulls ({limit}), and this "
        "node does not have the image",
        "It is measured when one of them is done. Raise spec.rollout.maxImagePulls, or pull the image beforehand "
        "(docs/fleet-care.md).",
    ),
    Reason(
        "PoolLimitReached",
        "queued",
        "the number of agents in pool {pool} has reached its limit in spec.rollout.pools ({limit})",
        "It is measured when one of them is done.",
    ),
    Reason(
        "TopologyLimitReached",
        "queued",
        "the number of agents where {key} is {group} has reached spec.rollout.perTopology ({limit})",
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
        "running agents may draw {drawn} W and this node {watts} W ({origin}), together more than {name} ({budget} W)",
        "It is measured when the budget has room.",
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
        "Raise the budget, or exclude such nodes in spec.target.",
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
        "another agent has just started, and spec.rollout.rampSeconds ({seconds}) spaces the starts",
        "It may start at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "NotDueYet",
        "waiting",
        "the schedule has not started a run yet",
        "The first run starts at {at}. To start one now, run kubectl precision rerun.",
        POLL_SECONDS,
    ),
    Reason(
        "Quarantined",
        "waiting",
        "{runs} in a row ended without a result on it, the last with {why}",
        "Fix the node, then release it with kubectl precision rerun {node}.",
    ),
    Reason(
        "Retrying",
        "queued",
        "attempt {attempt} failed: {why}",
        "Retry {retry} of {limit} starts automatically at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "WaitsInQueue",
        "queued",
        "its agent waits in Kueue queue {queue}",
        "It starts when Kueue admits it. See kubectl get workloads.",
        POLL_SECONDS,
    ),
    Reason(
        "QueueTimeout",
        "failed",
        "Kueue did not admit its agent within {seconds} s",
        "It is retried automatically. Check the queue's quota, or raise spec.idle.queueTimeoutSeconds.",
    ),
    # Why a node is measured again.
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
        "It continues automatically when that is lifted: ask whoever runs the operator.",
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
    ),
    Reason(
        "AgentUnschedulable",
        "running",
        "the pod of attempt {attempt} can't be scheduled: {why}",
        "Free what the scheduler's message names. After spec.idle.pendingTimeoutSeconds the operator deletes the Job "
        "and measures other nodes first.",
        POLL_SECONDS,
    ),
    Reason(
        "PullingImage",
        "running",
        "node {node} has been pulling the image of attempt {attempt}, or creating its container, since {since}",
        "No action needed: it does not count as a failure. The operator deletes the Job at {until}; if pulls take "
        "longer, raise spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
        POLL_SECONDS,
    ),
    Reason(
        "ImagePullFailing",
        "running",
        "node {node} can't pull the image of attempt {attempt}: {why}",
        "Check spec.agent.image and spec.agent.imagePullSecrets, and that the node reaches the registry. The "
        "operator deletes the Job at {until}.",
        POLL_SECONDS,
    ),
    Reason(
        "AgentUnreachable",
        "running",
        "node {node} is unreachable while attempt {attempt} runs on it: {why}",
        "It continues automatically if the node comes back; otherwise the attempt is given up {until}. See "
        "kubectl describe node {node}.",
        POLL_SECONDS,
    ),
    Reason("AgentRunning", "running", "attempt {attempt} is running", "Follow it with kubectl logs job/{job}."),
    Reason("Collecting", "running", "attempt {attempt} has ended", "Its result is being read."),
    Reason("Measured", "succeeded", "measured in attempt {attempt}", "See kubectl get npr {report} -o yaml."),
    # What the cluster refuses to create. The words are the API server's.
    Reason(
        "QuotaExceeded",
        "waiting",
        "the quota of namespace {namespace} does not allow the agent's {stage}: {words}",
        "It continues automatically when the quota allows it: free some of it, or raise it. The node is not at fault.",
        POLL_SECONDS,
    ),
    Reason(
        "InvalidJob",
        "waiting",
        "the API server rejects the agent's {stage} as invalid: {words}",
        "Correct the field that it names, most often under spec.agent: a changed profile is retried immediately.",
        POLL_SECONDS,
    ),
    Reason(
        "DeniedByPolicy",
        "waiting",
        "a policy of the cluster denies the agent's {stage}: {words}",
        "Change the profile as the policy asks, or have the policy's owner admit agents in namespace {namespace}. It "
        "is retried automatically within ten minutes, or immediately after kubectl precision rerun.",
        POLL_SECONDS,
    ),
    Reason(
        "WebhookUnavailable",
        "waiting",
        "an admission webhook for the agent's {stage} does not answer: {words}",
        "Fix the webhook, or its failurePolicy. It is retried automatically within two minutes.",
        POLL_SECONDS,
    ),
    Reason(
        "NamespaceTerminating",
        "waiting",
        "namespace {namespace} is being deleted, so the agent's {stage} can't be created: {words}",
        "No action needed; or apply the profile in another namespace.",
        POLL_SECONDS,
    ),
    Reason(
        "PermissionMissing",
        "waiting",
        "the operator may not create the agent's {stage} in namespace {namespace}: {words}",
        "Restore the operator's RoleBinding there: upgrade the chart with the namespace in watchNamespaces. It "
        "continues automatically within five minutes.",
        POLL_SECONDS,
    ),
    Reason(
        "CreationRefused",
        "waiting",
        "the API server refuses the agent's {stage}: {words}",
        "Change what the message names. It is retried automatically within ten minutes, or immediately after "
        "kubectl precision rerun.",
        POLL_SECONDS,
    ),
    Reason(
        "CreationFailed",
        "waiting",
        "the API server could not create the agent's {stage}: {words}",
        "It is retried automatically within a minute. If it repeats, check the API server.",
        POLL_SECONDS,
    ),
    Reason(
        "NameTaken",
        "waiting",
        "an older object has the name of the agent's {stage}: {words}",
        "It is replaced when the older one is gone. If that takes long, check its metadata.finalizers.",
        1.0,
    ),
    # What came back: read from the agent's pod.
    Reason(
        "AgentCrashed",
        "failed",
        "the agent ended with exit code {exit_code}",
        "The last lines of its log are in the report (status.attempt.log) and in kubectl precision why {node}. If it "
        "repeats on one node only, check that node's GPUs.",
    ),
    Reason(
        "AgentOutOfMemory",
        "failed",
        "the agent was killed for using more than its {limit} of memory",
        "Raise spec.agent.resources.memory, or choose a smaller workload.",
    ),
    Reason(
        "AgentOutOfStorage",
        "failed",
        "the agent was ended for using more local storage (/tmp, log) than it may: {text}",
        "Raise spec.agent.resources.ephemeralStorage.",
    ),
    Reason(
        "AgentRefused",
        "failed",
        "the agent could not measure: {name} (exit code {exit_code}): {detail}",
        "Fix the reported cause, then run kubectl precision rerun NODE. The last lines of its log are in the report "
        "(status.attempt.log).",
    ),
    Reason(
        "BackendUnavailable",
        "failed",
        "the agent image can't measure: {detail}",
        "Set an image with PyTorch and Transformer Engine, in agent.image of the chart or spec.agent.image of the "
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
        "It is retried automatically, after other nodes. Check spec.agent.resources and spec.agent.tolerations against "
        "the node.",
    ),
    Reason(
        "ClaimNotCreated",
        "failed",
        "the resource claim for the agent's GPUs was not created within {seconds} s: {text}",
        "It is retried automatically. Claims are created by the cluster's controller manager: check that it runs, and "
        "see kubectl get events.",
    ),
    Reason(
        "ClaimNotAllocated",
        "failed",
        "the scheduler found too few free GPUs for the agent's resource claim within {seconds} s: {text}",
        "It is retried automatically, after other nodes. If nobody holds GPUs of {node}, look for DeviceTaintRules "
        "(kubectl get devicetaintrules), which no ResourceSlice shows.",
    ),
    Reason(
        "ClaimNotPrepared",
        "failed",
        "node {node} did not prepare the agent's GPUs within {seconds} s: {text}",
        "It is retried automatically. Look at the DRA driver's pod on {node}.",
    ),
    Reason(
        "StartTooLong",
        "failed",
        "the agent's container did not start within {seconds} s of being scheduled: {text}",
        "kubectl get events shows what the kubelet waited for. If it was still pulling the image, raise "
        "spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
    ),
    Reason(
        "DeadlineExceeded",
        "failed",
        "the agent was stopped after {seconds} s",
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
        "No action needed: it is retried automatically.",
    ),
    Reason(
        "NodeLost",
        "failed",
        "node {node} was deleted during the run",
        "No action needed: a node that comes back under this name is measured as a new one.",
    ),
    Reason(
        "NodeUnresponsive",
        "failed",
        "node {node} is unreachable ({why}), and its attempt was given up: {what}",
        "It is retried when the node is Ready, and doesn't count as a failure. See kubectl describe node {node}.",
    ),
    Reason(
        "NodeGone",
        "failed",
        "node {node} is no longer in the cluster",
        "No action needed: its report is deleted after spec.retention.deletedNodes.",
    ),
    Reason(
        "Preempted",
        "failed",
        "the agent's pod was preempted by a pod of higher priority: {text}",
        "No action needed: it is retried when the GPUs are free, and this attempt doesn't count.",
    ),
    Reason(
        "Yielded",
        "failed",
        "the operator ended the agent for pod {pod} of priority {priority}, which waited for its GPUs: the scheduler "
        "preempts no pod that has its GPUs by resource claim",
        "No action needed: it is retried when the GPUs are free, and this attempt doesn't count.",
    ),
    Reason(
        "Drained",
        "failed",
        "the agent's pod was evicted from a node that is being drained: {text}",
        "No action needed: it is retried when the node is schedulable again, and this attempt doesn't count.",
    ),
    Reason(
        "PodRejected",
        "failed",
        "the kubelet of node {node} rejected the agent's pod: {text}",
        "It is retried automatically, and this attempt doesn't count as a failure. If it repeats, check the device "
        "plugin there and what the node offers: kubectl describe node {node}.",
    ),
    Reason(
        "ContainerLost",
        "failed",
        "node {node} lost the agent's container, as in a restart of the node: {text}",
        "It is retried automatically, and this attempt doesn't count as a failure. If it repeats, look for what "
        "restarts the node or its container runtime.",
    ),
    Reason(
        "Evicted",
        "failed",
        "the agent's pod was evicted by {by}: {text}",
        "It is retried, and this attempt doesn't count as a failure. If it repeats, check the node's pressure "
        "conditions and taints, and what evicts pods.",
    ),
    Reason(
        "Disrupted",
        "failed",
        "the agent's pod was disrupted: {text}",
        "No action needed: it is retried, and this attempt doesn't count.",
    ),
    Reason(
        "ResultMissing",
        "failed",
        "the agent succeeded but left no result",
        "Check that spec.agent.image is the image of this version. The last lines of its log are in the report "
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
        "the agent's result does not answer this request: {detail}",
        "It is discarded. Check that spec.agent.image is the image of this version, and that nothing else writes to "
        "the agent's termination log.",
    ),
    Reason(
        "ResultNewer",
        "failed",
        "agent and operator have different versions: {detail}",
        "Upgrade the operator (and its CRDs) to the agent's version, or set spec.agent.image to the image of the "
        "operator's version.",
    ),
    Reason(
        "DetailNewer",
        "partial",
        "agent and operator have different versions, and the full result can't be used: {detail}",
        "The summary is used. Upgrade the operator (and its CRDs) to the agent's version, or set spec.agent.image to "
        "the image of the operator's version.",
    ),
    Reason(
        "ResultTruncated",
        "partial",
        "the agent's log is missing lines of the full result: {detail}",
        "The summary is used. For the full result, raise containerLogMaxSize of the kubelet and measure again.",
    ),
    Reason(
        "ResultDigestMismatch",
        "partial",
        "the full result in the agent's log doesn't match the digest in its summary",
        "The summary is used. If it repeats, check what else writes to the agent's log on this node.",
    ),
    Reason(
        "ResultTooLarge",
        "partial",
        "the full result is too large: {detail}",
        "The summary is used. Measure fewer shapes or recipes in one profile.",
    ),
    Reason(
        "DetailUnreadable",
        "partial",
        "the full result in the agent's log can't be used: {detail}",
        "The summary is used. If it repeats, check that spec.agent.image is the image of this version.",
    ),
    Reason(
        "DetailNotWritten",
        "partial",
        "the ConfigMap with the full result could not be written: {detail}",
        "The summary is used. For the full result, make room (quota, policy), then measure again.",
    ),
    Reason(
        "LogUnavailable",
        "partial",
        "the agent's log could not be read: {detail}",
        "The summary is used. Check that the API server reaches the kubelet of the node.",
    ),
    # How a measured node compares with its peers: shown beside its state.
    Reason(
        "Slow",
        "slow",
        _AGAINST_PEERS,
        f"A synchronous job that uses it runs at its speed. {_AGAIN} shows whether it repeats; if so, "
        "kubectl cordon {node}, and see the runbook of PrecisionNodeSlow.",
    ),
    Reason(
        "SlowThrottled",
        "slow",
        f"{_AGAINST_PEERS}; it was throttled by {{cause}} during the measurement",
        f"Check its cooling and power (runbook PrecisionThrottledInProfile), then {_AGAIN}.",
    ),
    Reason(
        "SlowFallback",
        "slow",
        f"{_AGAINST_PEERS}; {{recipes}} silently ran in another precision",
        "Compare Transformer Engine, CUDA and the environment with a good node's (runbook "
        f"PrecisionSilentFallback), then {_AGAIN}.",
    ),
    # The profile as a whole.
    Reason(
        "PlanFailed",
        "waiting",
        "the operator hit an internal error while planning: {why}",
        "It retries automatically; the traceback is in the operator's log (search for PlanFailed). Please report it.",
    ),
    Reason(
        "NamespaceForbidden",
        "profile",
        "the operator may not list all that it needs in namespace {namespace} ({why})",
        "Agents that run go on. Give the operator its Role and RoleBinding there again (helm upgrade does).",
    ),
    Reason(
        "ImageNotAllowed",
        "profile",
        "spec.agent.image {image} matches none of the allowed prefixes ({allowed})",
        "Use an allowed image, or have the cluster's administrator extend the operator's allow-list.",
    ),
    Reason(
        "ImageMissing",
        "profile",
        "no agent image is set",
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
    Reason("InvalidSpec", "profile", "the spec can't be read: {detail}", "Correct the field that the message names."),
    Reason("InvalidWorkload", "profile", "spec.workload can't be measured: {detail}", "Correct spec.workload."),
    Reason(
        "PriorityClassMissing",
        "profile",
        "PriorityClass {name} does not exist; without it agents could preempt other pods",
        "Upgrade or reinstall the chart, or create it.",
    ),
    Reason(
        "QueueMissing",
        "profile",
        "there is no Kueue LocalQueue {name} in namespace {namespace}",
        "Create it (kubectl get localqueues says whether Kueue is installed), or correct spec.agent.queueName.",
    ),
    Reason(
        "InvalidSchedule", "profile", "{detail}", "Correct spec.schedule; the profile then continues automatically."
    ),
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
        "kubectl precision why NODE shows what each of them waits for.",
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
    text = one_line(text)
    return text if len(text) <= _FACT_LENGTH else f"{text[: _FACT_LENGTH - 3]}..."
