"""Which Kubernetes the lab's cluster plays: its own version, or an older one that its programs emulate."""

import os

EMULATED = os.environ.get("PRECISION_KUBERNETES", "")
"""The version that the cluster's programs emulate, e.g. 1.34 (docs/development/dra.md); empty: their own."""
OLD = EMULATED in ("1.34", "1.35")
"""Whether device taints, counters of GPUs that are cut, and mapped extended resources are off by default."""


def kubernetes_flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags of the API server, and those of API server, controller manager and scheduler alike.

    1.36 has rules that taint devices (DeviceTaintRule), and does not serve them by default: here they are on.
    """
    if EMULATED:
        return (), (f"--emulated-version={EMULATED}",)
    return ("--runtime-config=resource.k8s.io/v1beta2=true",), ("--feature-gates=DRADeviceTaintRules=true",)
