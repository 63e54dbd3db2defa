"""`doctor`: each check broken once, and a user who lacks rights."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from precision_api.facts.names import API_VERSION, DEFAULT_PRIORITY_CLASS
from precision_api.kinds.crdgen import KINDS, definition
from precision_operator.cli.kubectl import through_kubectl
from precision_operator.cli.options import Reach
from precision_operator.cluster import paths
from precision_operator.core import rbac
from precision_operator.core.observe.clock import format_time
from precision_operator.core.status.doctor import CHECKS, INSTANCE, checked
from precision_operator.doctor import main
from precision_operator.shell.observing.installation import looked_at
from precision_operator.shell.settings import BINDINGS
from tests.cli.api import Api
from tests.cli.test_gathering import ROLE, deployment, installed
from tests.support.node_objects import node_object
from tests.support.report_objects import profile_object

HOME, NAME, BAD = "precision-system", "precision-profiler-", "registry.example.com/x"
OPENAPI, REVIEWS = f"/openapi/v3/apis/{API_VERSION}", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/precisionprofiles.precisionprofiler.io"
PROGRAM, PODS = f"{paths.deployments(HOME)}/{NAME}", paths.pods(HOME)
LEASE, SECRET = paths.item(paths.leases(HOME), f"{NAME}operator"), paths.collection("v1", "secrets", "ml") + "/login"
ACCOUNTS, STOP = paths.collection("v1", "serviceaccounts", HOME), paths.item(paths.config_maps(HOME), f"{NAME}stop")
ACCOUNT = paths.collection("v1", "serviceaccounts", "ml") + "/precision-profiler-agent"
CLASS = paths.collection("scheduling.k8s.io/v1", "priorityclasses") + f"/{DEFAULT_PRIORITY_CLASS}"
TAINT, READY = {"taints": [{"key": "sku", "value": "gpu", "effect": "NoSchedule"}]}, {"type": "Ready", "status": "True"}
ENDS = {"deletionTimestamp": "2026-11-27T10:00:00Z"}
ARGS = ("--agent-image=r.test/agent:1", "--allowed-images=r.test/", f"--lease-name={NAME}operator")


def review(component: rbac.Component) -> str:
    return f"{REVIEWS} as system:serviceaccount:{HOME}:{component}"


def row(kind: str) -> dict[str, Any]:
    return {"rows": [{"cells": ["login", f"kubernetes.io/{kind}", 1, "3d"]}]}


@pytest.fixture
def sound(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """An installation in which all is well, with a free node."""
    monkeypatch.setattr(f"{looked_at.__module__}.sleep", AsyncMock())
    for component in rbac.COMPONENTS:
        labels = ROLE | {"app.kubernetes.io/component": component, INSTANCE: "pp"}
        program = deployment(*ARGS, f"--stop-config-map={NAME}stop", name=NAME + component)
        program["metadata"]["labels"] = labels
        program["spec"]["template"]["spec"] |= {"serviceAccountName": component}
        container = program["spec"]["template"]["spec"]["containers"][0]
        program["status"] = {"updatedReplicas": 1}
        container |= {"image": "r.test/operator:1", "ports": [{"name": "metrics", "containerPort": 9464}]}
        meta = {"name": f"{component}-0", "namespace": HOME, "labels": labels}
        api.objects |= {f"{PROGRAM}{component}": program, f"{ACCOUNTS}/{component}": {}}
        api.hold(PODS, {"metadata": meta, "spec": {"containers": [container]}, "status": {"conditions": [READY]}})
        rows = json.dumps([row for rules in rbac.table()[component].values() for row in rules])
        rows = rows.replace(rbac.OWN_DEPLOYMENT, NAME + component).replace(rbac.OWN_STOP, f"{NAME}stop")
        api.objects[review(component)] = {"status": {"resourceRules": json.loads(rows)}}
    api.hold(*installed(api.objects[f"{PROGRAM}operator"])[1])
    schemas = {kind.kind: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
    marked = {name: {**s, "x-kubernetes-group-version-kind": [{"kind": name}]} for name, s in schemas.items()}
    api.objects[OPENAPI] = json.loads(json.dumps({"components": {"schemas": marked}}))
    api.objects[LEASE] = {"spec": {"holderIdentity": "operator-0_0a", "leaseDurationSeconds": 600}}
    renew(api, 3)
    api.objects[DEFINITION] = {"metadata": {"labels": {INSTANCE: "pp"}}}
    api.objects |= {ACCOUNT: {"imagePullSecrets": [{"name": "login"}]}, SECRET: row("dockerconfigjson"), CLASS: {}}
    scraped = '{"at": "2026-11-27T10:00:00Z", "by": "Prometheus/3.5.0 from 10.0.0.7"}'
    api.texts[f"{PODS}/exporter-0:9464/proxy/scraped"] = scraped
    api.hold(paths.NODES, node_object(name="a"))
    for kind in (paths.profiles, paths.reports, paths.jobs, paths.pods):
        api.hold(kind("ml"))
    return api


def renew(api: Api, seconds: int) -> None:
    api.objects[LEASE]["spec"]["renewTime"] = format_time(datetime.now(UTC) - timedelta(seconds=seconds))


def states(api: Api) -> tuple[dict[str, str], dict[str, Any]]:
    done = api.run("doctor", "-o", "json")
    told = json.loads(done.stdout)
    seen = {row["check"]: row["state"] for row in told["checks"]}
    assert done.exit_code == (9 if "wrong" in seen.values() else 0 if seen["operator"] == "ok" else 3), done.stderr
    return seen, told


def reinstalled(api: Api, seconds: int) -> None:
    renew(api, 900)
    ready = READY | {"lastTransitionTime": format_time(datetime.now(UTC) - timedelta(seconds=seconds))}
    api.collections[PODS][0]["status"] = {"conditions": [ready]}


def no_definitions(api: Api) -> None:
    del api.objects[OPENAPI], api.collections[paths.profiles("ml")]


def old_definitions(api: Api) -> None:
    schemas = api.objects[OPENAPI]["components"]["schemas"]
    del schemas["PrecisionProfile"]["properties"]["spec"]["properties"]["rollout"]["properties"]["canary"]


def behind(api: Api, kind: str, status: str) -> None:
    said = {"type": kind, "status": status, "reason": "FailedCreate", "message": "exceeded quota"}
    api.objects[f"{PROGRAM}operator"]["status"] = {
        "conditions": [{"type": "Progressing", "status": "True"}, said][::-1]
    }


def old_presets(api: Api) -> None:
    schemas = api.objects[OPENAPI]["components"]["schemas"]
    workload = schemas["PrecisionProfile"]["properties"]["spec"]["properties"]["workload"]
    workload["properties"]["preset"]["enum"].remove("kimi-k2")


def container(api: Api, **changes: Any) -> None:
    api.objects[f"{PROGRAM}operator"]["spec"]["template"]["spec"]["containers"][0] |= changes


def look_alike(api: Api) -> None:
    api.collections[BINDINGS].clear()
    api.hold(paths.deployments(HOME), api.objects[f"{PROGRAM}operator"])


def granted(api: Api) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = api.objects[review("operator")]["status"]["resourceRules"]
    return rules


def without_claims(api: Api) -> None:
    program = api.objects[f"{PROGRAM}operator"]["spec"]["template"]["spec"]["containers"][0]
    container(api, args=[*program["args"], "--no-resource-claims"])
    api.refused = {paths.collection("resource.k8s.io/v1", "resourceslices"): "forbidden"}
    granted(api)[:] = [rule for rule in granted(api) if rule["apiGroups"] != ["resource.k8s.io"]]


def unpulled(api: Api, component: int) -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "401"}}}
    api.collections[PODS][component]["status"] = {"containerStatuses": [waiting]}


OF_OPERATOR = tuple(name for name in CHECKS if name not in ("definitions", "operator"))
BROKEN: dict[str, tuple[Callable[[Api], Any], str, str, tuple[str, ...]]] = {
    "no definitions": (no_definitions, "definitions", "does not serve", ("GPU nodes",)),
    "old definitions": (old_definitions, "definitions", "they lack PrecisionProfile.spec.rollout.canary", ()),
    "old presets": (old_presets, "definitions", "they lack PrecisionProfile.spec.workload.preset=kimi-k2", ()),
    "no operator": (lambda api: api.objects.pop(f"{PROGRAM}operator"), "operator", "no Deployment", OF_OPERATOR),
    "a look-alike that no binding names": (look_alike, "operator", "no Deployment", OF_OPERATOR),
    "another version": (lambda api: container(api, args=[]), "operator", "another version", OF_OPERATOR),
    "no leader": (lambda api: api.objects.pop(LEASE), "leader", "no replica leads", ()),
    "a silent leader": (lambda api: renew(api, 900), "leader", "operator-0_0a, renewed 9", ()),
    "a Lease that the release before left": (lambda api: reinstalled(api, 9), "", "", ("leader",)),
    "a Lease that no pod takes": (lambda api: reinstalled(api, 1300), "leader", "renewed 9", ()),
    "a right less": (lambda api: granted(api).pop(0), "rights", "the operator may not get/list/watch nodes", ()),
    "no pod": (lambda api: api.collections[PODS].pop(0), "pods", "operator: 0 of 1 ready", ("leader",)),
    "a pod too few": (lambda api: api.objects[f"{PROGRAM}operator"]["spec"].update(replicas=2), "pods", "1 of 2", ()),
    "no new pod": (lambda it: behind(it, "ReplicaFailure", "True"), "pods", "0 of 1 updated: FailedCreate", ()),
    "a pause": (lambda it: behind(it, "Progressing", "Unknown"), "pods", "0 of 1 updated: FailedCreate", ()),
    "unread": (lambda it: it.objects[f"{PROGRAM}operator"]["metadata"].update(generation=2), "pods", "obser", ()),
    "another's": (lambda api: api.collections[PODS][0]["metadata"].update(labels=ROLE), "pods", "0 of 1", ("leader",)),
    "no agent's account": (lambda api: api.objects.pop(ACCOUNT), "pull Secrets", "no ServiceAccount ml/prec", ()),
    "no account": (lambda api: api.objects.pop(f"{ACCOUNTS}/exporter"), "pull Secrets", "no ServiceAccount prec", ()),
    "an example": (lambda api: container(api, image=BAD), "image names", "as registry.ex", ()),
    "ex": (lambda it: (container(it, image=BAD), unpulled(it, 0)), "image names", "as registry.ex", ("pods", "leader")),
    "no image": (lambda api: unpulled(api, 0), "pods", "operator-0: ImagePullBackOff 401", ("leader",)),
    "no image of the exporter": (lambda api: unpulled(api, 1), "pods", "exporter-0: ImagePullBackOff", ("exporter",)),
    "no login": (lambda api: api.objects.pop(SECRET), "pull Secrets", "no docker-registry Secret ml/login", ()),
    "another Secret": (lambda api: api.objects.update({SECRET: row("tls")}), "pull Secrets", "Secret ml/login", ()),
    "an old login": (lambda api: api.objects.update({SECRET: row("dockercfg")}), "", "", ()),
    "a pod that ends": (lambda api: api.collections[PODS][0]["metadata"].update(ENDS), "pods", "0 of 1", ("leader",)),
    "taint": (lambda it: it.collections[paths.NODES][0].update(spec=TAINT), "GPU nodes", "1 UntoleratedTaint. a: ", ()),
    "no GPU": (lambda api: api.collections[paths.NODES].clear(), "", "", ("GPU nodes",)),
    "no PriorityClass": (lambda api: api.objects.pop(CLASS), "GPU nodes", "PriorityClassMissing: ", ()),
    "a silent exporter": (lambda api: api.texts.clear(), "exporter", "exporter-0: ", ()),
    "no exporter": (lambda api: api.objects.pop(f"{PROGRAM}exporter"), "", "", ("exporter",)),
    "no claims": (without_claims, "", "", ()),
    "no list": (lambda api: api.objects[review("exporter")].update(status={"incomplete": True}), "", "", ("rights",)),
}


@pytest.mark.parametrize(("broken", "wrong", "message", "unchecked"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_wrong_what_needs_it_is_not_checked_and_the_rest_is_ok(
    sound: Api, broken: Callable[[Api], Any], wrong: str, message: str, unchecked: tuple[str, ...]
) -> None:
    broken(sound)
    seen, told = states(sound)
    assert seen == {name: "wrong" if name == wrong else "not checked" if name in unchecked else "ok" for name in CHECKS}
    for row in told["checks"]:
        assert message in row["message"] or row["check"] != wrong
        assert bool(row["fix"]) == (row["state"] == "wrong")
        assert "helm" not in row["fix"] or wrong == "operator" or "--install pp CHART -n precision-s" in row["fix"]
        assert told["next"] == row["fix"] or row["state"] != "wrong"


def test_each_right_that_a_user_lacks_leaves_a_check_unmade_and_none_wrong(sound: Api) -> None:
    seen, told = states(sound)
    assert set(seen.values()) == {"ok"}
    assert '"target":{"nodeNames":["a"]}' in told["next"]
    asked = {path for path, _ in sound.asked}
    for path in asked:
        sound.refused = {path: f"{path} is forbidden"}
        seen, told = states(sound)
        assert set(seen.values()) == {"ok", "not checked"}, path
        assert f"needs a right: {path} is forbidden" in {row["message"] for row in told["checks"]}
    sound.refused = dict.fromkeys(asked, "forbidden")
    lines = sound.run("doctor").stdout.splitlines()
    assert [line.partition("  ")[0] for line in lines[:-2]] == ["not checked"] * len(CHECKS)
    assert lines[-1] == "next: kubectl auth can-i --list"
    assert sound.run("doctor").stderr.endswith("ask for these rights, or name its namespace with -n\n")
    for sound.refusal in (302, 407, 429, 500, 503):
        done = sound.run("doctor")
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"{sound.refusal}" in done.stderr or "redirect" in done.stderr


def test_with_a_namespace_labels_do_in_place_of_bindings_and_other_releases_are_named(sound: Api) -> None:
    other = deployment(*ARGS, name="zz-operator")
    sound.objects[f"{paths.deployments(HOME)}/zz-operator"] = other
    sound.hold(*installed(other)[1])
    words = "precision-profiler-operator, version unknown, serves ml; other releases, not checked: "
    assert f"{words}precision-system/zz-operator\n" in sound.run("doctor").stdout
    look_alike(sound)
    sound.refused = {BINDINGS: "forbidden"}
    assert states(sound)[0]["operator"] == "not checked"
    done = sound.run("doctor", "-n", HOME)
    assert (done.exit_code, done.stdout.count("ok           ")) == (0, len(CHECKS))


def test_commands_are_for_the_cluster_that_was_asked(sound: Api) -> None:
    command, asked = ("doctor", "--context=team's", "--kubeconfig=/k"), """context='team'"'"'s' --kubeconfig=/k\n"""
    assert sound.run(*command).stdout.endswith(f" apply -f - --{asked}")
    container(sound, image=BAD)
    assert sound.run(*command).stdout.count(f"=IMAGE --kube-{asked}") == 2, "fix and next"
    old_definitions(sound)
    sound.objects[DEFINITION] = {"metadata": {}}
    assert f"fix: kubectl apply --server-side -f crds.yaml --{asked}" in sound.run(*command).stdout


@pytest.mark.parametrize("behind_by", [900, -3600])
def test_a_leader_is_a_ready_pod_that_renews_whatever_its_clock_says(sound: Api, behind_by: int) -> None:
    renew(sound, behind_by)
    assert states(sound)[0]["leader"] == "wrong"
    with patch(f"{looked_at.__module__}.sleep", AsyncMock(side_effect=lambda _: renew(sound, behind_by - 7))):
        assert states(sound)[0]["leader"] == "ok"
    renew(sound, 3)
    sound.objects[LEASE]["spec"]["holderIdentity"] = "operator-1_0a"
    assert "operator-1_0a holds the Lease, and is no ready pod" in sound.run("doctor").stdout


def test_who_is_impersonated_does_not_impersonate(sound: Api) -> None:
    words = "not checked  rights        needs a right: jane is impersonated"
    assert words in sound.run("doctor", "--as=jane").stdout
    (sound.folder / "where").write_text("ml https://api.test:6443 jane")
    assert words in sound.run("doctor").stdout


def test_who_has_profiles_is_shown_them_and_another_place_has_no_operator(sound: Api) -> None:
    sound.hold(paths.deployments("ml"))
    sound.hold(paths.deployments("other"))
    assert "ok           operator" in sound.run("doctor", "-n", "ml").stdout
    output = sound.run("doctor", "-n", "other").stdout
    assert "precision-system/precision-profiler-operator does not serve other, but ml\n" in output
    assert output.endswith("--reset-then-reuse-values --set 'watchNamespaces={ml,other}'\n")
    sound.profiles(profile_object(status={}))
    assert states(sound)[1]["next"] == "kubectl precision -n ml status"
    sound.objects[STOP] = {"data": {"agents": "End"}}
    assert "1 StoppedByAdmin; free: none" in sound.run("doctor").stdout
    with patch.multiple("precision_operator.doctor", PATIENCE_SECONDS=0, _facts=AsyncMock(return_value={})):
        assert main(["--deployment=x"]) == 1


async def test_the_operator_that_asks_itself_reads_its_own_deployment_and_rights(sound: Api) -> None:
    (sound.folder / "where").write_text(f"{HOME} https://api.test:6443")
    del sound.collections[BINDINGS], sound.objects[f"{PROGRAM}exporter"]
    sound.objects[f"{REVIEWS} as None"] = sound.objects.pop(review("operator"))
    sound.refused = {ACCOUNT: "no role may read Secrets"}

    async def scrape(pod: dict[str, Any], port: int) -> str:
        return f'{{"at": "{port}", "by": "{pod["metadata"]["name"]}"}}'

    with through_kubectl(Reach(), 30.0) as cluster:
        made = checked(await looked_at(cluster, scrape, asker=f"{NAME}operator"))["checks"]
    assert [row["check"] for row in made if row["state"] != "ok"] == ["pull Secrets"]
    assert made[-1]["message"] == "answers; last scraped at 9464 by exporter-0"
