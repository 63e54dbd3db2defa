"""What is asked of an agent: a profile's workload resolved, the run that it belongs to, the request for one node.

And does it fit on the GPUs that the profile names: the job, one layer with all recipes, a GEMM?
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter

from pydantic import ValidationError

from precision_api.exchange.request import digest
from precision_api.facts.mixtures import Parts, named_of
from precision_api.facts.plain_text import three_digits
from precision_api.facts.recipes import PlainRecipe, Recipe, by_default
from precision_api.kinds.profile import ProfileSpec
from precision_api.models.memory import WEIGHT_BYTES, too_large, training_memory
from precision_api.models.room import layer_room
from precision_api.models.shapes import Gemm, same_as_recipe, step_shape_problems
from precision_api.models.workload import ResolvedWorkload, Workload, resolve
from precision_operator.core.eligibility.schedule import schedule_problem
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import AcceptedProfile, Observed, ProfileView, Settings
from precision_operator.core.observe.views import spec_problem
from precision_operator.core.reasons import Said, said

MIB = 1 << 20


@dataclass(frozen=True)
class ResolvedProfile:
    """What a profile asks of every node: `run` is equal as long as what is measured is the same."""

    profile: AcceptedProfile = field(compare=False)
    """Who asks. Not compared: its status changes while what it asks for does not."""
    workload: Workload
    resolved: ResolvedWorkload
    image: str
    run: str
    """Hash over what is measured, but for the image."""

    @cached_property
    def image_digest(self) -> str:
        """What runs keep of the image's name; empty where none is named."""
        return digest(self.image, 10) if self.image else ""


def resolve_profile(profile: ProfileView, observed: Observed) -> ResolvedProfile | Said:
    """What `profile` asks for, or why it can't be asked."""
    spec = profile.spec
    if spec is None:
        return said("InvalidSpec", detail=profile.problem)
    image = spec.agent.image or observed.settings.agent_image
    spec, text = observed.book.as_before(("spec", profile.uid), spec), observed.config_maps
    workload = observed.book.as_before(("workload", profile.uid), with_text(spec.workload, profile.namespace, text))
    problems = (
        _image_problem(image, observed.settings),
        None if observed.priority_class_exists else said("PriorityClassMissing", name=observed.settings.priority_class),
        _queue_problem(profile, spec, observed),
        said("InvalidSchedule", detail=clock) if (clock := schedule_problem(spec.schedule, observed.now)) else None,
        workload,
    )
    for problem in problems:
        if isinstance(problem, Said):
            return problem
    assert isinstance(workload, Workload)
    resolved = observed.book.of(("resolved", profile.uid), (spec, workload), partial(_resolved, spec, workload))
    if isinstance(resolved, Said):
        return resolved
    accepted = observed.book.of(("accepted", profile.uid), (profile,), partial(AcceptedProfile.of, profile, spec))
    return ResolvedProfile(accepted, resolved[0].workload, resolved[0], image, resolved[1])


def _resolved(spec: ProfileSpec, workload: Workload) -> tuple[ResolvedWorkload, str] | Said:
    """The workload, and the run that measures it."""
    try:
        resolved = resolve(workload)
    except ValueError as error:
        return said("InvalidWorkload", detail=str(error))
    misfit = _misfit(resolved, spec) or _too_many_kept(resolved, spec.benchmarks.last_layers_bf16)
    return said("InvalidWorkload", detail=misfit) if misfit else (resolved, _run(spec, resolved))


def recipes_of(spec: ProfileSpec, facts: NodeFacts) -> tuple[PlainRecipe, ...]:
    """The profile's recipes, else all but variants that the node's GPUs run natively; of a product that is in no table
    the agent tries each, and Transformer Engine decides."""
    return tuple(spec.recipes) or by_default(facts.compute if facts.product else None)


