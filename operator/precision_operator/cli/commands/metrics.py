"""`kubectl precision metrics NODE`: the series that the exporter shows of one node, made from the same table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from precision_api.names import LABEL_MANAGED_BY, MANAGED_BY
from precision_operator.cli.codes import NO_ANSWER
from precision_operator.cli.connection_options import ask_cluster, count_of
from precision_operator.cli.failure import did_you_mean, end, fail
from precision_operator.cli.object_ref import bare_node
from precision_operator.cli.options import (
    AllNamespaces,
    Context,
    FormOf,
    Kubeconfig,
    Namespace,
    OfProfile,
    Reach,
    RequestTimeout,
    place_of,
)
from precision_operator.cli.output import WIDTH, OutputFormat, as_columns, printed, say
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import Raw
from precision_operator.exporter.families.family import LEVELS, Level, shown_at
from precision_operator.exporter.families.pools import Beside, pools
from precision_operator.exporter.families.table import NODE_FAMILIES, STANDING_FAMILIES
from precision_operator.exporter.reading import NodeResult, owner_uid, read_report, slow_node_percent, workload_name

COLUMNS = ("metric", "value", "labels")


def metrics(
    node: Annotated[str, typer.Argument(help="A node: NAME or node/NAME.", callback=bare_node)],
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    profile: OfProfile = None,
    level: Annotated[str, typer.Option(help="metricsLevel of the exporter: pool, node or detail.")] = "node",
    output: FormOf = OutputFormat.TABLE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = "30s",
) -> None:
    """Print the series that the exporter shows of a node; -o wide gives Prometheus' own text with help."""
    told = next((each for each in LEVELS if each == level), None)
    if told is None:
        fail(f"--level: {level!r} is none of {', '.join(LEVELS)}")

    async def work(cluster: Cluster) -> tuple[str | None, list[Raw], list[tuple[Raw, NodeResult | None]]]:
        place = place_of(namespace, all_namespaces, cluster.namespace)
        profiles = await cluster.list_views(paths.profiles(place), _plain)
        names = {(p["metadata"]["namespace"], p["metadata"]["name"]): workload_name(p) for p in profiles}
        uids = {(p["metadata"]["namespace"], p["metadata"]["name"]): str(p["metadata"]["uid"]) for p in profiles}
        mine = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
        reports = await cluster.list_views(paths.reports(place), _reader(names, uids), mine, count_of("reports"))
        return place, profiles, reports

    place, profiles, found = ask_cluster(Reach(kubeconfig, context, request_timeout), work)
    _check(node, place, [raw["spec"]["nodeName"] for raw, _ in found])
    if profile is not None:
        _check_profile(profile, place, [raw["metadata"]["name"] for raw in profiles])
    known = [result for _, result in found if result is not None]
    percents: dict[tuple[str, ...], float] = {
        (p["metadata"]["namespace"], p["metadata"]["name"]): slow_node_percent(p) for p in profiles
    }
    series = [row for row in rows(known, percents, node, told) if profile in (None, row["labels"]["profile"])]
    if not series and told == "pool":
        end(NO_ANSWER, "at metricsLevel pool the exporter shows pools, profiles and plans alone: take --level node")
    if not series:
        end(NO_ANSWER, f"{node} has no result yet, so it has no series. See kubectl precision why {node}")
    flat = [{**row, "labels": _labels(row["labels"])} for row in series]
    say(printed(series, output, lambda wide: _text(series) if wide else _table(series), flat, COLUMNS))


def _check_profile(profile: str, place: str | None, known: list[str]) -> None:
    if profile not in known:
        where = f" in namespace {place}" if place else ""
        fail(f"there is no profile {profile}{where}{did_you_mean(profile, known, 'See kubectl get pp -A')}")


def _plain(raw: Raw) -> Raw:
    """A profile, with the one field that lists leave to the request."""
    return {"metadata": raw["metadata"], "spec": raw.get("spec") or {}}


