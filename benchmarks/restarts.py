"""How soon does the operator serve again after it was killed, beside a large fleet on a real API server?

    python -m benchmarks.restarts [--nodes 10000] [--profiles 8]

etcd, kube-apiserver, controller manager and scheduler are real; kwok keeps the nodes Ready. Nodes and reports are those
of `benchmarks.large_fleet` (31 KiB and 5 KB each; figures are replayed); their full results are not kept. Agents' pods
never start, so that nothing but the operator works. It runs as its Deployment says, with its own service account, and
is killed by SIGKILL five times, the second time while it lists reports. Each time all profiles are edited while nobody
operates. Printed are, from the start of its process: when it holds the Lease, when the status of the last profile
speaks of the edit, and what it listed twice, by the audit log. Exit 1 where it led after 30 s, a status was later than
90 s, or nodes, reports, slices or anything else was listed twice. Jobs and pods may be (who comes to lead lists them
anew); profiles and plans may be listed three times (by kopf for itself, and by the operator before and after it).
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from benchmarks import large_fleet
from benchmarks.large_fleet import NAMESPACE, Fleet
from precision_api.facts.names import KWOK_NODE
from precision_lab.cluster.control_plane import run_blocking
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.cluster.kwok import start_kwok
from precision_lab.fleet.nodes import create_nodes
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.processes.ports import free_ports
from precision_lab.release.install import NAMESPACE as RELEASED_IN
from precision_lab.release.install import Program, install
from precision_operator.cluster import Cluster, paths
from precision_operator.core.attempts import manifest
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.audit import AUDIT_LOG, audit_flags, requests

KILLS, IN_MID_LIST = 5, 2
LEADS_SECONDS, STATUS_SECONDS, MOST_SECONDS = 30.0, 90.0, 600.0
LISTS = {"jobs": 2, "pods": 2, "precisionprofiles": 3, "capacityplans": 3}
SIDE_BY_SIDE, LOOK_SECONDS = 32, 0.2
LEASES = paths.collection("coordination.k8s.io/v1", "leases", RELEASED_IN)


class Site(NamedTuple):
    """The cluster and its operator."""

    lab: Lab
    operator: Program
    api: ApiServer


@dataclass(frozen=True)
class Start:
    """One start of the operator; seconds since its process began."""

    leads: float
    statuses: float
    lists: Counter[str]
    """First pages, by path."""
    pages: int

    @property
    def listed_twice(self) -> list[str]:
        most = ((path, LISTS.get(path.rsplit("/", 1)[1], 1)) for path in self.lists)
        return [path for path, allowed in most if self.lists[path] > allowed]

    def __str__(self) -> str:
        twice = f", listed twice: {', '.join(self.listed_twice)}" if self.listed_twice else ""
        return f"led after {self.leads:.1f} s, statuses after {self.statuses:.1f} s, {self.pages} pages{twice}"


async def fill(kubeconfig: Path, fleet: Fleet) -> None:
    """Nodes, the reference, profiles and a report of each profile for each node."""
    nodes = [large_fleet.node(index) for index in range(fleet.nodes)]
    for raw in nodes:
        raw["metadata"] = {key: raw["metadata"][key] for key in ("name", "labels", "annotations")}
        raw["metadata"]["annotations"] |= {KWOK_NODE: "fake"}
    await create_nodes(kubeconfig, nodes)
    async with administrator(kubeconfig) as cluster:
        await _create(cluster, paths.config_maps(NAMESPACE), fleet.config_map())
        raws, _ = await cluster.list_all(paths.NODES)
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in raws}
        owners = []
        for profile in fleet.profiles:
            retention = {"retention": {"detail": "None"}}
            made = await _create(cluster, paths.profiles(NAMESPACE), profile | {"spec": profile["spec"] | retention})
            owners.append(made["metadata"]["uid"])
        gate, done = asyncio.Semaphore(SIDE_BY_SIDE), 0

        async def write(number: int, index: int) -> None:
            nonlocal done
            async with gate:
                raw = fleet.report(number, index)
                await _write_report(cluster, raw, uids[raw["spec"]["nodeName"]], owners[number])
            done += 1
            if done % 10_000 == 0:
                print(f"{done} reports are written", flush=True)

        for number in range(len(owners)):
            await asyncio.gather(*(write(number, index) for index in range(fleet.nodes)))


async def _create(cluster: Cluster, path: str, raw: dict[str, Any]) -> dict[str, Any]:
    meta = {key: raw["metadata"][key] for key in ("name", "namespace", "labels") if key in raw["metadata"]}
    return await cluster.create(path, raw | {"metadata": meta})


async def _write_report(cluster: Cluster, raw: dict[str, Any], node_uid: str, profile_uid: str) -> None:
    of = raw["spec"]
    body = manifest.report(NAMESPACE, of["profile"], profile_uid, of["nodeName"], node_uid)
    await cluster.create(paths.reports(NAMESPACE), body)
    status = {key: value for key, value in raw["status"].items() if key != "acceptance"}
    status["run"] = {key: value for key, value in status["run"].items() if not key.startswith("detail")}
    await cluster.patch(f"{paths.item(paths.reports(NAMESPACE), body['metadata']['name'])}/status", {"status": status})


def started(site: Site, log: Path, names: list[str], turn: int) -> Start | None:
    """What one start gave; None where it was killed while it listed reports. All profiles are edited before."""
    for name in names:
        edit = {"spec": {"rollout": {"maxImagePulls": turn}}}
        status, answer = site.api.call("PATCH", paths.item(paths.profiles(NAMESPACE), name), edit, kind=MERGE_PATCH)
        assert status == 200, answer
    before, begun, leads = len(requests(log)), time.monotonic(), 0.0
    site.operator.launch()
    holders = {lease_holder(site)}
    while True:
        after = time.monotonic() - begun
        if after > MOST_SECONDS:
            raise TimeoutError(f"no status of each profile after {MOST_SECONDS:.0f} s: see the operator's log")
        site.lab.processes.check(site.operator.name)
        leads = leads or (after if lease_holder(site) not in holders else 0.0)
        lists = [row for row in requests(log)[before:] if row["verb"] == "list"]
        if turn == IN_MID_LIST and sum("nodeprecisionreports" in row["requestURI"] for row in lists) >= 2:
            return None
        profiles = site.api.ask("GET", paths.profiles(NAMESPACE))["items"]
        if leads and all(
            at.get("status", {}).get("observedGeneration") == at["metadata"]["generation"] for at in profiles
        ):
            return Start(leads, after, first_pages(lists), len(lists))
        time.sleep(LOOK_SECONDS)


def lease_holder(site: Site) -> str:
    """And when it took the Lease."""
    leases = site.api.ask("GET", LEASES)["items"]
    return "".join(f"{it['spec'].get('holderIdentity')} {it['spec'].get('acquireTime')}" for it in leases)


def first_pages(lists: Iterable[dict[str, Any]]) -> Counter[str]:
    """How often a list of each path was begun."""
    urls = (urlsplit(row["requestURI"]) for row in lists)
    return Counter(url.path for url in urls if "continue" not in parse_qs(url.query))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--profiles", type=int, default=8)
    options = parser.parse_args()
    fleet = Fleet(options.nodes, options.profiles)
    fleet.profiles[0]["spec"].pop("acceptance")
    print(f"{options.nodes} nodes, {options.profiles} profiles; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        settings = LabSettings(simulate=False, apiserver_flags=audit_flags(Path(folder)))
        with start_lab(settings=settings) as lab:
            installed = install(lab, watch=(NAMESPACE,), start=False)
            start_kwok(lab.plane, lab.binaries, *free_ports(1))
            begun = time.monotonic()
            run_blocking(fill(lab.kubeconfig, fleet))
            print(f"all written after {time.monotonic() - begun:.0f} s", flush=True)
            api = ApiServer(lab.kubeconfig)
            names = [raw["metadata"]["name"] for raw in fleet.profiles]
            operator, late = installed.programs["operator"], 0
            for turn in range(1, KILLS + 2):
                got = started(Site(lab, operator, api), Path(folder) / AUDIT_LOG, names, turn)
                print(f"start {turn}: {got or 'killed while it listed reports'}", flush=True)
                late += got is not None and (
                    got.leads > LEADS_SECONDS or got.statuses > STATUS_SECONDS or bool(got.listed_twice)
                )
                lab.processes.stop(operator.name, signal.SIGKILL)
    print(f"{late} starts late, or with something listed twice")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
