"""Everything that a decision is made from: one frozen value, gathered before deciding and never changed after."""

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_api.acceptance.reference import Reference
from precision_api.facts.names import FRESH, grouped
from precision_api.kinds.profile import ProfileSpec, ProfileStatus
from precision_api.kinds.report import ReportAcceptance, ReportStatus
from precision_operator.core.observe.book import Book
from precision_operator.core.observe.clock import parse_time, time_or_none
from precision_operator.core.observe.configuration import AgentDefaults, FleetLimits
from precision_operator.core.observe.device_class import USUAL, DeviceClass
from precision_operator.core.observe.kept_report import KeptResults
from precision_operator.core.observe.node_gate import NodeGate
from precision_operator.core.observe.nodes import FactsOfAll, Slices, facts_of_all
from precision_operator.core.observe.pod_requests import NOTHING, Requests
from precision_operator.core.observe.stop import Stop
from precision_operator.core.observe.waiting_pods import WaitingPod

Raw = Mapping[str, Any]
BEING_READ = "it, or what it names, is being read"
YieldOutcome = Literal["Waiting", "Helped", "NotHelped", "Taken", "Gone"]
"""Waiting: the pod was not scheduled yet; Gone: it was deleted meanwhile, or scheduled on another node."""
SavedReference = tuple[str, Reference | str]
"""The SHA-256 of a text, and the reference there, without its nodes; None where it is none."""
Owner = tuple[str, str, str]
Stage = Literal["report", "ResourceClaimTemplate", "Job", "pod", "ResourceClaim"]
"""What is created for an attempt, in this order."""


@dataclass(frozen=True)
class Settings:
    """The operator's own configuration: what no profile may decide."""

    agent_image: str
    allowed_images: tuple[str, ...]
    """Prefixes; an agent image outside of them is refused, else a profile could run any image on any node."""
    priority_class: str
    agent_service_account: str
    agent_defaults: AgentDefaults = field(default_factory=AgentDefaults)
    """What agents get where their profile says nothing."""
    stop: Stop | None = None
    """What the chart says of all agents; the switch in the cluster may say more."""
    startup_taints: tuple[str, ...] = ()
    """Keys of taints of nodes that are not in service yet; with a slash at the end, all keys below it."""
    resource_claims: bool = True
    """Whether GPUs are asked for by resource claim (DRA) where nodes offer them so, and the cluster serves that."""
    device_class: str = "gpu.nvidia.com"
    """DeviceClass of the agents' resource claims."""
    domain_labels: tuple[str, ...] = ()
    """Labels that name a node's NVLink domain, besides those that are known."""
    fleet_limits: FleetLimits = field(default_factory=FleetLimits)
    """What binds the agents of all namespaces together."""
    disruption_backoff: timedelta = timedelta(seconds=30)
    """How long a node rests after its agent was taken away, so that a drain is not fought."""
    profiles_per_namespace: int | None = None
    """Most profiles of a namespace that are served; None: all."""
    plans_across: tuple[str, ...] = ()
    """Namespaces whose capacity plans may read reports of other watched ones."""
    unresponsive_grace: timedelta = timedelta(seconds=60)
    """How long after its time an agent's pod may still be there before its kubelet is taken for gone."""
    accept_simulated: bool = False
    """Whether a verdict may rest on figures that nobody measured: for laboratories."""
    node_gate: NodeGate = field(default_factory=NodeGate)
    """Whose verdicts may reach a Node."""
    started: str = ""
    """When this process began: a new one has collected nothing yet."""
    show_other_namespaces: bool = False
    """Whether statuses name pods and profiles of other namespaces than the profile's."""


@dataclass(frozen=True)
class Termination:
    """How a container ended, as its pod says."""

    exit_code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class PodView:
    name: str
    namespace: str
    job: str
    job_uid: str
    """Which Job of that name: one that was deleted by hand leaves its pod for a while, beside that of the next one."""
    profile_uid: str
    node_uid: str
    phase: str
    created: datetime
    node_name: str = ""
    """The node that it is bound to; empty where it is bound to none."""
    holds_gpus: bool = False
    """Whether it is bound, and asks for GPUs or has its claim; what is gathered says whether it has them there."""
    gpus: int = 0
    """How many of nvidia.com/gpu it asks for."""
    scheduled_at: datetime | None = None
    """When it was bound to its node."""
    started_at: datetime | None = None
    """When the agent's container started."""
    deleting_since: datetime | None = None
    """When it was to be gone, by its deletionTimestamp: its kubelet should have ended it by then."""
    waiting_reason: str = ""
    waiting_message: str = ""
    unschedulable: str = ""
    uid: str = ""
    priority: int = 0
    claims: bool = False
    """Whether it asks for its GPUs by resource claim."""
    claims_created: bool = False
    """Whether the cluster has created that claim."""
    claim_problem: str = ""
    """The newest event that tells why its claim is not created, or not prepared on its node."""
    disruption: str = ""
    """Message of the DisruptionTarget condition: somebody took the pod away."""
    disruption_reason: str = ""
    """Reason of that condition: who did."""
    failure: str = ""
    """Why its kubelet ended it as a whole: `Evicted` or `DeadlineExceeded`; empty where its program ended."""
    failure_message: str = ""
    termination: Termination | None = None
    image_id: str = ""
    """The image that its container runs, with its digest, as the runtime says."""

    @property
    def live(self) -> bool:
        return self.phase not in ("Succeeded", "Failed")


