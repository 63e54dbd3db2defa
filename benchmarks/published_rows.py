"""Published training rates (tests/golden/multinode_rows.json) as the rows that the planner predicts from.

    python -m benchmarks.published_rows     writes operator/precision_operator/planner/rates/published_rows.json

Taken are pretraining rows whose product and recipe are stated and which have a partner: another recipe, or another
model, in one source, release and product.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.published_steps import model_steps, recipe_steps
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.models.flops import published_flops_per_token
from precision_api.models.model import ModelSpec
from precision_api.models.presets import PRESETS
from precision_operator.planner.rates.published import ModelClass, PublishedModel, PublishedRow

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "multinode_rows.json"
OUT = ROOT / "operator" / "precision_operator" / "planner" / "rates" / "published_rows.json"
Raw = Mapping[str, Any]

DENSE: ModelClass = "dense"
MOE: ModelClass = "mixture of experts"
HYBRID: ModelClass = "hybrid mixture of experts"
MODELS: Mapping[str, PublishedModel] = {
    "llama3-8b": PublishedModel(DENSE, 4096, 14336),
    "llama3.1-70b": PublishedModel(DENSE, 8192, 28672),
    "llama3-70b": PublishedModel(DENSE, 8192, 28672),
    "llama2-70b": PublishedModel(DENSE, 8192, 28672),
    "llama3.1-405b": PublishedModel(DENSE, 16384, 53248),
    "nemotron4-15b": PublishedModel(DENSE, 6144, 24576),
    "nemotron4-340b": PublishedModel(DENSE, 18432, 73728),
    "qwen3-8b": PublishedModel(DENSE, 4096, 12288),
    "grok1-314b": PublishedModel(MOE, 6144, 32768),
    "mixtral-8x7b": PublishedModel(MOE, 4096, 14336),
    "mixtral-8x22b": PublishedModel(MOE, 6144, 16384),
    "llama4-scout": PublishedModel(MOE, 5120, 8192),
    "llama4-maverick-400b": PublishedModel(MOE, 5120, 8192),
    "qwen3-30b-a3b": PublishedModel(MOE, 2048, 768),
    "qwen3-235b-a22b": PublishedModel(MOE, 4096, 1536),
    "deepseek-v3": PublishedModel(MOE, 7168, 2048),
    "kimi-k2": PublishedModel(MOE, 7168, 2048),
    "gpt-oss-20b": PublishedModel(MOE, 2880, 2880),
    "gpt-oss-120b": PublishedModel(MOE, 2880, 2880),
    "nemotron-3-nano-30b-a3b": PublishedModel(HYBRID, 2688, 1856),
    "nemotron-3-super-120b-a12b": PublishedModel(HYBRID, 4096, 2688),
}
"""Class, hidden size and inner width (of one expert) by the models' config.json; others are left out."""

_SETUP = re.compile(
    r"torch\.compile|eager|vanilla TP|async TP|weak scaling|strong scaling|tokendrop|dropless|full recomputation|"
    r"w/o MTP|w/ MTP|interleaved 1F1B|1F1B"
)
"""Words of a note that say what was run: rows are compared where these agree."""
_OTHER_FORMULA = ("older formula", "another formula", "follow NeMo 2's formula")


def read(path: Path = GOLDEN) -> tuple[PublishedRow, ...]:
    """The rows of a file in the reference's format that can be compared at all: alone or with others."""
    raws = [raw for raw in json.loads(path.read_text())["rows"] if _is_usable(raw)]
    flops = _flops_per_token(raws)
    return tuple(row for row in (_row(raw, flops) for raw in raws) if row is not None)


def with_partners(rows: Sequence[PublishedRow]) -> tuple[PublishedRow, ...]:
    """Those that take part in a comparison."""
    steps = [*recipe_steps(rows), *model_steps(rows)]
    ids = {name for step in steps for name in step.rows}
    return tuple(row for row in rows if row.id in ids)


