"""From any state, through any accident, killed after any write: plans keep their limits and come to an end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from precision_operator.core.observed import ProfileView
from precision_operator.core.plan import Plan, ProfilePlan, Start, plan
from precision_operator.core.rollup import profile_status
from tests.support.node_objects import node_object
from tests.support.simulated_cluster import End, SimulatedCluster
from tests.support.world import at_once, profile, spec

NODE_NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
PROFILE_NAMES = st.sampled_from(["a", "b"])
LIMITS = st.sampled_from([1, 2, 4, "50%", "100%"])
RECIPES = st.sampled_from([[], ["fp8_current"], ["mxfp8"]])
TARGETS = st.sampled_from([{}, {"nodeNames": ["n1", "n2"]}, {"products": ["GB200"]}])
ALSO = st.sampled_from(["nothing", "its node", "its profile", "its run"])
ENDS: st.SearchStrategy[End] = st.sampled_from(["succeeded", "crashed", "disrupted"])
AT_REST = {"succeeded", "failed", "skipped", "waiting"}


class Fleet(RuleBasedStateMachine):
    """Random events over a few nodes and profiles; the simulated cluster checks every start as it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SimulatedCluster()
        for name in ("n1", "n2", "n3"):
            self.cluster.nodes[f"uid-{name}"] = node_object(name=name)

    @initialize(limit=LIMITS)
    def begin(self, limit: int | str) -> None:
        """One profile is at work from the start: its agents run."""
        self.apply_profile("a", limit, {})
        self.the_operator_and_the_cluster_work()

    def uid_of(self, node: str) -> str | None:
        return next((u for u, n in self.cluster.nodes.items() if n["metadata"]["name"] == node), None)

    # Nodes.

    @rule(name=NODE_NAMES, gpus=st.sampled_from(["8", "8", "8", "0"]))
    def add_node(self, name: str, gpus: str) -> None:
        """A node comes, maybe under the name of one that went, always with another UID."""
        if self.uid_of(name) is None:
            uid = self.cluster.uid("node")
            self.cluster.nodes[uid] = node_object(name=name, gpus=gpus, uid=uid)

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        uid = self.uid_of(name)
        if uid is not None:
            del self.cluster.nodes[uid]
            self.cluster.holders.pop(name, None)

    @rule(name=NODE_NAMES)
    def cordon_or_uncordon(self, name: str) -> None:
        uid = self.uid_of(name)
        if uid is not None:
            node = self.cluster.nodes[uid]
            self.cluster.nodes[uid] = {**node, "spec": {"unschedulable": not node["spec"]["unschedulable"]}}

    @rule(name=NODE_NAMES)
    def somebody_comes_or_goes(self, name: str) -> None:
        """A pod of somebody else takes the GPUs of an idle node, or gives them back."""
        if name in self.cluster.holders:
            del self.cluster.holders[name]
        elif self.uid_of(name) is not None and self.cluster.holder(name) is None:
            self.cluster.holders[name] = "team/train-0"

    # Profiles.

    @rule(name=PROFILE_NAMES, limit=LIMITS, chosen=TARGETS)
    def apply_profile(self, name: str, limit: int | str, chosen: dict[str, list[str]]) -> None:
        """A profile is made, or the one of that name gets another rollout and target."""
        there = self.profile_of(name)
        changed = spec(rollout=at_once(limit), target=chosen)
        if there is None:
            uid = self.cluster.uid("profile")
            self.cluster.profiles[uid] = replace(profile(name), uid=uid, created=self.cluster.now, spec=changed)
        else:
            self.cluster.profiles[there.uid] = replace(there, spec=changed, generation=there.generation + 1)

    @rule(name=PROFILE_NAMES, recipes=RECIPES)
    def edit_recipes(self, name: str, recipes: list[str]) -> None:
        """Another question: a new run."""
        there = self.profile_of(name)
        if there is not None and there.spec is not None:
            asked = there.spec.model_copy(update={"recipes": tuple(recipes)})
            self.cluster.profiles[there.uid] = replace(there, spec=asked)

    @rule(name=PROFILE_NAMES)
    def suspend_or_resume(self, name: str) -> None:
        there = self.profile_of(name)
        if there is not None and there.spec is not None:
            turned = there.spec.model_copy(update={"suspend": not there.spec.suspend})
            self.cluster.profiles[there.uid] = replace(there, spec=turned)

    @rule(name=PROFILE_NAMES)
    def delete_profile(self, name: str) -> None:
        there = self.profile_of(name)
        if there is not None:
            del self.cluster.profiles[there.uid]

    # Agents.

    @precondition(lambda self: self.cluster.running())
    @rule(data=st.data(), how=ENDS, also=ALSO, writes=st.sampled_from([None, 1, 2, 3]))
    def an_agent_ends(self, data: st.DataObject, how: End, also: str, writes: int | None) -> None:
        """An agent ends, at the same moment something else does, and the operator may be killed while it collects."""
        name = data.draw(st.sampled_from(self.cluster.running()))
        job = self.cluster.jobs[name]
        self.cluster.end(name, how)
        if also == "its node":
            self.cluster.nodes.pop(job.node_uid, None)
        if also == "its profile":
            self.cluster.profiles.pop(job.profile_uid, None)
        if also == "its run":
            self.edit_recipes(job.profile, ["fp8_block"])
        self.cluster.reconcile(writes)
        self.the_cluster_works()

    @precondition(lambda self: self.cluster.jobs)
    @rule(data=st.data())
    def somebody_deletes_a_job(self, data: st.DataObject) -> None:
        del self.cluster.jobs[data.draw(st.sampled_from(sorted(self.cluster.jobs)))]

    @rule()
    def the_cluster_works(self) -> None:
        self.cluster.create_pods()
        self.cluster.schedule()

    @rule()
    def garbage_is_collected(self) -> None:
        self.cluster.collect_garbage()

    @rule(minutes=st.sampled_from([1, 6, 60 * 25]))
    def time_passes(self, minutes: int) -> None:
        self.cluster.pass_time(timedelta(minutes=minutes))

    # The operator.

    @rule()
    def the_operator_and_the_cluster_work(self) -> None:
        self.cluster.reconcile()
        self.the_cluster_works()

    @rule()
    def the_operator_works(self) -> None:
        """A second pass over what the first one has done starts nothing twice, and soon nothing is left to write."""
        for _ in range(8):
            started, writes = _started(self.cluster.decide()), self.cluster.writes
            assert not started & self.cluster.jobs.keys(), "what was started is started again"
            self.cluster.reconcile()
            if self.cluster.writes == writes:
                return
        raise AssertionError("there is always something to write")

    @rule(writes=st.integers(1, 4))
    def the_operator_is_killed(self, writes: int) -> None:
        self.cluster.reconcile(writes)

    @rule()
    def all_comes_to_rest(self) -> None:
        """What can end ends: every node is measured, has failed, is skipped or waits, and no Job is left."""
        self.cluster.settle()
        for item in self.cluster.decide().profiles:
            self.check_rest(item)
        assert not self.cluster.jobs

    def check_rest(self, item: ProfilePlan) -> None:
        spec_ = item.profile.spec
        allowed = {"queued"} if spec_ is not None and spec_.suspend else set()
        assert {stand.state for stand in item.stands} <= AT_REST | allowed
        status = profile_status(item, self.cluster.now, len(self.cluster.nodes))
        complete = next(c for c in status.conditions if c.type == "Complete")
        queued = any(stand.state == "queued" for stand in item.stands)
        assert (complete.status == "True") != queued, complete

    @invariant()
    def no_result_is_lost(self) -> None:
        for key, run in self.cluster.results.items():
            found = [r for r in self.cluster.reports.values() if (r.profile_uid, r.node_uid) == key]
            if found:
                assert found[0].status is not None
                assert found[0].status.run is not None
                assert found[0].status.run.run == run, "a result was overwritten by nothing"

    @invariant()
    def planning_again_gives_the_same_plan(self) -> None:
        seen = self.cluster.observe()
        assert plan(seen) == plan(seen)

    def teardown(self) -> None:
        """Without nodes and profiles nothing is left, once the retention is over."""
        if self.cluster.profiles:
            self.all_comes_to_rest()
        for uid in list(self.cluster.nodes)[:1]:
            del self.cluster.nodes[uid]
        self.cluster.settle()
        self.cluster.pass_time(timedelta(days=2))
        self.cluster.settle()
        assert {r.node_uid for r in self.cluster.reports.values()} <= self.cluster.nodes.keys()
        self.cluster.profiles.clear()
        self.cluster.settle()
        assert (self.cluster.jobs, self.cluster.reports, self.cluster.pods) == ({}, {}, {})

    def profile_of(self, name: str) -> ProfileView | None:
        return next((p for p in self.cluster.profiles.values() if p.name == name), None)


def _started(decided: Plan) -> set[str]:
    return {str(action.job["metadata"]["name"]) for action in decided.actions if isinstance(action, Start)}


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=250, stateful_step_count=40, report_multiple_bugs=False, deadline=None)
