"""Two sides, A and B: what differs between them, by how much, and whether that is more than noise.

A comparison allows exactly one named difference, and pairs the same nodes. Node by node what both sides share (this
node's chips, its cooling) falls out of the ratio; two pools share no nodes, and are compared by the medians of two
groups: the same medians as in the profiles' status.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import geometric_mean
from typing import Literal

from precision_api.exchange.stats import LEAST_DIFFERENCE
from precision_api.facts.plain_text import number_of
from precision_api.facts.recipes import Recipe, in_order, mixtures_of, recipe_text
from precision_api.kinds.profile import Thresholds
from precision_operator.core.results.intervals import ratio_of_medians
from precision_operator.core.results.outliers import outliers_of
from precision_operator.core.results.pool import median, of_one_scope, steady
from precision_operator.core.results.ratios import Ratio, of_groups, of_pairs, single
from precision_operator.core.results.sides import DIMENSIONS, ComparedFigure, Point, Side, different, same_values

How = Literal["paired", "groups", "single"]
NAMED_APART = 3
"""Nodes of one side that a note names."""
UNKNOWN = "unknown whether measured"


@dataclass(frozen=True)
class ComparisonRow:
    """One recipe that both sides have."""

    recipe: Recipe
    title: str
    """With how many layers stay in BF16."""
    rate: Ratio
    tokens_per_joule: Ratio | None
    teraflops_per_gpu: tuple[float | None, float | None] = (None, None)
    """Medians of both sides; None where they were not recorded."""


@dataclass(frozen=True)
class Refused:
    """Why there is no comparison, with what to do."""

    reason: Literal["NothingInCommon", "SeveralDifferences", "MixedSide", "OtherDifference"]
    message: str


@dataclass(frozen=True)
class Comparison:
    """What came out. `difference` is the one dimension in which the sides differ; None: two runs of the same."""

    a: str
    b: str
    how: How
    difference: str | None
    was: str
    """The difference's value in A, and in B `now`."""
    now: str
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()
    simulated: bool = False
    data: tuple[str, str] = (UNKNOWN, UNKNOWN)
    """What the figures of A and of B are; UNKNOWN where that was not recorded."""
    same: tuple[tuple[str, str], ...] = ()
    """(dimension, value) of what all figures of both sides were measured under."""


def compare(a: Side, b: Side, allowed: str | None = None) -> Comparison | Refused:
    """B against A. With `allowed` only pairs that differ in just that dimension (or in none) are taken."""
    first, second = ({point.node: point for point in side.points} for side in (a, b))
    shared = sorted(first.keys() & second.keys())
    if shared:
        return _paired(a, b, [(first[node], second[node]) for node in shared], allowed)
    if not first or not second:
        empty = a.name if not first else b.name
        return Refused("NothingInCommon", f"{empty} has no usable figure: measure it, or name another side")
    return _groups(a, b, allowed)


Pairs = Sequence[tuple[Point, Point]]


def _paired(a: Side, b: Side, pairs: Pairs, allowed: str | None) -> Comparison | Refused:
    compared = [(pair, different(pair[0].setting, pair[1].setting)) for pair in pairs]
    notes = [*a.notes, *b.notes, *_alone(a, b, len(pairs))]
    if allowed is not None:
        kept = [(pair, names) for pair, names in compared if set(names) <= {allowed}]
        if not kept:
            counted = _counted(names for _, names in compared)
            return Refused("OtherDifference", f"no node differs in {allowed} alone: the sides differ in {counted}")
        if len(kept) < len(compared):
            out = len(compared) - len(kept)
            notes.append(
                f"{_are(out)} left out, since {'it differs' if out == 1 else 'they differ'} in more than {allowed}"
            )
        compared = kept
    names = {name for _, differing in compared for name in differing}
    if len(names) > 1:
        return _several(_counted(names for _, names in compared), sorted(names))
    changed = [row for row in compared if row[1]] or compared
    if len(changed) < len(compared):
        out = len(compared) - len(changed)
        notes.append(f"{_are(out)} left out: nothing has changed on {'it' if out == 1 else 'them'}")
    taken = [pair for pair, _ in changed]
    rows = tuple(
        row for recipe in _recipes(*zip(*taken, strict=True)) if (row := _paired_row(recipe, taken)) is not None
    )
    throttled = sum(x.throttled or y.throttled for x, y in taken)
    if throttled:
        was, still = ("was", "it is") if throttled == 1 else ("were", "they are")
        notes.append(f"{number_of(throttled, 'node')} {was} throttled on one side or both; {still} in the figures")
    how: How = "paired" if len(taken) > 1 else "single"
    return _told(a, b, how, next(iter(names), None), rows, notes, ([x for x, _ in taken], [y for _, y in taken]))


