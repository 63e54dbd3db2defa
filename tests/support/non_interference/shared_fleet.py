"""Tenants that share a fleet, over hours in memory: who starts when, beside one whose agents never come to their end.

Steps of a minute: the operator's plan is carried out, then Kueue, Job controller, scheduler and kubelet do theirs.
The operator remembers the Jobs that it has created, as a running one does.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, zip_longest
from random import Random
from typing import Any, Literal

from precision_api.facts.names import grouped
from precision_operator.core.attempts.actions import Close, Collect, Drop, Start, Withdraw
from precision_operator.core.observe import observed as looked
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.tenants import held_nodes, holding, time_in_vain, waiting_jobs
from precision_operator.core.observe.views import job_view, report_view
from precision_operator.core.plan import Plan, plan
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult
from tests.support.non_interference.hostile_objects import TENANT
from tests.support.world import IDLE, MINUTE, NOW, SETTINGS, measured, nodes, pod, profile

Behaviour = Literal["runs", "queued", "unschedulable", "unpullable", "endless", "remade", "fleeting"]
NEVER_BOUND: tuple[Behaviour, ...] = ("queued", "unschedulable", "remade", "fleeting")
BOUND: tuple[Behaviour, ...] = ("runs", "unpullable", "endless")
STEP, RUNS = MINUTE, 6 * MINUTE
LATE = 15 * MINUTE
SOON: Mapping[Behaviour, timedelta] = {"runs": 15 * MINUTE, "unpullable": 35 * MINUTE, "endless": 35 * MINUTE}
"""How long a namespace may be short of its share: an agent has half an hour to start, and until its deadline to end."""
NODES_OF = {namespace: tuple(f"{namespace}-{count}" for count in range(9)) for namespace in ("ml", "lab")}
NODES = tuple(chain.from_iterable(NODES_OF.values()))
FLEET = nodes(*NODES)
QUEUE = "gpus"
DAY = 86_400
PATIENT = {"pendingTimeoutSeconds": DAY, "startTimeoutSeconds": DAY}


@dataclass
class SharedFleet:
    """All objects, and when each candidate was started first."""

    limits: FleetLimits
    profiles: tuple[looked.ProfileView, ...]
    behaves: Behaviour
    """How the agents of the tenant fare."""
    slow: Mapping[str, timedelta] = field(default_factory=dict)
    """How long after its creation a Job is admitted by its queue, else its pod bound; at once where none is named."""
    blocked: frozenset[str] = frozenset()
    """Nodes that take no agents of the others."""
    own: frozenset[str] = frozenset()
    """Nodes on which the tenant's agents run, however they fare elsewhere."""
    now: datetime = NOW
    jobs: dict[str, looked.JobView] = field(default_factory=dict)
    """By UID."""
    pods: dict[str, looked.PodView] = field(default_factory=dict)
    """By the UID of their Job."""
    reports: dict[tuple[str, str], looked.ReportView] = field(default_factory=dict)
    """By UID of profile and node."""
    starts: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """By UID of profile and node."""
    vain: dict[str, looked.Vain] = field(default_factory=dict)
    waited: dict[str, looked.JobView] = field(default_factory=dict)
    """What the operator remembers of turns."""
    kept: timedelta = timedelta()
    """For how long the tenant had a node or a place without a pod while others waited for one."""
    serial: int = 0

    def observed(self) -> looked.Observed:
        """What the operator sees; it has looked at every node."""
        holders = {pod.node_name: pod for pod in self.pods.values() if pod.live and pod.scheduled_at is not None}
        busy = {name: looked.Occupancy(f"{holder.namespace}/{holder.name}", 8) for name, holder in holders.items()}
        seen = looked.Observed(
            now=self.now,
            settings=replace(SETTINGS, fleet_limits=self.limits),
            profiles=self.profiles,
            nodes=FLEET,
            jobs=tuple(self.jobs.values()),
            pods=holding(self.pods.values(), FLEET.values(), ()),
            reports=tuple(self.reports.values()),
            occupancy={name: busy.get(name, IDLE) for name in NODES},
            queues={(profile.namespace, QUEUE): True for profile in self.profiles},
            own_jobs={uid: item.node_name for uid, item in (*self.pods.items(), *self.jobs.items())},
        )
        self.vain = time_in_vain(self.vain, self.waited, seen)
        self.waited = waiting_jobs(seen)
        return replace(seen, vain=self.vain)

    def step(self) -> Plan:
        """The operator's turn, then everybody else's."""
        seen = self.observed()
        decided = plan(seen)
        self.kept += STEP if self._keeps(seen, decided) else timedelta()
        for action in sorted(decided.actions, key=lambda action: isinstance(action, Start)):
            self._act(action)
        self._run()
        self.now += STEP
        return decided

    def agents(self) -> Counter[str]:
        """Jobs that are not over, by namespace."""
        return Counter(job.namespace for job in self.jobs.values() if job.live)

    def _keeps(self, seen: looked.Observed, decided: Plan) -> bool:
        held = held_nodes(seen).keys() & waiting_jobs(seen).keys()
        starts = (action for action in decided.actions if isinstance(action, Start))
        has = any(self.jobs[uid].namespace == TENANT for uid in held) or any(
            s.profile.namespace == TENANT for s in starts
        )
        others = (item for item in decided.profiles if item.profile.namespace != TENANT)
        return has and any(state.reason in WAITS for item in others for state in item.node_states)

    def _act(self, action: Any) -> None:
        match action:
            case Start():
                self._start(action)
            case Drop(kind="Job"):
                self._end(action.uid)
            case Withdraw():
                self._end(action.job.uid)
            case Collect() | Close():
                self._record(action)

    def _start(self, start: Start) -> None:
        self.serial += 1
        key, uid = (start.profile.uid, start.facts.uid), f"uid-{self.serial}"
        self.starts.setdefault(key, self.now)
        stamps = {"uid": uid, "creationTimestamp": format_time(self.now)}
        view = job_view({**start.job, "metadata": {**start.job["metadata"], **stamps}})
        assert view is not None
        self.jobs[uid] = self.waited[uid] = view
        if start.report is not None:
            body = {**start.report, "metadata": {**start.report["metadata"], "uid": f"uid-{self.serial}-report"}}
            report = report_view(body)
            assert report is not None
            self.reports[key] = report

    def _record(self, action: Collect | Close) -> None:
        job = action.job
        key = job.profile_uid, job.node_uid
        if isinstance(action, Collect):
            status = measured(ago=NOW - self.now, run=job.run, startedAt=format_time(job.created))
        else:
            problem = NoResult(action.said, action.outcome)
            status = ingest.failed_status(problem, job, self.reports[key], self.now, action.keeping)
        self.reports[key] = replace(self.reports[key], status=status)
        self._end(job.uid)

    def _end(self, uid: str) -> None:
        self.jobs.pop(uid, None)
        if uid in self.pods and self.pods[uid].node_name not in WITHOUT_GPUS:
            del self.pods[uid]

    def _run(self) -> None:
        """Agents that have run end, then queues admit, then pods are bound, those of the tenant first."""
        for uid, there in self.pods.items():
            is_done = there.started_at is not None and self.now - there.started_at >= RUNS
            if is_done and self._fares(there.namespace, there.node_name) == "runs":
                self.jobs[uid] = replace(self.jobs[uid], finished="Complete", finished_at=self.now)
                self.pods[uid] = replace(there, phase="Succeeded")
        for uid, job in sorted(self.jobs.items(), key=lambda item: item[1].namespace != TENANT):
            fares = self._fares(job.namespace, job.node_name)
            is_up = self.now - job.created >= self.slow.get(job.namespace, timedelta())
            if job.suspended and is_up and fares != "queued":
                self.jobs[uid] = job = replace(job, suspended=False, active_since=self.now)
            if fares == "fleeting":
                self._end(uid)  # by its tenant
                continue
            is_bound = uid in self.pods and self.pods[uid].scheduled_at is not None
            if job.live and not job.suspended and not is_bound:
                self.pods[uid] = self._pod(job, fares if is_up else "unschedulable")

    def _fares(self, namespace: str, node: str) -> Behaviour:
        return self.behaves if namespace == TENANT and node not in self.own else "runs"

    def _pod(self, job: looked.JobView, fares: Behaviour) -> looked.PodView:
        fares = "unschedulable" if job.namespace != TENANT and job.node_name in self.blocked else fares
        taken = {pod.node_name for pod in self.pods.values() if pod.scheduled_at is not None and pod.live}
        if job.node_name in taken or fares == "unschedulable":
            return pod(job, "Pending", unschedulable="0/4 nodes are available", **UNBOUND)
        if fares == "remade":
            node = WITHOUT_GPUS[len(self.pods) % len(WITHOUT_GPUS)]
            return pod(job, gpus=1, node_name=node, scheduled_at=self.now, started_at=self.now)
        phase, started = ("Pending", None) if fares == "unpullable" else ("Running", self.now)
        return pod(job, phase, gpus=8, scheduled_at=self.now, started_at=started)