@dataclass(frozen=True)
class JobView:
    """One attempt to measure one node."""

    name: str
    namespace: str
    uid: str
    profile: str
    profile_uid: str
    node_name: str
    node_uid: str
    run: str
    attempt: int
    request_hash: str
    created: datetime
    workload: str = ""
    driver: str = ""
    """The node's driver, by its labels, when the Job was made."""
    boot: str = ""
    """The node's boot then."""
    basis: Mapping[str, str] = field(default_factory=dict)
    """What the run was started for."""
    suspended: bool = False
    """Kueue holds it, or has taken its place away."""
    active_since: datetime | None = None
    """When it was last let go by Kueue; None: never held."""
    queued_since: datetime | None = None
    """When Kueue queued it: at its creation, or when it was last evicted; None where the Job does not say."""
    finished: Literal["Complete", "Failed"] | None = None
    finished_at: datetime | None = None
    failure_reason: str = ""
    failure_message: str = ""
    giving_up_since: datetime | None = None
    """When Kubernetes gave it up: it stays unfinished (FailureTarget) until its pod is gone."""
    deadline_seconds: int | None = None
    """The agent ends itself this long after it has started; None: made by an operator that did not tell."""
    watts: int = 0
    """What its node may draw, as it tells; 0: unknown."""
    deleting: bool = False
    creation_problem: str = ""
    """The newest FailedCreate text, when the Job has had no pod for a while."""

    @property
    def live(self) -> bool:
        return self.finished is None

    @property
    def is_gone(self) -> bool:
        """Whether nothing but finalizers keeps it."""
        return self.deleting and not self.live


@dataclass(frozen=True)
class ReportView:
    """A node's report, as far as decisions need it; `status` is None where it is empty or can't be read.

    The operator has only what is kept of a status, by the same attributes: see `kept_report`.
    """

    name: str
    namespace: str
    uid: str
    profile: str
    profile_uid: str
    node_name: str
    node_uid: str
    status: ReportStatus | None = None
    rerun: str = ""
    """Value of the rerun annotation: a new one asks for a new run of this node."""
    closed: str = ""  # value of that annotation
    version: str = ""
    """resourceVersion of the object that was read."""
    unreadable: Exception | None = field(default=None, compare=False)
    """Why nothing is known of its status: a time in it is none."""
    unread: Raw | None = None
    """The object as it came, where it can't be read."""

    @property
    def started(self) -> datetime | None:
        """When the agent of the newest attempt was created; None where there was none, or it isn't told."""
        attempt = self.status.attempt if self.status is not None else None
        return parse_time(attempt.started_at) if attempt is not None and attempt.started_at else None

    @property
    def reported_limit(self) -> tuple[str, int | None] | None:
        """When its result came in, and what its node's GPUs were then limited to, in watts; None without a result."""
        status = self.status
        if status is None or status.hardware is None or status.run is None:
            return None
        return status.run.finished_at, status.hardware.limit_watts

    @cached_property
    def throttled(self) -> Set[str]:
        """Recipes that were throttled."""
        results = self.status.results if self.status is not None else ()
        if isinstance(results, KeptResults):
            return {row.recipe for row, names, _ in results.rows if "throttled_share" in names}
        return {row.recipe for row in results if row.throttled_share is not None}

    @property
    def not_fresh(self) -> Mapping[str, datetime]:
        """Since when, by reason, it is marked as out of date; empty while it is fresh."""
        conditions = self.status.conditions if self.status is not None else ()
        return {
            c.reason: parse_time(c.last_transition_time) for c in conditions if c.type == FRESH and c.status == "False"
        }

    @cached_property
    def finished(self) -> datetime | None:
        """When its newest good result came in; None where there is none, or no time is told."""
        run = self.status.run if self.status is not None else None
        return time_or_none(run.finished_at) if run is not None else None

    @property
    def owner(self) -> Owner:
        """Namespace, UID of the profile that owns it, and where none does the name that it bears."""
        return self.namespace, self.profile_uid, "" if self.profile_uid else self.profile


