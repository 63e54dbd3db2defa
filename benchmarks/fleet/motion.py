"""A fleet that moves while two replicas of the operator sweep it: what grows, what is left over, what breaks a limit?

    python -m benchmarks.fleet.motion [--nodes 1000] [--minutes 60] [--only-print]

On the rig of `benchmarks.fleet` (agents, nodes and GPUs simulated, the rest real), all the time: nodes leave and come
back under their names, a fifth of them every five minutes; each second drivers of some nodes change, so that they are
due again, and others leave the target or enter it; the profile is edited; a ResourceQuota comes and goes. In the first
half the leader is killed each minute, and as many nodes again join at once and leave later. In the second half nobody
is killed: what the leader keeps (memory, descriptors, tasks) and the API server's watches are compared between its 5th
minute, or its first sixth, and its end.

When all is at rest, each node must have its result or a reason, and nothing may be left over: no Job, no pod, no report
of a node that is gone, no full result without its report. The independent `reader` holds the audit log against all
limits. Exit 1 where anything is wrong. Results go to benchmarks/results/fleet/motion-NODES.json.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.exporter_process import Process
from benchmarks.fleet import reader
from benchmarks.fleet.__main__ import RESULTS, Run, end_by_signals, say, spec
from benchmarks.fleet.rig import NAMESPACE, Rig, manifest, rig, short
from benchmarks.reconcile import provenance
from precision_api.facts.names import ANNOTATION_RERUN, LABEL_NODE_UID
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.names import BUSY_POD
from precision_lab.processes.ports import free_ports
from precision_lab.release.install import Program
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.observe.clock import format_time

Json = dict[str, Any]
OUT, DRIVER = "motion.example.com/out", "nvidia.com/cuda.driver-version"
SWEEP, KEEP_DELETED = "moving", "60s"
FIFTH_SECONDS, AWAY_SECONDS = 300.0, (3.0, 30.0)
"""In how long a fifth of the nodes has left; for how long each is away."""
EDIT_SECONDS, RERUN_SECONDS, KILL_SECONDS, DOWN_SECONDS = 7.0, 300.0, 60.0, 2.0
QUOTA_SECONDS, QUOTA_JOBS = (30.0, 10.0), 5
LOOK_SECONDS, WINDOW_SECONDS, WARM_SECONDS, REST_SECONDS = 5.0, 60.0, 300.0, 900.0
MOST_GROWTH = 0.02
SIDE_BY_SIDE = 32
QUOTAS = paths.collection("v1", "resourcequotas", NAMESPACE)
PROFILE = paths.item(paths.profiles(NAMESPACE), SWEEP)


@dataclass
class Motion:
    """The fleet as it is, all that it ever was, and what has been done to it."""

    on: Rig
    cluster: Cluster
    replicas: Sequence[Program]
    chance: random.Random = field(default_factory=lambda: random.Random(47))
    present: dict[str, tuple[int, Json]] = field(default_factory=dict)
    """By name the number that a node is made of, and the node."""
    gone: list[Json] = field(default_factory=list)
    """Nodes that are not there any more, with the time of their deletion."""
    did: dict[str, int] = field(default_factory=dict)
    looks: list[Json] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        self.did[what] = self.did.get(what, 0) + number

    def some(self, number: int) -> list[str]:
        """Idle nodes, drawn."""
        idle = [name for name, (_, node) in self.present.items() if BUSY_POD not in node["metadata"]["annotations"]]
        return self.chance.sample(idle, min(number, len(idle)))

    async def take_away(self, name: str) -> None:
        _, node = self.present.pop(name)
        with suppress(ApiError):
            await self.cluster.delete(paths.item(paths.NODES, name), grace_seconds=0)
        node["metadata"]["deletionTimestamp"] = format_time(datetime.now(UTC))
        self.gone.append(node)

    async def put_in(self, index: int) -> None:
        body = manifest(index)
        try:
            made = await self.cluster.create(paths.NODES, body)
        except ApiError as error:
            if error.status != 409:
                raise
            made = await self.cluster.get(paths.item(paths.NODES, body["metadata"]["name"]))
        self.present[made["metadata"]["name"]] = index, short(made)

    async def leave_and_return(self) -> None:
        """One node; another one meanwhile."""
        (name,) = self.some(1)
        index, _ = self.present[name]
        await self.take_away(name)
        await asyncio.sleep(self.chance.uniform(*AWAY_SECONDS))
        await self.put_in(index)
        self.count("nodes that left and returned")

    async def comings_and_goings(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self.leave_and_return())
                await asyncio.sleep(FIFTH_SECONDS / (len(self.on.nodes) / 5))

    async def labels(self) -> None:
        """Each second: three nodes get another driver, three leave the target or enter it."""
        while True:
            for name in self.some(3):
                revision = str(self.chance.randint(10, 12))
                full = {f"{DRIVER}.full": f"580.95.{revision}", f"{DRIVER}.revision": revision}
                await self._label(name, full)
            for name in self.some(3):
                await self._label(name, {OUT: self.chance.choice(("true", None))})
            await asyncio.sleep(1)

    async def _label(self, name: str, labels: Json) -> None:
        with suppress(ApiError):  # it may have left
            await self.cluster.patch(paths.item(paths.NODES, name), {"metadata": {"labels": labels}})
            self.count("labels changed")

    async def edits(self) -> None:
        """What changes nothing that is measured; now and then a rerun of all."""
        due = time.monotonic() + RERUN_SECONDS
        for number in range(10**9):
            await self.cluster.patch(PROFILE, {"spec": {"rollout": {"maxImagePulls": 1 + number % 50}}})
            self.count("edits of the profile")
            if time.monotonic() >= due:
                due += RERUN_SECONDS
                await self.cluster.patch(PROFILE, {"metadata": {"annotations": {ANNOTATION_RERUN: f"motion-{number}"}}})
                self.count("reruns of all nodes")
            await asyncio.sleep(EDIT_SECONDS)

    async def quotas(self) -> None:
        quota = {"metadata": {"name": "motion"}, "spec": {"hard": {"count/jobs.batch": str(QUOTA_JOBS)}}}
        while True:
            await asyncio.sleep(QUOTA_SECONDS[0])
            await self.cluster.create(QUOTAS, quota)
            try:
                await asyncio.sleep(QUOTA_SECONDS[1])
            finally:
                await self.cluster.delete(paths.item(QUOTAS, "motion"))
            self.count("quotas that came and went")

    async def kills(self) -> None:
        """The leader, each minute; a kubelet starts it again."""
        while True:
            await asyncio.sleep(KILL_SECONDS)
            leader = self.leader()
            if leader is not None:
                self.on.lab.processes.stop(leader.name, signal.SIGKILL)
                self.count("leaders killed")
                await asyncio.sleep(DOWN_SECONDS)
                leader.launch()

    async def joins(self, half: float) -> None:
        """As many nodes again at a quarter of the half, all at once; they leave at its third quarter."""
        first = len(self.on.nodes)
        await asyncio.sleep(half / 4)
        await self._all(self.put_in(index) for index in range(first, 2 * first))
        self.count("nodes that joined at once", first)
        await asyncio.sleep(half / 2)
        late = [name for name, (index, _) in self.present.items() if index >= first]
        await self._all(self.take_away(name) for name in late)
        await asyncio.sleep(half)

    async def _all(self, works: Any) -> None:
        gate = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one_of_few(work: Awaitable[None]) -> None:
            async with gate:
                await work

        await asyncio.gather(*(one_of_few(work) for work in works))

    def leader(self) -> Program | None:
        for replica in self.replicas:
            with suppress(OSError), urllib.request.urlopen(f"{replica.url}/metrics", timeout=5) as answer:
                if re.search(r"^precision_operator_leader 1(\.0)?$", answer.read().decode(), re.M):
                    return replica
        return None

    async def look(self) -> None:
        """What the leader keeps, and how many watches the API server serves, every few seconds."""
        while True:
            with suppress(FileNotFoundError):  # it was killed since
                if leader := await asyncio.to_thread(self.leader):
                    self.looks.append(await self._look(leader))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, leader: Program) -> Json:
        state = self.on.lab.processes.states()[leader.name]
        text = await self.cluster.get_text("/metrics", limit_bytes=2**26)
        watches = re.findall(r'^apiserver_longrunning_requests\{[^}]*verb="WATCH"[^}]*\} (\S+)$', text, re.M)
        return {
            "at": time.time(),
            "pid": state.pid,
            "memory": Process(state.pid).resident_mib(),
            "descriptors": len(os.listdir(f"/proc/{state.pid}/fd")),
            "tasks": int(beats_of(self.on, leader).read_text().splitlines()[-1].split()[2]),
            "watches": sum(map(float, watches)),
        }

    async def run(self, half: float) -> Json:
        """Both halves; what grew in the second one."""
        always = (self.comings_and_goings, self.labels, self.edits, self.quotas, self.look)
        say(f"for {half / 60:.1f} minutes the fleet moves, and the leader is killed each minute")
        await during(half, *(it() for it in always), self.kills(), self.joins(half))
        say(f"for {half / 60:.1f} minutes the fleet moves, and nobody is killed: {self.did}")
        began = time.time()
        await during(half, *(it() for it in always))
        return self.growth(began, half)

    def growth(self, began: float, half: float) -> Json:
        """Medians of memory, the least of all else: what only grows is more at the end than it ever was before."""
        warm = min(WARM_SECONDS, half / 6)
        window = min(WINDOW_SECONDS, half / 6)
        early = [it for it in self.looks if warm <= it["at"] - began <= warm + window]
        late = [it for it in self.looks if it["at"] - began >= half - window]
        if not early or not late or len({it["pid"] for it in (*early, *late)}) > 1:
            raise RuntimeError("the leader changed although nobody was killed: see the operators' logs")
        row: Json = {}
        for what, least in (("memory", statistics.median), ("descriptors", min), ("tasks", min), ("watches", min)):
            before, after = (least([look[what] for look in looks]) for looks in (early, late))
            row[what] = {"early": round(before, 1), "late": round(after, 1)}
        return row


async def during(seconds: float, *works: Any) -> None:
    """All of them, until then. Raises what one of them raises."""
    tasks = [asyncio.ensure_future(work) for work in works]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def at_rest(motion: Motion) -> list[str]:
    """Everything put back, and once nothing is due any more: what is not explained, and what is left over."""
    on, cluster = motion.on, motion.cluster
    there = {index for index, _ in motion.present.values()}
    for index in sorted(set(range(len(on.nodes))) - there):  # it was away when the motion ended
        await motion.put_in(index)
    for name in motion.present:
        await cluster.patch(paths.item(paths.NODES, name), {"metadata": {"labels": {OUT: None}}})
    say("at rest: all nodes are back and in the target")
    wrong: list[str] = ["nothing was looked at"]
    for _ in range(int(REST_SECONDS / LOOK_SECONDS)):
        wrong = [text async for text in unexplained(motion)]
        if not wrong:
            return []
        await asyncio.sleep(LOOK_SECONDS)
    return wrong


async def unexplained(motion: Motion) -> AsyncIterator[str]:
    """Nodes without result or reason; Jobs, pods, reports and full results that should not be there."""
    cluster, nodes = motion.cluster, [node for _, node in motion.present.values()]
    busy = sum(BUSY_POD in node["metadata"]["annotations"] for node in nodes)
    status = (await cluster.get(PROFILE)).get("status", {})
    counts, reasons = status.get("nodes", {}), status.get("reasons", ())
    expected = {"matched": len(nodes), "succeeded": len(nodes) - busy, "waiting": busy}
    for key in ("queued", "running", "failed", "stale", "quarantined"):
        expected[key] = 0
    if wrong := {key: counts.get(key, 0) for key, number in expected.items() if counts.get(key, 0) != number}:
        yield f"the status counts {wrong}, expected {expected}"
    explained = {row["reason"]: row["count"] for row in reasons if row["reason"] != "NoPeers"}
    if explained != {"Busy": busy}:
        yield f"{busy} nodes wait because they are busy, and the status has the reasons {explained}"
    for kind, path in (("Jobs", paths.jobs(NAMESPACE)), ("pods", paths.pods(NAMESPACE))):
        items, _ = await cluster.list_all(path)
        if items:
            yield f"{len(items)} {kind} are left, {items[0]['metadata']['name']} among them"
    reports, _ = await cluster.list_all(paths.reports(NAMESPACE))
    uids = {node["metadata"]["uid"] for node in nodes}
    strange = [it["metadata"]["name"] for it in reports if it["metadata"]["labels"][LABEL_NODE_UID] not in uids]
    if strange:
        yield f"{len(strange)} reports of nodes that are gone, {strange[0]} among them"
    details = {it["status"]["run"]["detail"] for it in reports if it.get("status", {}).get("run", {}).get("detail")}
    maps, _ = await cluster.list_all(paths.config_maps(NAMESPACE))
    lost = {it["metadata"]["name"] for it in maps} - details - {"kube-root-ca.crt"}
    if lost:
        yield f"{len(lost)} full results without a report, {min(lost)} among them"


def beats_of(on: Rig, replica: Program) -> Path:
    return on.beats.with_name(f"beats-{replica.name}")


def pair(on: Rig) -> list[Program]:
    """Two replicas of the operator."""
    replicas = []
    for number, port in enumerate(free_ports(2), 1):
        replica = replace(on.operator, name=f"operator-{number}", port=port)
        words = [str(beats_of(on, replica)) if word == str(on.beats) else word for word in on.operator.argv]
        replicas.append(replace(replica, argv=(*words, "--leader-elect", f"--port={port}")))
    return replicas


@asynccontextmanager
async def moving(run: Run) -> AsyncIterator[Motion]:
    """The fleet measured once by a pair of replicas, before anything moves."""
    on, replicas = run.on, pair(run.on)
    rollout = {"maxConcurrent": on.places, "perTopology": [{"key": "topology.kubernetes.io/rack", "max": 12}]}
    target = {"matchExpressions": [{"key": OUT, "operator": "NotIn", "values": ["true"]}]}
    more = {"target": target, "retention": {"deletedNodes": KEEP_DELETED}}
    run.profiles = [run.profile(NAMESPACE, SWEEP, spec(rollout) | more)]
    for replica in replicas:
        replica.start()
    on.operator = replicas[0]
    await asyncio.to_thread(run.until_measured, "before it moves", run.profiles[0])
    async with administrator(on.lab.kubeconfig) as cluster:
        motion = Motion(on, cluster, replicas)
        motion.present = {node["metadata"]["name"]: (number, node) for number, node in indexed(on.nodes)}
        yield motion


def indexed(nodes: Sequence[Json]) -> list[tuple[int, Json]]:
    """Each node with the number that it is made of."""
    numbers = {manifest(index)["metadata"]["name"]: index for index in range(len(nodes))}
    return [(numbers[node["metadata"]["name"]], node) for node in nodes]


async def moved(run: Run, minutes: float) -> Json:
    """The row of a run, on a cluster on which no operator is running and no profile is left."""
    on = run.on
    async with moving(run) as motion:
        grew = await motion.run(minutes * 30)
        wrong = await at_rest(motion)
        profile = await motion.cluster.get(PROFILE)
    say("the independent reader holds the audit log against the limits")
    with on.trail.path.open() as lines:
        log = reader.Log(lines)
    nodes = [*(node for _, node in motion.present.values()), *motion.gone]
    broken = reader.violations(log, nodes, [profile], {"maxConcurrent": on.places})
    return {
        "nodes": len(on.nodes),
        "minutes": minutes,
        "simulated": "agents, nodes and GPUs",
        "did": motion.did,
        "agents": len(log.agents),
        "results": sum(agent.has_result for agent in log.agents),
        "grew": grew,
        "wrong": wrong,
        "violations": [f"{it.at} {it.rule}: {it.text}" for it in broken],
        "load": os.getloadavg()[0],
        "finished": format_time(datetime.now(UTC)),
    } | provenance()


def problems(row: Json) -> list[str]:
    """What is wrong, in words; growth is judged in runs of an hour alone."""
    texts = [*row["wrong"], *row["violations"]]
    for what, of in row["grew"].items() if row["minutes"] >= 60 else ():
        most = of["early"] * (1 + MOST_GROWTH) if what == "memory" else of["early"]
        texts += [f"{what} grew from {of['early']} to {of['late']}"] if of["late"] > most else []
    return texts


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only-print", action="store_true", help="save nothing")
    options = parser.parse_args()
    end_by_signals()
    with rig(options.nodes, say) as on:
        row = asyncio.run(moved(Run(on), options.minutes))
    print(json.dumps(row, indent=2))
    for text in (found := problems(row)):
        say(f"WRONG: {text}")
    if not options.only_print:
        (RESULTS / f"motion-{options.nodes}.json").write_text(json.dumps(row, indent=2) + "\n")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
