"""What the demo shows: from objects of the API server to what stands on the screen."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from precision_lab.demo_view import Snapshot, fleet_table, is_finished, progress_view, reasons_table
from precision_lab.fleet import NodeSpec, node_manifest


def profile(complete: str = "True", generation: int = 2, observed: int = 2, **status: Any) -> dict[str, Any]:
    """A profile whose condition Complete was written for the generation `observed`."""
    condition = {"type": "Complete", "status": complete, "observedGeneration": observed}
    return {
        "metadata": {"name": "demo", "generation": generation},
        "status": {"conditions": [condition], **status},
    }


def node(name: str, *traits: str) -> dict[str, Any]:
    """A node of the fleet, as the API server has it."""
    made = node_manifest(NodeSpec("H100", traits=traits), name, 0)
    made["metadata"]["uid"] = f"uid-{name}"
    return made


def report(name: str, **status: Any) -> dict[str, Any]:
    """The report of a node."""
    return {"spec": {"profile": "demo", "nodeName": name, "nodeUID": f"uid-{name}"}, "status": status}


def screen(view: RenderableType) -> list[list[str]]:
    """The words of each line, on a wide screen."""
    console = Console(file=StringIO(), width=200)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return [[cell.strip() for cell in line.split("│")] for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("profiles", "finished"),
    [
        pytest.param([], False, id="no profile yet"),
        pytest.param([{"metadata": {"name": "demo", "generation": 1}}], False, id="no status yet"),
        pytest.param([profile("False")], False, id="not complete"),
        pytest.param([profile(observed=1)], False, id="complete for an older spec"),
        pytest.param([profile(), profile("False")], False, id="one of two"),
        pytest.param([profile(), profile()], True, id="all complete"),
    ],
)
def test_the_demo_is_finished_when_every_profile_is_complete_for_its_spec(
    profiles: list[dict[str, Any]], finished: bool
) -> None:
    assert is_finished(Snapshot(profiles, [], [])) == finished


def test_the_fleet_shows_results_and_for_other_nodes_the_reason() -> None:
    status = {
        "reasons": [{"reason": "Cordoned", "count": 1, "example": "b", "message": "Uncordon it."}],
        "pools": [{"name": "p", "nodes": 1, "slowNodes": ["a"]}],
    }
    nodes = [node("a", "scale:0.8"), node("b", "cordoned"), node("c", "mig-single")]
    reports = [report("a", state="Measured", best="fp8_delayed 1.38x", tokensPerJoule="25.1")]
    rows = screen(fleet_table(Snapshot([profile(**status)], reports, nodes)))
    assert [row[1:-1] for row in rows if len(row) > 5] == [
        ["a", "H100-80GB-HBM3", "scale 0.8", "demo", "Measured, slow", "fp8_delayed 1.38x", "25.1"],
        ["b", "H100-80GB-HBM3", "cordoned", "demo", "Cordoned", "", ""],
        ["c", "H100-80GB-HBM3-MIG-1g.10gb", "MIG", "demo", "-", "", ""],
    ]


def test_a_report_of_an_earlier_node_of_the_same_name_is_not_shown_for_the_new_one() -> None:
    old = report("a", state="Measured")
    old["spec"]["nodeUID"] = "uid-of-the-earlier-one"
    rows = screen(fleet_table(Snapshot([profile()], [old], [node("a")])))
    assert [row[5] for row in rows if len(row) > 5] == ["-"]


def test_every_reason_is_told_with_its_number_of_nodes_and_in_words() -> None:
    reasons = [{"reason": "Busy", "count": 3, "example": "n-7", "message": "Pod a/b holds 8 of its GPUs."}]
    rows = screen(reasons_table(Snapshot([profile(reasons=reasons)], [], [])))
    assert ["demo", "Busy", "3", "n-7", "Pod a/b holds 8 of its GPUs."] in [row[1:-1] for row in rows]


def test_progress_names_the_states_that_have_nodes_and_no_others() -> None:
    counts = {"eligible": 4, "succeeded": 1, "running": 2, "queued": 0, "failed": 1}
    ((line,),) = screen(progress_view(Snapshot([profile(nodes=counts, phase="Running")], [], [])))
    assert line.startswith("demo")
    assert line.endswith("Running  1 succeeded, 2 running, 1 failed")
