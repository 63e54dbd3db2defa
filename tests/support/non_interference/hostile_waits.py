"""A tenant whose pods wait for claimed GPUs and come and go as it likes: how many agents are ended for them in vain."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from precision_operator.core.attempts.actions import GiveWay
from precision_operator.core.attempts.yielding import Fate, advanced
from precision_operator.core.observe.observed import JobView, Observed, Yield
from precision_operator.core.observe.waiting_pods import WaitingPod
from precision_operator.core.plan import plan
from tests.support.node_objects import node_object, resource_slice
from tests.support.non_interference.hostile_objects import TENANT
from tests.support.world import MINUTE, NOW, job, observed, pod, profile

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
FLEET = {f"uid-{name}": node_object({}, name=name, gpus=None) for name in NODES}
SLICES = tuple(resource_slice("NVIDIA H100 80GB HBM3", node=name, count=8) for name in NODES)
PROFILE = profile(rollout={"maxConcurrent": 10})
HOUR = timedelta(hours=1)
PAUSES = (5, 20, 70)
"""Seconds between two looks."""


@dataclass
class Waits:
    """Agents of another namespace on all nodes, each made again a moment after its end, and the tenant's pods."""

    rng: Random
    now: datetime = NOW
    pods: dict[str, WaitingPod] = field(default_factory=dict)
    """By UID."""
    bound: set[str] = field(default_factory=set)
    jobs: dict[str, JobView] = field(default_factory=dict)
    """By node."""
    yields: tuple[Yield, ...] = ()
    ended: dict[str, Yield] = field(default_factory=dict)
    """All records as they are or were at last, by Job UID."""
    serial: int = 0

    def step(self, lasting: float) -> None:
        """The tenant's turn, then the scheduler's, then the operator's; `lasting` is how likely a pod is to stay."""
        self._come_and_go(lasting)
        fates = {record.pod_uid: self._fate(record) for record in self.yields}
        self.yields = advanced(self.yields, fates, self._seen().pods, self.now)
        self.ended |= {record.job_uid: record for record in self.yields}
        for action in plan(self._seen()).actions:
            if isinstance(action, GiveWay) and action.record is not None:
                self.yields = (*(r for r in self.yields if r.job_uid != action.job.uid), action.record)
                self.ended[action.job.uid] = action.record
                del self.jobs[action.job.node_name]
        self.now += timedelta(seconds=self.rng.choice(PAUSES))

    def _come_and_go(self, lasting: float) -> None:
        rng = self.rng
        self.pods = {uid: pod for uid, pod in self.pods.items() if rng.random() < lasting}
        while len(self.pods) < 4:
            self.serial += 1
            uid = f"uid-{self.serial}"
            owner = rng.choice([uid, "uid-owner-1", "uid-owner-2"])
            since = self.now - rng.choice([0, 1]) * MINUTE
            self.pods[uid] = WaitingPod(f"{TENANT}/w{self.serial}", uid, owner, 1000, rng.choice([0, 1, 8]), since)
        kept = {record.node for record in self.yields if record.outcome == "Waiting"}
        for node in NODES:
            if node not in self.jobs and node not in kept and rng.random() < 0.5:
                self.serial += 1
                self.jobs[node] = replace(job(node, created=self.now), uid=f"uid-{self.serial}")

    def _fate(self, record: Yield) -> Fate:
        if record.pod_uid in self.bound or (record.pod_uid in self.pods and self.rng.random() < 0.02):
            self.bound.add(record.pod_uid)
            self.pods.pop(record.pod_uid, None)
            return "bound"
        return "pending" if record.pod_uid in self.pods else "gone"

    def _seen(self) -> Observed:
        agents = {"claims": True, "claims_created": True, "priority": -10}
        return observed(
            [PROFILE],
            FLEET,
            now=self.now,
            jobs=tuple(self.jobs.values()),
            pods=tuple(pod(j, scheduled_at=j.created, started_at=j.created, **agents) for j in self.jobs.values()),
            slices=SLICES,
            waiting_pods=tuple(self.pods.values()),
            yields=self.yields,
        )


def most_in_vain(seed: str, hours: float = 1.5) -> int:
    """Most agents within one hour that were ended for the tenant's pods, and whose GPUs these did not take."""
    rng = Random(seed)
    waits, lasting = Waits(rng), rng.choice([0.3, 0.8, 1.0])
    while waits.now < NOW + hours * HOUR:
        waits.step(lasting)
    vain = sorted(record.at for record in waits.ended.values() if record.outcome not in ("Helped", "Waiting"))
    return max((sum(at <= other < at + HOUR for other in vain) for at in vain), default=0)
