"""How well the planner's law of size holds published rates, with whole models, then (model, product) pairs left out.

    python -m benchmarks.plan_sizes             prints the tables
    python -m benchmarks.plan_sizes --questions asks twelve sizes: eight are known, four are not
    python -m benchmarks.plan_sizes --write     writes operator/precision_operator/planner/rates/size_law.json

The final hold-out was drawn and named before anything of the law of size was fitted. Earlier reviews and the laws of
recipes had read all rows: of those it is a test of the model that is left out, and no blind one.
"""

import itertools
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.published_rows import _SETUP, GOLDEN, MODELS, _spec, _tokens
from precision_api.facts.names import grouped
from precision_api.models.flops import published_flops_per_token
from precision_api.models.model import ModelSpec, MoE
from precision_api.models.workload import Workload
from precision_operator.planner.inputs.workloads import JobWorkload, target
from precision_operator.planner.rates import size_law
from precision_operator.planner.rates.size_law import (
    CLUSTERS_OWN,
    Published,
    SizeClass,
    Sized,
    SizeLaw,
    Values,
    published_law,
)

SEED, SHARE = 1, 5
HELD_OUT = ("deepseek-v4-pro", "gpt-oss-20b", "llama3-8b", "nemotron4-340b")
"""One model in SHARE of tests/golden/multinode_rows.json, drawn by SEED."""


def drawn(path: Path = GOLDEN) -> tuple[str, ...]:
    """The draw of which HELD_OUT is the result."""
    models = sorted({row["model"] for row in json.loads(path.read_text())["rows"]})
    return tuple(sorted(random.Random(SEED).sample(models, round(len(models) / SHARE))))


# --- the data -------------------------------------------------------------------------------------------------------


class SizeRow(NamedTuple):
    """A published job at one size. `tokens`: of one GPU and step; `series`: rows that differ in nothing but size."""

    kind: SizeClass
    model: str
    product: str
    series: str
    gpus: int
    tokens: float
    tokens_per_second: float
    petaflops: float


class SizeStep(NamedTuple):
    """Two sizes of one series, the smaller one first."""

    small: SizeRow
    large: SizeRow

    @property
    def log_ratio(self) -> float:
        return math.log(self.large.tokens_per_second / self.small.tokens_per_second)

    @property
    def falls(self) -> bool:
        """Whether a GPU has fewer tokens at the larger size."""
        return self.large.tokens * size_law.SAME < self.small.tokens


OUT = Path(size_law.__file__).with_name("size_law.json")
TOTAL = {
    "llama3-8b": 8.03e9, "llama3.1-405b": 405.9e9, "nemotron4-340b": 341e9, "nemotron-h-56b": 56.3e9,
    "deepseek-v3": 671e9, "gpt-oss-20b": 20.9e9, "grok1-314b": 314e9, "qwen3-30b-a3b": 30.5e9,
}  # fmt: skip
"""Parameters by the models' cards."""
ACTIVE = {"deepseek-v3": 37e9, "gpt-oss-20b": 3.6e9, "grok1-314b": 86e9, "nemotron-h-56b": 56.3e9}
"""Where our formula has no dimensions: 6 FLOPs a token and active parameter, by the models' cards."""


def _flops(model: str, sequence: int) -> float:
    spec = _spec(model)
    return 6 * ACTIVE[model] if spec is None or model in ACTIVE else float(published_flops_per_token(spec, sequence))


