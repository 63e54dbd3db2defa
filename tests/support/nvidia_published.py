"""NVIDIA's published tables of GEMM times in our schema, and their rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from precision_agent import __version__
from precision_agent.cases import GemmCase
from precision_agent.method.nvidia_method import ShapeRow, result_of
from precision_api.exchange.request import Mode, digest
from precision_api.exchange.result import Failure, MeasurementResult, Software
from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import PASSES
from precision_api.models.workload import ResolvedWorkload, Workload, resolve

NOT_PUBLISHED = "not published"


def published(document: Mapping[str, Any], table: str, product: str) -> tuple[MeasurementResult, tuple[ShapeRow, ...]]:
    """The tables `<table>_autocast` and `<table>_prequantized` of NVIDIA's tutorial in our schema, and their rows.

    Forward GEMMs stand by themselves where they were published so; else, and for both gradients, the sum of a pass's
    four GEMMs is one row named `four_gemms` without a shape. Sums are the printed ones of a layer, which may differ
    from the printed passes (by 0.2 % once). Single figures: each interval has n = 1 and no width.
    """
    workload = Workload(
        name="published",
        model=ModelSpec(**document["model"], causal=False),
        micro_batch_size=document["micro_batch_size"],
        sequence_length=document["sequence_length"],
    )
    resolved = resolve(workload)
    tables: dict[Mode, Mapping[str, Any]] = {mode: document[f"{table}_{mode}"] for mode in get_args(Mode)}
    rows = tuple(row for mode, figures in tables.items() for row in _published_rows(figures, mode, resolved))
    layers = document["model"]["num_hidden_layers"]
    totals = {
        (recipe, mode): _published(mode, recipe, layers * milliseconds)
        for mode, figures in tables.items()
        for recipe, milliseconds in figures["layer"].items()
    }
    basis = {
        "run": NOT_PUBLISHED, "request_hash": digest(document), "node": NOT_PUBLISHED, "backend": "replay",
        "provenance": "replayed",
        "sources": (f"{document['source']}, table {table}: single figures without intervals (n = 1)",),
        "product": product, "software": Software(agent=__version__, stack_hash=digest({"published": table}, 16)),
        "started_at": NOT_PUBLISHED, "finished_at": NOT_PUBLISHED, "duration_seconds": 0.0,
    }  # fmt: skip
    return result_of(rows, resolved, basis, totals), rows


def _published_rows(table: Mapping[str, Any], mode: Mode, workload: ResolvedWorkload) -> list[ShapeRow]:
    """Rows of one table, milliseconds of one layer to seconds; counted once for each layer."""
    model, tokens = workload.model, workload.tokens_per_micro_batch
    assert tokens is not None
    layers, whole = model.num_hidden_layers, GemmCase("four_gemms", "fprop", tokens, 0, 0, 1, mode=mode)
    alone = table.get("fprop_ops", {})
    shapes = {gemm.name: gemm for gemm in workload.gemms if gemm.pass_ == "fprop"}
    rows: list[ShapeRow] = []
    for name, figures in alone.items():
        shape = shapes[name]
        case = GemmCase(name, "fprop", shape.m, shape.k, shape.n, layers, mode=mode)
        rows += [ShapeRow(case, recipe, _published(mode, recipe, value)) for recipe, value in figures.items()]
    for pass_ in PASSES[1:] if alone else PASSES:
        case = replace(whole, pass_=pass_, count=layers)
        rows += [ShapeRow(case, recipe, _published(mode, recipe, value)) for recipe, value in table[pass_].items()]
    return rows


def _published(mode: Mode, recipe: Recipe, milliseconds: float) -> tuple[float, ...] | Failure:
    if mode == "prequantized" and recipe == "fp8_delayed":
        return Failure(reason="no_prequantized_mode", message="what is published in its place is autocast")
    return (milliseconds * 1e-3,)
