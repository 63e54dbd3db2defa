"""`kubectl precision reference create|show|list`: what golden nodes did, saved for verdicts on others."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from getpass import getuser
from importlib.resources import files
from statistics import fmean, median
from string import Template
from typing import Annotated, Any

import typer

from precision_api.acceptance.create import create, without_itself
from precision_api.acceptance.judge import LEAST_GOLDEN, drifted, finds, limits
from precision_api.acceptance.reference import Reference, read_reference, sha256_of, text_of
from precision_api.acceptance.values import Check, GoldenNode, Verdict, percent
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.names import LABEL_REFERENCE as LABEL
from precision_api.facts.names import REFERENCE_FILE as KEY
from precision_api.facts.names import SHARED_MEMORY, grouped
from precision_api.facts.products import part
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.kinds.profile import Resources
from precision_api.models.workload import resolve
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import FormOf, Namespace, OfProfile, Reach, asks_cluster
from precision_operator.cli.output import OutputFormat, as_columns, printed
from precision_operator.cli.results import finished, of_profile, profile_named, reading_of, results, status_of
from precision_operator.cli.terminal import NO_ANSWER, end, fail, note, say
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.admission.limits import concurrency_limit
from precision_operator.core.attempts.agent_request import measurement_request
from precision_operator.core.attempts.manifest import claimed
from precision_operator.core.eligibility.request import ResolvedProfile, with_text
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import AcceptedProfile, ProfileView, ReportView
from precision_operator.core.reasons import Said
from precision_operator.planner.rates.published import described, published_rows
from precision_operator.report.detail import of_config_map

_JOB = files(__package__).joinpath("check_job.yaml").read_text(encoding="utf-8").rstrip()
LOW_LEVEL = 0.9
"""Of the published rate, below which a level must be accepted by hand: a slow rack passes its own comparison."""
ONE_RACK = "where racks differ by 0.5 or 0.7 %, up to 1 or 7 % of sound nodes of others fail: take several"
CHECKS: Mapping[Check, str] = {
    "reference": "nodes differ by", "node": "GPUs of a node differ by", "change": "a GPU changes from day to day by",
}  # fmt: skip
_Drafted = tuple[tuple[Reference, Mapping[str, GoldenNode]], ProfileView, Sequence[ReportView]]
Saved = Mapping[str, tuple[str, Reference]]  # text and reference, by the ConfigMap's name


@asks_cluster
def reference(
    act: Annotated[str, typer.Argument(help="create, show or list.")],
    name: Annotated[str, typer.Argument(help="Name of the reference.")] = "",
    namespace: Namespace = None,
    profile: OfProfile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show each node against the others.")] = False,
    without: Annotated[list[str] | None, typer.Option("--except", help="A node that is not golden.")] = None,
    old: Annotated[str, typer.Option("--with", help="A reference whose nodes and days are added.")] = "",
    split: Annotated[str, typer.Option(help="LABEL or LABEL=VALUE of nodes that only compare among themselves.")] = "",
    recipes: Annotated[list[str] | None, typer.Option(help="Recipes that count; left out, all that ran.")] = None,
    accept_level: Annotated[str, typer.Option(help="Why a level that is low, or unpublished, is right.")] = "",
    accept_simulated: Annotated[bool, typer.Option(help="Figures that nobody measured count: for trials.")] = False,
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Save what golden nodes did, as an immutable ConfigMap; verdicts on other nodes are taken against it."""
    named = _named_recipes(act, name, accept_level, recipes or ())
    out = dict.fromkeys(without or (), "by --except")

    async def work(cluster: Cluster) -> tuple[str, Saved, _Drafted | None]:
        place = namespace or cluster.namespace
        saved = await _saved(cluster, place)
        wanted = name if act == "show" else old
        if wanted and wanted not in saved:
            fail(f"there is no reference {wanted} in namespace {place} (there is {', '.join(saved) or 'none'})")
        if act != "create":
            return place, saved, None
        make = partial(
            create, made_by=f"{getuser()}, {cluster.server}"[:200], made_at=format_time(datetime.now(UTC)),
            simulated=accept_simulated, accepted_level=accept_level, recipes=named,
        )  # fmt: skip
        label = split or "".join("=".join(pair) for pair in saved[old][1].split.items()) if old else split
        return place, saved, await _drafted(cluster, place, profile, out, label, make, saved[old][1] if old else None)

    place, saved, drafted = ask_cluster(reach, work)
    if drafted is None:
        _list(saved, output) if act == "list" else _show(name, saved[name], output)
        return
    (made, nodes), owner, reports = drafted
    levels, doubt = _levels(made, saved[old][1] if old else None)
    racks = {_racks(reports).get(node, "") for node in made.nodes}
    note(*(f"all golden nodes are of rack {rack}: {ONE_RACK}" for rack in racks if rack and len(racks) == 1))
    if dry_run:
        odd = [row["node"] for row in _tell(made, nodes, owner, reports, output) if row["verdict"] == "would fail"]
        out |= dict.fromkeys((node for node in odd if node not in made.left_out), "")
        say("\n".join(levels), err=output is not OutputFormat.TABLE)
    elif doubt and not accept_level:
        fail(f"{doubt}; look at it with --dry-run, then give --accept-level REASON")
    note(*(f"{node} is left out: {why}" for node, why in sorted(made.left_out.items())))
    if dry_run:
        options = [f"reference create {name} -n {place} --profile {owner.name}", *(f"--except {node}" for node in out)]
        options += [f"--with {old}"] * bool(old)
        options += [*(f"--split {'='.join(it)}" for it in made.split.items()), *(f"--recipes {it}" for it in named)]
        options += ["--accept-level REASON"] * bool(doubt) + ["--accept-simulated"] * accept_simulated
        note(*([doubt] if doubt else []), f"next: kubectl precision {' '.join(options)}")
        return
    _save(reach, place, name, made)