WAITS = ("FleetLimitReached", "MeasuredByAnotherProfile")
WITHOUT_GPUS = tuple(f"cpu-{count}" for count in range(9))
"""Where a tenant makes the pods of its Jobs anew by hand, which stay when these go."""
UNBOUND: dict[str, Any] = {"node_name": "", "holds_gpus": False}


def fleet(seed: str, behaves: Behaviour, with_tenant: bool, max_age: str = "30d") -> SharedFleet:
    """Two namespaces that want their nodes measured, again at that age, and a tenant that always wants all of them."""
    rng = Random(seed)
    others = [
        profile(
            namespace,
            namespace=namespace,
            target={"nodeNames": [*names]},
            rollout={"maxConcurrent": rng.choice([1, 2, 10])},
            schedule={"maxAge": max_age},
            agent={"queueName": QUEUE} if rng.random() < 0.2 else {},
        )
        for namespace, names in NODES_OF.items()
    ]
    queue = {"queueName": QUEUE} if behaves == "queued" else {}
    tenants = [
        profile(
            f"evil-{number}",
            namespace=TENANT,
            created=NOW - timedelta(days=rng.choice([0, 9])),
            rollout={"maxConcurrent": 10, "retry": {"limit": 10, "backoffSeconds": 1}},
            schedule={"maxAge": "1s"},
            idle=PATIENT,
            agent=queue,
        )
        for number in range(rng.randint(1, 3))
    ]
    limits = FleetLimits(max_concurrent=rng.choice([None, 2, 2, 3, 6]))
    return SharedFleet(limits, (*others, *(tenants if with_tenant else ())), behaves)


