"""What size does to a rate: a law of tokens per GPU and step, fitted to published rates of one job at several sizes.

    rate(n) / rate(n0) = 0.98 (1 + k / b(n0)) / (1 + k / b(n)),   k = K sqrt(PFLOP/s of a GPU) (x domain)

b: tokens of one optimizer step over GPUs. A step costs as much beyond its computation as k tokens of it; communication
does not shrink with a faster GPU or recipe, so k grows with the rate. K is of a class of models; `domain` applies where
NVLink joins 8 GPUs and not 72. `python -m benchmarks.plan_sizes` fits, writes size_law.json, and holds the law against
every published step with its own (model, product) left out. Where no published row tells anything, there is no figure.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from precision_api.models.flops import parameters
from precision_operator.planner.inputs.workloads import JobWorkload
from precision_operator.planner.rates.published import described

Values = NDArray[np.float64]
SizeClass = Literal["small dense", "large dense", "experts"]
SAME = 1.15  # tokens of a GPU that differ by less count as unchanged
SMALL, LARGE, HUGE = 20e9, 50e9, 100e9
"""Parameters: of dense models nothing is published between the first two; above the last none ran on a node."""
CLUSTERS_OWN = 0.98
"""Published rates hold the slow nodes of their clusters: what large jobs lose where a GPU's tokens stay."""
FASTEST = 1.08  # no published step of more GPUs gains more
MOST_BEYOND, LEAST_OF = 2, 0.5
"""Of the largest published size, and of the fewest published tokens of a GPU: beyond them nothing is known."""
NOT_KNOWN = "what size does to its rate is not known"


class Kept(NamedTuple):
    """What a larger size keeps of a GPU's rate: the middle, and the ends of the 90 % band."""

    middle: Values
    low: Values
    high: Values


class Published(NamedTuple):
    """The sizes of one class and product; `tokens`: of a GPU and step at the fewest GPUs, then the fewest of all;
    `batch`: the most tokens of a step, on any product."""

    fewest: int
    most: int
    tokens: float
    fewest_tokens: float
    batch: float


@dataclass(frozen=True)
class SizeLaw:
    """`tokens`: K by class; `unchanged`: ends of what is kept where a GPU's tokens stay; `falling`: how many times as
    large or small k may be where they fall, and the scatter beside it (of the logarithm); `published`: what there is of
    class, product and whether above HUGE."""

    domain: float
    tokens: Mapping[SizeClass, float]
    unchanged: Mapping[SizeClass, tuple[float, float]]
    falling: Mapping[SizeClass, tuple[float, float]]
    published: Mapping[tuple[SizeClass, str, bool], Published]

    def work(self, product: str, petaflops: float) -> float:
        """What K is multiplied by."""
        return math.sqrt(petaflops) * (1.0 if product.startswith("GB") else self.domain)

    def kept(self, kind: SizeClass, product: str, petaflops: float, before: Values, after: Values) -> Kept:
        """From `before` tokens of a GPU and step to `after` at a larger size."""
        k = self.tokens[kind] * self.work(product, petaflops)
        (factor, scatter), (least, most) = self.falling[kind], self.unchanged[kind]
        law, *ends = ((1 + k * f / before) / (1 + k * f / after) for f in (1.0, factor, 1 / factor))
        beside, middle = np.where(changed(before, after), scatter, 0.0), law * CLUSTERS_OWN
        below = np.sqrt(math.log(CLUSTERS_OWN / least) ** 2 + beside**2 + np.log(law / np.minimum(*ends)) ** 2)
        above = np.sqrt(math.log(most / CLUSTERS_OWN) ** 2 + beside**2 + np.log(np.maximum(*ends) / law) ** 2)
        return Kept(middle, middle * np.exp(-below), np.minimum(middle * np.exp(above), FASTEST * np.maximum(law, 1)))


def changed(before: Values, after: Values) -> NDArray[np.bool_]:
    """Whether tokens of a GPU differ by more than what counts as unchanged."""
    return np.asarray((after * SAME < before) | (before * SAME < after))


@lru_cache(maxsize=1)
def published_law() -> SizeLaw:
    """The law of the published rows."""
    data = json.loads(files(__package__).joinpath("size_law.json").read_text(encoding="utf-8"))
    published = {(kind, product, huge): Published(*of) for kind, product, huge, *of in data.pop("published")}
    return SizeLaw(**data, published=published)


@lru_cache(maxsize=1024)
def weights(wanted: JobWorkload) -> int:
    """Parameters of the job's model; 0 where it gives none."""
    return parameters(wanted.model).total if wanted.model else 0


def size_class(wanted: JobWorkload) -> SizeClass | None:
    """None where nothing is published of models like it, or the job gives no model."""
    kind = described(wanted.model).kind if wanted.model else "hybrid mixture of experts"
    if kind in ("mixture of experts", "hybrid mixture of experts"):
        return "experts" if kind == "mixture of experts" else None
    return "small dense" if weights(wanted) < SMALL else "large dense" if weights(wanted) > LARGE else None


