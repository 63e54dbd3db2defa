"""The request that one agent gets: what its profile asks for, on one node, in one attempt."""

from precision_api.exchange import request
from precision_api.facts.mixtures import of_mixtures
from precision_api.facts.recipes import with_bf16
from precision_operator.core.eligibility.request import ResolvedProfile, recipes_of
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.reasons import Said, said

DEADLINE_SECONDS = {"quick": 1800, "standard": 5400}
"""When an agent ends itself with what it has: about five times the planned seconds of five recipes of an 8B model, 342
and 1,130 (docs/development/decisions/0012)."""


def measurement_request(asked: ResolvedProfile, facts: NodeFacts, run: str, attempt: int) -> request.MeasurementRequest:
    """The request for one node. Recipes: the profile's or the default ones, the baseline, and BF16 for its layers."""
    profile, spec = asked.profile, asked.profile.spec
    assert facts.gpu is not None
    recipes, benchmarks = recipes_of(spec, facts), spec.benchmarks
    return request.MeasurementRequest(
        namespace=profile.namespace,
        profile=profile.name,
        run=run,
        attempt=attempt,
        node=request.RequestNode(
            name=facts.name,
            uid=facts.uid,
            product=facts.gpu,
            gpus=facts.gpus if spec.agent.gpus == "All" else min(1, facts.gpus),
            # none where GPUs come another way than by claim, or the slices do not tell them all
            gpu_uuids=(facts.published.uuids or None) if facts.way == "claim" and facts.published is not None else None,
        ),
        workload=asked.workload,
        recipes=with_bf16(benchmarks.baseline, recipes, benchmarks.last_layers_bf16, of_mixtures(spec.mixtures)),
        mixtures=spec.mixtures or None,
        listed=bool(spec.recipes),
        baseline=benchmarks.baseline,
        recipe_scope=benchmarks.scope,
        last_layers_bf16=benchmarks.last_layers_bf16,
        loss=_loss(asked),
        attention_core=benchmarks.training.attention_core,
        primary_weights="recipe" if benchmarks.training.primary_weights == "recipe" else None,
        weight_gradients=benchmarks.training.weight_gradients,
        may_halve_micro_batch=benchmarks.training.may_halve_micro_batch,
        gemm_modes=benchmarks.gemm.modes if benchmarks.gemm.enabled else (),
        training=benchmarks.training.enabled,
        timing=request.TIMINGS[benchmarks.preset],
        deadline_seconds=DEADLINE_SECONDS[benchmarks.preset],
    )


def _loss(asked: ResolvedProfile) -> request.LossRuns | None:
    benchmarks, model = asked.profile.spec.benchmarks, asked.resolved.model
    loss = benchmarks.loss
    trains = benchmarks.training.enabled and model is not None and bool(model.vocab_size) and not model.no_training_step
    return request.loss_runs(benchmarks.preset, trains, loss.enabled, loss.steps, loss.seeds)


def too_large(document: request.MeasurementRequest) -> Said | None:
    """A refusal when the request outgrows the environment variable that carries it."""
    size = len(request.request_json(document))
    if size <= request.REQUEST_MAX_BYTES:
        return None
    most = f"{request.REQUEST_MAX_BYTES} at most: name fewer shapes in spec.workload.shapes"
    return said("InvalidWorkload", detail=f"the request is {size} bytes, {most}")
