"""`support-bundle`: what is in the archive, what is not, and what it says where it may not look."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from precision_operator.cli.commands.support_bundle import REMOVED, Bundle, plain_object, without_secrets
from precision_operator.cluster import ApiError, paths
from precision_operator.cluster.errors import TIMEOUT
from precision_operator.shell.settings import BINDINGS
from tests.cli.api import Api
from tests.cli.test_gathering import ROLE, installed
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.report_objects import profile_object, report_object

TABLES = beside(__file__)

APPS, PROGRAM = "apps/v1", "precision-profiler-operator"
AGENT = {"app.kubernetes.io/name": "precision-agent"}
POD = "precision-profiler-operator-7d4b9"
PLANTED = TABLES["planted"]
API_ACCESS = TABLES["api_access"]
"""What the API server adds to each pod that has a token."""


def files_of(path: Path) -> dict[str, str]:
    """The archive's texts by name, below its one folder."""
    with tarfile.open(path) as packed:
        members = [(member.name.partition("/")[2], packed.extractfile(member)) for member in packed.getmembers()]
        return {name: file.read().decode() for name, file in members if file is not None}


def world(api: Api, secret: str) -> None:
    """Everything that a bundle holds, with `secret` in each place where somebody may have put one."""
    noted = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": f"planted {secret}", "note": secret}}
    api.profiles(profile_object())
    report = report_object("a")
    report["status"]["attempt"] = {"run": "r", "number": 1, "outcome": "failed", "finishedAt": "t", "log": [secret]}
    api.reports(report)
    api.hold(paths.NODES, node_object(name="a", annotations={"team.example/note": f"planted {secret}"}))
    env = [{"name": "HUB_URL", "value": "planted"}, {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "hub"}}}]
    container = {"name": "operator", "env": env, "args": [secret], "ports": [{"containerPort": 8080}]}
    pod = {"containers": [container], "volumes": [API_ACCESS]}
    api.hold(paths.pods("ml"), {"metadata": {"name": POD, "namespace": "ml", "labels": AGENT, **noted}, "spec": pod})
    api.hold(paths.jobs("ml"), {"metadata": {"name": "pp-1", "labels": AGENT, **noted}})
    program(api, "precision-system", POD, pod, **noted)
    api.hold(*installed({"metadata": {"name": PROGRAM, "namespace": "precision-system"}})[1])
    about = {"kind": "PrecisionProfile", "name": "nightly"}
    other = {"kind": "Pod", "name": "somebody-elses"}
    events = [{"metadata": {"name": it["name"]}, "involvedObject": it, "message": secret} for it in (about, other)]
    api.hold(paths.collection("v1", "events", "ml"), *events)
    api.hold(paths.collection("precisionprofiler.io/v1alpha1", "capacityplans", "ml"))
    api.hold(paths.collection("apiextensions.k8s.io/v1", "customresourcedefinitions"))
    api.objects["/version"] = {"gitVersion": "v1.36.3"}
    pod = paths.item(paths.pods("precision-system"), POD)
    api.texts[f"{pod}/log"] = f"INFO starting\n{secret}\nINFO ready\n"
    api.texts[f"{paths.pods('precision-system')}/{POD}:8080/proxy/metrics"] = "precision_up 1\n"


def program(api: Api, namespace: str, name: str, pod: dict[str, Any], of: str = PROGRAM, **meta: Any) -> None:
    """A Deployment with the label of ours, its ReplicaSet and its pod."""
    uid = f"{namespace}-{name}"

    def held(plural: str, name: str, uid: str, owner: str, **body: Any) -> None:
        owned = {"ownerReferences": [{"uid": owner, "controller": True}]} if owner else {}
        metadata = {"name": name, "namespace": namespace, "uid": uid, "labels": ROLE, **owned, **meta}
        path = paths.collection("v1" if plural == "pods" else APPS, plural, namespace)
        api.hold(path, {"metadata": metadata, **body})

    held("deployments", of, f"{uid}-d", "")
    held("replicasets", of, f"{uid}-r", f"{uid}-d")
    held("pods", name, f"{uid}-p", f"{uid}-r", spec=pod)


@pytest.mark.parametrize("secret", PLANTED.values(), ids=PLANTED)
def test_no_planted_secret_is_in_the_archive(api: Api, tmp_path: Path, secret: str) -> None:
    world(api, secret)
    done = api.run("support-bundle", "-o", str(tmp_path / "b.tar.gz"))
    assert done.exit_code == 0, done.stderr
    found = files_of(tmp_path / "b.tar.gz")
    assert [(name, it) for name, text in found.items() for it in ("planted", "PLANTED", "eyJhbGci") if it in text] == []
    assert REMOVED in found[f"logs/{POD}-operator.log"]
    assert {asked for asked, _ in api.asked if "secrets" in asked or "configmaps" in asked} == set()


def test_the_archive_holds_what_helps(api: Api, tmp_path: Path) -> None:
    world(api, "fine")
    assert api.run("support-bundle", "-o", str(tmp_path / "b.tgz")).exit_code == 0
    found = files_of(tmp_path / "b.tgz")
    whole: dict[str, list[Any]] = {name: json.loads(text) for name, text in found.items() if name.endswith(".json")}
    assert [profile["metadata"]["name"] for profile in whole["profiles.json"]] == ["nightly"]
    assert [report["spec"]["nodeName"] for report in whole["reports.json"]] == ["a"]
    assert [event["involvedObject"]["name"] for event in whole["events.json"]] == ["nightly"]
    assert whole["nodes.json"][0]["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert found[f"logs/{POD}-operator.log"] == "INFO starting\nfine\nINFO ready\n"
    assert found[f"metrics/{POD}-operator.txt"] == "precision_up 1\n"
    assert whole["operator-pods.json"][0]["spec"]["volumes"] == [API_ACCESS]
    assert whole["operator-pods.json"][0]["spec"]["containers"][0]["env"] == [
        {"name": "HUB_URL", "value": REMOVED},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "hub"}}},
    ]
    assert found["problems.txt"] == "\n"