def _groups(a: Side, b: Side, allowed: str | None) -> Comparison | Refused:
    """Two groups without a node in common: every dimension but one must be the same throughout.

    Where `hardware` is `allowed`, its drivers may differ with it, and a note says so: each product has its own. Where
    something else is, nodes whose hardware the other side lacks are left out.
    """
    if allowed not in (None, "hardware"):
        a, b = _of_shared_hardware(a, b), _of_shared_hardware(b, a)
    notes: list[str] = [*a.notes, *b.notes]
    values = {name: (_values(a, name), _values(b, name)) for name in DIMENSIONS}
    names = [name for name, (x, y) in values.items() if x and y and not same_values(name, x, y)]
    if allowed is not None and allowed not in names:
        return Refused("OtherDifference", f"{a.name} and {b.name} do not differ in {allowed}, but in {_listed(names)}")
    beside = {"hardware", "driver"} if allowed == "hardware" else {"hardware"}
    for name, (x, y) in values.items():
        mixed = max((x, y), key=len)
        if len(mixed) > 1 and name not in beside:
            side = a.name if mixed is x else b.name
            return Refused(
                "MixedSide",
                f"{side} is mixed in {name} ({_listed(sorted(mixed))}): two groups can be compared when each is of one "
                f"kind. Compare two runs of the same nodes, or measure {side} again under one {name}",
            )
    texts = {name: f"{name}: {' and '.join(_listed(sorted(side)) for side in values[name])}" for name in names}
    if "driver" in names and "driver" in beside:
        names.remove("driver")
        notes.append(f"the hardware's drivers differ too, and are in the figures ({texts['driver']})")
    if len(names) > 1:
        kind = a.name.partition(" ")[0]
        return _several("; ".join(texts[name] for name in names), sorted(names, key=lambda name: name != kind))
    notes += _throttled_out(a, b)
    difference = names[0] if names else None
    rows = tuple(row for recipe in _recipes(a.points, b.points) if (row := _group_row(recipe, a, b)) is not None)
    notes += [text for row in rows for text in _apart(row.recipe, (a, b))]
    return _told(a, b, "groups", difference, rows, notes, (a.points, b.points))


def _of_shared_hardware(side: Side, other: Side) -> Side:
    """The side with nodes of hardware that the other has too, and a note; as it is where they share none."""
    shared = _values(side, "hardware") & _values(other, "hardware")
    kept = tuple(point for point in side.points if point.setting.hardware in shared)
    out = len(side.points) - len(kept)
    if not kept or not out:
        return side
    left = f"{side.name}: {_are(out)} left out, since {other.name} has no such hardware"
    return replace(side, points=kept, notes=(*side.notes, left))


def _recipes(*sides: Iterable[Point]) -> tuple[Recipe, ...]:
    return in_order(figure.recipe for points in sides for point in points for figure in point.figures)


def _throttled_out(a: Side, b: Side) -> list[str]:
    """How many nodes' figures of each recipe are not in the medians."""
    out = [
        f"{number_of(count, 'node')} with {recipe}"
        for recipe in _recipes(a.points, b.points)
        if (count := sum(len(_figures(side.points, recipe)) - len(_steady(side.points, recipe)) for side in (a, b)))
    ]
    return [f"left out, since throttled: {', '.join(out)}"] if out else []


