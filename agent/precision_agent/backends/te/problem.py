"""What is trained, out of the request."""

from dataclasses import dataclass

from precision_agent.backends.te.api import Api, absent_part
from precision_api.exchange.request import AttentionCore, MeasurementRequest
from precision_api.exchange.result import Failure, WeightGradients
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import Split
from precision_api.models.workload import resolve


@dataclass(frozen=True, slots=True)
class Problem:
    """What is trained: a model's layers and head, by one GPU of the groups that share matrices and experts."""

    model: ModelSpec
    micro_batch: int
    sequence: int
    split: Split
    accumulation: int
    seed: int
    weight_gradients: WeightGradients = "fused"
    attention_core: AttentionCore | None = None
    primary_weights: bool = False

    @property
    def tokens(self) -> int:
        """Of one micro batch."""
        return self.micro_batch * self.sequence


def problem_of(request: MeasurementRequest, api: Api) -> Problem | Failure | None:
    """What is trained; None for bare shapes, a Failure for what can't be made of Transformer Engine's modules."""
    workload = resolve(request.workload)
    plain, model = workload.workload, workload.model
    if model is None:
        return None
    part = model.no_training_step
    if part is not None:
        message = f"not_available({part}): no training step of Transformer Engine's has this; the GEMMs are measured"
        return Failure(reason="not_available", message=message)
    absent = absent_part(api, model.step_parts)
    if absent:
        return Failure(reason="not_available", message=absent)
    assert plain.micro_batch_size is not None
    assert plain.sequence_length is not None
    return Problem(
        model=model,
        micro_batch=plain.micro_batch_size,
        sequence=plain.sequence_length,
        split=Split(plain.tensor_parallel, plain.expert_parallel),
        accumulation=plain.gradient_accumulation,
        seed=request.timing.seed,
        weight_gradients=request.weight_gradients or "fused",
        attention_core=request.attention_core,
        primary_weights=bool(request.primary_weights),
    )
