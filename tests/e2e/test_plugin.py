"""The plugin on a living cluster: one fleet with a slow node, told by every command, each agreeing with its source."""

import json
import re
import signal
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from precision_lab.fleet.fleet import NodeSpec
from precision_lab.release.install import NAMESPACE as SYSTEM
from precision_lab.release.install import RUNS_AS
from tests.e2e.test_exporter import scrape
from tests.support.eventually import eventually
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, Site, specs

pytestmark = pytest.mark.cluster

SLOW = 4
"""Place of the slow node among the H100 ones."""
RECIPES = ["fp8_current", "fp8_delayed"]
Fleet = tuple[Profile, list[str]]
LLAMA = {"workload": {"preset": "llama3-8b"}, "benchmarks": {}, "recipes": RECIPES}


@pytest.fixture(scope="module")
def fleet(stage: Scene) -> Fleet:
    """A profile that has measured four H100 nodes, and one that is 20 % slow, and two GB200 nodes."""
    stage.add_nodes(*(NodeSpec("H100") for _ in range(SLOW)), NodeSpec("H100", traits=("scale:0.8",)))
    stage.add_nodes(*specs(2, products=("GB200",)))
    profile = stage.apply(**LLAMA)
    profile.completes(270)
    return profile, [node["metadata"]["name"] for node in stage.nodes()]


def slow_in_status(profile: Profile) -> list[str]:
    return [name for pool in profile.status()["pools"] for name in pool.get("slowNodes", ())]


def test_status_tells_what_stands_in_the_profile(plugin: Plugin, fleet: Fleet) -> None:
    profile, nodes = fleet
    (row,) = plugin.json("status", profile.name, "-n", profile.site.namespace)
    status = profile.status()
    assert (row["phase"], row["progress"], row["nodes"]) == (status["phase"], status["progress"], status["nodes"])
    assert row["judged"] is True
    told = plugin("status", profile.name, "-n", profile.site.namespace)
    assert f"{len(nodes)} matched" in told
    assert slow_in_status(profile)[0] in told
    assert profile.name in plugin("status", "-A")


def test_nodes_kubectl_and_the_metrics_agree_on_who_is_slow(plugin: Plugin, fleet: Fleet) -> None:
    profile, nodes = fleet
    place = ("-n", profile.site.namespace)
    rows = {row["node"]: row for row in plugin.json("nodes", profile.name, *place)}
    assert rows.keys() == set(nodes)
    slow = [node for node, row in rows.items() if row["slow"]]
    assert slow == slow_in_status(profile) != []
    assert [row["node"] for row in plugin.json("nodes", profile.name, *place, "--only", "slow")] == slow
    assert {row["data"] for row in rows.values()} == {"simulated"}

    def exported() -> list[str]:
        families = text_string_to_metric_families(scrape(profile.site))
        samples = (s for f in families if f.name == "precision_node_slow" for s in f.samples)
        return [s.labels["node"] for s in samples if s.labels["profile"] == profile.name and s.value == 1]

    assert eventually(exported) == slow


def test_the_deployments_of_the_lab_say_how_its_programs_run_and_have_no_pods(site: Site) -> None:
    deployments = site.lab.get("deployments", f"--namespace={SYSTEM}")["items"]
    found = {item["spec"]["template"]["spec"]["containers"][0]["name"]: item for item in deployments}
    assert found.keys() == {"operator", "exporter"}
    for program in (site.operator, site.exporter):
        item = found[program.name]
        assert (item["spec"]["replicas"], RUNS_AS in item["metadata"]["annotations"]) == (0, True)
        assert set(item["spec"]["template"]["spec"]["containers"][0]["args"]) <= set(program.argv)


def test_why_says_of_a_slow_node_what_nodes_says_and_guesses_none_of_the_operators_settings(
    plugin: Plugin, fleet: Fleet
) -> None:
    profile, _ = fleet
    place = ("-n", profile.site.namespace)
    (slow,) = slow_in_status(profile)
    done = plugin.run("why", slow, *place, "--profile", profile.name, "-o", "json")
    assert (done.returncode, done.stderr) == (0, ""), "the Deployment tells how the operator is set up"
    (told,) = json.loads(done.stdout)
    (row,) = plugin.json("nodes", profile.name, *place, "--only", "slow")
    assert (told["standing"]["reason"], told["standing"]["ofMedian"]) == ("Slow", row["ofMedian"])
    assert told["standing"]["comparedNodes"] == SLOW + 1


def test_the_report_of_a_profile_is_whole_and_says_that_it_is_simulated(plugin: Plugin, fleet: Fleet) -> None:
    profile, nodes = fleet
    done = plugin.run("report", profile.name, "-n", profile.site.namespace, "-o", "all.html")
    assert done.returncode == 0, done.stderr
    page = (plugin.folder / "all.html").read_text()
    assert '<p class="mark">SIMULATED: ' in page
    assert "Matrix multiplications of one layer" in page, "the full result comes from its ConfigMap"
    assert slow_in_status(profile)[0] in page
    assert f"All {len(nodes)} nodes" in page


def test_the_report_of_a_node_has_that_node_alone(plugin: Plugin, fleet: Fleet) -> None:
    profile, nodes = fleet
    plugin("report", f"node/{nodes[0]}", "-n", profile.site.namespace, "-o", "one.html", "--price", "2.5")
    page = (plugin.folder / "one.html").read_text()
    assert f"Node {nodes[0]} in figures" in page
    assert "Dollars per million tokens" in page
    assert nodes[1] not in page


