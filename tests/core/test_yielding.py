"""Agents give claimed GPUs to pods of higher priority, once, and only where that can help."""

from collections.abc import Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from precision_operator.core.attempts.actions import GiveWay, Start
from precision_operator.core.attempts.yielding import (
    HELP_WITHIN,
    MOST_IN_VAIN,
    PATIENCE,
    REST,
    Fate,
    advanced,
    begun,
    fate_of_pending,
    may_ask,
)
from precision_operator.core.observe.nodes import NodeFacts, facts_of_all
from precision_operator.core.observe.observed import JobView, Observed, PodView, ReportView, Yield
from precision_operator.core.observe.tenants import ANOTHERS_POD
from precision_operator.core.observe.waiting_pods import WaitingPod
from precision_operator.core.plan import plan
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult
from tests.support.examples import examples
from tests.support.node_objects import node_object, resource_slice
from tests.support.world import IDLE, MINUTE, NOW, SETTINGS, job, measured, observed, pod, profile, report

H100 = "NVIDIA H100 80GB HBM3"
LONG_AGO = NOW - MINUTE


def waiting(name: str = "train-0", **changes: object) -> WaitingPod:
    """A pod that has waited for eight GPUs for a minute."""
    fields: dict[str, object] = {"owner": f"uid-owner-of-{name}", "priority": 1000, "gpus": 8, "since": LONG_AGO}
    return WaitingPod(key=f"team/{name}", uid=f"uid-{name}", **(fields | changes))  # type: ignore[arg-type]


def claiming(of: JobView, **changes: object) -> PodView:
    """An agent's pod that holds the GPUs of its node by claim."""
    fields: dict[str, object] = {"claims": True, "claims_created": True, "scheduled_at": NOW, "started_at": NOW}
    return pod(of, **(fields | {"priority": -1000} | changes))


def fleet(*names: str) -> dict[str, object]:
    """Nodes whose eight GPUs come by claim."""
    return {f"uid-{name}": node_object({}, name=name, gpus=None) for name in names}


def running(*names: str, pods: tuple[WaitingPod, ...] = (), **changes: object) -> Observed:
    """Agents that run on these nodes, the last one the youngest, and pods that wait."""
    jobs = tuple(job(name, created=LONG_AGO + timedelta(seconds=n)) for n, name in enumerate(names))
    fields: dict[str, object] = {
        "jobs": jobs,
        "pods": tuple(map(claiming, jobs)),
        "slices": tuple(resource_slice(H100, node=name) for name in names),
        "waiting_pods": pods,
    }
    return observed([profile(rollout={"maxConcurrent": 10})], fleet(*names), **(fields | changes))  # type: ignore[arg-type]


def ended(seen: Observed) -> list[str]:
    """Nodes whose agents are ended for others now."""
    return [action.job.node_name for action in plan(seen).actions if isinstance(action, GiveWay)]


def test_the_youngest_agent_on_a_node_of_the_pod_is_ended_and_no_tenants_claim_of_one() -> None:
    assert ended(running("n1", "n2", pods=(waiting(),))) == ["n2"]
    assert ended(running("n1", "n2", pods=(waiting(terms=((("metadata.name", "In", ("n1",)),),)),))) == ["n1"]
    assert ended(running("n1", "n2", pods=(waiting(),), own_jobs={job("n1").uid: "n1"})) == ["n1"]
    assert ended(running("n2", pods=(waiting(),), own_jobs={})) == []


def test_its_attempt_is_a_disruption_that_costs_no_retry_and_names_the_pod() -> None:
    (action,) = (a for a in plan(running("n1", pods=(waiting(),))).actions if isinstance(a, GiveWay))
    assert (action.outcome, action.reason) == ("disrupted", "Yielded")
    assert "a pod of another namespace of priority 1000" in action.message
    seen = running("n1", pods=(waiting(),), settings=replace(SETTINGS, show_other_namespaces=True))
    assert "pod team/train-0 of priority 1000" in next(a for a in plan(seen).actions if isinstance(a, GiveWay)).message
    problem = NoResult(action.said, action.outcome)
    status = ingest.failed_status(problem, action.job, report(), NOW, action.keeping)
    assert (status.attempt.failures, status.attempt.disruptions, status.attempt.node_losses) == (0, 1, 0)


