"""What is created: one Job for one attempt on one node, its claim's template, the node's report. Fresh dicts always.

The agents' resource claims: one ResourceClaimTemplate for each profile and number of GPUs, which names no node. A claim
asks for a number of devices, never for all: `All` waits for every pool of the node that is being updated, of any
driver, costs 32 devices in a quota, and Kueue can't count it.
"""

from typing import Any

from precision_api.exchange.request import MeasurementRequest, canonical, digest, request_hash, request_json
from precision_api.facts import names
from precision_api.kinds.profile import Agent, Resources, Toleration
from precision_operator.core.eligibility.checks import CORDONED_TAINT, IMPLIED_TOLERATION_KEYS
from precision_operator.core.eligibility.request import ResolvedProfile
from precision_operator.core.eligibility.triggers import CurrentRun
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import AcceptedProfile, ProfileView, Settings

POD_GRACE_SECONDS = 60
"""The agent ends itself at its deadline with a partial result; it is ended this much later, from its start."""
JOB_TTL_SECONDS = 86_400
"""Backstop: the operator deletes a Job as soon as its result is written."""
NOT_DISTURBED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations that keep autoscalers from taking the node of a running agent (for cluster-autoscaler, with a priority of
-10 or more)."""
NO_SIDECAR_LABELS = {
    "sidecar.istio.io/inject": "false",
    "kuma.io/sidecar-injection": "disabled",
    "admission.datadoghq.com/enabled": "false",
}
NO_SIDECAR_ANNOTATIONS = {
    "sidecar.istio.io/inject": "false",
    "kuma.io/sidecar-injection": "disabled",
    "linkerd.io/inject": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
    "vault.hashicorp.com/agent-inject": "false",
}
"""An agent speaks to nobody, and a sidecar would hold its GPUs after it has ended."""
REQUEST = "gpus"
"""Name of the pod's claim and of its only request."""


def labels(profile: str, node: str) -> dict[str, str]:
    """Labels of everything that belongs to one profile and node (UIDs: node names may outgrow a label)."""
    return {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_PROFILE_UID: profile, names.LABEL_NODE_UID: node}


def report(namespace: str, profile: str, profile_uid: str, node: str, node_uid: str) -> dict[str, Any]:
    """An empty NodePrecisionReport; its status is written when there is something to say."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {
            "name": names.report_name(profile, node_uid),
            "namespace": namespace,
            "labels": labels(profile_uid, node_uid),
            "ownerReferences": [owner(profile, profile_uid)],
        },
        "spec": {"profile": profile, "nodeName": node, "nodeUID": node_uid},
    }


def claim_template(profile: AcceptedProfile, facts: NodeFacts, gpus: int, settings: Settings) -> dict[str, Any] | None:
    """The template of the agent's claim on this node; None where the device plugin hands out its GPUs."""
    return template(profile, gpus, settings) if facts.way == "claim" else None


def job(
    asked: ResolvedProfile, facts: NodeFacts, run: CurrentRun, document: MeasurementRequest, settings: Settings
) -> dict[str, Any]:
    """One attempt on one node: one Job, one pod, no replacement; all GPUs of the node, through the scheduler."""
    profile, defaults = asked.profile, settings.agent_defaults
    agent = profile.spec.agent
    marks = labels(profile.uid, facts.uid) | {
        names.LABEL_APP: names.AGENT_APP,
        names.LABEL_RUN: document.run,
        names.LABEL_ATTEMPT: str(document.attempt),
    }
    notes = {
        names.ANNOTATION_PROFILE: profile.name,
        names.ANNOTATION_NODE: facts.name,
        names.ANNOTATION_WORKLOAD: asked.resolved.name,
        names.ANNOTATION_REQUEST_HASH: request_hash(document),
        names.ANNOTATION_DEADLINE: str(document.deadline_seconds),
        names.ANNOTATION_DRIVER: facts.driver or "",
        names.ANNOTATION_BOOT: facts.boot,
        names.ANNOTATION_BASIS: canonical(dict(run.basis)),
    }
    held = {"kueue.x-k8s.io/queue-name": agent.queue_name} if agent.queue_name else {}
    pending, disrupted = profile.spec.idle.pending_timeout_seconds, [{"type": "DisruptionTarget", "status": "True"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.job_name(profile.uid, facts.uid, document.run, document.attempt),
            "namespace": profile.namespace,
            "labels": {**defaults.pod_labels, **marks, **held},
            "annotations": dict(notes),
            "ownerReferences": [owner(profile.name, profile.uid)],
        },
        "spec": {
            **({"suspend": True} if held else {}),
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": JOB_TTL_SECONDS,
            # What the pod may take, and what it may wait to be scheduled.
            "activeDeadlineSeconds": _pod_deadline(profile, document) + pending + POD_GRACE_SECONDS,
            # A disrupted pod fails the Job: the operator decides when and whether to try again, not the Job controller.
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": disrupted}]},
            "template": {
                # The admin's come before the defaults, and never before those that the operator needs.
                "metadata": {
                    "labels": {**NO_SIDECAR_LABELS, **defaults.pod_labels, **marks},
                    "annotations": {**NOT_DISTURBED, **NO_SIDECAR_ANNOTATIONS, **defaults.pod_annotations, **notes},
                },
                "spec": _pod(profile, facts, asked.image, document, settings),
            },
        },
    }


