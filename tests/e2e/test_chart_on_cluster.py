"""The chart's life on a real cluster, by Helm itself: installed from the working tree, upgraded to it from
another version with agents running, with prometheus-operator's kinds and without, and uninstalled.

One story in steps; each test looks at what one step left behind.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from precision_api.facts.names import AGENT_APP, LABEL_APP
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import KubectlError, Lab, LabSettings, start_lab
from precision_lab.monitoring import prometheus_crds
from precision_lab.processes.processes import ProcessError
from precision_lab.release.helm import Release, notes_of
from precision_lab.release.install import CHART
from precision_operator.core import rbac
from precision_operator.core.attempts.manifest import owner
from precision_operator.core.observe.clock import parse_time
from tests.support.eventually import eventually
from tests.support.golden import beside
from tests.support.helm import command_in_docs
from tests.support.other_version import CHART as IN_TREE
from tests.support.other_version import other_version
from tests.support.site import profile_manifest

TABLES = beside(__file__)

pytestmark = pytest.mark.cluster

WATCHED = "training"
LONG, SHORT = "long", "short"
FLEET = [NodeSpec("GB200", name=LONG, traits=("agent-seconds:3600",)), NodeSpec("H100", name=SHORT)]
AUTO = TABLES["auto"]
SHARED: dict[str, Any] = {"crds": {"enabled": False}, "agent": {"priorityClass": {"create": False}}}
"""Of a release that leaves to another one what a cluster has once."""
Object = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What Helm said, what the release consists of, and what was in the watched namespace when the step was over."""

    notes: str
    objects: list[Object]
    uids: dict[str, set[str]]
    """UIDs by kind: profiles, reports, Jobs and pods."""
    gone: tuple[str, ...] = ()
    """Kinds of those objects of the release that the cluster did not have any more."""

    def kinds(self) -> set[str]:
        return {item["kind"] for item in self.objects}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A cluster of this module's own: it loses its definitions in the end."""
    with start_lab(FLEET, LabSettings(agent_seconds=0.3)) as started:
        started.create_namespace(WATCHED)
        yield started


@pytest.fixture(scope="module")
def release(lab: Lab) -> Release:
    return Release(lab)