def _apart(recipe: Recipe, sides: tuple[Side, Side]) -> list[str]:
    """Nodes so far from their side's median that a mean would follow them, where it would say another ratio."""
    rates = [{point.node: figure.rate for point, figure in _steady(side.points, recipe)} for side in sides]
    a, b = (list(side.values()) for side in rates)
    by_mean, (by_median, _) = geometric_mean(b) / geometric_mean(a), ratio_of_medians(b, a)
    named = [
        f"{node} gives {share:.1%} of the median of {side.name}"
        for side, side_rates in zip(sides, rates, strict=True)
        for node, share in outliers_of(side_rates, Thresholds().slow_node_percent)[:NAMED_APART]
    ]
    if not named or abs(by_mean / by_median - 1) <= LEAST_DIFFERENCE:
        return []
    means = f"a mean over nodes would follow that to {by_mean:.3f}, the medians give {by_median:.3f}"
    return [f"{recipe}: {', '.join(named)}; {means}"]


def _several(counted: str, names: Sequence[str]) -> Refused:
    return Refused(
        "SeveralDifferences",
        f"the sides differ in {len(names)} things at once ({counted}): the cause of a difference would be ambiguous. "
        f"Compare sides that differ in one, or take only nodes that do with --difference {names[0]}",
    )


def _told(
    a: Side,
    b: Side,
    how: How,
    difference: str | None,
    rows: tuple[ComparisonRow, ...],
    notes: list[str],
    points: tuple[Sequence[Point], Sequence[Point]],
) -> Comparison:
    recorded = [{name for name in DIMENSIONS for p in side if getattr(p.setting, name) is not None} for side in points]
    unknown = [name for name in DIMENSIONS if name not in recorded[0] & recorded[1]]
    if unknown:
        notes.append(f"not recorded on one side or both, so not compared: {_listed(unknown)}")
    valued = [[(str(getattr(p.setting, difference)),) for p in side] for side in points] if difference else None
    was, now = map(_counted, valued) if valued else ("", "")
    kinds = {p.setting.data for side in points for p in side}
    notes += [*_scopes_apart(a, b, points), *_parts_apart(points), *mixtures_of(row.recipe for row in rows)]
    if "trial" in kinds:
        notes.append("trials on a CPU are among them: these say nothing of a GPU")
    data = tuple(_counted([(p.setting.data or UNKNOWN,) for p in side]) for side in points)
    return Comparison(
        a.name,
        b.name,
        how,
        difference,
        was,
        now,
        rows,
        tuple(notes),
        bool(kinds & {"simulated", "replayed"}),
        (data[0], data[1]),
        _same(points),
    )


def _parts_apart(points: tuple[Sequence[Point], Sequence[Point]]) -> list[str]:
    """A note for each mixture whose name both sides have, and no parts in common."""
    sides = [{figure.recipe for point in side for figure in point.figures if "." in figure.recipe} for side in points]
    of_a, of_b = ({name.partition(".")[0] for name in side - (sides[0] & sides[1])} for side in sides)
    return [f"{name} has other parts in B than in A: not compared" for name in sorted(of_a & of_b)]


def _same(points: tuple[Sequence[Point], Sequence[Point]]) -> tuple[tuple[str, str], ...]:
    """What was recorded of every point of both sides, and is the same."""
    shared = []
    for name in DIMENSIONS:
        a, b = ([getattr(point.setting, name) for point in side] for side in points)
        values = {value for value in (*a, *b) if value is not None}
        if len(values) == 1 and None not in (*a, *b):
            shared.append((name, values.pop()))
    return tuple(shared)


def _alone(a: Side, b: Side, shared: int) -> list[str]:
    only = [(side.name, len(side.points) - shared) for side in (a, b) if len(side.points) > shared]
    return [f"{_are(count)} in {name} only, and left out" for name, count in only]


def _are(count: int) -> str:
    """`1 node is`, `3 nodes are`."""
    return f"{number_of(count, 'node')} {'is' if count == 1 else 'are'}"


def _values(side: Side, name: str) -> set[str]:
    return {value for point in side.points if (value := getattr(point.setting, name)) is not None}


