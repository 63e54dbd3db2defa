"""How a measured node compares with its peers, and what is said of a profile as a whole."""

from precision_operator.core.reasons.row import Reason, of_kind

_AGAINST_PEERS = (
    "it reaches {relative} of the median of {count} comparable nodes ({peers}; same GPUs, power limit, software, "
    "driver, workload and timing; {recipe}, GPUs x slowest GPU), and less than {limit} is slow"
)
_AGAIN = "kubectl precision rerun {node} -n {namespace} --profile {profile}"

of_profile, slow = of_kind("profile"), of_kind("slow")
ROWS = (
    slow(
        "Slow",
        f"{_AGAINST_PEERS}. It was not throttled, no recipe fell back, and {{gpus}}",
        f"{_AGAIN} shows whether it repeats. If so, drain the node, run dcgmi diag -r 3, and send its vendor its page "
        "(kubectl precision report {node} -n {namespace} --profile {profile}; runbook PrecisionNodeSlow).",
    ),
    slow(
        "SlowThrottled",
        f"{_AGAINST_PEERS}; it was throttled by {{cause}} during the measurement",
        f"Check its cooling and power (runbook PrecisionThrottledInProfile), then {_AGAIN}.",
    ),
    slow(
        "SlowFallback",
        f"{_AGAINST_PEERS}; {{recipes}} silently ran in another precision",
        "Compare Transformer Engine, CUDA and the environment with a good node's (runbook "
        f"PrecisionSilentFallback), then {_AGAIN}.",
    ),
    Reason(
        "NoPeers",
        "alone",
        "it is not called slow or sound: {peers} other nodes of the namespace have a rate that counts beside its own "
        "(same GPUs, power limit, software, driver, workload and timing), and {needed} are needed{differs}",
        "Measure more nodes of its kind, by whichever profile of the namespace; or make equal what differs, and "
        "measure again.",
    ),
    # The profile as a whole.
    Reason(
        "PlanFailed",
        "waiting",
        "the operator hit an internal error while planning: {why}",
        "It retries automatically; the traceback is in the operator's log (search for PlanFailed). Please report it.",
        undecided=True,
    ),
    of_profile(
        "NamespaceForbidden",
        "the operator may not list all that it needs in namespace {namespace} ({why})",
        "Agents that run go on. Give the operator its Role and RoleBinding there again (helm upgrade does).",
        undecided=True,
    ),
    of_profile(
        "TooManyProfiles",
        "namespace {namespace} has {most} older profiles that are not suspended, as many as are served "
        "(profilesPerNamespace.max of the chart)",
        "Suspend or delete others, or have the cluster's administrator raise that value. Results stay.",
        undecided=True,
    ),
    of_profile(
        "ImageNotAllowed",
        "spec.agent.image {image} matches none of the allowed prefixes ({allowed})",
        "Use an allowed image, or have the cluster's administrator extend agent.allowedImages of the chart.",
    ),
    of_profile(
        "ImageMissing",
        "no agent image is set",
        "Set spec.agent.image, or have the cluster's administrator set the operator's default.",
    ),
    of_profile(
        "ConfigMapMissing",
        "ConfigMap {name}, which spec.workload names, does not exist in namespace {namespace}",
        "Create it, or correct the name.",
    ),
    of_profile(
        "ConfigMapKeyMissing",
        "ConfigMap {name} has no key {key}",
        "Add the key, or correct it in spec.workload. Keys that it has: {keys}.",
    ),
    of_profile("InvalidSpec", "the spec can't be read: {detail}", "Correct the field that the message names."),
    of_profile("InvalidWorkload", "spec.workload can't be measured: {detail}", "Correct what it names."),
    of_profile(
        "PriorityClassMissing",
        "PriorityClass {name} does not exist; without it agents could preempt other pods",
        "Upgrade or reinstall the chart, or create it.",
    ),
    of_profile(
        "QueueMissing",
        "there is no Kueue LocalQueue {name} in namespace {namespace}",
        "Create it (kubectl get localqueues says whether Kueue is installed), or correct spec.agent.queueName.",
    ),
    of_profile("InvalidSchedule", "{detail}", "Correct spec.schedule; the profile then continues automatically."),
    of_profile(
        "NoNodesMatch",
        "none of the cluster's {nodes} nodes matches spec.target",
        "Compare spec.target with kubectl get nodes --show-labels.",
    ),
    of_profile(
        "NothingEligible",
        "none of the {matched} matched nodes can be measured; most often: {example}",
        "See status.reasons of the profile.",
    ),
    of_profile("AllMeasured", "all {count} eligible nodes are measured", "See kubectl get npr for each node's result."),
    of_profile(
        "SomeFailed",
        "{failed} of {count} eligible nodes failed; most often: {example}",
        "See status.reasons of the profile.",
    ),
    of_profile(
        "SomeWaiting",
        "{measured} of {count} eligible nodes are measured, {waiting} wait; most often: {example}",
        "kubectl precision why NODE shows what each of them waits for.",
    ),
)
