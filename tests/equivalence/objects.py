"""Raw Kubernetes objects, or parts of them, as the API server shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .remains import Remains

Raw = dict[str, Any]
GROUP = "precisionprofiler.io"
NAMESPACE = "ml"
CONFIG = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, '
    '"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 512}'
)
"""A model's config.json."""


def time_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def finished(job: Raw) -> bool:
    return any(c["type"] in ("Complete", "Failed") for c in job.get("status", {}).get("conditions", ()))


def admitted(job: Raw, now: datetime) -> Raw:
    """The Job after Kueue has let it go."""
    told = {"type": "Suspended", "status": "False", "lastTransitionTime": time_text(now)}
    return job | {"spec": job["spec"] | {"suspend": False}, "status": {"conditions": [told]}}


def ended_pod(pod: Raw, left: Remains, failed: bool) -> Raw:
    state: Raw = {}
    if left.exit_code is not None:
        told = {"exitCode": left.exit_code, "reason": left.reason, "message": left.message}
        state = {"containerStatuses": [{"name": "agent", "state": {"terminated": told}}]}
    moved = {"type": "DisruptionTarget", "status": "True", "message": left.disruption}
    conditions = {"conditions": [moved]} if left.disruption else {}
    return pod | {"status": {"phase": "Failed" if failed else "Succeeded"} | state | conditions}


def owner(raw: Raw) -> str:
    return str(raw["metadata"]["ownerReferences"][0]["uid"])


def is_report_of(body: Raw | None, job: Raw | None) -> bool:
    """Whether a new report is the one of this Job."""
    if body is None or job is None:
        return False
    mine = (job["metadata"]["labels"][f"{GROUP}/node-uid"], owner(job))
    return (body["spec"]["nodeUID"], owner(body)) == mine


def resource_slice(node: str) -> Raw:
    """A ResourceSlice with eight GPUs."""
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": "NVIDIA H100"},
        "driverVersion": {"version": "580.1"},
    }
    devices = [{"name": f"gpu-{index}", "attributes": attributes} for index in range(8)]
    return {"kind": "ResourceSlice", "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices}}
