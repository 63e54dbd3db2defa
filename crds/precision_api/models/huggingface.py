"""A model's dimensions from its Hugging Face config.json.

A family, a class or a feature that isn't known is refused by name: a near miss would give figures of another model.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NoReturn

from pydantic import ValidationError

from precision_api.facts.json_text import read_document, rows_of
from precision_api.models.architectures import FAMILIES, dimensions
from precision_api.models.config_json import MAX_CONFIG_BYTES, Config, Json, shown
from precision_api.models.model import ModelSpec

_TABLES = json.loads(files(__package__).joinpath("huggingface.json").read_text(encoding="utf-8"))
REFUSED: Mapping[str, str] = _TABLES["refused"]
"""Known families that the models here can't express, each with why."""

TEXT_MODELS: Mapping[str, Sequence[str]] = _TABLES["textModels"]
"""Multimodal configs whose `text_config` is one of the families: model_type, that family, the architecture's name."""

UNKNOWN_FEATURES: Mapping[str, str] = _TABLES["unknownFeatures"]
"""Keys that, when set, mean other layers than the family's own."""

OWN_FEATURES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"), ("kv_lora_rank", "q_lora_rank")),
    "llama4_text": ("attention_chunk_size",),
}
"""Of these, what a family has by itself."""

_INSTEAD = "if its layers are those of a plain transformer, describe it with model, otherwise give its GEMMs as shapes"


def model_from_config(text: str) -> ModelSpec:
    """The model that the config.json `text` describes. ValueError, fit for the user, if it can't be expressed."""
    if len(text.encode(errors="replace")) > MAX_CONFIG_BYTES:
        raise ValueError(
            f"config.json: larger than {MAX_CONFIG_BYTES // 1024} KiB; give the model's config.json alone, without "
            "quantization_config, which is not read"
        )
    try:
        config = json.loads(text)  # with Infinity, as Python writes it: time_step_limit of Nemotron-H has it
    except (ValueError, RecursionError) as error:
        raise ValueError(f"config.json: not valid JSON ({error}); copy the file anew") from error
    return model_from_mapping(_object(config, "the file"))


def model_from_mapping(config: Json) -> ModelSpec:
    """As `model_from_config`, from parsed JSON. Of the multimodal configs of TEXT_MODELS it takes the text model."""
    model_type, layers = _text_model(config)
    for key, why in UNKNOWN_FEATURES.items():
        if layers.get(key) and key not in OWN_FEATURES.get(model_type, ()):
            named = f"{key} is {shown(layers[key])}, so this is no plain {model_type}"
            raise ValueError(f"config.json: {named}: {why}; {_INSTEAD}")
    family = FAMILIES[model_type]
    counted = {key: len(layers[items]) for key, items in family.counted.items() if isinstance(layers.get(items), list)}
    layers = counted | dict(layers)
    view = Config(layers, family.defaults, family.aliases)
    for key in family.required:
        if view.value(key) is None:
            raise ValueError(f"config.json: {key} is missing, which every {model_type} config has: is the file whole?")
    facts = dimensions(view) | dict(family.facts)
    for read in family.readers:
        facts |= read(view)
    try:
        return read_document(ModelSpec, facts)
    except ValidationError as error:
        first = rows_of(error)[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = f"{where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
        raise ValueError(f"config.json ({model_type}): {problem}{_keys_named(problem, view)}") from error


_KEYS: Mapping[str, Sequence[str]] = _TABLES["keys"]
"""From fields of a ModelSpec to the keys of a config.json that they are read from."""


def _keys_named(problem: str, config: Config) -> str:
    """Where the file says what `problem` is about, by its own keys: a user corrects the file."""
    named = [key for field, keys in _KEYS.items() if re.search(rf"\b{field}\b", problem) for key in keys]
    read = [key for key in dict.fromkeys(named) if config.value(key) is not None]
    return f" (in the file: {', '.join(read)})" if read else ""


def _text_model(config: Json) -> tuple[str, Json]:
    """The family's name and the part of `config` that describes its layers."""
    model_type, architecture = config.get("model_type"), _architecture(config)
    if model_type is None:
        model_type = next((name for name, row in FAMILIES.items() if architecture in row.architectures), None)
    multimodal = TEXT_MODELS.get(model_type) if isinstance(model_type, str) else None
    if multimodal:
        nested = _object(config.get("text_config"), f"text_config, where {model_type} keeps its language model,")
        tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}  # whether it is, is said outside
        config, (model_type, whole) = {**nested, **tied}, multimodal
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        _refuse_family(config, model_type, architecture)
    architectures = (*FAMILIES[model_type].architectures, *((whole,) if multimodal else ()))
    if architecture is not None and architecture.lower() not in [name.lower() for name in architectures]:
        raise ValueError(
            f"config.json: architecture {shown(architecture)} of model_type {model_type} is not supported, only "
            f"{' and '.join(architectures)}; {_INSTEAD}"
        )
    return model_type, config


def _object(value: object, name: str) -> Json:
    if isinstance(value, dict):
        return value
    raise ValueError(f"config.json: {name} must be a JSON object, not {shown(value)}")


def _architecture(config: Json) -> str | None:
    names = config.get("architectures")
    if not names:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"config.json: architectures must be a list of names, not {shown(names)}")
    return str(names[0])


def _refuse_family(config: Json, model_type: object, architecture: str | None) -> NoReturn:
    named = f"model_type {shown(model_type)}" if model_type is not None else "a config without model_type"
    named += f" (architecture {shown(architecture)})" if architecture else ""
    features = [why for key, why in UNKNOWN_FEATURES.items() if config.get(key)]
    reason = REFUSED.get(str(model_type)) or next(iter(features), None)
    raise ValueError(
        f"config.json: {named} is not supported{f' ({reason})' if reason else ''}; {_INSTEAD}. "
        f"Supported: {', '.join(FAMILIES)}, and the text models of {', '.join(TEXT_MODELS)}"
    )
