"""A config.json becomes the model that transformers would build from it, or is refused by name.

Parameter counts of published models are those of their model cards; the small made-up configs were counted by building
the model in transformers 4.57 on the meta device.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.models.architectures import FAMILIES
from precision_api.models.flops import parameters
from precision_api.models.huggingface import model_from_config, model_from_mapping

Json = dict[str, Any]


def config(model_type: str, hidden: int, inner: int, heads: int, layers: int, vocab: int, **more: Any) -> Json:
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
        "num_hidden_layers": layers, "vocab_size": vocab, **more,
    }  # fmt: skip


def grouped(model_type: str, hidden: int, inner: int, heads: int, kv: int, depth: int, vocab: int, **more: Any) -> Json:
    return config(model_type, hidden, inner, heads, depth, vocab, num_key_value_heads=kv, **more)


LLAMA = grouped("llama", 4096, 14336, 32, 8, 32, 128256)
QWEN3_MOE = grouped("qwen3_moe", 2048, 6144, 32, 4, 48, 151936, head_dim=128) | {
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
FALCON_7B = {
    "model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
    "num_kv_heads": 71, "vocab_size": 65024, "multi_query": True, "bias": False,
}  # fmt: skip

PUBLISHED: dict[str, tuple[Json, int]] = {
    "Llama-2-7b": (config("llama", 4096, 11008, 32, 32, 32000), 6_738_415_616),
    "Llama-3-8B": (LLAMA, 8_030_261_248),
    "Llama-3.2-1B": (grouped("llama", 2048, 8192, 32, 8, 16, 128256, tie_word_embeddings=True), 1_235_814_400),
    "Mistral-7B-v0.1": (grouped("mistral", 4096, 14336, 32, 8, 32, 32000, sliding_window=4096), 7_241_732_096),
    "Mixtral-8x7B": (grouped("mixtral", 4096, 14336, 32, 8, 32, 32000), 46_702_792_704),
    "Qwen2.5-0.5B": (grouped("qwen2", 896, 4864, 14, 2, 24, 151936, tie_word_embeddings=True), 494_032_768),
    "Qwen2.5-7B": (grouped("qwen2", 3584, 18944, 28, 4, 28, 152064), 7_615_616_512),
    "Qwen1.5-MoE-A2.7B": (
        grouped("qwen2_moe", 2048, 5632, 16, 16, 24, 151936, shared_expert_intermediate_size=5632),
        14_315_784_192,
    ),
    "Qwen3-0.6B": (
        grouped("qwen3", 1024, 3072, 16, 8, 28, 151936, head_dim=128, tie_word_embeddings=True),
        596_049_920,
    ),
    "Qwen3-8B": (grouped("qwen3", 4096, 12288, 32, 8, 36, 151936), 8_190_735_360),
    "Qwen3-30B-A3B": (QWEN3_MOE, 30_532_122_624),
    "gemma-2b": (grouped("gemma", 2048, 16384, 8, 1, 18, 256000, head_dim=256), 2_506_172_416),
    "gemma-7b": (config("gemma", 3072, 24576, 16, 28, 256000), 8_537_680_896),
    "gemma-2-9b": (grouped("gemma2", 3584, 14336, 16, 8, 42, 256000), 9_241_705_984),
    "gemma-3-1b": (grouped("gemma3_text", 1152, 6912, 4, 1, 26, 262144, sliding_window=512), 999_885_952),
    "gpt2": (GPT2, 124_439_808),
    "gpt-neox-20b": (config("gpt_neox", 6144, 24576, 64, 44, 50432), 20_554_567_680),
    "Phi-3-mini-4k": (grouped("phi3", 3072, 8192, 32, 32, 32, 32064), 3_821_079_552),
    "OLMo-2-7B": (config("olmo2", 4096, 11008, 32, 32, 100352), 7_298_617_344),
    "starcoder2-3b": (config("starcoder2", 3072, 12288, 24, 30, 49152), 3_030_371_328),
    "falcon-7b, head tied as its class says": (FALCON_7B, 6_921_720_704),
}


@pytest.mark.parametrize(("document", "total"), PUBLISHED.values(), ids=PUBLISHED)
def test_parameters_match_the_model_card(document: Json, total: int) -> None:
    assert parameters(model_from_mapping(document)).total == total


@pytest.mark.parametrize(
    ("name", "active"),
    [("Mixtral-8x7B", 12_879_925_248), ("Qwen3-30B-A3B", 3_353_032_704), ("Qwen1.5-MoE-A2.7B", 2_689_173_504)],
)
def test_active_parameters_count_the_experts_that_a_token_meets(name: str, active: int) -> None:
    assert parameters(model_from_mapping(PUBLISHED[name][0])).active == active


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        (config("llama", 4096, 11008, 32, 32, 32000), "kv_heads", 32),
        (grouped("llama", 4096, 11008, 32, 32, 2, 32000) | {"num_key_value_heads": None}, "kv_heads", 32),
        (config("mistral", 4096, 14336, 32, 32, 32000), "kv_heads", 8),
        (config("gemma", 3072, 24576, 16, 28, 256000), "head_width", 256),
        (config("qwen3", 5120, 25600, 64, 64, 151936, num_key_value_heads=8), "head_width", 128),
        (config("qwen3_moe", 2048, 6144, 32, 48, 151936), "kv_heads", 4),
        (GPT2, "intermediate_size", 3072),
        (GPT2 | {"n_inner": None}, "intermediate_size", 3072),
        (FALCON_7B, "kv_heads", 1),
        (FALCON_7B | {"new_decoder_architecture": True, "num_attention_heads": 71}, "kv_heads", 71),
        (FALCON_7B | {"parallel_attn": False}, "norms_per_layer", 2),
        (LLAMA | {"head_dim": 64}, "attention_width", 2048),
    ],
)
def test_what_a_config_leaves_out_follows_the_config_class(document: Json, field: str, expected: int) -> None:
    assert getattr(model_from_mapping(document), field) == expected


@pytest.mark.parametrize(
    ("document", "windowed"),
    [
        (PUBLISHED["gemma-2-9b"][0], 21),
        (PUBLISHED["gemma-3-1b"][0], 22),
        (PUBLISHED["gemma-3-1b"][0] | {"layer_types": ["full_attention"] * 25 + ["sliding_attention"]}, 1),
        (PUBLISHED["gemma-3-1b"][0] | {"sliding_window_pattern": 2}, 13),
        (config("mistral", 4096, 14336, 32, 32, 32000), 32),
        (config("mistral", 4096, 14336, 32, 32, 32000, sliding_window=None), 0),
        (PUBLISHED["Qwen2.5-7B"][0] | {"sliding_window": 131072}, 0),
        (PUBLISHED["Qwen2.5-7B"][0] | {"use_sliding_window": True, "max_window_layers": 20}, 8),
        (QWEN3_MOE | {"use_sliding_window": True}, 48),
        (LLAMA | {"sliding_window": 4096}, 0),
    ],
)
def test_windows_are_on_the_layers_that_the_class_gives_them_to(document: Json, windowed: int) -> None:
    window = model_from_mapping(document).sliding_window
    assert (window.windowed_layers if window else 0) == windowed


@pytest.mark.parametrize(
    ("more", "dense"),
    [({}, 0), ({"decoder_sparse_step": 2}, 24), ({"mlp_only_layers": [0, 1, 99]}, 2), ({"decoder_sparse_step": 7}, 42)],
)
def test_layers_without_experts_are_counted_as_dense(more: Json, dense: int) -> None:
    assert model_from_mapping(QWEN3_MOE | more).moe.dense_layers == dense


@pytest.mark.parametrize(
    "more", [{"num_experts": 0}, {"mlp_only_layers": list(range(48))}, {"decoder_sparse_step": 49}]
)
def test_a_mixture_whose_layers_are_all_dense_has_no_experts(more: Json) -> None:
    assert model_from_mapping(QWEN3_MOE | more).moe is None


def test_a_multimodal_gemma_3_is_its_text_model_and_a_config_is_known_by_its_architecture() -> None:
    """The 4B's own config.json: heads, head width and vocabulary are left to the class."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
    whole = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text | {"sliding_window": 1024},
        "vision_config": {"hidden_size": 1152},
    }
    model = model_from_mapping(whole)
    assert parameters(model).total == 3_880_263_168
    assert (model.num_attention_heads, model.kv_heads, model.head_width, model.vocab_size) == (8, 4, 256, 262208)
    document = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert model_from_mapping(document | {"architectures": ["LlamaForCausalLM"]}) == model_from_mapping(LLAMA)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"model_type": "minicpm3"}, ("minicpm3", "latent attention")),
        ({"model_type": "bert"}, ("bert", "qwen3_moe", "model")),
        ({"model_type": 7}, ("model_type 7",)),
        ({"hidden_size": 64}, ("without model_type",)),
        ({"architectures": ["StrangeForCausalLM"]}, ("StrangeForCausalLM",)),
        (LLAMA | {"architectures": ["LlamaForSequenceClassification"]}, ("LlamaForSequenceClassification",)),
        (LLAMA | {"architectures": "LlamaForCausalLM"}, ("architectures must be a list",)),
        (LLAMA | {"kv_lora_rank": 512}, ("kv_lora_rank", "MLA")),
        (PUBLISHED["gemma-3-1b"][0] | {"use_bidirectional_attention": True}, ("use_bidirectional_attention",)),
        (PUBLISHED["gemma-2-9b"][0] | {"layer_types": ["linear_attention"] * 42}, ("linear_attention",)),
        (PUBLISHED["gemma-2-9b"][0] | {"layer_types": ["full_attention"]}, ("1 entries", "42 layers")),
        ({"model_type": "gemma3"}, ("text_config",)),
        (LLAMA | {"hidden_size": 0}, ("hidden_size", "not 0")),
        (LLAMA | {"num_hidden_layers": -1}, ("num_hidden_layers", "not -1")),
        (LLAMA | {"num_attention_heads": True}, ("num_attention_heads", "not true")),
        (LLAMA | {"vocab_size": "128256"}, ("vocab_size", 'not "128256"')),
        (LLAMA | {"hidden_size": 4096.0}, ("hidden_size", "4096.0")),
        (LLAMA | {"intermediate_size": 10**12}, ("intermediate_size", "1000000000000")),
        (LLAMA | {"num_hidden_layers": 10**6}, ("numHiddenLayers",)),
        (LLAMA | {"num_key_value_heads": 7}, ("numAttentionHeads must be a multiple", "num_key_value_heads")),
        (LLAMA | {"num_attention_heads": 24}, ("hiddenSize must be a multiple", "hidden_size", "headDim")),
        (LLAMA | {"tie_word_embeddings": "yes"}, ("tie_word_embeddings", "true or false")),
        (QWEN3_MOE | {"num_experts_per_tok": 129}, ("num_experts_per_tok", "moe.topK must be at most moe.numExperts")),
        (QWEN3_MOE | {"mlp_only_layers": [{}]}, ("mlp_only_layers",)),
        ({key: value for key, value in LLAMA.items() if key != "hidden_size"}, ("hidden_size is missing",)),
        ({key: value for key, value in LLAMA.items() if key != "num_attention_heads"}, ("num_attention_heads",)),
        ({"model_type": "gpt2"}, ("hidden_size is missing",)),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name(document: Json, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        model_from_mapping(document)
    message = str(error.value)
    assert message.startswith("config.json")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        (json.dumps(LLAMA)[:-7], "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        (json.dumps(LLAMA | {"hidden_size": float("nan")}), "hidden_size .* not NaN"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 60_000, "not valid JSON"),
        (json.dumps(LLAMA | {"padding": "x" * 65_536}), "64 KiB"),
    ],
    ids=["empty", "truncated", "list", "null", "nan", "huge number", "deep", "too large"],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model_from_config(text)


_SCALARS = st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=3)
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), _SCALARS, max_size=2)
_KEYS = sorted({key for document, _ in PUBLISHED.values() for key in document} | {"layer_types", "architectures"})


@given(family=st.sampled_from(sorted(FAMILIES)), changes=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=4))
def test_whatever_stands_in_a_config_gives_a_model_or_a_sentence(family: str, changes: Json) -> None:
    """Anything but a model or a ValueError of ours fails the test by itself."""
    try:
        counted = parameters(model_from_mapping(config("x", 64, 96, 8, 3, 50) | changes | {"model_type": family}))
    except ValueError as error:
        said = str(error)
        counted = None
    assert said.startswith("config.json") if counted is None else counted.total >= counted.active > 0
