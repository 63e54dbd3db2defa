"""The dry run: what a profile would do to each node, from saved nodes or from a cluster, and why."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from precision_api.facts import names
from precision_operator.cli import app
from precision_operator.cli.commands.dry_run import plan_text
from precision_operator.cli.gathering import ProfileInFile, Seen, gathered, planned
from precision_operator.cli.operator_settings import UNKNOWN_SETTINGS
from precision_operator.cli.output import OutputFormat
from precision_operator.cluster import ApiError, paths
from precision_operator.core.eligibility.request import ResolvedProfile, resolve_profile
from precision_operator.core.observe.clock import format_time
from precision_operator.core.status.decisions import rows
from tests.cli.test_gathering import agent_of, training_pod
from tests.support.fake_cluster import FakeCluster
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.report_objects import report_status
from tests.support.small_model import FROM_CONFIG_MAP, SMALL_LLAMA
from tests.support.world import observed, profile

PROFILE: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": names.PROFILE_KIND,
    "metadata": {"name": "nightly", "namespace": "ml"},
    "spec": {"workload": {"preset": "llama3-8b"}},
}
GB200 = {"nvidia.com/gpu.product": "NVIDIA-GB200"}


def profile_file(folder: Path, **changes: Any) -> str:
    """A file with PROFILE; `changes` replace fields of its spec."""
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(PROFILE | {"spec": PROFILE["spec"] | changes}))
    return str(path)


def nodes_file(folder: Path, *found: dict[str, Any]) -> str:
    path = folder / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    return str(path)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["dry-run", *arguments], input=stdin)


def printed(*arguments: str, stdin: str | None = None) -> list[dict[str, str]]:
    result = run(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def test_who_starts_who_queues_and_who_is_not_meant_is_told_apart(tmp_path: Path) -> None:
    fleet = [node_object(GB200, name=name, gpus="4") for name in ("a", "b")] + [node_object(name="c")]
    out = printed("-f", profile_file(tmp_path, target={"products": ["GB200"]}), "--nodes", nodes_file(tmp_path, *fleet))
    assert [(row["node"], row["decision"], row["reason"]) for row in out] == [
        ("a", "run", "WouldStart"),
        ("b", "queue", "MaxConcurrentReached"),
        ("c", "ignore", "NotMatched"),
    ]
    assert out[0]["message"] == "4 whole GB200 GPUs, idle: attempt 1 would start now."
    assert "asks for GB200, its GPU is NVIDIA-H100" in out[2]["message"]


def test_an_image_is_not_judged_without_the_operator_and_namespaces_must_agree(tmp_path: Path) -> None:
    path = profile_file(tmp_path, agent={"image": "elsewhere.example/agent:2"})
    result = run("-f", path, "--nodes", nodes_file(tmp_path, node_object()))
    assert result.exit_code == 0
    assert "nodes count as idle, and the operator's settings and other profiles are not known" in result.stderr
    result = run("-f", profile_file(tmp_path), "-n", "other", "--nodes", nodes_file(tmp_path))
    assert (result.exit_code, "namespace is ml, --namespace says other" in result.stderr) == (2, True)


SHAPES_OF_A_FILE = {
    "a list": lambda node: {"kind": "List", "items": [node]},
    "a NodeList whose items carry no kind": lambda node: {
        "kind": "NodeList",
        "items": [{key: node[key] for key in node.keys() - {"kind", "apiVersion"}}],
    },
    "an array": lambda node: [node],
    "a single node": lambda node: node,
}


@pytest.mark.parametrize("shape", SHAPES_OF_A_FILE.values(), ids=SHAPES_OF_A_FILE)
@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["JSON", "YAML"])
def test_nodes_are_read_in_every_form_that_kubectl_saves_them_in(tmp_path: Path, shape: Any, write: Any) -> None:
    path = tmp_path / "nodes"
    path.write_text(write(shape(node_object(name="a"))))
    assert [row["node"] for row in printed("-f", profile_file(tmp_path), "--nodes", str(path))] == ["a"]


def test_the_first_profile_of_several_documents_on_stdin_is_taken(tmp_path: Path) -> None:
    second = PROFILE | {"spec": {"workload": {"preset": "no-such"}}}
    text = yaml.safe_dump_all([{"kind": "Namespace", "metadata": {"name": "ml"}}, None, PROFILE, second])
    assert len(printed("-f", "-", "--nodes", nodes_file(tmp_path, node_object()), stdin=text)) == 1


def test_no_nodes_give_no_rows_and_the_next_run_stands_in_80_columns(tmp_path: Path) -> None:
    none = ("-f", profile_file(tmp_path), "--nodes", nodes_file(tmp_path))
    assert printed(*none) == []
    assert run(*none).stdout == "There are no nodes.\n"
    assert run(*none, "-o", "csv").stdout == "node,decision,reason,message\n"
    asked = ("-f", profile_file(tmp_path, schedule={"cron": "0 3 * * 0"}))
    line = run(*asked, "--nodes", nodes_file(tmp_path, node_object(name="gb200-0000"))).stdout.splitlines()[1]
    assert re.search(r"It starts at \d{4}-\d\d-\d\dT03:00:00Z:", line[:80])


def test_the_table_folds_messages_and_counts_and_wide_shows_them_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fleet = nodes_file(tmp_path, node_object(name="a"), node_object(name="b", gpus="0"))
    table = run("-f", profile_file(tmp_path), "--nodes", fleet).stdout.splitlines()
    assert table[0].split() == ["NODE", "DECISION", "REASON", "MESSAGE"]
    assert table[-1] == "2 nodes: 1 run, 1 wait"
    assert max(map(len, table)) <= 80
    wide = run("-f", profile_file(tmp_path), "--nodes", fleet, "-o", "wide").stdout.splitlines()
    message = table[0].index("MESSAGE")
    said = next(row["message"] for row in printed("-f", profile_file(tmp_path), "--nodes", fleet) if row["node"] == "b")
    begins = next(place for place, line in enumerate(table) if line.startswith("b "))
    assert "".join(line[message:] for line in table[begins:-2]).replace(" ", "") == said.replace(" ", "")
    assert wide[0].split() == ["NODE", "PRODUCT", "GPUS", "BY", "POOL", "DUE", "DECISION", "REASON", "MESSAGE"]
    assert wide[2].endswith(said)


def test_a_config_map_is_given_as_a_file_and_missed_by_name_where_it_is_not(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SMALL_LLAMA))
    asked = ("-f", profile_file(tmp_path, workload=FROM_CONFIG_MAP), "--nodes", nodes_file(tmp_path, node_object()))
    missing = run(*asked)
    assert missing.exit_code == 2
    assert "ConfigMapMissing: ConfigMap my-model, which spec.workload names" in missing.stderr
    assert [row["decision"] for row in printed(*asked, "--config-map", f"my-model={config}")] == ["run"]
    assert "takes nothing from a ConfigMap other" in run(*asked, "--config-map", f"other={config}").stderr
    assert "no NAME=FILE" in run(*asked, "--config-map", "my-model").stderr


WRONG: dict[str, tuple[str, str]] = {
    "no such file": ("", "reading {path}: No such file or directory; check the path"),
    "no profile": ("kind: Pod", "{path}: there is no PrecisionProfile in it, only Pod"),
    "nothing": ("---", "{path}: there is no PrecisionProfile in it, only nothing"),
    "a word": ("hello", "{path}: it holds 'hello', which is no Kubernetes object"),
    "no YAML": ("{a: [", "{path}: neither JSON nor YAML: "),
    "another version": (yaml.safe_dump(PROFILE | {"apiVersion": "x/v1"}), "apiVersion is 'x/v1'; this version reads"),
    "no spec": (yaml.safe_dump(PROFILE | {"spec": None}), "the PrecisionProfile has no spec; add one"),
    "no name": (yaml.safe_dump(PROFILE | {"metadata": {}}), "the PrecisionProfile has no metadata.name"),
    "a field that is unknown": (
        yaml.safe_dump(PROFILE | {"spec": {"workload": {"preset": "llama3-8b"}, "maxConcurrent": 4}}),
        "spec.maxConcurrent is no field here: check the spelling",
    ),
    "a preset that is unknown": (
        yaml.safe_dump(PROFILE | {"spec": {"workload": {"preset": "bert"}}}),
        "spec.workload.preset: input should be 'codonfm-5b',",
    ),
    "a preset that is misspelt": (
        yaml.safe_dump(PROFILE | {"spec": {"workload": {"preset": "lama3-8b"}}}),
        "error: spec.workload.preset: there is no 'lama3-8b'; did you mean llama3-8b or",
    ),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_profile_that_cannot_be_used_says_why_on_stderr(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "given.yaml"
    if text:
        path.write_text(text)
    result = run("-f", str(path), "--nodes", nodes_file(tmp_path, node_object()))
    assert (result.exit_code, result.stdout) == (2, "")
    assert words.format(path=path) in result.stderr


WRONG_NODES: dict[str, tuple[object, str]] = {
    "pods": ({"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "p"}}]}, "it holds Pod; save nodes with"),
    "a node without a name": ({"kind": "Node", "metadata": {}}, "it holds Node; save nodes with kubectl get nodes"),
    "a node that is there twice": ([node_object(), node_object()], "node n1 is in it twice"),
    "a number": (5, "it holds '5', which is no Kubernetes object"),
}


@pytest.mark.parametrize(("document", "words"), WRONG_NODES.values(), ids=WRONG_NODES)
def test_what_is_no_list_of_nodes_is_refused(tmp_path: Path, document: object, words: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(document))
    result = run("-f", profile_file(tmp_path), "--nodes", str(path))
    assert result.exit_code == 2
    assert words in result.stderr


def test_without_a_cluster_the_program_imports_no_client(tmp_path: Path) -> None:
    saved = ("dry-run", "-f", profile_file(tmp_path), "--nodes", nodes_file(tmp_path, node_object()))
    client = "kubernetes aiohttp kopf"
    shapes = (("shapes", "--preset", "codonfm-5b"), f"{client} yaml prometheus_client torch")
    for words, heavy in ((saved, client), shapes):
        program = f"import sys; from precision_operator.cli import app; app({words!r}, standalone_mode=False); "
        program += f"sys.exit(' '.join(m for m in '{heavy}'.split() if m in sys.modules) or 0)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode, [it for it in done.stderr.splitlines() if it[:6] != "note: "]) == (0, []), words


# From a cluster.


def applied(run_of_it: str) -> dict[str, Any]:
    """PROFILE as it stands in the cluster, with a run that the operator has given."""
    return PROFILE | {"metadata": {**PROFILE["metadata"], "uid": "uid-p"}, "status": {"run": run_of_it}}


def its_report(run_of_it: str, node: str) -> dict[str, Any]:
    status = report_status(run=run_of_it)
    status["attempt"]["run"] = run_of_it
    found = resolve_profile(question().profile, observed())
    assert isinstance(found, ResolvedProfile)
    status["attempt"]["basis"] = {"spec": found.run, "agent": "the-operators-image"}
    meta = {"name": f"nightly-{node}", "namespace": "ml", "uid": f"uid-report-{node}"}
    meta["labels"] = {names.LABEL_MANAGED_BY: names.MANAGED_BY}  # type: ignore[assignment]
    meta["ownerReferences"] = [{"kind": names.PROFILE_KIND, "uid": "uid-p"}]  # type: ignore[assignment]
    spec = {"profile": "nightly", "nodeName": node, "nodeUID": f"uid-{node}"}
    return {"metadata": meta, "spec": spec, "status": status}


def question(**changes: Any) -> ProfileInFile:
    return ProfileInFile(profile("nightly", uid="nightly", workload={"preset": "llama3-8b"}, **changes))


def fleet(*found: str) -> list[tuple[str, dict[str, Any]]]:
    return [(paths.NODES, node_object(name=name)) for name in found]


async def decided(cluster: FakeCluster, asked: ProfileInFile) -> dict[str, tuple[str, str]]:
    seen = await planned(cluster, asked)  # type: ignore[arg-type]
    found = rows(seen.plan.profiles[0], seen.plan, seen.observed)
    return {row["node"]: (row["decision"], row["reason"]) for row in found}


async def test_in_a_cluster_a_busy_node_is_told_as_busy_also_where_a_limit_holds_it_first() -> None:
    pods = ((paths.pods(f"team-{node}"), training_pod(node)) for node in ("a", "d"))
    cluster = FakeCluster(*fleet("a", "b", "c", "d"), *pods)
    assert await decided(cluster, question()) == {
        "a": ("wait", "Busy"),
        "b": ("run", "WouldStart"),
        "c": ("queue", "MaxConcurrentReached"),
        "d": ("wait", "Busy"),
    }
    looks = [path for method, path in cluster.requests if "spec.nodeName" in path]
    assert [path.split("spec.nodeName=")[1][0] for path in looks] == ["a", "b", "c", "d"]
    assert {method for method, _ in cluster.requests} == {"LIST"}, "a dry run only reads"


async def test_what_the_same_question_has_measured_is_done_whatever_image_the_operator_took() -> None:
    there = applied("the-operators-run")
    measured = its_report("the-operators-run", "a")
    cluster = FakeCluster(*fleet("a", "b"), (paths.profiles("ml"), there), (paths.reports("ml"), measured))
    assert await decided(cluster, question()) == {"a": ("done", "Measured"), "b": ("run", "WouldStart")}
    again = await decided(cluster, question(recipes=["fp8_current"]))
    assert again == {"a": ("run", "WouldStart"), "b": ("queue", "MaxConcurrentReached")}


async def test_a_running_agent_of_the_profile_takes_its_place() -> None:
    there = applied("r1")
    cluster = FakeCluster(*fleet("a", "b"), (paths.profiles("ml"), there), (paths.jobs("ml"), agent_of("uid-p", "a")))
    assert await decided(cluster, question()) == {"a": ("run", "AgentStarting"), "b": ("queue", "MaxConcurrentReached")}


def beside(name: str, place: str = "ml", **spec: Any) -> tuple[str, dict[str, Any]]:
    """Another profile, as it stands in the cluster, older than any that is asked about."""
    meta = {"name": name, "namespace": place, "uid": f"uid-{place}-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return paths.profiles(place), PROFILE | {"metadata": meta, "spec": PROFILE["spec"] | spec}


async def test_only_the_rows_of_the_asked_profile_are_printed_also_beside_one_of_its_name() -> None:
    same_name = beside("nightly", "far", target={"nodeNames": ["b"]})
    asked = question(rollout={"maxConcurrent": 9})
    seen = await planned(FakeCluster(*fleet("a", "b"), same_name), asked)  # type: ignore[arg-type]
    rows = json.loads(plan_text("ml/nightly", seen.plan, seen.observed, OutputFormat.JSON))
    assert [(row["node"], row["reason"]) for row in rows] == [("a", "WouldStart"), ("b", "MeasuredByAnotherProfile")]


async def test_a_profile_in_a_file_is_the_youngest_and_another_one_than_that_whose_uid_it_carries() -> None:
    first = beside("first", target={"nodeNames": ["a"]})
    ahead = first[1]["metadata"] | {"creationTimestamp": "2099-01-01T00:00:00Z", "uid": "nightly"}
    cluster = FakeCluster(*fleet("a"), (first[0], first[1] | {"metadata": ahead}))
    assert await decided(cluster, question()) == {"a": ("queue", "MeasuredByAnotherProfile")}


async def test_what_a_dry_run_says_is_what_the_operator_plans_once_the_profile_is_applied() -> None:
    """Three profiles with limits of their own; then the same world with the third one applied."""
    one = {"pools": [{"name": "NVIDIA-H100-80GB-HBM3", "maxConcurrent": 1}]}
    there = [
        beside("first", rollout=one, target={"nodeNames": ["a", "b"]}),
        beside("second", "far", rollout={"maxConcurrent": 2}, target={"nodeNames": ["b", "c"]}),
    ]
    world = (*fleet("a", "b", "c", "d"), *there, (paths.pods("team"), training_pod("d")))
    before = await planned(FakeCluster(*world), question(rollout={"maxConcurrent": 9}))  # type: ignore[arg-type]
    applied = beside("nightly", rollout={"maxConcurrent": 9})[1]
    applied["metadata"]["creationTimestamp"] = format_time(datetime.now(UTC))
    after = await gathered(FakeCluster(*world, (paths.profiles("ml"), applied)), None, "a", True)  # type: ignore[arg-type]

    def reasons(seen: Seen) -> dict[str, dict[str, str]]:
        return {
            each.profile.key: {row["node"]: row["reason"] for row in rows(each, seen.plan, seen.observed)}
            for each in seen.plan.profiles
        }

    assert reasons(before) == reasons(after)
    assert len(set(reasons(before)["ml/nightly"].values())) > 1, "the world is one where profiles bind each other"


async def test_without_the_operators_deployment_an_image_that_it_has_refused_stays_refused() -> None:
    condition = {"type": "Accepted", "status": "False", "reason": "ImageNotAllowed"}
    where, other = beside("other", agent={"image": "elsewhere.example/agent:2"})
    cluster = FakeCluster(*fleet("a"), (where, other | {"status": {"conditions": [condition]}}))
    for image, refused in (("elsewhere.example/agent:2", "ImageNotAllowed"), ("new.example/agent", None)):
        own = (await planned(cluster, question(agent={"image": image}))).plan.profiles[0]  # type: ignore[arg-type]
        assert getattr(own.asked, "reason", None) == refused


async def test_who_may_not_see_pods_or_config_maps_is_told() -> None:
    cluster = FakeCluster(*fleet("a"))
    cluster.fail("LIST", "spec.nodeName=a", ApiError(403, "Forbidden", "pods is forbidden"))
    seen = await planned(cluster, question())  # type: ignore[arg-type]
    assert [row["reason"] for row in rows(seen.plan.profiles[0], seen.plan, seen.observed)] == ["WouldStart"]
    unjudged = f"{UNKNOWN_SETTINGS}, since its Deployment is not to be seen"
    assert seen.notes == (unjudged, "nodes count as idle, since you may not see all pods: pods is forbidden")
    cluster = FakeCluster(*fleet("a"))
    cluster.fail("GET", "configmaps", ApiError(403, "Forbidden", "configmaps is forbidden"))
    with pytest.raises(ApiError, match="configmaps is forbidden"):
        await planned(cluster, ProfileInFile(profile(workload=FROM_CONFIG_MAP)))  # type: ignore[arg-type]


async def test_a_config_map_that_came_with_the_profile_is_not_read() -> None:
    texts = {("ml", "my-model"): {"config.json": json.dumps(SMALL_LLAMA)}}
    given = ProfileInFile(profile(workload=FROM_CONFIG_MAP), texts)
    cluster = FakeCluster(*fleet("a"))
    found = (await planned(cluster, given)).plan  # type: ignore[arg-type]
    assert isinstance(found.profiles[0].asked, ResolvedProfile)
    assert not [path for _, path in cluster.requests if "configmaps" in path]


def test_a_model_whose_state_does_not_fit_on_the_gpus_is_noted_once_a_product(tmp_path: Path) -> None:
    labels = GB200 | {"nvidia.com/gpu.memory": "188416"}
    path = nodes_file(tmp_path, *(node_object(labels, name=f"node-{i}") for i in range(2)))
    big = run("-f", profile_file(tmp_path, workload={"preset": "llama3.1-70b", "optimizerShards": 4}), "--nodes", path)
    assert big.exit_code == 0, big.stderr
    notes = [line for line in big.stderr.splitlines() if "would not fit" in line]
    assert len(notes) == 1
    assert notes[0].startswith("note: GB200: a job that trains llama3.1-70b as described would not fit: weights, ")
    assert "635 GB of a GPU's 198 GB" in notes[0]
    small = run("-f", profile_file(tmp_path, workload={"preset": "llama3-8b", "optimizerShards": 4}), "--nodes", path)
    assert "would not fit" not in small.stderr
    assert "one layer" not in small.stderr


def test_a_name_that_no_node_has_is_told_with_the_nearest(tmp_path: Path) -> None:
    nodes = nodes_file(tmp_path, node_object(name="gb200-0001"))
    profile = profile_file(tmp_path, target={"nodeNames": ["gb200-0001", "gb200-001"]})
    output = run("-f", profile, "--nodes", nodes)
    words = "there is no node gb200-001; did you mean gb200-0001? See kubectl get nodes\n"
    assert f"note: spec.target.nodeNames: {words}" in output.stderr
    assert output.stderr.count("there is no node") == 1


@pytest.mark.parametrize(("shape", "fits"), [("16384x16384x16384", True), ("16777216x16777216x16777216", False)])
def test_a_shape_that_no_gpu_has_memory_for_is_told(tmp_path: Path, shape: str, fits: bool) -> None:
    m, k, n = map(int, shape.split("x"))
    profile = profile_file(tmp_path, workload={"name": "huge", "shapes": [{"m": m, "k": k, "n": n}]})
    labels = EIGHT_H100 | {"nvidia.com/gpu.memory": "81559"}
    output = run("-f", profile, "--nodes", nodes_file(tmp_path, node_object(labels, name="a")))
    assert output.exit_code == 0, output.stderr
    words = "does not fit: its three matrices take 1,690,000 GB in BF16, a GPU has 85.5 GB"
    assert (words in output.stderr) is not fits


def test_a_layer_that_does_not_fit_is_noted_with_its_experts_before_an_agent_starts(tmp_path: Path) -> None:
    path = nodes_file(tmp_path, node_object(GB200 | {"nvidia.com/gpu.memory": "81559"}, name="node-0"))
    whole, spread = (
        run("-f", profile_file(tmp_path, workload={"preset": "kimi-k2", **more}), "--nodes", path).stderr
        for more in ({}, {"expertParallel": 8})
    )
    said = "note: GB200: one layer with {} experts on each GPU beside a dense one {} with all recipes at"
    assert said.format(384, "does not fit") in whole
    assert "of 86 GB, 85% of them usable; bf16 alone: 113 GB), so there is no training figure: expertParallel " in whole
    assert said.format(48, "fits") + " once" in spread
    mixed = profile_file(
        tmp_path,
        workload={"preset": "kimi-k2"},
        recipes=["nvfp4"],
        mixtures=[{"name": "m", "mlp": "nvfp4", "head": "mxfp8"}],
    )
    assert "nvfp4, m: " in run("-f", mixed, "--nodes", path).stderr
    untrained = profile_file(tmp_path, workload={"preset": "kimi-k2"}, benchmarks={"training": {"enabled": False}})
    assert "one layer" not in run("-f", untrained, "--nodes", path).stderr
