"""Does what is measured fit on the GPUs that a profile names: the job, one layer with all recipes, a GEMM? Pure."""

from collections.abc import Iterable, Mapping

from precision_api.facts.plain_text import three_digits
from precision_api.models.memory import WEIGHT_BYTES, too_large, training_memory
from precision_api.models.room import layer_room
from precision_api.models.shapes import Gemm
from precision_api.models.workload import ResolvedWorkload
from precision_operator.core.eligibility.request import ResolvedProfile, recipes_of
from precision_operator.core.observe.nodes import NodeFacts

MIB = 1 << 20


def misfits(workload: ResolvedWorkload, nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """A sentence for each product whose GPUs are too small; none where nothing is known of their memory.

    Of a model too small for a job that trains it: recipes do not matter, since weights, gradients and optimizer are the
    same in all of them. Of bare shapes too small for the matrices of one GEMM.
    """
    smallest = _smallest(nodes)
    if workload.model is None:
        return _too_large_gemms(workload, smallest)
    memory = training_memory(workload, "bf16")
    misfits = ((product, too_large(memory, mib * MIB)) for product, (_, mib) in smallest.items())
    return tuple(
        f"{product}: a job that trains {workload.name} as described would not fit: {why}. Its layers are measured all "
        "the same"
        for product, why in misfits
        if why
    )


def _too_large_gemms(workload: ResolvedWorkload, smallest: Mapping[str, tuple[NodeFacts, int]]) -> tuple[str, ...]:
    """A sentence for each product on which the largest GEMM's operands and result do not fit in BF16, the baseline."""
    largest = max(workload.gemms, key=_bytes_of)
    return tuple(
        f"{product}: GEMM {largest.name} ({largest.m} x {largest.k} x {largest.n}, {largest.pass_}) does not fit: its "
        f"three matrices take {three_digits(_bytes_of(largest) / 1e9)} GB in BF16, a GPU has "
        f"{three_digits(mib * MIB / 1e9)} GB. It would fail with out_of_memory: make the shape smaller"
        for product, (_, mib) in smallest.items()
        if _bytes_of(largest) > mib * MIB
    )


def _bytes_of(gemm: Gemm) -> int:
    return WEIGHT_BYTES * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)


def layer_notes(asked: ResolvedProfile, nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """A sentence for each product on which one layer of the model does not fit with all recipes of the profile.

    Of a model with experts also where it fits, since experts on each GPU are what a user chooses. None for shapes, for
    profiles without training, and where nothing is known of the GPUs.
    """
    spec, model = asked.profile.spec, asked.resolved.model
    if model is None or not spec.benchmarks.training.enabled:
        return ()
    rooms = {
        product: layer_room(asked.resolved, recipes_of(spec, node), mib * MIB, spec.benchmarks.baseline)
        for product, (node, mib) in _smallest(nodes).items()
    }
    return tuple(f"{product}: {room[1]}" for product, room in rooms.items() if room and (model.moe or not room[0]))


def _smallest(nodes: Iterable[NodeFacts]) -> Mapping[str, tuple[NodeFacts, int]]:
    """Of each product, in order, the node whose GPUs have the least memory, with that in MiB, where it is known."""
    sizes = [(node.gpu, node, node.memory_mib) for node in nodes if node.gpu and node.memory_mib]
    smallest: dict[str, tuple[NodeFacts, int]] = {}
    for product, node, mib in sorted(sizes, key=lambda row: (row[0], -row[2])):
        smallest[product] = node, mib
    return smallest
