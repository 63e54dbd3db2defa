"""A model by its dimensions, and the rules between them; with the parts that not every model has.

These are experts, windows, latent attention, Mamba-2, multi-token prediction.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from precision_api.facts.schema import Document, Rule


def strict(least: int, most: int) -> Any:
    """The field of a whole number from `least` to `most`.

    Strict: pydantic would else take true for 1 and "32" for 32, which the API server refuses.
    """
    return Field(strict=True, ge=least, le=most)


Width = Annotated[int, strict(1, 1_048_576)]
"""A width of a weight matrix. The widest in use (vocabularies apart) are below 10^5."""
Heads = Annotated[int, strict(1, 8192)]
HeadWidth = Annotated[int, strict(1, 16_384)]
Layers = Annotated[int, strict(1, 2048)]
LayersOrNone = Annotated[int, strict(0, 2048)]
Experts = Annotated[int, strict(2, 8192)]
Sequence = Annotated[int, strict(1, 16_777_216)]


class MoE(Document):
    """The mixture of experts of a model; layers that have none stay dense, with the model's intermediateSize."""

    RULES = (
        Rule(
            "self.topK <= self.numExperts",
            "moe.topK must be at most moe.numExperts",
            lambda moe: moe.top_k <= moe.num_experts,
        ),
        Rule(
            "!(has(self.sharedExpertGate) && self.sharedExpertGate) || "
            "(has(self.sharedExpertIntermediateSize) && self.sharedExpertIntermediateSize > 0)",
            "moe.sharedExpertGate needs a shared expert: give moe.sharedExpertIntermediateSize",
            lambda moe: not moe.shared_expert_gate or moe.shared_expert_intermediate_size > 0,
        ),
    )

    num_experts: Experts = Field(description="Experts of one layer, without shared ones.")
    top_k: Annotated[int, strict(1, 8192)] = Field(description="Experts that one token is sent to.")
    expert_intermediate_size: Width | None = Field(
        None, description="Inner width of one expert; left out, the model's intermediateSize."
    )
    shared_expert_intermediate_size: Annotated[int, strict(0, 1_048_576)] = Field(
        0, description="Inner width of the shared expert that every token passes through; 0 means there is none."
    )
    shared_expert_gate: StrictBool = Field(False, description="Whether the shared expert has a learned scalar gate.")
    dense_layers: LayersOrNone = Field(0, description="Layers that have one dense MLP in place of experts.")
    latent_size: Width | None = Field(
        None,
        description="Width that tokens are projected to before the routed experts and back from behind them; left out, "
        "experts take the model's hiddenSize. Router and shared expert always do.",
    )
    router_bias: StrictBool = Field(
        False, description="Whether the router has a number for each expert beside its matrix: a bias or a correction."
    )
    expert_bias: StrictBool = Field(False, description="Whether the experts' projections have biases (GPT-OSS).")


class SlidingWindow(Document):
    """Layers whose attention looks back over a limited number of tokens."""

    size: Sequence = Field(description="Tokens that one token attends to, itself included.")
    windowed_layers: Layers = Field(description="Layers that have the window; the others attend to everything.")
    chunked: StrictBool = Field(
        False, description="Whether the sequence is cut into chunks of this size that don't see each other (Llama 4)."
    )


class LatentAttention(Document):
    """Multi-head latent attention (MLA, DeepSeek-V2, arXiv 2405.04434): queries, keys and values through narrow ranks.

    A head's query and key are as wide as `headDim` of the model: the part without rotary positions and `ropeHeadDim`.
    """

    query_rank: Width | None = Field(
        None, description="Rank of the queries; left out, they are projected from the residual stream at once."
    )
    key_value_rank: Width = Field(description="Rank that keys and values share.")
    rope_head_dim: HeadWidth = Field(description="Part of headDim with rotary positions; one such key for all heads.")
    value_head_dim: HeadWidth = Field(description="Width of a head's values.")


