"""What the demo shows: from objects of the API server to what stands on the screen."""

import re
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console, RenderableType

from precision_lab.demo.demo import dashboards_url, exporter_paths
from precision_lab.demo.ending import Monitoring, next_commands, where_to_look
from precision_lab.demo.view import DemoSnapshot, fleet_table, is_finished, reasons_table
from precision_lab.fleet.fleet import NodeSpec, node_manifest
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS


def profile(
    complete: str = "True", generation: int = 2, observed: int = 2, end: str = "", **status: Any
) -> dict[str, Any]:
    """A profile whose condition Complete was written for the generation `observed`; `end` is the one that ends it."""
    conditions = [{"type": "Complete", "status": complete, "observedGeneration": observed}]
    conditions += [{"type": end, "status": "True", "observedGeneration": observed}] if end else []
    return {"metadata": {"name": "demo", "generation": generation}, "status": {"conditions": conditions, **status}}


def node(name: str, *traits: str) -> dict[str, Any]:
    made = node_manifest(NodeSpec("H100", traits=traits), name, 0)
    made["metadata"]["uid"] = f"uid-{name}"
    return made


def report(name: str, **status: Any) -> dict[str, Any]:
    return {"spec": {"profile": "demo", "nodeName": name, "nodeUID": f"uid-{name}"}, "status": status}


def screen(view: RenderableType, width: int = 200) -> list[str]:
    """The lines of a screen of so many columns."""
    console = Console(file=StringIO(), width=width)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def rows(view: RenderableType, width: int = 200) -> list[list[str]]:
    """The cells of a table, its header first: a column begins where its header does."""
    _title, header, *body = [line for line in screen(view, width) if line]
    begins = [found.start() for found in re.finditer(r"\S+(?: \S+)*", header)]
    ends = [*begins[1:], None]
    return [[line[begin:end].strip() for begin, end in zip(begins, ends, strict=True)] for line in (header, *body)]


@pytest.mark.parametrize(
    ("profiles", "finished"),
    [
        pytest.param([], False, id="no profile yet"),
        pytest.param([{"metadata": {"name": "demo", "generation": 1}}], False, id="no status yet"),
        pytest.param([profile("False")], False, id="not complete"),
        pytest.param([profile(observed=1)], False, id="complete for an older spec"),
        pytest.param([profile(), profile("False")], False, id="one of two"),
        pytest.param([profile(), profile()], True, id="all complete"),
        pytest.param([profile("False", end="Failed")], True, id="its rollout has stopped"),
        pytest.param([profile("False", observed=1, end="Failed")], False, id="failed with an older spec"),
    ],
)
def test_the_demo_is_finished_when_every_profile_has_ended_or_is_complete_for_its_spec(
    profiles: list[dict[str, Any]], finished: bool
) -> None:
    assert is_finished(profiles) == finished


def test_the_fleet_shows_results_and_for_other_nodes_the_reason() -> None:
    status = {
        "reasons": [{"reason": "Cordoned", "count": 1, "example": "b", "message": "Uncordon it."}],
        "pools": [{"name": "p", "nodes": 1, "slowNodes": ["a"]}],
    }
    nodes = [node("a", "scale:0.8"), node("b", "cordoned"), node("c", "mig-single"), node("d", "dra")]
    reports = [report("a", state="Measured", best="fp8_delayed 1.38x", teraflopsPerGPU="25.1")]
    assert rows(fleet_table(DemoSnapshot([profile(**status)], reports, nodes))) == [
        ["Node", "Product", "Staged", "State", "Best", "TFLOP/s/GPU"],
        ["a", "H100-80GB-HBM3", "scale 0.8", "Measured, slow", "fp8_delayed 1.38x", "25.1"],
        ["b", "H100-80GB-HBM3", "cordoned", "Cordoned", "", ""],
        ["c", "H100-80GB-HBM3-MIG-1g.10gb", "MIG", "-", "", ""],
        ["d", "H100", "GPUs by claim", "-", "", ""],
    ]


