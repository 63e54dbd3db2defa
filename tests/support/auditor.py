"""An onlooker with arithmetic of its own: whether a start that the operator is about to make keeps every promise.

It knows the objects of the simulated cluster and the words of the specification, and nothing of the operator's checks.
An agent is a Job that has not ended, or a pod that has not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from precision_api.kinds.profile import ProfileSpec
from precision_operator.core.attempts.actions import Start
from precision_operator.core.attempts.node_state import NodeState
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.observe.observed import JobView, PodView, ProfileView, ReportView

PRODUCT = "nvidia.com/gpu.product"
DEFAULT_WATTS = {"NVIDIA-H100-80GB-HBM3": 700, "NVIDIA-GB200": 1200}
CLASSES = {"NVIDIA-H100-80GB-HBM3": "H100", "NVIDIA-GB200": "GB200"}
UNRESPONSIVE = timedelta(seconds=60)
"""After this a pod that was deleted counts no more: nobody is there to end it."""
SLOW_CAUSES = dict.fromkeys(("ImagePullFailed", "BackendUnavailable"), 10)
SLOW_CAUSES |= dict.fromkeys(("AgentRefused", "AgentOutOfMemory", "AgentOutOfStorage", "PodNotCreated"), 5)
"""How much longer a node rests after these, relative to spec.rollout.retry.backoffSeconds."""
Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Begun:
    """A start that has been made."""

    at: datetime
    profile_uid: str
    node_uid: str
    job: str


class World(Protocol):
    now: datetime
    nodes: dict[str, dict[str, Any]]
    profiles: dict[str, ProfileView]
    jobs: dict[str, JobView]
    pods: dict[str, PodView]
    reports: dict[str, ReportView]
    begun: list[Begun]

    def holder(self, node: str) -> str | None: ...


def check(world: World, start: Start, node_states: Iterable[NodeState]) -> None:
    """Raises AssertionError, in words, for the first promise that the start would break."""
    spec = start.profile.spec
    assert spec is not None
    assert start.profile.uid in world.profiles, "its profile is gone"
    assert not spec.suspend, "a suspended profile starts an agent"
    for audit in (_node, _own, _rollout, _physical, _watts, _ramp, _rest):
        audit(world, start, spec, list(node_states))
    for other in world.profiles.values():
        if other.uid == start.profile.uid or other.spec is None or other.spec.suspend:
            continue
        if start.facts.uid in _matched(world, other.spec):
            _keeps_limits_of(other, world, start)


def _keeps_limits_of(other: ProfileView, world: World, start: Start) -> None:
    """Racks and watts that another profile limits are limited for all, where a node stays below its limit at all.

    A suspended one limits nobody.
    """
    assert other.spec is not None
    mine, rollout = _watts_of(world, start.facts.uid), other.spec.rollout
    pools = [row for row in rollout.pools if row.name == _labels(world.nodes[start.facts.uid])[PRODUCT]]
    if any(
        watts is not None and watts < mine
        for watts in (rollout.power_budget_watts, *(row.power_budget_watts for row in pools))
    ):
        return
    labels = _labels(world.nodes[start.facts.uid])
    known = tuple(row for row in rollout.per_topology if row.key in labels)
    kept = other.spec.model_copy(update={"rollout": rollout.model_copy(update={"per_topology": known})})
    as_other = replace(start, profile=other)
    for audit in (_physical, _watts):
        audit(world, as_other, kept, [])


def _labels(node: Raw) -> Mapping[str, str]:
    return node["metadata"]["labels"]  # type: ignore[no-any-return]


def _matched(world: World, spec: ProfileSpec) -> set[str]:
    target = spec.target
    return {
        uid
        for uid, node in world.nodes.items()
        if (not target.node_names or node["metadata"]["name"] in target.node_names)
        and (not target.products or CLASSES[_labels(node)[PRODUCT]] in target.products)
    }


def agents(world: World) -> set[tuple[str, str, str]]:
    """(profile UID, node UID, Job UID) of everything that holds GPUs or will."""
    jobs = {(j.profile_uid, j.node_uid, j.uid) for j in world.jobs.values() if j.finished is None}
    pods = [pod for pod in world.pods.values() if pod.phase in ("Pending", "Running")]
    return jobs | {
        (p.profile_uid, p.node_uid, p.job_uid)
        for p in pods
        if p.deleting_since is None or world.now - p.deleting_since < UNRESPONSIVE
    }


def _watts_of(world: World, uid: str) -> int:
    told = [watts for report in world.reports.values() if report.node_uid == uid and (watts := _told(report))]
    if told:
        return told[0]
    node = world.nodes[uid]
    return int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) * DEFAULT_WATTS[_labels(node)[PRODUCT]]


def _told(report: ReportView) -> int | None:
    hardware = report.status.hardware if report.status is not None else None
    return hardware.limit_watts if hardware is not None else None


def _share(limit: int | str, whole: int) -> int:
    return limit if isinstance(limit, int) else max(1, whole * int(limit.rstrip("%")) // 100)


def _node(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    """The node is there, idle, and nobody else's turn: not even by name, for it may be the same machine."""
    uid, name = start.facts.uid, start.facts.name
    assert uid in world.nodes, f"{name} is not there"
    assert world.holder(name) is None, f"{name} is busy"
    here = [job for job in world.jobs.values() if job.node_name == name]
    pods = [pod for pod in world.pods.values() if pod.live and pod.node_name == name]
    assert not here, f"{name} has an agent already: {here}"
    assert not pods, f"{name} has an agent's pod already: {pods}"