@pytest.fixture(scope="module")
def first(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Step:
    """This chart under another version; one node is measured, on the other an agent runs that does not end by itself.

    Its results outlive another agent image, which the newer chart brings.
    """
    lab, older = release.lab, other_version(tmp_path_factory.mktemp("older"))
    notes = release.put(older / IN_TREE, watchNamespaces=[WATCHED])
    operate(release)
    lab.apply(profile_manifest(WATCHED, "story", rerunOn=["DriverChange", "HardwareChange", "SpecChange"]))
    eventually(lambda: phases(lab) == {LONG: "Running", SHORT: "Measured"})
    eventually(lambda: profiles_are_counted(lab) and definition_seconds(lab) > 65, 120)
    return step(release, notes)


@pytest.fixture(scope="module")
def upgraded(release: Release, first: Step) -> Step:
    """The working tree's chart over it, without prometheus-operator; its operator has looked at the profile."""
    lab, notes = (
        release.lab,
        notes_of(release.helm(*command_in_docs("helm upgrade", "Upgrade"), "--values=-", stdin=json.dumps(AUTO))),
    )
    lab.processes.stop("operator")
    operate(release)
    lab.kubectl("patch", "pp/story", "-n", WATCHED, "--type=merge", '-p={"spec":{"rollout":{"maxConcurrent":40}}}')
    newest = lab.get("pp/story", "-n", WATCHED)["metadata"]["generation"]
    eventually(lambda: lab.get("pp/story", "-n", WATCHED)["status"]["observedGeneration"] == newest)
    return step(release, notes)


@pytest.fixture(scope="module")
def monitored(release: Release, upgraded: Step) -> Step:
    """The same values once more, where prometheus-operator's kinds are known by now."""
    for path in prometheus_crds.definitions():
        release.lab.kubectl("apply", "--server-side", "-f", str(path))
    release.lab.wait_until_established(*(f"{plural}.monitoring.coreos.com" for plural in prometheus_crds.PLURALS))
    return step(release, release.put(**AUTO))


@pytest.fixture(scope="module")
def uninstalled(release: Release, monitored: Step) -> Step:
    """Uninstalled as the defaults have it; an agent runs meanwhile."""
    release.lab.processes.stop("operator")
    notes = release.helm(*command_in_docs("helm uninstall", "Uninstall"), "--wait")
    return Step(notes, monitored.objects, present(release.lab), gone(release.lab, monitored.objects))


@pytest.fixture(scope="module")
def removed(release: Release, uninstalled: Step) -> Step:
    """Installed once more over what was kept, now not to keep it, and uninstalled again."""
    notes = notes_of(
        release.helm(
            *command_in_docs("helm install precision-profiler", "2. Install the chart"),
            "--values=-",
            stdin=json.dumps(AUTO | {"crds": {"keep": False}}),
        )
    )
    found = step(release, notes)
    collector_knows_profiles(release.lab)
    release.uninstall()
    return replace(found, gone=gone(release.lab, found.objects))


def operate(release: Release) -> None:
    """The release's operator, with the arguments and the rights that the release gives it."""
    release.programs()["operator"].start()


def step(release: Release, notes: str) -> Step:
    return Step(notes, release.objects(), present(release.lab))


def present(lab: Lab) -> dict[str, set[str]]:
    """UIDs of what there is in the watched namespace, pods that end left out."""
    found = {kind: lab.get(kind, "-n", WATCHED)["items"] for kind in ("pp", "npr", "jobs", "pods")}
    return {
        kind: {item["metadata"]["uid"] for item in items if "deletionTimestamp" not in item["metadata"]}
        for kind, items in found.items()
    }


def phases(lab: Lab) -> dict[str, str]:
    """Node to `Measured`, to the phase of its agent's pod, or to nothing yet."""
    reports = lab.get("npr", "-n", WATCHED)["items"]
    pods = lab.get("pods", "-n", WATCHED, "-l", f"{LABEL_APP}={AGENT_APP}")["items"]
    running = {pod["spec"].get("nodeName", ""): pod["status"]["phase"] for pod in pods}
    done = {report["spec"]["nodeName"]: report.get("status", {}).get("state") for report in reports}
    return {node: "Measured" if done.get(node) == "Measured" else running.get(node, "") for node in (LONG, SHORT)}


def definition_seconds(lab: Lab) -> float:
    """The age of the definition of profiles: the chart renders the quota where it is more than a minute."""
    crd = lab.get("crd/precisionprofiles.precisionprofiler.io")
    return (datetime.now(UTC) - parse_time(crd["metadata"]["creationTimestamp"])).total_seconds()


def profiles_are_counted(lab: Lab) -> bool:
    """Whether the cluster counts profiles by now: a new kind after half a minute, but for quotas that are older only
    after five."""
    lab.kubectl("create", "quota", "probe", "--hard=count/precisionprofiles.precisionprofiler.io=9", "-n", "default")
    time.sleep(2)
    used = lab.get("quota/probe", "-n", "default").get("status", {}).get("used")
    lab.kubectl("delete", "quota/probe", "-n", "default")
    return bool(used)


def collector_knows_profiles(lab: Lab) -> None:
    """Returns when the cluster's garbage collector follows profiles, which it begins within half a minute.

    Asked of it by a profile that owns a ConfigMap, and is deleted.
    """
    lab.apply(profile_manifest(WATCHED, "probe", suspend=True))
    uid = lab.get("pp/probe", "-n", WATCHED)["metadata"]["uid"]
    owned = {"name": "probe", "namespace": WATCHED, "ownerReferences": [owner("probe", uid)]}
    lab.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned})
    lab.kubectl("delete", "pp/probe", "-n", WATCHED)
    lab.kubectl("wait", "--for=delete", "configmap/probe", "-n", WATCHED, "--timeout=90s")


def gone(lab: Lab, objects: list[Object]) -> tuple[str, ...]:
    """The kinds of those objects that the cluster does not have, one for each."""
    return tuple(item["kind"] for item in objects if not there(lab, item))


