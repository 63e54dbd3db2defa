"""`reference`: from results to a saved reference in a dry run, a create, a show and the Job that it ends with."""

import math
from functools import partial
from typing import Any

import pytest
import yaml

from precision_api.acceptance.reference import read_reference, sha256_of
from precision_api.exchange.result import MeasurementResult
from precision_api.kinds.profile import Acceptance, Schedule
from precision_api.models.workload import Workload, resolve
from precision_operator.cluster import paths
from precision_operator.cluster.client import PAGE_NODES
from precision_operator.core.attempts.verdicts import Terms
from precision_operator.core.observe.gpu_slices import published, set_of, slice_view
from precision_operator.core.observe.node_gate import CONDITION, GatedProfile
from precision_operator.shell.settings import BINDINGS
from tests.cli.api import Api
from tests.cli.test_report import with_detail
from tests.cli.test_status_and_nodes import measured
from tests.support.golden import beside
from tests.support.golden_nodes import GPUS, MADE_AT, NONE_FAILS, gpu_names, hot, many, verified
from tests.support.golden_nodes import measured_node as any_node
from tests.support.node_objects import node_object, slice_object
from tests.support.report_objects import fresh_no_more, profile_object

TABLES = beside(__file__)

SEED = 1
HASHES = {preset: resolve(Workload(preset=preset)).hash for preset in ("llama3-8b", "llama3.1-405b")}
measured_node = partial(any_node, workload_hash=HASHES["llama3-8b"])
SLICES = paths.collection("resource.k8s.io/v1", "resourceslices")
COUNTS = {"matched": 12, "eligible": 12, "queued": 3, "succeeded": 9}


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_operator.cli.commands.reference.format_time", lambda _: MADE_AT)


def golden(api: Api, *more: MeasurementResult, preset: str = "llama3-8b", flops: float = 5e10, sound: int = 8) -> None:
    """Eight sound nodes with their reports, and what else is told."""
    held = profile_object(workload={"preset": preset}, status={"phase": "Running", "nodes": COUNTS})
    held["spec"]["agent"] = {"resources": {"memory": "48Gi"}}
    api.profiles(held)
    node = partial(measured_node, seed=SEED, training_flops_per_token=flops, workload_hash=HASHES[preset])
    all_of = *(node(f"n{at}") for at in range(sound)), *more
    rack = {"product": "H100", "gpus": GPUS, "pool": "p", "nvlinkDomain": "r"}
    api.reports(*(with_detail(api, measured(found.node, hardware=rack), found) for found in all_of))
    api.hold(paths.config_maps("ml"))


