"""One hostile object, or one mistake of ours, costs the others nothing: it is told, counted and tried again."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from precision_operator.cluster import ApiError, paths
from precision_operator.core.observe.observed import JobView, Observed, ProfileView
from precision_operator.shell.observing.gather import Gatherer
from tests.support.operator_in_memory import PROFILES, REPORTS, OperatorInMemory
from tests.support.small_model import FROM_CONFIG_MAP

REFUSED = "may not get configmaps"


class Hostile(Mapping[str, Any]):
    """A mapping that raises whatever it is asked."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("poison")

    def __iter__(self) -> Any:
        raise RuntimeError("poison")

    def __len__(self) -> int:
        raise RuntimeError("poison")


class PoisonedProfile(ProfileView):
    """A profile whose rerun annotation can't be read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "rerun":
            raise RuntimeError("poison")
        return super().__getattribute__(name)


class PoisonedJob(JobView):
    """A Job of which it can't be told since when it may run."""

    def __getattribute__(self, name: str) -> Any:
        if name == "active_since":
            raise RuntimeError("poison")
        return super().__getattribute__(name)


class PoisonedWorld(Gatherer):
    """Shows the world with one poisoned thing in it, as long as `poison` names one."""

    poison = ""

    async def observe(self) -> Observed:
        seen = await super().observe()
        kind, _, name = self.poison.partition(" ")
        if kind == "profile":
            poisoned = (PoisonedProfile(**vars(p)) if p.name == name else p for p in seen.profiles)
            return replace(seen, profiles=tuple(poisoned))
        if kind == "status":
            poisoned = (replace(p, status=Hostile()) if p.name == name else p for p in seen.profiles)
            return replace(seen, profiles=tuple(poisoned))
        if kind == "node":
            nodes = {uid: raw | {"spec": Hostile()} if uid == f"uid-{name}" else raw for uid, raw in seen.nodes.items()}
            return replace(seen, nodes=nodes)
        if kind == "job":
            jobs = (PoisonedJob(**vars(j)) if j.node_name == name else j for j in seen.jobs)
            return replace(seen, jobs=tuple(jobs))
        return seen


def world(*nodes: str) -> tuple[OperatorInMemory, PoisonedWorld]:
    loop = OperatorInMemory(*nodes)
    loop.gatherer.__class__ = PoisonedWorld
    assert isinstance(loop.gatherer, PoisonedWorld)
    return loop, loop.gatherer


async def test_of_a_poisoned_profile_the_others_go_on_and_its_status_and_an_event_say_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, gatherer = world("n1", "n2")
    loop.apply("bad", target={"nodeNames": ["n1"]})
    loop.apply("good", target={"nodeNames": ["n2"]})
    gatherer.poison = "profile bad"
    due = await loop.once()
    assert sorted(loop.jobs()) == ["n2"]
    assert loop.condition("good", "Progressing")["reason"] == "Measuring"
    told = loop.condition("bad", "Degraded")
    assert (told["status"], told["reason"]) == ("True", "PlanFailed")
    assert "RuntimeError: poison" in told["message"]
    events = [body for path, body in loop.cluster.objects.items() if "/events/bad." in path]
    assert [(event["type"], event["reason"]) for event in events] == [("Warning", "PlanFailed")]
    assert due <= 1, "it is tried again soon"
    assert loop.metric("precision_operator_faults_total", where="profile") >= 1
    assert [record for record in caplog.records if record.exc_info and "profile ml/bad" in record.message]


async def test_what_is_poisoned_is_tried_again_ever_more_seldom_and_goes_on_when_it_is_well() -> None:
    loop, gatherer = world("n1")
    loop.apply("bad")
    gatherer.poison = "profile bad"
    dues = [await loop.once() for _ in range(8)]
    assert dues[0] < 1
    assert 20 < dues[-1] <= 36
    gatherer.poison = ""
    await loop.once()
    assert sorted(loop.jobs()) == ["n1"]
    assert loop.condition("bad", "Degraded")["status"] == "False"


