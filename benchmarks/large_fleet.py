"""A large fleet that profiles have measured: nodes as kubelets leave them, reports of the agent's own replays.

Nodes have some 31 KiB: 50 images, labels of GPU and node feature discovery, managedFields. Some nodes of each of four
pools are planned for by the operator's core, replayed by the agent and taken in as the operator does it, three runs
each; 1 % of all are throttled. The report of any other node is one of theirs under its own name and UUIDs, with figures
that differ by up to 0.5 %, so that each is a text of its own as on a real fleet. One profile has verdicts.

    python -m benchmarks.large_fleet [--nodes 10000] [--verdicts]

prints what operator and exporter keep of a report (the growth of the process over the number of reports), its peak, and
the CPU that taking one in costs, of reports as a list gives them, with or without verdicts.
"""

import argparse
import gc
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from pydantic_core import from_json, to_json

from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.run.run import Outcome, run_request
from precision_api.acceptance.create import create
from precision_api.acceptance.reference import read_reference, sha256_of, text_of
from precision_api.exchange.request import MeasurementRequest, canonical
from precision_api.exchange.wire import read_message
from precision_api.facts.names import API_VERSION, PROFILE_KIND, REFERENCE_FILE, REPORT_PLURAL, REQUEST_ENV
from precision_api.facts.products import ProductClass
from precision_lab.fleet.fleet import AGENT_IMAGE, NodeSpec, node_manifest
from precision_operator.core.attempts import manifest
from precision_operator.core.attempts.actions import Start
from precision_operator.core.attempts.verdicts import terms_of
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.observed import Observed, Occupancy, SavedReference
from precision_operator.core.observe.views import job_view, profile_view, report_view
from precision_operator.core.plan import plan
from precision_operator.core.results import ingest
from precision_operator.core.results.acceptance import decided, with_result
from precision_operator.exporter.store import Store
from precision_operator.shell.observing.cache import Cache
from tests.support.world import SETTINGS

Json = dict[str, Any]
NAMESPACE, REFERENCE = "ml", "gold"
PRODUCTS: tuple[ProductClass, ...] = ("GB200", "GB300", "B200", "B300")
RECIPES = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
SAMPLES, GOLDEN, RUNS, THROTTLED_EACH = 2, 8, 3, 101
"""Replayed nodes of a pool beside a throttled one, nodes of the reference, runs; one node of so many is throttled."""
_FEATURES = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{place:03}": "true" for place in range(112)}
_OWNED = {f"f:feature.node.kubernetes.io/cpu-cpuid.FEATURE{place:03}": {} for place in range(134)}
_IMAGES = [
    {
        "names": [
            f"registry.example.net/team-{place:02}/some-service@sha256:{place:064x}",
            f"registry.example.net/team-{place:02}/some-service:2026.11.{place}",
        ],
        "sizeBytes": 10_000_000_000 - place,
    }
    for place in range(50)
]
_FIGURE = re.compile(r"\d+(\.\d+)?")


def node(index: int) -> Json:
    """One node of the pools in turn, with all that decisions don't need: nearly all of it is the same on each node."""
    product, number = PRODUCTS[index % len(PRODUCTS)], index // len(PRODUCTS)
    raw = node_manifest(NodeSpec(product), f"{product.lower()}-{number:04d}", number)
    meta, name = raw["metadata"], raw["metadata"]["name"]
    kernel = {"feature.node.kubernetes.io/kernel-version.full": "6.14.0-1013-nvidia-64k"}
    serial = {"example.com/serial": f"serial-{index:08}"}
    managed = {"manager": "nfd-master", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    conditions = [
        {"type": kind, "status": state, "reason": "KubeletReports", "message": "as the kubelet says"}
        for kind, state in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
    ]
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "192.0.2.1"}]
    return {
        **raw,
        "metadata": meta
        | {
            "uid": f"uid-{index:08}-0000-0000-0000-000000000000",
            "resourceVersion": "10",
            "labels": meta["labels"] | _FEATURES | kernel | serial,
            "annotations": {"nfd.node.kubernetes.io/feature-labels": ",".join(_FEATURES)},
            "managedFields": [managed | {"fieldsV1": {"f:metadata": {"f:labels": _OWNED}}}],
        },
        "status": raw["status"]
        | {"images": [*raw["status"]["images"], *_IMAGES], "addresses": addresses, "conditions": conditions},
    }


