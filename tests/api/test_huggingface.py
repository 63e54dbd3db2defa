"""A config.json becomes the model that transformers would build from it, or is refused by name.

Published models and their parameter counts stand in tests/golden/published_configs.json; the small made-up configs were
counted by building the model in transformers 4.57 on the meta device.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.models.architectures import FAMILIES
from precision_api.models.flops import parameters
from precision_api.models.huggingface import model_from_config, model_from_mapping
from tests.support.golden import FOLDER, beside

Json = dict[str, Any]


def config(model_type: str, hidden: int, inner: int, heads: int, layers: int, vocab: int, **more: Any) -> Json:
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
        "num_hidden_layers": layers, "vocab_size": vocab, **more,
    }  # fmt: skip


def grouped(model_type: str, hidden: int, inner: int, heads: int, kv: int, depth: int, vocab: int, **more: Any) -> Json:
    return config(model_type, hidden, inner, heads, depth, vocab, num_key_value_heads=kv, **more)


PUBLISHED: dict[str, Json] = json.loads((FOLDER / "published_configs.json").read_text(encoding="utf-8"))["models"]
CONFIGS: dict[str, Json] = {name: row["config"] for name, row in PUBLISHED.items()}
LLAMA, QWEN3_MOE, GPT2, FALCON_7B = (CONFIGS[name] for name in ("Llama-3-8B", "Qwen3-30B-A3B", "gpt2", "falcon-7b"))


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if "total" in row])
def test_parameters_match_the_model_card_or_the_hub(name: str) -> None:
    assert parameters(model_from_mapping(CONFIGS[name])).total == PUBLISHED[name]["total"]


@pytest.mark.parametrize(
    ("name", "active"),
    [("Mixtral-8x7B", 12_879_925_248), ("Qwen3-30B-A3B", 3_353_032_704), ("Qwen1.5-MoE-A2.7B", 2_689_173_504)],
)
def test_active_parameters_count_the_experts_that_a_token_meets(name: str, active: int) -> None:
    assert parameters(model_from_mapping(CONFIGS[name])).active == active


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
        (CONFIGS["gemma-2-9b"], 21),
        (CONFIGS["gemma-3-1b"], 22),
        (CONFIGS["gemma-3-1b"] | {"layer_types": ["full_attention"] * 25 + ["sliding_attention"]}, 1),
        (CONFIGS["gemma-3-1b"] | {"sliding_window_pattern": 2}, 13),
        (config("mistral", 4096, 14336, 32, 32, 32000), 32),
        (config("mistral", 4096, 14336, 32, 32, 32000, sliding_window=None), 0),
        (CONFIGS["Qwen2.5-7B"] | {"sliding_window": 131072}, 0),
        (CONFIGS["Qwen2.5-7B"] | {"use_sliding_window": True, "max_window_layers": 20}, 8),
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


REFUSED: list[tuple[Json, list[str]]] = [
    (
        {k: v for k, v in (CONFIGS.get(row.get("of"), {}) | row.get("but", {})).items() if k != row.get("without")},
        row["says"],
    )
    for row in beside(__file__)["refused"]
]
REFUSED += [(CONFIGS["gemma-2-9b"] | {"layer_types": ["linear_attention"] * 42}, ["linear_attention"])]


@pytest.mark.parametrize(("document", "words"), REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(document: Json, words: list[str]) -> None:
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
_KEYS = sorted({key for document in CONFIGS.values() for key in document} | {"layer_types", "architectures"})


@given(family=st.sampled_from(sorted(FAMILIES)), changes=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=4))
def test_whatever_stands_in_a_config_gives_a_model_or_a_sentence(family: str, changes: Json) -> None:
    """Anything but a model or a ValueError of ours fails the test by itself."""
    try:
        counted = parameters(model_from_mapping(config("x", 64, 96, 8, 3, 50) | changes | {"model_type": family}))
    except ValueError as error:
        said = str(error)
        counted = None
    assert said.startswith("config.json") if counted is None else counted.total >= counted.active > 0
