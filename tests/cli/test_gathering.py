"""What the plugin reads of a cluster and says of one that doesn't let it; what `rerun` marks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import typer

from precision_api.facts import names
from precision_api.facts.names import ANNOTATION_RERUN, DEFAULT_PRIORITY_CLASS, LABEL_MANAGED_BY, MANAGED_BY
from precision_api.kinds.report import Quarantine
from precision_operator.cli.commands.rerun import RerunMark, RerunTargets, chosen, patch
from precision_operator.cli.connection_options import explained
from precision_operator.cli.gathering import HOST_LABEL, Seen, gathered, gathered_fleet
from precision_operator.cli.operator_settings import UNKNOWN_IMAGE, UNKNOWN_SETTINGS, settings_told_by
from precision_operator.cli.terminal import CLUSTER, NO_CRDS, NO_RIGHT, Code
from precision_operator.cluster import ApiError, ConnectionProblem, paths
from precision_operator.cluster.server_time import ServerTime
from precision_operator.core.observe.clock import format_time
from precision_operator.core.status.why import why
from precision_operator.shell.settings import BINDINGS
from tests.support.fake_cluster import FakeCluster
from tests.support.golden import beside
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.report_objects import profile_object, report_object
from tests.support.small_model import FROM_CONFIG_MAP
from tests.support.world import profile, report, tried

TABLES = beside(__file__)

FORBIDDEN = ApiError(403, "Forbidden", "GET /x: you cannot list resource (403 Forbidden)")
PRIORITY_CLASSES = paths.collection("scheduling.k8s.io/v1", "priorityclasses")
IMAGE, ALLOWED = "--agent-image=registry.example/agent:1", "--allowed-images=registry.example/"
ROLE = {"app.kubernetes.io/name": "precision-profiler", "app.kubernetes.io/component": "operator"}


def deployment(*args: str, watch: str = "ml", name: str = "precision-profiler-operator") -> dict[str, Any]:
    """The operator's, with these arguments."""
    containers = [{"name": "operator", "args": [f"--watch-namespaces={watch}", *args]}]
    meta = {"name": name, "namespace": "precision-system", "labels": ROLE}
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": containers}}}}


