"""Does the full model fit on the GPUs that a profile names? It is measured by a short one either way. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from precision_api.memory import too_large, training_memory
from precision_api.resolution import ResolvedWorkload
from precision_operator.core.observe.nodes import NodeFacts

MIB = 1 << 20


def misfits(workload: ResolvedWorkload, nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """A sentence for each product whose GPUs are too small for a job like this one; none where nothing is known.

    Recipes do not matter: weights, gradients and optimizer are the same in all of them.
    """
    if workload.model is None:
        return ()
    known = ((node.gpu, node.memory_mib) for node in nodes)
    smallest: dict[str, int] = {}
    for product, mib in known:
        if product and mib:
            smallest[product] = min(mib, smallest.get(product, mib))
    memory = training_memory(workload, "bf16")
    told = ((product, too_large(memory, mib * MIB)) for product, mib in sorted(smallest.items()))
    return tuple(
        f"{product}: a job that trains {workload.name} as described would not fit: {why}. Its layers are measured all "
        "the same"
        for product, why in told
        if why
    )
