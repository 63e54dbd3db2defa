"""`compare`: two sides by name or file, in words and numbers; and that it refuses what nobody could answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_api.facts.recipes import RECIPE_NAMES
from precision_operator.cluster import paths
from tests.cli.api import Api
from tests.report.sample import full_result
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status

OLD, NEW = "570.124.06", "580.95.05"
DRIVERS = ("compare", f"driver/{OLD}", f"driver/{NEW}")
MEASURED = {"provenance": "measured", "simulated": [], "backend": "transformer-engine"}
PAST = {"run": "r0", "outcome": "succeeded", "finishedAt": "2026-11-01T00:00:00Z", "best": "nvfp4 1.60x"}


def node(
    name: str, rate: float, driver: str = NEW, pool: str = "NVIDIA-GB200", past: Any = None, **run: Any
) -> dict[str, Any]:
    """A measured node; `past` is the run before, as its report's history has it."""
    row = recipe_row("nvfp4", 1.6, tokensPerJoule=f"{rate / 5000:.4f}", tokensPerSecond=f"{rate:.0f}")
    status = report_status([row], **(MEASURED | run)) | {"data": "measured"}
    status["hardware"] = status["hardware"] | {"pool": pool}
    status["software"] = status["software"] | {"driver": driver, "stackHash": "5ac1"}
    if past is not None:
        status["history"] = [past]
    return report_object(name, status=status)


def holds(api: Api, *reports: dict[str, Any]) -> None:
    api.profiles(profile_object())
    api.reports(*reports)


def before(rate: float, **changes: Any) -> dict[str, Any]:
    """A run under the old driver in full: two recipes, of which the newest run has one, at 5 kW."""
    rates = {"bf16": f"{rate / 1.6:.0f}", "nvfp4": f"{rate:.0f}"}
    joules = {recipe: f"{float(text) / 5000:.4f}" for recipe, text in rates.items()}
    told = {"driver": OLD, "data": "measured", "workloadHash": "5ad1f0c2", "stackHash": "5ac1"}
    return PAST | told | {"recipeTokensPerSecond": rates, "recipeTokensPerJoule": joules} | changes


def upgraded(api: Api, change: float, old: Callable[[float], dict[str, Any]] = before) -> None:
    """Eight nodes that differ by 3 %, each `change` times as fast since the new driver, give or take 0.1 %."""
    api.profiles(profile_object())
    for i in range(8):
        rate = 150_000 * (1 + 0.03 * (i % 3 - 1))
        api.reports(node(f"n{i}", rate * change * (1 + 0.001 * (i % 2)), past=old(rate)))


def test_a_driver_that_made_the_fleet_slower_is_told_with_its_interval_and_may_stop_a_script(api: Api) -> None:
    upgraded(api, 0.96)
    output = api.run(*DRIVERS)
    assert output.exit_code == 0
    assert output.stdout.startswith("driver 580.95.05 is slower with nvfp4.\n")
    assert "the same 8 nodes, paired; what has changed: driver, 570.124.06 -> 580.95.05." in output.stdout
    assert "nvfp4: 4.0% slower (0.960 [0.960, 0.961]); 4.0% fewer tokens per joule" in output.stdout
    assert "not compared: hardware, method" in output.stderr
    assert api.run(*DRIVERS, "--fail-if-slower").exit_code == 7
    assert api.run("compare", f"driver/{NEW}", f"driver/{OLD}", "--fail-if-slower").exit_code == 0


@pytest.mark.parametrize("replayed", [False, True], ids=["in history", "in the basis of its run"])
def test_a_driver_that_only_the_memory_of_runs_names_is_what_has_changed(api: Api, replayed: bool) -> None:
    reports = [node(f"n{i}", 150_000 + i, past=before(140_000 + i)) for i in range(3)]
    for report in reports:
        del report["status"]["software"]["driver"]
        if replayed:
            report["status"]["attempt"]["basis"] = {"driver": NEW}
        else:
            report["status"]["history"].insert(0, PAST | {"run": report["status"]["run"]["run"], "driver": NEW})
    holds(api, *reports)
    output = api.run(*DRIVERS)
    assert f"paired; what has changed: driver, {OLD} -> {NEW}." in output.stdout
    assert output.stderr == "note: not recorded on one side or both, so not compared: hardware, method\n"


