"""`kubectl precision compare A B`: was the new driver good? Which pool is faster? With intervals, in plain words.

The answer comes first, then how it was found, then each recipe.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic.alias_generators import to_camel

from precision_api.facts.plain_text import three_digits
from precision_operator.cli.commands.nodes import labelled
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.object_ref import resolve_name
from precision_operator.cli.operands import OPERANDS, full_name, names_of, saved_side, side_of
from precision_operator.cli.options import FormOf, Namespace, OfProfile, Reach, Selector, asks_cluster
from precision_operator.cli.output import OutputFormat, as_columns, printed, wrapped
from precision_operator.cli.results import Results, of_profile, profile_named, results
from precision_operator.cli.terminal import NO_ANSWER, SLOWER, end, fail, note, say
from precision_operator.cluster import Cluster
from precision_operator.core.observe.observed import ReportView
from precision_operator.core.observe.views import report_view
from precision_operator.core.results.compare import UNKNOWN, Comparison, ComparisonRow, Refused, compare
from precision_operator.core.results.intervals import bounds_text
from precision_operator.core.results.ratios import EQUAL_WITHIN, ComparisonOutcome, Ratio
from precision_operator.core.results.sides import DIMENSIONS, Side

HEADER = ("recipe", "figure", "ratio", "lower", "upper", "nodes", "answer", "nodesNeeded")
_HELP = "A file of saved reports or results, or pool/, driver/, run/, node/ or pp/ and a name."
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


@asks_cluster
def compare_sides(
    a: Annotated[str, typer.Argument(metavar="A", help=_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same, to compare with A; ratios are B over A.")],
    namespace: Namespace = None,
    profile: OfProfile = None,
    selector: Selector = None,
    difference: Annotated[
        str | None, typer.Option(help=f"Only nodes that differ in this alone: {', '.join(DIMENSIONS)}.")
    ] = None,
    fail_if_slower: Annotated[bool, typer.Option(help="Exit code 7 where B is slower beyond noise.")] = False,
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Compare two runs, two pools, or before and after a driver: paired by node, with 95 % intervals and a verdict."""
    if difference is not None and difference not in DIMENSIONS:
        fail(f"--difference: {difference} is none of {', '.join(DIMENSIONS)}")
    first, second = _sides((a, b), namespace, profile, selector, reach)
    comparison = compare(first, second, difference)
    if isinstance(comparison, Refused):
        end(NO_ANSWER, f"{comparison.reason}: {comparison.message}")
    note(*comparison.notes)
    flat = [flat_row for row in comparison.rows for flat_row in _flat(row)]
    say(printed(_document(comparison), output, lambda wide: _text(comparison, wide), flat, HEADER))
    if not comparison.rows:
        raise typer.Exit(NO_ANSWER.number)
    if fail_if_slower and any(row.rate.answer == "less" for row in comparison.rows):
        raise typer.Exit(SLOWER.number)


def _sides(
    names: tuple[str, str], namespace: str | None, profile: str | None, selector: str | None, reach: Reach
) -> tuple[Side, Side]:
    """Files are read as they are; the cluster is asked only where a side lies in it."""
    files = [name for name in names if Path(name).is_file()]
    try:
        saved = {name: saved_side(name) for name in files}
    except ValueError as error:
        fail(str(error))
    asked_for = [name for name in names if name not in saved]
    sides = saved | (_live(asked_for, namespace, profile, selector, reach) if asked_for else {})
    return sides[names[0]], sides[names[1]]


def _live(
    words: Sequence[str], namespace: str | None, profile: str | None, selector: str | None, reach: Reach
) -> dict[str, Side]:
    async def work(cluster: Cluster) -> tuple[Results, set[str] | None]:
        there = await results(cluster, namespace or cluster.namespace, report_view)
        return there, await labelled(cluster, selector)

    fleet, wanted = ask_cluster(reach, work)
    reports = [r for view in fleet.profiles for r in of_profile(fleet.reports, view)]
    reports = [r for r in reports if wanted is None or r.node_name in wanted]
    if profile is not None:
        chosen = profile_named(fleet, profile)
        reports = [r for r in reports if r.profile == chosen.name]
    names = names_of(reports, [view.name for view in fleet.profiles])
    full_names = {word: full_name(word, reports) for word in words}
    of_kinds = {kind: names[kind] for kind in OPERANDS}
    resolved = {word: resolve_name(name, of_kinds, fleet.where) for word, name in full_names.items()}
    return {word: side_of(kind, name, _of_one(kind, reports)) for word, (kind, name) in resolved.items()}