def size_rows(path: Path = GOLDEN, sizes: int = 2) -> list[SizeRow]:
    """Pretraining rows with a batch and a rate, of one source at so many sizes; of alike ones the median rate."""
    points: dict[tuple[str, str, str], dict[tuple[int, float], list[float]]] = {}
    for row in json.loads(path.read_text())["rows"]:
        tokens = _tokens(row)
        if row["workload"] != "pretrain" or not tokens or not row.get("global_batch") or row["model"] not in TOTAL:
            continue
        # Submissions to one round of MLPerf are of one code; releases of others are apart.
        release = row["source"] if row["source"].startswith("mlperf") else f"{row['source']}, {row['software']}"
        setup = ", ".join(sorted(set(_SETUP.findall(row.get("note", "")))))
        series = ", ".join(filter(None, (row["model"], row["product"], row["recipe"], str(row["sequence_length"]),
                                         release, setup)))  # fmt: skip
        at = row["gpus"], row["global_batch"] * row["sequence_length"] / row["gpus"]
        points.setdefault((row["model"], row["product"], series), {}).setdefault(at, []).append(tokens)
    made = []
    for (model, product, series), of in sorted(points.items()):
        if len({gpus for gpus, _ in of}) < sizes:
            continue
        sequence = int(next(part for part in series.split(", ") if part.isdigit()))
        kind: SizeClass = "experts" if model in MODELS and MODELS[model].kind != "dense" else (
            "small dense" if TOTAL[model] < size_law.SMALL else "large dense")  # fmt: skip
        for (gpus, batch), rates in sorted(of.items()):
            rate = round(median(rates), 2)
            tera = round(rate * _flops(model, sequence) / 1e15, 4)
            made.append(SizeRow(kind, model, product, series, gpus, batch, rate, tera))
    return made


# --- the fit --------------------------------------------------------------------------------------------------------

UNCHANGED: Mapping[SizeClass, tuple[float, float]] = {
    "small dense": (0.80, 1.0), "large dense": (0.93, 1.03), "experts": (0.93, 1.03),
}  # fmt: skip
FALLING: Mapping[SizeClass, tuple[float, float]] = {
    "small dense": (3.0, 0.20), "large dense": (2.0, 0.0), "experts": (4.0, 0.15),
}  # fmt: skip
"""Both are round figures that hold nine in ten of all published steps: leaving steps out leaves them as they are."""
DOMAINS, TOKENS = (1.0, 1.5, 2.0), np.geomspace(30, 20_000, 200)


def size_steps(rows: Iterable[SizeRow]) -> list[SizeStep]:
    series = grouped((row.series, row) for row in rows)
    pairs = (pair for of in series.values() for pair in itertools.combinations(sorted(of, key=lambda r: r.gpus), 2))
    return [SizeStep(small, large) for small, large in pairs if small.gpus < large.gpus]


def fitted(rows: Sequence[SizeRow]) -> SizeLaw:
    """K of each class and `domain` together: least absolute deviations of falling steps, each (model, product) once."""
    steps = [step for step in size_steps(rows) if step.falls]
    of_pair = Counter((step.small.model, step.small.product) for step in steps)

    def missed(step: SizeStep, domain: float) -> Values:
        """By K."""
        small, large = step
        k = TOKENS * SizeLaw(domain, {}, {}, {}, {}).work(small.product, small.petaflops)
        law = np.log(CLUSTERS_OWN * (1 + k / small.tokens) / (1 + k / large.tokens))
        return np.asarray(np.abs(law - step.log_ratio) / of_pair[small.model, small.product])

    laws = []
    for domain in DOMAINS:
        losses = {kind: sum(missed(s, domain) for s in steps if s.small.kind == kind) for kind in UNCHANGED}
        tokens = {kind: round(float(TOKENS[np.argmin(loss)])) for kind, loss in losses.items() if np.size(loss) > 1}
        laws.append((sum(float(np.min(loss)) for loss in losses.values()), domain, tokens))
    _, domain, tokens = min(laws, key=lambda law: law[0])
    return SizeLaw(domain, tokens, UNCHANGED, FALLING, published_sizes(rows))


def published_sizes(rows: Sequence[SizeRow]) -> dict[tuple[SizeClass, str, bool], Published]:
    made, single = {}, size_rows(sizes=1)
    for (kind, product), of in sorted(grouped(((row.kind, row.product), row) for row in rows).items()):
        for huge in (False, True):
            mine = [row for row in of if TOTAL[row.model] > size_law.HUGE or not huge]
            fewest = min((row.gpus for row in mine), default=0)
            if mine:
                here = [row for row in single if (row.kind, row.product) == (kind, product) and row.gpus == fewest]
                usual = min(row.tokens for row in here if TOTAL[row.model] > size_law.HUGE or not huge)
                alike = [row for row in single if row.kind == kind and (TOTAL[row.model] > size_law.HUGE) == huge]
                largest = max(row.tokens * row.gpus for row in alike)
                least, most = min(row.tokens for row in mine), max(row.gpus for row in mine)
                made[kind, product, huge] = Published(fewest, most, usual, least, largest)
    return made


