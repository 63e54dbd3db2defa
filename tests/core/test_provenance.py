"""One rule says what a result's figures are, and every door tells the same: status, metrics, plans and pages."""

from typing import Any

import pytest

from precision_api.exchange.wire import encode, read_message
from precision_api.kinds.report import ReportRun
from precision_operator.core.results.ingest import finding, read_status
from precision_operator.core.results.reading import provenance_of
from precision_operator.exporter.families.measures import mark
from precision_operator.exporter.families.node import INFO, NODE_FAMILIES
from precision_operator.exporter.reading import read_report
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, racks, report_facts
from precision_operator.report.facts import reading_of_result
from tests.support.fleets import NOW
from tests.support.golden import beside
from tests.support.report_objects import profile_object, report_object, report_status
from tests.support.result_objects import result
from tests.support.world import job, report

TABLES = beside(__file__)

MADE_UP = {"field": "watts", "assumption": "a share of the limit"}
RUNS = TABLES["runs"]
RUN = pytest.mark.parametrize(("run", "told"), RUNS.values(), ids=RUNS)


def report_of(run: dict[str, Any]) -> dict[str, Any]:
    """A report whose newest result is of that kind."""
    simulated = [each["field"] for each in run.get("simulated", ())]
    return report_object("n1", status=report_status(**run | {"simulated": simulated}))


@RUN
def test_the_reports_status_metrics_and_the_planner_tell_it_alike(run: dict[str, Any], told: str) -> None:
    found = result(**run)
    assert provenance_of(found) == told
    assert provenance_of(read_message(encode(found).message)) == told
    assert provenance_of(ReportRun.model_validate(report_of(run)["status"]["run"])) == told
    published = encode(result(**run))
    found = finding(read_message(published.message), "\n".join(published.lines))
    assert read_status(found, job("n1", "r1"), report("n1"), "pool-1", NOW).data == told
    assert reading_of_result(result(**run)).data == told
    found = read_report(report_of(run), "llama3-8b")
    assert found is not None
    ((labels, _),) = next(family for family in NODE_FAMILIES if family.name == "precision_node_info").full_rows(found)
    assert labels[-len(INFO) :][INFO.index("data")] == told
    assert ((("simulated",), 1.0) in [*mark(found)]) is (told in ("simulated", "replayed"))
    owner = profile_facts(profile_object())
    assert owner is not None
    node = {"metadata": {"name": "n1", "uid": "uid-n1", "labels": {}}}
    fleet = fleet_of([report_facts(report_of(run))], [owner], racks([node]), NOW, "a test")
    assert fleet.pools[0].nodes[0].results[0].provenance == told


def test_a_message_that_calls_itself_measured_with_a_field_that_was_made_up_is_not_believed() -> None:
    claimed = read_message(encode(result(simulated=(MADE_UP,), provenance="simulated")).message)
    assert provenance_of(claimed.model_copy(update={"provenance": "measured"})) == "simulated"
