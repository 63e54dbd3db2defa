"""Makes a reference of nodes' results: who is left out and why, what the rest say, the day that an older one adds."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean, median, stdev

from precision_api.acceptance.judge import LEAST_GOLDEN, judge
from precision_api.acceptance.reference import MOST_AGE, PROVED, Reference, speeds_of, trouble_of
from precision_api.acceptance.values import Golden, GoldenNode, Kind, Look, Verdict, percent
from precision_api.exchange.peers import key_of
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.stats import behind, biweight
from precision_api.facts.plain_text import shortened
from precision_api.facts.recipes import Recipe

FAR_SCALES = 5  # biweight scales from the median beyond which a node's median is left out
DAYS_APART, CLOCKS_APART = timedelta(hours=20), timedelta(minutes=5)
"""Between two runs of two days, at least; between an agent's clock and that of who makes a reference, at most."""
MOST_NODES, MOST_LEFT_OUT = 400, 200
"""Of a reference, so that a ConfigMap holds two days of 16 GPUs with all recipes, and of those named beside them."""


def far_off(nodes: Mapping[str, GoldenNode], recipes: Iterable[Recipe]) -> dict[str, str]:
    """The nodes that lie too far from the others to be golden, each with the reason."""
    why: dict[str, str] = {}
    for recipe in recipes:
        medians = {name: median(node.speeds[recipe]) for name, node in nodes.items()}
        middle, most = median(medians.values()), FAR_SCALES * biweight(list(medians.values()))
        far = {name: off for name, value in medians.items() if abs(off := value - middle) > most}
        why = {name: f"{percent(off):+.1f} % from the median of all with {recipe}" for name, off in far.items()} | why
    return why


def golden_of(nodes: Sequence[GoldenNode], recipe: Recipe, kind: Kind = ("verified", None, None)) -> Golden:
    """What the kept nodes, all with as many GPUs, say of a recipe."""
    medians = [median(node.speeds[recipe]) for node in nodes]
    newest = [behind(node.by_gpu(node.speeds[recipe])) for node in nodes]
    steps = [step for new in newest for step in new.values()]
    both = zip(nodes, newest, strict=True)
    twice = [(new, behind(node.by_gpu(node.before[recipe]))) for node, new in both if node.before.get(recipe)]
    moved = [new[gpu] - step for new, first in twice for gpu, step in first.items()]
    between = stdev(medians) if len(nodes) > 1 else None
    # the middle two GPUs of a node mirror each other: a biweight of few such values can be a tenth of their spread
    within = (biweight if len(nodes) >= LEAST_GOLDEN else stdev)(steps) if steps else None
    change = biweight(moved) if len(twice) >= LEAST_GOLDEN else None
    counts = len(nodes), len(twice), len(nodes[0].gpus)
    return Golden(fmean(medians), between, within, change, *counts, *kind)


def without_itself(nodes: Mapping[str, GoldenNode], recipes: Sequence[Recipe]) -> dict[str, Verdict]:
    """Each node's one run, judged against the others that are not far off."""
    verdicts: dict[str, Verdict] = {}
    for name, node in nodes.items():
        others = {other: values for other, values in nodes.items() if other != name}
        far = far_off(others, recipes) if others else {}
        kept = [values for other, values in others.items() if other not in far]
        look = Look({recipe: node.by_gpu(speeds) for recipe, speeds in node.speeds.items()})
        verdicts[name] = judge({r: golden_of(kept, r) for r in recipes if kept}, [look], recipes)
    return verdicts


