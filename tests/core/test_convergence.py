"""From any state, through any accident, killed after any write: plans keep their limits and come to an end."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from precision_api.kinds.profile import Schedule
from precision_operator.core.attempts.actions import Start
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.plan import plan
from precision_operator.core.results.ingest import status_json
from precision_operator.core.status.profile_status import profile_status
from tests.support.examples import examples
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.simulated_cluster import End, SimulatedCluster
from tests.support.world import profile, spec

RACK = "example.com/rack"
NODE_NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
PROFILE_NAMES = st.sampled_from(["a", "b"])
LIMITS = st.sampled_from([1, 2, 4, "50%", "100%"])
RACKS = st.sampled_from(["r1", "r1", "r2", None])
POOLS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-GB200")
BUDGETS = st.fixed_dictionaries(
    {"maxConcurrent": LIMITS},
    optional={
        "perTopology": st.sampled_from([1, 2]).map(lambda most: [{"key": RACK, "max": most}]),
        "pools": st.sampled_from([{"maxConcurrent": 1}, {"powerBudgetWatts": 9000}]).map(
            lambda limit: [{"name": pool} | limit for pool in POOLS]
        ),
        "powerBudgetWatts": st.sampled_from([5000, 9000, 12_000]),
        "rampSeconds": st.sampled_from([30, 120]),
        "canary": st.sampled_from([1, 2]),
        "maxFailures": st.sampled_from([1, "50%"]),
        "retry": st.sampled_from([{"limit": 0}, {"limit": 0}, {"limit": 1, "backoffSeconds": 600}]),
    },
)
"""spec.rollout: any set of budgets together."""
FURTHER = st.fixed_dictionaries(
    {},
    optional={
        "schedule": st.sampled_from([{"cron": "*/20 * * * *"}, {"maxAge": "30m"}]),
        "agent": st.sampled_from([{"queueName": "q"}, {"image": "registry.example/agent:2"}]),
        "idle": st.just({"queueTimeoutSeconds": 600}),
        "rerunOn": st.just([]),
    },
)
RECIPES = st.sampled_from([[], ["fp8_current"], ["mxfp8"]])
TARGETS = st.sampled_from([{}, {"nodeNames": ["n1", "n2"]}, {"products": ["GB200"]}])
ENDS: st.SearchStrategy[End] = st.sampled_from(["succeeded", "crashed", "refused", "out of memory", "disrupted"])
DRIVER = "nvidia.com/cuda.driver-version.full"
AT_REST = {"succeeded", "failed", "skipped", "waiting"}


class Fleet(RuleBasedStateMachine):
    """Random events over a few nodes and profiles; the simulated cluster checks every start as it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SimulatedCluster()
        for name in ("n1", "n2", "n3"):
            self.cluster.nodes[f"uid-{name}"] = node_object(EIGHT_H100 | {RACK: "r1"}, name=name)
            self.cluster.limits[f"uid-{name}"] = 4000

    @initialize(budgets=BUDGETS)
    def begin(self, budgets: dict[str, Any]) -> None:
        """One profile is at work from the start: its agents run."""
        self.apply_profile("a", budgets, {}, {})
        self.the_operator_and_the_cluster_work()

    def uid_of(self, node: str) -> str | None:
        return next((u for u, n in self.cluster.nodes.items() if n["metadata"]["name"] == node), None)

    # Nodes.

    @rule(name=NODE_NAMES, gpus=st.sampled_from(["8", "8", "8", "0"]), rack=RACKS, product=st.sampled_from(POOLS))
    def add_node(self, name: str, gpus: str, rack: str | None, product: str) -> None:
        """A node comes, maybe under the name of one that went, always with another UID."""
        if self.uid_of(name) is None:
            uid = self.cluster.uid("node")
            labels = {"nvidia.com/gpu.product": product} | ({} if rack is None else {RACK: rack})
            self.cluster.nodes[uid] = node_object(labels, name=name, gpus=gpus, uid=uid)

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        uid = self.uid_of(name)
        if uid is not None:
            self.cluster.away[uid] = self.cluster.nodes.pop(uid)
            self.cluster.holders.pop(name, None)
            self.cluster.silent.pop(name, None)

    @precondition(lambda self: self.cluster.away)
    @rule(data=st.data())
    def a_node_comes_back(self, data: st.DataObject) -> None:
        """The same object again, as after a list that was not complete."""
        uid = data.draw(st.sampled_from(sorted(self.cluster.away)))
        if self.uid_of(self.cluster.away[uid]["metadata"]["name"]) is None:
            self.cluster.nodes[uid] = self.cluster.away.pop(uid)

    @rule(name=NODE_NAMES, label=st.sampled_from([(DRIVER, "570.1"), (DRIVER, "580.2"), (RACK, "r1"), (RACK, "r2")]))
    def a_label_changes(self, name: str, label: tuple[str, str]) -> None:
        """Another driver, or the node stands in another rack."""
        uid = self.uid_of(name)
        if uid is not None:
            node = self.cluster.nodes[uid]
            meta = {**node["metadata"], "labels": {**node["metadata"]["labels"], label[0]: label[1]}}
            self.cluster.nodes[uid] = {**node, "metadata": meta}

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

    @rule(name=NODE_NAMES)
    def a_kubelet_falls_silent_or_speaks_again(self, name: str) -> None:
        if name in self.cluster.silent:
            self.cluster.speak_again(name)
        elif self.uid_of(name) is not None:
            self.cluster.fall_silent(name)

    @rule()
    def the_node_controller_works(self) -> None:
        self.cluster.look_after_silent_nodes()

    # Profiles.

    @rule(name=PROFILE_NAMES, budgets=BUDGETS, chosen=TARGETS, further=FURTHER)
    def apply_profile(
        self, name: str, budgets: dict[str, Any], chosen: dict[str, list[str]], further: dict[str, Any]
    ) -> None:
        """A profile is made, or the one of that name gets another rollout, target, schedule ..."""
        there = self.profile_of(name)
        changed = spec(rollout=budgets, target=chosen, **further)
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

    @rule(name=PROFILE_NAMES, mark=st.sampled_from(["1", "2"]))
    def somebody_asks_for_a_rerun(self, name: str, mark: str) -> None:
        there = self.profile_of(name)
        if there is not None:
            self.cluster.profiles[there.uid] = replace(there, rerun=mark)

    @precondition(lambda self: self.cluster.reports)
    @rule(data=st.data(), mark=st.sampled_from(["1", "2"]))
    def somebody_asks_for_a_node(self, data: st.DataObject, mark: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.reports)))
        self.cluster.reports[name] = replace(self.cluster.reports[name], rerun=mark)

    # Agents.

    @precondition(lambda self: self.cluster.running())
    @rule(data=st.data(), how=ENDS)
    def an_agent_ends(self, data: st.DataObject, how: End) -> None:
        self.cluster.end(data.draw(st.sampled_from(self.cluster.running())), how)

    @precondition(lambda self: self.cluster.jobs)
    @rule(data=st.data())
    def somebody_deletes_a_job(self, data: st.DataObject) -> None:
        self.cluster.forget(data.draw(st.sampled_from(sorted(self.cluster.jobs))))

    @precondition(lambda self: self.cluster.jobs)
    @rule(data=st.data())
    def an_image_is_nowhere_to_be_had(self, data: st.DataObject) -> None:
        job = self.cluster.jobs[data.draw(st.sampled_from(sorted(self.cluster.jobs)))]
        self.cluster.unpullable.add(job.uid)

    @precondition(lambda self: self.cluster.queued())
    @rule(data=st.data())
    def kueue_admits(self, data: st.DataObject) -> None:
        self.cluster.admit(data.draw(st.sampled_from(self.cluster.queued())))

    @precondition(lambda self: self.cluster.running())
    @rule(data=st.data())
    def kueue_takes_a_place_back(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.cluster.running()))
        owner = self.cluster.profiles.get(self.cluster.jobs[name].profile_uid)
        if owner is not None and owner.spec is not None and owner.spec.agent.queue_name is not None:
            self.cluster.take_back(name)

    @rule(name=PROFILE_NAMES, runs=st.integers(1, 4))
    def bad_days(self, name: str, runs: int) -> None:
        """Every agent crashes, retries and all, run after run."""
        for run in range(runs):
            self.edit_recipes(name, [["fp8_current"], ["fp8_block"]][run % 2])
            for _ in range(4):
                self.the_operator_and_the_cluster_work()
                for job in self.cluster.running():
                    self.cluster.end(job, "crashed")
                self.cluster.reconcile()
                self.cluster.pass_time(timedelta(hours=7))

    @rule()
    def the_cluster_works(self) -> None:
        self.cluster.create_pods()
        self.cluster.schedule()

    @rule()
    def garbage_is_collected(self) -> None:
        self.cluster.collect_garbage()

    @rule(minutes=st.sampled_from([1, 6, 20, 60 * 25]))
    def time_passes(self, minutes: int) -> None:
        self.cluster.pass_time(timedelta(minutes=minutes))

    @rule(days=st.sampled_from([-40, -1, 1, 40]))
    def the_clock_jumps(self, days: int) -> None:
        self.cluster.pass_time(timedelta(days=days, minutes=7))

    # The operator.

    @rule()
    def the_operator_and_the_cluster_work(self) -> None:
        self.cluster.reconcile()
        self.the_cluster_works()

    @rule()
    def the_operator_works(self) -> None:
        """A second pass over what the first one has done starts nothing twice, and soon nothing is left to write."""
        for _ in range(8):
            starts = [action for action in self.cluster.decide().actions if isinstance(action, Start)]
            started, writes = {start.job["metadata"]["name"] for start in starts}, self.cluster.writes
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
        self.no_more_schedules()
        self.cluster.settle()
        for item in self.cluster.decide().profiles:
            self.check_rest(item)
        assert not self.cluster.jobs

    def no_more_schedules(self) -> None:
        """A profile that measures again and again never comes to rest."""
        for uid, there in self.cluster.profiles.items():
            self.cluster.profiles[uid] = replace(there, spec=there.spec.model_copy(update={"schedule": Schedule()}))

    def check_rest(self, item: ProfilePlan) -> None:
        spec_ = item.profile.spec
        allowed = {"queued"} if spec_ is not None and spec_.suspend else set()
        assert {node_state.state for node_state in item.node_states} <= AT_REST | allowed, [
            (s.reason, s.message) for s in item.node_states
        ]
        assert all(node_state.message for node_state in item.node_states), "a node ends without a reason in words"
        status = profile_status(item, self.cluster.now, len(self.cluster.nodes))
        complete = next(c for c in status.conditions if c.type == "Complete")
        reasons = {node_state.reason for node_state in item.node_states}
        begun = any(node_state.state in ("succeeded", "failed") for node_state in item.node_states)
        stopped = bool(reasons & {"CanaryFailed", "TooManyFailures"}) or ("NotDueYet" in reasons and not begun)
        queued = any(node_state.state == "queued" for node_state in item.node_states)
        assert (complete.status == "True") != (queued or stopped), complete

    @invariant()
    def no_result_is_lost(self) -> None:
        for key, run in self.cluster.results.items():
            found = [r for r in self.cluster.reports.values() if (r.profile_uid, r.node_uid) == key]
            if found:
                assert found[0].status.run.run == run, "a result was overwritten by nothing"

    @invariant()
    def planning_again_gives_the_same_plan_and_statuses_reach_a_fixed_point(self) -> None:
        """The status that follows on itself is itself, whatever stood there before."""
        seen = self.cluster.observe()
        planned = plan(seen)
        assert plan(seen) == planned
        for item in planned.profiles:
            first = profile_status(item, self.cluster.now, len(self.cluster.nodes))
            again = replace(item, profile=replace(item.profile, status=status_json(first)))
            assert profile_status(again, self.cluster.now, len(self.cluster.nodes)) == first

    def teardown(self) -> None:
        """Without nodes and profiles nothing is left, once the retention is over."""
        if self.cluster.profiles:
            self.all_comes_to_rest()
        for uid in list(self.cluster.nodes)[:1]:
            del self.cluster.nodes[uid]
        self.cluster.settle()
        self.cluster.pass_time(self.cluster.latest - self.cluster.now + timedelta(days=2))
        self.cluster.settle()
        assert {r.node_uid for r in self.cluster.reports.values()} <= self.cluster.nodes.keys()
        self.cluster.profiles.clear()
        self.cluster.settle()
        assert (self.cluster.jobs, self.cluster.reports, self.cluster.pods) == ({}, {}, {})

    def profile_of(self, name: str):  # type: ignore[no-untyped-def]
        return next((p for p in self.cluster.profiles.values() if p.name == name), None)