def _save(reach: Reach, place: str, name: str, made: Reference) -> None:
    """Writes it and says what to paste into a profile; ends the program where it is too large."""
    if len(text := text_of(made)) > 1_000_000:
        fail(f"it takes {len(text):,} bytes, more than a ConfigMap holds: name fewer recipes with --recipes")
    ask_cluster(reach, lambda cluster: _write(cluster, place, name, text))
    say(to_paste(name, text, made))
    note(f"next: kubectl precision reference show {name} -n {place}")


def _named_recipes(act: str, name: str, accept_level: str, recipes: Sequence[str]) -> Sequence[Recipe]:
    """Those of --recipes, in our order; ends the program where an option makes no sense."""
    if act not in ("create", "show", "list") or (act != "list" and not name):
        fail(f"reference {act}: " + ("name the reference" if act in ("create", "show") else "say create, show or list"))
    if len(accept_level) > 200 or not accept_level.isprintable() or (accept_level and not accept_level.strip()):
        fail("--accept-level: say why, in one line of at most 200 characters")
    named = [recipe for recipe in RECIPE_NAMES if recipe in recipes]
    if len(named) < len(recipes):
        fail(f"--recipes: name each once, of {', '.join(RECIPE_NAMES)}")
    return named


async def _drafted(
    cluster: Cluster, place: str, name: str | None, out: Mapping[str, str], split: str,
    make: Callable[..., tuple[Reference, Mapping[str, GoldenNode]]], old: Reference | None,
) -> _Drafted:  # fmt: skip
    """The reference of those whose results hold, the profile and its reports; `out`: who is left out by hand."""
    fleet = await results(cluster, place)
    if name is None and len(fleet.profiles) != 1:
        names = ", ".join(view.name for view in fleet.profiles) or "none"
        fail(f"name the profile whose results count with --profile (namespace {place} has {names})")
    owner = profile_named(fleet, name or fleet.profiles[0].name)
    reports = of_profile(fleet.reports, owner)
    if unknown := sorted(out.keys() - {report.node_name for report in reports} - {*(old.nodes if old else ())}):
        fail(f"--except {unknown[0]}: profile {owner.name} has no report of it")
    verdicts = {report.node_name: report.status.acceptance for report in reports if report.status}
    out = {n: f"it failed: {it.reason}" for n, it in verdicts.items() if it and it.verdict == "Fail"} | dict(out)
    left, measured = dict(out), dict[str, MeasurementResult]()
    for report in reports:
        node, reading = report.node_name, reading_of(report)
        if not finished(report):
            left.setdefault(node, "not measured yet")
        elif not reading.holds:
            left.setdefault(node, f"stale: {reading.stale or 'its newest attempt failed'}")
        if node not in left:
            detail = reading.run.detail if reading.run else None
            try:
                raw = await cluster.get(paths.item(paths.config_maps(place), detail or "-"))
                measured[node] = of_config_map(raw, (reading.run and reading.run.detail_sha256) or "")
            except (ApiError, ValueError) as error:
                why = (reading.run and reading.run.detail_problem) or error
                left[node] = f"its full result is missing: {why}"[:200]
    left = {node: why for node, why in left.items() if node in out or old is None or node not in old.nodes}
    label, _, value = split.partition("=")
    if split:
        held = await cluster.list_views(paths.NODES, lambda it: (it["metadata"]["name"], it["metadata"].get("labels")))
        values = {node: (labels or {}).get(label, "") for node, labels in held if node in measured}
        value = value or max(filter(None, values.values()), key=[*values.values()].count, default="")
        if not (label and value):
            fail(f"--split {split}: no measured node has this label")
        other = {node: values.get(node) or "not set" for node in measured if values.get(node) != value}
        left |= {node: f"its {label} is {its}, theirs {value}" for node, its in other.items()}
        measured = {node: result for node, result in measured.items() if node not in other}
    try:
        request = await _request(cluster, owner, "", 1, ()) if measured else None
        made, nodes = make(measured, left, request, old=old, split={label: value} if label else {})
        request = await _request(cluster, owner, made.key["product"], int(made.key["gpus"]), made.recipes)
        if resolve(request.workload).hash != made.key["workload"]:
            raise ValueError("its spec was edited after these runs: wait until they are repeated")
        resources = owner.spec.agent.resources.model_dump() if owner.spec else {}
        return (made.model_copy(update={"request": request, "resources": resources}), nodes), owner, reports
    except ValueError as error:
        end(NO_ANSWER, f"profile {owner.name}: {error}")