class Filed(dict[str, ReportView]):
    """Reports of one owner by node UID, never changed; what follows from these alone is worked out once."""

    def changed(self, changes: Mapping[str, ReportView | None]) -> "Filed":
        """With these in their places; None: it is there no more."""
        made, starts = Filed(self), dict(self.starts)
        for uid, report in changes.items():
            made.pop(uid, None) if report is None else made.update({uid: report})
            at = report.started if report is not None else None
            starts.pop(uid, None) if at is None else starts.update({uid: at})
        made.starts = starts
        return made

    @cached_property
    def by_finish(self) -> tuple[Sequence[datetime], Sequence[str]]:
        """When results came in, in order, and the UIDs of their nodes."""
        rows = sorted((at, uid) for uid, report in self.items() if (at := report.finished) is not None)
        return [at for at, _ in rows], [uid for _, uid in rows]

    def finished_before(self, moment: datetime) -> frozenset[str]:
        """UIDs of nodes whose newest good result came in before that."""
        times, uids = self.by_finish
        return frozenset(uids[: bisect_left(times, moment)])

    @cached_property
    def unreadable(self) -> tuple[ReportView, ...]:
        return tuple(report for report in self.values() if report.unreadable is not None)

    @cached_property
    def starts(self) -> Mapping[str, datetime]:
        """When the newest attempt's agent was created, by node UID."""
        return {uid: report.started for uid, report in self.items() if report.started is not None}

    @cached_property
    def judged(self) -> Sequence[tuple[str, ReportAcceptance, ReportView]]:
        """When the run that a verdict rests on ended, the verdict, and its report; newest first."""
        rows = [
            (verdict.runs.ended, verdict, report)
            for report in self.values()
            if report.status is not None
            and (verdict := report.status.acceptance) is not None
            and verdict.runs is not None
            and verdict.reference is not None
        ]
        return sorted(rows, key=lambda row: row[0], reverse=True)

    @cached_property
    def last_start(self) -> datetime | None:
        return max(self.starts.values(), default=None)


NO_REPORTS = Filed()


class Reports(tuple[ReportView, ...]):
    """All reports; what follows from these alone is worked out once."""

    @classmethod
    def of(cls, filed: Mapping[Owner, Filed]) -> "Reports":
        """Those that are filed so."""
        made = cls(chain.from_iterable(there.values() for there in filed.values()))
        made.filed = filed
        return made

    @cached_property
    def filed(self) -> Mapping[Owner, Filed]:
        """By owner and node UID."""
        owners = grouped((report.owner, report) for report in self)
        return {owner: Filed({report.node_uid: report for report in there}) for owner, there in owners.items()}

    def served(self, unserved: Container[str], homes: Mapping[str, str]) -> "Reports":
        """Those of namespaces that are served, and of no profile of another than theirs; `homes` by profile UID."""
        filed = {
            owner: there
            for owner, there in self.filed.items()
            if owner[0] not in unserved and homes.get(owner[1], owner[0]) == owner[0]
        }
        return self if len(filed) == len(self.filed) else Reports.of(filed)

    def changed(self, changes: Iterable[tuple[ReportView | None, ReportView | None]]) -> "Reports":
        """With these, as they were and as they are; owners of which none is among them keep the same object."""
        by_owner: dict[Owner, dict[str, ReportView | None]] = {}
        for before, after in changes:
            for view, now in ((before, None), (after, after)):
                if view is not None and view.node_uid:
                    by_owner.setdefault(view.owner, {})[view.node_uid] = now
        if not by_owner:
            return self
        filed = {owner: self.filed.get(owner, NO_REPORTS).changed(of) for owner, of in by_owner.items()}
        return Reports.of({owner: there for owner, there in {**self.filed, **filed}.items() if there})


