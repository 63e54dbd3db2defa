"""`status`, `nodes` and `fleet`: what they print of a fleet, in every form, page by page."""

import csv
import io
import re
from typing import Any

import pytest
import yaml

from precision_operator.cli.columns import keys
from precision_operator.cli.commands.fleet import COLUMNS, rows
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import Reach
from precision_operator.cli.output import as_columns
from precision_operator.cli.results import figures_view, reading_of
from precision_operator.cluster import Cluster, paths
from precision_operator.cluster.client import PAGE_ITEMS as PAGE
from precision_operator.core.observe.node_gate import CONDITION
from precision_operator.core.observe.views import report_view
from precision_operator.shell.settings import BINDINGS
from tests.cli.api import Api
from tests.support.fleets import fleet, workload
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.report_objects import (
    acceptance,
    fresh_no_more,
    profile_object,
    recipe_row,
    report_object,
    report_status,
    without_energy,
)

TABLES = beside(__file__)


def measured(node: str, rate: float = 150_000, **changes: Any) -> dict[str, Any]:
    """A measured node whose best recipe is nvfp4 at `rate`; `changes` replace fields of its status."""
    best = recipe_row("nvfp4", 1.6) | {"tokensPerSecond": f"{rate:.0f}"} | changes.pop("best", {})
    rows = [recipe_row("bf16"), best, *changes.pop("rows", [])]
    run = {"provenance": changes.get("data", "measured"), "simulated": [], "backend": "transformer-engine"}
    status = report_status(rows, **run)
    return report_object(node, status=status | {"data": "measured", "state": "Measured"} | changes)


def hold_cluster(api: Api, *nodes: str | dict[str, Any]) -> None:
    """These nodes, and nothing that runs on them."""
    api.hold(paths.NODES, *(node_object(name=node) if isinstance(node, str) else node for node in nodes))
    for path in (paths.pods("ml"), paths.jobs("ml"), BINDINGS):
        api.hold(path)


def story(api: Api) -> None:
    """Six nodes: one slow, one throttled, one without power, one stale, one that failed, one as it should be."""
    stale = fresh_no_more("DriverChange")
    failed = {"run": "r1", "number": 1, "outcome": "failed", "reason": "AgentCrashed", "finishedAt": "t"}
    api.profiles(profile_object())
    api.reports(
        *(measured(f"good-{i}", 150_000 + 100 * i) for i in range(5)),
        measured("slow", 110_000),
        measured("hot", 130_000, best={"throttledShare": "0.2", "throttleReason": "software_thermal"}),
        measured("blind", 150_050, rows=[without_energy("mxfp8", 1.3)]),
        measured("old", 149_000, conditions=[stale], state="Stale"),
        report_object("broken", status={"attempt": failed, "state": "Failed"}),
    )


def cells(api: Api, *words: str) -> dict[str, dict[str, Any]]:
    return {row["node"]: row for row in api.printed("nodes", *words)}


def test_every_node_has_a_row_with_what_is_odd_about_it_the_worst_may_come_first_and_labels_choose(api: Api) -> None:
    story(api)
    rows = cells(api)
    assert [rows["good-0"][key] for key in ("best", "tokensPerSecond", "flags")] == ["nvfp4", 150_000.0, []]
    assert rows["slow"]["flags"] == ["slow"]
    assert (rows["hot"]["flags"], rows["hot"]["slow"]) == (["slow", "throttled"], True)
    assert rows["blind"]["flags"] == ["no power"]
    assert (rows["old"]["stale"], rows["old"]["ofMedian"]) == ("DriverChange", None)
    assert [rows["broken"][key] for key in ("state", "best", "attempt")] == ["Failed", None, "AgentCrashed"]
    ordered = [row["node"] for row in api.printed("nodes", "--sort-by", "relative")]
    assert (ordered[:2], set(ordered[-2:])) == (["slow", "hot"], {"old", "broken"})
    api.hold(paths.NODES, node_object({"zone": "a"}, name="slow"), node_object({"zone": "b"}, name="hot"))
    assert list(cells(api, "-l", "zone=a")) == ["slow"]
    assert cells(api, "-l", "zone=a")["slow"]["slow"], "it is held against the whole fleet"


