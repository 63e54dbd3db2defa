"""Makes a reference of nodes' results: who is left out and why, what the rest say, the day that an older one adds."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean, median, stdev

from precision_api.acceptance.judge import LEAST_GOLDEN, judge
from precision_api.acceptance.reference import MOST_AGE, PROVED, Reference, speeds_of, trouble_of
from precision_api.acceptance.values import Golden, GoldenNode, Look, Verdict, percent
from precision_api.exchange.peers import key_of
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.result import Verdict as Kernels
from precision_api.exchange.stats import behind, biweight
from precision_api.facts.recipes import Recipe

FAR_SCALES = 5
"""Biweight scales from the median beyond which a node's median is left out."""


def far_off(nodes: Mapping[str, GoldenNode], recipes: Iterable[Recipe]) -> dict[str, str]:
    """The nodes that lie too far from the others to be golden, each with the reason."""
    why: dict[str, str] = {}
    for recipe in recipes:
        medians = {name: median(node.speeds[recipe]) for name, node in nodes.items()}
        middle, most = median(medians.values()), FAR_SCALES * biweight(list(medians.values()))
        far = {name: off for name, value in medians.items() if abs(off := value - middle) > most}
        why = {name: f"{percent(off):+.1f} % from the median of all with {recipe}" for name, off in far.items()} | why
    return why


def golden_of(nodes: Sequence[GoldenNode], recipe: Recipe) -> Golden:
    """What the kept nodes, all with as many GPUs, say of a recipe."""
    medians = [median(node.speeds[recipe]) for node in nodes]
    newest = [behind(node.by_gpu(node.speeds[recipe])) for node in nodes]
    steps = [step for new in newest for step in new.values()]
    both = zip(nodes, newest, strict=True)
    twice = [(new, behind(node.by_gpu(node.before[recipe]))) for node, new in both if node.before.get(recipe)]
    moved = [new[gpu] - step for new, first in twice for gpu, step in first.items()]
    return Golden(
        level=fmean(medians),
        between=stdev(medians) if len(nodes) > 1 else None,
        within=biweight(steps) if steps else None,
        change=biweight(moved) if len(twice) >= LEAST_GOLDEN else None,
        nodes=len(nodes),
        again=len(twice),
        gpus=len(nodes[0].gpus),
    )


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
    split: Mapping[str, str] | None = None,
) -> tuple[Reference, Mapping[str, GoldenNode]]:  # fmt: skip
    """A reference of nodes' results by name, and all sound nodes: those, too, that lie too far off to be in it.

    Nodes of an old one stay where no newer result is there.

    `left_out`: who is no golden node, and why; more are named here. `request` repeats the measurement. `simulated`:
    figures count that nobody measured. `split`: the label that all of `results` share. ValueError, fit for the user,
    where none is left.
    """
    out, sound = dict(left_out), {name: result for name, result in results.items() if name not in left_out}

    def leave(why: Mapping[str, str]) -> None:
        out.update({name: text for name, text in why.items() if text})
        for name in out.keys() & sound.keys():
            del sound[name]

    young, older = (datetime.fromisoformat(made_at) - MOST_AGE).isoformat(), old.nodes if old else {}
    ends = {name: node.ended for name, node in older.items()} | {name: it.finished_at for name, it in sound.items()}
    leave({name: f"measured at {at}: {MOST_AGE.days} days ago or more" for name, at in ends.items() if at < young})
    leave({name: _unsound(result, simulated) for name, result in sound.items()})
    keys = Counter(key_of(result) for result in sound.values())
    if not keys or request is None:
        some = "; ".join(f"{name}: {why}" for name, why in list(out.items())[:3])
        raise ValueError(f"no node can be in a reference: {some or 'none has a result'}")
    if old and old.provenance == "simulated" and not simulated:
        raise ValueError("the older reference is simulated: nobody measured it")
    if old and old.split != (split or {}):
        raise ValueError(f"the older reference is split by {old.split or 'no label'}, this one by {split or 'none'}")
    key = old.peers if old else max(keys, key=lambda peers: (keys[peers], peers))
    leave({name: key_of(result).against(key) for name, result in sound.items()})
    kinds = _kinds(list(sound.values()), simulated)
    kinds |= {r: (g.kernels, g.last_layers_bf16) for r, g in (old.recipes if old else {}).items() if r in kinds}
    if not kinds:
        raise ValueError("no recipe trained with kernels that prove it on most nodes: see kubectl precision nodes")
    leave({name: _lacks(result, kinds) for name, result in sound.items()})
    uuids = Counter(gpu.uuid for result in sound.values() for gpu in result.gpus if not simulated)
    leave({n: "its GPUs are listed twice" for n, it in sound.items() if any(uuids[gpu.uuid] > 1 for gpu in it.gpus)})
    nodes = {name: node for name, node in older.items() if not uuids.keys() & node.gpus}
    nodes |= {name: _node(result, kinds, older.get(name)) for name, result in sound.items()}
    nodes = {n: it for n, it in sorted(nodes.items()) if n not in out and kinds.keys() <= it.speeds.keys()}
    if not nodes:
        raise ValueError(f"no node has trained with all of {', '.join(kinds)}: name recipes that all nodes have")
    leave(far_off(nodes, kinds))
    kept = {name: node for name, node in nodes.items() if name not in out}
    golden = {
        recipe: replace(golden_of(list(kept.values()), recipe), kernels=kernels, last_layers_bf16=layers)
        for recipe, (kernels, layers) in kinds.items()
    }
    reference = Reference(
        key=key._asdict(),
        split=dict(split or {}),
        request=request,
        flops_per_token=next((it.training_flops_per_token for it in sound.values()), old and old.flops_per_token),
        provenance="simulated" if simulated else "measured",
        recipes=golden,
        nodes=kept,
        left_out=out,
        accepted_level=accepted_level,
        made_by=made_by,
        made_at=made_at,
    )
    return reference, nodes


