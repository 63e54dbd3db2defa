"""A sweep of 300 nodes: what it and `why` ask of the API server, how many places are in use, by the audit log."""

import os
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.audit import received, requests
from tests.support.eventually import eventually
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, specs

pytestmark = pytest.mark.cluster

IDLE, BUSY, PLACES = 270, 30, 60
AGENT_SECONDS = 40
BY_TIME = ("patch precisionprofiles/status", "get configmaps", "get priorityclasses", "list events", "create events")
"""What is written or asked for every few seconds."""
LOOK = "/api/v1/pods?fieldSelector=spec.nodeName="
READER = "reader"
"""Service account that the plugin asks with, beside the programs', so that the audit log tells what it asks."""


@dataclass(frozen=True)
class Sweep:
    """What the operator asked for (but for watches and the Lease) until all idle nodes were measured, and its CPU."""

    profile: Profile
    idle: list[str]
    busy: list[str]
    asked: list[tuple[str, str, datetime]]
    """Verb and resource, URI, when."""
    cpu_seconds: float
    why: list[list[tuple[str, str, datetime]]]
    """What `why` asked of a busy node and of one that waits, while all places were in use."""

    def times(self, what: str) -> list[datetime]:
        return sorted(at for said, _, at in self.asked if said == what)

    def looks(self, node: str) -> list[datetime]:
        return sorted(at for _, uri, at in self.asked if uri.startswith(f"{LOOK}{node},"))

    def per_node(self) -> dict[str, float]:
        """Requests by what is asked for over the nodes that were measured; looks at busy nodes apart."""
        names = {f"{LOOK}{node}," for node in self.busy}
        counts = Counter("a busy node" if f"{u.partition(',')[0]}," in names else said for said, u, _ in self.asked)
        return {what: count / IDLE for what, count in counts.most_common()}

    def places_in_use(self) -> float:
        """The mean from the first creation of a Job to the last: so long do nodes wait."""
        steps = [*((at, 1) for at in self.times("create jobs")), *((at, -1) for at in self.times("delete jobs"))]
        first, last = self.times("create jobs")[0], self.times("create jobs")[-1]
        return sum(step * (last - at).total_seconds() for at, step in steps if at < last) / self.seconds(first, last)

    def seconds(self, *ends: datetime) -> float:
        first, last = ends or (self.asked[0][2], self.asked[-1][2])
        return (last - first).total_seconds()


def cpu_seconds(scene: Scene) -> float:
    """Of the operator since it began."""
    pid = scene.lab.processes.states()[scene.site.operator.name].pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(entry: dict[str, Any]) -> tuple[str, str, datetime]:
    ref = entry.get("objectRef") or {}
    resource = "/".join(filter(None, (ref.get("resource"), ref.get("subresource"))))
    return f"{entry['verb']} {resource}", unquote(entry["requestURI"]), received(entry)


def asked_by(user: str, entries: list[dict[str, Any]]) -> list[tuple[str, str, datetime]]:
    """But for watches and the Lease."""
    ended = [it for it in entries if it["stage"] == "ResponseComplete" and it["user"]["username"].endswith(user)]
    return [row for row in map(asked, ended) if not row[0].startswith("watch") and not row[0].endswith("leases")]


@pytest.fixture(scope="module")
def reader(stage: Scene, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    """The plugin of who may do all, by a service account whose requests are in the audit log."""
    place = "precision-system"
    stage.lab.kubectl("create", "serviceaccount", READER, f"--namespace={place}")
    role = ("--clusterrole=cluster-admin", f"--serviceaccount={place}:{READER}")
    stage.lab.kubectl("create", "clusterrolebinding", READER, *role)
    plugin = Plugin.of(stage.lab, tmp_path_factory.mktemp("plugin"))
    return replace(plugin, kubeconfig=stage.lab.service_account_kubeconfig(place, READER))


@pytest.fixture(scope="module")
def sweep(stage: Scene, audit_log: Path, reader: Plugin) -> Sweep:
    names = stage.add_nodes(*specs(IDLE, f"agent-seconds:{AGENT_SECONDS}"), *specs(BUSY, "busy"))
    before, cpu = len(requests(audit_log)), cpu_seconds(stage)
    profile = stage.apply(rollout={"maxConcurrent": PLACES})
    eventually(lambda: profile.counts().get("running") == PLACES, 200)
    why = []
    for node in names[IDLE - 1 : IDLE + 1]:
        first = len(requests(audit_log))
        reader.why(node, profile)
        why.append(asked_by(READER, requests(audit_log)[first:]))
    eventually(lambda: profile.counts().get("succeeded") == IDLE, 500)
    mine = asked_by("operator", requests(audit_log)[before:])
    return Sweep(profile, names[:IDLE], names[IDLE:], mine, cpu_seconds(stage) - cpu, why)


def test_why_asks_ten_times_while_sixty_agents_run(sweep: Sweep) -> None:
    for rows in sweep.why:
        print(len(rows), [what for what, *_ in rows])
        assert 1 < len(rows) <= 10, [uri for _, uri, _ in rows]


def test_a_node_costs_seven_requests_and_a_fifth(sweep: Sweep) -> None:
    figures = sweep.per_node()
    print(figures, f"{sweep.seconds():.0f} s, {sweep.cpu_seconds / IDLE * 1000:.1f} ms of CPU a node")
    timed = sum(figures.pop(what, 0.0) for what in BY_TIME) * IDLE
    assert timed <= sweep.seconds() + 20, "whatever the number of nodes"
    del figures["a busy node"]
    assert figures["list pods"] <= 1.15, "a look ahead, where those before were busy"
    assert sum(figures.values()) <= 7.2, figures


def test_nine_of_ten_places_are_in_use_while_nodes_wait(sweep: Sweep) -> None:
    print(f"{sweep.places_in_use():.1f} of {PLACES} places in use")
    assert sweep.places_in_use() >= 0.9 * PLACES


def test_a_busy_node_is_asked_again_after_20_40_and_more_seconds(sweep: Sweep) -> None:
    gaps = [[(b - a).total_seconds() for a, b in pairwise(sweep.looks(node))] for node in sweep.busy]
    assert any(gaps), "one had a free place"
    assert all(gap >= 20 * 2**at for row in gaps for at, gap in enumerate(row))
