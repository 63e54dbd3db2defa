"""What loss runs show of a recipe: that it learns, that its loss does not turn round, how far it is from the baseline.

Rules of docs/development/method.md, "Loss runs". Pure. Losses are in nats a token, by step.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from precision_agent.method.loss import Source, divergence, noise
from precision_api.exchange.result import Loss, LossDifference, LossRun, LossVerdict
from precision_api.exchange.stats import t_quantile

LEAST_FALL, LEAST_STILL = 0.05, 0.01
"""Of the way from a guess at random to the tokens' entropy: what less is, is not learnt. Assumed, not tried on a GPU: a
sound run of 50 steps goes more than half of it."""
LATE_SHARE, LEAST_LATE_STEPS = 0.1, 3
"""The end of a run, whose mean is held against that of every earlier stretch of the same length."""
LATE_RISE_NATS, LATE_RISE_SIGMAS = 0.15, 5.0
"""How far the end may lie above the lowest stretch: so many nats, or standard errors of two such means where the steps
are noisier. Assumed, not tried on a GPU: in simulation sound runs rise by 2 of them."""
COMPARED_SHARE = 0.2
"""The last steps of a run whose mean is compared with the baseline's."""
WORST_FIRST: tuple[LossVerdict, ...] = ("diverged", "diverging", "not_learning", "healthy")


def loss_run(seed: int, chain: Source, vocab_size: int, loss: Sequence[float], norms: Sequence[float] = ()) -> LossRun:
    """One run with its verdict: steps after a divergence are left out, values that are no number become None."""
    diverging = divergence(loss, norms)
    kept = diverging.step if diverging else len(loss)
    verdict = "diverged" if diverging else _verdict(loss, norms, math.log(vocab_size), chain.entropy)
    return LossRun(
        seed=seed,
        loss=tuple(_finite(value) for value in loss[:kept]),
        gradient_norm=tuple(_finite(value) for value in norms[:kept]),
        diverged_step=diverging.step if diverging else None,
        reason=diverging.reason if diverging else REASONS.get(verdict),
        verdict=verdict,
    )


REASONS: Mapping[LossVerdict, str] = {"diverging": "loss_rose_late", "not_learning": "loss_stayed"}
"""Of runs that are no more than that; a diverged one has a rule's own."""


def _verdict(loss: Sequence[float], norms: Sequence[float], start: float, entropy: float) -> LossVerdict:
    if rises_late(loss):
        return "diverging"
    moves = not norms or any(norms[-_late(loss) :])
    return "healthy" if moves and learns(loss, start, entropy) else "not_learning"


def learns(loss: Sequence[float], start: float, entropy: float) -> bool:
    """Whether the end of the run has left `start`, a guess at random, and is half way to the entropy or still falls."""
    late, middle, way = _late(loss), len(loss) // 2, start - entropy
    end, half = fmean(loss[-late:]), fmean(loss[middle - late : middle]) if middle >= late else start
    return end < start - LEAST_FALL * way and (end < start - way / 2 or end < half - LEAST_STILL * way)


def rises_late(loss: Sequence[float]) -> bool:
    """Whether the end of the run lies above its lowest stretch by more than the noise of its steps explains."""
    steps = _late(loss)
    means = [fmean(loss[at : at + steps]) for at in range(len(loss) - steps + 1)]
    allowed = max(LATE_RISE_NATS, LATE_RISE_SIGMAS * noise(loss) * math.sqrt(2 / steps))
    return means[-1] - min(means) > allowed


def _late(loss: Sequence[float]) -> int:
    return min(len(loss), max(LEAST_LATE_STEPS, int(LATE_SHARE * len(loss))))


def loss_of(runs: Sequence[LossRun], chain: Source, vocab_size: int, baseline: Sequence[LossRun] = ()) -> Loss:
    """The runs of one recipe: the worst verdict of any seed, and the distance from the baseline's runs, where given."""
    verdicts = {run.verdict for run in runs}
    return Loss(
        verdict=next((verdict for verdict in WORST_FIRST if verdict in verdicts), None),
        runs=tuple(runs),
        entropy=chain.entropy,
        start=math.log(vocab_size),
        difference=difference(runs, baseline),
    )


def difference(runs: Sequence[LossRun], baseline: Sequence[LossRun]) -> LossDifference | None:
    """Mean of the last steps minus the baseline's of the same seed; None where no seed came to its end in both.

    Equal seeds see equal tokens and begin with equal weights, so that both fall out. The band is a 95 % t-interval over
    seeds; one seed has none.
    """
    theirs = {run.seed: run for run in baseline if run.diverged_step is None}
    pairs = [(run, theirs[run.seed]) for run in runs if run.diverged_step is None and run.seed in theirs]
    pairs = [(mine, other) for mine, other in pairs if len(mine.loss) == len(other.loss)]
    if not pairs:
        return None
    steps = max(1, int(COMPARED_SHARE * len(pairs[0][0].loss)))
    values = [_end(mine, steps) - _end(other, steps) for mine, other in pairs]
    centre = fmean(values)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return LossDifference(
        nats=centre,
        lower=None if half is None else centre - half,
        upper=None if half is None else centre + half,
        seeds=len(values),
        steps=steps,
    )


def _end(run: LossRun, steps: int) -> float:
    return fmean(value for value in run.loss[-steps:] if value is not None)


def learnt(loss: Loss | None) -> bool:
    """Whether nothing speaks against a recipe: no loss run, or runs that were healthy."""
    return loss is None or loss.verdict in (None, "healthy")


def diverged_step(loss: Loss | None) -> int | None:
    """The earliest step at which a seed diverged; None where none did or nothing ran."""
    steps = [run.diverged_step for run in loss.runs if run.diverged_step is not None] if loss else []
    return min(steps, default=None)


def in_words(loss: Loss | None) -> str:
    """What is wrong with a recipe's loss, to follow its name; empty where nothing is."""
    if loss is None or learnt(loss):
        return ""
    if loss.verdict == "diverging":
        return "its loss rises at the end of the smoke test: it may diverge"
    if loss.verdict == "not_learning":
        return "its loss stays far above what can be learnt in the smoke test: it learns nothing"
    step = diverged_step(loss)
    return "its loss diverged in the smoke test" + (f", at step {step}" if step is not None else "")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