TestFleet = Fleet.TestCase
TestFleet.settings = examples(15, many=400, stateful_step_count=40, report_multiple_bugs=False)


def test_a_pod_on_a_silent_node_outlives_its_profile_and_goes_with_the_node() -> None:
    """A story that `make fuzz` found."""
    story = Fleet()
    story.begin(budgets={"maxConcurrent": 1})
    story.add_node(name="n1", product="NVIDIA-H100-80GB-HBM3", gpus="8", rack="r1")
    while not any(pod.phase == "Running" for pod in story.cluster.pods.values()):
        story.the_operator_works()
    story.a_kubelet_falls_silent_or_speaks_again(name="n1")
    story.delete_profile(name="a")
    story.teardown()


def test_the_limits_of_a_suspended_profile_hold_nobody_back() -> None:
    """Another story that `make fuzz` found."""
    story = Fleet()
    story.begin(budgets={"maxConcurrent": 1, "pools": [{"name": pool, "maxConcurrent": 1} for pool in POOLS]})
    assert len(story.cluster.jobs) == 1
    story.suspend_or_resume(name="a")
    story.apply_profile(name="b", budgets={"maxConcurrent": 1}, chosen={}, further={})
    story.the_operator_works()
    assert len(story.cluster.jobs) == 2


def test_a_job_that_kueue_never_let_begin_counts_for_no_ramp() -> None:
    """A third story that `make fuzz` found."""
    story = Fleet()
    story.apply_profile(name="a", budgets={"maxConcurrent": 1}, chosen={}, further={"agent": {"queueName": "q"}})
    story.the_operator_works()
    assert len(story.cluster.queued()) == 1
    story.suspend_or_resume(name="a")
    story.the_operator_works()
    assert not story.cluster.jobs
    story.apply_profile(name="a", budgets={"maxConcurrent": 1, "rampSeconds": 30}, chosen={}, further={})
    story.the_operator_works()
    assert len(story.cluster.jobs) == 1