@pytest.mark.parametrize(
    "seen",
    [
        running("n1", pods=(waiting(priority=-1000),)),
        running("n1", pods=(waiting(since=NOW - PATIENCE + timedelta(seconds=1)),)),
        running("n1", pods=(waiting(gpus=9),)),
        running("n1", pods=(waiting(node_selector=(("zone", "b"),)),)),
        running("n1", pods=(waiting(terms=((("metadata.name", "In", ("n2",)),),)),)),
    ],
    ids=["no higher priority", "just came", "more GPUs than the node has", "another zone", "another node"],
)
def test_no_agent_is_ended_for_a_pod_with(seen: Observed) -> None:
    assert ended(seen) == []


def test_only_agents_with_claimed_gpus_are_ended() -> None:
    agent = job("n1")
    unbound = claiming(agent, scheduled_at=None, phase="Pending")
    for held in (claiming(agent, claims=False), claiming(agent, holds_gpus=False), unbound, pod(agent, "Succeeded")):
        assert ended(replace(running("n1", pods=(waiting(),)), jobs=(agent,), pods=(held,))) == []
    agent = job("n1")
    seen = observed([profile()], jobs=(agent,), pods=(pod(agent, scheduled_at=NOW),), waiting_pods=(waiting(),))
    assert ended(seen) == []


def record(of: WaitingPod, node: str = "n9", **changes: object) -> Yield:
    """An agent on `node` was ended for the pod a moment ago."""
    return replace(begun(job(node), of, NOW - timedelta(seconds=5)), **changes)  # type: ignore[arg-type]


def test_one_agent_at_a_time_is_ended_for_an_owner_and_one_more_for_each_that_helped() -> None:
    first, second = waiting("a", owner="o"), waiting("b", owner="o")
    assert len(ended(running("n1", "n2", pods=(first, second)))) == 1
    assert not may_ask(second, [record(first)])
    assert may_ask(second, [record(first, outcome="Helped")])
    assert may_ask(waiting("c", owner="o"), [record(first, outcome="Helped"), record(second)])
    assert not may_ask(second, [record(first, outcome="Helped"), record(second)]), "its GPUs are on their way"
    assert not may_ask(waiting("c", owner="o"), [record(first, outcome="NotHelped"), record(second, outcome="Helped")])


def test_a_pod_of_another_namespace_that_names_the_same_owner_uses_up_none_of_its_tries() -> None:
    liar = replace(waiting("v", owner="o"), key="mallory/v")
    for outcome in ("Waiting", "NotHelped"):
        assert may_ask(waiting("b", owner="o"), [record(liar, outcome=outcome)])
    unnamed = replace(record(liar, outcome="NotHelped"), pod=ANOTHERS_POD)
    assert not may_ask(waiting("b", owner="o"), [unnamed]), "of another leader's status, which names no pod"


def test_two_owners_get_an_agent_each_and_a_failed_end_is_done_again() -> None:
    low, high = waiting("low", priority=1), waiting("high", priority=2)
    seen = running("n1", "n2", pods=(low, high))
    actions = [action for action in plan(seen).actions if isinstance(action, GiveWay)]
    assert [(a.job.node_name, a.record.pod) for a in actions if a.record] == [("n2", "team/high"), ("n1", "team/low")]
    pod_there = waiting()
    seen = running("n1", pods=(pod_there,), yields=(record(pod_there, "n1"),))
    assert ended(replace(seen, yields=(replace(seen.yields[0], job_uid=seen.jobs[0].uid),))) == ["n1"]


