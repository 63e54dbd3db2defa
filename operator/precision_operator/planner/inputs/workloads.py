"""Workloads as the planner tells them apart: by model and sequence length, whatever their batch sizes."""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Gemm
from precision_api.models.workload import ResolvedWorkload, Workload, resolve, written_out
from precision_operator.planner.inputs.fleet import WorkloadFacts
from precision_operator.planner.inputs.quantities import UnusableInput, count, unusable


@dataclass(frozen=True, slots=True, eq=False)
class JobWorkload:
    """The workload of a job, as far as a prediction needs it. Without a model only its FLOPs are known."""

    key: str
    name: str
    flops_per_token: float
    sequence_length: int | None = None
    model: ModelSpec | None = None
    gemms: tuple[Gemm, ...] = ()


def model_key(model: ModelSpec, sequence_length: int) -> str:
    """Sixteen hex digits over model and sequence length; equal for a preset and the model that it stands for."""
    content = written_out(model) | {"sequenceLength": sequence_length}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def measured_workload(resolved: ResolvedWorkload) -> WorkloadFacts:
    """A resolved workload as the fleet knows it."""
    sequence = resolved.workload.sequence_length
    if resolved.model is None or sequence is None:
        return WorkloadFacts(key=f"shapes-{resolved.hash}", name=resolved.name)
    return WorkloadFacts(
        key=model_key(resolved.model, sequence),
        name=resolved.name,
        flops_per_token=resolved.training_flops_per_token,
        sequence_length=sequence,
        model=resolved.model,
    )


def target(workload: Workload | None, parameters: str | None, field: str) -> JobWorkload:
    """The workload that a job asks for. Raises UnusableInput where it can't be worked out, or is no model."""
    if workload is None:
        assert parameters is not None
        number = count(parameters, f"{field}.parameters")
        # 6 FLOPs a parameter and token (Kaplan et al. 2020, eq. 2.2); attention is not in it.
        return JobWorkload(key=f"parameters-{number:.6g}", name=f"{parameters} parameters", flops_per_token=6 * number)
    try:
        return _resolved(workload, field)
    except UnusableInput:
        raise
    except ValueError as error:
        raise unusable(f"{field}.workload", str(error)) from None


@lru_cache(maxsize=1024)
def _resolved(workload: Workload, field: str) -> JobWorkload:
    resolved = resolve(workload)
    if resolved.model is None or resolved.training_flops_per_token is None or resolved.workload.sequence_length is None:
        text = "explicit shapes are no model, so tokens have no FLOPs: give a model, a preset or parameters"
        raise unusable(f"{field}.workload.{'shapes' if workload.gemms is None else 'gemms'}", text)
    return JobWorkload(
        key=model_key(resolved.model, resolved.workload.sequence_length),
        name=resolved.name,
        flops_per_token=float(resolved.training_flops_per_token),
        sequence_length=resolved.workload.sequence_length,
        model=resolved.model,
        gemms=resolved.gemms,
    )
