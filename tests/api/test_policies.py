"""The chart's policies on a real API server: what a tenant may not ask for is refused in words, all else is taken."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import yaml

from precision_api.facts import names
from precision_lab.builds.binaries import binaries
from precision_lab.lab import KubectlError, Lab
from precision_operator.cluster import paths
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.custom_resources import path, profile
from tests.support.eventually import eventually
from tests.support.golden import beside
from tests.support.helm import Helm, of_kind

TABLES = beside(__file__)

pytestmark = pytest.mark.cluster

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
OPERATOR = "system:serviceaccount:profiling:fleet-operator"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
KUEUE = "system:serviceaccount:queues:kueue"
"""Of an installation with names of its own."""
STRANGER, TENANT, ADMIN = "system:serviceaccount:kube-ovn:ovn", "tenant", "admin-of-a-team"
ASK = "ask the administrators of Precision Profiler (release fleet in namespace profiling)."
OURS = f"{names.GROUP}/*"
TO_FLAVOR = {"spec": {"nodeSelector": {"pool": "a"}}}
VALUES: dict[str, Any] = {
    "tolerations": {"enabled": True, "allowedKeys": ["team.example/", "dedicated"]},
    "runtimeClass": {"enabled": True, "allowed": ["nvidia"]},
    "idle": {"enabled": True},
    "agents": {"enabled": True, "kueueAccount": KUEUE},
}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "maker", "uid": "uid-maker", "controller": True}
OF_JOB = "batch.kubernetes.io/controller-uid"
OF_NAME = "batch.kubernetes.io/job-name"
AGENT = {names.LABEL_APP: names.AGENT_APP, OF_JOB: "uid-maker"}
CONTAINER = {"name": "c", "image": "registry.example.com/none", "resources": {"requests": {"cpu": "2m"}}}
POD = {"restartPolicy": "Never", "containers": [CONTAINER]}
CASES = TABLES["refused"]
"""Policy: what it refuses, what it allows, and what it says."""


@pytest.fixture(scope="module")
def tenant(cluster: Lab, api: ApiServer) -> Iterator[str]:
    """A namespace that the policies bind, with a profile of each forbidden kind from the time before they came."""
    namespace = cluster.create_namespace(f"tenant-{uuid.uuid4().hex[:10]}")
    for kind, (denied, _, _) in CASES.items():
        code, answer = api.call("POST", path(namespace, names.PROFILE_PLURAL), profile(f"old-{kind}", **denied))
        assert code == 201, answer
    rendered = Helm(binaries(["helm"])["helm"]).manifests(watchNamespaces=[namespace], policies=VALUES)
    policies = of_kind(rendered, *KINDS)
    assert len(policies) == 2 * (len(VALUES) + 2), "agents: Jobs, pods, and commands in them"
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(policies))
    for denied, _, _ in CASES.values():
        eventually(partial(refuses, api, namespace, denied))
    for kind in ("jobs", "pods"):
        eventually(lambda kind=kind: "may not make" in said(cluster, namespace, kind, AGENT))
    yield namespace
    cluster.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(policies))
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def create(api: ApiServer, namespace: str, spec: dict[str, Any], **query: str) -> tuple[int, str]:
    """Code and words of the API server to a new profile."""
    body = profile(f"p-{uuid.uuid4().hex[:8]}", **spec)
    code, answer = api.call("POST", path(namespace, names.PROFILE_PLURAL), body, **query)
    return code, str(answer.get("message", ""))


def refuses(api: ApiServer, namespace: str, spec: dict[str, Any]) -> bool:
    return create(api, namespace, spec, dryRun="All")[0] == 403


@pytest.mark.parametrize("kind", CASES)
def test_a_policy_denies_what_it_forbids_with_its_reason_and_allows_the_rest(
    kind: str, api: ApiServer, tenant: str
) -> None:
    denied, allowed, words = CASES[kind]
    code, said = create(api, tenant, denied)
    policy = f"profiling.fleet.{kind}"
    assert code == 403
    assert said.endswith(f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}")
    assert (create(api, tenant, allowed), create(api, tenant, {})) == ((201, ""), (201, ""))


def test_a_profile_measures_cordoned_nodes_only_where_their_taint_is_allowed(api: ApiServer, tenant: str) -> None:
    code, said = create(api, tenant, {"target": {"cordoned": "Include", "nodeNames": ["n0"]}})
    assert (code, "may not tolerate node.kubernetes.io/unschedulable (target.cordoned)" in said) == (403, True)


@pytest.mark.parametrize("kind", CASES)
def test_a_profile_of_before_can_be_suspended_and_may_not_be_made_worse(kind: str, api: ApiServer, tenant: str) -> None:
    old = path(tenant, names.PROFILE_PLURAL, f"old-{kind}")
    code, answer = api.call("PATCH", old, {"spec": {"suspend": True}}, kind=MERGE_PATCH)
    assert code == 200, answer
    worse = CASES["idle" if kind == "tolerations" else "tolerations"][0]
    assert api.call("PATCH", old, {"spec": worse}, kind=MERGE_PATCH)[0] == 403
    code, answer = api.call("PATCH", old, {"spec": {"agent": None, "idle": None}}, kind=MERGE_PATCH)
    assert code == 200, answer
    assert api.call("PATCH", old, {"spec": CASES[kind][0]}, kind=MERGE_PATCH)[0] == 403, "it had let go of that"


def test_other_namespaces_are_free(api: ApiServer, tenant: str, namespace: str) -> None:
    for denied, _, _ in CASES.values():
        assert create(api, namespace, denied) == (201, "")


def test_a_profile_has_no_priority_class_to_ask_for(api: ApiServer, tenant: str) -> None:
    body = profile("urgent", agent={"priorityClassName": "system-node-critical"})
    code, answer = api.call("POST", path(tenant, names.PROFILE_PLURAL), body, fieldValidation="Strict")
    assert (code, 'unknown field "spec.agent.priorityClassName"' in answer.get("message", "")) == (400, True)


def said(
    cluster: Lab, namespace: str, kind: str, labels: dict[str, str], user: str = "", inner: dict[str, str] | None = None
) -> str:
    """What the API server says to a new Job or pod (dry run) of this user, who has all rights; empty: it is taken.

    `inner`: labels of a Job's pod template.
    """
    spec = {"template": {"metadata": {"labels": inner or {}}, "spec": POD}} if kind == "jobs" else POD
    version, name = ("batch/v1", "Job") if kind == "jobs" else ("v1", "Pod")
    meta = {"name": "forged", "labels": labels, "ownerReferences": [] if kind == "jobs" else [OWNER]}
    body = {"apiVersion": version, "kind": name, "metadata": meta, "spec": spec}
    acting = (f"--as={user}", "--as-group=system:masters") if user else ()
    return words(cluster, "create", "--dry-run=server", "-f", "-", "-n", namespace, *acting, stdin=json.dumps(body))


def words(cluster: Lab, *arguments: str, stdin: str = "") -> str:
    """What kubectl is refused with; empty: nothing."""
    try:
        cluster.kubectl(*arguments, stdin=stdin)
    except KubectlError as error:
        return " ".join(str(error).split())
    return ""


@pytest.mark.parametrize(("kind", "maker", "other"), [("jobs", OPERATOR, CONTROLLER), ("pods", CONTROLLER, OPERATOR)])
def test_agents_are_made_by_the_operator_and_the_job_controller_alone(
    cluster: Lab, tenant: str, namespace: str, kind: str, maker: str, other: str
) -> None:
    assert said(cluster, tenant, kind, AGENT, maker) == ""
    assert said(cluster, tenant, kind, {names.LABEL_APP: "trainer"}) == ""
    assert said(cluster, namespace, kind, AGENT) == "", "another namespace is free"
    refusal = said(cluster, tenant, kind, AGENT, other)
    expected = (
        f"metadata.labels: {other} may not make {kind} with app.kubernetes.io/name: precision-agent, which the "
        f"operator takes for its agents. Choose another name, or {ASK}"
    )
    assert expected in refusal


def test_a_jobs_pod_template_bears_the_agents_label_only_by_the_operator(cluster: Lab, tenant: str) -> None:
    """The Job itself is plain: its pods would be refused one by one, and the Job would try without end.

    It has a label of its own: of one without any the API server takes those of its template.
    """
    plain = {"team": "a"}
    assert said(cluster, tenant, "jobs", plain, OPERATOR, inner={names.LABEL_APP: names.AGENT_APP}) == ""
    assert said(cluster, tenant, "jobs", plain, inner={names.LABEL_APP: "trainer"}) == ""
    assert "may not make jobs" in said(cluster, tenant, "jobs", plain, inner={names.LABEL_APP: names.AGENT_APP})


def test_the_job_controller_makes_no_agent_of_another_job_than_its_own(cluster: Lab, tenant: str) -> None:
    """A Job with `manualSelector` names any other one in its pods' labels."""
    assert said(cluster, tenant, "pods", AGENT, CONTROLLER) == ""
    for forged in (AGENT | {OF_JOB: "uid-of-the-operators-job"}, {names.LABEL_APP: names.AGENT_APP}):
        assert "which the operator takes for its agents" in said(cluster, tenant, "pods", forged, CONTROLLER)


