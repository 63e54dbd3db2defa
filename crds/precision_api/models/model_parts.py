"""Parts that not every model has: experts, windows, latent attention, Mamba-2, multi-token prediction. Limits of their
numbers."""

from typing import Annotated, Any

from pydantic import Field, StrictBool

from precision_api.facts.schema import Document, Rule


def strict(least: int, most: int) -> Any:
    """The field of a whole number from `least` to `most`.

    Strict: pydantic would else take true for 1 and "32" for 32, which the API server refuses.
    """
    return Field(strict=True, ge=least, le=most)


Width = Annotated[int, strict(1, 1_048_576)]
"""A width of a weight matrix. The widest in use (vocabularies apart) are below 10^5."""
Vocabulary = Annotated[int, strict(1, 4_194_304)]
Heads = Annotated[int, strict(1, 8192)]
HeadWidth = Annotated[int, strict(1, 16_384)]
Layers = Annotated[int, strict(1, 2048)]
LayersOrNone = Annotated[int, strict(0, 2048)]
Experts = Annotated[int, strict(2, 8192)]
TopK = Annotated[int, strict(1, 8192)]
WidthOrNone = Annotated[int, strict(0, 1_048_576)]
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
    top_k: TopK = Field(description="Experts that one token is sent to.")
    expert_intermediate_size: Width | None = Field(
        None, description="Inner width of one expert; left out, the model's intermediateSize."
    )
    shared_expert_intermediate_size: WidthOrNone = Field(
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