async def _request(
    cluster: Cluster, owner: ProfileView, product: str, gpus: int, recipes: Iterable[Recipe]
) -> MeasurementRequest:
    """What repeats the measurement on any such node: the operator's own request."""
    spec, texts = owner.spec, dict[tuple[str, str], Mapping[str, str] | None]()
    if spec is None:
        raise ValueError(f"its spec can't be read: {owner.problem}")
    source = spec.workload.hugging_face_config
    if source is not None and (ref := source.config_map_key_ref) is not None:
        held = await cluster.get(paths.item(paths.config_maps(owner.namespace), ref.name))
        texts[owner.namespace, ref.name] = held.get("data") or {}
    if isinstance(workload := with_text(spec.workload, owner.namespace, texts), Said):
        fail(workload.message)
    resolved = resolve(workload)
    asked = ResolvedProfile(AcceptedProfile.of(owner, spec), resolved.workload, resolved, "", "")
    facts = NodeFacts("any", "any", product_name=product, gpus=gpus)
    return measurement_request(asked, facts, "check", 1).model_copy(update={"recipes": tuple(recipes)})


def _racks(reports: Sequence[ReportView]) -> dict[str, str]:
    """By node, where it is known."""
    hardware = {report.node_name: report.status.hardware for report in reports if report.status}
    return {node: of.nvlink_domain for node, of in hardware.items() if of and of.nvlink_domain}