def there(lab: Lab, item: Object) -> bool:
    group = item["apiVersion"].rpartition("/")[0]
    kind = f"{item['kind']}.{item['apiVersion'].rpartition('/')[2]}.{group}" if group else item["kind"]
    namespace = item["metadata"].get("namespace", "default")
    return lab.kubectl("get", kind, item["metadata"]["name"], "-n", namespace, "--ignore-not-found", "-o=name") != ""


def rights(lab: Lab, namespace: str, account: str, within: str) -> set[tuple[str, str]]:
    """(resource, verb) as `kubectl auth can-i --list` prints them to an account with its own token."""
    own = lab.service_account_kubeconfig(namespace, account)
    rows = lab.kubectl("auth", "can-i", "--list", "-n", within, kubeconfig=own).splitlines()[1:]
    return {(row.split()[0], verb) for row in rows if row[0] != " " for verb in row[row.rindex("[") + 1 : -1].split()}


def granted(component: rbac.Component, *scopes: rbac.Scope) -> set[tuple[str, str]]:
    """The same from the table."""
    return {
        (full_name(resource, row.group), verb)
        for row in rbac.GRANTS
        if row.component == component and row.scope in scopes
        for resource in row.resources
        for verb in row.verbs
    }


def full_name(resource: str, group: str) -> str:
    """`precisionprofiles/status` of a group as kubectl writes it: `precisionprofiles.GROUP/status`."""
    name, slash, part = resource.partition("/")
    return f"{name}.{group}{slash}{part}" if group else resource


def test_the_first_chart_ran_an_agent_when_the_upgrade_came(first: Step) -> None:
    assert {kind: len(uids) for kind, uids in first.uids.items() if kind in ("pp", "npr")} == {"pp": 1, "npr": 2}
    assert len(first.uids["jobs"]) >= 1


def test_an_upgrade_keeps_profiles_reports_and_running_agents(first: Step, upgraded: Step, lab: Lab) -> None:
    assert (upgraded.uids["pp"], upgraded.uids["npr"]) == (first.uids["pp"], first.uids["npr"])
    assert upgraded.uids["jobs"] <= first.uids["jobs"], "the new operator started another agent"
    assert phases(lab) == {LONG: "Running", SHORT: "Measured"}


def test_a_quota_comes_with_the_upgrade_and_refuses_a_profile_too_many(first: Step, upgraded: Step, lab: Lab) -> None:
    """Where the kind is new, Kubernetes would refuse all its objects for minutes: it does not count them yet."""
    assert "ResourceQuota" not in first.kinds()
    assert "ResourceQuota" in upgraded.kinds()
    eventually(lambda: lab.get("quota/precision-profiler-profiles", "-n", WATCHED).get("status", {}).get("used"))
    lab.apply(profile_manifest(WATCHED, "second", suspend=True))
    more = json.dumps(profile_manifest(WATCHED, "too-many"))
    eventually(lambda: "exceeded quota: precision-profiler-profiles" in refusal(lab, more))
    lab.kubectl("delete", "pp/second", "-n", WATCHED)


def refusal(lab: Lab, manifest: str) -> str:
    """What the API server says to a new object; empty where it takes it."""
    try:
        lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest)
    except KubectlError as error:
        return str(error)
    return ""


def test_everything_of_the_release_is_in_the_cluster(upgraded: Step, lab: Lab) -> None:
    assert gone(lab, upgraded.objects) == ()
    assert {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "PriorityClass"} <= upgraded.kinds()


def test_without_prometheus_operator_none_of_its_kinds_is_asked_for(upgraded: Step) -> None:
    assert upgraded.kinds() & {"ServiceMonitor", "PrometheusRule"} == set()


def test_asked_for_all_the_same_helm_says_which_kind_is_missing(release: Release, upgraded: Step) -> None:
    with pytest.raises(ProcessError, match='no matches for kind "ServiceMonitor"'):
        release.helm("upgrade", release.name, str(CHART), "--set=serviceMonitor.enabled=true", "--dry-run=server")


