"""Modules for multi-token prediction, counted apart from the model they belong to.

A module takes the hidden state and the embedding of the next token, each through a norm, projects them from twice
hiddenSize back to hiddenSize, and passes one more layer (hybrid models: a short pattern of layers), a last norm and the
shared head (DeepSeek-V3, arXiv 2412.19437, section 2.2). Megatron-Bridge's formula leaves the projection of hybrid
models out; here it is counted, since the module has it.
"""

from precision_api.models.flops import parameters, training_flops_per_token
from precision_api.models.model import ModelSpec


def layers_of_a_module(model: ModelSpec) -> ModelSpec | None:
    """The layers of one module with their last norm, as a model without a vocabulary; None where there is no module."""
    mtp, moe, hybrid = model.mtp, model.moe, model.hybrid
    if mtp is None:
        return None
    pattern = mtp.pattern
    if hybrid is not None and pattern is not None:
        hybrid = hybrid.model_copy(update={"mamba_layers": pattern.count("M"), "attention_layers": pattern.count("*")})
        moe = moe if "E" in pattern else None
    dense = pattern.count("-") if pattern else 0
    return model.model_copy(
        update={
            "num_hidden_layers": len(pattern) if pattern else 1,
            "moe": moe.model_copy(update={"dense_layers": dense}) if moe else None,
            "hybrid": hybrid,
            "sliding_window": None,
            "vocab_size": None,
            "tied_embedding": False,
            "learned_positions": 0,
            "mtp": None,
        }
    )


def mtp_parameters(model: ModelSpec) -> int:
    """Weights of all modules, without the embedding and the head that they share with the model."""
    module = layers_of_a_module(model)
    if module is None or model.mtp is None:
        return 0
    return model.mtp.modules * (parameters(module).total + _projection(model) + _two_norms(model))


def mtp_flops_per_token(model: ModelSpec, sequence_length: int) -> int:
    """Training FLOPs that the modules add for one token, their passes through the shared head among them."""
    module = layers_of_a_module(model)
    if module is None or model.mtp is None:
        return 0
    head = (model.vocab_size or 0) * model.hidden_size
    beside = 6 * (_projection(model) + _two_norms(model) + head)
    return model.mtp.modules * (training_flops_per_token(module, sequence_length) + beside)


def _projection(model: ModelSpec) -> int:
    return 2 * model.hidden_size * model.hidden_size


def _two_norms(model: ModelSpec) -> int:
    """Weights of the norms before the projection; the one behind the layers is counted with them."""
    return 2 * model.hidden_size * (2 if model.norm_bias else 1)