Kind = tuple[Kernels, int | None]
"""How a recipe ran: what its kernels proved, and the last layers that stayed in BF16."""


def _unsound(result: MeasurementResult, simulated: bool) -> str:
    """Why nothing of the result can stand in a reference."""
    if not simulated and (result.provenance != "measured" or result.simulated):
        return f"its figures are {'simulated' if result.simulated else result.provenance}, not measured"
    if result.partial:
        return f"its run ended early: {result.partial.reason}"
    return next((f"throttled: {row.throttled.reason}" for row in result.recipes if row.throttled), "")


def _kinds(results: Sequence[MeasurementResult], simulated: bool) -> dict[Recipe, Kind]:
    """The recipes that trained alike, and proved, on more than half of the nodes."""
    rows = [row for result in results for row in result.recipes if row.training and row.training.tokens_per_second]
    kinds = Counter((row.recipe, row.verification.verdict, row.last_layers_bf16) for row in rows)
    may = PROVED | {"assumed"} if simulated else PROVED
    most = [kind for kind, count in kinds.items() if 2 * count > len(results) and kind[1] in may]
    return {recipe: (verdict, layers) for recipe, verdict, layers in most}


def _lacks(result: MeasurementResult, kinds: Mapping[Recipe, Kind]) -> str:
    """The first recipe that it can't be judged by, and why."""
    rows = {row.recipe: row for row in result.recipes}
    for recipe, kind in kinds.items():
        trouble = trouble_of(rows.get(recipe), *kind)
        if trouble or len(speeds_of(rows[recipe], result)) != len(result.gpus):
            return f"{recipe}: {trouble or 'NotMeasured'}"
    return ""


def _node(result: MeasurementResult, kinds: Mapping[Recipe, Kind], old: GoldenNode | None) -> GoldenNode:
    """Its speeds, with the older ones of the same GPUs and another day."""
    speeds = {row.recipe: tuple(speeds_of(row, result).values()) for row in result.recipes if row.recipe in kinds}
    gpus, ended = tuple(sorted(gpu.uuid for gpu in result.gpus)), result.finished_at
    alike = old is not None and old.gpus == gpus and old.speeds.keys() >= kinds.keys()
    first = {} if old is None or not alike else old.speeds if old.ended[:10] != ended[:10] else old.before
    return GoldenNode(gpus, speeds, first, ended)