async def test_a_poisoned_profile_keeps_its_figures_and_its_agents(caplog: pytest.LogCaptureFixture) -> None:
    loop, gatherer = world("n1", "n2")
    await loop.begin("bad", rollout={"maxConcurrent": 2})
    loop.run_agents()
    loop.end_agent("n1")
    await loop.once()
    before = loop.status("bad")
    gatherer.poison = "profile bad"
    await loop.once()
    await loop.once()
    after = loop.status("bad")
    assert (after["nodes"], after["pools"], after["progress"]) == (before["nodes"], before["pools"], before["progress"])
    assert sorted(loop.jobs()) == ["n2"], "an agent that runs is left alone"
    loop.end_agent("n2")
    await loop.once()
    assert loop.measured() == ["n1", "n2"], "and its result is written"
    pools = {body["status"]["hardware"]["pool"] for path, body in loop.cluster.objects.items() if REPORTS in path}
    assert pools == {"NVIDIA-H100-80GB-HBM3"}
    assert len([record for record in caplog.records if record.exc_info]) == 1, "the same trace is logged once"


async def test_a_poisoned_node_is_left_out_and_the_others_are_measured() -> None:
    loop, gatherer = world("n1", "n2", "n3")
    loop.apply("nightly", rollout={"maxConcurrent": 3})
    gatherer.poison = "node n2"
    await loop.once()
    assert sorted(loop.jobs()) == ["n1", "n3"]
    assert loop.metric("precision_operator_faults_total", where="node") >= 1


async def test_a_report_with_a_time_that_is_none_is_left_out_and_its_node_is_measured_anew() -> None:
    loop = OperatorInMemory("n1", "n2")
    await loop.begin("nightly", rollout={"maxConcurrent": 2})
    loop.run_agents()
    for node in ("n1", "n2"):
        loop.end_agent(node)
    await loop.once()
    poisoned = next(body for path, body in loop.cluster.objects.items() if REPORTS in path)
    poisoned["status"]["attempt"]["startedAt"] = "2026-13-45T99:99:99Z"
    loop.cluster._store(f"{REPORTS}/{poisoned['metadata']['name']}", poisoned)
    await loop.once()
    assert sorted(loop.jobs()) == [poisoned["spec"]["nodeName"]]
    assert loop.status("nightly")["nodes"]["succeeded"] == 1
    assert loop.metric("precision_operator_faults_total", where="report") >= 1


async def test_of_a_poisoned_job_the_others_are_collected() -> None:
    loop, gatherer = world("n1", "n2")
    await loop.begin("nightly", rollout={"maxConcurrent": 2})
    loop.end_agent("n2")
    gatherer.poison = "job n1"
    await loop.once()
    assert loop.measured() == ["n2"]
    assert sorted(loop.jobs()) == ["n1"]
    row = next(row for row in loop.status("nightly")["reasons"] if row["reason"] == "PlanFailed")
    assert (row["count"], row["example"]) == (1, "n1")
    assert "RuntimeError: poison" in row["message"]
    assert loop.metric("precision_operator_faults_total", where="job") >= 1


async def test_a_status_that_cannot_be_written_keeps_no_other_from_being_written() -> None:
    loop = OperatorInMemory("n1")
    for name in ("bad", "good"):
        loop.apply(name, target={"nodeNames": ["nowhere"]})
    loop.cluster.fail("PATCH", f"{PROFILES}/bad", ApiError(403, "Forbidden", "no rights in this namespace"))
    due = await loop.once()
    assert loop.status("bad") == {}
    assert loop.status("good")["phase"] == "Complete"
    assert due <= 1
    await loop.once()
    assert loop.status("bad")["phase"] == "Complete"


async def test_a_status_that_an_older_crd_refuses_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    loop = OperatorInMemory("n1")
    loop.apply("bad", target={"nodeNames": ["nowhere"]})
    words = 'status.phase: Unsupported value: "Complete"'
    loop.cluster.fail("PATCH", f"{PROFILES}/bad", ApiError(422, "Invalid", words, causes=("FieldValueNotSupported",)))
    assert await loop.once() <= 1
    assert [record.levelname for record in caplog.records if words in record.getMessage()] == ["WARNING"]
    await loop.once()
    assert loop.status("bad")["phase"] == "Complete"