def test_four_commands_lead_to_a_job_that_names_the_reference_by_its_hash(api: Api) -> None:
    golden(api, measured_node("bad", SEED, gpu_off=-9.0, training_flops_per_token=5e10))
    dry = api.run("reference", "create", "gold", "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    (row,) = (line for line in dry.stdout.splitlines() if line.startswith("bad"))
    assert (gpu_names("bad")[0] in row, row.endswith("would fail")) == (True, True)
    for words in ("check node: GPUs of a node differ by 0.3", "check change: finds nothing yet: 0 of 9 nodes ran twice",
                  "3 nodes are not measured yet: 0.3 hours at 1 at a time", "bf16: 50 TFLOP/s per GPU"):  # fmt: skip
        assert words in dry.stdout
    step = "next: kubectl precision reference create gold -n ml --profile nightly --except bad --accept-level REASON"
    assert step in dry.stderr
    assert "all golden nodes are of rack r: where racks differ" in dry.stderr
    create = ("reference", "create", "gold", "--except", "bad")
    assert (refused := api.run(*create)).exit_code == 2
    assert "bf16 reaches" in refused.stderr or "no rate of bf16 is published" in refused.stderr
    made = api.run(*create, "--accept-level", "a trial")
    assert (made.exit_code, "bad is left out: by --except" in made.stderr) == (0, True), made.stderr
    (held,) = api.collections[paths.config_maps("ml")]
    text = held["data"]["reference.json"]
    whole, asked, values = yaml.safe_load_all(made.stdout)
    job = whole["spec"]["template"]["spec"]
    assert asked["spec"]["acceptance"] == {"reference": {"name": "gold", "sha256": sha256_of(text)}}
    assert Schedule.model_validate(asked["spec"]["schedule"]).max_age == "20d"
    assert job["containers"][0]["args"][-1] == sha256_of(text)
    row = GatedProfile.model_validate(values["acceptance"]["nodeCondition"]["profiles"][0])
    terms = Terms(Acceptance.model_validate(asked["spec"]["acceptance"]), read_reference(text), "", False, 0.0)
    shown = terms.asked.reference.sha256, terms.recipes, terms.finds, ""
    assert (row.lacks(*shown), row.most_detect_percent.node) == ("", math.ceil(terms.finds["node"])), "it opens nodes"
    asks = {"memory": "48Gi", "nvidia.com/gpu": f"{GPUS}"}
    assert job["containers"][0]["resources"] == {
        "requests": {"cpu": "4", "ephemeral-storage": "0"} | asks, "limits": {"ephemeral-storage": "8Gi"} | asks,
    }  # fmt: skip
    shared = {"medium": "Memory", "sizeLimit": "8Gi"}
    assert (job["volumes"][0]["configMap"]["name"], job["volumes"][1]["emptyDir"]) == ("gold", shared)
    kept = read_reference(text)
    assert (held["immutable"], "by --except" in kept.left_out.values(), len(kept.nodes)) == (True, True, 8)
    shown_again = api.run("reference", "show", "gold").stdout.partition("\n\n")[2]
    assert [*yaml.safe_load_all(shown_again)] == [whole, asked, values]
    assert sha256_of(api.run("reference", "show", "gold", "-o", "json").stdout) == sha256_of(text)
    assert sha256_of(text)[:12] in api.run("reference", "list").stdout
    again = api.run(*create, "--accept-level", "a trial")
    assert (again.exit_code, "there is a ConfigMap gold" in again.stderr) == (2, True)


def test_who_is_no_golden_node_is_left_out_with_the_reason(api: Api) -> None:
    replayed, hotter, fallen = (measured_node(name, SEED) for name in ("replayed", "hot", "fallback"))
    odd = NONE_FAILS["Simulated"](replayed), hot(hotter), NONE_FAILS["Fallback"](fallen)
    golden(api, *odd, measured_node("slow", SEED, off=-12.0))
    stale = with_detail(api, measured("stale"), measured_node("stale", SEED))
    stale["status"]["conditions"] = [fresh_no_more("DriverChanged")]
    bare = measured("bare")
    bare["status"]["run"].pop("detail", None)
    failed, changed = (with_detail(api, measured(name), measured_node(name, SEED)) for name in ("failed", "changed"))
    failed["status"]["acceptance"] = {"verdict": "Fail", "reason": "TooSlow"}
    changed["status"]["run"]["detailSha256"] = "0" * 24
    api.reports(stale, bare, failed, changed)
    told = api.run("reference", "create", "gold", "--dry-run").stderr
    for node, why in (("replayed", "its figures are replayed, not measured"), ("hot", "throttled: hardware_thermal"),
                      ("fallback", "bf16: Fallback"), ("slow", "% from the median of all with bf16"),
                      ("stale", "stale: DriverChanged"), ("bare", "its full result is missing"),
                      ("failed", "it failed: TooSlow"), ("changed", "is not what the operator wrote")):  # fmt: skip
        assert f"note: {node} is left out: " in told
        assert why in told.partition(f"note: {node} is left out: ")[2].partition("\n")[0]
    assert "n0 is left out" not in told


def test_racks_are_compared_by_recipe_and_what_is_not_checked_is_not_promised(api: Api) -> None:
    def pair(name: str, **rates: int) -> MeasurementResult:
        rows = (verified(recipe, dict.fromkeys(gpu_names(name, 2), rate)) for recipe, rate in rates.items())
        return measured_node(name, SEED, gpus=2, recipes=tuple(rows))

    golden(api, *(pair(f"n{rate}", bf16=rate, fp8_current=2000 - rate) for rate in (997, 999, 1001, 1003)), sound=0)
    output = api.run("reference", "create", "gold", "--dry-run").stdout
    for words in ("bf16, rack r: +0.00 % (its error: 0.13 %)", "fp8_current, rack r: +0.00 %", "fails no node: needs 8",
                  "bf16, check node: finds nothing yet: fewer than three GPUs a node"):  # fmt: skip
        assert words in output


@pytest.mark.parametrize(("flops", "code"), [(5.5e11, 0), (4e11, 2)])
def test_a_rack_that_is_slow_as_a_whole_shows_beside_the_published_rate(api: Api, flops: float, code: int) -> None:
    golden(api, preset="llama3.1-405b", flops=flops)
    done = api.run("reference", "create", "gold")
    assert (done.exit_code, "bf16 reaches 77% of the published rate" in done.stderr) == (code, code == 2), done.stderr


def test_another_day_is_added_to_an_older_reference(api: Api) -> None:
    golden(api)
    assert api.run("reference", "create", "monday", "--accept-level", "a trial").exit_code == 0
    create = ("reference", "create", "tuesday", "--with", "monday", "--dry-run")
    for off in (-8.0, 0.0):
        for at in range(8):
            node = measured_node(f"n{at}", SEED, off=off, day=2, training_flops_per_token=5e10)
            with_detail(api, measured(f"n{at}"), node)
        dry = api.run(*create)
        assert ("bf16 is -7.8 % off the older reference" in dry.stderr) == (off < 0)
    assert "check change: a GPU changes from day to day by 0.3" in dry.stdout, dry.stderr
    assert "create tuesday -n ml --profile nightly --with monday" in dry.stderr


def test_an_older_references_nodes_stay_while_they_are_measured_anew(api: Api) -> None:
    golden(api)
    api.run("reference", "create", "monday", "--accept-level", "a trial")
    del api.collections[paths.reports("ml")][7]
    for report in api.collections[paths.reports("ml")][2:]:
        report["status"]["conditions"] = [fresh_no_more("RerunRequested")]
    made = api.run("reference", "create", "tuesday", "--with", "monday", "--accept-level", "a trial", "--except", "n7")
    api.collections[paths.profiles("ml")][0]["spec"]["workload"] = {"preset": "llama3.1-405b"}
    assert "its spec was edited" in api.run("reference", "create", "other", "--accept-level", "a trial").stderr
    held = {item["metadata"]["name"]: item["data"] for item in api.collections[paths.config_maps("ml")]}
    assert [*read_reference(held["tuesday"]["reference.json"]).nodes] == [f"n{at}" for at in range(7)], made.stderr


def test_the_request_is_that_of_the_golden_nodes_whoever_is_named_first(api: Api) -> None:
    trays = (many(measured_node(f"a{at}", SEED, gpus=4, product="GB200"), "bf16", "nvfp4") for at in range(3))
    cut = measured_node("c", SEED)
    golden(api, *trays, cut, *(many(measured_node(f"h{at}", SEED), "bf16", "fp8_delayed") for at in range(12)))
    assert api.run("reference", "create", "gold", "--accept-level", "a trial").exit_code == 0
    (held,) = api.collections[paths.config_maps("ml")]
    asked = read_reference(held["data"]["reference.json"]).request
    assert (asked.node.product, asked.node.gpus, asked.recipes) == ("H100", 8, ("bf16", "fp8_delayed"))


def test_a_label_splits_a_fleet_into_references_of_their_own(api: Api) -> None:
    golden(api)
    for at, value in enumerate(("air", "air", None, *["water"] * 5)):
        api.hold(paths.NODES, {"metadata": {"name": f"n{at}", "labels": {"cooling": value} if value else {}}})
    create = ("reference", "create", "wet", "--accept-level", "a trial", "--split")
    dry = api.run(*create, "cooling", "--dry-run").stderr
    for words in ("n0 is left out: its cooling is air", "n2 is left out: its cooling is not", "--split cooling=water"):
        assert words in dry
    made = api.run(*create, "cooling")
    assert next(yaml.safe_load_all(made.stdout))["spec"]["template"]["spec"]["nodeSelector"] == {"cooling": "water"}
    assert '--split, "cooling=water"]' in made.stdout
    held = read_reference(api.collections[paths.config_maps("ml")][0]["data"]["reference.json"])
    assert ([*held.nodes], held.split) == ([f"n{at}" for at in range(3, 8)], {"cooling": "water"})
    more = ("reference", "create", "more", "--accept-level", "a trial", "--with", "wet")
    assert api.run(*more).exit_code == 0, "the older one's label holds"
    assert "the older reference is split by" in api.run(*more, "--split", "cooling=air").stderr
    for label in ("rack", "=water"):
        assert f"--split {label}: no measured node" in api.run("reference", "create", "x", "--split", label).stderr


@pytest.mark.parametrize(("words", "code", "told"), TABLES["wrong"])
def test_what_is_wrong_is_told(api: Api, words: tuple[str, ...], code: int, told: str) -> None:
    golden(api)
    done = api.run("reference", *words)
    assert (done.exit_code, told in done.stderr) == (code, True), done.stderr


def gate(api: Api, **more: Any) -> None:
    held = profile_object()
    held["spec"] |= {"acceptance": {"reference": {"name": "gold", "sha256": "a" * 64}}, **more}
    api.profiles(held)
    api.hold(BINDINGS)


@pytest.mark.parametrize("refused", [False, True])
def test_acceptance_sees_gpus_by_claim_as_the_operator_does(api: Api, refused: bool) -> None:
    gate(api)
    slices = [slice_object(node="n0"), slice_object(node="n1")]
    here = published([view for it in slices if (view := slice_view(it))][:1])
    message = (
        f"x; driver 580.159.4, 8 GPUs {set_of(here.uuids if here else ())}, valid until - (node uid-n{{}}, boot b)"
    )
    for at, held in enumerate(slices):
        node = node_object({}, name=f"n{at}", gpus=None, boot="b")
        says = {"type": CONDITION, "status": "True", "reason": "Pass", "message": message.format(at)}
        node["status"]["conditions"].append(says)
        api.hold(paths.NODES, node)
        api.hold(SLICES, held)
    api.refused = {SLICES: "no"} if refused else {}
    counts = [(row["pool"], row["true"], row["minutes"]) for row in api.printed("acceptance")]
    assert counts == [("NVIDIA-H100-80GB-HBM3", 2, 10)] * (not refused), "n1 has other GPUs than were judged"
    assert ("may not list resourceslices" in api.run("acceptance").stderr) == refused
    assert {query["limit"] for path, query in api.asked if path == SLICES} == {f"{PAGE_NODES}"}


def test_acceptance_counts_a_pools_nodes_and_what_their_verdicts_would_open_and_close(api: Api) -> None:
    api.profiles(profile_object("plain"))
    refused = api.run("acceptance", "--profile", "plain")
    assert (refused.exit_code, "spec.acceptance in namespace ml: none has" in refused.stderr) == (2, True)
    within = {"nodeNames": ["cpu", *(f"n{at}" for at in range(6))]}
    gate(api, rollout={"maxConcurrent": 2}, target=within, suspend=True)
    api.hold(
        paths.NODES, *(node_object(name=f"n{at}", boot="b") for at in range(7)), node_object({}, name="cpu", gpus=0)
    )
    passing, failing = measured("n0"), measured("n1")
    for it, verdict in ((passing, "Pass"), (failing, "Fail")):
        it["spec"]["nodeUID"] = f"uid-{it['spec']['nodeName']}"
        it["status"]["acceptance"] = {"verdict": verdict, "reason": "x"}
    api.reports(passing, failing)
    (row,) = api.printed("acceptance")
    counts = {"nodes": 6, "true": 0, "stale": 0, "false": 0, "unknown": 0, "neverJudged": 6, "held": 0}
    assert row == {"pool": row["pool"], **counts, "wouldOpen": 1, "wouldClose": 1, "minutes": 21, "conditions": []}
    for said in (
        "acceptance.nodeCondition.enabled",
        "outside the profile's target, which no verdict opens: 1.",
        "suspended",
    ):
        assert said in api.run("acceptance").stderr
    other = {"type": CONDITION, "status": "False", "reason": "Fail"}
    for at in (0, 6):
        said = {"message": f"x; failed by ml/other (node uid-n{at}, boot b)"} | other
        api.collections[paths.NODES][at]["status"]["conditions"].append(said)
    assert [row["wouldOpen"] for row in api.printed("acceptance")] == [0], "another profile has to pass n0 as well"
    assert "outside the profile's target" not in api.run("acceptance").stderr, "another profile judges n6"
    assert "1 have the condition and no profile with spec.acceptance in namespace ml matches them" in (
        " ".join(api.run("acceptance").stderr.split())
    )
    del api.collections[paths.NODES][0]["status"]["conditions"][-1]
    states = ("True", "Pass"), ("True", "FailHeld"), ("False", "Fail"), ("Unknown", "x")
    for at, (status, reason) in enumerate(states):
        held = {"type": CONDITION, "status": status, "reason": reason, "message": f"x (node uid-n{at}, boot b)"}
        api.collections[paths.NODES][at]["status"]["conditions"].append(held)
    api.collections[paths.NODES][5]["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-H200"
    row, other = api.printed("acceptance")
    assert (other["pool"], other["minutes"]) == ("NVIDIA-H200", 7), "pools share the profile's concurrency"
    counts = {"nodes": 5, "true": 2, "stale": 0, "false": 1, "unknown": 1, "neverJudged": 1, "held": 1}
    said = [it.partition(" (")[0] for it in row.pop("conditions")]
    assert said == [f"1 {status}, {reason}, of this boot, since unknown" for status, reason in sorted(states)]
    assert row == {"pool": row["pool"], **counts, "wouldOpen": 0, "wouldClose": 1, "minutes": 7}, (
        "no run of n2 or n3 is due"
    )
    api.collections[paths.NODES][0]["status"]["nodeInfo"]["bootID"] = "next"
    api.collections[paths.NODES][3]["status"]["conditions"][-1]["reason"] = "SubjectChanged"
    assert [(it["stale"], it["minutes"]) for it in api.printed("acceptance")] == [(1, 14), (0, 14)]
    api.collections[paths.NODES][4]["metadata"]["labels"]["nvidia.com/mig.config"] = "all-1g.10gb"
    said = api.run("acceptance").stdout
    assert said.startswith("POOL  ")
    assert "1 can't be measured, MIGEnabled: kubectl precision why n4" in said
    assert ": 1 True, Pass, stale: it restarted, since unknown (n0): the operator, unless it is down" in said
