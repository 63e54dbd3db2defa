"""Examples that each command's help ends with, as kubectl's does. In the demo they can be pasted as they are."""

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "doctor": ("kubectl precision doctor", "kubectl precision doctor -n precision-system -o json"),
    "status": ("kubectl precision status -A", "kubectl precision status demo", "kubectl precision status demo --watch"),
    "nodes": (
        "kubectl precision nodes --all",
        "kubectl precision nodes --only slow --sort-by relative",
        "kubectl precision nodes --only failed -o name",
        "kubectl precision nodes demo -l topology.kubernetes.io/zone=us-east-1a -o csv",
    ),
    "why": ("kubectl precision why gb300-0004", "kubectl precision why node/gb300-0004 --profile demo -o yaml"),
    "compare": (
        "kubectl precision compare driver/580.95.05 driver/580.126.20 --difference driver",
        "kubectl precision compare pool/H100 pool/GB200 --difference hardware",
        "kubectl get npr -o json > before.json && kubectl precision compare before.json demo --fail-if-slower",
    ),
    "reference": (
        "kubectl precision reference create h100-jan --profile demo --dry-run",
        "kubectl precision reference create h100-jan --profile demo --except gb200-0001 --split example.com/cooling",
        "kubectl precision reference show h100-jan -o json > reference.json",
        "kubectl precision reference list",
    ),
    "acceptance": ("kubectl precision acceptance -n precision-system --profile gate",),
    "report": (
        "kubectl precision report demo -o report.html",
        "kubectl precision report node/gb200-0001 -o report.html",
    ),
    "rerun": ("kubectl precision rerun demo", "kubectl precision rerun node/gb200-0001 --profile demo"),
    "dry-run": (
        "kubectl precision dry-run -f examples/quick-llama3-8b.yaml",
        "kubectl get nodes -o json > nodes.json && "
        "kubectl precision dry-run -f examples/gb200-pool.yaml --nodes nodes.json",
    ),
    "shapes": (
        "kubectl precision shapes --preset llama3-8b",
        "kubectl precision shapes --shape 15872x4096x12288",
        "kubectl precision shapes --preset qwen3-8b --micro-batch-size 2 --sequence-length 4096 -o csv",
    ),
    "plan": (
        "kubectl precision plan -f examples/capacity-plan.yaml",
        "kubectl precision plan -f examples/capacity-plan.yaml -o html > plan.html",
    ),
    "fleet": ("kubectl precision fleet", "kubectl precision fleet -o yaml > fleet.yaml"),
    "support-bundle": (
        "kubectl precision support-bundle -n precision-system",
        "kubectl precision support-bundle -A -o bundle.tar.gz",
    ),
    "run": (
        "kubectl precision run --local --plan --product GB200 --gpus 4 --preset llama3-8b",
        "kubectl precision run --local --preset llama3-8b --output result.json",
    ),
    "verify-trace": ("kubectl precision verify-trace docs/traces/mxfp8-layers-bf16-head.json --claims mxfp8",),
}
"""Name of the command -> complete command lines; names and files are those of `make demo` in a checkout."""


def epilog(command: str) -> str:
    """The examples as click shows them: a block whose lines are kept."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])