def test_what_may_not_be_read_is_named_and_the_rest_is_there(api: Api, tmp_path: Path) -> None:
    world(api, "fine")
    api.refused[paths.pods("precision-system")] = "pods is forbidden"
    done = api.run("support-bundle", "-o", str(tmp_path / "b.tgz"))
    assert done.exit_code == 0
    found = files_of(tmp_path / "b.tgz")
    assert "operator-pods.json is left out" in found["problems.txt"]
    assert "operator-pods.json is left out" in done.stderr
    assert json.loads(found["profiles.json"])


async def test_a_program_that_does_not_answer_costs_its_own_files_and_a_server_that_does_not_all() -> None:
    bundle = Bundle()

    async def hung() -> None:
        raise ApiError(0, TIMEOUT, "GET metrics: no answer within 30 s")

    with pytest.raises(ApiError):
        await bundle.take("version.json", hung())
    bundle.add("version.json", {})
    assert await bundle.take("metrics/a.txt", hung()) is None
    assert bundle.problems == ["metrics/a.txt is left out: GET metrics: no answer within 30 s"]


@pytest.mark.parametrize("rights", [(), ("clusterrolebindings",)], ids=["all", "no bindings"])
@pytest.mark.parametrize("asked", [("-n", "precision-system"), ("-n", "ml"), ("-A",)], ids=" ".join)
def test_logs_and_metrics_are_of_pods_that_the_releases_deployments_own(
    api: Api, tmp_path: Path, asked: tuple[str, ...], rights: tuple[str, ...]
) -> None:
    world(api, "fine")
    container = {"name": "operator", "ports": [{"containerPort": 8080}]}
    program(api, "tenant", "lookalike", {"containers": [container]})
    for namespace in ("precision-system", "tenant"):
        bare = {"name": "bare", "namespace": namespace, "uid": "b", "labels": ROLE}
        api.hold(paths.pods(namespace), {"metadata": bare, "spec": {"containers": [container]}})
    for plural in ("deployments", "replicasets"):
        api.hold(paths.collection(APPS, plural, "ml"))
    if rights:
        api.refused[BINDINGS] = "clusterrolebindings is forbidden"
    else:
        program(api, "precision-system", "lookalike", {"containers": [container]}, of="another")
    assert api.run("support-bundle", *asked, "-o", str(tmp_path / "b.tgz")).exit_code == 0
    files = files_of(tmp_path / "b.tgz")
    found = {name for name in files if name.startswith(("logs/", "metrics/"))}
    seen = not rights or asked[-1] == "precision-system"  # else nothing says where the release is
    assert found == ({f"logs/{POD}-operator.log", f"metrics/{POD}-operator.txt"} if seen else set())
    assert ("are of what calls itself the operator in" in str(files["problems.txt"])) == (bool(rights) and seen)
    assert not any("bare" in path or "lookalike" in path for path, _ in api.asked)


def test_a_file_that_is_no_archive_is_refused(api: Api) -> None:
    done = api.run("support-bundle", "-o", "json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "name it for example bundle.tar.gz" in done.stderr


@pytest.mark.parametrize("text", TABLES["begun"])
def test_what_somebody_begins_like_a_secret_takes_nothing_of_others(text: str) -> None:
    bundle = Bundle()
    bundle.add("a.json", [{"note": text}, {"name": "nightly"}])
    bundle.add("a.log", f"{text}\nIs ok\n-----END PRIVATE KEY-----\n")
    assert json.loads(bundle.files["a.json"])[1] == {"name": "nightly"}
    assert bundle.files["a.log"].endswith("\nIs ok\n(removed)\n")
    assert "planted" not in str(bundle.files)


@pytest.mark.parametrize("raw", TABLES["objects"].values(), ids=TABLES["objects"])
def test_of_an_object_secrets_go_and_everything_else_stays(raw: dict[str, Any]) -> None:
    bundle = Bundle()
    bundle.add("a.json", [plain_object(raw)])
    assert "planted" not in bundle.files["a.json"]
    assert bundle.files["a.json"].count("stays") == str(raw).count("stays")


@pytest.mark.parametrize("between", TABLES["between"])
@pytest.mark.parametrize("begin", [[], ["-----BEGIN PRIVATE KEY-----"]], ids=["cut", "whole"])
@pytest.mark.parametrize("end", ["-----END PRIVATE KEY-----", "ok"])
def test_a_key_goes_whatever_is_before_and_behind_its_lines(between: str, end: str, begin: list[str]) -> None:
    lines = [*begin, *[f"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAg{at}" for at in range(9)], end]
    bundle = Bundle()
    bundle.add("a.json", [{"note": between.join(lines), "args": lines}, {"name": "nightly"}])
    bundle.add("a.log", f"{between.join(lines)}\nIs ok\n")
    assert "MII" not in str(bundle.files)
    assert json.loads(bundle.files["a.json"])[1] == {"name": "nightly"}
    assert bundle.files["a.log"].endswith("\nIs ok\n")


@pytest.mark.parametrize("text", TABLES["plain"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