def document(law: SizeLaw) -> str:
    published = [[*key, *of] for key, of in law.published.items()]
    return json.dumps({**vars(law), "published": published}, indent=1) + "\n"


# --- steps that were left out ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """One published step with its prediction by the law of other rows, or None where no row of its class is left."""

    step: SizeStep
    ratio: tuple[float, float, float] | None
    """Middle, low, high."""

    @property
    def group(self) -> str:
        way = "falling" if self.step.falls else "unchanged" if not _rises(self.step) else "rising"
        return f"{self.step.small.kind}, tokens of a GPU {way}"

    @property
    def held(self) -> bool:
        return self.ratio is not None and self.ratio[1] <= math.exp(self.step.log_ratio) <= self.ratio[2]

    @property
    def error(self) -> float:
        assert self.ratio is not None
        return abs(math.log(self.ratio[0]) - self.step.log_ratio)

    @property
    def decided(self) -> int:
        """-1 slower, 1 faster, 0 not known: on which side of 1 the band lies."""
        return 0 if self.ratio is None else (self.ratio[1] > 1) - (self.ratio[2] < 1)


def _rises(step: SizeStep) -> bool:
    return step.small.tokens * size_law.SAME < step.large.tokens


LeftOut = Callable[[SizeRow, SizeRow], bool]
"""Whether the second row is left out where the first one's step is predicted."""
WAYS: Mapping[str, LeftOut] = {
    "models": lambda row, other: other.model == row.model,
    "pairs": lambda row, other: (other.model, other.product) == (row.model, row.product),
    "hold-out": lambda row, other: other.model in HELD_OUT,
}


def tried(way: str) -> list[Tried]:
    """All steps, each by the law of the rows that are not left out; of the hold-out the steps of its models alone."""
    rows, laws = size_rows(), dict[tuple[SizeRow, ...], SizeLaw]()
    made = []
    for step in size_steps(rows):
        if way == "hold-out" and step.small.model not in HELD_OUT:
            continue
        others = tuple(row for row in rows if not WAYS[way](step.small, row))
        if others not in laws:
            laws[others] = fitted(others)
        made.append(Tried(step, predicted(laws[others], step)))
    return made


def predicted(law: SizeLaw, step: SizeStep) -> tuple[float, float, float] | None:
    """Whether the product has rows of the class is not asked: without a pair it has none in most cases."""
    small, large = step
    if small.kind not in law.tokens:
        return None
    kept = law.kept(small.kind, small.product, small.petaflops, np.array([small.tokens]), np.array([large.tokens]))
    middle, low, high = (float(part[0]) for part in kept)
    return middle, low, high


def table(way: str) -> None:
    steps = tried(way)
    print(f"\n{way} left out")
    print("class                                    rows pairs refused in the band       width  error  decided wrong")
    for group in sorted({attempt.group for attempt in steps}):
        mine = [attempt for attempt in steps if attempt.group == group]
        answered = [attempt for attempt in mine if attempt.ratio is not None]
        pairs = {(attempt.step.small.model, attempt.step.small.product) for attempt in mine}
        head = f"{group:40} {len(mine):4} {len(pairs):5} {len(mine) - len(answered):7}"
        if not answered:
            print(head)
            continue
        held, decided = sum(a.held for a in answered), [a for a in answered if a.decided]
        wrong = sum(a.decided * a.step.log_ratio < 0 for a in decided)
        width = median(a.ratio[2] / a.ratio[1] for a in answered if a.ratio)
        error = median(a.error for a in answered)
        share = f"{held} ({held / len(answered):.0%})"
        print(f"{head} {share:11}     x {width:.3f}  {error:.3f} {len(decided):8} {wrong:5}")
    falling = [attempt.error for attempt in steps if attempt.ratio is not None and attempt.step.falls]
    if falling:
        print(f"tokens of a GPU falling, all classes: median error {median(falling):.3f}")


