"""An independent reader of the API server's audit log: did a sweep keep its limits, and was no result lost?

    python benchmarks/fleet/reader.py AUDIT_LOG NODES PROFILES [FLEET_LIMITS]

It imports nothing of the product, and knows the objects by the words of their YAML alone. NODES and PROFILES are lists
as `kubectl get -o json` prints them, FLEET_LIMITS is the chart's value `fleetLimits` as JSON. The log needs metadata of
all requests for Jobs, pods and reports, and the bodies (level Request) of Jobs, of reports with their status, of pods'
status and of pods' deletions.

An agent is a Job that carries the agents' label. It begins when its creation is answered. It ends when the status that
says that its pod has ended is received, or the pod's deletion without grace; without a pod, when the Job's deletion is
received. So times are cut short by what a request takes: whoever is named here did break the rule.

Rules: never two agents on a node; at no instant more agents than `maxConcurrent` of profile, pool, fleet and fleet's
pool or group, or than `perTopology`; never more watts than a budget; each result (an agent that exits with 0 and leaves
a message) is in the report of its node, unless the node was deleted at most a minute after the agent's end. NODES lists
deleted nodes too, with their deletionTimestamp. Limits in per cent are refused. Watts are the factory limits of the
GPUs. Profiles are read as they are: one whose limits change while it runs needs a log for each.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]
GROUP = "precisionprofiler.io"
AGENT_LABEL = ("app.kubernetes.io/name", "precision-agent")
GPUS, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
WATTS = {"GB200": 1200, "GB300": 1400, "B200": 1000, "B300": 1100, "H100": 700, "H200": 700}
"""A GPU's factory limit, by a part of its product's name."""
MAY_BE_LOST = timedelta(seconds=60)
"""Between an agent's end and the deletion of its node."""


@dataclass
class Agent:
    """A Job of an agent, from what the log says of it."""

    job: str
    namespace: str
    profile: str
    """UID, and so is the node's."""
    node: str
    run: str
    attempt: str
    begun: datetime
    ended: datetime | None = None
    deleted: datetime | None = None
    pods: dict[str, datetime | None] = field(default_factory=dict)
    """When each has ended."""
    has_result: bool = False

    @property
    def until(self) -> datetime | None:
        """None: it has not ended."""
        if not self.pods:
            return self.deleted
        ends = [end for end in self.pods.values() if end is not None]
        return max(ends) if len(ends) == len(self.pods) else None


@dataclass(frozen=True)
class Violation:
    """A rule that was broken: which, when, by whom."""

    rule: str
    at: datetime
    text: str


@dataclass(frozen=True)
class Limit:
    """At most `most` agents, or watts, in each group at any instant; an agent without a group is not counted."""

    name: str
    most: int
    group: Callable[[Agent], object]
    in_watts: bool = False