def test_two_pools_are_compared_and_saved_reports_too(plugin: Plugin, fleet: Fleet) -> None:
    profile, _ = fleet
    place = ("-n", profile.site.namespace, "--profile", profile.name)
    pools = [pool["name"] for pool in profile.status()["pools"]]
    found = plugin.json("compare", *(f"pool/{pool}" for pool in pools), *place, "--difference", "hardware")
    assert (found["how"], found["difference"], found["simulated"]) == ("groups", "hardware", True)
    saved = plugin.folder / "before.json"
    saved.write_text(json.dumps({"kind": "List", "items": profile.reports()}))
    again = plugin.json("compare", str(saved), profile.name, "-n", profile.site.namespace)
    assert (again["how"], again["difference"]) == ("paired", None)
    assert {row["tokensPerSecond"]["ratio"] for row in again["recipes"]} == {1.0}


def test_kubectl_completes_commands_and_nodes(plugin: Plugin, fleet: Fleet) -> None:
    _, nodes = fleet

    def completed(*words: str) -> list[str]:
        with plugin.start("__complete", "precision", *words) as process:
            out, _ = process.communicate(timeout=60)
        return [line.split("\t")[0] for line in out.splitlines() if not line.startswith(":")]

    assert completed("sta") == ["status"]
    assert set(nodes) <= set(eventually(lambda: completed("why", nodes[0][:2])))


def test_status_watched_shows_a_change_and_ends_on_ctrl_c(scene: Scene, plugin: Plugin) -> None:
    scene.add_nodes(*specs(1))
    profile = scene.completed()
    words = ("precision", "status", profile.name, "-n", scene.site.namespace, "-w", "--interval", "0.2", "-o", "json")
    with plugin.start(*words) as process:
        assert process.stdout is not None
        decoder, text = json.JSONDecoder(), ""

        def next_document() -> dict[str, Any]:
            nonlocal text
            while True:
                try:
                    (row,), end = decoder.raw_decode(text)
                except ValueError:
                    line = process.stdout.readline()
                    assert line, process.stderr and process.stderr.read()
                    text = (text + line).lstrip()
                else:
                    text = text[end:].lstrip()
                    return dict(row)

        assert next_document()["profile"] == profile.name
        profile.patch(suspend=True)
        while next_document()["phase"] != "Suspended":
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_a_dry_run_says_who_would_start_and_what_is_left_of_a_node_that_is_gone(scene: Scene, plugin: Plugin) -> None:
    first, second = scene.add_nodes(*specs(2, products=("H100",)))
    profile = scene.completed()
    scene.lab.delete_node(second)
    eventually(lambda: profile.counts().get("matched") == 1)
    asked = scene.manifest(recipes=["fp8_delayed"])
    (plugin.folder / "profile.yaml").write_text(yaml.safe_dump(asked))
    rows = {row["node"]: row for row in plugin.json("dry-run", "-f", "profile.yaml")}
    assert (rows[first]["decision"], rows[first]["reason"]) == ("run", "WouldStart")
    assert (rows[second]["decision"], rows[second]["reason"]) == ("gone", "NodeGone")


def test_a_user_of_one_namespace_is_told_the_right_that_is_missing(plugin: Plugin, fleet: Fleet) -> None:
    profile, _ = fleet
    site = profile.site
    site.lab.kubectl("create", "serviceaccount", "reader", "-n", site.namespace)
    kinds = "precisionprofiles.precisionprofiler.io,nodeprecisionreports.precisionprofiler.io"
    site.lab.kubectl("create", "role", "reader", "-n", site.namespace, "--verb=get,list", f"--resource={kinds}")
    account = f"--serviceaccount={site.namespace}:reader"
    site.lab.kubectl("create", "rolebinding", "reader", "-n", site.namespace, "--role=reader", account)
    config = f"--kubeconfig={site.lab.service_account_kubeconfig(site.namespace, 'reader')}"
    eventually(lambda: plugin.run("status", config).returncode == 0)
    for words, missing in (
        (("nodes", "-l", "a=b"), "you may not list nodes in the whole cluster"),
        (("status", "-A"), "you may not list precisionprofiles.precisionprofiler.io in the whole cluster"),
        (("why", "n1"), f"you may not list jobs.batch in namespace {site.namespace}"),
    ):
        done = plugin.run(*words, config)
        assert (done.returncode, done.stdout) == (3, "")
        assert missing in done.stderr
    page = plugin.run("report", profile.name, config, "-o", "some.html")
    assert page.returncode == 0, page.stderr
    assert "can't be read" in page.stderr, "the full result is in a ConfigMap"
    assert re.search(r"Figures of single multiplications are missing", (plugin.folder / "some.html").read_text())


def test_what_is_not_there_is_not_found_and_a_near_name_is_named(plugin: Plugin, fleet: Fleet) -> None:
    profile, (node, *_) = fleet
    for command, name in (("status", profile.name), ("nodes", profile.name), ("report", profile.name), ("why", node)):
        done = plugin.run(command, f"{name}x", "-n", profile.site.namespace)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"did you mean {name}" in done.stderr


def test_a_run_that_is_over_is_compared_in_all_recipes_energy_included(plugin: Plugin, fleet: Fleet) -> None:
    profile, (node, *_) = fleet
    place = ("-n", profile.site.namespace, "--profile", profile.name)
    old = profile.report_of(node)["status"]["run"]["run"]
    plugin("rerun", f"node/{node}", *place)
    new = eventually(lambda: next(iter({profile.report_of(node)["status"]["run"]["run"]} - {old}), None))
    found = plugin.json("compare", f"run/{old}", f"run/{new}", *place)
    assert (found["how"], found["difference"]) == ("single", None)
    assert found["data"] == {"a": "simulated", "b": "simulated"}
    assert {row["recipe"] for row in found["recipes"]} == {"bf16", *RECIPES}
    assert all(row[figure] for row in found["recipes"] for figure in ("tokensPerSecond", "tokensPerJoule"))
