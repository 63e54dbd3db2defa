"""Models that are known by name. Dimensions are those of the published config.json, parameters those of the card.

They stand in presets.json, and how NVIDIA split some of them.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from precision_api.facts.products import ProductClass
from precision_api.models.model import ModelSpec

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


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Preset(_Row):
    """A model, and the micro batch and sequence that are used where a workload gives none."""

    model: ModelSpec
    micro_batch_size: int
    sequence_length: int
    source: str
    note: str = ""


class PublishedSplit(_Row):
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


_DATA = json.loads(files(__package__).joinpath("presets.json").read_text(encoding="utf-8"))
PRESETS: Mapping[PresetName, Preset] = TypeAdapter(dict[PresetName, Preset]).validate_python(_DATA["models"])
PUBLISHED_SPLITS_SOURCE: str = _DATA["splits_source"]
PUBLISHED_SPLITS = TypeAdapter(tuple[PublishedSplit, ...]).validate_python(_DATA["splits"])


def published_split(preset: PresetName, product: str) -> PublishedSplit | None:
    """How NVIDIA split this preset on this product class; None where nothing was published.

    A preset never takes it on by itself: a profile says `tensorParallel` and `expertParallel`.
    """
    return next((row for row in PUBLISHED_SPLITS if (row.preset, row.product) == (preset, product)), None)