def create(
    results: Mapping[str, MeasurementResult], left_out: Mapping[str, str], request: MeasurementRequest | None,
    made_by: str, made_at: str, old: Reference | None = None, simulated: bool = False, accepted_level: str = "",
    split: Mapping[str, str] | None = None, recipes: Collection[Recipe] = (),
) -> tuple[Reference, Mapping[str, GoldenNode]]:  # fmt: skip
    """A reference of nodes' results by name, and all sound nodes: those, too, that lie too far off to be in it.

    Nodes of an old one stay where no newer result is there. Of more than MOST_NODES some are taken.

    `left_out`: who is no golden node, and why; more are named here. `request` repeats the measurement. `simulated`:
    figures count that nobody measured. `split`: the label that all of `results` share. `recipes`: those that count;
    left out, all that any node can run. ValueError, fit for the user, where no node or no such recipe is left.
    """
    out, sound = dict(left_out), {name: result for name, result in results.items() if name not in left_out}

    def leave(why: Mapping[str, str]) -> None:
        out.update({name: text for name, text in why.items() if text})
        for name in out.keys() & sound.keys():
            del sound[name]

    older = old.nodes if old else {}
    ends = {name: node.ended for name, node in older.items()} | {name: it.finished_at for name, it in sound.items()}
    leave(_out_of_date(ends, made_at))
    leave({name: _unsound(result, simulated) for name, result in sound.items()})
    keys = Counter(key_of(result) for result in sound.values())
    if not keys or request is None:
        raise ValueError(f"no node can be in a reference: {_some(out) or 'none has a result'}")
    _check_older(old, simulated, split or {})
    key = old.peers if old else max(keys, key=lambda peers: (keys[peers], peers))
    leave({name: key_of(result).against(key) for name, result in sound.items()})
    kinds = _kinds(sound, simulated, recipes, old.recipes if old else {})
    leave({name: _lacks(result, kinds) for name, result in sound.items()})
    uuids = Counter(gpu.uuid for result in sound.values() for gpu in result.gpus if not simulated)
    leave({n: "its GPUs are listed twice" for n, it in sound.items() if any(uuids[gpu.uuid] > 1 for gpu in it.gpus)})
    nodes = {name: node for name, node in older.items() if name not in out and not uuids.keys() & node.gpus}
    nodes |= {name: _node(result, kinds, older.get(name)) for name, result in sound.items()}
    leave({n: "the older reference lacks recipes of it" for n, it in nodes.items() if kinds.keys() - it.speeds.keys()})
    nodes = {name: node for name, node in sorted(nodes.items()) if name not in out and kinds}
    if not nodes:
        raise ValueError(f"no node has trained with all of {', '.join(kinds) or 'none'} ({_some(out)}): see --recipes")
    if (more := len(nodes) - MOST_NODES) > 0:
        nodes = _thinned(nodes, more, older)
        out[f"({more} more)"] = f"a reference holds {MOST_NODES} nodes"
    leave(far_off(nodes, kinds))
    kept = {name: node for name, node in nodes.items() if name not in out}
    golden = {recipe: golden_of([*kept.values()], recipe, kind) for recipe, kind in kinds.items()}
    reference = Reference(
        key=key._asdict(),
        split=dict(split or {}),
        request=request,
        flops_per_token=next((it.training_flops_per_token for it in sound.values()), old and old.flops_per_token),
        provenance="simulated" if simulated else "measured",
        recipes=golden,
        nodes=kept,
        left_out=_shown(out),
        accepted_level=accepted_level,
        made_by=made_by,
        made_at=made_at,
    )
    return reference, nodes


def _out_of_date(ends: Mapping[str, str], made_at: str) -> dict[str, str]:
    """Who was measured too long ago, or later than clocks are apart, with the words for it."""
    now = _time(made_at)
    other = {n: at for n, at in ends.items() if not now - MOST_AGE <= _time(at) <= now + CLOCKS_APART}
    return {n: f"measured at {at}, not in the {MOST_AGE.days} days before {made_at}" for n, at in other.items()}


def _check_older(old: Reference | None, simulated: bool, split: Mapping[str, str]) -> None:
    """ValueError where nodes of the older reference are of another kind."""
    if old and old.provenance == "simulated" and not simulated:
        raise ValueError("the older reference is simulated: nobody measured it")
    if old and old.split != split:
        raise ValueError(f"the older reference is split by {old.split or 'no label'}, this one by {split or 'none'}")


