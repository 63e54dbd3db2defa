"""A cluster that lives in memory: it keeps what plans write, and its Jobs, pods and nodes go through what real ones do.

Nothing is remembered outside of the objects, so that an operator can be killed after any write: the next plan is made
from what `observe` shows. Watches never lag here: our own writes enter the operator's cache with their answer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from precision_api.exchange.message import Detail, Summary
from precision_api.exchange.result import Software
from precision_api.exchange.summary import compact
from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts import actions, manifest
from precision_operator.core.attempts.refusal import RULES, Answer, Refusals, accepted, noted, standing
from precision_operator.core.observe import observed
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.views import job_view, report_view
from precision_operator.core.plan import Plan, plan
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult, summary_of
from tests.support import auditor, world
from tests.support.auditor import Begun
from tests.support.world import NOW, SETTINGS

End = Literal["succeeded", "crashed", "refused", "out of memory", "disrupted"]
EXITS: Mapping[End, tuple[int, str]] = {
    "succeeded": (0, "Completed"),
    "crashed": (1, "Error"),
    "refused": (12, "Error"),
    "out of memory": (137, "OOMKilled"),
    "disrupted": (143, "Error"),
}
"""Exit code and reason of a container that ends like this."""


@dataclass
class SimulatedCluster:
    """All objects that matter, and the rules that no cluster breaks (checked as they happen)."""

    settings: observed.Settings = SETTINGS
    now: datetime = NOW
    latest: datetime = NOW
    """The furthest that the clock has ever been."""
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By UID."""
    profiles: dict[str, observed.ProfileView] = field(default_factory=dict)
    """By UID."""
    jobs: dict[str, observed.JobView] = field(default_factory=dict)
    pods: dict[str, observed.PodView] = field(default_factory=dict)
    """By the UID of their Job, which may be gone already."""
    reports: dict[str, observed.ReportView] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    """Somebody else's pod that holds the GPUs, by node name."""
    results: dict[tuple[str, str], str] = field(default_factory=dict)
    """The newest run with a result that was written, by profile UID and node UID: must never be lost again."""
    away: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Nodes that have left and may come back as the same objects, by UID."""
    unpullable: set[str] = field(default_factory=set)
    """UIDs of Jobs whose image is nowhere to be had."""
    unschedulable: set[str] = field(default_factory=set)
    """Names of nodes that the scheduler finds no room on, though nobody holds their GPUs."""
    dying: set[str] = field(default_factory=set)
    """Names of nodes whose kubelet goes silent as soon as an agent runs there."""
    silent: dict[str, datetime] = field(default_factory=dict)
    """Since when nodes are silent, by name."""
    refusing: dict[str, str] = field(default_factory=dict)
    """What the API server says to the creation of a Job for a node, by its UID."""
    refusals: Refusals = field(default_factory=dict)
    """What the operator remembers of that."""
    limits: dict[str, int] = field(default_factory=dict)
    """Enforced watts of a node's GPUs, by node UID, as an agent there would find them."""
    begun: list[Begun] = field(default_factory=list)
    """Starts that the cluster can still tell of."""
    starts: Counter[str] = field(default_factory=Counter)
    """How many agents each profile has started, by its UID."""
    serial: int = 0
    writes: int = 0
    """How many writes the operator has done."""

    def uid(self, word: str) -> str:
        """A UID that was never used before."""
        self.serial += 1
        return f"{word}-{self.serial}"

    # What the operator sees.

    def observe(self, looked_at: Sequence[str] = ()) -> observed.Observed:
        """The world now; of the nodes in `looked_at` also who holds their GPUs."""
        seen = observed.Observed(
            own_jobs={job.uid: job.node_name for job in self.jobs.values()},
            now=self.now,
            settings=self.settings,
            profiles=tuple(self.profiles.values()),
            nodes=dict(self.nodes),
            jobs=tuple(self.jobs.values()),
            pods=tuple(self.pods.values()),
            reports=tuple(self.reports.values()),
            occupancy={name: observed.Occupancy(holder, 8) for name in looked_at for holder in [self.holder(name)]},
        )
        self.refusals = standing(self.refusals, seen)
        return replace(seen, refusals=self.refusals)

    def holder(self, node: str) -> str | None:
        """Who holds the GPUs of a node: somebody else's pod, or an agent that is bound to it."""
        ours = (pod.name for pod in self.pods.values() if pod.phase == "Running" and pod.node_name == node)
        return self.holders.get(node) or next(ours, None)

    def decide(self) -> Plan:
        """A plan whose starts are all on nodes that were looked at."""
        looked_at: list[str] = []
        while True:
            decided = plan(self.observe(looked_at))
            if not decided.nodes_to_probe:
                return decided
            assert not set(decided.nodes_to_probe) & set(looked_at), "a node is looked at twice for one plan"
            looked_at += decided.nodes_to_probe

    # What the operator writes.

    def reconcile(self, writes: int | None = None) -> Plan:
        """One pass: decide, then do what ends before what begins. Killed after `writes` writes."""
        decided = self.decide()
        left = writes
        for _ in self._written(decided):
            self.writes += 1
            if left is not None:
                left -= 1
                if left <= 0:
                    break
        return decided

    def _written(self, decided: Plan) -> Iterator[None]:
        for action in sorted(decided.actions, key=lambda action: isinstance(action, actions.Start)):
            yield from self._act(action, decided)

    def _act(self, action: actions.Action, decided: Plan) -> Iterator[None]:
        """One write at a time; a write that the API server would refuse is left out, to be planned anew."""
        match action:
            case actions.Start():
                yield from self._start(action, decided)
            case actions.Collect():
                found = summary_of(action.job, action.pod, action.drained)
                yield from self._record(action.job, action.report, found, action.pool, action.keeping)
            case actions.Close():
                problem = NoResult(action.said, action.outcome)
                yield from self._record(action.job, action.report, problem, "", action.keeping)
            case actions.Withdraw():
                self._delete_job(action.job.name, action.job.uid)
                key = (action.job.profile_uid, action.job.node_uid)
                self._refused(key, Answer(action.job.creation_problem), "pod", action.mark)
                yield
            case actions.Adopt():
                there = self.reports[action.report.name]
                self.reports[action.report.name] = replace(there, profile_uid=action.profile.uid)
                yield
            case actions.Drop(kind="Job"):
                dropped = self.jobs.get(action.name)
                if dropped is not None and dropped.uid == action.uid and dropped.suspended:
                    self.forget(action.name)  # Kueue never let it begin: nothing has drawn power
                self._delete_job(action.name, action.uid)
                yield
            case actions.Drop():
                if action.name in self.reports and self.reports[action.name].uid == action.uid:
                    gone = self.reports.pop(action.name)
                    assert gone.node_uid not in self.nodes, "the report of a node that is there is deleted"
                    self.results.pop((gone.profile_uid, gone.node_uid), None)
                yield
            case actions.MarkStale() | actions.MarkFresh():
                self._write_status(action.report, ingest.marked_status(action, self.now))
                yield

    def _start(self, start: actions.Start, decided: Plan) -> Iterator[None]:
        if start.report is not None:
            if not self._create_report(dict(start.report)):
                return
            yield
        name = start.job["metadata"]["name"]
        if name in self.jobs:
            assert self.jobs[name].profile_uid == start.profile.uid
            return
        node_states = next(p.node_states for p in decided.profiles if p.profile.uid == start.profile.uid)
        auditor.check(self, start, node_states)
        key = (start.profile.uid, start.facts.uid)
        if start.facts.uid in self.refusing:
            self._refused(key, Answer(self.refusing[start.facts.uid], 403, "Forbidden"), "Job", start.mark)
            return
        stamped = {"uid": self.uid("job"), "creationTimestamp": format_time(self.now)}
        view = job_view({**start.job, "metadata": {**start.job["metadata"], **stamped}})
        assert view is not None
        self.jobs[name] = view
        self.refusals = accepted(self.refusals, key, "Job", self._agents(key[0]))
        self.begun.append(Begun(self.now, view.profile_uid, view.node_uid, name))
        self.starts[view.profile_uid] += 1
        yield

    def _refused(self, key: tuple[str, str], answer: Answer, stage: Literal["Job", "pod"], mark: str) -> None:
        known = {each: refused for each, refused in self.refusals.items() if each != key}
        refused = noted(self.refusals, key, answer, stage, mark, self._agents(key[0]), self.now)
        self.refusals = {**known, key: refused}

    def _agents(self, profile_uid: str) -> int:
        return sum(job.profile_uid == profile_uid for job in self.jobs.values())

    def _create_report(self, body: dict[str, Any]) -> bool:
        view = report_view({**body, "metadata": {**body["metadata"], "uid": self.uid("report")}})
        assert view is not None
        return self.reports.setdefault(view.name, view).profile_uid == view.profile_uid

    def _record(
        self,
        job: observed.JobView,
        report: observed.ReportView | None,
        outcome: Summary | NoResult,
        pool: str,
        keeping: actions.Keeping,
    ) -> Iterator[None]:
        if report is None:
            body = manifest.report(job.namespace, job.profile, job.profile_uid, job.node_name, job.node_uid)
            if not self._create_report(body):
                return
            report = self.reports[body["metadata"]["name"]]
            yield
        if isinstance(outcome, NoResult):
            status = ingest.failed_status(outcome, job, report, self.now, keeping)
        else:
            good = ingest.finding(outcome, None, "no log")
            status = ingest.read_status(good, job, report, pool, self.now, keeping)
            if status.hardware is not None:
                power = {"limit_watts": self.limits.get(job.node_uid)}
                status = status.model_copy(update={"hardware": status.hardware.model_copy(update=power)})
        self._write_status(report, status)
        if isinstance(outcome, Summary):
            self.results[job.profile_uid, job.node_uid] = job.run
        yield
        self._delete_job(job.name, job.uid)
        yield

    def _write_status(self, report: observed.ReportView, status: ReportStatus) -> None:
        """Written through JSON, as it is stored; nothing happens to a report that is gone."""
        there = self.reports.get(report.name)
        if there is not None and there.uid == report.uid:
            stored = ReportStatus.model_validate(ingest.status_json(status))
            self.reports[report.name] = replace(there, status=stored)

    def _delete_job(self, name: str, uid: str) -> None:
        if name in self.jobs and self.jobs[name].uid == uid:
            del self.jobs[name]

    # What the rest of the cluster does.

    def create_pods(self) -> None:
        """The Job controller."""
        for job in self.jobs.values():
            if job.finished is None and not job.suspended and job.uid not in self.pods:
                self.pods[job.uid] = world.pod(job, "Pending", created=self.now, node_name=job.node_name)

    def schedule(self) -> None:
        """The scheduler: a pending pod is bound to the node of that name if its GPUs are free, and runs."""
        for name, pod in self.pods.items():
            if pod.job_uid in self.unpullable and pod.phase == "Pending":
                self.pods[name] = replace(pod, waiting_reason="ImagePullBackOff", waiting_message="not found")
                continue
            node = next((n for n in self.nodes.values() if n["metadata"]["name"] == pod.node_name), None)
            open_ = (
                node is not None
                and not node["spec"]["unschedulable"]
                and pod.node_name not in self.unschedulable | self.silent.keys()
            )
            if pod.phase == "Pending" and open_ and self.holder(pod.node_name) is None:
                since = {"scheduled_at": self.now, "started_at": self.now}
                self.pods[name] = replace(pod, phase="Running", unschedulable="", **since)
                if pod.node_name in self.dying:
                    self.fall_silent(pod.node_name)
            elif pod.phase == "Pending":
                self.pods[name] = replace(pod, unschedulable="0/1 nodes are available")

    def fall_silent(self, name: str) -> None:
        """The kubelet of a node is heard of no more."""
        self.silent[name] = self.now
        self._says(name, "Unknown")

    def speak_again(self, name: str) -> None:
        """It is heard of again, and ends the pods that were deleted meanwhile; their Jobs fail."""
        del self.silent[name]
        self._says(name, "True")
        here = {uid: p for uid, p in self.pods.items() if p.live and p.node_name == name and p.deleting_since}
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid not in here}
        for pod in here.values():
            job = self.jobs.get(pod.job)
            if job is not None and job.uid == pod.job_uid and job.finished is None:
                self.jobs[pod.job] = replace(job, finished="Failed", finished_at=self.now)

    def _says(self, name: str, ready: str) -> None:
        for uid, node in self.nodes.items():
            if node["metadata"]["name"] == name:
                condition = {"type": "Ready", "status": ready, "reason": "KubeletReady"}
                self.nodes[uid] = {**node, "status": {**node["status"], "conditions": [condition]}}

    def look_after_silent_nodes(self) -> None:
        """The node controller deletes the pods of a node that was silent for 5 min; after 20 min the node is back.

        Until then nobody ends those pods, and their Jobs are given up and not over.
        """
        for name, since in list(self.silent.items()):
            gone_by = since + timedelta(minutes=5, seconds=30)
            for uid, pod in self.pods.items():
                if pod.live and pod.node_name == name and self.now >= gone_by - timedelta(seconds=30):
                    self.pods[uid] = replace(pod, deleting_since=gone_by)
            if abs(self.now - since) >= timedelta(minutes=20):
                self.speak_again(name)

    def running(self) -> list[str]:
        """Names of the Jobs whose agents run."""
        heard = (job for job in self.jobs.values() if job.node_name not in self.silent)
        return sorted(job.name for job in heard if self._phase(job) == "Running")

    def _phase(self, job: observed.JobView) -> str:
        pod = self.pods.get(job.uid)
        return pod.phase if pod else ""

    def end(self, name: str, how: End) -> None:
        """The agent of the Job `name` ends, and with it its Job."""
        job = self.jobs[name]
        pod = self.pods[job.uid]
        assert pod.phase == "Running"
        message = compact(summary(job)).decode() if how == "succeeded" else ""
        code, reason = EXITS[how]
        phase = "Succeeded" if how == "succeeded" else "Failed"
        disruption = "evicted" if how == "disrupted" else ""
        end = observed.Termination(code, reason, message)
        self.pods[job.uid] = replace(pod, phase=phase, termination=end, disruption=disruption)
        finished: Literal["Complete", "Failed"] = "Complete" if code == 0 else "Failed"
        self.jobs[name] = replace(job, finished=finished, finished_at=self.now)

    def queued(self) -> list[str]:
        """Names of the Jobs that Kueue holds."""
        return sorted(job.name for job in self.jobs.values() if job.suspended)

    def admit(self, name: str) -> None:
        """Kueue lets a Job go."""
        self.jobs[name] = replace(self.jobs[name], suspended=False, active_since=self.now)

    def take_back(self, name: str) -> None:
        """Kueue takes the place of a Job away: its pod goes, the Job stays."""
        self.jobs[name] = replace(self.jobs[name], suspended=True, active_since=None)
        self.pods.pop(self.jobs[name].uid, None)

    def forget(self, name: str) -> None:
        """A Job is deleted, and nothing tells of its start any more."""
        del self.jobs[name]
        self.begun = [start for start in self.begun if start.job != name]

    def collect_garbage(self) -> None:
        """The garbage collector, pod GC and the Job controller: what has lost its owner or its node goes."""
        self.reports = {n: r for n, r in self.reports.items() if r.profile_uid in self.profiles}
        self.jobs = {n: j for n, j in self.jobs.items() if j.profile_uid in self.profiles}
        self.begun = [start for start in self.begun if start.profile_uid in self.profiles]
        kept = {job.uid for job in self.jobs.values()}
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid in kept or pod.node_name in self.silent}
        names = {node["metadata"]["name"] for node in self.nodes.values()}
        for uid, pod in self.pods.items():
            if pod.phase == "Running" and pod.node_name not in names:
                self.pods[uid] = replace(pod, phase="Failed", disruption="its node is gone")
                if pod.job in self.jobs:  # else it went with its profile, and only a silent kubelet keeps the pod
                    self.jobs[pod.job] = replace(self.jobs[pod.job], finished="Failed", finished_at=self.now)

    def pass_time(self, by: timedelta) -> None:
        """Nothing happens for a while; a clock that jumps back passes a negative time."""
        self.now += by
        self.latest = max(self.latest, self.now)

    def settle(self) -> None:
        """Everything that can come to its end does: agents succeed, the operator does its work, until nothing moves."""
        for _ in range(40 + 12 * (len(self.nodes) + 1) * (len(self.profiles) + 1)):
            agents = self.jobs or [pod for pod in self.pods.values() if pod.live]
            decided = self.reconcile()
            resting = {s.reason for p in decided.profiles for s in p.node_states} & {
                "BackingOff",
                "Retrying",
                "Ramping",
                *(RULES if not self.refusing else ()),
            }
            if not (agents or decided.actions or resting or self.silent):
                self.collect_garbage()
                return
            for name in self.queued():
                self.admit(name)
            self.create_pods()
            self.schedule()
            self.look_after_silent_nodes()
            for name in self.running():
                self.end(name, "succeeded")
            self.collect_garbage()
            self.pass_time(timedelta(minutes=1) if agents or decided.actions else timedelta(hours=7))
        raise AssertionError(f"it does not come to rest: {self.jobs} {self.pods} {decided}")


def summary(job: observed.JobView) -> Summary:
    """A good answer to the Job's request."""
    return Summary(
        run=job.run,
        request_hash=job.request_hash,
        node=job.node_name[:253],
        backend="replay",
        provenance="replayed",
        product="H100",
        gpus=8,
        software=Software(agent="0.1.0", stack_hash="0123456789abcdef"),
        finished_at="2026-11-21T09:00:00Z",
        duration_seconds=60.0,
        workload_hash="0123456789abcdef",
        recipes=(),
        detail=Detail(lines=1, bytes=1, sha256="0" * 64),
    )
