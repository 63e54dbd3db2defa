"""Examples that each command's help ends with, as kubectl's does."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "status": (
        "kubectl precision status -A",
        "kubectl precision status nightly --watch",
    ),
    "nodes": (
        "kubectl precision nodes --all",
        "kubectl precision nodes --only slow --sort-by relative",
        "kubectl precision nodes --only failed -o jsonpath='{.items[*].node}'",
        "kubectl precision nodes nightly -l topology.kubernetes.io/zone=a -o csv",
    ),
    "why": (
        "kubectl precision why gb200-0001",
        "kubectl precision why node/gb200-0001 --profile nightly -o yaml",
    ),
    "compare": (
        "kubectl precision compare driver/570.124.06 driver/580.95.05 --profile nightly",
        "kubectl precision compare pool/NVIDIA-H100-80GB-HBM3 pool/NVIDIA-GB200 --difference hardware",
        "kubectl precision compare before.json nightly --fail-if-slower",
    ),
    "report": (
        "kubectl precision report nightly -o report.html",
        "kubectl precision report node/gb200-0001 -o report.html --png speedup.png",
    ),
    "metrics": (
        "kubectl precision metrics gb200-0001",
        "kubectl precision metrics node/gb200-0001 --level detail -o wide",
    ),
    "rerun": (
        "kubectl precision rerun nightly",
        "kubectl precision rerun node/gb200-0001 --profile nightly",
    ),
    "dry-run": (
        "kubectl precision dry-run -f profile.yaml",
        "kubectl get nodes -o json > nodes.json && kubectl precision dry-run -f profile.yaml --nodes nodes.json",
    ),
    "shapes": (
        "kubectl precision shapes --preset llama3-8b",
        "kubectl precision shapes --shape 15872x4096x12288",
        "kubectl precision shapes --hf-config config.json --micro-batch-size 2 --sequence-length 4096",
    ),
    "plan": (
        "kubectl precision plan -f plan.yaml",
        "kubectl precision plan -f plan.yaml -o json",
    ),
    "fleet": ("kubectl precision fleet -o yaml > fleet.yaml",),
    "support-bundle": (
        "kubectl precision support-bundle -n precision-system",
        "kubectl precision support-bundle -A -o bundle.tar.gz",
    ),
    "run": (
        "kubectl precision run --local --preset llama3-8b --output result.json",
        "kubectl precision run --local --plan --product GB200 --gpus 4 --preset llama3-8b",
    ),
    "verify-trace": ("kubectl precision verify-trace trace.json.gz --claims mxfp8",),
}
"""Name of the command -> complete command lines."""


def epilog(command: str) -> str:
    """The examples as click shows them: a block whose lines are kept."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])
