"""Agents that give their GPUs to a pod of higher priority, where GPUs come by resource claim.

The scheduler preempts no pod that holds a claim, so that our low priority protects nobody there. An agent is ended for
a pod that has waited a moment, may run on its node, and has a higher priority: once. Where no pod got the GPUs then
(this one waits for something else as well), no other agent is ended for an hour, neither for it nor for another pod of
its owner.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from precision_operator.core.attempts.actions import GiveWay
from precision_operator.core.attempts.attempt import Attempt
from precision_operator.core.attempts.node_state import recorded
from precision_operator.core.observe.observed import JobView, Observed, PodView, Yield, YieldOutcome
from precision_operator.core.observe.tenants import ANOTHERS_POD, shown_pod, words
from precision_operator.core.observe.waiting_pods import WaitingPod
from precision_operator.core.reasons import said

PATIENCE = timedelta(seconds=10)
"""A pod that could run elsewhere is scheduled within a moment: so long one waits before an agent is ended for it."""
END_WITHIN = timedelta(minutes=2)
"""After this an agent's pod that is still there has a kubelet that is gone: its GPUs help nobody."""
HELP_WITHIN = timedelta(seconds=60)
"""How long after an agent's end the pod that it was for may take to be scheduled."""
REST = timedelta(hours=1)
"""How long a pod that was not helped ends no other agent."""
MOST_IN_VAIN = 3
"""Agents of that time that were ended for pods of one namespace which did not get their GPUs; then none is for it."""
_ENDS: Mapping[YieldOutcome, str] = {
    "Waiting": "and its GPUs are kept for it",
    "Helped": "which was scheduled then, or another pod of its owner",
    "Taken": "which still waits: a pod of another owner got the GPUs",
    "Gone": "which is gone",
    "NotHelped": "and that did not help: it still waits. For 60 minutes no agent is ended for it. Its events say what "
    "else it waits for",
}
Fate = Literal["pending", "taken", "bound", "gone"]
"""Of a pod that an agent was ended for; `taken`: it waits, and a pod of another owner has the agent's GPUs."""
Holder = tuple[str, datetime]
"""Owner of a pod that holds claimed GPUs of a node, as a Yield's, and when it was scheduled, to the second."""


def give_way(observed: Observed, attempts: Sequence[Attempt], ending: Collection[str]) -> Iterator[GiveWay]:
    """The agents to be ended for others now; `ending` are UIDs of Jobs that this plan ends anyway.

    Only the leader's own Jobs: what a tenant made by hand may say that it holds any node.
    """
    own_jobs = observed.own_jobs.keys() - ending
    agents = [attempt for attempt in attempts if attempt.job.uid in own_jobs and _holds_gpus(attempt)]
    if not agents:
        return
    yields = list(observed.yields)
    # What failed is done again: an agent is still there that was to be ended.
    waiting = [record for record in yields if record.outcome == "Waiting"]
    yield from (_action(agent, it, observed) for agent in agents for it in waiting if it.job_uid == agent.job.uid)
    for pod in sorted(observed.waiting_pods, key=lambda pod: (-pod.priority, pod.since, pod.key)):
        if observed.now - pod.since < PATIENCE or not may_ask(pod, yields):
            continue
        kept = {record.node_uid for record in yields if record.outcome == "Waiting"}
        fitting = [agent for agent in agents if agent.job.node_uid not in kept and _helps(agent, pod)]
        if fitting:
            youngest = max(fitting, key=lambda agent: (agent.job.created, agent.job.name))
            yields.append(begun(youngest.job, pod, observed.now))
            yield _action(youngest, yields[-1], observed)


def may_ask(pod: WaitingPod, yields: Sequence[Yield]) -> bool:
    """Whether an agent may be ended for the pod.

    Its owner may have one such try at a time, and one more for each that has helped: so a large job gets its nodes
    soon, and one that can't run costs one agent. Of all pods of its namespace, those that are there and those that are
    gone, no more than MOST_IN_VAIN may turn out not to have got the GPUs, those under way included.
    """
    records = [record for record in yields if record.namespace in (pod.namespace, ANOTHERS_POD)]
    outcomes = Counter(record.outcome for record in records if record.owner == pod.owner)
    under_way = any(record.pod_uid == pod.uid and record.outcome == "Waiting" for record in yields)
    if under_way or outcomes["NotHelped"] or outcomes["Waiting"] > outcomes["Helped"]:
        return False
    unhelped = [record for record in records if record.namespace == pod.namespace and record.outcome != "Helped"]
    return len(unhelped) < MOST_IN_VAIN


def fate_of_pending(record: Yield, holders: Sequence[Holder]) -> Fate:
    """What an agent's end has come to while its pod waits, by who holds claimed GPUs of the agent's node since then.

    Of a Job's pods the scheduler takes the first in its own queue: each is as good as the one that was recorded.
    """
    owners = {owner for owner, at in holders if at >= record.at.replace(microsecond=0)}
    return "bound" if record.owner in owners else "taken" if owners else "pending"


def begun(job: JobView, pod: WaitingPod, at: datetime) -> Yield:
    """The record of an agent's end for a pod."""
    return Yield(job.profile_uid, job.node_name, job.node_uid, job.uid, pod.key, pod.uid, pod.owner, pod.priority, at)


def advanced(
    yields: Sequence[Yield], fates: Mapping[str, Fate], pods: Sequence[PodView], now: datetime
) -> tuple[Yield, ...]:
    """The records as they are now; those that ended more than an hour ago are left out.

    `fates` says by UID what has become of the pods; one that is not in it has not been looked at.
    """
    there = {pod.job_uid for pod in pods if pod.live}
    moved = (_moved(record, fates.get(record.pod_uid), record.job_uid in there, now) for record in yields)
    return tuple(record for record in moved if record.ended is None or abs(now - record.ended) < REST)


def _moved(record: Yield, fate: Fate | None, agent_is_there: bool, now: datetime) -> Yield:
    if record.outcome != "Waiting":
        return record
    if fate in ("bound", "gone"):
        return replace(record, outcome="Helped" if fate == "bound" else "Gone", ended=now)
    if agent_is_there and abs(now - record.at) < END_WITHIN:
        return record
    if record.released is None:
        return replace(record, released=now)
    if abs(now - record.released) < HELP_WITHIN or fate is None:
        return record
    return replace(record, outcome="Taken" if fate == "taken" else "NotHelped", ended=now)


def told(record: Yield) -> str:
    """What came of an agent's end for a pod, in words."""
    return f"its agent was ended for {words(record.pod)} (priority {record.priority}), {_ENDS[record.outcome]}"


def _holds_gpus(attempt: Attempt) -> bool:
    """Whether its agent has GPUs to give: one without a node has none."""
    job, pod = attempt.job, attempt.pod
    if pod is None or attempt.facts is None or job.deleting or not job.live or recorded(job, attempt.report):
        return False
    return pod.claims and pod.holds_gpus and pod.live and pod.deleting_since is None and pod.scheduled_at is not None


def _helps(agent: Attempt, pod: WaitingPod) -> bool:
    """Whether the pod may have the agent's GPUs."""
    assert agent.pod is not None
    assert agent.facts is not None
    return agent.pod.priority < pod.priority and pod.may_run_on(agent.facts)


def _action(agent: Attempt, record: Yield, observed: Observed) -> GiveWay:
    pod = words(shown_pod(record.pod, agent.job.namespace, observed))
    yielded = said("Yielded", pod=pod, priority=record.priority)
    return GiveWay(agent.job, agent.report, "disrupted", yielded, agent.keeping, record=record)