class Hybrid(Document):
    """A model whose layers are one block each: a Mamba-2 mixer, attention, or an MLP or experts (Nemotron-H).

    Layers that are neither mixers nor attention have experts where the model has `moe`, but for `moe.denseLayers`.
    """

    mamba_layers: Layers = Field(description="Layers that are a Mamba-2 mixer.")
    attention_layers: LayersOrNone = Field(description="Layers that are attention.")
    mamba_heads: Heads = Field(description="Heads of a mixer.")
    mamba_head_dim: HeadWidth = Field(description="Width of one of them.")
    groups: Heads = Field(description="Groups of heads that share their B and C.")
    state_size: Width = Field(description="Numbers in the state of each feature of a head.")
    conv_kernel: Annotated[int, strict(1, 64)] = Field(4, description="Tokens that the convolution looks back over.")

    @property
    def inner_width(self) -> int:
        """Features of the mixer: heads x width."""
        return self.mamba_heads * self.mamba_head_dim

    @property
    def convolved_width(self) -> int:
        """Features that are convolved: the mixer's own, and B and C of each group."""
        return self.inner_width + 2 * self.groups * self.state_size


class MultiTokenPrediction(Document):
    """Modules that predict the tokens after the next one (DeepSeek-V3, arXiv 2412.19437; Nemotron 3 Super).

    Each has one more layer, a projection from twice hiddenSize, three norms, and shares embedding and head.
    """

    modules: Annotated[int, strict(1, 16)] = Field(description="Modules, each with weights of its own.")
    pattern: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[M*E-]+$")] | None = Field(
        None,
        description="Layers of one module of a hybrid model: M for Mamba-2, * for attention, - for an MLP, E for "
        "experts. Left out, a module has one layer like the model's last one.",
    )