def operated(*args: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """What an installed chart leaves to be seen: the operator's Deployment, and the PriorityClass of its agents."""
    chosen = {"metadata": {"name": DEFAULT_PRIORITY_CLASS}}
    return *installed(deployment(IMAGE, ALLOWED, *args)), (PRIORITY_CLASSES, chosen)


def installed(operator: dict[str, Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """An operator's Deployment, and the binding that names it."""
    subject = {key: operator["metadata"][key] for key in ("name", "namespace")}
    binding = {"metadata": {"name": subject["name"], "labels": ROLE}, "subjects": [subject]}
    return (paths.collection("apps/v1", "deployments", "precision-system"), operator), (BINDINGS, binding)


def cluster(*objects: tuple[str, dict[str, Any]]) -> FakeCluster:
    """One profile, the nodes a and b, and what else is given."""
    own = profile_object(workload={"preset": "llama3-8b"}, generation=1, status={})
    there = [node_object(EIGHT_H100 | {HOST_LABEL: "a"}, name="a"), node_object(name="b")]
    base = [(paths.profiles("ml"), own), *((paths.NODES, node) for node in there)]
    return FakeCluster(*base, *objects)


async def look(there: FakeCluster, node: str = "a", whole: bool = False) -> Seen:
    return await gathered(there, None, node, whole)  # type: ignore[arg-type]


async def reason_of(there: FakeCluster, node: str = "a", whole: bool = False) -> str:
    seen = await look(there, node, whole)
    return why(seen.plan, seen.observed, node)[0].reason


def agent_of(owner_uid: str, node: str, namespace: str = "ml") -> dict[str, Any]:
    """The Job of an agent that has just been made."""
    marks = {names.LABEL_APP: names.AGENT_APP, names.LABEL_PROFILE_UID: owner_uid, names.LABEL_NODE_UID: f"uid-{node}"}
    marks |= {names.LABEL_ATTEMPT: "1", names.LABEL_RUN: "r1"}
    notes = {names.ANNOTATION_NODE: node}
    meta = {"name": f"pp-{node}", "namespace": namespace, "labels": marks, "annotations": notes}
    return {"metadata": meta | {"creationTimestamp": format_time(datetime.now(UTC))}}


def training_pod(node: str) -> dict[str, Any]:
    container = {"resources": {"requests": {"nvidia.com/gpu": "8"}}}
    return {"metadata": {"name": "train-0", "namespace": "team"}, "spec": {"nodeName": node, "containers": [container]}}


FAR = (paths.profiles("far"), profile_object("far", "far", {"preset": "llama3-8b"}, {}, uid="uid-far"))


async def test_what_is_found_busy_is_looked_at_of_a_node_and_of_a_fleet() -> None:
    there = cluster((paths.pods("team"), training_pod("a")))
    assert await reason_of(there, "b") == "AgentStarting"
    there = cluster((paths.pods("team"), training_pod("b")))
    seen = await gathered_fleet(there, "ml")  # type: ignore[arg-type]
    assert [seen.observed.occupancy[node].holder for node in ("a", "b")] == [None, "team/train-0"]


async def test_reading_changes_nothing_and_a_job_without_a_pod_asks_for_no_events() -> None:
    there = cluster()
    await look(there)
    assert {method for method, _ in there.requests} <= {"GET", "LIST"}
    job = agent_of("uid-ml-nightly", "a")
    job["metadata"]["creationTimestamp"] = "2026-11-20T09:00:00Z"
    there = cluster(*operated(), (paths.jobs("ml"), job))
    assert (await look(there)).observed.jobs[0].live
    assert not [path for _, path in there.requests if "events" in path]


async def test_why_reads_one_node_and_its_reports_and_of_others_what_jobs_and_statuses_tell() -> None:
    job = agent_of("uid-ml-nightly", "b")
    job["metadata"]["annotations"][names.ANNOTATION_WATTS] = "5600"
    lies = [agent_of(owner, node, "team") for owner in ("unknown", "uid-ml-nightly") for node in ("b", "c")]
    for number, lie in enumerate(lies):
        lie["metadata"] |= {"name": str(number), "annotations": {names.ANNOTATION_WATTS: "99999"}}
    odd = agent_of("uid-ml-nightly", "..")
    hostile = [(paths.jobs("ml"), odd), *((paths.jobs("team"), lie) for lie in lies)]
    hostile.append((paths.NODES, node_object({HOST_LABEL: "b"}, name="z")))
    said = {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted"}]}
    seen_by_it = paths.profiles("ml"), profile_object(workload={"preset": "llama3-8b"}, generation=1, status=said)
    there = cluster(*operated(), seen_by_it, (paths.jobs("ml"), job), *hostile, (paths.reports("ml"), measured("a")))
    seen = await look(there)
    assert len(there.requests) == len(set(there.requests)) == 10
    assert [path for _, path in there.requests if "/nodes" in path] == [
        f"{paths.NODES}?{HOST_LABEL} in (a,b)&",
        f"{paths.NODES}/b",  # whose host has no name
    ]
    assert [raw["metadata"]["name"] for raw in seen.observed.nodes.values()] == ["a", "b"]
    (place,) = (raw["metadata"] for uid, raw in seen.observed.nodes.items() if uid == "uid-b")
    assert (place["labels"], seen.observed.watts) == (node_object()["metadata"]["labels"], {("ml", "uid-b"): 5600})
    whole = (await look(there, whole=True)).observed
    # As the operator, which believes no annotation.
    assert (len(whole.nodes), whole.watts, whole.profile_statuses) == (3, {}, {})
    job["metadata"]["annotations"][names.ANNOTATION_WATTS] = "[" * 5_000
    assert (await look(cluster((paths.jobs("ml"), job)))).observed.watts == {}


async def test_the_operators_settings_are_of_the_deployment_that_may_be_seen() -> None:
    arguments = ("--allowed-images=elsewhere/", "--priority-class=low")
    there = cluster(*installed(deployment(IMAGE, *arguments)), (PRIORITY_CLASSES, {"metadata": {"name": "low"}}))
    seen = await look(there)
    (found,) = why(seen.plan, seen.observed, "a")
    assert found.reason == "ProfileNotAccepted"
    assert "matches none of the allowed prefixes (elsewhere/)" in found.message
    own = deployment("--agent-image=evil", "--stop=End", "--stop-message=call us")
    own["metadata"]["namespace"] = "ml"
    switch = (paths.config_maps("precision-system"), {"metadata": {"name": "s"}, "data": {"agents": "Hold"}})
    for verb, part in (("GET", "deployments"), ("LIST", "clusterrolebindings")):
        there = cluster((paths.deployments("ml"), own), switch, *operated("--stop-config-map=s"))
        seen = await look(there)
        assert (f"--agent-image={seen.observed.settings.agent_image}", seen.observed.stop.mode) == (IMAGE, "Hold")
        there.fail(verb, part, FORBIDDEN)
        seen = await look(there)
        assert (seen.observed.settings.agent_image, seen.observed.stop) == (UNKNOWN_IMAGE, None)
        assert "since its Deployment is not to be seen" in seen.notes[0]


async def test_profiles_of_namespaces_that_the_operator_does_not_watch_bind_nobody() -> None:
    there = cluster(FAR, *operated())
    seen = await look(there)
    assert [each.profile.key for each in why(seen.plan, seen.observed, "a")] == ["ml/nightly"]
    assert seen.notes == ("profiles of far are left out: the operator does not watch these namespaces",)
    asked = await gathered(there, "far", "a")  # type: ignore[arg-type]
    assert {each.profile.key for each in why(asked.plan, asked.observed, "a")} == {"ml/nightly", "far/far"}
    assert asked.notes == ("nothing starts in far: the operator does not watch it (chart value watchNamespaces)",)


async def test_rows_of_peers_that_a_status_leaves_out_are_a_note() -> None:
    many = profile_object("many", workload={"preset": "llama3-8b"}, status={"peersLeftOut": 3}, uid="uid-many")
    seen = await look(cluster(*operated(), (paths.profiles("ml"), many)))
    assert seen.notes == ("peers by 3 keys are not known, which statuses leave out; --plan reads all",)


async def test_another_operator_elsewhere_spoils_nothing() -> None:
    second = deployment(IMAGE, "--allowed-images=registry.example/", watch="far", name="second-operator")
    seen = await look(cluster(FAR, *operated(), *installed(second)))
    assert seen.notes == ("profiles of far are left out: another operator serves them (ask with -n)",)
    for odd in ('--agent-defaults={"newer":1}', "--disruption-backoff-seconds=1e300"):
        newer = deployment(odd, watch="far", name="newer-operator")
        seen = await look(cluster(*operated(), *installed(newer)))
        assert (seen.notes, seen.observed.settings.agent_image) == ((), IMAGE.partition("=")[2])
    note = (await look(cluster(*installed(deployment('--agent-defaults={"newer":1}'))))).notes[0]
    assert "since its Deployment is of another version than this plugin: argument --agent-defaults" in note


async def test_a_profile_whose_config_map_may_not_be_read_is_left_out_with_a_note() -> None:
    other = profile_object(name="other", uid="uid-o", workload=FROM_CONFIG_MAP, status={})
    there = cluster((paths.profiles("ml"), other))
    there.fail("GET", "configmaps", FORBIDDEN)
    seen = await look(there)
    assert seen.unread == frozenset({"uid-o"})
    assert seen.notes[-1] == "profile ml/other is left out, since you may not read ConfigMap ml/my-model"
    assert why(seen.plan, seen.observed, "a")[0].profile.key == "ml/nightly"


async def test_who_may_list_profiles_everywhere_but_agents_in_one_namespace_only_is_told_so() -> None:
    there = cluster()
    there.fail("LIST", f"{paths.jobs()}?", FORBIDDEN)
    assert "only jobs of namespace ml are known, since you may not list those of others" in (await look(there)).notes
    assert ("LIST", f"{paths.reports()}?{LABEL_MANAGED_BY}={MANAGED_BY}&spec.nodeName=a") in there.requests


async def test_what_may_not_be_looked_at_beside_profiles_counts_as_there() -> None:
    there = cluster(*operated('--agent-defaults={"queueName":"profiling"}'))
    there.serve("kueue.x-k8s.io", "localqueues", "v1beta2")
    for method, part in (("GET", "localqueues"), ("GET", "priorityclasses"), ("LIST", "resourceslices")):
        there.fail(method, part, FORBIDDEN)
    assert await reason_of(there, whole=True) == "AgentStarting"
    assert there.failures == [], "each was asked for"


async def test_of_one_node_the_profiles_statuses_tell_that_the_priority_class_is_missing() -> None:
    said = {"conditions": [{"type": "Accepted", "status": "False", "reason": "PriorityClassMissing"}]}
    missing = profile_object("missing", workload={"preset": "llama3-8b"}, status=said, uid="uid-missing")
    there = cluster(*operated(), (paths.profiles("ml"), missing))
    assert [await reason_of(there, whole=whole) for whole in (True, False)] == ["AgentStarting", "ProfileNotAccepted"]
    assert len([path for _, path in there.requests if "priorityclasses" in path]) == 1


async def test_another_error_than_a_missing_right_is_no_answer() -> None:
    for part in ("priorityclasses", "resourceslices", "deployments", "jobs"):
        there = cluster(*operated())
        verb = "GET" if part in ("priorityclasses", "deployments") else "LIST"
        there.fail(verb, part, ApiError(500, "InternalError", "etcd is ill"))
        with pytest.raises(ApiError, match="etcd is ill"):
            await look(there, whole=True)


async def test_who_may_list_profiles_of_one_namespace_only_asks_for_nothing_of_others() -> None:
    there = cluster()
    there.fail("LIST", "precisionprofiles", FORBIDDEN)
    seen = await look(there)
    assert "only profiles of namespace ml are known" in seen.notes[0]
    assert [answer.profile.key for answer in why(seen.plan, seen.observed, "a")] == ["ml/nightly"]
    listed = {path.partition("?")[0] for method, path in there.requests if method == "LIST"}
    assert {paths.jobs("ml"), paths.reports("ml")} <= listed
    assert not {paths.jobs(), paths.reports()} & listed


async def test_what_runs_in_namespaces_that_the_operator_does_not_watch_is_left_out() -> None:
    for namespace, seen in (("ml", ["ml"]), ("far", [])):
        there = cluster(*operated(), (paths.jobs(namespace), agent_of("p", "a", namespace)))
        assert [job.namespace for job in (await look(there)).observed.jobs] == seen


async def test_without_its_deployment_an_image_of_the_operator_is_not_taken_for_another_one() -> None:
    seen = await look(cluster((paths.reports("ml"), measured("a"))))
    assert [each.reason for each in why(seen.plan, seen.observed, "a")] == ["Measured"]
    assert seen.notes == (f"{UNKNOWN_SETTINGS}, since its Deployment is not to be seen",)


def measured(node: str) -> dict[str, Any]:
    marks = {LABEL_MANAGED_BY: MANAGED_BY}
    owner = [{"kind": "PrecisionProfile", "uid": "uid-ml-nightly"}]
    found = report_object(node, labels=marks, ownerReferences=owner)
    found["status"]["attempt"]["basis"] = {"agent": "of-the-operators-image"}
    return found


def judged(name: str, reason: str, **changes: Any) -> Any:
    condition = {"type": "Accepted", "status": "False", "reason": reason}
    return profile(name, status={"conditions": [condition]}, **changes)


@pytest.mark.parametrize("wrong", [timedelta(hours=2), -timedelta(hours=2)])
async def test_a_wrong_clock_of_the_users_machine_makes_no_agent_late(wrong: timedelta) -> None:
    """Its Job was created a moment ago, by the API server's clock."""
    there = cluster(*operated(), (paths.jobs("ml"), agent_of("uid-ml-nightly", "a")))
    there.server_time = ServerTime(lambda: datetime.now(UTC) + wrong)
    seen = await look(there)
    assert why(seen.plan, seen.observed, "a")[0].reason == "PodNotCreated", "nobody has told it the time"
    there.server_time.heard(there.server_time.local(), format_datetime(datetime.now(UTC), usegmt=True))
    seen = await look(there)
    assert why(seen.plan, seen.observed, "a")[0].reason == "AgentStarting"


def test_settings_are_read_from_what_the_operator_has_said_of_profiles() -> None:
    own = {"agent": {"image": "a.example/x"}}, {"agent": {"image": "b.example/x"}}
    told = settings_told_by([judged("a", "ImageNotAllowed", **own[0]), judged("b", "Accepted", **own[1])])
    assert (told.allowed_images, told.priority_class) == (("the-operators-own", "b.example/x"), "")
    assert settings_told_by([judged("a", "ImageMissing")]).agent_image == ""
    assert settings_told_by([judged("a", "PriorityClassMissing")]).priority_class == DEFAULT_PRIORITY_CLASS


async def test_without_a_right_what_nobody_knows_is_told_or_there_is_no_answer() -> None:
    there = cluster()
    there.fail("LIST", "status.phase", FORBIDDEN)
    seen = await look(there)
    assert why(seen.plan, seen.observed, "a")[0].reason == "CheckingIdle"
    assert any("you may not list all pods" in note for note in seen.notes)
    there = cluster()
    there.fail("LIST", paths.NODES, FORBIDDEN)
    with pytest.raises(ApiError):
        await look(there)


REFUSED = 'cannot list resource "nodeprecisionreports" in API group "precisionprofiler.io"'
SAID: dict[str, tuple[ApiError | ConnectionProblem, Code, str]] = {
    "no answer": (ApiError(0, "Timeout", "GET /api: no answer within 30 s"), CLUSTER, "Is the cluster up"),
    "bad credentials": (ApiError(401, "Unauthorized", "GET /api: Unauthorized"), CLUSTER, "log in again"),
    "no right, told by another authorizer": (FORBIDDEN, NO_RIGHT, "Ask for this right"),
    "no right in a namespace": (
        ApiError(403, "Forbidden", f'GET /x: User "u" {REFUSED} in the namespace "ml"'),
        NO_RIGHT,
        "you may not list nodeprecisionreports.precisionprofiler.io in namespace ml. Ask for this right; to check: "
        "kubectl auth can-i list nodeprecisionreports.precisionprofiler.io -n ml",
    ),
    "no right anywhere": (
        ApiError(
            403, "Forbidden", 'GET /x: User "u" cannot list resource "nodes" in API group "" at the cluster scope'
        ),
        NO_RIGHT,
        "you may not list nodes in the whole cluster. Ask for this right, or name a namespace of yours with -n",
    ),
    "no CRDs": (ApiError(404, "NotFound", f"GET {paths.profiles()}: 404 page not found"), NO_CRDS, "install the chart"),
    "anything else": (ApiError(500, "InternalError", "GET /api: etcd is ill"), CLUSTER, "etcd is ill. Try again"),
    "no kubeconfig": (ConnectionProblem("there is no kubeconfig at x: name one"), CLUSTER, "no kubeconfig at x"),
}


@pytest.mark.parametrize(("error", "code", "words"), SAID.values(), ids=SAID)
def test_what_is_wrong_with_the_cluster_is_said_with_what_to_do(
    error: ApiError | ConnectionProblem, code: Code, words: str
) -> None:
    ended, said = explained(error)
    assert ended is code
    assert words in said


# rerun: what a name means.

NIGHTLY = profile(status={"observedGeneration": 1, "nodes": {"eligible": 24}})
OTHER = profile("other", status={"observedGeneration": 1})
REPORTS = (report("n1"), report("n1", "other"), report("n2"))


def known(**changes: Any) -> RerunTargets:
    return replace(RerunTargets("ml", (NIGHTLY, OTHER), REPORTS, ("n1", "n2", "n3", "other")), **changes)


MEANT: dict[str, tuple[str, str | None, list[str]]] = {
    "a profile": ("nightly", None, ["nightly"]),
    "a profile by its kind": ("pp/other", None, ["other"]),
    "a node in all its profiles": ("n1", None, [report("n1").name, report("n1", "other").name]),
    "a node by its kind": ("node/n2", None, [report("n2").name]),
    "a node in one profile": ("n1", "other", [report("n1", "other").name]),
}


@pytest.mark.parametrize(("name", "only", "marked"), MEANT.values(), ids=MEANT)
def test_a_name_marks_a_profile_or_the_reports_of_a_node(name: str, only: str | None, marked: list[str]) -> None:
    assert [mark.path.rpartition("/")[2] for mark in chosen(known(), name, only)] == marked


@pytest.mark.parametrize(("name", "only", "words"), TABLES["wrong"].values(), ids=TABLES["wrong"])
def test_a_name_that_means_nothing_or_too_much_is_wrong_input(
    name: str, only: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        chosen(known(), name, only)
    assert ended.value.exit_code == 2
    assert words in capsys.readouterr().err


def said(name: str, **changes: Any) -> str:
    (mark,) = chosen(known(**changes), name, None)
    return mark.message


def test_what_will_happen_and_what_keeps_it_from_beginning_is_said() -> None:
    begins = "profile ml/nightly: its 24 eligible nodes are measured again, each when its turn"
    assert said("nightly").startswith(begins)
    assert said("n2") == "node n2, profile ml/nightly: it is measured again when its turn comes."
    rests = Quarantine(since="2026-11-20T06:30:00Z", reason="AgentCrashed")
    quarantined = (report("n2", status=tried("failed").model_copy(update={"quarantine": rests})),)
    assert said("n2", reports=quarantined).endswith("Its quarantine since 2026-11-20T06:30:00Z (AgentCrashed) ends.")
    assert "set spec.suspend to false" in said("pp/paused", profiles=(profile("paused", suspend=True),))
    assert "see whether it runs and watches namespace ml" in said("pp/new", profiles=(profile("new"),))


def test_the_mark_is_a_time_to_the_microsecond_on_that_very_object() -> None:
    body = patch(RerunMark("/path", "uid-7", ""), datetime(2026, 11, 21, 9, 0, 0, 7, UTC))
    assert body == {"metadata": {"uid": "uid-7", "annotations": {ANNOTATION_RERUN: "2026-11-21T09:00:00.000007Z"}}}