def test_on_a_screen_of_eighty_columns_names_states_and_figures_stay_whole() -> None:
    told = {"reason": "AgentRefused", "count": 1, "example": "gb300-0005", "message": "Far too many words. " * 9}
    status = {"pools": [{"name": "p", "nodes": 1, "slowNodes": ["gb200-0009"]}], "reasons": [told]}
    reports = [report("gb200-0009", state="Measured", best="nvfp4_no_rht 1.95x", teraflopsPerGPU="44.3")]
    nodes = [node("gb200-0009", "scale:0.8"), node("gb300-0005", "fault:refuse:DeviceMissing", "mig-single")]
    snapshot = DemoSnapshot([profile(**status)], reports, nodes)
    (first,) = [line for line in screen(fleet_table(snapshot, 80), 80) if line.startswith("gb200")]
    cells = ["gb200-0009", "H100-80GB-", "scale 0.8", "Measured, slow", "nvfp4_no_rht 1.95x", "44.3"]
    assert re.split(" {2,}", first) == cells
    assert rows(reasons_table(snapshot), 80)[1][:3] == ["AgentRefused", "1", "gb300-0005"]


def test_the_demos_last_lines_and_url_say_that_it_is_simulated() -> None:
    lines = where_to_look("r.html", Monitoring("http://prometheus", "http://site/?dashboard=precision-fleet"))
    assert ["r.html" in lines[0], "http://prometheus" in lines[1], "http://site/" in lines[2]] == [True] * 3
    assert [line for line in lines if "SIMULATED" not in line] == []
    asked = parse_qs(urlsplit(dashboards_url("http://127.0.0.1:1")).query)
    assert asked["dashboard"][0] in {dashboard.uid for dashboard in DASHBOARDS}
    assert "SIMULATED" in asked["note"][0]


@pytest.mark.parametrize(
    "monitoring",
    [
        pytest.param(Monitoring(missing="No Prometheus: why."), id="no Prometheus"),
        pytest.param(Monitoring("http://prometheus", missing="No page: why."), id="no page of dashboards"),
    ],
)
def test_for_what_does_not_run_the_last_line_says_why_and_no_url_is_shown(monitoring: Monitoring) -> None:
    lines = where_to_look("r.html", monitoring)
    assert lines[-1] == monitoring.missing
    assert "Dashboards" not in "".join(lines)
    assert [line for line in lines if line.endswith(": ")] == []


def test_the_next_commands_find_kubectl_and_its_plugin_without_hiding_the_users_own_programs() -> None:
    folders = (Path("/cache/bin"), Path("/venv/bin"))
    plan = "examples/capacity-plan.yaml"
    lines = next_commands("demo", "nightly", Path("/run/admin.kubeconfig"), folders, plan, "gb200-0009")
    assert [line.strip() for line in lines if line.startswith("  ")] == [
        "export KUBECONFIG=/run/admin.kubeconfig",
        'export PATH="$PATH:/cache/bin:/venv/bin"',
        "kubectl precision status nightly",
        "kubectl precision why gb200-0009",
        "kubectl precision plan -f examples/capacity-plan.yaml",
    ]


@pytest.mark.parametrize(("lab", "command"), [("demo", "make demo-down"), ("mine", "precision-lab down --name mine")])
def test_the_demo_says_how_to_end_this_very_lab(lab: str, command: str) -> None:
    assert next_commands(lab, "nightly", Path("/k"), (), "plan.yaml", "")[-1].endswith(command)


@pytest.mark.parametrize(
    ("argv", "paths"),
    [
        pytest.param(["--shards=2"], ["/metrics", "/metrics/shard/0", "/metrics/shard/1"], id="two shards"),
        pytest.param(["--shards=2", "--metrics-level=pool"], ["/metrics"], id="figures of pools only"),
        pytest.param([], ["/metrics", "/metrics/shard/0"], id="the exporter's own default"),
    ],
)
def test_prometheus_scrapes_every_path_that_the_exporter_serves(argv: list[str], paths: list[str]) -> None:
    assert exporter_paths(argv) == paths