def test_best_says_how_many_layers_stay_in_bf16_and_bounds_that_print_alike_are_one_number(api: Api) -> None:
    api.profiles(profile_object())
    api.reports(measured("n0", best={"lastLayersBF16": 5, "speedupLower": "1.59999", "speedupUpper": "1.60001"}))
    shown = api.run("nodes", "-o", "wide").stdout
    assert "nvfp4 1.60x (last 5 in BF16)" in shown
    assert "   1.600   " in shown
    assert "[1.6" not in shown
    assert cells(api)["n0"]["lastLayersBF16"] == 5


def test_a_profile_that_was_deleted_and_applied_again_has_none_of_the_older_ones_results(api: Api) -> None:
    """Reports of the older one stay until the garbage collector comes; who has no owner is adopted."""
    api.profiles(profile_object())
    owners = {"old": "uid-of-the-deleted-one", "new": profile_object()["metadata"]["uid"]}
    reports = [measured(node) for node in ("old", "new", "orphan")]
    for report in reports[:2]:
        owner = {"kind": "PrecisionProfile", "name": "nightly", "uid": owners[report["spec"]["nodeName"]]}
        report["metadata"]["ownerReferences"] = [owner]
    api.reports(*reports)
    assert sorted(cells(api)) == ["new", "orphan"]
    (pool,) = api.printed("status", "nightly")[0]["pools"] or [{"recipes": []}]
    assert all(row["nodes"] == 2 for row in pool["recipes"])


def test_a_recipe_whose_loss_runs_were_not_healthy_says_so_beside_its_speed(api: Api) -> None:
    api.profiles(profile_object(status={"pools": [{"name": "NVIDIA-GB200", "product": "GB200", "nodes": 3}]}))
    block = recipe_row("fp8_block", 1.2, availability="emulated", verdict="assumed", teraflopsPerGPU="682")
    for place, verdict in enumerate(("diverged", "diverged", "healthy")):
        rows = [recipe_row("bf16"), block, recipe_row("nvfp4", 1.6, lossVerdict=verdict)]
        api.reports(report_object(f"n{place}", status=report_status(rows)))
    output = api.run("status", "nightly").stdout
    assert "LOSS" in output
    assert "2 diverged, 1 healthy" in output
    assert all(words in output for words in (" 682.0 ", "assumed;", "  emulated\n")), output
    (pool,) = api.printed("status", "nightly")[0]["pools"]
    assert [row["losses"] for row in pool["recipes"]] == [{"diverged": 2, "healthy": 1}, {}, {}]


def test_a_replay_is_compared_with_nodes_of_the_driver_that_its_run_was_begun_for(api: Api) -> None:
    api.profiles(profile_object())
    for driver, rate in (("570.1", 100_000), ("580.2", 150_000)):
        begun = {"run": "r1", "number": 1, "outcome": "succeeded", "finishedAt": "t", "basis": {"driver": driver}}
        for i in range(4):
            api.reports(measured(f"n{driver}-{i}", rate + i, attempt=begun, software={"agent": "0.1.0"}))
    assert {round(row["ofMedian"], 2) for row in api.printed("nodes")} == {1.0}


ONLY = {"slow": ["hot", "slow"], "throttled": ["hot"], "stale": ["old"], "failed": ["broken"], "powerless": ["blind"]}
ONLY |= {"fallback": [], "simulated": []}


def test_only_shows_such_nodes_and_judges_them_against_all(api: Api) -> None:
    story(api)
    assert {only: sorted(cells(api, "--only", only)) for only in ONLY} == ONLY