def profile(number: int, sha256: str = "") -> Json:
    """A profile of all nodes and five recipes, not suspended; with the SHA-256 of a reference it asks for verdicts."""
    spec: Json = {"workload": {"preset": "llama3-8b"}, "recipes": [*RECIPES], "rollout": {"maxConcurrent": 1}}
    spec |= {"acceptance": {"reference": {"name": REFERENCE, "sha256": sha256}}} if sha256 else {}
    name, created = f"profile-{number:02}", format_time(datetime.now(UTC) - timedelta(days=9))
    meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "20", "generation": 1}
    meta |= {"creationTimestamp": created}
    return {"apiVersion": API_VERSION, "kind": PROFILE_KIND, "metadata": meta, "spec": spec, "status": {}}


@dataclass(frozen=True)
class Sample:
    """What one node's runs left in its report, and the texts there that are the node's own."""

    status: Json
    verdict: Json
    node_texts: tuple[str, ...]


def _own_texts(index: int, raw: Json, gpus: int) -> tuple[str, ...]:
    """The boot, then UUIDs of GPUs as a replay makes them."""
    texts = (hashlib.sha256(f"{raw['metadata']['uid']}/{gpu}".encode()).hexdigest() for gpu in range(gpus))
    uuids = (f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}" for text in texts)
    return raw["status"]["nodeInfo"]["bootID"], *uuids


def _varied(value: Any, random: Random) -> Any:
    """The figures in it, each a bit off."""
    if isinstance(value, dict):
        return {key: item if key == "run" else _varied(item, random) for key, item in value.items()}
    if isinstance(value, list):
        return [_varied(item, random) for item in value]
    if not isinstance(value, str) or not _FIGURE.fullmatch(value):
        return value
    return f"{float(value) * random.uniform(0.995, 1.005):.{len(value.partition('.')[2])}f}"