def _own(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    own = [agent for agent in agents(world) if agent[0] == start.profile.uid]
    most = _share(spec.rollout.max_concurrent, len(_matched(world, spec)))
    assert len(own) < most, f"maxConcurrent: {len(own)} run, {most} may"


def _rollout(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    rollout, states = spec.rollout, [node_state.state for node_state in node_states]
    good, bad = states.count("succeeded"), states.count("failed")
    own = sum(agent[0] == start.profile.uid for agent in agents(world))
    if rollout.max_failures is not None:
        most = _share(rollout.max_failures, len(_matched(world, spec)))
        assert bad <= most, f"maxFailures: {bad} have failed, {most} may"
    if rollout.canary is not None and good < rollout.canary:
        assert not bad, "a canary has failed, and another agent starts"
        assert good + own < rollout.canary, f"canary: {good} are measured and {own} run of {rollout.canary}"


def _physical(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    labels = _labels(world.nodes[start.facts.uid])
    there = [_labels(world.nodes[node]) for _, node, _ in agents(world) if node in world.nodes]
    for row in spec.rollout.per_topology:
        assert row.key in labels, f"perTopology: the node has no {row.key}"
        running = sum(other.get(row.key) == labels[row.key] for other in there)
        assert running < row.max, f"perTopology: {running} run where {row.key} is {labels[row.key]}, {row.max} may"
    for pool in spec.rollout.pools:
        if pool.name == labels[PRODUCT] and pool.max_concurrent is not None:
            running = sum(other[PRODUCT] == pool.name for other in there)
            assert running < pool.max_concurrent, f"pool {pool.name}: {running} run, {pool.max_concurrent} may"


def _watts(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    mine, matched = _watts_of(world, start.facts.uid), _matched(world, spec)
    there = [(owner, node) for owner, node, _ in agents(world) if node in world.nodes]
    if spec.rollout.power_budget_watts is not None:
        concerned = [node for owner, node in there if node in matched or owner == start.profile.uid]
        drawn = mine + sum(_watts_of(world, node) for node in concerned)
        assert drawn <= spec.rollout.power_budget_watts, f"{drawn} W of {spec.rollout.power_budget_watts}"
    own_pool = _labels(world.nodes[start.facts.uid])[PRODUCT]
    for pool in spec.rollout.pools:
        if pool.name == own_pool and pool.power_budget_watts is not None:
            concerned = [node for _, node in there if _labels(world.nodes[node])[PRODUCT] == own_pool]
            drawn = mine + sum(_watts_of(world, node) for node in concerned)
            assert drawn <= pool.power_budget_watts, f"pool {own_pool}: {drawn} W of {pool.power_budget_watts}"


def _ramp(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    wait = timedelta(seconds=spec.rollout.ramp_seconds)
    for other in _same_group(world, start, spec):
        assert abs(world.now - other.at) >= wait, f"ramp: {other} was {world.now - other.at} ago"


def _same_group(world: World, start: Start, spec: ProfileSpec) -> Iterator[Begun]:
    """Starts that the ramp counts: of the same rack, without a key of the profile; where node and profile exist."""
    labels = _labels(world.nodes[start.facts.uid])
    for other in world.begun:
        if other.node_uid not in world.nodes or other.profile_uid not in world.profiles:
            continue
        if not spec.rollout.per_topology:
            if other.profile_uid == start.profile.uid:
                yield other
            continue
        key = spec.rollout.per_topology[0].key
        if _labels(world.nodes[other.node_uid]).get(key) == labels[key]:
            yield other


def _rest(world: World, start: Start, spec: ProfileSpec, node_states: list[NodeState]) -> None:
    """A node that failed rests; one whose retries are spent, or that is quarantined, waits for another cause."""
    key = (start.profile.uid, start.facts.uid)
    report = next((r for r in world.reports.values() if (r.profile_uid, r.node_uid) == key), None)
    attempt = report.status.attempt if report is not None and report.status is not None else None
    if report is None or report.status is None or attempt is None:
        return
    same_run = start.job["metadata"]["labels"]["precisionprofiler.io/run"] == attempt.run
    assert not (same_run and attempt.outcome == "succeeded"), "a run begins again although it has its result"
    if same_run and attempt.outcome == "failed":
        retry = spec.rollout.retry
        assert attempt.failures <= retry.limit, f"{attempt.failures} failures, {retry.limit} retries"
        factor = SLOW_CAUSES.get(attempt.reason or "", 1) * 2 ** (attempt.failures - 1)
        rest = min(timedelta(hours=6), timedelta(seconds=retry.backoff_seconds * factor))
        assert abs(world.now - parse_time(attempt.finished_at)) >= rest, "a failed node gets no rest"
    if report.status.quarantine is not None and not same_run:
        driver = _labels(world.nodes[start.facts.uid]).get("nvidia.com/cuda.driver-version.full", "")
        asked = (report.rerun or start.profile.rerun) != ""
        changed = driver != attempt.basis.get("driver") or str(start.facts.gpus) not in attempt.basis["hardware"]
        assert asked or changed, "a quarantined node is measured although nobody asked for it"