def _levels(made: Reference, old: Reference | None = None) -> tuple[list[str], str]:
    """Each recipe's level beside what is published, the peak and an older one; why it must be accepted by hand."""
    product, model = made.key["product"], resolve(made.request.workload).model
    gpu, (rows, models) = part(product), published_rows()
    lines, doubts = [], []
    for recipe, golden in made.recipes.items():
        reached = math.exp(golden.level / 100) * (made.flops_per_token or 0) / 1e12
        alike = [other for other in rows if (other.product, other.recipe) == (product, recipe) and other.teraflops]
        same = [other.teraflops or 0 for other in alike if model and models[other.model] == described(model)]
        published = median(same) if same else 0.0
        if reached < LOW_LEVEL * published:
            doubts.append(f"{recipe} reaches {reached / published:.0%} of the published rate")
        elif not published:
            doubts.append(f"no rate of {recipe} is published for this model and product")
        before = old.recipes.get(recipe) if old else None
        if before and drifted(before, shift := golden.level - before.level, golden.nodes):
            doubts.append(f"{recipe} is {percent(shift):+.1f} % off the older reference: another season, or slow nodes")
        beside = f"published: {published:.0f}" if published else "none is published"
        peak = f"; {reached * 1e12 / gpu.bf16_flops:.0%} of the dense BF16 peak" if gpu else ""
        lines.append(f"{recipe}: {reached:.0f} TFLOP/s per GPU ({beside}{peak})")
    return lines, "; ".join(doubts)


def _tell(
    made: Reference, nodes: Mapping[str, GoldenNode], owner: ProfileView, reports: Sequence[ReportView],
    output: OutputFormat,
) -> list[dict[str, Any]]:  # fmt: skip
    """Tells each node against the others, racks, what the reference finds, how long the rest takes; the nodes' rows."""
    racks, judged = _racks(reports), without_itself(nodes, list(made.recipes))
    rows = [_row(node, racks.get(node, ""), judged[node]) for node in judged]
    lines = [as_columns(rows, ("verdict",)), ""]
    pairs = [(row["rack"], check) for row in rows if row["rack"] for check in judged[row["node"]].rows]
    offs_by_rack = grouped(((it.recipe, rack), it.off) for rack, it in pairs if it.check == "reference")
    for (recipe, rack), offs in sorted(offs_by_rack.items()):
        error = percent((made.recipes[recipe].between or 0) / math.sqrt(len(offs)))
        lines.append(f"{recipe}, rack {rack}: {percent(fmean(offs)):+.2f} % (its error: {error:.2f} %)")
    lines += _promises(made)
    if (counts := status_of(owner).nodes) and owner.spec and (left := counts.queued + counts.running + counts.waiting):
        at_once = concurrency_limit(owner.spec.rollout.max_concurrent, counts.eligible)
        seconds = [float(r.status.run.duration_seconds) for r in reports if r.status and r.status.run]
        hours = math.ceil(left / at_once) * median(seconds) / 3600
        lines.append(f"{left} nodes are not measured yet: {hours:.1f} hours at {at_once} at a time (maxConcurrent)")
    say(printed(rows, output, lambda wide: "\n".join(lines), rows, tuple(rows[0])))
    return rows


def _row(node: str, rack: str, verdict: Verdict) -> dict[str, Any]:
    """A golden node beside the others, by its worst recipe: per cent of the node, and of its worst GPU."""
    worst = min((row for row in verdict.rows if row.gpu), key=lambda row: row.off, default=None)
    would_fail = any(row.outcome == "Fail" for row in verdict.rows)
    return {
        "node": node,
        "rack": rack,
        "off": round(percent(min((row.off for row in verdict.rows if row.check == "reference"), default=0.0)), 2),
        "worstGpu": worst.gpu if worst else "",
        "gpuOff": round(percent(worst.off), 2) if worst else None,
        "verdict": "would fail" if would_fail else verdict.outcome if verdict.outcome == "Pass" else verdict.reason,
    }