# --- twelve sizes ---------------------------------------------------------------------------------------------------


def model(name: str) -> JobWorkload:
    """A preset, or the dimensions of a model that is none by its config.json: enough to tell its class and size."""
    wide, sizes = {"num_key_value_heads": 8, "gated_mlp": True}, {"microBatchSize": 1, "sequenceLength": 8192}
    specs = {
        "llama2-70b": ModelSpec(hidden_size=8192, intermediate_size=28672, num_attention_heads=64,
                                num_hidden_layers=80, vocab_size=32000, **wide),
        "deepseek-v3": ModelSpec(hidden_size=7168, intermediate_size=18432, num_attention_heads=128, head_dim=128,
                                 num_hidden_layers=61, vocab_size=129280, **wide,
                                 moe=MoE(num_experts=256, top_k=8, expert_intermediate_size=2048, dense_layers=3)),
        "grok1-314b": ModelSpec(hidden_size=6144, intermediate_size=32768, num_attention_heads=48, head_dim=128,
                                num_hidden_layers=64, vocab_size=131072, **wide, moe=MoE(num_experts=8, top_k=2)),
    }  # fmt: skip
    asked = Workload.model_validate(
        {"name": name, "model": specs[name], **sizes} if name in specs else {"preset": name}
    )
    return target(asked, None, "")


class Question(NamedTuple):
    """A job at `small` GPUs and `large` ones; the batch in sequences, None: as the plan takes it."""

    model: str
    product: str
    small: int
    large: int
    batch: int | None
    most: int | None
    known: bool


QUESTIONS = (
    Question("llama3-8b", "GB300", 8, 64, 16, 36, True),
    Question("llama3-8b", "GB300", 8, 512, 16, 64, True),
    Question("llama2-70b", "GB200", 64, 512, 8, 64, True),
    Question("llama3.1-405b", "GB200", 512, 2048, 896, 1280, True),
    Question("llama3.1-405b", "H100", 512, 2048, 1152, None, True),
    Question("deepseek-v3", "H100", 256, 1024, None, None, True),
    Question("grok1-314b", "GB200", 128, 512, None, None, True),
    Question("nemotron-h-56b", "H100", 64, 2048, None, None, True),
    Question("llama3.1-405b", "H100", 8, 512, 1152, None, False),
    Question("deepseek-v3", "H200", 256, 512, None, None, False),
    Question("qwen3-8b", "B200", 8, 4096, 64, None, False),
    Question("llama3.1-405b", "B300", 512, 16384, None, None, False),
)
"""Eight that published jobs tell of, with their batches, and four that none does."""


def asked(question: Question) -> Sized:
    """At 1 PFLOP/s of a GPU where the rate is not known: it counts little."""
    wanted, batch = model(question.model), (question.batch, question.most)
    given, most = (number and float(number * (wanted.sequence_length or 0)) for number in batch)
    return Sized(wanted, question.product, question.small, 1.0, (given, most))


def questions() -> int:
    """Prints the answers; 1 where one is known that should not be, or the other way round."""
    wrong = 0
    for question in QUESTIONS:
        rates = asked(question)
        kept, why = rates.kept(np.array([float(question.large)])), rates.problem(question.large)
        wrong += question.known == bool(why)
        answer = why or f"keeps {kept.middle[0]:.2f} ({kept.low[0]:.2f} to {kept.high[0]:.2f})"
        print(f"{question.model} {question.small:,} to {question.large:,} on {question.product}: {answer}")
    return int(wrong > 0)


def main() -> int:
    if "--questions" in sys.argv:
        return questions()
    if "--write" in sys.argv:
        OUT.write_text(document(fitted(size_rows())))
        return 0
    law = published_law()
    print(f"domain of 8 GPUs x {law.domain:g}, K " + str({k: round(v) for k, v in law.tokens.items()}))
    for way in WAYS:
        table(way)
    return 0


if __name__ == "__main__":
    sys.exit(main())