def _is_usable(raw: Raw) -> bool:
    stated = raw["recipe"] in {*RECIPE_NAMES, "fp8"} and not raw["product"].startswith("unstated")
    return bool(raw["workload"] == "pretrain" and stated and raw["model"] in MODELS)


def _row(raw: Raw, flops: Mapping[tuple[str, int], float]) -> PublishedRow | None:
    note, tokens = raw.get("note", ""), _tokens(raw)
    work = flops.get((raw["model"], raw["sequence_length"]))
    tera = _tera(raw)
    if tera is None and tokens is not None and work is not None:
        tera = tokens * work / 1e12
    if tokens is None and tera is None:
        return None
    return PublishedRow(
        id=raw["id"],
        model=raw["model"],
        product=raw["product"],
        gpus=raw["gpus"],
        # One scale per tensor, whichever way it is found.
        recipe="fp8_current" if raw["recipe"] in ("fp8", "fp8_delayed") else raw["recipe"],
        sequence_length=raw["sequence_length"],
        global_batch=raw.get("global_batch") or 0,
        tokens_per_second=None if tokens is None else round(tokens, 2),
        teraflops=None if tera is None else round(tera, 1),
        release=f"{raw['source']}, {raw['software']}",
        setup=", ".join(sorted(set(_SETUP.findall(note)))),
        partly_higher=bool(raw.get("partly_higher")),
    )


def _tokens(raw: Raw) -> float | None:
    """Tokens/s of one GPU."""
    if raw.get("tokens_per_s_gpu"):
        return float(raw["tokens_per_s_gpu"])
    if raw.get("step_s") and raw.get("global_batch"):
        return float(raw["sequence_length"] * raw["global_batch"] / raw["step_s"] / raw["gpus"])
    return None


def _tera(raw: Raw) -> float | None:
    """Published TFLOP/s of one GPU where they follow Megatron-Bridge's formula; tokens/s may be rounded, these not."""
    if any(words in raw.get("note", "") for words in _OTHER_FORMULA):
        return None
    return raw.get("tflops_gpu")


def _flops_per_token(raws: Iterable[Raw]) -> Mapping[tuple[str, int], float]:
    """By model and sequence length: our formula, else the median of rows that publish both rates."""
    found: dict[tuple[str, int], list[float]] = {}
    for raw in raws:
        tera, tokens, rounded = _tera(raw), raw.get("tokens_per_s_gpu"), "rounded" in raw.get("note", "")
        if tera and tokens and not rounded:
            found.setdefault((raw["model"], raw["sequence_length"]), []).append(tera * 1e12 / tokens)
    made = {key: median(values) for key, values in found.items()}
    for raw in raws:
        model = _spec(raw["model"])
        if model is not None:
            key = raw["model"], raw["sequence_length"]
            made[key] = float(published_flops_per_token(model, raw["sequence_length"]))
    return made


def _spec(name: str) -> ModelSpec | None:
    preset = {"llama3-70b": "llama3.1-70b"}.get(name, name)
    if preset in PRESETS:
        return PRESETS[preset].model  # type: ignore[index]
    if name.startswith("nemotron4"):  # squared ReLU, no gate; arXiv 2402.16819 and 2406.11704, table 1
        wide, layers, heads = (18432, 96, 96) if "340b" in name else (6144, 32, 48)
        return ModelSpec(
            hidden_size=wide,
            intermediate_size=4 * wide,
            num_attention_heads=heads,
            num_key_value_heads=8,
            num_hidden_layers=layers,
            vocab_size=256_000,
        )
    return None


def document(rows: Sequence[PublishedRow]) -> str:
    """The planner's file of these rows: JSON with one row, or model, a line."""
    used = {row.model for row in rows}
    models = [f"    {json.dumps(name)}: {json.dumps(model)}" for name, model in MODELS.items() if name in used]
    lines = [f"    {json.dumps(row)}" for row in rows]
    return '{\n  "models": {\n' + ",\n".join(models) + '\n  },\n  "rows": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


if __name__ == "__main__":
    OUT.write_text(document(with_partners(read())))
