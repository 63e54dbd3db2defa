"""Workloads as the planner tells them apart: by model and sequence length, whatever their batch sizes."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from precision_api.model import ModelSpec
from precision_api.resolution import ResolvedWorkload, resolve, written_out
from precision_api.workload import Workload
from precision_operator.planner.fleet import WorkloadFacts
from precision_operator.planner.predict import Target
from precision_operator.planner.quantities import Problem, Unusable, count


def model_key(model: ModelSpec, sequence_length: int) -> str:
    """Sixteen hex digits over model and sequence length; equal for a preset and the model that it stands for."""
    content = written_out(model) | {"sequenceLength": sequence_length}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def measured_workload(found: ResolvedWorkload) -> WorkloadFacts:
    """A resolved workload as the fleet knows it."""
    sequence = found.workload.sequence_length
    if found.model is None or sequence is None:
        return WorkloadFacts(key=f"shapes-{found.hash}", name=found.name)
    return WorkloadFacts(
        key=model_key(found.model, sequence),
        name=found.name,
        flops_per_token=found.training_flops_per_token,
        sequence_length=sequence,
        model=found.model,
    )


def target(workload: Workload | None, parameters: str | None, field: str) -> Target:
    """The workload that a job asks for. Raises Unusable where it can't be worked out, or is no model."""
    if workload is None:
        assert parameters is not None
        number = count(parameters, f"{field}.parameters")
        # 6 FLOPs a parameter and token (Kaplan et al. 2020, eq. 2.2); attention is not in it.
        return Target(key=f"parameters-{number:.6g}", name=f"{parameters} parameters", flops_per_token=6 * number)
    try:
        return _resolved(workload, field)
    except Unusable:
        raise
    except ValueError as error:
        raise Unusable(Problem(f"{field}.workload", str(error))) from None


@lru_cache(maxsize=1024)
def _resolved(workload: Workload, field: str) -> Target:
    found = resolve(workload)
    if found.model is None or found.training_flops_per_token is None or found.workload.sequence_length is None:
        text = "explicit shapes are no model, so tokens have no FLOPs: give a model, a preset or parameters"
        raise Unusable(Problem(f"{field}.workload.{'shapes' if workload.gemms is None else 'gemms'}", text))
    return Target(
        key=model_key(found.model, found.workload.sequence_length),
        name=found.name,
        flops_per_token=float(found.training_flops_per_token),
        sequence_length=found.workload.sequence_length,
        model=found.model,
        gemms=found.gemms,
    )