def _promises(made: Reference) -> list[str]:
    """What each check of each recipe finds against this reference, per cent."""
    lines = []
    for recipe, golden in made.recipes.items():
        scales = golden.between, golden.within, golden.change
        for (check, words), scale in zip(CHECKS.items(), scales, strict=True):
            alone = check == "node" and golden.gpus < 3
            bounds = None if alone else limits(golden, check, len(made.recipes))
            few = f"{golden.again} of {golden.nodes} nodes ran twice" if check == "change" else "too few nodes"
            what = f"finds nothing yet: {'fewer than three GPUs a node' if alone else few}"
            if bounds:
                finds, clear, least = (f"{-percent(-of):.1f} %" for of in (bounds.detect, bounds.clear, bounds.least))
                none = f", fails no node: needs {LEAST_GOLDEN}" * (check == "reference" and golden.nodes < LEAST_GOLDEN)
                what = f"{words} {percent(scale or 0):.2f} %; finds {finds} (clear {clear}, least {least}){none}"
            lines.append(f"{recipe}, check {check}: {what}")
    return lines


async def _write(cluster: Cluster, namespace: str, name: str, text: str) -> None:
    """The ConfigMap; what has the name already stays as it is."""
    meta = {"name": name, "labels": {LABEL: "v1"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": {KEY: text}}
    try:
        await cluster.create(paths.config_maps(namespace), body)
    except ApiError as error:
        if error.status != 409:
            raise
        fail(f"there is a ConfigMap {name} in namespace {namespace}: give the reference a name of its own")


async def _saved(cluster: Cluster, namespace: str) -> Saved:
    """All references of a namespace that can be read; the others are noted."""
    saved = {}
    for item in (await cluster.list_all(paths.config_maps(namespace), f"{LABEL}=v1"))[0]:
        text = str((item.get("data") or {}).get(KEY) or "")
        try:
            saved[str(item["metadata"]["name"])] = text, read_reference(text)
        except ValueError as error:
            note(f"ConfigMap {item['metadata']['name']}: {error}")
    return saved


def _list(saved: Saved, output: OutputFormat) -> None:
    rows = [
        {"name": name, "nodes": len(made.nodes), "recipes": ", ".join(made.recipes)}
        | {"split": ", ".join(map("=".join, made.split.items()))}
        | {key: made.key[key] for key in ("product", "gpus", "driver", "timing")}
        | {"data": made.provenance, "madeAt": made.made_at, "sha256": sha256_of(text)[:12]}
        for name, (text, made) in saved.items()
    ]
    if not rows:
        end(NO_ANSWER, "there is no reference: make one with kubectl precision reference create NAME --dry-run")
    say(printed(rows, output, lambda wide: as_columns(rows), rows, tuple(rows[0])))


def _show(name: str, saved: tuple[str, Reference], output: OutputFormat) -> None:
    """What it is made of and what to paste; with -o json the file itself, whose SHA-256 is its identity."""
    text, made = saved
    lines = [f"{len(made.nodes)} nodes, {made.provenance} since {made.oldest:%F}, by {made.made_by} at {made.made_at}"]
    lines += [f"{key}: {value}" for key, value in (made.key | made.split).items() if value]
    lines += [*_promises(made), *_levels(made)[0], f"accepted level: {made.accepted_level or 'as published'}"]
    say(text if output is OutputFormat.JSON else "\n".join([*lines, "", to_paste(name, text, made)]))


def to_paste(name: str, text: str, made: Reference) -> str:
    """A Job that checks one node (a kubelet refuses it without the reference's label), and what a profile needs."""
    selector = "".join(f'\n      nodeSelector: {{{label}: "{value}"}}' for label, value in made.split.items())
    split = "".join(f', --split, "{label}={value}"' for label, value in made.split.items())
    resources = json.dumps(claimed(Resources(**made.resources), int(made.key["gpus"])))
    here = {"selector": selector, "split": split, "key": KEY, "sha256": sha256_of(text), "name": name}
    deficits = finds(made.recipes, [*made.recipes]).items()
    here["finds"] = ", ".join(f"{check}: {math.ceil(least)}" for check, least in deficits if least < math.inf)
    here["recipes"] = ", ".join(made.recipes)
    return Template(_JOB).substitute(here, resources=resources, memory=SHARED_MEMORY)