@dataclass(frozen=True)
class ProfileView:
    """A profile; `spec` is None when it can't be read, `problem` says why."""

    name: str
    namespace: str
    uid: str
    generation: int
    created: datetime
    spec: ProfileSpec | None
    problem: str = ""
    status: Raw = field(default_factory=dict)
    rerun: str = ""
    """Value of the rerun annotation: a new one asks for a new run of all nodes."""
    deleting: bool = False
    version: str = ""
    """resourceVersion of the object that was read."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class AcceptedProfile(ProfileView):
    """A profile that can be measured: its spec was read, and nothing that it asks for is missing or forbidden."""

    spec: ProfileSpec

    @classmethod
    def of(cls, profile: ProfileView, spec: ProfileSpec) -> "AcceptedProfile":
        return cls(**{**vars(profile), "spec": spec})


@dataclass(frozen=True)
class Occupancy:
    """Who holds GPUs on a node: `None` as holder means idle. And what all its pods together request of it."""

    holder: str | None
    gpus: int = 0
    requests: Requests = NOTHING
    fresh: bool = True
    """Whether this pass has looked: only then an agent may start."""


@dataclass(frozen=True)
class RefusedCreation:
    """That the cluster did not create something for an agent on one node, and when it is tried again."""

    reason: str
    """A row of the table of reasons."""
    words: str
    """What the API server said, on one line, without the object's name."""
    stage: Stage
    at: datetime
    until: datetime
    times: int = 1
    """Tries in a row, of this node or of the profile."""
    agents: int = 0
    """Agents of the profile that there was room for, where a quota is the reason: when one ends there is room again."""
    alone: bool = False
    """Whether another node of the profile has got its agent since: the answer concerns this node."""
    mark: str = ""
    """What the user had asked for last, before this answer."""


@dataclass(frozen=True)
class Yield:
    """That an agent was ended for a pod of higher priority, and what came of it."""

    profile_uid: str
    node: str
    node_uid: str
    job_uid: str
    pod: str
    """namespace/name."""
    pod_uid: str
    owner: str
    """A digest of the pod's namespace and its controller's UID; its own where it has none."""
    priority: int
    at: datetime
    released: datetime | None = None
    """When the agent's pod was gone."""
    outcome: YieldOutcome = "Waiting"
    ended: datetime | None = None
    """When the outcome was known; None while the pod waits."""

    @property
    def namespace(self) -> str:
        """The pod's."""
        return self.pod.partition("/")[0]


class Vain(NamedTuple):
    """For how long a namespace's Jobs had nodes and places, and no pod was bound; those of one time count once."""

    spent: timedelta
    until: datetime
    """The end of what is counted."""
    ended: datetime
    """When the last of these Jobs went."""
    nodes: Mapping[str, datetime | None] = MappingProxyType({})
    """When the last Job on a node went in vain; None: a pod was bound there since. Without a name: on all others."""

    def last(self, node: str) -> datetime | None:
        """When the namespace's last Job there went in vain; None where it did not."""
        return self.nodes.get(node, self.nodes.get(""))


