"""The model families of Hugging Face that can be expressed, as a table.

One row says what the family's layers do where a config is silent: biases, norms, tied heads, windows. Defaults are
those of the config class in transformers 4.57: what a config leaves out is what that class would build.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
    """Keys that every config of the family names; the class default of another one would be another model."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
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


_DEEPSEEK_V3 = ModelFamily(
    ("DeepseekV3ForCausalLM",),
    {"topk_method": "noaux_tc", "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3},
    {"gatedMLP": True},
    (expert_families.latent_attention, expert_families.deepseek_experts, expert_families.multi_token_prediction),
    required=(
        *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"),
        *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    ),
)
_LLAMA_DEFAULTS: expert_families.Facts = {"vocab_size": 32000}
_MISTRAL_DEFAULTS: expert_families.Facts = {"num_key_value_heads": 8, "vocab_size": 32000}
_QWEN_LACKS: expert_families.Facts = {
    "vocab_size": 151936,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_GEMMA_DEFAULTS: expert_families.Facts = {"vocab_size": 256000, "head_dim": 256, "tie_word_embeddings": True}
_ATTN_BIAS = _flags(qkvBias="attention_bias", outBias="attention_bias")
_GATED: expert_families.Facts = {"gatedMLP": True}
_WINDOW_IF_USED = _if_set("use_sliding_window", _window_behind)

FAMILIES: Mapping[str, ModelFamily] = {
    "llama": ModelFamily(("LlamaForCausalLM",), _LLAMA_DEFAULTS, _GATED, (_ATTN_BIAS, _flags(mlpBias="mlp_bias"))),
    "granite": ModelFamily(("GraniteForCausalLM",), _LLAMA_DEFAULTS, _GATED, (_ATTN_BIAS, _flags(mlpBias="mlp_bias"))),
    "mistral": ModelFamily(
        ("MistralForCausalLM",), _MISTRAL_DEFAULTS | {"sliding_window": 4096}, _GATED, (_window_everywhere,)
    ),
    "mixtral": ModelFamily(
        ("MixtralForCausalLM",),
        _MISTRAL_DEFAULTS | {"num_local_experts": 8, "num_experts_per_tok": 2},
        _GATED,
        (_window_everywhere, _mixtral_experts),
        aliases={"num_local_experts": ("num_experts",)},
    ),
    "qwen2": ModelFamily(("Qwen2ForCausalLM",), _QWEN_LACKS, _GATED | {"qkvBias": True}, (_WINDOW_IF_USED,)),
    "qwen2_moe": ModelFamily(
        ("Qwen2MoeForCausalLM",),
        _QWEN_LACKS
        | {
            "num_key_value_heads": 16,
            "qkv_bias": True,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
        },
        _GATED,
        (_flags(qkvBias="qkv_bias"), _WINDOW_IF_USED, _qwen_experts),
    ),
    "qwen3": ModelFamily(
        ("Qwen3ForCausalLM",),
        _QWEN_LACKS | {"head_dim": 128},
        _GATED | {"qkNorm": "PerHead"},
        (_ATTN_BIAS, _WINDOW_IF_USED),
    ),
    "qwen3_moe": ModelFamily(
        ("Qwen3MoeForCausalLM",),
        {
            "vocab_size": 151936,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        _GATED | {"qkNorm": "PerHead"},
        (_ATTN_BIAS, _if_set("use_sliding_window", _window_everywhere), _qwen_experts),
    ),
    "gemma": ModelFamily(("GemmaForCausalLM",), _GEMMA_DEFAULTS | {"num_key_value_heads": 16}, _GATED, (_ATTN_BIAS,)),
    "gemma2": ModelFamily(
        ("Gemma2ForCausalLM",),
        _GEMMA_DEFAULTS | {"num_key_value_heads": 4, "sliding_window": 4096},
        _GATED | {"normsPerLayer": 4},
        (_ATTN_BIAS, _periodic_window(2)),
    ),
    "gemma3_text": ModelFamily(
        ("Gemma3ForCausalLM",),
        _GEMMA_DEFAULTS
        | {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096},
        _GATED | {"normsPerLayer": 4, "qkNorm": "PerHead"},
        (_ATTN_BIAS, _periodic_window(6)),
        # The text_config of the multimodal models leaves out what equals the class's default.
        required=("hidden_size", "intermediate_size", "num_hidden_layers"),
        aliases={"sliding_window_pattern": ("_sliding_window_pattern",)},
    ),
    "deepseek_v2": ModelFamily(
        ("DeepseekV2ForCausalLM",),
        {"topk_method": "greedy", "first_k_dense_replace": 0},
        _GATED,
        (expert_families.latent_attention, expert_families.deepseek_experts),
        required=_DEEPSEEK_V3.required,
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe_lite": ModelFamily(
        ("Glm4MoeLiteForCausalLM",),
        {"topk_method": "noaux_tc", "n_shared_experts": 1, "first_k_dense_replace": 1},
        _GATED,
        _DEEPSEEK_V3.readers,
        required=_DEEPSEEK_V3.required,
    ),
    "glm4_moe": ModelFamily(
        ("Glm4MoeForCausalLM",),
        {"vocab_size": 151552, "topk_method": "noaux_tc", "n_shared_experts": 1, "first_k_dense_replace": 1},
        _GATED,
        (
            *(_flags(qkvBias="attention_bias"), _if_set("use_qk_norm", lambda _: {"qkNorm": "PerHead"})),
            *(expert_families.deepseek_experts, expert_families.multi_token_prediction),
        ),
    ),
    "minimax_m2": ModelFamily(("MiniMaxM2ForCausalLM",), {"vocab_size": 200064}, _GATED, (expert_families.minimax_m2,)),
    "nemotron_h": ModelFamily(
        ("NemotronHForCausalLM",),
        {"vocab_size": 131072, "conv_kernel": 4, "n_groups": 8},
        {},
        (expert_families.nemotron_h,),
        required=(
            *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "mamba_num_heads"),
            *("mamba_head_dim", "ssm_state_size"),
        ),
        counted={"num_hidden_layers": "layers_block_type"},
    ),
    "gpt_oss": ModelFamily(
        ("GptOssForCausalLM",),
        {"vocab_size": 201088, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "attention_bias": True},
        _GATED,
        (_ATTN_BIAS, _periodic_window(2), expert_families.gpt_oss),
        aliases={"num_experts_per_tok": ("experts_per_token",)},
    ),
    "llama4_text": ModelFamily(
        ("Llama4ForCausalLM",),
        {
            "vocab_size": 202048,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size_mlp": 16384,
            "num_experts_per_tok": 1,
            "num_local_experts": 16,
            "interleave_moe_layer_step": 1,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
        },
        _GATED,
        (_ATTN_BIAS, expert_families.llama4),
    ),
    "phi3": ModelFamily(("Phi3ForCausalLM",), {"vocab_size": 32064}, _GATED, (_window_everywhere,)),
    "olmo2": ModelFamily(("Olmo2ForCausalLM",), {"vocab_size": 50304}, _GATED | {"qkNorm": "Full"}, (_ATTN_BIAS,)),
    "starcoder2": ModelFamily(
        ("Starcoder2ForCausalLM",),
        {"vocab_size": 49152, "num_key_value_heads": 2, "use_bias": True, "tie_word_embeddings": True},
        {"normBias": True},
        (_window_everywhere, _flags(qkvBias="use_bias", outBias="use_bias", mlpBias="use_bias")),
    ),
    "gpt2": ModelFamily(
        ("GPT2LMHeadModel",),
        {"vocab_size": 50257, "max_position_embeddings": 1024, "tie_word_embeddings": True},
        {"normBias": True, "mlpBias": True, "qkvBias": True, "outBias": True},
        (_plain_heads, lambda config: {"learnedPositions": config.integer("max_position_embeddings")}),
        required=("hidden_size", "num_hidden_layers", "num_attention_heads"),
        aliases={
            "hidden_size": ("n_embd",),
            "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head",),
            "max_position_embeddings": ("n_positions",),
            "intermediate_size": ("n_inner",),
        },
    ),
    "gpt_neox": ModelFamily(
        ("GPTNeoXForCausalLM",),
        {"vocab_size": 50432, "attention_bias": True},
        {"normBias": True, "mlpBias": True},
        (_plain_heads, _ATTN_BIAS),
    ),
    "falcon": ModelFamily(
        ("FalconForCausalLM",),
        {"vocab_size": 65024, "multi_query": True, "parallel_attn": True, "tie_word_embeddings": True},
        {"normBias": True},
        (_falcon, _flags(qkvBias="bias", outBias="bias", mlpBias="bias")),
        required=("hidden_size", "num_hidden_layers", "num_attention_heads"),
        aliases={"hidden_size": ("n_embed",), "intermediate_size": ("ffn_hidden_size",)},
    ),
}