class ModelSpec(Document):
    """A decoder or encoder transformer, as far as its matrix shapes, parameters and FLOPs need it.

    The defaults describe the plain transformer of NVIDIA's GEMM profiling tutorial: no gate, no biases, two RMS norms a
    layer. Everything below `vocabSize` exists so that parameter counts agree with model cards exactly.
    """

    RULES = (
        Rule(
            "has(self.headDim) || self.hiddenSize % self.numAttentionHeads == 0",
            "hiddenSize must be a multiple of numAttentionHeads; if heads are narrower or wider, give headDim",
            lambda m: m.head_dim is not None or m.hidden_size % m.num_attention_heads == 0,
        ),
        Rule(
            "!has(self.numKeyValueHeads) || self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numAttentionHeads must be a multiple of numKeyValueHeads",
            lambda m: m.num_attention_heads % m.kv_heads == 0,
        ),
        Rule(
            "!has(self.moe) || !has(self.moe.denseLayers) || self.moe.denseLayers < self.numHiddenLayers",
            "moe.denseLayers must be less than numHiddenLayers; for a model without experts leave moe out",
            lambda m: m.moe is None or m.moe_layers > 0,
        ),
        Rule(
            "!has(self.slidingWindow) || self.slidingWindow.windowedLayers <= self.numHiddenLayers",
            "slidingWindow.windowedLayers must be at most numHiddenLayers",
            lambda m: m.sliding_window is None or m.sliding_window.windowed_layers <= m.num_hidden_layers,
        ),
        Rule(
            "!has(self.slidingWindow) || !has(self.causal) || self.causal",
            "slidingWindow is only known with causal attention: leave one of the two out",
            lambda m: m.sliding_window is None or m.causal,
        ),
        Rule(
            "!(has(self.tiedEmbedding) && self.tiedEmbedding) || has(self.vocabSize)",
            "tiedEmbedding needs vocabSize",
            lambda m: not m.tied_embedding or m.vocab_size is not None,
        ),
        Rule(
            "!has(self.hybrid) || self.hybrid.mambaLayers + self.hybrid.attentionLayers <= self.numHiddenLayers",
            "hybrid.mambaLayers and hybrid.attentionLayers together must be at most numHiddenLayers",
            lambda m: m.hybrid is None or m.hybrid.mamba_layers + m.hybrid.attention_layers <= m.num_hidden_layers,
        ),
        Rule(
            "!has(self.hybrid) || self.hybrid.mambaHeads % self.hybrid.groups == 0",
            "hybrid.mambaHeads must be a multiple of hybrid.groups",
            lambda m: m.hybrid is None or m.hybrid.mamba_heads % m.hybrid.groups == 0,
        ),
        Rule(
            "!has(self.hybrid) || !(has(self.slidingWindow) || has(self.latentAttention))",
            "hybrid models are known with plain attention alone: leave slidingWindow and latentAttention out",
            lambda m: m.hybrid is None or m.sliding_window is m.latent_attention is None,
        ),
        Rule(
            "!has(self.latentAttention) || (has(self.headDim) && self.headDim > self.latentAttention.ropeHeadDim)",
            "latentAttention needs headDim: a head's width without rotary positions plus latentAttention.ropeHeadDim",
            lambda m: m.latent_attention is None or (m.head_dim or 0) > m.latent_attention.rope_head_dim,
        ),
        Rule(
            "!has(self.latentAttention) || !has(self.numKeyValueHeads) || "
            "self.numKeyValueHeads == self.numAttentionHeads",
            "latentAttention gives each query head a key and a value of its own: leave numKeyValueHeads out",
            lambda m: m.latent_attention is None or m.kv_heads == m.num_attention_heads,
        ),
        Rule(
            "!has(self.latentAttention) || (!(has(self.qkvBias) && self.qkvBias) && "
            "(!has(self.qkNorm) || self.qkNorm == 'None'))",
            "latentAttention has norms of its ranks and no biases: leave qkvBias and qkNorm out",
            lambda m: m.latent_attention is None or (not m.qkv_bias and m.qk_norm == "None"),
        ),
        Rule(
            "!has(self.mtp) || has(self.mtp.pattern) == has(self.hybrid)",
            "mtp.pattern belongs to hybrid models, and only to them",
            lambda m: m.mtp is None or (m.mtp.pattern is None) == (m.hybrid is None),
        ),
        Rule(
            "!has(self.mtp) || !has(self.mtp.pattern) || !self.mtp.pattern.contains('E') || has(self.moe)",
            "mtp.pattern names experts (E), but the model has none: give moe",
            lambda m: m.mtp is None or "E" not in (m.mtp.pattern or "") or m.moe is not None,
        ),
    )

    hidden_size: Width = Field(description="Width of the residual stream (H).")
    intermediate_size: Width = Field(description="Inner width of the MLP (I), without the doubling of a gate.")
    num_attention_heads: Heads = Field(description="Query heads.")
    num_key_value_heads: Heads | None = Field(
        None, description="Key and value heads; left out, as many as query heads (no grouped-query attention)."
    )
    head_dim: HeadWidth | None = Field(
        None, description="Width of one head; left out, hiddenSize / numAttentionHeads, which must then divide."
    )
    num_hidden_layers: Layers = Field(description="Transformer layers (L).")
    vocab_size: Annotated[int, strict(1, 4_194_304)] | None = Field(
        None,
        description="Rows of the embedding (V). Left out, there is no lm_head GEMM and parameters are counted without "
        "embedding and head.",
    )
    gated_mlp: StrictBool = Field(
        False,
        alias="gatedMLP",
        description="Whether the MLP is gated (SwiGLU, GeGLU): its first GEMM is twice as wide.",
    )
    moe: MoE | None = Field(None, description="Mixture of experts; left out, every layer has one dense MLP.")
    hybrid: Hybrid | None = Field(
        None, description="Layers of one block each, Mamba-2 among them; left out, each layer is attention and MLP."
    )
    latent_attention: LatentAttention | None = Field(
        None, description="Multi-head latent attention (MLA); left out, one projection makes query, key and value."
    )
    attention_sinks: StrictBool = Field(
        False, description="Whether each head has a learned sink that takes a part of its attention (GPT-OSS)."
    )
    sliding_window: SlidingWindow | None = Field(
        None, description="Layers with windowed attention; left out, every layer attends to the whole sequence."
    )
    causal: StrictBool = Field(
        True, description="Whether attention is causal; without a causal mask it costs twice as much."
    )
    tied_embedding: StrictBool = Field(False, description="Whether the head shares the embedding's weights.")
    qkv_bias: StrictBool = Field(False, description="Whether query, key and value projections have biases.")
    out_bias: StrictBool = Field(False, description="Whether the attention's output projection has a bias.")
    mlp_bias: StrictBool = Field(False, description="Whether the dense MLP's projections have biases.")
    qk_norm: Literal["None", "PerHead", "Full"] = Field(
        "None",
        description="Norms of query and key: None, PerHead (headDim weights each, as Qwen3) or Full (a weight for each "
        "projected feature, as OLMo 2).",
    )
    norms_per_layer: Annotated[int, strict(0, 8)] = Field(
        2, description="Norms of width hiddenSize in one layer (Gemma 2 has 4)."
    )
    norm_bias: StrictBool = Field(False, description="Whether norms have a bias (LayerNorm) or none (RMSNorm).")
    learned_positions: Annotated[int, strict(0, 16_777_216)] = Field(
        0, description="Rows of a learned position table (GPT-2); 0 where positions are computed."
    )
    mtp: MultiTokenPrediction | None = Field(
        None,
        description="Modules for multi-token prediction. They are counted apart: parameters, FLOPs per token and the "
        "measured GEMMs are those of the model without them.",
    )

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def query_width(self) -> int:
        """heads x headDim, which is not always hiddenSize: what the scores sum over."""
        return self.num_attention_heads * self.head_width

    @property
    def attention_width(self) -> int:
        """heads x width of a head's value: what attention gives to its output projection."""
        latent = self.latent_attention
        return self.num_attention_heads * (latent.value_head_dim if latent else self.head_width)

    @property
    def no_training_step(self) -> str | None:
        """The field whose part no backend has in a training step yet; None where all parts are there.

        The GEMMs of such a model are measured; there is no training figure.
        """
        window = self.sliding_window
        parts = {"hybrid": self.hybrid is not None, "slidingWindow.chunked": window is not None and window.chunked}
        return next((name for name, there in parts.items() if there), None)

    @property
    def step_parts(self) -> tuple[str, ...]:
        """The fields whose parts a training step needs beside those of a dense transformer layer."""
        moe = self.moe
        parts = {
            "moe": moe is not None,
            "moe.expertBias": moe is not None and moe.expert_bias,
            "latentAttention": self.latent_attention is not None,
            "attentionSinks": self.attention_sinks,
        }
        return tuple(name for name, there in parts.items() if there)

    @property
    def attention_layers(self) -> int:
        return self.hybrid.attention_layers if self.hybrid else self.num_hidden_layers

    @property
    def mamba_layers(self) -> int:
        return self.hybrid.mamba_layers if self.hybrid else 0

    @property
    def moe_layers(self) -> int:
        return self._mlp_layers - self.moe.dense_layers if self.moe else 0

    @property
    def dense_layers(self) -> int:
        """Layers that have one dense MLP."""
        return self._mlp_layers - self.moe_layers

    @property
    def _mlp_layers(self) -> int:
        """Layers that have an MLP or experts."""
        mixers = self.hybrid.mamba_layers + self.hybrid.attention_layers if self.hybrid else 0
        return self.num_hidden_layers - mixers

    @property
    def expert_input_width(self) -> int:
        """Features of a token that a routed expert takes."""
        return (self.moe.latent_size if self.moe else None) or self.hidden_size

    @property
    def expert_width(self) -> int:
        """Inner width of one expert."""
        return (self.moe.expert_intermediate_size if self.moe else None) or self.intermediate_size