def test_of_an_older_operators_reports_it_is_unknown_whether_they_were_measured(api: Api) -> None:
    past = PAST | {"driver": OLD.rpartition(".")[0]}  # no more than the rate, nor what the figures are
    upgraded(api, 0.96, lambda rate: past | {"recipeTokensPerSecond": {"nvfp4": f"{rate:.0f}"}})
    output = api.run("compare", "driver/570.124", f"driver/{NEW}").stdout
    assert output.startswith("Unknown whether measured: driver 570.124. An older operator did not record")
    assert "driver 580.95.05 is slower with nvfp4." in output
    found = api.printed("compare", "driver/570.124", f"driver/{NEW}")
    assert found["data"] == {"a": "unknown whether measured", "b": "measured"}
    assert found["recipes"][0]["tokensPerJoule"] is None, "such a report keeps no energy of an older run"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "simulated"}, "driver and data"),
        ({"stackHash": "5ac0"}, "driver and software"),
        ({"workloadHash": "0"}, "driver and workload"),
    ],
)
def test_what_an_older_run_had_different_beside_driver_is_found(api: Api, changed: dict[str, Any], said: str) -> None:
    upgraded(api, 0.96, lambda rate: before(rate, **changed))
    done = api.run(*DRIVERS)
    assert (done.exit_code, done.stdout) == (5, "")
    assert f"SeveralDifferences: the sides differ in 2 things at once ({said})" in done.stderr


def test_two_older_runs_are_compared_in_all_recipes(api: Api) -> None:
    reports = [node(f"n{i}", 150_000) for i in range(3)]
    for i, report in enumerate(reports):
        report["status"]["history"] = [before(99_000 + i, run="r0b", driver=NEW), before(90_000 + i)]
    holds(api, *reports)
    found = api.printed("compare", "run/r0", "run/r0b")
    assert found["difference"] == "driver"
    assert [row["recipe"] for row in found["recipes"]] == ["bf16", "nvfp4"]
    assert [row["tokensPerJoule"]["ratio"] for row in found["recipes"]] == pytest.approx([1.1, 1.1], rel=1e-3)


def test_the_interval_of_one_node_comes_from_what_its_report_remembers(api: Api) -> None:
    api.profiles(profile_object())
    report = node("n0", 150_000, past=before(140_000, rateError="0.004"))
    report["status"]["results"][0]["tokensPerSecondError"] = "0.003"
    api.reports(report)
    (row,) = api.printed(*DRIVERS)["recipes"]
    assert row["tokensPerSecond"]["upper"] == pytest.approx(150 / 140 * 1.005, rel=1e-6)


def test_the_newest_run_is_told_by_the_report_even_where_its_history_names_another_driver(api: Api) -> None:
    holds(api, *(node(f"n{i}", 150_000 + i, past=PAST | {"run": "r1", "driver": "label"}) for i in range(2)))
    assert api.printed("compare", "driver/label", f"driver/{NEW}")["data"] == {"a": "measured", "b": "measured"}


def test_no_difference_is_said_nodes_are_compared_and_profiles_must_be_told_apart(api: Api) -> None:
    upgraded(api, 1.0)
    told = api.run(*DRIVERS).stdout
    assert told.startswith(
        "driver 580.95.05 is as fast as driver 570.124.06: no difference beyond noise, and none above 2%.\n"
    )
    told = api.run("compare", "n0", "n1").stdout
    assert "node n1 against node n0, one node against another; what has changed: the nodes themselves." in told
    api.profiles(profile_object("other"))
    api.reports(report_object("n0", profile="other"))
    done = api.run("compare", "n0", "n1")
    told = "2 profiles have results (nightly, other): name one with --profile"
    assert (done.exit_code, told in done.stderr) == (2, True)
    assert api.run("compare", "n0", "n1", "--profile", "nightly").exit_code == 0


