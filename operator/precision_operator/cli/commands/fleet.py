"""`kubectl precision fleet`: what the planner needs of a cluster, for a file that plans can be made from anywhere."""

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

from precision_api.exchange.request import step_marks
from precision_api.facts.recipes import recipe_text
from precision_operator.cli.columns import Column, Columns, as_cells, keys
from precision_operator.cli.connection_options import ask_cluster, count_of
from precision_operator.cli.options import AllNamespaces, FormOf, Namespace, Reach, asks_cluster, place_of
from precision_operator.cli.output import OutputFormat, as_columns, printed
from precision_operator.cli.terminal import NO_ANSWER, end, note, say
from precision_operator.cluster import Cluster, paths
from precision_operator.cluster.client import PAGE_TENANT
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, racks, report_facts


@asks_cluster
def fleet(
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: FormOf = OutputFormat.TABLE,
    *,
    reach: Reach,
) -> None:
    """Show (or, with -o json, save) what plans are made from: pools with measured rates, watts and their provenance."""
    place = partial(place_of, namespace, all_namespaces)
    measured = ask_cluster(reach, lambda cluster: fleet_of_cluster(cluster, [place(cluster.namespace)]))
    note(*measured.notes)
    if not measured.pools:
        end(NO_ANSWER, "there is no report with a result: run a PrecisionProfile first, or look elsewhere with -n, -A")
    table = rows(measured)
    if not table and output in (OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.CSV):
        end(NO_ANSWER, "no report has a training rate: see what failed with kubectl precision nodes, and measure again")
    cells = [as_cells(COLUMNS, row) for row in table]
    document = saved(measured) if output in (OutputFormat.JSON, OutputFormat.YAML) else {}
    say(printed(document, output, lambda _: as_columns(cells), table, keys(COLUMNS)))


COLUMNS: Columns[Any] = (
    *(Column(name, header=name) for name in ("pool", "product", "workload")),
    Column("recipe", header="recipe", cell=lambda row: recipe_text(row["recipe"], None, None, "bf16", row["step"])),
    *(Column("step"), Column("nodes", header="nodes")),
    Column("teraflopsPerGPU", header="TFLOP/s per GPU"),
    Column("tokensPerSecondPerGpu", header="tokens/s per GPU"),
    Column("slowestTokensPerSecondPerGpu", header="slowest"),
    Column("data", header="data"),
)


def saved(snapshot: Fleet) -> dict[str, Any]:
    """The fleet as the file that plans are made from."""
    return {"version": snapshot.version} | snapshot.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )


async def fleet_of_cluster(cluster: Cluster, places: Sequence[str | None]) -> Fleet:
    """The fleet of these namespaces (None: all). Raises ApiError."""
    now = datetime.now(UTC)
    node_racks, progress = (lambda node: [*racks([node]).items()]), count_of("nodes")
    rack_of, _ = await cluster.list_trimmed(paths.NODES, node_racks, limit=PAGE_TENANT * 5, progress=progress)
    reports, campaigns = deque[bytes](), []
    for place in places:
        reports += await cluster.list_views(paths.reports(place), report_facts, progress=count_of("reports"))
        campaigns += await cluster.list_views(paths.profiles(place), profile_facts)
    where = ", ".join(place or "all namespaces" for place in places)
    consumed = (reports.popleft() for _ in range(len(reports)))  # each goes once it is read
    return fleet_of(consumed, campaigns, dict(chain.from_iterable(rack_of)), now, f"cluster {cluster.server}, {where}")


def rows(snapshot: Fleet) -> list[dict[str, Any]]:
    """One row for each pool, workload and recipe."""
    workloads = {workload.key: workload for workload in snapshot.workloads}
    return [
        {
            "pool": pool.name,
            "product": pool.product,
            "workload": workloads[key].name,
            "recipe": recipe,
            "step": step,
            "nodes": len(rates),
            "teraflopsPerGPU": (flops := workloads[key].flops_per_token) and float(f"{middle * flops / 1e12:.4g}"),
            "tokensPerSecondPerGpu": round(middle, 1),
            "slowestTokensPerSecondPerGpu": round(min(rates), 1),
            "data": ", ".join(sorted(kinds)),
        }
        for pool in snapshot.pools
        for (key, recipe, step), (rates, kinds) in _grouped(pool.nodes).items()
        for middle in [sorted(rates)[len(rates) // 2]]
    ]


def _grouped(nodes: Sequence[Any]) -> dict[tuple[str, str, str | None], tuple[list[float], set[str]]]:
    """By workload, recipe and what is special in its step."""
    groups: dict[tuple[str, str, str | None], tuple[list[float], set[str]]] = {}
    for node in nodes:
        for result in node.results:
            for rate in result.rates:
                if rate.synchronous_tokens_per_second is not None:
                    key = result.workload, rate.recipe, step_marks(rate.recipe, result.workload_hash)
                    values, kinds = groups.setdefault(key, ([], set()))
                    values += [rate.synchronous_tokens_per_second / (result.gpus or node.gpus)] * node.count
                    kinds.add(result.provenance)
    return groups