def test_a_namespace_whose_pods_were_ended_for_in_vain_ends_no_more_agents() -> None:
    vain = [record(waiting(f"v{n}"), outcome="NotHelped") for n in range(MOST_IN_VAIN)]
    assert may_ask(waiting(), vain[1:])
    assert not may_ask(waiting(), vain)
    assert may_ask(replace(waiting(), key="other/train-0"), vain)
    unnamed = [replace(each, pod=ANOTHERS_POD) for each in vain]
    assert may_ask(waiting(), unnamed), "of another leader's status: it would hold up whom it was not for"


def test_of_one_namespace_three_agents_at_a_time_may_turn_out_to_have_been_ended_in_vain() -> None:
    names = [f"n{number}" for number in range(6)]
    assert len(ended(running(*names, pods=tuple(waiting(f"w{number}") for number in range(6))))) == MOST_IN_VAIN
    trying = [record(waiting(f"t{number}")) for number in range(MOST_IN_VAIN)]
    assert not may_ask(waiting(), trying)
    assert may_ask(waiting(), [*trying[1:], *(record(waiting(f"h{n}"), outcome="Helped") for n in range(9))])
    for outcome in ("NotHelped", "Gone", "Taken"):
        assert not may_ask(waiting(), [record(waiting("v"), outcome=outcome), *trying[1:]]), outcome
    assert may_ask(replace(waiting(), key="other/train-0"), trying)


def test_who_got_the_gpus_of_an_agent_decides_what_its_end_came_to() -> None:
    wait = record(waiting("a", owner="o"))
    before, after = wait.at - timedelta(seconds=2), wait.at.replace(microsecond=0)
    assert fate_of_pending(wait, []) == "pending"
    assert fate_of_pending(wait, [("o", before), ("p", before)]) == "pending", "they had GPUs all along"
    assert fate_of_pending(wait, [("p", after)]) == "taken"
    assert fate_of_pending(wait, [("p", after), ("o", after)]) == "bound"


def test_the_gpus_are_kept_for_the_pod_until_its_fate_is_known() -> None:
    pending = waiting()
    idle = replace(running("n1"), jobs=(), pods=(), occupancy={"n1": IDLE})
    kept = replace(idle, yields=(record(pending, "n1"),))
    (state,) = plan(kept).profiles[0].node_states
    assert (state.reason, state.state) == ("KeptForPod", "waiting")
    assert "for a pod of another namespace (priority 1000)" in state.message
    assert not [action for action in plan(kept).actions if isinstance(action, Start)]
    for outcome in ("Helped", "NotHelped", "Gone"):
        over = replace(idle, yields=(record(pending, "n1", outcome=outcome, ended=NOW),))
        assert [action for action in plan(over).actions if isinstance(action, Start)]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_what_came_of_it_is_known_within_a_minute_of_the_agents_end_and_forgotten_after_an_hour() -> None:
    one, agent = record(waiting(), "n1"), job("n1")
    there = (claiming(agent),)
    one = replace(one, job_uid=agent.uid)
    pending: dict[str, Fate] = {one.pod_uid: "pending"}
    assert advanced([one], pending, there, at(60)) == (one,), "the agent has not ended: its kubelet takes its time"
    (lost,) = advanced([one], pending, there, at(120))
    assert lost.released == at(120), "nobody is there to end it"
    (released,) = advanced([one], pending, (), at(0))
    assert (released.outcome, released.released) == ("Waiting", at(0))
    within = HELP_WITHIN.total_seconds()
    assert advanced([released], pending, (), at(within - 1)) == (released,)
    (vain,) = advanced([released], pending, (), at(within))
    assert (vain.outcome, vain.ended) == ("NotHelped", at(within))
    assert advanced([released], {}, (), at(within)) == (released,), "nobody has looked at the pod"
    taken: dict[str, Fate] = {one.pod_uid: "taken"}
    assert advanced([released], taken, (), at(within - 1)) == (released,), "its own turn may come"
    (elsewhere,) = advanced([released], taken, (), at(within))
    assert (elsewhere.outcome, may_ask(waiting(), [elsewhere])) == ("Taken", True)
    for fate, outcome in (("bound", "Helped"), ("gone", "Gone")):
        (over,) = advanced([released], {one.pod_uid: fate}, (), at(3))  # type: ignore[dict-item]
        assert (over.outcome, over.ended) == (outcome, at(3))
    assert advanced([vain], {}, (), at(within) + REST - timedelta(seconds=1)) == (vain,)
    assert advanced([vain], {}, (), at(within) + REST) == ()