async def test_a_report_that_has_lost_its_label_gets_it_back_and_its_node_is_not_measured_again_and_again() -> None:
    """Lists and watches are by label: without it the node looks as if it had never been measured."""
    loop = OperatorInMemory("n1")
    await loop.begin("nightly")
    loop.run_agents()
    loop.end_agent("n1")
    await loop.once()
    assert (loop.measured(), loop.jobs()) == (["n1"], {})
    (path,) = (path for path in loop.cluster.objects if path.startswith(f"{REPORTS}/"))
    stripped = loop.cluster.objects[path]
    stripped["metadata"]["labels"] = {"team": "a"}
    loop.cluster._store(path, stripped)
    await loop.once()
    await loop.once()
    labels = loop.cluster.objects[path]["metadata"]["labels"]
    assert (labels["app.kubernetes.io/managed-by"], labels["team"]) == ("precision-profiler", "a")
    assert loop.jobs() == {}
    assert loop.status("nightly")["nodes"]["succeeded"] == 1


async def test_an_object_of_a_shape_that_nobody_thought_of_ends_no_list() -> None:
    loop = OperatorInMemory("n1", "n2")
    loop.apply("nightly", rollout={"maxConcurrent": 2})
    loop.cluster.objects[f"{paths.NODES}/n1"]["status"] = "not a mapping"
    await loop.once()
    assert sorted(loop.jobs()) == ["n2"]


@pytest.mark.parametrize("time", ["2026-11-23T10:00:00+99:99", "0000-01-01T00:00:00Z"])
async def test_a_status_that_tells_of_an_agents_end_at_a_time_that_is_none_holds_up_nobody(time: str) -> None:
    """The API server's format date-time takes both."""
    loop = OperatorInMemory("n1", "n2")
    loop.apply("bad", target={"nodeNames": ["n1"]})
    loop.apply("good", target={"nodeNames": ["n2"]})
    row = {"node": "n1", "nodeUID": "uid-n1", "jobUID": "j", "pod": "team/train-0", "podUID": "p", "ownerUID": "o"}
    loop.cluster.objects[f"{PROFILES}/bad"]["status"] = {"yields": [row | {"at": time, "outcome": "Waiting"}]}
    await loop.once()
    assert sorted(loop.jobs()) == ["n1", "n2"]


async def test_whatever_a_pass_raises_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    loop, gatherer = world("n1")
    loop.apply("nightly")
    await loop.switch.look()
    await loop.list_everything()

    class Broken(PoisonedWorld):
        async def observe(self) -> Observed:
            raise RuntimeError("a mistake of ours")

    gatherer.__class__ = Broken
    with caplog.at_level(logging.ERROR):
        pauses = [await loop.reconciler._guarded_pass() for _ in range(3)]
    assert pauses[0] < pauses[2], "ever more seldom"
    assert loop.metric("precision_operator_faults_total", where="pass") == 3
    assert len([record for record in caplog.records if record.exc_info]) == 1
    gatherer.__class__ = PoisonedWorld
    await loop.reconciler._guarded_pass()
    assert sorted(loop.jobs()) == ["n1"]


async def test_a_status_that_cannot_be_worked_out_costs_the_others_nothing() -> None:
    loop, gatherer = world("n1")
    for name in ("bad", "good"):
        loop.apply(name, target={"nodeNames": ["nowhere"]})
    gatherer.poison = "status bad"
    await loop.once()
    assert loop.status("good")["phase"] == "Complete"
    assert loop.metric("precision_operator_faults_total", where="status") >= 1


@pytest.mark.parametrize("error", [ApiError(403, "Forbidden", REFUSED), RuntimeError(REFUSED)])
async def test_a_config_map_that_may_not_be_read_holds_up_its_own_profile_alone(error: Exception) -> None:
    loop = OperatorInMemory("n1", "n2")
    loop.apply("bad", target={"nodeNames": ["n1"]}, workload=FROM_CONFIG_MAP)
    loop.apply("good", target={"nodeNames": ["n2"]})
    for _ in range(4):
        loop.cluster.fail("GET", "configmaps/my-model", error)
    await loop.once()
    assert sorted(loop.jobs()) == ["n2"]
    told = loop.condition("bad", "Degraded")
    assert told["reason"] == "PlanFailed"
    assert REFUSED in told["message"]
