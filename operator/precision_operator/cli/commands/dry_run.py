"""`kubectl precision dry-run`: what a profile would do to each node now, and why, without doing it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from precision_api.facts.plain_text import number_of
from precision_api.kinds.profile import ProfileSpec
from precision_operator.cli.allowed import strictly
from precision_operator.cli.columns import Column, Columns, as_cells, as_row, keys
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.gathering import ProfileInFile, Seen, planned
from precision_operator.cli.operator_settings import UNKNOWN_IMAGE
from precision_operator.cli.options import FormOf, Namespace, Reach, asks_cluster, seconds_of
from precision_operator.cli.output import OutputFormat, as_columns, printed
from precision_operator.cli.saved import read, saved_nodes, saved_profile
from precision_operator.cli.terminal import did_you_mean, fail, note, say, sentences
from precision_operator.cluster import Cluster
from precision_operator.core.eligibility.request import layer_notes, misfits
from precision_operator.core.observe.observed import Observed, Occupancy, ProfileView, Settings
from precision_operator.core.observe.views import profile_view
from precision_operator.core.plan import Plan, plan
from precision_operator.core.reasons import Said
from precision_operator.core.status.decisions import DECISIONS, GONE, rows
from precision_operator.shell.observing.gather import Texts

COLUMNS: Columns[Mapping[str, Any]] = (
    Column("node", header="node"),
    *(Column(header=name, wide=True) for name in ("product", "gpus", "by", "pool", "due")),
    *(Column(name, header=name) for name in ("decision", "reason", "message")),
)


@asks_cluster
def dry_run(
    filename: Annotated[str, typer.Option("--filename", "-f", help="A file with a PrecisionProfile; - reads stdin.")],
    nodes: Annotated[
        str | None, typer.Option(help="Nodes saved by kubectl get nodes -o json, instead of a cluster.")
    ] = None,
    output: FormOf = OutputFormat.TABLE,
    config_map: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="The config.json that the profile takes from ConfigMap NAME."),
    ] = None,
    namespace: Namespace = None,
    *,
    reach: Reach,
) -> None:
    """Print what a profile would do to each node now, and why; nothing is changed."""
    try:
        profile = _profile(saved_profile(filename), namespace)
        texts = _config_maps(profile, config_map or [])
        saved = saved_nodes(nodes) if nodes is not None else None
        seconds_of(reach.request_timeout)
    except ValueError as error:
        fail(sentences(error, "spec", ProfileSpec))
    if saved is not None:
        seen = _offline(profile, texts, saved)
        decided, key = plan(seen), profile.key
    else:
        seen, decided, key = _online(profile, texts, reach)
    say(plan_text(key, decided, seen, output))


def plan_text(key: str, decided: Plan, seen: Observed, output: OutputFormat) -> str:
    """What is printed of the profile `key`; ends the command with the reason where the profile can't be measured."""
    planned = next(item for item in decided.profiles if item.profile.key == key)
    if isinstance(planned.asked, Said):
        fail(f"{planned.asked.reason}: {planned.asked.message}")
    nodes = [node_state.facts for node_state in planned.node_states]
    note(*misfits(planned.asked.resolved, nodes))
    note(*layer_notes(planned.asked, nodes))
    note(*_unknown_names(planned.profile, seen))
    listed = rows(planned, decided, seen)
    plain = [as_row(COLUMNS, row) for row in listed]
    return printed(plain, output, lambda wide: _table(listed, wide), plain, keys(COLUMNS))


def _unknown_names(profile: ProfileView, seen: Observed) -> Iterator[str]:
    """A sentence for each name of spec.target.nodeNames that no node has."""
    there = [str(raw["metadata"]["name"]) for raw in seen.nodes.values()]
    for name in profile.spec.target.node_names if profile.spec is not None else ():
        if name not in there:
            yield f"spec.target.nodeNames: there is no node {name}{did_you_mean(name, there, 'See kubectl get nodes')}"


def _profile(raw: Mapping[str, Any], namespace: str | None) -> ProfileView:
    """The profile in the file. Raises ValidationError with all that is wrong with its spec."""
    strictly(ProfileSpec, raw["spec"])
    in_file = raw["metadata"].get("namespace")
    if namespace and in_file and namespace != in_file:
        raise ValueError(f"the profile's namespace is {in_file}, --namespace says {namespace}: leave one of them out")
    view = profile_view({**raw, "status": {}})
    return replace(view, namespace=namespace or in_file or "", created=datetime.now(UTC))


def _config_maps(profile: ProfileView, texts: Sequence[str]) -> dict[tuple[str, str], dict[str, str]]:
    source = profile.spec.workload.hugging_face_config if profile.spec else None
    ref = source.config_map_key_ref if source else None
    contents: dict[tuple[str, str], dict[str, str]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ValueError(f"--config-map: {text!r} is no NAME=FILE; write for example my-model=config.json")
        if ref is None or ref.name != name:
            raise ValueError(f"--config-map: the profile takes nothing from a ConfigMap {name}")
        contents[profile.namespace, name] = {ref.key: read(str(Path(path)))}
    return contents


def _offline(profile: ProfileView, texts: Texts, nodes: Iterable[Mapping[str, Any]]) -> Observed:
    note("without a cluster nodes count as idle, and the operator's settings and other profiles are not known")
    image = (profile.spec.agent.image if profile.spec else None) or UNKNOWN_IMAGE
    by_uid = {str(node["metadata"].get("uid") or node["metadata"]["name"]): node for node in nodes}
    return Observed(
        now=profile.created,
        settings=Settings(UNKNOWN_IMAGE, (image,), priority_class="", agent_service_account=""),
        profiles=(profile,),
        nodes=by_uid,
        occupancy={str(node["metadata"]["name"]): Occupancy(None) for node in by_uid.values()},
        config_maps=texts,
    )


def _online(profile: ProfileView, texts: Texts, reach: Reach) -> tuple[Observed, Plan, str]:
    """The world with the profile in it, the plan for it, and the profile's key there."""

    async def ask(cluster: Cluster) -> tuple[Seen, str]:
        placed = replace(profile, namespace=profile.namespace or cluster.namespace)
        placed_texts = {(placed.namespace, name): data for (_, name), data in texts.items()}
        return await planned(cluster, ProfileInFile(placed, placed_texts)), placed.key

    seen, key = ask_cluster(reach, ask)
    note(*seen.notes)
    return seen.observed, seen.plan, key


def _table(rows: Sequence[Mapping[str, Any]], wide: bool) -> str:
    if not rows:
        return "There are no nodes."
    cells = [as_cells(COLUMNS, row, wide) for row in rows]
    counts = Counter(row["decision"] for row in rows)
    parts = [f"{counts[word]} {word}" for word in dict.fromkeys((*DECISIONS.values(), GONE)) if counts[word]]
    body = as_columns(cells, *(() if wide else (("message",), ("node",))))
    return f"{body}\n\n{number_of(len(rows), 'node')}: {', '.join(parts)}"