class Log:
    """What an audit log tells of agents, their pods and their results."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.agents: list[Agent] = []
        self.kept: set[tuple[str, str, str, str]] = set()
        """Profile and node (UIDs), run, attempt: what reports say that they hold a result of."""
        self._by_job: dict[tuple[str, str], Agent] = {}
        self._reports: dict[tuple[str, str], tuple[str, str]] = {}
        """By namespace and name: profile and node."""
        for line in lines:
            entry = json.loads(line)
            if entry["stage"] == "ResponseComplete" and entry.get("responseStatus", {}).get("code", 500) < 300:
                self._read(entry)

    def _read(self, entry: Json) -> None:
        ref, body = entry.get("objectRef") or {}, entry.get("requestObject")
        place = (ref.get("namespace", ""), ref.get("name", ""))
        what = (entry["verb"], ref.get("resource"), ref.get("subresource"))
        received, answered = _time(entry["requestReceivedTimestamp"]), _time(entry["stageTimestamp"])
        if what == ("create", "jobs", None) and body and _is_agent(body):
            self._begin(body, place[0], answered)
        elif what == ("delete", "jobs", None) and place in self._by_job:
            agent = self._by_job[place]
            agent.deleted = agent.deleted or received
        elif what == ("create", "pods", "binding") and (of := self._agent_of(place)):
            of.pods.setdefault(place[1], None)
        elif what[1:] == ("pods", "status") and what[0] in ("patch", "update") and (of := self._agent_of(place)):
            self._pod_status(of, place[1], body or {}, received)
        elif what == ("delete", "pods", None) and (of := self._agent_of(place)):
            if place[1] in of.pods and (body or {}).get("gracePeriodSeconds") == 0:
                of.pods[place[1]] = of.pods[place[1]] or received
        elif what == ("create", "nodeprecisionreports", None) and body:
            labels = body["metadata"]["labels"]
            report = (place[0], body["metadata"]["name"])
            self._reports[report] = labels[f"{GROUP}/profile-uid"], labels[f"{GROUP}/node-uid"]
        elif what[1:] == ("nodeprecisionreports", "status") and place in self._reports:
            attempt = (_status(body) or {}).get("attempt") or {}
            if attempt.get("outcome") == "succeeded":
                self.kept.add((*self._reports[place], str(attempt["run"]), str(attempt["number"])))

    def _begin(self, job: Json, namespace: str, at: datetime) -> None:
        meta = job["metadata"]
        labels = [meta["labels"][f"{GROUP}/{key}"] for key in ("profile-uid", "node-uid", "run", "attempt")]
        agent = Agent(meta["name"], namespace, *labels, begun=at)
        self.agents.append(agent)
        self._by_job[namespace, meta["name"]] = agent

    def _agent_of(self, pod: tuple[str, str]) -> Agent | None:
        """The Job controller names a pod after its Job, with a hyphen and five letters."""
        return self._by_job.get((pod[0], pod[1].rpartition("-")[0]))

    def _pod_status(self, agent: Agent, pod: str, body: Json, at: datetime) -> None:
        status = body.get("status") or {}
        agent.pods.setdefault(pod, None)
        if status.get("phase") not in ("Succeeded", "Failed"):
            return
        agent.pods[pod] = agent.pods[pod] or at
        ends = [row.get("state", {}).get("terminated") or {} for row in status.get("containerStatuses", ())]
        agent.has_result |= any(end.get("exitCode") == 0 and end.get("message") for end in ends)


def _is_agent(job: Json) -> bool:
    return (job["metadata"].get("labels") or {}).get(AGENT_LABEL[0]) == AGENT_LABEL[1]


def _status(body: Any) -> Json | None:
    """The status that a request sets: of an object or a merge patch, or of a JSON patch that sets it whole."""
    if isinstance(body, list):
        return next((row["value"] for row in body if row["op"] != "test" and row["path"] == "/status"), None)
    return (body or {}).get("status")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def watts_of(node: Json) -> int:
    """The factory limits of a node's GPUs. ValueError for a GPU that is not in the table."""
    product = node["metadata"]["labels"].get(PRODUCT, "")
    gpu_watts = next((watts for name, watts in WATTS.items() if name in product.split("-")), None)
    if gpu_watts is None:
        raise ValueError(f"node {node['metadata']['name']}: no factory limit for {product!r}: add it to WATTS")
    return gpu_watts * int(node["status"]["allocatable"].get(GPUS, 0))


def limits(nodes: Mapping[str, Json], profiles: Sequence[Json], fleet: Json) -> Iterator[Limit]:
    """All that the profiles' rollouts and the chart's `fleetLimits` set; by UID the nodes."""

    def label(agent: Agent, key: str) -> Any:
        return nodes[agent.node]["metadata"]["labels"].get(key)

    for profile in profiles:
        meta, rollout = profile["metadata"], profile["spec"].get("rollout") or {}
        name, uid, namespace = meta["name"], meta["uid"], meta["namespace"]
        key = profile["spec"].get("poolLabel", PRODUCT)

        def mine(agent: Agent, uid: str = uid) -> object:
            return True if agent.profile == uid else None

        def here(agent: Agent, key: str = "", value: str = "", namespace: str = namespace) -> object:
            group = label(agent, key) if key else True
            return group if agent.namespace == namespace and value in ("", group) else None

        if most := rollout.get("maxConcurrent"):
            yield Limit(f"{name} maxConcurrent", _count(most), mine)
        if profile["spec"].get("suspend"):
            continue  # what is physical binds others only while it is not suspended
        if most := rollout.get("powerBudgetWatts"):
            yield Limit(f"{name} powerBudgetWatts", _count(most), here, in_watts=True)
        for row in rollout.get("perTopology") or ():
            yield Limit(f"{name} perTopology {row['key']}", _count(row["max"]), partial(here, key=row["key"]))
        for row in rollout.get("pools") or ():
            pool = partial(here, key=key, value=row["name"])
            for of in ("maxConcurrent", "powerBudgetWatts"):
                if row.get(of):
                    yield Limit(f"{name} pool {row['name']} {of}", _count(row[of]), pool, of == "powerBudgetWatts")
    yield from _fleet_limits(label, fleet)


def _fleet_limits(label: Callable[[Agent, str], Any], fleet: Json) -> Iterator[Limit]:
    rows = [("fleet", fleet, lambda agent: True)]
    key = fleet.get("poolLabel") or PRODUCT
    for pool in fleet.get("pools") or ():
        name = pool["name"]
        rows.append((f"fleet pool {name}", pool, lambda agent, name=name: label(agent, key) == name or None))
    for row in fleet.get("perTopology") or ():
        most = row | {"maxConcurrent": row.get("max")}
        rows.append((f"fleet perTopology {row['key']}", most, lambda agent, key=row["key"]: label(agent, key) or ""))
    for name, row, group in rows:
        for of, in_watts in (("maxConcurrent", False), ("powerBudgetWatts", True)):
            if row.get(of):
                yield Limit(f"{name} {of}", _count(row[of]), group, in_watts)