def _reader(workloads: Mapping[tuple[str, str], str], uids: Mapping[tuple[str, str], str]) -> Any:
    """Reads a report, but for one of a deleted profile whose name another one has: the exporter shows none either."""

    def read(raw: Raw) -> tuple[Raw, NodeResult | None] | None:
        spec = raw.get("spec") or {}
        if "nodeName" not in spec:
            return None
        key = (str(raw["metadata"]["namespace"]), str(spec.get("profile", "")))
        uid = owner_uid(raw)
        if uid and uids.get(key, uid) != uid:
            return None
        try:
            return {"spec": spec}, read_report(raw, workloads.get(key, ""))
        except ValueError:
            return {"spec": spec}, None

    return read


def _check(node: str, place: str | None, known: list[str]) -> None:
    if node in known:
        return
    where = f" in namespace {place}" if place else ""
    see = f"Why a node has none: kubectl precision why {node}; reports of other namespaces: kubectl precision nodes -A"
    fail(f"no report{where} is of a node {node}{did_you_mean(node, known, see)}")


def rows(
    found: list[NodeResult], percents: Mapping[tuple[str, ...], float], node: str, level: Level
) -> Iterator[dict[str, Any]]:
    """The series of one node at a metricsLevel: what it measured, and how it compares with its peers."""
    mine = [result for result in found if result.node == node]
    for family in NODE_FAMILIES:
        if shown_at(level, family.level):
            for result in mine:
                yield from (_series(family.name, family.help, family.labels, *row) for row in family.full_rows(result))
    standings = [p.standings[node] for p in pools(found, Beside(percents)) if node in p.standings]
    for of_standing in STANDING_FAMILIES:
        if shown_at(level, of_standing.level):
            for standing in standings:
                told = of_standing.full_rows(standing)
                yield from (_series(of_standing.name, of_standing.help, of_standing.labels, *row) for row in told)


def _series(name: str, help_text: str, labels: tuple[str, ...], values: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {"metric": name, "value": value, "labels": dict(zip(labels, values, strict=True)), "help": help_text}


def _labels(labels: dict[str, str]) -> str:
    """What tells one of the node's series from another: the labels that all of them share are left out."""
    shared = ("profile_namespace", "node")
    return ", ".join(f"{key}={value}" for key, value in labels.items() if key not in shared and value)


def _table(series: list[dict[str, Any]]) -> str:
    """What all series share, then each with its value and the rest of its labels."""
    first = series[0]["labels"]
    shared = {key: value for key, value in first.items() if all(row["labels"].get(key) == value for row in series)}
    rows = [
        {
            "metric": row["metric"],
            "value": _rounded(row["value"]),
            "labels": ", ".join(f"{k}={v}" for k, v in row["labels"].items() if v and k not in shared),
        }
        for row in series
    ]
    head = ", ".join(f"{key}={value}" for key, value in shared.items() if value)
    header, *lines = as_columns(rows).splitlines()
    indent = " " * header.index("LABELS")
    return "\n".join([_folded(f"Each with {head}", ""), "", header, *(_folded(line, indent) for line in lines)])


def _folded(line: str, indent: str) -> str:
    """`line`, broken between words where it is too long."""
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _rounded(value: float) -> float:
    """Six digits; whole numbers (times among them) stay as they are."""
    rounded = value if float(value).is_integer() else float(f"{value:.6g}")
    return int(rounded) if float(rounded).is_integer() else rounded


def _text(series: list[dict[str, Any]]) -> str:
    """Prometheus' exposition format, as a scrape gives it."""
    from precision_operator.exporter.text import escape, header, number

    lines: list[str] = []
    before = ""
    for row in series:
        if row["metric"] != before:
            lines.append(header(row["metric"], row["help"], "gauge").decode().rstrip())
        before = row["metric"]
        labels = ",".join(f'{key}="{escape(value)}"' for key, value in sorted(row["labels"].items()))
        lines.append(f"{row['metric']}{{{labels}}} {number(row['value'])}")
    return "\n".join(lines)
