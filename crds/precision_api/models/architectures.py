"""The model families of Hugging Face that can be expressed, as a table.

One row of families.json says what the family's layers do where a config is silent: biases, norms, tied heads, windows.
Defaults are those of the config class in transformers 4.57: what a config leaves out is what that class would build.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from precision_api.models import expert_families
from precision_api.models.config_json import Config, Json, shown

Reader = Callable[[Config], expert_families.Facts]


@dataclass(frozen=True)
class ModelFamily:
    """What one model_type means. `facts` hold for every config of it; `readers` take what a config decides."""

    architectures: tuple[str, ...]
    defaults: Json
    facts: Json = field(default_factory=dict)
    readers: tuple[Reader, ...] = ()
    required: tuple[str, ...] = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    """Keys that every config of the family names; the class default of another one would be another model. (The
    text_config of the multimodal models of gemma3_text leaves out what equals the class's default.)"""
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    """Keys that newer configs leave out: they are the length of that list."""


def dimensions(config: Config) -> expert_families.Facts:
    """The fields that all families have."""
    heads = config.integer("num_attention_heads")
    inner = config.optional("intermediate_size") or 4 * config.integer("hidden_size")
    return {
        "hiddenSize": config.integer("hidden_size"),
        "intermediateSize": inner,
        "numAttentionHeads": heads,
        "numKeyValueHeads": config.optional("num_key_value_heads") or heads,
        "headDim": config.optional("head_dim"),
        "numHiddenLayers": config.integer("num_hidden_layers"),
        "vocabSize": config.integer("vocab_size"),
        "tiedEmbedding": config.flag("tie_word_embeddings"),
    }


def _flags(**fields: str) -> Reader:
    """Reads booleans: field of the model = key of the config."""
    return lambda config: {name: config.flag(key) for name, key in fields.items()}


def _window(size: int | None, layers: int) -> expert_families.Facts:
    return {"slidingWindow": {"size": size, "windowedLayers": layers} if size and layers > 0 else None}


def _listed_windows(config: Config) -> expert_families.Facts:
    types, layers = config.items("layer_types"), config.integer("num_hidden_layers")
    if types is None:
        return {}
    if len(types) != layers:
        raise ValueError(f"config.json: layer_types has {len(types)} entries, but there are {layers} layers")
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            raise ValueError(f"config.json: layer_types names {shown(kind)}, which is not supported")
    return _window(config.optional("sliding_window"), types.count("sliding_attention"))


def _window_everywhere(config: Config) -> expert_families.Facts:
    return _window(config.optional("sliding_window"), config.integer("num_hidden_layers"))


def _if_set(key: str, read: Reader) -> Reader:
    return lambda config: read(config) if config.flag(key) else {}


def _window_behind(config: Config) -> expert_families.Facts:
    # The first max_window_layers layers attend to everything, where the class knows that key.
    full = config.optional("max_window_layers", least=0) or 0
    by_rule = _window(config.optional("sliding_window"), config.integer("num_hidden_layers") - full)
    return by_rule | _listed_windows(config)


def _periodic_window(period: int) -> Reader:
    """Every `period`-th layer attends to everything, unless the config says otherwise."""

    def read(config: Config) -> expert_families.Facts:
        layers, every = config.integer("num_hidden_layers"), config.optional("sliding_window_pattern") or period
        return _window(config.optional("sliding_window"), layers - layers // every) | _listed_windows(config)

    return read


def _mixtral_experts(config: Config) -> expert_families.Facts:
    return {"moe": {"numExperts": config.integer("num_local_experts"), "topK": config.integer("num_experts_per_tok")}}


def _qwen_experts(config: Config) -> expert_families.Facts:
    # A layer has experts if decoder_sparse_step divides its number (from 1) and mlp_only_layers (from 0) lacks it.
    layers, step = config.integer("num_hidden_layers"), config.integer("decoder_sparse_step")
    only_mlp = config.items("mlp_only_layers") or []
    if not all(type(index) is int for index in only_mlp):
        raise ValueError(f"config.json: mlp_only_layers must list layer numbers, not {shown(only_mlp)}")
    candidates = range(step - 1, layers, step)
    sparse = len(candidates) - sum(index in candidates for index in set(only_mlp))
    if not sparse or config.optional("num_experts", least=0) in (None, 0):
        return {}
    shared = config.optional("shared_expert_intermediate_size", least=0) or 0
    return {
        "moe": {
            "numExperts": config.integer("num_experts"),
            "topK": config.integer("num_experts_per_tok"),
            "expertIntermediateSize": config.integer("moe_intermediate_size"),
            "sharedExpertIntermediateSize": shared,
            "sharedExpertGate": shared > 0,
            "denseLayers": layers - sparse,
        }
    }


def _plain_heads(config: Config) -> expert_families.Facts:
    # These classes know neither grouped queries nor a head width of its own, whatever a config says.
    return {"numKeyValueHeads": None, "headDim": None}


def _falcon(config: Config) -> expert_families.Facts:
    # Multi-query has one KV head whatever num_kv_heads says; only the new decoder architecture reads it.
    new, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn")
    heads = config.integer("num_attention_heads")
    kv_heads = 1 if config.flag("multi_query") else heads
    norms = config.optional("num_ln_in_parallel_attn") or (2 if new else 1)
    return {
        "numKeyValueHeads": (config.optional("num_kv_heads") or heads) if new else kv_heads,
        "headDim": None,
        "normsPerLayer": 2 if not parallel or norms == 2 else 1,
    }


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_ATTN_BIAS = _flags(qkvBias="attention_bias", outBias="attention_bias")
_MLP_BIAS = _flags(mlpBias="mlp_bias")
_WINDOW_IF_USED = _if_set("use_sliding_window", _window_behind)
_DEEPSEEK_V2 = (expert_families.latent_attention, expert_families.deepseek_experts)
_DEEPSEEK_V3 = (*_DEEPSEEK_V2, expert_families.multi_token_prediction)
_READERS: Mapping[str, tuple[Reader, ...]] = {
    "llama": (_ATTN_BIAS, _MLP_BIAS),
    "granite": (_ATTN_BIAS, _MLP_BIAS),
    "mistral": (_window_everywhere,),
    "mixtral": (_window_everywhere, _mixtral_experts),
    "qwen2": (_WINDOW_IF_USED,),
    "qwen2_moe": (_flags(qkvBias="qkv_bias"), _WINDOW_IF_USED, _qwen_experts),
    "qwen3": (_ATTN_BIAS, _WINDOW_IF_USED),
    "qwen3_moe": (_ATTN_BIAS, _if_set("use_sliding_window", _window_everywhere), _qwen_experts),
    "gemma": (_ATTN_BIAS,),
    "gemma2": (_ATTN_BIAS, _periodic_window(2)),
    "gemma3_text": (_ATTN_BIAS, _periodic_window(6)),
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe_lite": _DEEPSEEK_V3,
    "glm4_moe": (
        *(_flags(qkvBias="attention_bias"), _if_set("use_qk_norm", lambda _: {"qkNorm": "PerHead"})),
        *(expert_families.deepseek_experts, expert_families.multi_token_prediction),
    ),
    "minimax_m2": (expert_families.minimax_m2,),
    "nemotron_h": (expert_families.nemotron_h,),
    "gpt_oss": (_ATTN_BIAS, _periodic_window(2), expert_families.gpt_oss),
    "llama4_text": (_ATTN_BIAS, expert_families.llama4),
    "phi3": (_window_everywhere,),
    "olmo2": (_ATTN_BIAS,),
    "starcoder2": (_window_everywhere, _flags(qkvBias="use_bias", outBias="use_bias", mlpBias="use_bias")),
    "gpt2": (_plain_heads, lambda config: {"learnedPositions": config.integer("max_position_embeddings")}),
    "gpt_neox": (_plain_heads, _ATTN_BIAS),
    "falcon": (_falcon, _flags(qkvBias="bias", outBias="bias", mlpBias="bias")),
}
_ROWS = json.loads(files(__package__).joinpath("families.json").read_text(encoding="utf-8"))
FAMILIES: Mapping[str, ModelFamily] = {
    name: ModelFamily(readers=_READERS[name], **{key: _frozen(value) for key, value in row.items()})
    for name, row in _ROWS.items()
}
