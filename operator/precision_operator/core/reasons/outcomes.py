"""How an attempt ended: read from the agent's pod, and what was lost of its result."""

from precision_operator.core.reasons.row import of_kind

failed, partly = of_kind("failed"), of_kind("partial")
ROWS = (
    failed(
        "AgentCrashed",
        "the agent ended with exit code {exit_code}",
        "The last lines of its log are in the report (status.attempt.log) and in kubectl precision why {node}. If it "
        "repeats on one node only, check that node's GPUs.",
    ),
    failed(
        "AgentOutOfMemory",
        "the agent was killed for using more than its {limit} of memory",
        "Raise spec.agent.resources.memory, or choose a smaller workload.",
        backoff_factor=5,
    ),
    failed(
        "AgentOutOfStorage",
        "the agent was ended for using more local storage (/tmp, log) than it may: {text}",
        "Raise spec.agent.resources.ephemeralStorage.",
        backoff_factor=5,
    ),
    failed(
        "AgentRefused",
        "the agent could not measure: {name} (exit code {exit_code}): {detail}",
        "Fix the reported cause, then run kubectl precision rerun {node}. The last lines of its log are in the report "
        "(status.attempt.log).",
        backoff_factor=5,
    ),
    failed(
        "BackendUnavailable",
        "the agent image can't measure: {detail}",
        "Set an image with PyTorch and Transformer Engine, in agent.image of the chart or spec.agent.image of the "
        "profile. The node is not at fault.",
        backoff_factor=10,
    ),
    failed(
        "ImagePullFailed",
        "image {image} could not be pulled: {text}",
        "Check spec.agent.image and spec.agent.imagePullSecrets, or agent.image and agent.imagePullSecrets of the "
        "chart, and that the node reaches the registry.",
        backoff_factor=10,
        never_ran=True,
    ),
    failed(
        "PendingTooLong",
        "the agent's pod was not scheduled within {seconds} s: {text}",
        "It is retried automatically, after other nodes. Check spec.agent.resources and spec.agent.tolerations against "
        "the node.",
        never_ran=True,
    ),
    failed(
        "ClaimNotCreated",
        "the resource claim for the agent's GPUs was not created within {seconds} s: {text}",
        "It is retried automatically. Claims are created by the cluster's controller manager: check that it runs, and "
        "see kubectl get events.",
    ),
    failed(
        "ClaimNotAllocated",
        "the scheduler found too few free GPUs for the agent's resource claim within {seconds} s: {text}",
        "It is retried automatically, after other nodes. If no pod holds GPUs of {node}, look for DeviceTaintRules "
        "(kubectl get devicetaintrules), which no ResourceSlice shows.",
    ),
    failed(
        "ClaimNotPrepared",
        "node {node} did not prepare the agent's GPUs within {seconds} s: {text}",
        "It is retried automatically. Look at the DRA driver's pod on {node}.",
    ),
    failed(
        "StartTooLong",
        "the agent's container did not start within {seconds} s of being scheduled: {text}",
        "kubectl get events shows what the kubelet waited for. If it was still pulling the image, raise "
        "spec.idle.startTimeoutSeconds, or pull the image beforehand (docs/fleet-care.md).",
        backoff_factor=2,
        never_ran=True,
    ),
    failed(
        "DeadlineExceeded",
        "the agent did not end itself at its deadline and was stopped after {seconds} s: {what}",
        "Measure less: fewer spec.recipes, or spec.benchmarks.preset quick. If it happens on one node only, check that "
        "node's GPUs: nvidia-smi, and dmesg for Xid errors.",
        backoff_factor=2,
    ),
    failed(
        "AgentHung",
        "the agent hung: it did not end itself at its deadline and was stopped after {seconds} s, {silent} s after its "
        "last progress ({words})",
        "Check the GPUs of {node}: nvidia-smi, and dmesg for Xid errors and hung tasks. Reset the GPUs or restart the "
        "node, then run kubectl precision rerun {node}.",
        backoff_factor=5,
    ),
    failed(
        "PodNotCreated",
        "the agent's Job has had no pod for {seconds} s, and no event says why",
        "Check that the cluster's controller manager runs: its Job controller creates pods.",
        backoff_factor=5,
        never_ran=True,
    ),
    failed("Failed", "the last attempt failed", "See status.attempt of the node's report."),
    failed(
        "PodLost",
        "the agent's pod was deleted before its result was read",
        "No action needed: it is retried automatically.",
    ),
    failed(
        "NodeLost",
        "node {node} was deleted during the run",
        "No action needed: a node that comes back under this name is measured as a new one.",
        lost_with_node=True,
    ),
    failed(
        "NodeUnresponsive",
        "node {node} is unreachable ({why}), and its attempt was given up: {what}",
        "It is retried when the node is Ready, and doesn't count as a failure. See kubectl describe node {node}.",
        lost_with_node=True,
    ),
    failed(
        "NodeGone",
        "node {node} is no longer in the cluster",
        "No action needed: its report is deleted after spec.retention.deletedNodes.",
    ),
    failed(
        "Preempted",
        "the agent's pod was preempted by a pod of higher priority: {text}",
        "No action needed: it is retried when the GPUs are free, and this attempt doesn't count.",
        gave_way=True,
    ),
    failed(
        "Yielded",
        "the operator ended the agent for {pod} of priority {priority}, which waited for its GPUs: the scheduler "
        "preempts no pod that has its GPUs by resource claim",
        "No action needed: it is retried when the GPUs are free, and this attempt doesn't count.",
        gave_way=True,
    ),
    failed(
        "Drained",
        "the agent's pod was evicted from a node that is being drained: {text}",
        "No action needed: it is retried when the node is schedulable again, and this attempt doesn't count.",
        gave_way=True,
    ),
    failed(
        "PodRejected",
        "the kubelet of node {node} rejected the agent's pod: {text}",
        "It is retried automatically, and this attempt doesn't count as a failure. If it repeats, check the device "
        "plugin there and what the node offers: kubectl describe node {node}.",
    ),
    failed(
        "ContainerLost",
        "node {node} lost the agent's container, as in a restart of the node: {text}",
        "It is retried automatically, and this attempt doesn't count as a failure. If it repeats, look for what "
        "restarts the node or its container runtime.",
        lost_with_node=True,
    ),
    failed(
        "Evicted",
        "the agent's pod was evicted by {by}: {text}",
        "It is retried, and this attempt doesn't count as a failure. If it repeats, check the node's pressure "
        "conditions and taints, and what evicts pods.",
        lost_with_node=True,
    ),
    failed(
        "Disrupted",
        "the agent's pod was disrupted: {text}",
        "No action needed: it is retried, and this attempt doesn't count.",
        gave_way=True,
    ),
    failed(
        "ResultMissing",
        "the agent succeeded but left no result",
        "Check that spec.agent.image is the image of this version. The last lines of its log are in the report "
        "(status.attempt.log) and in kubectl precision why {node}.",
    ),
    failed(
        "ResultDamaged",
        "the agent's termination message is not a valid result: {detail}",
        "Check that spec.agent.image is the image of this version.",
    ),
    failed(
        "ResultForeign",
        "the agent's result does not answer this request: {detail}",
        "It is discarded. Check that spec.agent.image is the image of this version, and that nothing else writes to "
        "the agent's termination log.",
    ),
    failed(
        "ResultNewer",
        "agent and operator have different versions: {detail}",
        "Upgrade the operator (and its CRDs) to the agent's version, or set spec.agent.image to the image of the "
        "operator's version.",
    ),
    partly(
        "DetailNewer",
        "agent and operator have different versions, and the full result can't be used: {detail}",
        "The summary is used. Upgrade the operator (and its CRDs) to the agent's version, or set spec.agent.image to "
        "the image of the operator's version.",
    ),
    partly(
        "ResultTruncated",
        "the agent's log is missing lines of the full result: {detail}",
        "The summary is used. For the full result, raise containerLogMaxSize of the kubelet and measure again.",
    ),
    partly(
        "ResultDigestMismatch",
        "the full result in the agent's log doesn't match the digest in its summary",
        "The summary is used. If it repeats, check what else writes to the agent's log on this node.",
    ),
    partly(
        "ResultTooLarge",
        "the full result is too large: {detail}",
        "The summary is used. Measure fewer shapes or recipes in one profile.",
    ),
    partly(
        "DetailUnreadable",
        "the full result in the agent's log can't be used: {detail}",
        "The summary is used. If it repeats, check that spec.agent.image is the image of this version.",
    ),
    partly(
        "DetailNotWritten",
        "the ConfigMap with the full result could not be written: {detail}",
        "The summary is used. For the full result, make room (quota, policy, retention.detail), then measure again.",
    ),
    partly(
        "LogUnavailable",
        "the agent's log could not be read: {detail}",
        "The summary is used. Check that the API server reaches the kubelet of the node.",
    ),
)
