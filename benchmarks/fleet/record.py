"""What the stand-ins need of the product: what a replay leaves, and the bodies that the operator writes.

Both are made by the product's own code before anything is measured.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from benchmarks.fleet.agents import gpu_uuids
from benchmarks.fleet.bare_client import REPORT_UID
from benchmarks.large_fleet import PRODUCTS, node, profile
from precision_agent.backends.replay_tables import ReplayOptions
from precision_agent.run.run import Outcome, run_request
from precision_api.exchange.request import canonical
from precision_api.exchange.wire import read_message
from precision_api.facts.names import ANNOTATION_REQUEST_HASH, REQUEST_ENV
from precision_lab.fleet.fleet import AGENT_IMAGE
from precision_operator.core.attempts.actions import Start
from precision_operator.core.observe.observed import Observed, Occupancy
from precision_operator.core.observe.views import job_view, profile_view, report_view
from precision_operator.core.plan import plan
from precision_operator.core.results import ingest
from precision_operator.shell.acting.reports import _packed
from tests.support.world import SETTINGS

Json = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One product's first node: what the operator would write, and what its agent would leave."""

    product: str
    start: Start
    outcome: Outcome


def samples(priority_class: str, service_account: str) -> list[Sample]:
    """One of each product; the agents' priority class and service account are the cluster's."""
    raw, nodes = profile(0), [node(index) for index in range(len(PRODUCTS))]
    raw["spec"]["rollout"] = {"maxConcurrent": len(nodes)}
    idle = {item["metadata"]["name"]: Occupancy(None) for item in nodes}
    by_uid = {item["metadata"]["uid"]: item for item in nodes}
    images = {"agent_image": AGENT_IMAGE, "allowed_images": (AGENT_IMAGE.partition("/")[0],)}
    settings = replace(SETTINGS, priority_class=priority_class, agent_service_account=service_account, **images)
    seen = Observed(datetime.now(UTC), settings, (profile_view(raw),), by_uid, occupancy=idle)
    starts = {action.facts.uid: action for action in plan(seen).actions if isinstance(action, Start)}
    made = [starts[uid] for uid in by_uid]
    outcomes = [run_request(request_of(start), "replay", ReplayOptions()) for start in made]
    return [Sample(*row) for row in zip(PRODUCTS, made, outcomes, strict=True)]


def request_of(start: Start) -> str:
    (container,) = start.job["spec"]["template"]["spec"]["containers"]
    return next(str(row["value"]) for row in container["env"] if row["name"] == REQUEST_ENV)


def recording(sample: Sample) -> Json:
    """As `agents` reads it."""
    result = sample.outcome.result
    assert result is not None
    return {
        "result": canonical(result.model_dump(mode="json", by_alias=True, exclude_none=True)),
        "message": sample.outcome.message.decode(),
        "run": result.run,
        "hash": sample.start.job["metadata"]["annotations"][ANNOTATION_REQUEST_HASH],
        "node": result.node,
        "finished": result.finished_at,
        "uuids": gpu_uuids(sample.start.facts.uid, sample.start.facts.gpus),
    }


def bodies(sample: Sample, namespace: str, profile_name: str, profile_uid: str) -> Json:
    """What the bare client writes: texts of JSON, and in them what is the node's own."""
    start, now = sample.start, datetime.now(UTC)
    job, report = job_view(start.job), report_view(start.report or {})
    assert job is not None
    assert report is not None
    finding = ingest.finding(read_message(sample.outcome.message), "\n".join(sample.outcome.lines))
    assert finding.result is not None, finding.detail_problem
    status = ingest.read_status(finding, job, report, ingest.Place(start.facts.pool, start.facts.clique), now)
    detail = ingest.detail(report, _packed(finding.result))
    detail["metadata"]["ownerReferences"][0]["uid"] = REPORT_UID
    texts = {"report": start.report, "job_body": start.job, "detail": detail}
    swaps = {"uid-profile-00": profile_uid, '"profile-00"': f'"{profile_name}"', '"ml"': f'"{namespace}"'}
    swapped = {key: json.dumps(value) for key, value in texts.items()}
    swapped["status"] = json.dumps({"status": ingest.report_json(status)})
    for old, new in swaps.items():
        swapped = {key: text.replace(old, new) for key, text in swapped.items()}
    return {
        "node": start.facts.name,
        "uid": start.facts.uid,
        "job": start.job["metadata"]["name"],
        "report": report.name,
        "texts": swapped,
    }
