"""The operator's own metrics: each run is counted once, when its end stands in a report."""

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from precision_api.kinds.profile import Retention, Retry
from precision_api.kinds.report import ReportStatus
from precision_operator.core.attempts.actions import Action, Close, Collect, Keeping
from precision_operator.core.attempts.faults import Fault
from precision_operator.core.attempts.node_state import draft
from precision_operator.core.observe.clock import format_time
from precision_operator.core.plan import Plan
from precision_operator.core.reasons import Said
from precision_operator.shell.telemetry import MOST_POOLS, MOST_SEEN, OTHER_POOLS, FaultLog, Telemetry
from tests.support.world import NOW, job, measured, observed, profile, report, tried

KEEPING = Keeping(Retry(), Retention())
STARTED = format_time(NOW - timedelta(minutes=8))


def plan_of(*actions: Action, status: ReportStatus | None) -> Plan:
    """What a pass leaves: its actions, and where the one node stands after them."""
    seen = observed([profile()], reports=(report(status=status),))
    return Plan((draft(seen.profiles[0], seen),), actions, ())


def told(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    """(name, values of its labels) to value."""
    families = text_string_to_metric_families(telemetry.text().decode())
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_a_result_is_counted_with_its_pool_and_how_long_it_took() -> None:
    telemetry = Telemetry()
    status = measured(ago=timedelta(), startedAt=STARTED)
    telemetry.saw(plan_of(Collect(job(), None, None, "p", KEEPING), status=status))
    found = told(telemetry)
    pool = "NVIDIA-H100-80GB-HBM3"
    assert found["precision_agent_runs_total", pool, "Measured", "succeeded"] == 1
    assert found["precision_agent_run_duration_seconds_sum", pool] == 480
    assert found["precision_agent_run_duration_seconds_bucket", "450.0", pool] == 0
    assert found["precision_agent_run_duration_seconds_bucket", "600.0", pool] == 1


def test_an_end_that_could_not_be_written_yet_is_counted_in_the_pass_that_writes_it() -> None:
    telemetry, action = Telemetry(), Collect(job(), None, None, "p", KEEPING)
    telemetry.saw(plan_of(action, status=None))
    assert not [key for key in told(telemetry) if key[0] == "precision_agent_runs_total"]
    telemetry.saw(plan_of(action, status=tried("failed", reason="AgentCrashed", startedAt=STARTED)))
    telemetry.saw(plan_of(status=tried("failed", reason="AgentCrashed", startedAt=STARTED)))
    runs = {key[2:]: value for key, value in told(telemetry).items() if key[0] == "precision_agent_runs_total"}
    assert runs == {("AgentCrashed", "failed"): 1}
    assert not [key for key in told(telemetry) if key[0] == "precision_agent_run_duration_seconds_sum"]


def test_ends_on_gone_nodes_and_nodes_in_the_queue_are_counted() -> None:
    telemetry = Telemetry()
    lost = Close(job("gone"), None, "failed", Said("NodeLost", words="the node is gone"), KEEPING)
    telemetry.saw(plan_of(lost, status=None))
    assert told(telemetry)["precision_agent_runs_total", "", "NodeLost", "failed"] == 1
    telemetry = Telemetry()
    telemetry.saw(plan_of(status=measured()))
    found = {key[1]: value for key, value in told(telemetry).items() if key[0] == "precision_operator_queue_nodes"}
    assert sum(found.values()) == 1
    assert found.keys() == {"skipped", "waiting", "queued", "running", "succeeded", "failed"}
    assert "_created" not in Telemetry().text().decode()


def test_the_last_faults_are_kept_of_a_bounded_number_of_names_and_logged_anew_once_they_had_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FaultLog()
    names = [f"p{number}" for number in range(MOST_SEEN)]
    for name in ["first", *names, "p0", "first"]:
        assert log.looked(name, [Fault("capacityplan", name, ValueError())])
    assert len(log._seen) == MOST_SEEN
    for faults in ([], [Fault("capacityplan", "p9", ValueError())]):
        log.looked("p9", faults)
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [
        f"capacityplan {name}" for name in ["first", *names, "first", "p9"]
    ]


def test_pools_have_series_of_their_own_up_to_a_bound() -> None:
    """A profile chooses the label that names pools, and may choose the host name."""
    telemetry = Telemetry()
    found = plan_of(Collect(job(), None, None, "p", KEEPING), status=measured(ago=timedelta(), startedAt=STARTED))
    (only,) = found.profiles
    (state,) = only.node_states
    for number in (*range(MOST_POOLS + 3), 0):
        named = replace(state, facts=replace(state.facts, pool=f"host-{number}"))
        telemetry.saw(replace(found, profiles=(replace(only, node_states=(named,)),)))
    runs = {key[1]: value for key, value in told(telemetry).items() if key[0] == "precision_agent_runs_total"}
    assert len(runs) == MOST_POOLS + 1
    assert (runs["host-0"], runs[OTHER_POOLS], sum(runs.values())) == (2, 3, MOST_POOLS + 4)
    theirs = replace(found, actions=(Collect(job(namespace="theirs"), None, None, "p", KEEPING),))
    telemetry.saw(theirs)
    assert told(telemetry)["precision_agent_runs_total", state.facts.pool, "Measured", "succeeded"] == 1


@pytest.mark.parametrize(("verb", "code"), [("GET", 200), ("POST", 409), ("PATCH", 0)])
def test_requests_are_counted_by_verb_and_code(verb: str, code: int) -> None:
    telemetry = Telemetry()
    telemetry.requested(verb, code)
    assert told(telemetry)["precision_operator_api_requests_total", str(code), verb] == 1