STEP = timedelta(seconds=20)
MEASURING = timedelta(minutes=6)
NODES = ("n1", "n2", "n3")


@dataclass(frozen=True)
class Request:
    """A pod that comes at a time: what it asks for, and whether it waits for something else as well, for ever.

    Drawn is a Job: `pods` of these, each of a name of its own.
    """

    name: str
    owner: str
    pods: int
    comes: timedelta
    priority: int
    nodes: tuple[str, ...]
    hopeless: bool
    runs: timedelta


REQUESTS = st.builds(
    Request,
    name=st.just(""),
    owner=st.just(""),
    pods=st.sampled_from([1, 1, 3]),
    comes=st.integers(0, 40).map(lambda minutes: timedelta(minutes=minutes)),
    priority=st.sampled_from([-2000, 0, 1000]),
    nodes=st.sets(st.sampled_from([*NODES, "elsewhere"]), min_size=1).map(lambda names: tuple(sorted(names))),
    hopeless=st.booleans(),
    runs=st.integers(1, 10).map(lambda minutes: timedelta(minutes=minutes)),
)


@dataclass
class Cluster:
    """Three nodes whose GPUs come by claim, one of somebody else, agents, and a scheduler without preemption."""

    requests: list[Request]
    now: datetime = NOW
    jobs: dict[str, JobView] = field(default_factory=dict)
    reports: dict[str, ReportView] = field(default_factory=dict)
    holds: dict[str, tuple[Request, datetime]] = field(default_factory=dict)
    """Who holds a node's GPUs until when, by node."""
    placed: dict[str, datetime] = field(default_factory=dict)
    first_seen: dict[str, datetime] = field(default_factory=dict)
    yields: tuple[Yield, ...] = ()
    ended: dict[str, Yield] = field(default_factory=dict)
    """All records as they are or were at last, by Job UID."""

    def pending(self) -> list[Request]:
        """In the scheduler's order, which is not ours: of a Job the last pod comes first."""
        came = [one for one in self.requests if NOW + one.comes <= self.now and one.name not in self.placed]
        return sorted(came, key=lambda one: (one.priority, one.name), reverse=True)

    def schedule(self) -> None:
        """Whoever can have a node gets it; pods of others end."""
        self.holds = {node: held for node, held in self.holds.items() if held[1] > self.now}
        for one in self.pending():
            free = [node for node in one.nodes if node not in self.holds and node not in self.jobs]
            if free and not one.hopeless:
                self.holds[free[0]] = one, self.now + one.runs
                self.placed[one.name] = self.now

    def seen(self) -> Observed:
        waits = self.pending()
        self.first_seen = {one.name: self.first_seen.get(one.name, self.now) for one in waits}
        fates = {one.pod_uid: self._fate(one) for one in self.yields}
        pods = tuple(claiming(one, created=one.created) for one in self.jobs.values())
        self.yields = advanced(self.yields, fates, pods, self.now)
        self.ended |= {one.job_uid: one for one in self.yields}
        busy = {node: replace(IDLE, holder=held[0].name, gpus=8) for node, held in self.holds.items()}
        return Observed(
            now=self.now,
            settings=SETTINGS,
            profiles=(profile(rollout={"maxConcurrent": 3}),),
            nodes=fleet(*NODES),  # type: ignore[arg-type]
            jobs=tuple(self.jobs.values()),
            pods=pods,
            reports=tuple(self.reports.values()),
            occupancy={node: busy.get(node, IDLE) for node in NODES},
            slices=tuple(resource_slice(H100, node=node) for node in NODES),
            waiting_pods=tuple(self._waiting(one) for one in waits),
            yields=self.yields,
        )

    def _fate(self, one: Yield) -> Fate:
        if one.pod_uid in self.placed:
            return "bound"
        held = self.holds.get(one.node)
        return fate_of_pending(one, [(held[0].owner, self.placed[held[0].name])] if held else [])

    def _waiting(self, one: Request) -> WaitingPod:
        terms = ((("metadata.name", "In", one.nodes),),)
        return WaitingPod(
            f"team/{one.name}", one.name, one.owner, one.priority, 8, self.first_seen[one.name], terms=terms
        )

    def act(self) -> None:
        """The operator's turn; agents that have run for long enough have a result."""
        for node, one in list(self.jobs.items()):
            if self.now - one.created >= MEASURING:
                done = measured(ago=NOW - self.now, run=one.run, number=one.attempt)
                self.reports[node] = report(node, status=done)
                del self.jobs[node]
        taken = {*self.holds, *self.jobs}
        for action in plan(self.seen()).actions:
            if isinstance(action, GiveWay):
                assert action.record is not None
                self._end(action, action.record, taken)
            elif isinstance(action, Start):
                labels, name = action.job["metadata"]["labels"], action.facts.name
                run, attempt = labels["precisionprofiler.io/run"], int(labels["precisionprofiler.io/attempt"])
                assert name not in self.holds
                self.jobs[name] = job(name, run=run, attempt=attempt, created=self.now)

    def _end(self, action: GiveWay, of: Yield, taken: Set[str]) -> None:
        """End an agent. `taken`: the nodes without free GPUs when that was decided, maybe for several pods at once."""
        one = next(one for one in self.requests if one.name == of.pod_uid)
        assert one.priority > -1000, "only for a pod of higher priority"
        assert of.node in one.nodes, "only where it may run"
        assert one.hopeless or set(one.nodes) <= taken, "not for one that could run elsewhere"
        self.yields += (of,)
        problem = NoResult(action.said, action.outcome)
        before = self.reports.get(of.node, report(of.node))
        status = ingest.failed_status(problem, action.job, before, self.now, action.keeping)
        assert status.attempt.failures == 0, "no retry is spent"
        self.reports[of.node] = report(of.node, status=status)
        del self.jobs[of.node]