def _of_one(kind: str, reports: Sequence[ReportView]) -> Sequence[ReportView]:
    """The reports, which must be of one profile unless profiles are what is compared: a node is in a side once."""
    profiles = sorted({report.profile for report in reports})
    if kind != "profile" and len(profiles) > 1:
        fail(f"{len(profiles)} profiles have results ({', '.join(profiles)}): name one with --profile")
    return reports


def _document(comparison: Comparison) -> dict[str, Any]:
    return {
        "a": comparison.a,
        "b": comparison.b,
        "how": comparison.how,
        "difference": comparison.difference,
        "was": comparison.was or None,
        "now": comparison.now or None,
        "same": dict(comparison.same),
        "simulated": comparison.simulated,
        "data": {"a": comparison.data[0], "b": comparison.data[1]},
        "verdict": list(verdict(comparison)),
        "recipes": [
            {
                "recipe": row.recipe,
                "teraflopsPerGPU": dict(zip("ab", row.teraflops_per_gpu, strict=True)),
                "tokensPerSecond": _ratio(row.rate),
                "tokensPerJoule": _ratio(row.tokens_per_joule),
            }
            for row in comparison.rows
        ],
        "notes": list(comparison.notes),
    }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    """B over A: absent is null, and so are the bounds where there are too few nodes for an interval."""
    if ratio is None:
        return None
    bounds = ratio.interval
    return {
        "ratio": round(ratio.value, 6),
        "lower": round(bounds.lower, 6) if bounds else None,
        "upper": round(bounds.upper, 6) if bounds else None,
        "nodes": ratio.nodes,
        "answer": to_camel(ratio.answer),
        "nodesNeeded": ratio.nodes_needed if ratio.answer == "not_known" else None,
    }


def _flat(row: ComparisonRow) -> list[dict[str, Any]]:
    figures = (("tokensPerSecond", _ratio(row.rate)), ("tokensPerJoule", _ratio(row.tokens_per_joule)))
    return [{"recipe": row.recipe, "figure": figure} | ratio for figure, ratio in figures if ratio is not None]


def _text(comparison: Comparison, wide: bool) -> str:
    said = wrapped("\n".join(verdict(comparison)), 2)
    if not comparison.rows:
        return said
    rows = [
        {
            "recipe": row.title,
            "TFLOP/s/GPU": " -> ".join(three_digits(rate) if rate else "-" for rate in row.teraflops_per_gpu),
            "tokens/s": ratio_text(row.rate),
            "tokens/J": ratio_text(row.tokens_per_joule),
        }
        | (
            {"nodes": row.rate.nodes, "nodes with power": row.tokens_per_joule.nodes if row.tokens_per_joule else 0}
            if wide
            else {}
        )
        for row in comparison.rows
    ]
    return f"{said}\n\n{as_columns(rows, () if wide else ('tokens/J', 'tokens/s', 'recipe'))}"


def verdict(comparison: Comparison) -> tuple[str, ...]:
    """The sentences; where no recipe is shared, the only one says so."""
    if not comparison.rows:
        return (f"{comparison.a} and {comparison.b} have no recipe with usable figures in common.",)
    how = f"{comparison.b} against {comparison.a}, {_how(comparison)}; what has changed: {_changed(comparison)}."
    same = [f"Both sides: {'; '.join(f'{name} {text}' for name, text in comparison.same)}."] if comparison.same else []
    return (*_doubts(comparison), _headline(comparison), how, *same, *map(_sentence, comparison.rows))


def _doubts(comparison: Comparison) -> Iterator[str]:
    """What keeps the figures from being those of real hardware, before anything is said of them."""
    if comparison.simulated:
        yield "SIMULATED or replayed figures: this says nothing of real hardware."
    unseen = [name for name, data in zip((comparison.a, comparison.b), comparison.data, strict=True) if UNKNOWN in data]
    if unseen:
        yield (
            f"{UNKNOWN.capitalize()}: {' and '.join(unseen)}. An older operator did not record whether those figures "
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