def test_a_table_tells_reasons_and_counts_and_json_yaml_and_csv_hold_the_same(api: Api) -> None:
    story(api)
    table = api.run("nodes").stdout
    lines = {line.split()[0]: line.split() for line in table.splitlines() if line}
    assert lines["good-0"][:4] == ["good-0", "Measured", "nvfp4", "1.60x"], "all are of one pool"
    assert (lines["old"][1], lines["old"][-1]) == ("Stale", "DriverChange")
    assert (lines["broken"][1], lines["broken"][-1]) == ("Failed", "AgentCrashed")
    assert table.rstrip().splitlines()[-1] == "10 nodes: 8 Measured, 1 Failed, 1 Stale"
    wide = api.run("nodes", "-o", "wide").stdout.splitlines()[0]
    shown = "NAMESPACE PROFILE NODE POOL STATE BEST TFLOP/S/GPU OF MEDIAN NOTES TOKENS/S TOKENS/J"
    assert wide.split() == f"{shown} 95 % INTERVAL WATTS GPUS BY DRIVER FINISHED REPORT".split()
    found = api.printed("nodes")
    assert yaml.safe_load(api.run("nodes", "-o", "yaml").stdout) == found
    rows = list(csv.DictReader(io.StringIO(api.run("nodes", "-o", "csv").stdout)))
    assert [row["node"] for row in rows] == [row["node"] for row in found]
    assert list(rows[0]) == list(found[0])


def test_a_fleet_is_read_in_pages_and_begun_again_when_the_place_is_lost(api: Api) -> None:
    api.profiles(profile_object())
    api.reports(*(measured(f"n-{i:05}", 150_000 + i) for i in range(2 * PAGE + 1)))
    api.lose_place_at = str(PAGE)
    assert len(api.printed("nodes")) == 2 * PAGE + 1
    pages = [query.get("continue") for path, query in api.asked if path == paths.reports("ml")]
    assert pages == [None, str(PAGE), None, str(PAGE), str(2 * PAGE)]


def test_no_report_and_no_match_are_told_apart(api: Api) -> None:
    api.profiles(profile_object())
    told = "No node has a report in namespace ml yet. Other namespaces: -n NAME, or -A for all. See"
    assert api.run("nodes").stdout.startswith(told)
    assert "-A" not in api.run("nodes", "-A").stdout
    api.reports(measured("a"))
    assert api.run("nodes", "--only", "slow").stdout == "No node matches (0 of 1 in namespace ml).\n"
    assert api.run("nodes", "--only", "slow", "-o", "csv").stdout.startswith("namespace,profile,node,pool,state")


# status


def test_a_risky_best_is_marked_in_every_list_and_its_risk_said_once_below(api: Api) -> None:
    risky = recipe_row("nvfp4_no_rht", 1.9, lastLayersBF16=5, listed=True)
    marked, sentence = "nvfp4_no_rht 1.90x (at risk, last 5 in BF16)", "Risk of nvfp4_no_rht: NVFP4 without RHT "
    pool = {"name": "p", "nodes": 2, "bestRecipe": "nvfp4_no_rht", "speedup": "1.9", "lastLayersBF16": 5}
    api.profiles(profile_object(status={"phase": "Complete", "best": marked, "pools": [pool]}))
    reports = [measured(node, rows=[risky], bestRecipe="nvfp4_no_rht") for node in ("a", "b")]
    api.reports(*(report | {"status": report["status"] | {"best": marked}} for report in reports))
    hold_cluster(api, "a")
    for words in (["nodes", "-o", "wide"], ["status", "-o", "wide"], ["why", "a"]):
        stdout = " ".join(api.run(*words).stdout.split())
        assert (stdout.count(sentence), marked in stdout) == (1, True), stdout


