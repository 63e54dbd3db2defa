"""A tenant binds pods to others' nodes itself (spec.nodeName); what they ask for, and never get, holds no GPU there."""

from __future__ import annotations

from typing import Any

import pytest

from precision_operator.cluster import paths
from tests.support.operator_in_memory import OperatorInMemory

NODES = ("n1", "n2")
ASKED: dict[str, dict[str, Any]] = {
    "a claim that was never made": {"resourceClaims": [{"name": "g", "resourceClaimName": "none"}]},
    "a template that was never made": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "none"}]},
    "a resource that no node has": {
        "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/mig-none": "1"}}}],
    },
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
async def test_a_pod_that_a_tenant_binds_itself_and_that_gets_no_gpu_keeps_no_node_from_others(asked: Any) -> None:
    loop = OperatorInMemory(*NODES)
    for node in NODES:
        pod = {
            "metadata": {"name": f"pin-{node}", "namespace": "team-t", "uid": f"pin-{node}"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {}}]} | asked,
            "status": {"phase": "Pending"},
        }
        loop.cluster._store(f"{paths.pods('team-t')}/pin-{node}", pod)
    loop.apply("p", rollout={"maxConcurrent": 2})
    await loop.once()
    assert sorted(loop.jobs()) == [*NODES]