@dataclass(frozen=True)
class Slow:
    """Namespaces whose agents take their time to get a node, all on the same nodes."""

    waits: Mapping[str, int]
    """Minutes from a Job's creation until its queue admits it or its pod is bound, by namespace."""
    cap: int | None = None
    queued: bool = True
    """Whether it is their queues that are slow, else the scheduler."""
    nodes: int = 4

    def fleet(self, behaves: Behaviour, with_tenant: bool) -> SharedFleet:
        """Beside it a tenant that always wants all nodes, which has no queue unless that admits nothing."""
        target, at_once = {"nodeNames": [*NODES[: self.nodes]]}, {"maxConcurrent": 10}
        way = {"agent": {"queueName": QUEUE}} if self.queued else {"idle": PATIENT}
        queue = {"agent": {"queueName": QUEUE}} if behaves == "queued" else {}
        profiles = [profile(name, namespace=name, target=target, rollout=at_once, **way) for name in self.waits]
        tenant = profile(
            "evil",
            namespace=TENANT,
            created=NOW - timedelta(days=9),
            target=target,
            rollout=at_once,
            schedule={"maxAge": "1s"},
            idle=PATIENT,
            **queue,
        )
        waits = {name: minutes * MINUTE for name, minutes in self.waits.items()}
        everybody = (*profiles, tenant) if with_tenant else (*profiles,)
        return SharedFleet(FleetLimits(max_concurrent=self.cap), everybody, behaves, waits)

    def unmeasured(self, behaves: Behaviour, steps: int) -> Counter[str]:
        """How many nodes have no result beside the tenant, by namespace."""
        shared = self.fleet(behaves, True)
        for _ in range(steps):
            shared.step()
        done = Counter(report.namespace for report in shared.reports.values() if report.status and report.status.run)
        return Counter({name: self.nodes - done[name] for name in self.waits if done[name] < self.nodes})


