"""Published training rates, and models as they are compared by: class and widths."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Literal, NamedTuple

from precision_api.facts.recipes import Recipe
from precision_api.models.model import ModelSpec

ModelClass = Literal["dense", "mixture of experts", "hybrid mixture of experts", "hybrid"]
"""Class of a model; hybrid: Mamba layers beside attention. Of hybrids without experts no pair is published."""


class PublishedModel(NamedTuple):
    """What a comparison needs of a model: its class, hidden size and the inner width of its MLP or of one expert."""

    kind: ModelClass
    hidden: int
    inner: int

    @property
    def width(self) -> float:
        """How wide its matrices are: the harmonic mean of hidden size and inner width.

        A GEMM over hidden x inner does 2 hidden inner FLOPs for each token, and hidden + inner elements of it are cast,
        read or written: what those cost beside the GEMM falls with 1 / hidden + 1 / inner.
        """
        return 2 * self.hidden * self.inner / (self.hidden + self.inner)


def described(model: ModelSpec) -> PublishedModel:
    """The same of a model by its dimensions."""
    if model.moe is None:
        return PublishedModel("hybrid" if model.hybrid else "dense", model.hidden_size, model.intermediate_size)
    kind: ModelClass = "hybrid mixture of experts" if model.hybrid else "mixture of experts"
    return PublishedModel(kind, model.hidden_size, model.expert_width)


class PublishedRow(NamedTuple):
    """One published rate, of one GPU. `teraflops`: model TFLOP/s; `setup`: what else must agree to compare two rows."""

    id: str
    model: str
    product: str
    gpus: int
    recipe: Recipe
    sequence_length: int
    global_batch: int
    tokens_per_second: float | None
    teraflops: float | None
    release: str
    setup: str
    partly_higher: bool
    """Whether a part of the layers runs in a higher precision than `recipe`."""


def published_rows() -> tuple[tuple[PublishedRow, ...], Mapping[str, PublishedModel]]:
    """Rows to predict from, and their models: what `python -m benchmarks.published_rows` wrote.

    Pretraining, product and recipe stated, with a partner of the same source, release and product.
    """
    data = json.loads(files(__package__).joinpath("published_rows.json").read_text(encoding="utf-8"))
    models = {name: PublishedModel(*fields) for name, fields in data["models"].items()}
    return tuple(PublishedRow(*fields) for fields in data["rows"]), models