@dataclass(frozen=True)
class Agent:
    """An agent's Job, and the pod that the Job controller has made; and the Job of another one, which Kueue holds."""

    cluster: Lab
    namespace: str
    pod: str
    job: str = "pp-0123456789abcdef"
    held: str = "pp-fedcba9876543210"

    def change(self, kind: str, changes: dict[str, Any], user: str = STRANGER) -> str:
        """What the API server says to a patch (dry run) of `user`, who has all rights; empty: it is taken."""
        held = "suspend" in changes.get("spec", ()) or "template" in changes.get("spec", ())
        name = self.pod if kind.startswith("pods") else self.held if held else self.job
        acting = ("-n", self.namespace, f"--as={user}", "--as-group=system:masters", "--dry-run=server")
        kind, _, part = kind.partition("/")
        acting += (f"--subresource={part}",) if part else ()
        return words(self.cluster, "patch", kind, name, *acting, "--type=strategic", f"-p={json.dumps(changes)}")


@pytest.fixture(scope="module")
def agent(cluster: Lab, api: ApiServer, tenant: str) -> Agent:
    """Made as the operator makes its agents, owner included; nothing runs: the cluster has no node."""
    marks = {names.LABEL_APP: names.AGENT_APP, names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: "r1"}
    notes = {names.ANNOTATION_NODE: "n0", names.ANNOTATION_REQUEST_HASH: "h0"}
    profile_uid = api.call("GET", path(tenant, names.PROFILE_PLURAL, "old-idle"))[1]["metadata"]["uid"]
    owner = {"apiVersion": names.API_VERSION, "kind": names.PROFILE_KIND, "name": "old-idle", "uid": profile_uid}
    pod = POD | {"activeDeadlineSeconds": 3600, "schedulingGates": [{"name": "example.com/held"}]}
    template = {"metadata": {"labels": marks, "annotations": notes}, "spec": pod}
    spec = {"completions": 1, "parallelism": 1, "activeDeadlineSeconds": 3600, "template": template}
    meta = {"labels": marks, "annotations": notes, "ownerReferences": [owner | {"controller": True}]}
    for name in (Agent.job, Agent.held):
        body = {"metadata": meta | {"name": name}, "spec": spec | {"suspend": name == Agent.held}}
        make(cluster, tenant, {"apiVersion": "batch/v1", "kind": "Job"} | body, OPERATOR)
    pods = eventually(lambda: cluster.get("pods", "-n", tenant, f"-l={OF_NAME}={Agent.job}")["items"])
    return Agent(cluster, tenant, pods[0]["metadata"]["name"])


