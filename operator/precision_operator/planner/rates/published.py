"""Published training rates in pairs: two recipes of one model, or two models in one recipe, all else being equal."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from operator import attrgetter
from typing import Literal, NamedTuple

from precision_api.facts.names import grouped
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.model import ModelSpec

ModelClass = Literal["dense", "mixture of experts", "hybrid mixture of experts", "hybrid"]
"""Class of a model; hybrid: Mamba layers beside attention. Of hybrids without experts no pair is published."""
LONGEST_SEQUENCE = 8192
"""Of rows that are held against other models: attention takes another share of longer ones."""


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
    """Rows to predict from, and their models: what `python -m tests.support.published_rows` wrote.

    Pretraining, product and recipe stated, with a partner of the same source, release and product.
    """
    data = json.loads(files(__package__).joinpath("published_rows.json").read_text(encoding="utf-8"))
    models = {name: PublishedModel(*fields) for name, fields in data["models"].items()}
    return tuple(PublishedRow(*fields) for fields in data["rows"]), models


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """Two rows that differ in one respect; `log_ratio`: logarithm of the second one's rate over the first one's."""

    product: str
    models: tuple[str, str]
    recipes: tuple[Recipe, Recipe]
    log_ratio: float
    rows: tuple[str, str]
    partly_higher: bool

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """(model, product): what is left out together."""
        return frozenset((model, self.product) for model in self.models)


def recipe_steps(rows: Iterable[PublishedRow]) -> Iterator[PublishedStep]:
    """Two recipes of one model, on as many GPUs with the same batch; in the order of the table of recipes."""
    alike = attrgetter("model", "product", "gpus", "sequence_length", "global_batch", "release", "setup")
    for first, second in _partners(rows, alike):
        low, high = sorted((first, second), key=lambda row: RECIPE_NAMES.index(row.recipe))
        ratio = _ratio(low, high)
        if low.recipe != high.recipe and ratio is not None:
            yield _step(low, high, ratio)


def model_steps(rows: Iterable[PublishedRow]) -> Iterator[PublishedStep]:
    """Two models in one recipe, by model FLOP/s, whatever their sizes; without recomputation, which costs a third."""
    short = [row for row in rows if row.sequence_length <= LONGEST_SEQUENCE and "recomputation" not in row.setup]
    for first, second in _partners(short, attrgetter("product", "recipe", "release")):
        if first.model != second.model and first.teraflops and second.teraflops:
            low, high = sorted((first, second), key=lambda row: row.model)
            yield _step(low, high, math.log((high.teraflops or 1) / (low.teraflops or 1)))


def _step(low: PublishedRow, high: PublishedRow, log_ratio: float) -> PublishedStep:
    return PublishedStep(
        product=low.product,
        models=(low.model, high.model),
        recipes=(low.recipe, high.recipe),
        log_ratio=log_ratio,
        rows=(low.id, high.id),
        partly_higher=low.partly_higher or high.partly_higher,
    )


def _ratio(low: PublishedRow, high: PublishedRow) -> float | None:
    """TFLOP/s where both have them: tokens/s are rounded in some releases."""
    if low.teraflops and high.teraflops:
        return math.log(high.teraflops / low.teraflops)
    if low.tokens_per_second and high.tokens_per_second:
        return math.log(high.tokens_per_second / low.tokens_per_second)
    return None


def _partners(
    rows: Iterable[PublishedRow], alike: Callable[[PublishedRow], tuple[object, ...]]
) -> Iterator[tuple[PublishedRow, PublishedRow]]:
    for group in grouped((alike(row), row) for row in rows).values():
        yield from itertools.combinations(group, 2)
