"""Reasons of a node that are decided from the Node object alone."""

from precision_operator.core.reasons.row import Reason, of_kind

skipped, waiting = of_kind("skipped"), of_kind("waiting")
ROWS = (
    Reason("NotMatched", "unmatched", "{why}", "Widen spec.target if this node should be measured."),
    Reason("Eligible", "eligible", "{offer}", "It is measured when its turn comes."),
    skipped(
        "ExcludedTaint",
        "the node has the taint {taint}, which spec.target.excludeTaints lists",
        "Remove the entry from excludeTaints to measure it.",
    ),
    skipped(
        "MIGEnabled",
        "MIG is enabled: {why}",
        "Only whole GPUs are measured: label the node nvidia.com/mig.config=all-disabled, or exclude it in "
        "spec.target.",
    ),
    skipped(
        "GPUsSharedRenamed",
        "its GPUs are shared under another resource name ({resource}), so whole nvidia.com/gpu can't be requested",
        "Disable time-slicing or MPS on this node (device plugin config), or exclude it in spec.target.",
    ),
    skipped(
        "GPUsShared",
        "its GPUs are shared between pods: {why}",
        "Disable time-slicing, MPS or vGPU on this node (device plugin config), or exclude it in spec.target.",
    ),
    skipped(
        "GPUsOfferedTwice",
        "its GPUs are offered twice: {allocatable} as nvidia.com/gpu by the device plugin and {published} in "
        "ResourceSlices by the DRA driver, so that two pods can get the same GPU",
        "Run one of the two on this node: both charts take a node selector. It is measured once one of them is gone.",
    ),
    skipped(
        "GPUsPassedThrough",
        "its {gpus} GPUs are passed through to virtual machines (vfio)",
        "Leave such nodes out of spec.target, or bind the GPUs to NVIDIA's driver again.",
    ),
    skipped(
        "UnsupportedProduct",
        "its GPU is {name}, which is none of {supported}",
        "Nothing to do. To measure it all the same, its peaks unknown, name it in spec.target.products.",
    ),
    skipped(
        "DRAClaimsNotSupported",
        "allocatable nvidia.com/gpu is 0 although {why}: its GPUs are handed out by resource claims (DRA) only, or "
        "all of them are unhealthy, or the device plugin is down",
        "Resource claims need Kubernetes 1.34 (resource.k8s.io/v1) and the chart's value dra.enabled. If the node "
        "should offer nvidia.com/gpu, look at the device plugin's pod on it; the node is measured once its GPUs are "
        "allocatable.",
    ),
    skipped(
        "UnknownProduct",
        "it has GPUs ({why}), but no label says which product they are",
        "Install GPU feature discovery (part of the NVIDIA GPU Operator) or label the node nvidia.com/gpu.product, "
        "for example NVIDIA-GB300.",
    ),
    skipped(
        "NoGPU",
        "nothing shows an NVIDIA GPU on it: no nvidia.com/gpu resource and no GPU label",
        "If it has GPUs, install the NVIDIA GPU Operator; otherwise narrow spec.target.",
    ),
    skipped(
        "UntoleratedTaint",
        "it has the taint {taint}, which the agent does not tolerate",
        "If the node's owner agrees, add to spec.agent.tolerations: {toleration}.",
    ),
    waiting(
        "MIGReconfiguring",
        "MIG is being disabled: {why}",
        "It is measured when the MIG manager is done; if that takes long, check the MIG manager's pod on the node.",
    ),
    waiting("NodeDeleting", "the node is being removed: {why}", "No action needed: no measurement starts on it."),
    waiting(
        "NotReady", "the node is not ready: {why}", "It is measured when it is Ready; see kubectl describe node {node}."
    ),
    waiting(
        "NotInService",
        "the {mark} marks the node as not in service",
        "It is measured when the component that set it removes it; if that takes long, see "
        "kubectl describe node {node}.",
    ),
    waiting(
        "Cordoned",
        "the node is cordoned",
        "It is measured after kubectl uncordon {node}, or while it is cordoned by a profile that names it in "
        "spec.target.nodeNames and sets spec.target.cordoned to Include.",
    ),
    waiting(
        "GPUsNotReady",
        "it should have GPUs ({why}), but {lack}",
        "It is measured when they are there. If that takes long, look at the pods of the device plugin or of the DRA "
        "driver on it: kubectl get pods -A --field-selector spec.nodeName={node}.",
    ),
    waiting(
        "GPUsTainted",
        "every GPU that it publishes has a taint that keeps claims away: {gpus}",
        "It is measured when a taint is gone. NVIDIA's DRA driver sets them for XID errors and lost GPUs, and takes "
        "them off when it is started again: look at the GPUs of {node} first.",
    ),
)