def test_when_a_scheduled_run_begins_is_said_in_80_columns(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    waits = {"phase": "Pending", "nextRun": "2026-11-28T03:00:00Z"}
    mine = profile_object(status=waits, creationTimestamp="2100-01-01T00:00:00Z")
    api.profiles(mine | {"spec": mine["spec"] | {"schedule": {"cron": "0 3 1 1 *"}}})
    hold_cluster(api, "new")
    assert "next 11-28 03:00Z" in api.run("status").stdout
    assert "NotDueYet until 01-01 03:00Z" in " ".join(api.run("nodes", "--all").stdout.split())
    assert cells(api, "--all")["new"]["until"].endswith("-01-01T03:00:00Z")


def test_status_lists_profiles_with_how_far_they_are(api: Api) -> None:
    done = {"phase": "Complete", "progress": "24/24", "best": "nvfp4 1.60x", "nodes": {"failed": 1, "slow": 2}}
    api.profiles(profile_object("b"), profile_object("a", status=done | {"observedGeneration": 1}))
    listed = [(row["profile"], row["phase"], row["judged"]) for row in api.printed("status")]
    assert listed == [("a", "Complete", True), ("b", "Running", False)]
    table = api.run("status").stdout.splitlines()
    assert table[1].split()[:5] == ["a", "Complete", "24/24", "1", "2"]
    assert api.run("status", "-A").stdout.splitlines()[1].split()[:6] == ["ml", "a", "Complete", "24/24", "1", "2"]
    assert "Running?" in table[2], "its status is of an older spec"


@pytest.mark.parametrize("name", TABLES["verdicts"])
def test_the_verdict_is_told_with_one_act_and_listed_where_one_is_asked_for(api: Api, name: str) -> None:
    changes, words = TABLES["verdicts"][name]
    verdict = acceptance(**changes)
    counts = {"accepted": 5, "notAccepted": 1, "matched": 6, "eligible": 6}
    api.profiles(profile_object(status={"phase": "Running", "nodes": counts}))
    api.reports(measured("n1", acceptance=verdict), measured("n2"))
    hold_cluster(api, "n1", "n2")
    assert words in " ".join(api.run("why", "n1").stdout.split())
    assert api.printed("why", "n1")[0]["acceptance"]["verdict"] == verdict["verdict"]
    header, first, second, *_ = api.run("nodes").stdout.splitlines()
    assert ("VERDICT" in header, f" {verdict['verdict']} " in first, "-" in second.split()) == (True, True, True)
    assert (verdict["reason"] in first) is (verdict["verdict"] != "Pass")
    listed = api.run("status").stdout.splitlines()
    assert ("NOT ACCEPTED" in listed[0], listed[1].split()[4:7]) == (True, ["0", "5", "1"])
    assert "5 accepted, 1 not accepted" in api.run("status", "nightly").stdout


@pytest.mark.parametrize("says", TABLES["conditions"])
def test_why_says_first_what_the_nodes_condition_says_and_what_is_next(api: Api, says: str) -> None:
    (status, reason, whose), node = says.split(", "), node_object(name="n1", boot="b")
    message = f"x (node uid-n1, boot {'a' if 'restarted' in whose else 'b'})"
    held = {"type": CONDITION, "status": status, "reason": reason, "message": message}
    node["status"]["conditions"].append(held)
    api.profiles(profile_object())
    api.reports(measured("n1", acceptance=acceptance("Pass", "WithinLimits")))
    hold_cluster(api, node)
    for form in ("table", "wide"):
        stdout = " ".join(api.run("why", "n1", "-o", form).stdout.split())
        assert stdout.startswith(f"Node n1: ComputeAccepted is {says} since unknown message {message}")
        assert f" next {TABLES['conditions'][says]}" in stdout
    condition = api.printed("why", "n1")[0]["nodeCondition"]
    assert (condition["status"], condition["reason"], condition["message"]) == (status, reason, message)


def test_why_says_which_target_leaves_out_a_node_that_has_the_condition(api: Api) -> None:
    node, held = node_object(name="n1", boot="b"), profile_object()
    says = {"type": CONDITION, "status": "Unknown", "reason": "SubjectChanged", "message": "x (node uid-n1, boot b)"}
    node["status"]["conditions"].append(says)
    asked = {"reference": {"name": "gold", "sha256": "a" * 64}}
    held["spec"] |= {"acceptance": asked, "target": {"nodeNames": ["n2"]}}
    api.profiles(held)
    hold_cluster(api, node)
    stdout = " ".join(api.run("why", "n1").stdout.split())
    assert "next no run: profile ml/nightly leaves it out: spec.target.nodeNames does not name it" in stdout


@pytest.mark.parametrize(("verdict", "to_do"), [("Fail", False), ("Inconclusive", True)])
def test_why_ends_with_one_act_where_a_slow_node_fails(api: Api, verdict: str, to_do: bool) -> None:
    story(api)
    slow = next(report for report in api.collections[paths.reports("ml")] if report["spec"]["nodeName"] == "slow")
    slow["status"]["acceptance"] = acceptance(verdict)
    hold_cluster(api, "slow")
    stdout = api.run("why", "slow", "--plan").stdout
    assert ("shows whether it repeats" in stdout) is to_do
    assert stdout.splitlines()[-1].startswith("  do ")


def test_a_profile_that_no_operator_has_seen_is_not_of_an_older_spec(api: Api) -> None:
    api.profiles(profile_object() | {"status": {}})
    output = api.run("status", "nightly").stdout
    assert "older spec" not in output
    assert "watches namespace ml (chart value watchNamespaces)" in output
    assert api.run("status").stdout.splitlines()[1].split()[:2] == ["nightly", "Unseen"]


WIDE = "gb200-rack-0012-0003"


@pytest.mark.parametrize("columns", [120, 80])
@pytest.mark.parametrize("words", [("nodes",), ("status",), ("status", "fleet-every-night")], ids="-".join)
def test_a_screen_of_usual_names_fits_its_columns(
    api: Api, words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    story(api)
    hot = {"throttledShare": "0.2", "throttleReason": "software_thermal"}
    hardware = {"product": "H100", "gpus": 8, "pool": "NVIDIA-H100-80GB-HBM3"}
    api.reports(measured(WIDE, 1_150_000, best=hot, hardware=hardware, data="simulated"))
    status = {"observedGeneration": 1, "phase": "Running", "progress": "412/1024", "eta": "14:35Z"}
    status |= {"waitsFor": "MaxConcurrentReached (612)", "best": "nvfp4 1.60x", "data": "SIMULATED (412/412)"}
    status |= {"nodes": {"failed": 1, "slow": 2}}
    api.profiles(profile_object("fleet-every-night", status=status))
    done = api.run(*words)
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= columns, done.stdout
    assert "SIMULATED" in done.stdout


def unfolded(table: str) -> list[dict[str, str]]:
    """The rows of a table by its titles; a row goes on where STATE is empty. Without spaces: lines end with some."""
    header, *lines = table.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", header)]
    places = [slice(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    titles, rows = [header[place].strip() for place in places], []
    for line in lines:
        cells = dict(zip(titles, (line[place].replace(" ", "") for place in places), strict=True))
        if cells["STATE"]:
            rows.append(cells)
        else:
            rows[-1] = {title: rows[-1][title] + cells[title] for title in titles}
    return rows


NAMES = {
    "as usual": ("nightly", "fleet-every-night", "NVIDIA-H100-80GB-HBM3", WIDE),
    "of a cloud": ("nightly", "llama3-8b-weekly", "NVIDIA-GB300", "ip-10-0-212-134.us-west-2.compute.internal"),
    "as long as can be": ("p" * 40, "a-profile-for-the-whole-fleet-once-a-week", "x" * 63, ".".join(["n" * 63] * 3)),
}


@pytest.mark.parametrize(("one", "other", "pool", "node"), NAMES.values(), ids=NAMES)
def test_tables_of_several_profiles_and_pools_fit_120_columns_and_lose_nothing(
    api: Api, one: str, other: str, pool: str, node: str
) -> None:
    hot = {"throttledShare": "0.2", "throttleReason": "software_thermal"}
    hardware = {"product": "H100", "gpus": 8, "pool": "a"}
    api.profiles(*(profile_object(name, status={"waitsFor": "MaxConcurrentReached (612)"}) for name in (one, other)))
    for number, name in enumerate((one, other)):
        like = [measured(f"n{number}{i}", hardware=hardware) for i in range(3)]
        odd = measured(
            node, best=hot, data="simulated", hardware=hardware | {"pool": pool}, rows=[without_energy("mxfp8", 1.3)]
        )
        api.reports(*(each | {"spec": each["spec"] | {"profile": name}} for each in (*like, odd)))
    narrow, found = api.run("nodes", "-A").stdout, api.printed("nodes", "-A")
    assert max(map(len, narrow.splitlines())) <= 120, narrow
    shown = unfolded(narrow.rpartition("\n\n")[0])
    names = [(row["NODE"], row["PROFILE"], row["POOL"]) for row in shown]
    assert names == [(row["node"], row["profile"], row["pool"]) for row in found]
    assert {row["NOTES"] for row in shown if row["NODE"] == node} == {"throttled,nopower,SIMULATED"}
    assert max(map(len, api.run("status").stdout.splitlines())) <= 120


def test_status_of_one_profile_tells_its_conditions_reasons_and_pools(api: Api) -> None:
    status = {
        "phase": "Running",
        "progress": "10/22",
        "waitsFor": "their turn: 6",
        "nodes": {"matched": 24, "eligible": 22, "queued": 6},
        "reasons": [{"reason": "Busy", "count": 1, "example": "n7", "message": "A pod holds its GPUs."}],
    }
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "ok", "lastTransitionTime": "t"}
    pool = {"name": "NVIDIA-GB200", "nodes": 10, "slowNodes": ["a", "b"], "simulated": True, "bestRecipe": "nvfp4"}
    pool |= {"speedup": "1.6", "teraflopsPerGPU": "1554.39", "tokensPerSecond": "153986", "tokensPerJoule": "34"}
    risky = pool | {"name": "NVIDIA-GB300", "lastLayersBF16": 0}
    api.profiles(profile_object(status=status | {"conditions": [accepted], "pools": [pool, risky]}))
    output = api.run("status", "nightly").stdout
    assert output.startswith("ml/nightly: Running\n")
    assert output.count("\nRisk of nvfp4: ") == 1
    for words in (
        "24 matched, 22 eligible, 6 queued",
        "1 node Busy, for example n7: A pod holds its GPUs.",
        "NVIDIA-GB200: 10 nodes; nvfp4 1.60x, no known risk, 1,550 TFLOP/s per GPU, 154,000 tokens/s a node "
        "(sum of its GPUs); 34 tokens/J with nvfp4; slow: a, b; SIMULATED",
        "of an older spec",
        "next run     none: the profile has no schedule",
    ):
        assert words in output


def test_every_recipe_of_each_pool_is_listed_the_fastest_first_and_nothing_is_coloured(api: Api) -> None:
    story(api)
    api.reports(measured("gone-wrong", rows=[recipe_row("mxfp8", 1.3, verdict="fallback")]))
    table = [row.split() for row in api.run("status", "nightly").stdout.splitlines() if "NVIDIA-" in row]
    assert [(row[1], row[-1]) for row in table] == [("nvfp4", "verified"), ("mxfp8", "fallback"), ("bf16", "verified")]
    api.profiles()
    for words in (("nodes",), ("status",), ("status", "nightly"), ("status", "nobody")):
        done = api.run(*words)
        assert "\033" not in done.stdout + done.stderr


def test_status_without_the_right_to_list_reports_says_what_is_left_out(api: Api) -> None:
    api.profiles(profile_object(status={"phase": "Running"}))
    api.refused[paths.reports("ml")] = "reports is forbidden"
    done = api.run("status", "nightly")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "ml/nightly: Running")
    assert done.stderr.startswith("note: the recipes of each pool are left out: ")


def test_figures_of_status_are_numbers_in_json(api: Api) -> None:
    told = {"name": "NVIDIA-GB200", "nodes": 10, "speedup": "1.6", "tokensPerSecond": "153986", "watts": "4500"}
    api.profiles(profile_object(status={"tokensPerJoule": "54.4", "pools": [told]}))
    (row,) = api.printed("status")
    assert row["tokensPerJoule"] == 54.4
    numbers = {"speedup": 1.6, "tokensPerSecond": 153_986.0, "watts": 4500.0}
    assert {key: row["pools"][0][key] for key in told} == told | numbers
    assert yaml.safe_load(api.run("status", "-o", "yaml").stdout) == [row]


def test_what_does_not_exist_gets_a_near_name(api: Api) -> None:
    done = api.run("stauts")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: there is no command stauts; did you mean status? See kubectl precision --help\n"
    api.profiles(profile_object())
    for command in ("status", "nodes"):
        done = api.run(command, "nightyl")
        assert (done.exit_code, done.stdout) == (2, "")
        told = "there is no profile nightyl in namespace ml; did you mean nightly? See kubectl get pp -A"
        assert done.stderr == f"error: {told}\n"


def test_no_profile_says_how_to_make_one_and_names_that_people_copy_are_whole(api: Api) -> None:
    api.profiles()
    assert api.run("status").stdout.startswith("There is no profile in namespace ml. Create one: kubectl explain")
    assert api.printed("status") == []
    pools, node = "-".join(["pool"] * 30), "n" * 50
    table = as_columns([{"node": node, "pool": pools, "best": "x" * 40}], ["pool"], ["node"]).splitlines()
    assert [line.split() for line in table[1:3]] == [[node, "pool-" * 4, "x" * 40], ["pool-" * 4]]


def test_all_namespaces_ask_for_all_of_them_and_exclude_one(api: Api) -> None:
    done = api.run("status", "-A", "-n", "ml")
    assert (done.exit_code, "exclude each other" in done.stderr) == (2, True)
    api.profiles(profile_object())
    assert [row["namespace"] for row in api.printed("status", "-A")] == ["ml"]
    assert api.asked[-1][0] == paths.profiles()


def test_reports_without_a_training_rate_are_no_fleet_to_plan_with(api: Api) -> None:
    api.profiles(profile_object())
    api.hold(paths.NODES, {"metadata": {"name": "a", "uid": "uid-a", "labels": {}}})
    api.reports(report_object("a", status=report_status([recipe_row("bf16", tokensPerSecond=None)])))
    ended = api.run("fleet")
    assert ended.exit_code == 5
    assert "no report has a training rate" in ended.output


def test_all_nodes_of_the_cluster_are_listed_each_with_the_operators_reason(api: Api) -> None:
    api.profiles(profile_object(workload={"preset": "llama3-8b"}, status={}))
    api.reports(measured("measured"))
    hold_cluster(api, "measured", "new", "elsewhere", node_object(name="cordoned", unschedulable=True))
    found = {row["node"]: row for row in api.printed("nodes", "--all")}
    assert set(found) == {"measured", "new", "elsewhere", "cordoned"}
    assert (found["cordoned"]["state"], found["cordoned"]["reason"]) == ("Waiting", "Cordoned")
    assert found["cordoned"]["message"].startswith("The node is cordoned.")
    assert found["measured"]["best"] == "nvfp4"
    assert all(row["reason"] and row["message"] for row in found.values())
    table = api.run("nodes", "--all").stdout
    assert re.search(r"^cordoned +NVIDIA-H100-80GB-HBM3 +Waiting .* Cordoned$", table, re.MULTILINE), table
    assert set(cells(api)) == {"measured"}, "without --all only nodes with a report"


def test_of_reports_no_more_is_read_and_kept_than_is_shown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    class Large:
        def __repr__(self) -> str:
            raise MemoryError

    async def work(_: Cluster) -> Large:
        return Large()

    assert isinstance(ask_cluster(Reach(), work), Large)
    slim, whole = figures_view(measured("a")), report_view(measured("a"))
    assert (slim.status.results, slim.status.history, reading_of(slim).rows) == ((), (), reading_of(whole).rows)
    monkeypatch.setattr("precision_operator.cli.pool_recipes.MOST_REPORTS", 1)
    api.profiles(profile_object())
    api.reports(measured("a"))
    assert "the recipes of each pool are those of 1 nodes" in api.run("status", "nightly").stderr
    assert api.asked[-1][1]["fieldSelector"] == "spec.profile=nightly"


def test_teraflops_stand_before_tokens_and_are_absent_without_flops() -> None:
    names = keys(COLUMNS)
    assert names.index("teraflopsPerGPU") < names.index("tokensPerSecondPerGpu")
    (row,) = rows(fleet())
    flops = row["tokensPerSecondPerGpu"] * workload().flops_per_token
    assert row["teraflopsPerGPU"] == pytest.approx(flops / 1e12, rel=1e-3)
    (row,) = rows(fleet(workloads=[workload().model_copy(update={"flops_per_token": None})]))
    assert row["teraflopsPerGPU"] is None
