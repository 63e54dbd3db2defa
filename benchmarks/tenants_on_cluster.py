"""One tenant's reports beside another's profile, on the lab's real API server and with the operator's own process.

`python -m benchmarks.tenants --api-server` runs it. The small tenant measures six nodes, at most three at a time, three
times: alone; right after the operator's start, while it takes in the large tenant's reports (their nodes are gone, so
each of them is marked, which is a write for each); and once they are all marked. Each time the operator starts anew.
Who was started and what the status says must be the same. GPUs are replayed. Seconds are wall seconds.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.exporter_process import report_bytes
from precision_api.facts.names import (
    ANNOTATION_NODE,
    API_VERSION,
    LABEL_MANAGED_BY,
    LABEL_NODE_UID,
    LABEL_PROFILE_UID,
    MANAGED_BY,
    PROFILE_KIND,
)
from precision_lab.cluster.control_plane import run_blocking
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.lab import LabSettings, start_lab
from precision_lab.release.install import install
from precision_operator.cluster import Cluster, paths
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.eventually import eventually
from tests.support.history import History, created, most_agents
from tests.support.site import Profile, Scene, Site, profile_manifest, specs, without_times

SMALL, LARGE = "small", "large"
NODES, LIMIT, EVENTS, POOLS = 6, 3, 9, 20
SIDE_BY_SIDE = 32
STATUS_SECONDS = 2.1
"""Two statuses of a profile are at least two seconds apart."""
MARKED_SECONDS, COMPLETE_SECONDS = 900.0, 300
LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Row:
    """What the small tenant sees, and how long it waits for it (wall seconds)."""

    name: str
    starts: dict[str, int]
    """Agents by node."""
    most: int
    """Agents at one time."""
    status: dict[str, Any]
    complete_seconds: float
    """From the creation of a profile to Complete."""
    event_seconds: float
    """From a change of the profile to the status that answers it; the median."""

    @property
    def seen(self) -> tuple[object, ...]:
        """What must be the same in each row."""
        return self.starts, self.most, self.status


def measured(reports: int) -> list[Row]:
    """The three rows, in order. Fails where the lab, the operator or the profile does not come to its end."""
    with _site() as site:
        scene = Scene(site)
        site.operator.start()
        scene.add_nodes(*specs(NODES))
        with site.without_operator():
            pass
        rows = [_row(scene, "alone")]
        with site.without_operator():
            began = time.perf_counter()
            run_blocking(write_reports(site.lab.kubeconfig, reports))
            print(f"{reports} reports written in {time.perf_counter() - began:.0f} s", flush=True)
        rows.append(_row(scene, f"while {reports} reports are taken in"))
        eventually(lambda: run_blocking(_marked(site)) == reports, MARKED_SECONDS)
        with site.without_operator():
            pass
        rows.append(_row(scene, f"beside {reports} reports"))
    return rows


@contextmanager
def _site() -> Iterator[Site]:
    """A cluster with the chart installed for both tenants; nothing runs yet."""
    with start_lab(settings=LabSettings(agent_seconds=0.3)) as lab:
        installed = install(lab, watch=(SMALL, LARGE), start=False)
        api = ApiServer(lab.kubeconfig)
        history = History(api, SMALL)
        operator = installed.programs["operator"]
        operator = replace(operator, argv=(*operator.argv, "--no-leader-elect"))  # a Lease outlives its killed holder
        try:
            yield Site(lab, operator, installed.programs["exporter"], api, history, SMALL)
        finally:
            history.close()


def _row(scene: Scene, name: str) -> Row:
    """A profile of the small tenant from its creation to its end, then changes of it."""
    site = scene.site
    body = scene.manifest("own", rollout={"maxConcurrent": LIMIT})
    began = time.perf_counter()
    status, answer = site.api.call("POST", paths.profiles(SMALL), body)
    assert status == 201, answer
    profile = Profile(site, "own", answer["metadata"]["uid"])
    told = without_times(profile.completes(COMPLETE_SECONDS))
    seconds = time.perf_counter() - began
    jobs = created(profile.history(), "jobs")
    starts = Counter(job["metadata"]["annotations"][ANNOTATION_NODE] for job in jobs)
    most = most_agents(profile.history())
    answered = median(_answered(profile, LIMIT + 1 + turn) for turn in range(EVENTS))
    profile.delete()
    return Row(name, dict(starts), most, told, seconds, answered)


def _answered(profile: Profile, limit: int) -> float:
    """Seconds from a change of the profile until its status tells of that generation."""
    time.sleep(STATUS_SECONDS)
    change = {"spec": {"rollout": {"maxConcurrent": limit}}}
    began = time.perf_counter()
    status, answer = profile.site.api.call("PATCH", profile.path, change, kind=MERGE_PATCH)
    assert status == 200, answer
    while profile.status().get("observedGeneration") != answer["metadata"]["generation"]:
        assert time.perf_counter() - began < COMPLETE_SECONDS, "the operator does not answer a change of the profile"
        time.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


async def write_reports(kubeconfig: Path, count: int) -> None:
    """The large tenant's profile, and a report with a result for each of `count` nodes that are gone."""
    async with administrator(kubeconfig) as cluster:
        manifest = profile_manifest(LARGE, "nightly", suspend=True, target={"nodeNames": ["nowhere"]})
        made = await cluster.create(paths.profiles(LARGE), manifest)
        owner = {"apiVersion": API_VERSION, "kind": PROFILE_KIND, "name": "nightly", "uid": made["metadata"]["uid"]}
        gate = asyncio.Semaphore(SIDE_BY_SIDE)

        async def write(index: int) -> None:
            async with gate:
                await _write_report(cluster, index, owner)

        await asyncio.gather(*(write(index) for index in range(count)))


async def _write_report(cluster: Cluster, index: int, owner: dict[str, Any]) -> None:
    raw = json.loads(report_bytes(index, POOLS, 1, 1 + index * 7919 % 9973 / 1e6))
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NODE_UID: raw["spec"]["nodeUID"], LABEL_PROFILE_UID: owner["uid"]}
    meta = {"name": raw["metadata"]["name"], "namespace": LARGE, "labels": labels, "ownerReferences": [owner]}
    await cluster.create(paths.reports(LARGE), {**raw, "metadata": meta})
    await cluster.patch(f"{paths.item(paths.reports(LARGE), meta['name'])}/status", {"status": raw["status"]})


async def _marked(site: Site) -> int:
    """How many of the large tenant's reports say that their node is gone."""
    async with administrator(site.lab.kubeconfig) as cluster:
        items, _ = await cluster.list_all(paths.reports(LARGE))
    reasons = ({row["reason"] for row in item.get("status", {}).get("conditions", ())} for item in items)
    return sum("NodeGone" in found for found in reasons)


def table(rows: Sequence[Row]) -> str:
    """The rows, their ratios to the first, and whether starts and status are as in the first."""
    first = rows[0]
    lines = [f"{'THE SMALL TENANT':<36}{'TO COMPLETE':>13}{'RATIO':>7}{'TO STATUS':>12}{'RATIO':>7}  STARTS, STATUS"]
    for row in rows:
        complete = f"{row.complete_seconds:>11.2f} s{row.complete_seconds / first.complete_seconds:>7.2f}"
        event = f"{row.event_seconds:>10.3f} s{row.event_seconds / first.event_seconds:>7.2f}"
        seen = "the same" if row.seen == first.seen else f"OTHER: {row.seen}"
        lines.append(f"{row.name:<36}{complete}{event}  {seen}")
    return "\n".join(lines)
