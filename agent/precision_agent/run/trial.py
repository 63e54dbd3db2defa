"""A CPU trial of a model that no CPU gets through: the same architecture, narrower, under a name that says so. Pure.

The narrow model is a workload of its own, with its own shapes, FLOPs and hash: no figure of it is the full model's.
"""

from precision_api.exchange.request import MeasurementRequest
from precision_api.models.model import LatentAttention, ModelSpec
from precision_api.models.workload import Workload, resolve

MOST_LAYER_FLOPS = 4e9
"""Forward and backward of one layer and micro batch: about a tenth of a second on one core."""
HIDDEN, HEADS, TOKENS, VOCABULARY = 256, 4, 128, 1024
MULTIPLE = 32
"""All widths stay multiples of it, so that every FP8 recipe can take them."""


def on_cpu(device: str, request: MeasurementRequest) -> bool:
    """Whether this is a trial on the CPU: asked for by name, or by a request for a node of product CPU."""
    return device == "cpu" or (device == "auto" and request.node.product == "CPU")


def fitted(request: MeasurementRequest) -> tuple[MeasurementRequest, tuple[str, ...]]:
    """The request with a model that a CPU gets through, and a note where that is another one than was asked for.

    Raises ValueError for a workload that can't be resolved.
    """
    workload = resolve(request.workload)
    model, flops, tokens = workload.model, workload.training_flops_per_token, workload.tokens_per_micro_batch
    if model is None or not flops or not tokens or flops * tokens / model.num_hidden_layers <= MOST_LAYER_FLOPS:
        return request, ()
    small = narrowed(model)
    reduced = Workload(
        name=f"{workload.name[:110]} (reduced width)",
        model=small,
        micro_batch_size=1,
        sequence_length=min(TOKENS, workload.workload.sequence_length or TOKENS),
        gradient_accumulation=workload.workload.gradient_accumulation,
    )
    note = (
        f"a CPU trial at reduced width: hidden {small.hidden_size} for {model.hidden_size}, {TOKENS} tokens: "
        f"no figure here is {workload.name}'s"
    )
    return request.model_copy(update={"workload": reduced}), (note[:1024],)


def narrowed(model: ModelSpec) -> ModelSpec:
    """The same kind of layer and as many of them, with hidden 256, its ratio of MLP to hidden, and few heads."""
    inner = _rounded(HIDDEN * model.intermediate_size / model.hidden_size)
    kv = max(1, round(HEADS * model.kv_heads / model.num_attention_heads))
    changes: dict[str, object] = {
        "hidden_size": HIDDEN,
        "intermediate_size": inner,
        "num_attention_heads": HEADS,
        "num_key_value_heads": max(heads for heads in (1, 2, 4) if heads <= kv),
        "head_dim": HIDDEN // HEADS,
        "vocab_size": min(VOCABULARY, model.vocab_size) if model.vocab_size else None,
        "learned_positions": min(TOKENS, model.learned_positions),
        "sliding_window": None,
    }
    if model.latent_attention is not None:
        latent = model.latent_attention
        changes["num_key_value_heads"] = None
        changes["latent_attention"] = LatentAttention(
            query_rank=HIDDEN // 2 if latent.query_rank else None,
            key_value_rank=HIDDEN // 4,
            rope_head_dim=HIDDEN // HEADS // 2,
            value_head_dim=HIDDEN // HEADS,
        )
    if model.hybrid is not None:
        width = {"mamba_heads": MULTIPLE, "mamba_head_dim": 16, "groups": 1, "state_size": HIDDEN // HEADS}
        changes["hybrid"] = model.hybrid.model_copy(update=width)
    if model.moe is not None:
        expert = _rounded(HIDDEN * model.expert_width / model.hidden_size)
        shared, top_k = model.moe.shared_expert_intermediate_size, min(2, model.moe.top_k)
        changes["moe"] = model.moe.model_copy(
            update={
                "num_experts": min(4 * top_k, model.moe.num_experts),  # then an expert has 32 of 128 tokens
                "top_k": top_k,
                "latent_size": HIDDEN // 2 if model.moe.latent_size else None,
                "expert_intermediate_size": expert,
                "shared_expert_intermediate_size": _rounded(HIDDEN * shared / model.hidden_size) if shared else 0,
            }
        )
    return model.model_copy(update=changes)


def _rounded(width: float) -> int:
    return max(MULTIPLE, round(width / MULTIPLE) * MULTIPLE)