@dataclass(frozen=True)
class Observed:
    """The world at `now`. Nodes are raw Node objects by UID: their pool depends on the profile that looks."""

    now: datetime
    settings: Settings
    profiles: tuple[ProfileView, ...] = ()
    nodes: Mapping[str, Raw] = field(default_factory=dict)
    jobs: tuple[JobView, ...] = ()
    pods: tuple[PodView, ...] = ()
    reports: tuple[ReportView, ...] = ()
    """Best as `Reports`: what was worked out of those of an owner holds while they are the same object."""
    occupancy: Mapping[str, Occupancy] = field(default_factory=dict)
    """By node name; a node that is absent has not been looked at."""
    looked: Mapping[str, float] = field(default_factory=dict)
    """When nodes were seen busy within minutes, by name: the least recent ones are looked at first."""
    config_maps: Mapping[tuple[str, str], Mapping[str, str] | None] = field(default_factory=dict)
    """Data by (namespace, name); None: there is none of that name."""
    references: Mapping[tuple[str, str], SavedReference | None] = field(default_factory=dict)
    """By (namespace, name), for profiles that ask for a verdict; None: there is none of that name."""
    stop: Stop | None = None
    """An admin's stop of all agents; None: they may run."""
    unread: Mapping[str, Exception | None] = field(default_factory=dict)
    """Why something that a profile names could not be read, by profile UID: nothing is decided for it now. None: it is
    being read, and the profile's status stands."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Why nothing is decided in a namespace, by its name: some of its kinds may not be listed."""
    slices: Slices = None
    """ResourceSlices of the GPU driver; None: they are not served, may not be read, or are not to be used."""
    device_class: DeviceClass = USUAL
    """The class of the agents' claims, as far as it was looked at."""
    priority_class_exists: bool = True
    queues: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether there is a Kueue LocalQueue, by (namespace, name); absent: not asked for."""
    refusals: Mapping[tuple[str, str], RefusedCreation] = field(default_factory=dict)
    """Creations that the cluster refused last, by profile UID and node UID."""
    waiting_pods: tuple[WaitingPod, ...] = ()
    """Pods of others that wait for GPUs by claim; looked at while agents hold such GPUs."""
    yields: tuple[Yield, ...] = ()
    """Agents that were ended for such pods within the last hour."""
    vain: Mapping[str, Vain] = field(default_factory=dict)
    """The time that namespaces have had in vain of late, by their name: a memory."""
    agents_since: Mapping[str, datetime] = field(default_factory=dict)
    """When this leader first saw an agent bound, by UID of its own Jobs: a memory."""
    own_jobs: Mapping[str, str] = field(default_factory=dict)
    """Node by UID of the Jobs that this leader has created, or found when it began: a memory, nothing that they say."""
    profile_statuses: Mapping[str, ProfileStatus] = field(default_factory=dict)
    """Where one node and its reports were read alone, statuses by profile UID: what is said of others is from there."""
    watts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """What nodes with Jobs may draw then, by namespace and UID, as the Jobs tell their own namespace."""

    book: Book = field(default_factory=Book, compare=False, repr=False)
    """What was worked out of what was seen before, and what is worked out of this."""

    def facts_of(self, pool_label: str) -> FactsOfAll:
        """The facts of all nodes by UID, for one pool label: profiles that share it share them."""
        return facts_of_all(self.nodes, pool_label, self.slices, self.settings.domain_labels, self.book)

    @cached_property
    def filed(self) -> Mapping[Owner, Filed]:
        """Reports by their owner and node UID."""
        return (self.reports if isinstance(self.reports, Reports) else Reports(self.reports)).filed

    @cached_property
    def reports_of(self) -> Mapping[str, Filed]:
        """Reports by profile UID and node UID, with an empty mapping for each profile that has none."""
        reports = {p.uid: self.filed.get((p.namespace, p.uid, ""), NO_REPORTS) for p in self.profiles}
        orphans = grouped(self.orphans)
        return reports | {uid: Filed({r.node_uid: r for r in there} | reports[uid]) for uid, there in orphans.items()}

    @cached_property
    def orphans(self) -> tuple[tuple[str, ReportView], ...]:
        """Reports that no profile owns, each with the UID of the profile whose name it bears: it is that one's."""
        rows = ((p.uid, self.filed.get((p.namespace, "", p.name), NO_REPORTS)) for p in self.profiles)
        return tuple((uid, report) for uid, there in rows for report in there.values())

    @cached_property
    def jobs_of(self) -> Mapping[str, Mapping[str, JobView]]:
        """Jobs by profile UID and node UID: of two the newest, and none that is gone and in the report, or older."""
        there = sorted(self.jobs, key=lambda job: (not job.is_gone, job.created))
        jobs = grouped((j.profile_uid, (j.node_uid, j)) for j in there if not (j.is_gone and self._is_reported(j)))
        return {uid: dict(by_node) for uid, by_node in jobs.items()}

    def _is_reported(self, job: JobView) -> bool:
        """Whether the newest attempt in its node's report is it, or a newer one."""
        report = self.reports_of.get(job.profile_uid, NO_REPORTS).get(job.node_uid)
        if report is None or report.status is None or report.status.attempt is None:
            return False
        return (report.started or job.created) >= job.created

    @cached_property
    def pods_of(self) -> Mapping[str, PodView]:
        """Pods by the UID of their Job."""
        return {pod.job_uid: pod for pod in self.pods}

    @cached_property
    def beyond(self) -> frozenset[str]:
        """UIDs of profiles that are not served: older ones fill their namespace. Suspended ones are counted apart, and
        none with a running agent of the leader's own is dropped."""
        by_age = sorted(self.profiles, key=lambda p: (p.created, p.key))
        of = grouped(((p.namespace, p.spec.suspend), p.uid) for p in by_age if p.spec is not None)
        agents = self.own_jobs.keys() & {pod.job_uid for pod in self.pods if pod.live and pod.holds_gpus}
        busy = {job.profile_uid for job in self.jobs if job.uid in agents and not job.deleting}
        most = self.settings.profiles_per_namespace
        return frozenset(uid for uids in of.values() for uid in uids[most:] if uid not in busy) if most else frozenset()

    @cached_property
    def waited_for(self) -> Mapping[str, Yield]:
        """Agents that were ended for a pod that still waits, by node UID."""
        return {record.node_uid: record for record in self.yields if record.outcome == "Waiting"}

    @cached_property
    def refused_of(self) -> Mapping[str, Mapping[str, RefusedCreation]]:
        """Refused creations by profile UID and node UID."""
        refusals = grouped((profile, (node, refused)) for (profile, node), refused in self.refusals.items())
        return {uid: dict(by_node) for uid, by_node in refusals.items()}