def _run(spec: ProfileSpec, resolved: ResolvedWorkload) -> str:
    """Ten hex digits over what is measured: editing rollout, target or retention starts no new run.

    Defaults are left out, so that an operator that knows a field more does not measure every fleet anew.
    """
    benchmarks = spec.benchmarks.model_dump(mode="json", exclude_defaults=True)
    if not spec.benchmarks.loss.enabled:  # false was written into profiles as a default, before the preset decided
        benchmarks.pop("loss", None)
    fewer = [] if spec.agent.gpus == "All" else [spec.agent.gpus]
    mixtures = [mixture.model_dump(mode="json") for mixture in sorted(spec.mixtures, key=attrgetter("name"))]
    return digest([resolved.hash, sorted(spec.recipes), benchmarks, *fewer, *mixtures], 10)


def _image_problem(image: str, settings: Settings) -> Said | None:
    if not image:
        return said("ImageMissing")
    if any(_has_prefix(image, prefix) for prefix in settings.allowed_images):
        return None
    return said("ImageNotAllowed", image=image, allowed=", ".join(settings.allowed_images) or "none")


def _queue_problem(profile: ProfileView, spec: ProfileSpec, observed: Observed) -> Said | None:
    queue = spec.agent.queue_name
    if queue is None or observed.queues.get((profile.namespace, queue), True):
        return None
    return said("QueueMissing", name=queue, namespace=profile.namespace)


def _has_prefix(image: str, prefix: str) -> bool:
    """Whole path components only: `registry/team` allows `registry/team/agent`, not `registry/teamsters/agent`.

    Nor does `registry` allow `registry:5000/agent`: what follows the colon is no tag but another registry's port.
    """
    if not image.startswith(prefix):
        return False
    rest = image[len(prefix) :]
    return prefix.endswith("/") or rest[:1] in ("", "/", "@") or (rest[:1] == ":" and "/" not in rest)


def with_text(
    workload: Workload, namespace: str, config_maps: Mapping[tuple[str, str], Mapping[str, str] | None]
) -> Workload | Said:
    source = workload.hugging_face_config
    ref = source.config_map_key_ref if source is not None else None
    if source is None or ref is None:
        return workload
    data = config_maps.get((namespace, ref.name))
    if data is None:
        return said("ConfigMapMissing", name=ref.name, namespace=namespace, key=ref.key)
    if ref.key not in data:
        return said("ConfigMapKeyMissing", name=ref.name, key=ref.key, keys=", ".join(sorted(data)) or "none")
    try:
        filled = source.model_validate({"text": data[ref.key]})
    except ValidationError as error:
        detail = spec_problem(error, f"ConfigMap {ref.name}, key {ref.key}")
        return said("InvalidWorkload", detail=detail)
    return workload.model_copy(update={"hugging_face_config": filled})


def _misfit(resolved: ResolvedWorkload, spec: ProfileSpec) -> str | None:
    """Why a recipe that is named, a mixture's part too, can't take the workload's shapes; None where all fit."""
    asked: dict[str, tuple[Recipe | Parts, str]] = {}
    asked |= {f"recipe {name}": (name, f"take {name} out of spec.recipes") for name in spec.recipes}
    asked |= {f"mixture {it.name}": (it.parts, "give that part another recipe") for it in spec.mixtures}
    baseline = spec.benchmarks.baseline
    asked[f"baseline {baseline}"] = named_of(spec.mixtures)[baseline], "name another benchmarks.baseline"
    for what, (recipe, remedy) in asked.items():
        errors = [p.message for p in step_shape_problems(resolved.gemms, recipe) if p.severity == "error"]
        if errors:
            return f"{what}: {errors[0]} (change the shape, or {remedy})"
    return same_as_recipe(spec.mixtures, resolved.gemms)


def _too_many_kept(resolved: ResolvedWorkload, kept: int | None) -> str | None:
    """Why no layer would be left for the recipes; None where some are."""
    layers = resolved.model.num_hidden_layers if resolved.model else None
    if not kept or layers is None or kept < layers:
        return None
    return f"benchmarks.lastLayersBF16 is {kept}, and the model has {layers} layers: keep fewer of them in BF16"


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
        product: layer_room(asked.resolved, recipes_of(spec, node), mib * MIB, spec.benchmarks.baseline, spec.mixtures)
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