class Fleet:
    """`nodes` nodes and the reports that each of `profiles` profiles has of them; made when they are asked for."""

    def __init__(self, nodes: int, profiles: int) -> None:
        asked = _asked(GOLDEN)
        golden = {str(at): _replayed(start, seed=at) for at, start in enumerate(asked[:: len(PRODUCTS)])}
        results = {name: outcome.result for name, outcome in golden.items() if outcome.result}
        request = MeasurementRequest.model_validate_json(_request(asked[0]))
        made_at = format_time(datetime.now(UTC))
        reference = create(results, {}, request, "benchmark", made_at, simulated=True)[0]
        text = text_of(reference)
        self.nodes, self.reference = nodes, text
        self.result = canonical(next(iter(results.values())).model_dump(mode="json", by_alias=True, exclude_none=True))
        self.profiles = [profile(number, sha256_of(text) if number == 0 else "") for number in range(profiles)]
        saved = sha256_of(text), read_reference(text).model_copy(update={"nodes": {}, "left_out": {}})
        starts = [asked[place :: len(PRODUCTS)][: SAMPLES + 1] for place in range(len(PRODUCTS))]
        self._samples = [
            [_sample(self.profiles[0], start, saved, "throttled" if at == SAMPLES else None) for at, start in rows]
            for rows in map(enumerate, starts)
        ]

    def config_map(self) -> Json:
        """The one that holds the reference."""
        meta = {"name": REFERENCE, "namespace": NAMESPACE, "uid": "uid-gold", "resourceVersion": "30"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {REFERENCE_FILE: self.reference}}

    def report(self, number: int, index: int) -> Json:
        """The report of one profile on one node."""
        random, raw, owner = Random(f"{number}/{index}"), node(index), self.profiles[number]["metadata"]
        rows = self._samples[index % len(PRODUCTS)]
        sample = rows[SAMPLES if index % THROTTLED_EACH == 0 else random.randrange(SAMPLES)]
        meta, status = raw["metadata"], dict(sample.status)
        for part in ("results", "history"):
            status[part] = _varied(status[part], random)
        status["run"] = status["run"] | {"requestHash": hashlib.sha256(owner["name"].encode()).hexdigest()}
        status |= sample.verdict if number == 0 else {}
        body = manifest.report(NAMESPACE, owner["name"], owner["uid"], meta["name"], meta["uid"])
        if "detail" in status["run"]:
            status["run"] |= {"detail": f"precision-{body['metadata']['name']}"}
        written = {"manager": "precision-profiler", "operation": "Update", "apiVersion": API_VERSION}
        written |= {"fieldsType": "FieldsV1", "time": "2026-11-26T10:00:00Z"}
        owned = {"f:metadata": {"f:labels": {}, "f:ownerReferences": {}}, "f:spec": {}}
        fields = [written | {"fieldsV1": owned}, written | {"fieldsV1": {"f:status": {}}, "subresource": "status"}]
        stamp = {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": "40", "generation": 1}
        stamp |= {"creationTimestamp": "2026-11-20T06:00:00Z", "managedFields": fields}
        text = to_json(body | {"metadata": body["metadata"] | stamp, "status": status})
        for theirs, its in zip(sample.node_texts, _own_texts(index, raw, len(sample.node_texts) - 1), strict=True):
            text = text.replace(theirs.encode(), its.encode())
        made: Json = from_json(text)
        return made


def _asked(each: int) -> list[Start]:
    """The starts of a profile's agents on the first nodes of each pool, the pools in turn."""
    raw, nodes = profile(0), [node(index) for index in range(each * len(PRODUCTS))]
    raw["spec"]["rollout"] = {"maxConcurrent": len(nodes)}
    idle = {item["metadata"]["name"]: Occupancy(None) for item in nodes}
    by_uid = {item["metadata"]["uid"]: item for item in nodes}
    settings = replace(SETTINGS, agent_image=AGENT_IMAGE, allowed_images=("registry.example.com",))
    seen = Observed(datetime.now(UTC), settings, (profile_view(raw),), by_uid, occupancy=idle)
    starts = {action.facts.uid: action for action in plan(seen).actions if isinstance(action, Start)}
    return [starts[uid] for uid in by_uid]


def _request(start: Start) -> str:
    (container,) = start.job["spec"]["template"]["spec"]["containers"]
    return next(str(row["value"]) for row in container["env"] if row["name"] == REQUEST_ENV)


def _replayed(start: Start, seed: int = 0, fault: Any = None) -> Outcome:
    outcome = run_request(_request(start), "replay", ReplayOptions(seed=seed, fault=fault))
    assert outcome.result is not None
    return outcome


def _sample(raw_profile: Json, start: Start, saved: SavedReference, fault: str | None) -> Sample:
    """The report of a node after its runs, each taken in as the operator does it, with the verdicts on them."""
    asking, outcome = profile_view(raw_profile), _replayed(start, fault=fault)
    job, facts, now = job_view(start.job), start.facts, datetime.now(UTC)
    report = report_view(start.report or {})
    assert job is not None
    assert report is not None
    settings = replace(SETTINGS, accept_simulated=True)
    seen = Observed(now, settings, (asking,), references={(NAMESPACE, REFERENCE): saved})
    terms = terms_of(asking.spec, NAMESPACE, seen)
    finding = ingest.finding(read_message(outcome.message), "\n".join(outcome.lines))
    finding = replace(finding, detail_sha256="0123456789abcdef01234567")
    assert terms is not None
    assert finding.result is not None, finding.detail_problem
    for number in reversed(range(RUNS)):
        run = job.run if number == 0 else f"{number:010x}"
        then = now - timedelta(days=number, hours=1)
        attempt, place = replace(job, run=run, created=then), ingest.Place(facts.pool, facts.clique)
        finding = replace(finding, summary=finding.summary.model_copy(update={"run": run}))
        status = ingest.read_status(finding, attempt, report, place, then)
        status = status.model_copy(update={"acceptance": with_result(status, finding.result, terms)})
        status = status.model_copy(update={"acceptance": decided(terms, status, facts, then)})
        report = replace(report, status=status)
    document = ingest.report_json(status)
    verdict = {"acceptance": document.pop("acceptance")}
    index = int(facts.uid.split("-")[1])
    return Sample(document, verdict, _own_texts(index, node(index), facts.gpus))


def kept(fleet: Fleet, profile: int, what: str, take: Callable[[Json], object]) -> None:
    """Print what `take` keeps of all reports of a profile, which come one after the other."""
    cpu, before = 0.0, _memory()["VmRSS"]
    for index in range(fleet.nodes):
        raw = from_json(to_json(fleet.report(profile, index)))
        began = time.process_time()
        take(raw)
        cpu += time.process_time() - began
    gc.collect()
    now = _memory()
    each, peak = (now["VmRSS"] - before) * 1024 / fleet.nodes, now["VmHWM"] / 1024
    print(f"{what}: {each:,.0f} B a report, peak {peak:,.0f} MiB, {cpu / fleet.nodes * 1000:.2f} ms of CPU a report")


def _memory() -> dict[str, int]:
    """KiB by name."""
    rows = (line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Vm"))
    return {name.rstrip(":"): int(size) for name, size, *_ in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--verdicts", action="store_true")
    options = parser.parse_args()
    fleet, profile, cache, store = Fleet(options.nodes, 2), int(not options.verdicts), Cache(), Store()
    kept(fleet, profile, "operator", lambda raw: cache.put("reports", raw))
    kept(fleet, profile, "exporter", lambda raw: store.see(REPORT_PLURAL, raw))


if __name__ == "__main__":
    main()