def _count(most: Any) -> int:
    if isinstance(most, int):
        return most
    raise ValueError(f"a limit of {most!r}: this reader takes numbers alone, so give the profile a number")


@dataclass(frozen=True)
class Step:
    """One agent begins or ends, and what its group uses before and after that."""

    at: datetime
    group: object
    before: int
    after: int
    job: str


def steps(limit: Limit, agents: Iterable[Agent], watts: Mapping[str, int]) -> Iterator[Step]:
    """All that counts for a limit, by time; what ends at an instant ends before what begins then."""
    moves = []
    for agent in agents:
        until = agent.until
        if (group := limit.group(agent)) is not None and (until is None or until > agent.begun):
            size = watts[agent.node] if limit.in_watts else 1
            moves.append((agent.begun, size, group, agent.job))
            moves += [(until, -size, group, agent.job)] if until else []
    used: defaultdict[object, int] = defaultdict(int)
    for at, size, group, job in sorted(moves, key=lambda move: (move[0], move[1] > 0)):
        before, used[group] = used[group], used[group] + size
        yield Step(at, group, before, used[group], job)


def passed(limit: Limit, agents: Iterable[Agent], watts: Mapping[str, int]) -> Iterator[Violation]:
    """Each instant at which a limit was passed, once until it holds again."""
    for step in steps(limit, agents, watts):
        if step.before <= limit.most < step.after:
            where = "" if step.group is True else f" in {step.group}"
            yield Violation(limit.name, step.at, f"{step.after}{where}, at most {limit.most}, when {step.job} began")


def peaks(log: Log, nodes: Sequence[Json], profiles: Sequence[Json], fleet: Json) -> dict[str, tuple[int, int]]:
    """By limit the most that was used in any group at any instant, and what the limit allows."""
    by_uid, watts = {node["metadata"]["uid"]: node for node in nodes}, watts_by_uid(nodes)
    rows = [*limits(by_uid, profiles, fleet)]
    return {it.name: (max((s.after for s in steps(it, log.agents, watts)), default=0), it.most) for it in rows}


def watts_by_uid(nodes: Iterable[Json]) -> dict[str, int]:
    return {node["metadata"]["uid"]: watts_of(node) for node in nodes}


def violations(log: Log, nodes: Sequence[Json], profiles: Sequence[Json], fleet: Json) -> list[Violation]:
    """All that the log shows to be against the rules, by time. ValueError where it can't be read."""
    by_uid = {node["metadata"]["uid"]: node for node in nodes}
    if strange := sorted(agent.job for agent in log.agents if agent.node not in by_uid):
        raise ValueError(f"{len(strange)} agents on nodes that are not listed, {strange[0]} among them: list all nodes")
    watts = watts_by_uid(nodes)
    a_node = Limit("one agent a node", 1, lambda agent: by_uid[agent.node]["metadata"]["name"])
    broken = [it for limit in (a_node, *limits(by_uid, profiles, fleet)) for it in passed(limit, log.agents, watts)]
    for agent in log.agents:
        meta, until = by_uid[agent.node]["metadata"], agent.until or agent.begun
        deleted = meta.get("deletionTimestamp")
        if not agent.has_result or (deleted and _time(deleted) - until < MAY_BE_LOST):
            continue
        if (agent.profile, agent.node, agent.run, agent.attempt) not in log.kept:
            broken.append(Violation("result in a report", until, f"{agent.job} on {meta['name']}: lost"))
    return sorted(broken, key=lambda it: it.at)


def main() -> int:
    """The exit code: 1 where a rule was broken."""
    if not 4 <= len(sys.argv) <= 5:
        print(__doc__, file=sys.stderr)
        return 2
    nodes, profiles, fleet = [*(json.loads(Path(path).read_text()) for path in sys.argv[2:]), {}][:3]
    with open(sys.argv[1]) as lines:
        log = Log(lines)
    broken = violations(log, nodes["items"], profiles["items"], fleet)
    for it in broken:
        print(f"{it.at.isoformat()} {it.rule}: {it.text}")
    for name, (most, allowed) in peaks(log, nodes["items"], profiles["items"], fleet).items():
        print(f"  {name}: {most} at most, {allowed} allowed")
    results = sum(agent.has_result for agent in log.agents)
    print(f"{len(log.agents)} agents, {results} results, {len(broken)} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