def test_few_nodes_that_vary_say_what_it_takes_to_know_also_beside_a_recipe_of_one_node(api: Api) -> None:
    changes = enumerate((0.98, 1.03, 1.0))
    holds(api, *(node(f"n{i}", 150_000 * change, past=before(150_000)) for i, change in changes))
    output = api.run(*DRIVERS).stdout
    assert output.startswith(
        "Whether driver 580.95.05 is faster or slower than driver 570.124.06 is not known: the intervals are wider "
        "than 2% and hold 1; with nodes that differ as these 3 do, it takes about 9 to tell.\n"
    )
    assert (
        "nvfp4: faster or slower is not known (1.003 [0.943, 1.067]); more or fewer tokens per joule is not known"
        in output
    )
    (row,) = api.printed(*DRIVERS)["recipes"]
    assert (row["tokensPerSecond"]["answer"], row["tokensPerSecond"]["nodesNeeded"]) == ("notKnown", 9)
    lonely = node("n3", 150_000, past=before(150_000))
    lonely["status"]["results"].append(recipe_row("bf16") | {"tokensPerSecond": "93750"})
    api.reports(lonely)
    output = api.run(*DRIVERS).stdout
    assert "bf16: tokens per second 1.000 (no interval)" in output
    assert "with nodes that differ as these 4 do, it takes about" in output


def test_two_pools_are_two_groups_and_a_product_names_its_only_pool(api: Api) -> None:
    api.profiles(profile_object())
    for i in range(4):
        api.reports(node(f"a{i}", 100_000 + 200 * i, pool="A"), node(f"b{i}", 130_000 + 300 * i, pool="B"))
    found = api.printed("compare", "pool/A", "B")
    assert (found["how"], found["difference"]) == ("groups", "hardware")
    ratio = found["recipes"][0]["tokensPerSecond"]
    assert found["recipes"][0]["teraflopsPerGPU"] == {"a": 1520.0, "b": 1520.0}
    assert "TFLOP/S/GPU" in (shown := api.run("compare", "pool/A", "B").stdout)
    assert "1,520 -> 1,520" in shown
    assert ratio["lower"] < ratio["ratio"] < ratio["upper"]
    assert ratio["ratio"] == pytest.approx(1.3, rel=0.01)
    assert ratio["answer"] == "more"
    for report in api.collections[paths.reports("ml")][1::2]:
        report["status"]["hardware"]["product"] = "GB300"
    assert api.printed("compare", "pool/A", "pool/GB300")["b"] == "pool B"
    api.reports(node("c", 130_000, pool="C"))
    done = api.run("compare", "pool/A", "pool/GB200")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no pool GB200" in done.stderr


def test_two_drivers_are_compared_on_the_hardware_that_both_have(api: Api) -> None:
    api.profiles(profile_object())
    for i in range(4):
        api.reports(node(f"a{i}", 100_000 + 100 * i, driver=OLD), node(f"b{i}", 103_000 + 100 * i))
        api.reports(node(f"c{i}", 130_000, pool="NVIDIA-GB300"))
    refused = api.run(*DRIVERS)
    assert (refused.exit_code, refused.stderr.endswith("--difference driver\n")) == (5, True)
    found = api.printed(*DRIVERS, "--difference", "driver")
    assert (found["how"], found["difference"]) == ("groups", "driver")
    assert found["recipes"][0]["tokensPerSecond"]["ratio"] == pytest.approx(1.03, rel=0.002)
    assert f"driver {NEW}: 4 nodes are left out, since driver {OLD} has no such hardware" in found["notes"]