def _pod_deadline(profile: AcceptedProfile, document: MeasurementRequest) -> int:
    """Seconds. A pod's time counts from when its kubelet took it: pulling the image must not eat into the run."""
    return profile.spec.idle.start_timeout_seconds + document.deadline_seconds + POD_GRACE_SECONDS


def _pod(
    profile: AcceptedProfile, facts: NodeFacts, image: str, document: MeasurementRequest, settings: Settings
) -> dict[str, Any]:
    agent = profile.spec.agent
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": _pod_deadline(profile, document),
        "terminationGracePeriodSeconds": 30,
        "priorityClassName": settings.priority_class,
        "serviceAccountName": settings.agent_service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {"nodeAffinity": _on_node(facts, settings.agent_defaults.flavor_labels)},
        "tolerations": _tolerations(agent.tolerations, profile.spec.target.cordoned == "Include"),
        # As Pod Security `restricted` asks; a user or group that is left out is the cluster's choice (OpenShift).
        "securityContext": {
            **settings.agent_defaults.pod_security,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(agent, image, document, facts.way == "claim")],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": agent.resources.ephemeral_storage}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": names.SHARED_MEMORY}},
        ],
    }
    if agent.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret.name} for secret in agent.image_pull_secrets]
    if settings.agent_defaults.scheduler_name:
        spec["schedulerName"] = settings.agent_defaults.scheduler_name
    if (wanted := claim_template(profile, facts, document.node.gpus, settings)) is not None:
        # Its driver gives the container libraries and devices (CDI): no RuntimeClass.
        spec["resourceClaims"] = [{"name": REQUEST, "resourceClaimTemplateName": wanted["metadata"]["name"]}]
    elif agent.runtime_class_name:
        spec["runtimeClassName"] = agent.runtime_class_name
    return spec


def _on_node(facts: NodeFacts, flavor_labels: tuple[str, ...]) -> dict[str, Any]:
    """Affinity to one node. Never spec.nodeName: that goes past the scheduler, and so past whoever holds the GPUs.

    Kueue chooses a Job's flavor by label expressions alone, and then adds that flavor's labels to the pod: so the
    node's own values of `flavor_labels` stand beside its name.
    """
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [facts.name]}]}
    keys = [key for key in flavor_labels if key in facts.labels]
    if keys:
        term["matchExpressions"] = [{"key": key, "operator": "In", "values": [facts.labels[key]]} for key in keys]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def _tolerations(tolerations: tuple[Toleration, ...], cordoned: bool) -> list[dict[str, Any]]:
    """The taints that only say what hardware a node has, and the user's; never all: owners reserve racks by taint.

    `cordoned`: the taint of a cordoned node as well.
    """
    implied = [{"key": key, "operator": "Exists"} for key in IMPLIED_TOLERATION_KEYS]
    if cordoned:
        implied.append({"key": CORDONED_TAINT, "operator": "Exists", "effect": "NoSchedule"})
    return implied + [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in tolerations]


def _container(agent: Agent, image: str, document: MeasurementRequest, by_claim: bool) -> dict[str, Any]:
    return {
        "name": names.AGENT_CONTAINER,
        "image": image,
        "args": ["run", "--request", "env"],
        "env": [
            {"name": names.REQUEST_ENV, "value": request_json(document)},
            {"name": "HOME", "value": "/tmp"},
            # PyTorch names its compile cache for the user, and the pod's UID has no name.
            {"name": "USER", "value": names.AGENT_APP},
        ],
        "resources": {
            **claimed(agent.resources, 0 if by_claim else document.node.gpus),
            **({"claims": [{"name": REQUEST}]} if by_claim else {}),
        },
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }


def claimed(resources: Resources, gpus: int) -> dict[str, Any]:
    """Requests and limits of an agent's container.

    Local storage is bounded, not claimed: when a disk fills up agents go first, and no Kueue quota has to cover it.
    """
    limits = {"memory": resources.memory} | ({names.GPU_RESOURCE: str(gpus)} if gpus else {})
    requests = {"cpu": resources.cpu, **limits, "ephemeral-storage": "0"}
    return {"requests": requests, "limits": limits | {"ephemeral-storage": resources.ephemeral_storage}}


def template(profile: ProfileView, gpus: int, settings: Settings) -> dict[str, Any]:
    """The template for agents of `profile` that get so many GPUs. It goes with the profile."""
    wanted = {"deviceClassName": settings.device_class, "allocationMode": "ExactCount", "count": gpus}
    spec = {
        "metadata": {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_APP: names.AGENT_APP}},
        "spec": {"devices": {"requests": [{"name": REQUEST, "exactly": wanted}]}},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": f"pp-gpus-{digest([profile.uid, spec], 16)}",
            "namespace": profile.namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_PROFILE_UID: profile.uid},
            "ownerReferences": [owner(profile.name, profile.uid)],
        },
        "spec": spec,
    }


def owner(name: str, uid: str) -> dict[str, Any]:
    """The profile as only owner: with it go its Jobs, reports and details, by the cluster's own garbage collector."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PROFILE_KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
