"""What a config.json of a mixture of experts says of its experts and attention, for the families that differ there.

Each reader gives fields of a ModelSpec, camelCase. Sources: the models' own code on Hugging Face and transformers 4.57.
Modules for multi-token prediction (`num_nextn_predict_layers`, `num_mtp_modules`) become `mtp`, counted apart.
"""

from typing import Any

from precision_api.models.config_json import Config, shown

Facts = dict[str, Any]
"""Fields of a ModelSpec, camelCase."""


def latent_attention(config: Config) -> Facts:
    """MLA of DeepSeek-V2, DeepSeek-V3 and Kimi-K2: `head_dim` of a config is the rotary part alone, and not read."""
    if config.flag("attention_bias"):
        raise ValueError("config.json: attention_bias is true: biases of latent attention are not expressed; set false")
    rope = config.integer("qk_rope_head_dim")
    return {
        "numKeyValueHeads": None,
        "headDim": config.integer("qk_nope_head_dim") + rope,
        "latentAttention": {
            "queryRank": config.optional("q_lora_rank"),
            "keyValueRank": config.integer("kv_lora_rank"),
            "ropeHeadDim": rope,
            "valueHeadDim": config.integer("v_head_dim"),
        },
    }


def deepseek_experts(config: Config) -> Facts:
    """Experts from layer `first_k_dense_replace` on, in every `moe_layer_freq`-th one; shared ones side by side."""
    layers, first = config.integer("num_hidden_layers"), config.optional("first_k_dense_replace", least=0) or 0
    every, experts = config.optional("moe_layer_freq") or 1, config.optional("n_routed_experts")
    sparse = len(range(-(-first // every) * every, layers, every))  # no loop: a tenant's file says how many
    if not sparse or experts is None:
        return {}
    width, shared = config.integer("moe_intermediate_size"), config.optional("n_shared_experts", least=0) or 0
    return {
        "moe": {
            "numExperts": experts,
            "topK": config.integer("num_experts_per_tok"),
            "expertIntermediateSize": width,
            "sharedExpertIntermediateSize": shared * width,
            "denseLayers": layers - sparse,
            "routerBias": config.value("topk_method") == "noaux_tc",
        }
    }


def multi_token_prediction(config: Config) -> Facts:
    """Modules of one more layer each: `num_nextn_predict_layers` of DeepSeek-V3 and GLM-4.5."""
    modules = config.optional("num_nextn_predict_layers", least=0)
    return {"mtp": {"modules": modules}} if modules else {}


def gpt_oss(config: Config) -> Facts:
    """Sinks, and biases everywhere."""
    return {
        "attentionSinks": True,
        "moe": {
            "numExperts": config.integer("num_local_experts"),
            "topK": config.integer("num_experts_per_tok"),
            "routerBias": True,
            "expertBias": True,
        },
    }


def minimax_m2(config: Config) -> Facts:
    """One norm over all query heads, one over all key heads; every layer attends to everything and has experts."""
    if any(kind != 1 for kind in config.items("attn_type_list") or []):
        raise ValueError("config.json: attn_type_list names linear attention, which is not expressed yet")
    if config.flag("use_qk_norm") and config.value("qk_norm_type") != "per_layer":
        raise ValueError(
            f"config.json: qk_norm_type {shown(config.value('qk_norm_type'))} is not known, only per_layer"
        )
    modules, layers = config.optional("num_mtp_modules", least=0), config.optional("mtp_transformer_layers") or 1
    if modules and layers != 1:
        raise ValueError(
            f"config.json: mtp_transformer_layers is {layers}: modules of one layer are known; set it to 1"
        )
    return {
        "mtp": {"modules": modules} if modules and config.flag("use_mtp") else None,
        "qkNorm": "Full" if config.flag("use_qk_norm") else "None",
        "moe": {
            "numExperts": config.integer("num_local_experts"),
            "topK": config.integer("num_experts_per_tok"),
            "routerBias": config.flag("use_routing_bias"),
        },
    }


PATTERN = {"M": "Mamba-2", "*": "attention", "-": "MLP", "E": "experts"}
"""Letters of `hybrid_override_pattern`, one a layer."""


def nemotron_h(config: Config) -> Facts:
    """Layers of one block and one norm each; squared ReLU without a gate; the experts' correction bias is a buffer."""
    text = _pattern(config, "hybrid_override_pattern", "layers_block_type")
    layers = config.integer("num_hidden_layers")
    if not isinstance(text, str) or not text or set(text) - set(PATTERN):
        raise ValueError(
            f"config.json: hybrid_override_pattern must be letters of {''.join(PATTERN)}, not {shown(text)}"
        )
    if len(text) != layers:
        raise ValueError(f"config.json: hybrid_override_pattern has {len(text)} letters, but there are {layers} layers")
    for key in ("use_bias", "mamba_proj_bias", "mlp_bias", "attention_bias"):
        if config.flag(key):
            raise ValueError(f"config.json: {key} is true: biases of this family are not expressed; set false")
    counts = {kind: text.count(letter) for letter, kind in PATTERN.items()}
    if not counts["Mamba-2"]:
        raise ValueError("config.json: hybrid_override_pattern has no M: describe the model with model")
    hybrid = {
        "mambaLayers": counts["Mamba-2"],
        "attentionLayers": counts["attention"],
        "mambaHeads": config.integer("mamba_num_heads"),
        "mambaHeadDim": config.integer("mamba_head_dim"),
        "groups": config.integer("n_groups"),
        "stateSize": config.integer("ssm_state_size"),
        "convKernel": config.integer("conv_kernel"),
    }
    head = config.optional("head_dim") or config.optional("attention_head_dim")
    facts: Facts = {"hybrid": hybrid, "normsPerLayer": 1, "headDim": head}
    if counts["experts"]:
        shared = config.optional("moe_shared_expert_intermediate_size", least=0) or 0
        facts["moe"] = {
            "numExperts": config.integer("n_routed_experts"),
            "topK": config.integer("num_experts_per_tok"),
            "expertIntermediateSize": config.integer("moe_intermediate_size"),
            "sharedExpertIntermediateSize": shared * (config.optional("n_shared_experts", least=0) or 0),
            "denseLayers": counts["MLP"],
            "latentSize": config.optional("moe_latent_size"),
        }
    return facts | _hybrid_modules(config)


_BLOCKS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Names of `layers_block_type`, as newer configs list them, with the letters of patterns."""


def _pattern(config: Config, key: str, list_key: str) -> Any:
    """The pattern of `key`, or the blocks that `list_key` lists instead, as letters; ? for one that is not known."""
    listed = config.items(list_key)
    if config.value(key) is None and listed:
        return "".join(_BLOCKS.get(str(kind), "?") for kind in listed)
    return config.value(key)


def _hybrid_modules(config: Config) -> Facts:
    modules = config.optional("num_nextn_predict_layers", least=0)
    if not modules:
        return {}
    pattern = _pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if not isinstance(pattern, str) or not pattern or set(pattern) - set(PATTERN):
        raise ValueError(
            f"config.json: num_nextn_predict_layers is {modules}, so mtp_hybrid_override_pattern must be letters of "
            f"{''.join(PATTERN)}, not {shown(pattern)}"
        )
    return {"mtp": {"modules": modules, "pattern": pattern}}


def llama4(config: Config) -> Facts:
    """A shared expert beside the routed ones; the other layers have an MLP of `intermediate_size_mlp`.

    Layers with rotary positions attend within chunks. The norms of query and key have no weights.
    """
    layers, step = config.integer("num_hidden_layers"), config.integer("interleave_moe_layer_step")
    sparse = config.items("moe_layers")
    count = len(range(step - 1, layers, step)) if sparse is None else len(sparse)
    width = config.integer("intermediate_size")
    moe = {
        "numExperts": config.integer("num_local_experts"),
        "topK": config.integer("num_experts_per_tok"),
        "expertIntermediateSize": width,
        "sharedExpertIntermediateSize": width,
        "denseLayers": layers - count,
    }
    return {
        "intermediateSize": config.integer("intermediate_size_mlp"),
        "moe": moe if count else None,
        "slidingWindow": _chunks(config, layers),
    }


def _chunks(config: Config, layers: int) -> Facts | None:
    size = config.optional("attention_chunk_size")
    kinds, rotary = config.items("layer_types"), config.items("no_rope_layers")
    if kinds is not None:
        for kind in kinds:
            if kind not in ("full_attention", "chunked_attention"):
                raise ValueError(f"config.json: layer_types names {shown(kind)}, which is not supported")
        chunked = kinds.count("chunked_attention")
    elif rotary:  # 1 where a layer has rotary positions
        chunked = sum(bool(layer) for layer in rotary)
    else:
        chunked = layers - layers // config.integer("no_rope_layer_interval")
    return {"size": size, "windowedLayers": chunked, "chunked": True} if size and chunked else None