def with_blocked_nodes(cap: int, blocked: int, with_tenant: bool) -> SharedFleet:
    """A namespace of whose ten nodes the first ones take no agents; a tenant wants all of these, and its agents run."""
    names, at_once = [*NODES[:10]], {"maxConcurrent": 10}
    ours = profile("ml", namespace="ml", target={"nodeNames": names}, rollout=at_once)
    old, again = NOW - timedelta(days=9), {"maxAge": "1s"}
    tenant = profile("evil", namespace=TENANT, created=old, rollout=at_once, schedule=again)
    profiles = (ours, tenant) if with_tenant else (ours,)
    return SharedFleet(FleetLimits(max_concurrent=cap), profiles, "runs", blocked=frozenset(names[:blocked]))


def with_nodes_of_its_own(cap: int | None, behaves: Behaviour, wants_others: bool) -> SharedFleet:
    """Six profiles over three nodes, and a tenant whose agents run on its own four; it may want the three and one."""
    names, own = [*NODES[:3]], [*NODES[3:7]]
    target, at_once = {"nodeNames": [own[0], *names] if wants_others else own}, {"maxConcurrent": 10}
    queue = {"agent": {"queueName": QUEUE}} if behaves == "queued" else {"idle": PATIENT}
    ours = (profile(f"p{n}", namespace="ml", target={"nodeNames": names}, rollout=at_once) for n in range(6))
    tenant = profile("evil", namespace=TENANT, target=target, rollout=at_once, schedule={"maxAge": "1s"}, **queue)
    return SharedFleet(FleetLimits(max_concurrent=cap), (*ours, tenant), behaves, own=frozenset(own))


def first_start_on_free_nodes(shared: SharedFleet, new_leader: int = 0, steps: int = 60) -> timedelta:
    """After how long; `new_leader` is the step at which one without any memory takes over."""
    blocked = {f"uid-{name}" for name in shared.blocked}
    for step in range(steps):
        if step == new_leader:
            shared.vain, shared.waited = {}, {}
        shared.step()
        if any(owner == "uid-ml" and node not in blocked for owner, node in shared.starts):
            break
    return shared.now - STEP - NOW


def starts(shared: SharedFleet, steps: int) -> list[datetime]:
    """When candidates of other namespaces were started first, in order."""
    for _ in range(steps):
        shared.step()
    theirs = {profile.uid for profile in shared.profiles if profile.namespace != TENANT}
    return sorted(at for (profile, _), at in shared.starts.items() if profile in theirs)


def late(alone: SharedFleet, beside: SharedFleet, steps: int = 120) -> list[str]:
    """Starts of other namespaces that come more than fifteen minutes later beside the tenant, or never.

    The first start of all is held against the first without the tenant, the second against the second: which namespace
    goes first hangs on who has the fewest agents when a place is free.
    """
    end = NOW + steps * STEP
    pairs = enumerate(zip_longest(starts(alone, steps), starts(beside, steps), fillvalue=end))
    return [f"{count}: {at - NOW} and {later - NOW}" for count, (at, later) in pairs if at + LATE < later]


def kept(seed: str, behaves: Behaviour, steps: int) -> timedelta:
    """For how long the tenant had a node or a place without a pod while others, who always want more, waited."""
    shared = fleet(seed, behaves, True, "1s")
    for _ in range(steps):
        shared.step()
    return shared.kept


def longest_short_of_its_share(seed: str, behaves: Behaviour, steps: int = 120) -> timedelta:
    """How long a namespace waits for the fleet's cap with fewer agents than its share of it, at most."""
    shared = fleet(seed, behaves, True)
    shared.limits = FleetLimits(max_concurrent=Random(f"{seed}/cap").choice([3, 4]))
    return longest_short(shared, steps)


def longest_short(shared: SharedFleet, steps: int) -> timedelta:
    share = (shared.limits.max_concurrent or 0) // len({profile.namespace for profile in shared.profiles})
    since: dict[str, datetime] = {}
    longest = timedelta()
    for _ in range(steps):
        decided, at = shared.step(), shared.now
        states = grouped((item.profile.namespace, state) for item in decided.profiles for state in item.node_states)
        for namespace in states.keys() - {TENANT}:
            waits = any(state.reason == "FleetLimitReached" for state in states[namespace])
            if waits and shared.agents()[namespace] < share:
                longest = max(longest, at - since.setdefault(namespace, at))
            else:
                since.pop(namespace, None)
    return longest