def test_pools_may_have_drivers_of_their_own_where_their_hardware_is_what_is_asked_about(api: Api) -> None:
    api.profiles(profile_object())
    for i in range(3):
        api.reports(node(f"a{i}", 100_000, driver=OLD, pool="A"), node(f"b{i}", 130_000, pool="B"))
    api.reports(node("b3", 130_000, driver=OLD, pool="B"))
    found = api.printed("compare", "A", "B", "--difference", "hardware")
    assert (found["how"], found["difference"]) == ("groups", "hardware")
    assert "the hardware's drivers differ too, and are in the figures" in found["notes"][0]


def test_a_file_or_a_mixed_group_is_refused(api: Api, tmp_path: Path) -> None:
    holds(api, node("a0", 1e5, driver=OLD, pool="A"), node("a1", 1e5, pool="A"), node("b0", 1e5, pool="B"))
    done = api.run("compare", "A", "B")
    assert (done.exit_code, "MixedSide: pool A is mixed in driver" in done.stderr) == (5, True)
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "Pod", "metadata": {"name": "p"}}))
    done = api.run("compare", str(path), str(path))
    assert (done.exit_code, "it holds Pod; save reports with kubectl get npr -o json" in done.stderr) == (2, True)


def saved(folder: Path, name: str, *reports: dict[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps({"kind": "List", "items": list(reports)}))
    return str(path)


def test_saved_reports_are_compared_without_a_cluster_energy_included(api: Api, tmp_path: Path) -> None:
    old = saved(tmp_path, "before.json", *(node(f"n{i}", 100_000 + 10 * i, driver=OLD) for i in range(4)))
    after = saved(tmp_path, "after.json", *(node(f"n{i}", 103_000 + 11 * i) for i in range(4)))
    api.reachable = False
    found = api.printed("compare", old, after)
    assert (found["how"], found["difference"], found["was"], found["now"]) == ("paired", "driver", OLD, NEW)
    assert found["recipes"][0]["tokensPerJoule"]["ratio"] == pytest.approx(1.03, abs=0.001)


def test_a_saved_result_is_a_side_too(api: Api, tmp_path: Path) -> None:
    for name, run in (("a.json", "r1"), ("b.json", "r2")):
        (tmp_path / name).write_text(full_result(run=run).model_dump_json(by_alias=True))
    found = api.printed("compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert found["how"] == "single"
    answers = {row["recipe"]: row["tokensPerSecond"]["answer"] for row in found["recipes"]}
    assert answers == dict.fromkeys(("bf16", "fp8_current", "mxfp8", "nvfp4", *RECIPE_NAMES[7:]), "noDifference")


def test_one_node_says_that_noise_is_not_known_and_simulated_figures_come_first(api: Api) -> None:
    holds(api, node("n0", 150_000, past=before(140_000)))
    output = api.run(*DRIVERS).stdout
    assert output.startswith("Whether there is a difference can't be said")
    assert "nvfp4: tokens per second 1.071 (no interval); tokens per joule 1.071 (no interval).\n" in output
    simulated = {"past": before(1.4e5, data="simulated"), "provenance": "simulated"}
    holds(api, *(node(f"n{i}", 1.5e5 + i, **simulated) for i in range(3)))
    assert api.run(*DRIVERS).stdout.startswith("SIMULATED or replayed figures")


WRONG = {
    "nothing of the name": (("driver/999", f"driver/{NEW}"), 2, "there is no driver 999 in namespace ml"),
    "part of a pool's name": (("pool/gb200", "pool/b"), 2, "no pool gb200 in namespace ml; did you mean NVIDIA-GB200?"),
    "nothing near": (("run/zzz", "run/r0"), 2, "there is no run zzz in namespace ml (there is "),
    "a near name": (("n00", "n1"), 2, "did you mean n0"),
    "a difference that is none": (("n0", "n1", "--difference", "moon"), 2, "moon is none of hardware, driver"),
    "none": ((*DRIVERS[1:], "--difference", "workload"), 5, "differs in workload alone: the sides differ in driver"),
}


@pytest.mark.parametrize(("words", "code", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_compared_says_why(api: Api, words: tuple[str, ...], code: int, said: str) -> None:
    upgraded(api, 1.0)
    done = api.run("compare", *words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