def make(cluster: Lab, namespace: str, body: dict[str, Any], user: str) -> None:
    acting = (f"--as={user}", "--as-group=system:masters")
    cluster.kubectl("create", "-f", "-", "-n", namespace, *acting, stdin=json.dumps(body))


ANOTHER = [{"name": "c", "image": "registry.example.com/another"}]
LABELLED: list[dict[str, Any]] = [
    {"metadata": {"labels": AGENT}},
    {"spec": {"template": {"metadata": {"labels": {names.LABEL_APP: names.AGENT_APP}}}}},
]
RUN_AS_ANNOTATION = {"metadata": {"labels": {names.LABEL_RUN: None}, "annotations": {names.LABEL_RUN: "r1"}}}
PROTECTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "the pod's image": ("pods", {"spec": {"containers": ANOTHER}}, "images of spec.containers"),
    "the pod's node": ("pods", {"metadata": {"annotations": {names.ANNOTATION_NODE: "n1"}}}, f"{OURS} of metadata"),
    "the pod's run": ("pods", {"metadata": {"labels": {names.LABEL_RUN: None}}}, f"{OURS} of metadata"),
    "the run as an annotation": ("pods", RUN_AS_ANNOTATION, f"{OURS} of metadata"),
    "the run by a status": ("pods/status", {"metadata": {"labels": {names.LABEL_RUN: None}}}, f"{OURS} of metadata"),
    "a new name of ours": ("pods", {"metadata": {"labels": {f"{names.GROUP}/more": "a"}}}, f"{OURS} of metadata"),
    "who manages the pod": ("pods", {"metadata": {"labels": {names.LABEL_MANAGED_BY: "me"}}}, f"{OURS} of metadata"),
    "the pod's label": ("pods", {"metadata": {"labels": {names.LABEL_APP: None}}}, "metadata.labels"),
    "the pod's Job": ("pods", {"metadata": {"labels": {OF_JOB: "another"}}}, f"{OF_JOB} of metadata.labels"),
    "the name of the pod's Job": ("pods", {"metadata": {"labels": {OF_NAME: None}}}, f"{OF_NAME} of metadata.labels"),
    "the pod's owner": ("pods", {"metadata": {"ownerReferences": None}}, "metadata.ownerReferences"),
    "the pod's deadline": ("pods", {"spec": {"activeDeadlineSeconds": 5}}, "spec.activeDeadlineSeconds"),
    "the Job's request": (
        "jobs",
        {"metadata": {"annotations": {names.ANNOTATION_REQUEST_HASH: "h1"}}},
        f"{OURS} of metadata",
    ),
    "the Job's run as an annotation": ("jobs", RUN_AS_ANNOTATION, f"{OURS} of metadata"),
    "the Job's label by status": ("jobs/status", {"metadata": {"labels": {names.LABEL_APP: "a"}}}, "metadata.labels"),
    "the Job's label": ("jobs", {"metadata": {"labels": {names.LABEL_APP: "mine"}}}, "metadata.labels"),
    "the Job's owner": ("jobs", {"metadata": {"ownerReferences": None}}, "metadata.ownerReferences"),
    "the Job's parallelism": ("jobs", {"spec": {"parallelism": 0}}, "spec.parallelism"),
    "the Job's deadline": ("jobs", {"spec": {"activeDeadlineSeconds": 5}}, "spec.activeDeadlineSeconds"),
    "the Job's template": ("jobs", {"spec": {"template": TO_FLAVOR}}, "spec.template"),
    "a held Job": ("jobs", {"spec": {"suspend": False}}, "spec.suspend"),
}
"""What a stranger with all rights changes of an agent, and what the refusal names."""
FREE = TABLES["free"]


