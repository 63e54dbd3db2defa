"""Does what is measured fit on the GPUs that a profile names? A model is measured by a short one either way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from precision_api.memory import WEIGHT_BYTES, too_large, training_memory
from precision_api.resolution import ResolvedWorkload
from precision_api.shapes import Gemm
from precision_operator.core.observe.nodes import NodeFacts

MIB = 1 << 20


def misfits(workload: ResolvedWorkload, nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """A sentence for each product whose GPUs are too small; none where nothing is known of their memory.

    Of a model too small for a job that trains it: recipes do not matter, since weights, gradients and optimizer are the
    same in all of them. Of bare shapes too small for the matrices of one GEMM.
    """
    known = ((node.gpu, node.memory_mib) for node in nodes)
    smallest: dict[str, int] = {}
    for product, mib in known:
        if product and mib:
            smallest[product] = min(mib, smallest.get(product, mib))
    if workload.model is None:
        return _too_large_gemms(workload, smallest)
    memory = training_memory(workload, "bf16")
    told = ((product, too_large(memory, mib * MIB)) for product, mib in sorted(smallest.items()))
    return tuple(
        f"{product}: a job that trains {workload.name} as described would not fit: {why}. Its layers are measured all "
        "the same"
        for product, why in told
        if why
    )


def _too_large_gemms(workload: ResolvedWorkload, smallest: Mapping[str, int]) -> tuple[str, ...]:
    """A sentence for each product on which the largest GEMM's operands and result do not fit in BF16, the baseline."""
    largest = max(workload.gemms, key=_bytes_of)
    return tuple(
        f"{product}: GEMM {largest.name} ({largest.m} x {largest.k} x {largest.n}, {largest.pass_}) does not fit: its "
        f"three matrices take {_bytes_of(largest) / 1e9:,.1f} GB in BF16, a GPU has {mib * MIB / 1e9:,.1f} GB. It "
        "would fail with out_of_memory: make the shape smaller"
        for product, mib in sorted(smallest.items())
        if _bytes_of(largest) > mib * MIB
    )


def _bytes_of(gemm: Gemm) -> int:
    return WEIGHT_BYTES * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