@dataclass(frozen=True)
class Sized:
    """What is known of a job's sizes beside `base`, at which its rate was measured, or GPUs of a node by themselves
    (`apart`). In tokens of a step, `batch`: the one that is given, and the one up to which it may grow with the GPUs;
    `measured`: of the job that was measured; None: this job's at `base`."""

    wanted: JobWorkload
    product: str
    base: int
    petaflops: float
    batch: tuple[float | None, float | None]
    apart: bool = False
    measured: float | None = None

    @cached_property
    def kind(self) -> SizeClass | None:
        return size_class(self.wanted)

    @cached_property
    def huge(self) -> bool:
        return weights(self.wanted) > HUGE

    @cached_property
    def published(self) -> Published | None:
        return published_law().published.get((self.kind, self.product, self.huge)) if self.kind else None

    @property
    def models(self) -> str:
        kinds = {"experts": "mixtures of experts", None: f"models like {self.wanted.name}"}
        return kinds.get(self.kind, f"{self.kind} models")

    @property
    def anchored(self) -> bool:
        """Whether a published job tells what any larger size loses."""
        return bool(self.published and not (self.huge and self.base < self.published.fewest))

    def tokens(self, gpus: Values) -> Values:
        """Of one GPU and step: as at `base`, or the smallest published size, up to what is given, or the largest."""
        of, (asked, most), first = self.published, self.batch, self.measured or self.batch[0]
        usual, largest = (of.tokens, of.batch) if of else (math.inf, math.inf)
        limit = most or asked or max(largest, first or 0.0)
        return np.asarray(np.clip((first / self.base if first else usual) * gpus, asked or 0.0, limit) / gpus)

    def _before(self, gpus: Values) -> Values:
        """As `tokens`, of the measured job: GPUs by themselves exchange nothing."""
        base = np.full(len(gpus), float(self.base))
        return base * math.inf if self.apart else self.measured / base if self.measured else self.tokens(base)

    def loses(self, gpus: Values) -> NDArray[np.bool_]:
        """Whether the law tells what these sizes keep: nobody measured what GPUs `apart` lose within their node, nor
        models above HUGE below the smallest that is published of them."""
        if self.apart:
            return np.asarray(gpus > (1 if self.anchored else self.base))
        before, of = self._before(gpus), self.published
        least = of.fewest if of and self.huge else 1
        smaller = (gpus >= least) & (gpus < self.base) & (before >= LEAST_OF * of.fewest_tokens if of else False)
        return np.asarray((gpus > self.base) | smaller | (gpus == self.base) & changed(before, self.tokens(gpus)))

    def kept(self, gpus: Values) -> Kept:
        """By size, NaN where nothing is known. What a smaller size gains is what the larger one loses."""
        unknown = np.logical_or.reduce([mask for mask, _ in self._unknown(gpus)])
        kept = Kept(*(np.ones(len(gpus)) for _ in Kept._fields))
        if self.kind and self.published:
            ends, back = (self._before(gpus), self.tokens(gpus)), (gpus < self.base) & (not self.apart)
            law = published_law().kept(self.kind, self.product, self.petaflops, *np.where(back, ends[::-1], ends))
            kept = Kept(*np.where(back, 1 / np.array((law.middle, law.high, law.low)), law))
            kept = kept._replace(high=np.minimum(kept.high, 1.0 if self.apart else math.inf))
        return Kept(*(np.where(self.loses(gpus), np.where(unknown, np.nan, part), 1.0) for part in kept))

    def problem(self, gpus: int) -> str:
        """Why nothing is known of so many GPUs, with the remedy; empty where something is."""
        why = next((why for mask, why in self._unknown(np.array([float(gpus)])) if mask[0]), "")
        at = self.published.fewest if self.huge and self.published and self.base < self.published.fewest else gpus
        batch = "globalBatch, " if "globalBatch" in why else "a larger globalBatch, " if "its batch" in why else ""
        same = "" if gpus > self.base else " with that globalBatch"
        remedy = f"give {batch}scaling, or in jobRates one rate at {at} GPUs or more{same}"
        return why and f"{NOT_KNOWN} for {gpus} GPUs: {why}; {remedy}"

    def _unknown(self, gpus: Values) -> Iterator[tuple[NDArray[np.bool_], str]]:
        of, beyond = self.published, gpus > self.base
        fewer = beyond if self.apart else beyond | (self.tokens(gpus) * SAME < self._before(gpus))
        if of is None:
            yield fewer, f"no published job tells it of {self.models} on {self.product}"
            return
        below = f"above 100B parameters none is published below {of.fewest} GPUs of {self.product}"
        yield beyond & (self.huge and self.base < of.fewest), f"{below}, and the rate is of {self.base}"
        largest = f"the largest published job of {self.models} on {self.product} has {of.most} GPUs"
        yield beyond & (gpus > MOST_BEYOND * of.most), f"{largest} (known: up to {MOST_BEYOND} times that)"
        fewest = of.tokens * (1 - 1e-9) if self.batch[0] is None else LEAST_OF * of.fewest_tokens
        batch = "its batch" if any(self.batch) else f"without globalBatch the largest published one, {of.batch:,.0f},"
        few = f"{batch} leaves a GPU fewer than {fewest:,.0f} tokens of a step, and none such is published"
        yield fewer & (self.tokens(gpus) < fewest), few