def _counted(differences: Iterable[Sequence[str]]) -> str:
    """`driver (24 nodes), driver and software (3 nodes)`; a single value without its number."""
    counts = Counter(" and ".join(names) or "nothing" for names in differences)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({number_of(count, 'node')})" for name, count in counts.most_common(5))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _figures(points: Sequence[Point], recipe: Recipe) -> list[tuple[Point, ComparedFigure]]:
    return [(p, figure) for p in points for figure in p.figures if figure.recipe == recipe]


def _paired_row(recipe: Recipe, pairs: Pairs) -> ComparisonRow | None:
    left = {point.node: figure for point, figure in _figures([x for x, _ in pairs], recipe)}
    right = {point.node: figure for point, figure in _figures([y for _, y in pairs], recipe)}
    nodes = sorted(left.keys() & right.keys())
    if not nodes:
        return None
    rates = [(left[node].rate, right[node].rate) for node in nodes]
    joules = [
        (x, y)
        for node in nodes
        if (x := left[node].tokens_per_joule) is not None
        and (y := right[node].tokens_per_joule) is not None
        and _same_scope(left[node], right[node])
    ]
    rate = single(left[nodes[0]], right[nodes[0]]) if len(nodes) == 1 else of_pairs(rates)
    sides = [[side[node] for node in nodes] for side in (left, right)]
    return _row(recipe, sides, rate, of_pairs(joules) if joules else None)


def _row(recipe: Recipe, sides: Sequence[Sequence[ComparedFigure]], rate: Ratio, joules: Ratio | None) -> ComparisonRow:
    """A recipe's layers in BF16 are those of the sides that know them: of a past run nothing is recorded."""
    layers = dict.fromkeys(side[0].layers_bf16 for side in sides if side[0].layers_bf16 is not None)
    title = " and ".join(recipe_text(recipe, None, kept) for kept in layers or (None,))
    of_a, of_b = ([figure.teraflops_per_gpu for figure in side if figure.teraflops_per_gpu] for side in sides)
    return ComparisonRow(recipe, title, rate, joules, (median(of_a), median(of_b)))


def _steady(points: Sequence[Point], recipe: Recipe) -> Sequence[tuple[Point, ComparedFigure]]:
    """The recipe's figures that the medians of a group are of."""
    return steady(_figures(points, recipe), lambda pair: pair[1].throttled)


def _group_row(recipe: Recipe, a: Side, b: Side) -> ComparisonRow | None:
    left, right = ([figure for _, figure in _steady(side.points, recipe)] for side in (a, b))
    if not left or not right:
        return None
    if len(left) == len(right) == 1:
        rate = single(left[0], right[0])
    else:
        rate = of_groups([figure.rate for figure in left], [figure.rate for figure in right])
    scoped = [_of_one_power_scope(side) for side in (left, right)]
    joules = [[f.tokens_per_joule for f in side if f.tokens_per_joule is not None] for side in scoped]
    alike = all(joules) and _same_scope(scoped[0][0], scoped[1][0])
    return _row(recipe, (left, right), rate, of_groups(*joules) if alike else None)


def _of_one_power_scope(figures: Sequence[ComparedFigure]) -> Sequence[ComparedFigure]:
    """Those with tokens per joule, whose watts are of the same thing: those behind the median in the status."""
    powered = [figure for figure in figures if figure.tokens_per_joule is not None]
    return of_one_scope(powered, attrgetter("power_scope"))


def _same_scope(a: ComparedFigure, b: ComparedFigure) -> bool:
    """Whether both watts are of the same thing, GPUs or whole modules, as far as that was recorded."""
    return not a.power_scope or not b.power_scope or a.power_scope == b.power_scope


def _scopes_apart(a: Side, b: Side, points: tuple[Sequence[Point], Sequence[Point]]) -> list[str]:
    """A note where one side's watts are of GPUs and the other's of modules: their tokens per joule are not compared."""
    figures = ([figure for p in side for figure in p.figures] for side in points)
    first, second = (next(iter(_of_one_power_scope(side)), None) for side in figures)
    if first is None or second is None or _same_scope(first, second):
        return []
    scopes = f"{a.name} has watts of {first.power_scope}, {b.name} of {second.power_scope}"
    return [f"tokens per joule are not compared: {scopes}"]