@pytest.mark.parametrize("program", ["helm", "helm-4"])
def test_a_second_release_hears_what_the_first_has_and_lives_beside_it(program: str, upgraded: Step, lab: Lab) -> None:
    name = f"second-by-{program}"
    second = Release(lab, name, lab.create_namespace(name), program)
    with pytest.raises(ProcessError, match="exists and cannot be imported into the current release"):
        second.put()
    with pytest.raises(ProcessError, match='namespaces "absent" not found'):
        second.put(**SHARED, watchNamespaces=["absent"])
    assert f"serves the PrecisionProfiles of: {name}" in second.put(**SHARED)
    second.uninstall()
    assert gone(lab, upgraded.objects) == ()


def test_helm_4_upgrades_and_uninstalls_what_helm_3_installed(upgraded: Step, lab: Lab) -> None:
    by_helm_3 = Release(lab, "moved", lab.create_namespace("moved"))
    by_helm_3.put(**SHARED)
    by_helm_4 = replace(by_helm_3, program="helm-4")
    by_helm_4.put(**SHARED, exporter={"replicas": 2}, extraLabels={"cost-centre": "a17"})
    objects = by_helm_4.objects()
    assert gone(lab, objects) == ()
    exporter = lab.get("deployment/moved-exporter", "-n", "moved")
    assert (exporter["spec"]["replicas"], exporter["metadata"]["labels"]["cost-centre"]) == (2, "a17")
    by_helm_4.uninstall()
    assert len(gone(lab, objects)) == len(objects)


@pytest.mark.parametrize("component", rbac.COMPONENTS)
def test_kubectl_lists_the_rights_of_the_table_and_no_others(
    component: rbac.Component, upgraded: Step, release: Release
) -> None:
    anybody = rights(release.lab, release.namespace, "default", WATCHED)
    account = f"{release.name}-{component}"
    assert rights(release.lab, release.namespace, account, WATCHED) - anybody == granted(
        component, "cluster", "namespace"
    )
    assert rights(release.lab, release.namespace, account, release.namespace) - anybody == granted(
        component, "cluster", "own"
    )


def test_with_prometheus_operator_it_gets_what_it_knows(monitored: Step, lab: Lab) -> None:
    assert "ServiceMonitor" in monitored.kinds()
    assert gone(lab, monitored.objects) == ()


def test_the_server_takes_every_object_strictly(monitored: Step, lab: Lab) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": monitored.objects})
    said = lab.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text
    )
    assert len(said.splitlines()) == len(monitored.objects)


def test_the_notes_say_what_to_do_next_and_what_becomes_of_agents(upgraded: Step) -> None:
    steps = [line.split()[0] for line in upgraded.notes.splitlines() if line.startswith("     kubectl")]
    assert len(steps) >= 3
    assert "profiles and reports stay. Agents that run go on to their own end" in upgraded.notes
    assert upgraded.notes.index(f"kubectl -n {WATCHED} delete pp --all") < upgraded.notes.index("helm uninstall")


def test_uninstalling_keeps_profiles_reports_and_agents_that_run(monitored: Step, uninstalled: Step) -> None:
    assert {kind: uninstalled.uids[kind] for kind in ("pp", "npr", "jobs")} == {
        kind: monitored.uids[kind] for kind in ("pp", "npr", "jobs")
    }
    assert uninstalled.uids["pods"] == monitored.uids["pods"] != set()


def test_uninstalling_takes_everything_but_the_definitions(uninstalled: Step) -> None:
    kinds = [item["kind"] for item in uninstalled.objects]
    assert list(uninstalled.gone) == [kind for kind in kinds if kind != "CustomResourceDefinition"]
    assert "kept due to the resource policy" in uninstalled.notes


def test_a_new_release_takes_over_what_was_kept(uninstalled: Step, removed: Step) -> None:
    assert removed.uids == uninstalled.uids
    assert "deletes the CustomResourceDefinitions, and with them every profile and report" in removed.notes


def test_uninstalled_without_keeping_profiles_go_and_agents_end(removed: Step, lab: Lab) -> None:
    assert len(removed.gone) == len(removed.objects)
    eventually(lambda: not lab.get("jobs,pods", "-n", WATCHED)["items"])