def _shown(out: Mapping[str, str]) -> dict[str, str]:
    """Who is left out and why: the last MOST_LEFT_OUT, each in 200 characters."""
    if (others := len(out) - MOST_LEFT_OUT) > 0:
        out = {f"({others} others)": "they are not named"} | dict([*out.items()][others:])
    return {name: shortened(why, 200) for name, why in out.items()}


def _thinned(nodes: Mapping[str, GoldenNode], more: int, older: Collection[str]) -> dict[str, GoldenNode]:
    """Without so many of those that are new, evenly by name, which tells the rack as a rule."""
    new = [name for name in nodes if name not in older]
    spare = {new[at * len(new) // more] for at in range(min(more, len(new)))}
    return {name: node for name, node in nodes.items() if name not in spare}


def _time(text: str) -> datetime:
    """Long ago where the text has none."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def _some(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:3])


def _unsound(result: MeasurementResult, simulated: bool) -> str:
    """Why nothing of the result can stand in a reference."""
    if not simulated and (result.provenance != "measured" or result.simulated):
        return f"its figures are {'simulated' if result.simulated else result.provenance}, not measured"
    if result.partial:
        return f"its run ended early: {result.partial.reason}"
    differ = "the power limits of its GPUs differ" * result.limits_differ
    return next((f"throttled: {row.throttled.reason}" for row in result.recipes if row.throttled), differ)


def _kinds(
    results: Mapping[str, MeasurementResult], simulated: bool, wanted: Collection[Recipe], old: Mapping[Recipe, Golden]
) -> dict[Recipe, Kind]:
    """How each recipe ran on most nodes, or in the older reference. ValueError where that is not proved, or not one."""
    rows = [(name, row.recipe, row, row.training) for name, result in results.items() for row in result.recipes]
    can = [recipe for _, recipe, row, _ in rows if row.availability in ("ok", "emulated")]
    may, kinds = PROVED | {"assumed"} if simulated else PROVED, dict[Recipe, Kind]()
    for recipe in dict.fromkeys(wanted or (*can, *old)):
        mine = [(name, row, of) for name, its, row, of in rows if its == recipe and of and of.tokens_per_second]
        ran = {name: (row.verification.verdict, row.last_layers_bf16, of.layers_measured) for name, row, of in mine}
        counts = Counter(kind for kind in ran.values() if kind[0] in may)
        most = max(counts, key=lambda kind: (counts[kind], str(kind)), default=None)
        if most is None or (2 * counts[most] <= len(results) and not wanted):
            some = _some({n: ran[n][0] if n in ran else "no figure" for n in results if n not in ran or ran[n] != most})
            raise ValueError(
                f"{recipe} ran alike, and proved, on few nodes ({some}): mend that, or give others to --recipes"
            )
        of = old.get(recipe)
        kinds[recipe] = (of.kernels, of.last_layers_bf16, of.layers_measured) if of else most
    return kinds


def _lacks(result: MeasurementResult, kinds: Mapping[Recipe, Kind]) -> str:
    """The first recipe that it can't be judged by, and why."""
    rows = {row.recipe: row for row in result.recipes}
    for recipe, kind in kinds.items():
        trouble = trouble_of(rows.get(recipe), *kind)
        if trouble or [*speeds_of(rows[recipe], result)] != sorted(gpu.uuid for gpu in result.gpus):
            return f"{recipe}: {trouble or 'NotMeasured'}"
    return ""


def _node(result: MeasurementResult, kinds: Mapping[Recipe, Kind], old: GoldenNode | None) -> GoldenNode:
    """Its speeds, with the older ones of the same GPUs and another day."""
    speeds = {row.recipe: tuple(speeds_of(row, result).values()) for row in result.recipes if row.recipe in kinds}
    gpus, ended = tuple(sorted(gpu.uuid for gpu in result.gpus)), result.finished_at
    apart = old and abs(_time(ended) - _time(old.ended)) >= DAYS_APART
    first = {} if old is None or old.gpus != gpus else old.speeds if apart else old.before
    return GoldenNode(gpus, speeds, first, ended)
