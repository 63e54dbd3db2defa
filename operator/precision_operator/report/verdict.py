"""What the figures come to, in plain words: the first thing on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from precision_api.exchange.stats import LEAST_ENERGY_DIFFERENCE
from precision_operator.core.results.intervals import Spread
from precision_operator.drawing.document import Notice
from precision_operator.report.facts import Given, PoolFigures, PoolRow, pools

NAMES_TOLD = 5


_ORIGINS = {
    "simulated": "SIMULATED: figures on this page were generated from published ones and assumptions, not measured on "
    "this hardware. Don't base decisions on them.",
    "replayed": "REPLAYED: figures on this page were published by others, not measured on this hardware.",
    "trial": "A trial on a CPU: it shows that everything from request to page works, and says nothing about any GPU.",
}


def verdict(facts: Given) -> tuple[Notice, ...]:
    """The sentences, most important first."""
    said = [Notice("warning", _ORIGINS[facts.data])] if facts.data in _ORIGINS else []
    if not facts.nodes:
        return (*said, Notice("answer", "No node has a result yet."), *_odd(facts), *_rest(facts))
    for pool in pools(facts):
        said += _of_pool(pool)
    return (*said, *_standing(facts), *_odd(facts), *_of_recipes(facts), *_rest(facts))


def _of_pool(pool: PoolFigures) -> Iterator[Notice]:
    where = f"On {pool.name} ({_count(pool)})"
    best, efficient = pool.best, pool.most_energy_efficient
    if best is None:
        yield Notice("answer", f"{where} no recipe has a usable training figure.")
        return
    efficiency = f" {_most_efficient(pool, best, efficient)}" if efficient is not None else ""
    yield Notice("answer", f"{where} {_fastest(pool, best)}{efficiency}")
    for row in pool.rows:
        if row.loss in LOSS_WORDS:
            warning = f"{row.recipe} {LOSS_WORDS[row.loss]} in the loss runs: do not train with it as it is."
            yield Notice("warning", f"On {pool.name} {warning}")
        if row.reason:
            yield Notice("note", f"{row.recipe} has no figure on {pool.name}: {row.reason}.")
        elif row.difference == "no_difference" and row.recipe != pool.baseline:
            yield Notice("note", f"{row.recipe} makes no difference beyond noise on {pool.name}.")
        elif row.verdict == "emulated":
            yield Notice("note", f"{row.recipe} is emulated on {pool.name}: its kernels are another recipe's.")


def _count(pool: PoolFigures) -> str:
    return f"node {pool.nodes[0].node}" if len(pool.nodes) == 1 else f"{len(pool.nodes)} nodes"


def _fastest(pool: PoolFigures, best: PoolRow) -> str:
    rate = f"{best.rate.value:,.0f} tokens/s a node" if best.rate else ""
    if best.recipe == pool.baseline or best.speedup is None:
        return f"nothing trains faster than {best.recipe}: {rate}."
    return f"{best.recipe} trains fastest: {best.speedup.value:.2f}x {pool.baseline}, {_bounds(best.speedup)}, {rate}."


def _bounds(spread: Spread) -> str:
    """The interval or range in words."""
    if spread.kind == "point":
        return "without an interval"
    bounds = f"{spread.lower:.3f} to {spread.upper:.3f}"
    return f"95 % interval {bounds}" if spread.kind == "interval" else f"{bounds} on its {spread.n} nodes"


def _most_efficient(pool: PoolFigures, best: PoolRow, efficient: PoolRow) -> str:
    assert efficient.tokens_per_joule is not None
    base = next((row.tokens_per_joule for row in pool.rows if row.recipe == pool.baseline), None)
    gain = efficient.tokens_per_joule.value / base.value if base and efficient.recipe != pool.baseline else None
    if gain is not None and gain <= 1 + LEAST_ENERGY_DIFFERENCE:
        return f"No recipe gives {LEAST_ENERGY_DIFFERENCE:.0%} more tokens per joule than {pool.baseline}."
    against = f", {gain:.2f}x {pool.baseline}" if gain is not None else ""
    who = "It is also" if efficient is best else f"{efficient.recipe} is"
    return f"{who} the most energy-efficient: {efficient.tokens_per_joule.value:.1f} tokens per joule{against}."


LOSS_WORDS: Mapping[str, str] = {
    "diverged": "diverged",
    "diverging": "rose at the end",
    "not_learning": "learnt nothing",
}


def _of_recipes(facts: Given) -> Iterator[Notice]:
    """What the one node's full result says of each recipe."""
    if facts.result is None:
        return
    for recipe in facts.result.recipes:
        if recipe.meaning and recipe.meaning.sentence and recipe.meaning.kind not in ("baseline", "unknown"):
            kind: Literal["warning", "note"] = "warning" if recipe.meaning.kind == "fallback" else "note"
            yield Notice(kind, f"On node {facts.result.node} {recipe.meaning.sentence}")


def _standing(facts: Given) -> Iterator[Notice]:
    """How the one node of the page stands in its pool."""
    if facts.standing is None:
        return
    standing = facts.standing
    sentence = f"{standing.node} gives {standing.relative:.1%} of the median of its peers in {standing.pool}"
    if standing.slow:
        yield Notice("warning", f"Slow: {sentence}.")
    else:
        yield Notice("note", f"{sentence}: it is not slow.")


def _odd(facts: Given) -> Iterator[Notice]:
    """What somebody has to look after, by node."""
    if facts.slow:
        yield Notice("warning", f"Slow against their pool: {_named(facts.slow)}.")
    throttled = [node.node for node in facts.nodes if node.throttled]
    if throttled:
        yield Notice("warning", f"Throttled by heat or the power brake: {_named(throttled)}.")
    fallback = [node.node for node in facts.nodes if node.fallen_back]
    if fallback:
        yield Notice("warning", f"A recipe silently fell back to another precision on {_named(fallback)}.")
    stale = [node.node for node in facts.nodes if node.stale]
    if stale:
        reasons = sorted({node.stale for node in facts.nodes if node.stale})
        yield Notice("warning", f"Out of date ({', '.join(reasons)}): {_named(stale)}.")


def _rest(facts: Given) -> Iterator[Notice]:
    """What the page is without."""
    powerless = [node.node for node in facts.nodes if node.power_invalid]
    if powerless:
        yield Notice("note", f"Without a valid power reading, so without energy figures: {_named(powerless)}.")
    partial = [node.node for node in facts.nodes if node.run and node.run.partial]
    if partial:
        yield Notice("note", f"Ended early, with the figures that were complete: {_named(partial)}.")
    for sentence in facts.unmeasured:
        yield Notice("note", sentence)
    if facts.result_problem:
        yield Notice("note", facts.result_problem)


def _named(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
