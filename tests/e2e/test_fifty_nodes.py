"""Fifty simulated nodes of three products, a fifth of them at once, and an operator that is killed in the middle."""

import base64
import gzip
import json
from collections import Counter

import pytest

from precision_api.exchange.result import MeasurementResult
from precision_api.facts import names
from tests.support.eventually import eventually
from tests.support.history import Object, created, most_agents
from tests.support.site import Profile, Scene, specs

pytestmark = pytest.mark.cluster

NODES = 50
WORKLOAD = {"preset": "llama3-8b"}
REPORT_BYTES = 6 * 1024
"""With managedFields, compact. LISTs of large objects, one a node, are what hurts at scale."""


@pytest.fixture(scope="module")
def measured(stage: Scene) -> Profile:
    """The fleet after its run: the operator died while a first few nodes were measured, and came back."""
    slow, fast = specs(1, "agent-seconds:4"), specs(4, "agent-seconds:1")
    stage.add_nodes(*(slow + fast) * (NODES // 5))
    everything: Object = {"workload": WORKLOAD, "recipes": [], "benchmarks": {"training": {"enabled": True}}}
    profile = stage.apply(rollout={"maxConcurrent": "20%"}, **everything)
    eventually(lambda: len(profile.attempts()) >= NODES // 10)
    stage.site.kill_operator()
    done, agents = len(profile.attempts()), len(profile.jobs())
    stage.site.operator.start()
    assert done < NODES
    assert agents, "the operator was not killed in the middle: no agent was at work"
    profile.completes(240)
    return profile


def test_every_node_is_measured_in_its_first_attempt(measured: Profile) -> None:
    status = measured.status()
    assert measured.condition(names.COMPLETE)["reason"] == "AllMeasured"
    assert status["progress"] == f"{NODES}/{NODES}"
    assert Counter((a["outcome"], a["number"]) for a in measured.attempts().values()) == {("succeeded", 1): NODES}


def test_no_node_ever_had_a_second_job(measured: Profile) -> None:
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(measured.history(), "jobs"))
    assert (len(jobs), set(jobs.values())) == (NODES, {1})


def test_a_fifth_of_the_fleet_is_the_most_that_is_measured_at_once(measured: Profile) -> None:
    assert most_agents(measured.history()) == NODES // 5


def test_every_job_and_pod_is_gone_when_the_profile_is_complete(measured: Profile) -> None:
    eventually(lambda: not measured.jobs() and not measured.pods())


def test_every_report_names_a_detail_that_holds_the_whole_result(measured: Profile) -> None:
    details = {item["metadata"]["name"]: item["binaryData"] for item in measured.details()}
    assert len(details) == NODES
    for report in measured.reports():
        run = report["status"]["run"]
        packed = base64.b64decode(details.pop(run["detail"])["result.json.gz"])
        result = MeasurementResult.model_validate_json(gzip.decompress(packed))
        assert (result.run, result.request_hash[:16]) == (run["run"], run["requestHash"])
        assert result.node == report["spec"]["nodeName"]
    assert details == {}


def test_a_report_takes_no_more_than_six_kibibytes(measured: Profile) -> None:
    sizes = {len(json.dumps(report, separators=(",", ":")).encode()) for report in measured.reports()}
    assert max(sizes) <= REPORT_BYTES


def test_results_say_that_they_are_simulated(measured: Profile) -> None:
    assert {report["status"]["data"] for report in measured.reports()} == {"simulated"}
    assert measured.status()["data"] == f"SIMULATED ({NODES}/{NODES})"
    assert all(pool["simulated"] for pool in measured.status()["pools"])
