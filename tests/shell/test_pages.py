"""What tenants write is listed in small pages, and no more of it is kept than is read, however large it is."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from precision_api.acceptance.reference import read_reference
from precision_api.exchange.wire import _parsed, read_message
from precision_api.facts.names import (
    AGENT_APP,
    AGENT_CONTAINER,
    ANNOTATION_BASIS,
    ANNOTATION_RERUN,
    LABEL_APP,
    LABEL_PROFILE_UID,
    PROFILE_KIND,
)
from precision_api.models.huggingface import model_from_config
from precision_operator.cluster import Cluster
from precision_operator.cluster.client import PAGE_REPORTS, PAGE_TENANT
from precision_operator.core.observe.claims import claim_names
from precision_operator.core.observe.observed import Occupancy
from precision_operator.core.observe.pod_requests import Requests
from precision_operator.core.observe.views import occupancy
from precision_operator.core.observe.waiting_pods import gpus_of_resources
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from precision_operator.exporter.watch import Watching, targets
from precision_operator.handlers import targets as watched
from precision_operator.report.detail import of_text
from precision_operator.shell.observing.cache import MOST_MARK, TRIM, Cache, ObjectKind
from precision_operator.shell.observing.gather import list_into
from precision_operator.shell.observing.reader import MOST_CLAIMS, MOST_EVENTS, Reader, _asking
from precision_operator.shell.observing.yields import Yields, _kept
from precision_operator.shell.plans.capacity_plans import Planning
from precision_operator.shell.telemetry import FaultLog
from tests.cluster.test_client import facing

COUNT, SIZE = 60, 1_000_000
MOST_BYTES = 200 << 20
"""Of memory for one list: a page of 20 MB is held seven times over, by this server too; all would be 400 MB."""
SAID = "0/1 nodes are available: 1 cannot allocate all claims."


def large(path: str, number: int) -> dict[str, Any]:
    """An object of a megabyte: of most kinds a pod's, which waits for GPUs by claim."""
    kept = {"status": "False", "type": "PodScheduled", "message": SAID}
    container = {"name": "c", "env": [{"name": "LARGE", "value": "x" * SIZE}], "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": f"o{number}", "namespace": "ml", "uid": f"{path}-{number}", "resourceVersion": "5"}
    spec = {"containers": [container], "resourceClaims": [{"name": "g", "resourceClaimName": "g"}]}
    if any(kind in path for kind in ("capacityplans", "precisionprofiles", "reports")):
        return {"metadata": {**meta, "finalizers": ["x" * (SIZE >> ("reports" in path))]}, "spec": {}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending", "conditions": [kept]}}


async def exported(cluster: Cluster, plural: str) -> None:
    watching = Watching(cluster, Store(), OwnMetrics(), targets(["ml"]), 60.0)
    (target,) = (target for target in watching.states if target.plural == plural)
    await watching._list(target)


async def waiting_pods(cluster: Cluster) -> None:
    cache = Cache()
    agent = large("agents", 0)
    agent["metadata"]["labels"] = {LABEL_APP: AGENT_APP, LABEL_PROFILE_UID: "p", "batch.kubernetes.io/job-name": "j"}
    cache.put("pods", agent)
    await Yields(cluster, cache, "gpu.nvidia.com").look()


async def plans(cluster: Cluster) -> None:
    await Planning(cluster, Cache(), ("ml",), FaultLog(lambda *_: None)).list_one("ml")


LISTS: dict[str, Callable[[Cluster], Awaitable[object]]] = {
    "profiles": lambda cluster: list_into(Cache(), cluster, "profiles", "ml"),
    "jobs": lambda cluster: list_into(Cache(), cluster, "jobs", "ml"),
    "pods": lambda cluster: list_into(Cache(), cluster, "pods", "ml"),
    "pods of a node": lambda cluster: Reader(cluster).occupancy("n1"),
    "why Jobs have no pod": lambda cluster: Reader(cluster).creation_problems("ml"),
    "pods that wait": waiting_pods,
    "plans": plans,
    "profiles of the exporter": lambda cluster: exported(cluster, "precisionprofiles"),
    "reports": lambda cluster: list_into(Cache(), cluster, "reports", "ml"),
    "reports of the exporter": lambda cluster: exported(cluster, "nodeprecisionreports"),
    "plans of the exporter": lambda cluster: exported(cluster, "capacityplans"),
}


@pytest.mark.parametrize("listing", LISTS.values(), ids=LISTS)
async def test_a_list_of_what_tenants_write_holds_a_small_page_of_it(
    listing: Callable[[Cluster], Awaitable[object]], tmp_path: Path
) -> None:
    limits: dict[str, int] = {}

    async def server(request: web.Request) -> web.Response:
        if "limit" not in request.query:
            raise web.HTTPNotFound
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        limits[request.path] = limit
        items = ",".join(json.dumps(large(request.path, number)) for number in range(start, min(start + limit, COUNT)))
        token = str(start + limit) if start + limit < COUNT else ""
        text = f'{{"metadata": {{"resourceVersion": "9", "continue": "{token}"}}, "items": [{items}]}}'
        return web.Response(text=text, content_type="application/json")

    async with facing(server, tmp_path, 60.0) as cluster:
        forget_peak()
        before = peak_bytes()
        await listing(cluster)
    assert limits
    assert max(limits.values()) <= PAGE_TENANT
    assert peak_bytes() - before < MOST_BYTES


async def test_so_many_events_of_a_namespace_are_read_and_no_more(tmp_path: Path) -> None:
    pages = []

    async def server(request: web.Request) -> web.Response:
        pages.append(request.query["limit"])
        event = {"involvedObject": {"uid": str(len(pages))}, "message": "no"}
        token = "more" if len(pages) < COUNT else ""
        return web.json_response({"metadata": {"continue": token}, "items": [event] * PAGE_TENANT})

    async with facing(server, tmp_path, 60.0) as cluster:
        assert len(await Reader(cluster).creation_problems("ml")) == len(pages) == MOST_EVENTS / PAGE_TENANT


async def test_what_is_kept_of_a_list_is_cut_after_each_page(tmp_path: Path) -> None:
    async def server(request: web.Request) -> web.Response:
        start = int(request.query.get("continue", 0))
        token = str(start + 2) if start < 8 else ""
        return web.json_response({"metadata": {"continue": token}, "items": [{"at": start}, {"at": start + 1}]})

    held = []
    async with facing(server, tmp_path, 60.0) as cluster:
        kept, _ = await cluster.list_trimmed("/pods", dict, cut=lambda views: held.append(len(views)) or views[-3:])
    assert (max(held), [row["at"] for row in kept]) == (5, [7, 8, 9])


def test_watches_list_in_small_pages_and_of_a_pod_little_is_kept() -> None:
    large_pages = {target.plural for target in watched(["ml"]) if target.page_items > PAGE_REPORTS}
    assert large_pages == {"nodes", "resourceslices"}
    pod = large("pods", 1)
    asks = {"requests": {"cpu": "1", "nvidia.com/gpu": "1", "vpc/nic": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    containers = [{"name": "c", "resources": asks | {"claims": [{"name": "g"}] * 9}, "restartPolicy": "Always"}] * 500
    pod["metadata"]["ownerReferences"] = [{"uid": "u", "controller": True}, {"uid": "x" * SIZE}]
    pod["spec"] |= dict.fromkeys(("containers", "initContainers"), containers) | {"overhead": {"cpu": "1"}}
    made = [{"name": f"g{n}", "resourceClaimName": f"c{n}"} for n in range(5_000)]
    pod["status"] |= {"resourceClaimStatuses": made, "message": "x" * SIZE}
    kept = _kept(pod, "gpu") or {}
    assert gpus_of_resources(kept, "gpu") == gpus_of_resources(pod, "gpu") == 500
    assert occupancy([_asking(pod, None)]) == occupancy([pod]) == Occupancy("ml/o1", 1_001, Requests(1_001_000, 0))
    pod["spec"] |= dict.fromkeys(("affinity", "nodeSelector", "tolerations"), "x" * SIZE) | {"resourceClaims": made}
    of_node = _asking(pod, None)
    assert claim_names(of_node) == claim_names(pod)[: MOST_CLAIMS + 1]
    assert len(json.dumps(of_node)) < 40 * MOST_CLAIMS
    assert len(json.dumps(kept)) < 1000
    assert kept["metadata"]["ownerReferences"] == [{"uid": "u", "controller": True}]


READERS: tuple[Callable[[str], object], ...] = (
    *(read_reference, of_text, read_message, model_from_config),
    lambda text: _parsed(text.encode()),
)
PAD = " " * 10
TEXTS = {
    "objects": ("[", "{},", "{}]"),
    "fewer objects": ("[", "{}," + PAD * 3, "{}]"),
    "lists of objects": ("[", '{"gemms":[{},{},{},{}]},' + PAD * 9, "{}]"),
    "equal keys": ("{", '"":{},', '"":{}}'),
    "keys": ("{", '"#":{},', '"":{}}'),
    "fewer keys": ("{", '"#":{},' + PAD * 8, '"":{}}'),
    "keys of keys": ("{", '"#":{"speeds":{"0":0,"1":0,"2":0}},', '"":{}}'),
    "depth": ("", "[", ""),
}


@pytest.mark.parametrize("field", ["recipes", "nodes", "gpus", "hidden_size"])
@pytest.mark.parametrize(("begin", "unit", "end"), TEXTS.values(), ids=TEXTS)
def test_a_text_of_a_megabyte_is_refused_at_the_cost_of_twenty(begin: str, unit: str, end: str, field: str) -> None:
    units = "".join(unit.replace("#", f"{number:x}") for number in range(SIZE // len(unit)))
    for reader in READERS:
        forget_peak()
        before = peak_bytes()
        with pytest.raises(ValueError, match=r"."):
            reader(f'{{"{field}":{begin}{units}{end}}}')
        assert peak_bytes() - before < 20 << 20


@pytest.mark.parametrize(
    ("kind", "mark"), [("jobs", ANNOTATION_BASIS), ("pods", ANNOTATION_BASIS), ("reports", ANNOTATION_RERUN)]
)
def test_the_marks_that_are_read_are_kept_and_cut(kind: ObjectKind, mark: str) -> None:
    marks = {LABEL_PROFILE_UID: "p", mark: "x" * SIZE} | {str(n): "x" * 60 for n in range(10_000)}
    owners = [{"uid": "u", "controller": True, "kind": PROFILE_KIND}, *({"uid": "x" * 60} for _ in range(10_000))]
    raw = large("pods", 0) | {"spec": {"resourceClaims": [{"name": "x"}] * 1_000}}
    raw["metadata"] |= {"labels": marks, "annotations": marks, "ownerReferences": owners}
    kept = TRIM[kind](raw | ({"spec": {}} if kind == "reports" else {}))
    kept = kept.unread if kind == "reports" else kept
    assert kind == "reports" or kept["metadata"]["labels"][LABEL_PROFILE_UID] == "p"
    assert kept["metadata"]["ownerReferences"] == owners[:1]
    assert len(json.dumps(kept)) < 20_000


def test_of_a_labelled_pod_the_agents_own_rows_are_kept_and_cut() -> None:
    many = [{"name": f"c{n}", "type": str(n), "image": "x" * 60} for n in range(5_000)]
    agent = {"name": AGENT_CONTAINER, "type": "PodScheduled", "state": {"waiting": {"message": "x" * SIZE}}}
    rows = {key: [*many, agent] for key in ("conditions", "containerStatuses", "resourceClaimStatuses")}
    kept = TRIM["pods"](large("pods", 0) | {"status": {"message": "x" * SIZE, **rows}})
    assert [row["name"] for row in kept["status"]["containerStatuses"]] == [AGENT_CONTAINER]
    assert len(json.dumps(kept)) < 4 * MOST_MARK


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Most memory that was resident since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
