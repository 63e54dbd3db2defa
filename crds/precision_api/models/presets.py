"""Models that are known by name. Dimensions are those of the published config.json, parameters those of the card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from precision_api.facts.products import ProductClass
from precision_api.models.model import Hybrid, LatentAttention, ModelSpec, MoE, SlidingWindow

PresetName = Literal[
    "codonfm-5b",
    "llama3-8b",
    "llama3.1-70b",
    "llama3.1-405b",
    "mistral-7b",
    "mixtral-8x7b",
    "qwen2.5-7b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "gemma2-9b",
    "gpt-oss-120b",
    "kimi-k2",
    "llama4-scout",
    "nemotron-3-nano-30b-a3b",
    "nemotron-h-56b",
    "qwen3-coder-480b-a35b",
]


@dataclass(frozen=True, slots=True)
class Preset:
    """A model, and the micro batch and sequence that are used where a workload gives none."""

    model: ModelSpec
    micro_batch_size: int
    sequence_length: int
    source: str


_SIZES = "hidden_size intermediate_size num_attention_heads num_key_value_heads num_hidden_layers vocab_size"


def _preset(source: str, batch: tuple[int, int], dimensions: tuple[int, ...], **more: object) -> Preset:
    """A model, as a rule with a gated MLP; `batch`: sequences of a micro batch and their tokens."""
    model = dict(zip(_SIZES.split(), dimensions, strict=True)) | {"gated_mlp": True} | more
    return Preset(ModelSpec.model_validate(model), *batch, source)


PRESETS: Mapping[PresetName, Preset] = {
    "codonfm-5b": Preset(
        # An encoder (masked language model over 69 codon tokens): no causal mask. The tutorial gives no vocabulary, so
        # there is no lm_head, and its twelve GEMMs are all there are.
        ModelSpec(
            hidden_size=4096, intermediate_size=16384, num_attention_heads=32, num_hidden_layers=24, causal=False
        ),
        micro_batch_size=31,
        sequence_length=512,
        source="NVIDIA Transformer Engine, GEMM profiling tutorial",
    ),
    "llama3-8b": _preset("meta-llama/Meta-Llama-3-8B", (1, 8192), (4096, 14336, 32, 8, 32, 128256)),
    "llama3.1-70b": _preset("meta-llama/Llama-3.1-70B", (1, 8192), (8192, 28672, 64, 8, 80, 128256)),
    "llama3.1-405b": _preset("meta-llama/Llama-3.1-405B", (1, 8192), (16384, 53248, 128, 8, 126, 128256)),
    "mistral-7b": _preset(
        "mistralai/Mistral-7B-v0.1",
        (1, 8192),
        (4096, 14336, 32, 8, 32, 32000),
        sliding_window=SlidingWindow(size=4096, windowed_layers=32),
    ),
    "mixtral-8x7b": _preset(
        "mistralai/Mixtral-8x7B-v0.1", (1, 4096), (4096, 14336, 32, 8, 32, 32000), moe=MoE(num_experts=8, top_k=2)
    ),
    "qwen2.5-7b": _preset("Qwen/Qwen2.5-7B", (1, 4096), (3584, 18944, 28, 4, 28, 152064), qkv_bias=True),
    "qwen3-8b": _preset("Qwen/Qwen3-8B", (1, 4096), (4096, 12288, 32, 8, 36, 151936), head_dim=128, qk_norm="PerHead"),
    "qwen3-30b-a3b": _preset(
        "Qwen/Qwen3-30B-A3B",
        (1, 4096),
        (2048, 6144, 32, 4, 48, 151936),
        head_dim=128,
        qk_norm="PerHead",
        moe=MoE(num_experts=128, top_k=8, expert_intermediate_size=768),
    ),
    "gemma2-9b": _preset(
        "google/gemma-2-9b",
        (1, 8192),
        (3584, 14336, 16, 8, 42, 256000),
        head_dim=256,
        tied_embedding=True,
        norms_per_layer=4,
        sliding_window=SlidingWindow(size=4096, windowed_layers=21),
    ),
    "gpt-oss-120b": _preset(
        "openai/gpt-oss-120b",
        (1, 4096),
        (2880, 2880, 64, 8, 36, 201088),
        head_dim=64,
        qkv_bias=True,
        out_bias=True,
        attention_sinks=True,
        sliding_window=SlidingWindow(size=128, windowed_layers=18),
        moe=MoE(num_experts=128, top_k=4, router_bias=True, expert_bias=True),
    ),
    "kimi-k2": _preset(
        "moonshotai/Kimi-K2-Instruct",
        (1, 4096),
        (7168, 18432, 64, 64, 61, 163840),
        head_dim=192,
        latent_attention=LatentAttention(query_rank=1536, key_value_rank=512, rope_head_dim=64, value_head_dim=128),
        moe=MoE(
            num_experts=384,
            top_k=8,
            expert_intermediate_size=2048,
            shared_expert_intermediate_size=2048,
            dense_layers=1,
            router_bias=True,
        ),
    ),
    "llama4-scout": _preset(
        # The text model; the vision tower's 871,932,416 weights are left out.
        "meta-llama/Llama-4-Scout-17B-16E",
        (1, 8192),
        (5120, 16384, 40, 8, 48, 202048),
        head_dim=128,
        sliding_window=SlidingWindow(size=8192, windowed_layers=36, chunked=True),
        moe=MoE(num_experts=16, top_k=1, expert_intermediate_size=8192, shared_expert_intermediate_size=8192),
    ),
    "nemotron-3-nano-30b-a3b": _preset(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        (1, 8192),
        (2688, 1856, 32, 2, 52, 131072),
        gated_mlp=False,
        head_dim=128,
        norms_per_layer=1,
        hybrid=Hybrid(mamba_layers=23, attention_layers=6, mamba_heads=64, mamba_head_dim=64, groups=8, state_size=128),
        moe=MoE(num_experts=128, top_k=6, expert_intermediate_size=1856, shared_expert_intermediate_size=3712),
    ),
    "nemotron-h-56b": _preset(
        "nvidia/Nemotron-H-56B-Base-8K",
        (1, 8192),
        (8192, 32768, 64, 8, 118, 131072),
        gated_mlp=False,
        head_dim=128,
        norms_per_layer=1,
        hybrid=Hybrid(
            mamba_layers=54, attention_layers=10, mamba_heads=256, mamba_head_dim=64, groups=8, state_size=256
        ),
    ),
    "qwen3-coder-480b-a35b": _preset(
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        (1, 4096),
        (6144, 8192, 96, 8, 62, 151936),
        head_dim=128,
        qk_norm="PerHead",
        moe=MoE(num_experts=160, top_k=8, expert_intermediate_size=2560),
    ),
}


@dataclass(frozen=True, slots=True)
class PublishedSplit:
    """How NVIDIA split one preset over GPUs of one product for a published rate of `recipe`.

    `pipeline`, `context` and `fully_sharded` are not measured on one node and are told for the reader only.
    """

    preset: PresetName
    product: ProductClass
    recipe: Literal["fp8_current", "mxfp8"]
    gpus: int
    micro_batch_size: int
    tensor_parallel: int
    pipeline: int
    context: int
    expert_parallel: int
    gradient_accumulation: int
    fully_sharded: bool = False


PUBLISHED_SPLITS_SOURCE = (
    "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, 25.11 container, "
    "commit 00b7660be0254ac6f95f44164ddd0c3e9cc798ed"
)
PUBLISHED_SPLITS: tuple[PublishedSplit, ...] = (
    PublishedSplit("llama3-8b", "GB300", "fp8_current", 8, 2, 1, 1, 1, 1, 8),
    PublishedSplit("llama3-8b", "GB200", "fp8_current", 8, 2, 1, 1, 1, 1, 8),
    PublishedSplit("llama3-8b", "B200", "fp8_current", 8, 2, 1, 1, 1, 1, 8),
    PublishedSplit("llama3-8b", "H100", "fp8_current", 8, 1, 1, 1, 1, 1, 16, fully_sharded=True),
    PublishedSplit("llama3.1-70b", "GB300", "fp8_current", 64, 2, 1, 1, 1, 1, 2, fully_sharded=True),
    PublishedSplit("llama3.1-70b", "GB200", "fp8_current", 64, 2, 1, 1, 1, 1, 2, fully_sharded=True),
    PublishedSplit("llama3.1-70b", "H100", "fp8_current", 64, 1, 4, 8, 1, 1, 64),
    PublishedSplit("llama3.1-405b", "GB300", "fp8_current", 256, 1, 2, 8, 2, 1, 192),
    PublishedSplit("llama3.1-405b", "GB200", "fp8_current", 256, 1, 4, 16, 1, 1, 384),
    PublishedSplit("llama3.1-405b", "B200", "fp8_current", 128, 1, 4, 8, 2, 1, 32),
    PublishedSplit("llama3.1-405b", "H100", "fp8_current", 1024, 1, 8, 8, 2, 1, 64),
    PublishedSplit("qwen3-30b-a3b", "GB300", "mxfp8", 8, 4, 1, 1, 1, 8, 16),
    PublishedSplit("qwen3-30b-a3b", "GB200", "mxfp8", 8, 4, 1, 1, 1, 8, 16),
    PublishedSplit("qwen3-30b-a3b", "B200", "mxfp8", 8, 1, 1, 1, 1, 8, 64),
    PublishedSplit("qwen3-30b-a3b", "H100", "fp8_current", 16, 2, 1, 2, 1, 8, 32),
)


def published_split(preset: PresetName, product: str) -> PublishedSplit | None:
    """How NVIDIA split this preset on this product class; None where nothing was published.

    A preset never takes it on by itself: a profile says `tensorParallel` and `expertParallel`.
    """
    return next((row for row in PUBLISHED_SPLITS if (row.preset, row.product) == (preset, product)), None)
