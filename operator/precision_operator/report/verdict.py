"""What the figures come to, in plain words: the first thing on the page."""

from collections.abc import Iterator, Mapping, Sequence

from precision_api.exchange.stats import LEAST_ENERGY_DIFFERENCE
from precision_api.facts.plain_text import first_of, three_digits
from precision_api.facts.recipes import mixtures_of, risk_of
from precision_operator.core.results.intervals import Spread
from precision_operator.drawing.document import Notice, NoticeKind
from precision_operator.report.facts import Given, PoolFigures, PoolRow, pools
from precision_operator.report.figures.figure import whose

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
    said += _standing(facts)
    for pool in pools(facts):
        said += _of_pool(pool)
    mixed = mixtures_of(recipe for node in facts.nodes for recipe in node.rows)
    said += [Notice("note", sentence) for sentence in mixed]
    return (*said, *_odd(facts), *_of_recipes(facts), *_rest(facts))


def _of_pool(pool: PoolFigures) -> Iterator[Notice]:
    where = f"On {pool.name} ({whose(pool.nodes)})"
    best, efficient = pool.best, pool.most_energy_efficient
    if best is None:
        why = next((f": {row.reason}" for row in pool.rows if row.reason), "")
        yield Notice("answer", f"{where} no recipe has a usable training figure{why}.")
        return
    efficiency = f" {_most_efficient(pool, best, efficient)}" if efficient is not None else ""
    yield Notice("answer", f"{where} {_fastest(pool, best)}{efficiency}")
    for row in pool.rows:
        if risk := risk_of(row.recipe, row.layers_bf16):
            barred = " (nobody listed it, so nothing here recommends it)" if row.barred else ""
            yield Notice("warning", f"Risk of {row.recipe}{barred}: {risk}.")
        if row.loss in LOSSES:
            diverged = f"{row.title} {LOSSES[row.loss]} in the loss runs"
            yield Notice("warning", f"On {pool.name} {diverged}: do not train with it as it is.")
        if row.reason:
            yield Notice("note", f"{row.title} has no figure on {pool.name}: {row.reason}.")
        elif row.difference == "no_difference" and row.recipe != pool.baseline:
            yield Notice("note", f"{row.title} makes no difference beyond noise on {pool.name}.")
        if row.emulated:
            yield Notice("note", f"{row.title} is emulated on {pool.name}: its kernels are another recipe's.")


def _fastest(pool: PoolFigures, best: PoolRow) -> str:
    figures = ((best.teraflops, "TFLOP/s per GPU"), (best.rate, "tokens/s a node (sum of its GPUs)"))
    rate = ", ".join(f"{three_digits(spread.value)} {unit}" for spread, unit in figures if spread)
    without = [f" No figure of {row.title}: {row.reason}." for row in pool.rows if not row.rate]
    if best.recipe == pool.baseline or best.speedup is None:
        nothing = f"nothing{pool.among} trains faster than {best.recipe}"
        fastest = f"only {best.title} has a training figure" if len(without) == len(pool.rows) - 1 else nothing
        return f"{fastest}: {rate}.{''.join(without)}"
    by = f"{best.speedup.value:.2f}x {pool.baseline}, {_bounds(best.speedup)}"
    risk = pool.among or ("" if risk_of(best.recipe, best.layers_bf16) else ", without a known risk")
    return f"{best.title} trains fastest{risk}: {rate}, {by}."


def _bounds(spread: Spread) -> str:
    """The interval or range in words."""
    if spread.kind == "point":
        return "without an interval"
    low, high, of_nodes = f"{spread.lower:.2f}", f"{spread.upper:.2f}", spread.kind == "range"
    bounds = f"{low} to {high}" if low != high else "within 0.01" if of_nodes else "narrower than 0.01"
    return f"{bounds} on its {spread.n} nodes" if of_nodes else f"95 % interval {bounds}"


def _most_efficient(pool: PoolFigures, best: PoolRow, efficient: PoolRow) -> str:
    assert efficient.tokens_per_joule is not None
    base = next((row.tokens_per_joule for row in pool.rows if row.recipe == pool.baseline), None)
    gain = efficient.tokens_per_joule.value / base.value if base and efficient.recipe != pool.baseline else None
    of = " of these" if pool.among else ""
    if gain is not None and gain <= 1 + LEAST_ENERGY_DIFFERENCE:
        return f"No recipe{of} gives {LEAST_ENERGY_DIFFERENCE:.0%} more tokens per joule than {pool.baseline}."
    against = f", {gain:.2f}x {pool.baseline}" if gain is not None else ""
    who = "It is also" if efficient is best else f"{efficient.title} is"
    joules = three_digits(efficient.tokens_per_joule.value)
    return f"{who} the most energy-efficient{of}: {joules} tokens per joule{against}."


LOSSES: Mapping[str, str] = {"diverged": "diverged", "diverging": "rose at the end", "not_learning": "learnt nothing"}


def _of_recipes(facts: Given) -> Iterator[Notice]:
    """What the one node's full result says of each recipe."""
    if facts.result is None:
        return
    for recipe in facts.result.recipes:
        meaning = recipe.meaning
        if meaning and meaning.sentence and (meaning.kind not in ("baseline", "unknown") or meaning.gemm_speedup):
            kind: NoticeKind = "warning" if meaning.kind == "fallback" else "note"
            yield Notice(kind, f"On node {facts.result.node} {meaning.sentence}")


def _standing(facts: Given) -> Iterator[Notice]:
    """How the one node of the page stands in its pool: that it is slow, what this costs and what to do."""
    standing = facts.standing
    if slow := facts.slow_node:
        yield Notice("answer", f"{slow.headline}.")
        yield from (Notice("warning", words) for words in (slow.cost, slow.what, slow.to_do))
    elif standing is not None:
        node, share, pool = standing.judged.node, standing.judged.relative, standing.judged.pool
        yield Notice(
            "note", f"{node} gives {three_digits(100 * share)}% of the median of its peers in {pool}: it is not slow."
        )
    elif facts.no_peers:
        yield Notice("note", facts.no_peers)


def _odd(facts: Given) -> Iterator[Notice]:
    """What somebody has to look after, by node."""
    nodes = facts.nodes
    reasons = sorted({node.stale for node in nodes if node.stale})
    return _about(
        "warning",
        {
            "Slow against their pool:": [node.node for node in facts.judged if node.slow],
            "Throttled by heat or the power brake:": [node.node for node in nodes if node.marks.throttled],
            "A recipe silently fell back to another precision on": [n.node for n in nodes if n.marks.fallen_back],
            f"Out of date ({', '.join(reasons)}):": [node.node for node in nodes if node.stale],
        },
    )


def _rest(facts: Given) -> Iterator[Notice]:
    """What the page is without."""
    nodes, invalid = facts.nodes, [node.node for node in facts.nodes if node.marks.power_invalid]
    yield from _about(
        "note",
        {
            "Without a valid power reading, so without energy figures:": invalid,
            "Ended early, with the figures that were complete:": [n.node for n in nodes if n.run and n.run.partial],
        },
    )
    yield from (Notice("note", sentence) for sentence in (*facts.unmeasured, facts.result_problem) if sentence)


def _about(kind: NoticeKind, said: Mapping[str, Sequence[str]]) -> Iterator[Notice]:
    """What is said of nodes, with the names of the first of them; nothing of none."""
    for sentence, names in said.items():
        if names:
            yield Notice(kind, f"{sentence} {first_of(names, NAMES_TOLD)}.")