@pytest.mark.parametrize("what", PROTECTED)
def test_what_an_agent_runs_and_measures_is_changed_by_nobody(what: str, agent: Agent) -> None:
    kind, changes, field = PROTECTED[what]
    of = "pod" if kind.startswith("pods") else "Job"
    assert f"agent: {STRANGER} may not change {field} of the {of} of an agent. A{ASK[1:]}" in agent.change(
        kind, changes
    )


@pytest.mark.parametrize("what", FREE)
def test_all_other_fields_of_an_agent_are_free_for_any_account(what: str, agent: Agent) -> None:
    assert agent.change(*FREE[what]) == ""


def test_kueues_account_holds_a_job_and_lets_it_go_with_its_flavors_labels(agent: Agent) -> None:
    let_go = {"spec": {"suspend": False, "template": TO_FLAVOR}}
    assert agent.change("jobs", let_go, KUEUE) == ""
    assert "may not change spec.parallelism" in agent.change("jobs", {"spec": {"parallelism": 2}}, KUEUE)
    assert "may not change spec.template, spec.suspend" in agent.change("jobs", let_go, STRANGER)


def test_the_job_controller_and_the_garbage_collector_let_an_agents_pod_go(agent: Agent) -> None:
    for user in (CONTROLLER, "system:kube-controller-manager", COLLECTOR):
        released = {"metadata": {"ownerReferences": None, "finalizers": None}}
        assert agent.change("pods", released, user) == "", user
    assert agent.change("jobs", {"metadata": {"ownerReferences": None}}, COLLECTOR) == ""


