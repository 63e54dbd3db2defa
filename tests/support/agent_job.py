"""A Job that runs the agent on one node, as the operator would make it: for tests of what lies below the operator."""

from typing import Any

from precision_api.exchange.request import MeasurementRequest, RequestNode, request_json
from precision_api.facts.names import AGENT_APP, AGENT_CONTAINER, GPU_RESOURCE, LABEL_APP, REQUEST_ENV
from precision_api.facts.products import ProductClass
from precision_lab.fleet.hardware import HARDWARE
from tests.support.result_objects import request


def request_for(node: str, product: ProductClass) -> MeasurementRequest:
    facts = RequestNode(name=node, uid=f"uid-of-{node}", product=product, gpus=HARDWARE[product].gpus)
    return request(node=facts, recipes=("bf16", "fp8_current"))


def agent_job(node: str, product: ProductClass, **pod: Any) -> dict[str, Any]:
    """The Job, named like the node; `pod` are more fields of the pod's spec."""
    resources = {"limits": {GPU_RESOURCE: str(HARDWARE[product].gpus)}}
    variable = {"name": REQUEST_ENV, "value": request_json(request_for(node, product))}
    container = {"name": AGENT_CONTAINER, "image": "registry.example/agent:1", "resources": resources}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "affinity": {"nodeAffinity": affinity},
        "tolerations": [{"key": key, "operator": "Exists"} for key in (GPU_RESOURCE, "kubernetes.io/arch")],
        "containers": [{**container, "env": [variable]}],
        **pod,
    }
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": node},
        "spec": {
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [disrupted]},
            "template": {"metadata": {"labels": {LABEL_APP: AGENT_APP}}, "spec": spec},
        },
    }
