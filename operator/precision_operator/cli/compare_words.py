"""A comparison in plain words: the answer first, then how it was found, then each recipe."""

from collections.abc import Iterator, Mapping

from precision_operator.core.results.compare import UNKNOWN, Comparison, ComparisonRow
from precision_operator.core.results.intervals import bounds_text
from precision_operator.core.results.ratios import EQUAL_WITHIN, ComparisonOutcome, Ratio

_RATE: Mapping[ComparisonOutcome, str] = {
    "more": "faster",
    "less": "slower",
    "no_difference": "neither faster nor slower",
    "not_known": "faster or slower is not known",
}
_ENERGY: Mapping[ComparisonOutcome, str] = {
    "more": "more tokens per joule",
    "less": "fewer tokens per joule",
    "no_difference": "as many tokens per joule",
    "not_known": "more or fewer tokens per joule is not known",
}


def verdict(comparison: Comparison) -> tuple[str, ...]:
    """The sentences; where no recipe is shared, the only one says so."""
    if not comparison.rows:
        return (f"{comparison.a} and {comparison.b} have no recipe with usable figures in common.",)
    how = f"{comparison.b} against {comparison.a}, {_how(comparison)}; what has changed: {_changed(comparison)}."
    same = (
        [f"Both sides: {'; '.join(f'{name} {value}' for name, value in comparison.same)}."] if comparison.same else []
    )
    return (*_doubts(comparison), _headline(comparison), how, *same, *map(_sentence, comparison.rows))


def _doubts(comparison: Comparison) -> Iterator[str]:
    """What keeps the figures from being those of real hardware, before anything is said of them."""
    if comparison.simulated:
        yield "SIMULATED or replayed figures: this says nothing of real hardware."
    unknown = [
        name for name, data in zip((comparison.a, comparison.b), comparison.data, strict=True) if UNKNOWN in data
    ]
    if unknown:
        yield (
            f"{UNKNOWN.capitalize()}: {' and '.join(unknown)}. An older operator did not record whether those figures "
            "were measured, replayed or simulated."
        )


def _headline(comparison: Comparison) -> str:
    by_answer = {answer: [r.title for r in comparison.rows if r.rate.answer == answer] for answer in _RATE}
    slower, faster = by_answer["less"], by_answer["more"]
    if slower and faster:
        return f"{comparison.b} is slower with {', '.join(slower)} and faster with {', '.join(faster)}."
    if slower or faster:
        return f"{comparison.b} is {'slower' if slower else 'faster'} with {', '.join(slower or faster)}."
    equal, unknown = by_answer["no_difference"], by_answer["not_known"]
    same = f"{comparison.b} is as fast as {comparison.a}"
    if equal and unknown:
        return f"{same} with {', '.join(equal)}, within {EQUAL_WITHIN:.0%}; with {', '.join(unknown)} it is not known."
    if equal:
        return f"{same}: no difference beyond noise, and none above {EQUAL_WITHIN:.0%}."
    if all(row.rate.interval is None for row in comparison.rows):
        return "Whether there is a difference can't be said: without intervals nothing is known of noise."
    return f"Whether {comparison.b} is faster or slower than {comparison.a} is not known: {_to_know(comparison)}."


def _to_know(comparison: Comparison) -> str:
    """What is missing for an answer, and what to do."""
    open_ = [row.rate for row in comparison.rows if row.rate.answer == "not_known" and row.rate.interval is not None]
    several = [rate for rate in open_ if rate.nodes > 1]
    wide = f"the intervals are wider than {EQUAL_WITHIN:.0%} and hold 1"
    if not several:
        return f"{wide}; compare more nodes"
    needed = [rate.nodes_needed for rate in several]
    if None in needed:
        return f"{wide}, and the nodes differ too much for more of them to tell; look at the slow ones first"
    now = max(rate.nodes for rate in several)
    return f"{wide}; with nodes that differ as these {now} do, it takes about {max(n for n in needed if n)} to tell"


def _changed(comparison: Comparison) -> str:
    if comparison.difference is not None:
        return f"{comparison.difference}, {comparison.was} -> {comparison.now}"
    return "the nodes themselves" if comparison.how == "groups" else "nothing that is recorded"


def _how(comparison: Comparison) -> str:
    nodes = max((row.rate.nodes for row in comparison.rows), default=0)
    return {
        "paired": f"the same {nodes} nodes, paired",
        "single": "one node",
        "groups": "one node against another" if nodes == 1 else f"the medians of two groups of together {nodes} nodes",
    }[comparison.how]


def _sentence(row: ComparisonRow) -> str:
    parts = [f"{row.title}: {_amount(row.rate, _RATE) or f'tokens per second {ratio_text(row.rate)}'}"]
    if row.tokens_per_joule is not None:
        parts.append(_amount(row.tokens_per_joule, _ENERGY) or f"tokens per joule {ratio_text(row.tokens_per_joule)}")
    return "; ".join(parts) + "."


def _amount(ratio: Ratio, words: Mapping[ComparisonOutcome, str]) -> str:
    """`1.8 % slower (0.982 [0.976, 0.988])`; empty where nothing is known of noise."""
    if ratio.interval is None:
        return ""
    figures = ratio_text(ratio)
    if ratio.answer in ("more", "less"):
        return f"{abs(ratio.value - 1):.1%} {words[ratio.answer]} ({figures})"
    return f"{words[ratio.answer]} ({figures})"


def ratio_text(ratio: Ratio | None) -> str:
    """`0.982 [0.976, 0.988]`."""
    if ratio is None:
        return "-"
    bounds = bounds_text(ratio.interval.lower, ratio.interval.upper) if ratio.interval else "(no interval)"
    return f"{ratio.value:.3f} {bounds}".rstrip()