MORE = TABLES["more"]
NOT_ENTERED = (
    "may not run commands in, attach to, add containers to, or resize the pod of an agent. Read its logs instead, or "
    + ASK
)


def command(cluster: Lab, namespace: str, verb: str, user: str, pod: str) -> str:
    """What the API server says to a command in a pod. It runs nowhere: what is let through says so."""
    rest = ("--", "true") if verb == "exec" else ()
    return words(cluster, verb, pod, "-n", namespace, f"--as={user}", *rest)


@pytest.fixture(scope="module")
def users(cluster: Lab, agent: Agent) -> None:
    """A tenant with `edit`, and somebody who may write reports' status and enter pods, as an admin may."""
    namespace = ("-n", agent.namespace)
    cluster.kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}", *namespace)
    cluster.kubectl("create", "rolebinding", "admin", "--clusterrole=edit", f"--user={ADMIN}", *namespace)
    verbs = "get,update,patch"
    resources = "nodeprecisionreports.precisionprofiler.io/status,pods/ephemeralcontainers,pods/resize"
    cluster.kubectl("create", "role", "reports", f"--verb={verbs}", f"--resource={resources}", *namespace)
    cluster.kubectl("create", "rolebinding", "reports", "--role=reports", f"--user={ADMIN}", *namespace)
    make(
        cluster,
        agent.namespace,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pp-train-0"}, "spec": POD},
        "a",
    )
    eventually(lambda: not words(cluster, "auth", "can-i", "create", "pods/exec", *namespace, f"--as={TENANT}"))


@pytest.mark.usefixtures("users")
@pytest.mark.parametrize("verb", ["exec", "attach"])
def test_a_tenant_runs_no_command_in_an_agent_and_whoever_writes_reports_may(
    verb: str, cluster: Lab, agent: Agent
) -> None:
    eventually(lambda: f"agent: {TENANT} {NOT_ENTERED}" in command(cluster, agent.namespace, verb, TENANT, agent.pod))
    through = [
        command(cluster, agent.namespace, verb, ADMIN, agent.pod),
        command(cluster, agent.namespace, verb, TENANT, "pp-train-0"),
    ]
    assert all("ValidatingAdmissionPolicy" not in text for text in through), through


@pytest.mark.usefixtures("users")
@pytest.mark.parametrize("part", MORE)
def test_an_agent_gets_nothing_more_but_by_whoever_writes_reports(part: str, agent: Agent, cluster: Lab) -> None:
    here = ("-n", agent.namespace)
    pod = ("pod", agent.pod, *here, f"--subresource={part}", "--dry-run=server")
    patch = ("patch", *pod, "--type=strategic", f"-p={json.dumps({'spec': MORE[part]})}")
    assert words(cluster, *patch, f"--as={ADMIN}") == ""
    cluster.kubectl("create", "role", part, "--verb=get,patch", f"--resource=pods/{part}", *here)
    cluster.kubectl("create", "rolebinding", part, f"--role={part}", f"--user={TENANT}", *here)
    eventually(lambda: f"agent: {TENANT} {NOT_ENTERED}" in words(cluster, *patch, f"--as={TENANT}"))


@pytest.mark.usefixtures("users")
def test_logs_describe_port_forward_and_delete_are_not_touched(agent: Agent, cluster: Lab) -> None:
    here = ("-n", agent.namespace, f"--as={TENANT}")
    assert words(cluster, "describe", "pod", agent.pod, *here) == ""
    assert words(cluster, "delete", "pod", agent.pod, *here, "--dry-run=server") == ""
    for verb in (("logs", agent.pod), ("port-forward", agent.pod, ":80")):
        refusal = words(cluster, *verb, *here)
        assert "ValidatingAdmissionPolicy" not in refusal
        assert "forbidden" not in refusal.lower()


def test_the_agents_label_is_not_put_on_later(cluster: Lab, api: ApiServer, tenant: str) -> None:
    job = {"metadata": {"name": "plain"}, "spec": {"suspend": True, "template": {"spec": POD}}}
    assert api.call("POST", paths.jobs(tenant), job)[0] == 201
    for labels in LABELLED:
        code, answer = api.call("PATCH", paths.item(paths.jobs(tenant), "plain"), labels, kind=MERGE_PATCH)
        assert (code, "which the operator takes for its agents" in answer.get("message", "")) == (403, True)
