"""Reasons to wait or to queue, decided from everything that runs."""

from precision_operator.core.reasons.row import POLL_SECONDS, Reason, of_kind

queued, waiting = of_kind("queued"), of_kind("waiting")
ROWS = (
    waiting(
        "DeviceClassMissing",
        "there is no DeviceClass {name}, which the agents' resource claims name",
        "Install the NVIDIA DRA driver's chart, which makes it, or name another one in the chart's value "
        "dra.deviceClass.",
        POLL_SECONDS,
    ),
    waiting(
        "DeviceClassShares",
        "DeviceClass {name}, which the agents' resource claims name, shares GPUs between pods (sharing.strategy is "
        "{strategy})",
        "Name a DeviceClass of whole GPUs without sharing in the chart's value dra.deviceClass.",
        POLL_SECONDS,
    ),
    waiting("Busy", "{pod} holds {gpus} of its GPUs", "It is measured when no pod holds its GPUs.", POLL_SECONDS),
    waiting(
        "KeptForPod",
        "an agent was ended on it at {since} for {pod} (priority {priority}), which waits for GPUs",
        "It is measured when that pod runs or is gone, or after a minute in which the GPUs did not help it.",
    ),
    waiting(
        "InsufficientCPUAndMemory",
        "the agent requests {cpus} CPUs, and the pods on the node already request {cpus_requested} of "
        "{cpus_allocatable}; it requests {memory} of memory, and they request {memory_requested} of "
        "{memory_allocatable}",
        "It is measured when enough pods have left; on a node that is too small, lower cpu and memory of "
        "spec.agent.resources.",
        POLL_SECONDS,
    ),
    waiting(
        "InsufficientCPU",
        "the agent requests {wanted} CPUs, and the pods on the node already request {requested} of {allocatable}",
        "It is measured when enough pods have left; on a node that is too small, lower spec.agent.resources.cpu.",
        POLL_SECONDS,
    ),
    waiting(
        "InsufficientMemory",
        "the agent requests {wanted} of memory, and the pods on the node already request {requested} of {allocatable}",
        "It is measured when enough pods have left; on a node that is too small, lower spec.agent.resources.memory.",
        POLL_SECONDS,
    ),
    queued("MeasuredByAnotherProfile", "{profile} is measuring it", "It is measured when that run is done."),
    queued(
        "MaxConcurrentReached",
        "the number of running agents has reached spec.rollout.maxConcurrent ({limit})",
        "It is measured when one of them is done; raise spec.rollout.maxConcurrent to go faster.",
        place_taken=True,
    ),
    waiting(
        "TooManyFailures",
        "{failed} nodes have failed, more than spec.rollout.maxFailures ({limit}) allows: the rollout has stopped",
        "Check the failed nodes in status.reasons, then raise maxFailures or run kubectl precision rerun PROFILE.",
    ),
    waiting(
        "CanaryFailed",
        "{failed} of the first {canary} nodes (spec.rollout.canary) failed: the rollout has stopped",
        "Check the failed nodes in status.reasons, then run kubectl precision rerun NODE, or remove canary.",
    ),
    queued(
        "CanaryFirst",
        "{succeeded} of {canary} canary nodes are measured",
        "It is measured when they are.",
        place_taken=True,
    ),
    queued(
        "ImagePullLimitReached",
        "the number of nodes that pull the agent's image has reached spec.rollout.maxImagePulls ({limit}), and this "
        "node does not have the image",
        "It is measured when one of them is done. Raise spec.rollout.maxImagePulls, or pull the image beforehand "
        "(docs/fleet-care.md).",
        place_taken=True,
    ),
    queued(
        "PoolLimitReached",
        "the number of agents in pool {pool} has reached its limit in spec.rollout.pools ({limit})",
        "It is measured when one of them is done.",
        place_taken=True,
    ),
    queued(
        "TopologyLimitReached",
        "the number of agents where {key} is {group} has reached spec.rollout.perTopology ({limit})",
        "It is measured when one of them is done.",
        place_taken=True,
    ),
    waiting(
        "TopologyKeyMissing",
        "it has no label {key}, by which spec.rollout.perTopology limits agents",
        "Label the node, or correct the key.",
    ),
    queued(
        "PowerBudgetReached",
        "running agents may draw {drawn} W and this node {watts} W ({origin}), together more than {name} ({budget} W)",
        "It is measured when the budget has room.",
        place_taken=True,
    ),
    queued(
        "LimitOfAnotherProfile",
        "profile {profile} limits this place: {detail}",
        "It is measured when there is room; or change the limit in that profile, or delete it.",
        place_taken=True,
    ),
    waiting(
        "PowerBudgetTooSmall",
        "this node alone may draw {watts} W ({origin}), more than {name} ({budget} W)",
        "Raise the budget, or exclude such nodes in spec.target.",
    ),
    queued(
        "FleetLimitReached",
        "as many agents of all namespaces run {where} as the operator's limits allow ({limit})",
        "It is measured when one of them is done.",
        place_taken=True,
    ),
    queued(
        "FleetPowerReached",
        "running agents of all namespaces may draw {drawn} W {where} and this node {watts} W ({origin}), more than the "
        "operator's limits allow ({budget} W)",
        "It is measured when there is room.",
        place_taken=True,
    ),
    waiting(
        "FleetPowerUnknown",
        "the operator's limits are in watts, and nothing says what its GPUs ({gpu}) may draw",
        "Ask who administers the nodes to label it {label}=WATTS, or who administers the operator to set wattsPerGPU "
        "of its pool in fleetLimits of its chart.",
    ),
    waiting(
        "FleetPowerTooSmall",
        "this node alone may draw {watts} W ({origin}), more than the operator's limits allow {where} ({budget} W)",
        "Ask who administers the operator to raise fleetLimits of its chart, or leave such nodes out of spec.target.",
    ),
    queued(
        "Ramping",
        "another agent has just started, and spec.rollout.rampSeconds ({seconds}) spaces the starts",
        "It may start at {until}.",
        POLL_SECONDS,
        place_taken=True,
    ),
    waiting(
        "NotDueYet",
        "it starts at {at}: the schedule has not started a run yet",
        "To start it now, run kubectl precision rerun PROFILE.",
        POLL_SECONDS,
    ),
    waiting(
        "GPUsMissing",
        "it offers only {gpus} of its {all} GPUs, so that its result is out of date",
        "When it offers all of them again, the result holds again, or the node is measured. Until then see kubectl "
        "describe node {node}; kubectl precision rerun {node} measures it with the GPUs that it offers.",
    ),
    waiting(
        "Quarantined",
        "{runs} in a row ended without a result on it, the last with {why}",
        "Fix the node, then release it with kubectl precision rerun {node}.",
    ),
    queued(
        "Retrying",
        "attempt {attempt} failed: {why}",
        "Retry {retry} of {limit} starts automatically at {until}.",
        POLL_SECONDS,
    ),
    queued(
        "WaitsInQueue",
        "its agent waits in Kueue queue {queue}",
        "It starts when Kueue admits it. See kubectl get workloads.",
        POLL_SECONDS,
    ),
    Reason(
        "QueueTimeout",
        "failed",
        "Kueue did not admit its agent within {seconds} s",
        "It is retried automatically. Check the queue's quota, or raise spec.idle.queueTimeoutSeconds.",
        never_ran=True,
    ),
)