@examples(3, many=60)
# A Job whose first pod is helped, and whose other two have an agent's end each at one time; `make fuzz` found it.
@example([Request("", "", 3, MINUTE, 0, NODES, False, MINUTE)])
@given(st.lists(REQUESTS, min_size=1, max_size=5))
def test_pods_that_can_run_do_soon_and_one_that_never_can_costs_one_agent_an_hour(drawn: list[Request]) -> None:
    jobs = [replace(one, owner=f"o{n}") for n, one in enumerate(drawn)]
    cluster = Cluster([replace(one, name=f"{one.owner}-{pod}") for one in jobs for pod in range(one.pods)])
    while cluster.now < NOW + timedelta(minutes=75):
        cluster.schedule()
        cluster.act()
        cluster.now += STEP
    for one in cluster.requests:
        ends = [each for each in cluster.ended.values() if each.owner == one.owner]
        in_vain = sorted(each.at for each in ends if each.outcome == "NotHelped")
        assert all(later - earlier >= REST for earlier, later in pairwise(in_vain))
        assert one.hopeless or not in_vain, "each agent's end helped somebody"
        assert one.hopeless or one.name in cluster.placed
    done = [
        each.node_name for each in cluster.reports.values() if each.status is not None and each.status.run is not None
    ]
    assert sorted(done) == sorted(NODES), "the fleet is measured"


def test_the_facts_of_the_simulated_nodes_are_those_of_gpus_by_claim() -> None:
    facts = facts_of_all(fleet(*NODES), "nvidia.com/gpu.product", (resource_slice(H100, node="n1"),))  # type: ignore[arg-type]
    assert isinstance(facts["uid-n1"], NodeFacts)
    assert (facts["uid-n1"].way, facts["uid-n1"].gpus) == ("claim", 8)
