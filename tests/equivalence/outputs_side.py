"""What runs inside of one version: make the inputs of the other outputs, or make the outputs from given inputs.

`python -m equivalence.outputs_side inputs FILE` and `python -m equivalence.outputs_side make FILE FOLDER`.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

from .layouts import check_version, make, symbol

Raw = dict[str, Any]
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
MADE_AT = "2026-11-21T10:00:00Z"
GROUP = "precisionprofiler.io"
PROFILE = {"name": "nightly", "namespace": "ml", "uid": "uid-profile", "resourceVersion": "90"}
TIMINGS = {"quick": {"passes": 4, "segment_seconds": 1.75}, "standard": {"passes": 12, "segment_seconds": 2.8}}
FLEET_PRESET = "llama3-8b"
"""The workload of the nodes that metrics and pages are made of."""
CAPACITY_PLAN: Raw = {
    "metadata": {"name": "q1", "namespace": "ml", "uid": "uid-plan", "resourceVersion": "100"},
    "status": {
        "phase": "Solved",
        "solvedAt": "2026-11-20T07:00:00Z",
        "totals": {"days": "16.7", "megawattHours": "42.5", "peakMegawatts": "0.12", "gapPercent": "0.5"},
        "pools": [
            {
                "name": "GB200",
                "gpus": 96,
                "peakGPUs": 72,
                "gpuHours": "28800",
                "slowNodes": 1,
                "data": "simulated 10",
                "provenance": "nightly: 10 nodes",
            }
        ],
    },
}


# Inputs, made by the old version alone.


def inputs() -> Raw:
    """Requests for every product, workload preset and fault; reports and full results of a replayed fleet."""
    requests = dict(_requests())
    nodes = {name: _node(name, given) for name, given in requests.items() if given["in_fleet"]}
    return {"requests": requests, "fleet": nodes}


def _requests() -> Iterator[tuple[str, Raw]]:
    """(name, request and what the replay shall do) of each replay."""
    for product in symbol("PRODUCT_CLASSES"):
        for preset in symbol("PRESETS"):
            yield f"{product}/{preset}", _request(product, preset, "n1")
        yield f"{product}/standard", _request(product, FLEET_PRESET, "n1", "standard")
        for number, scale in enumerate((1.0, 1.01, 0.99, 0.8), start=1):
            name = f"{product.lower()}-{number}"
            yield (
                f"{product}/fleet-{number}",
                _request(product, FLEET_PRESET, name) | {"scale": scale, "in_fleet": True},
            )
        for fault in symbol("FAULTS"):
            name = f"{product.lower()}-{fault.replace('_', '-')}"
            given = _request(product, FLEET_PRESET, name, loss={"steps": 50, "seeds": 1})
            yield f"{product}/{fault}", given | {"fault": fault, "in_fleet": True}


def _request(product: str, preset: str, node: str, timing: str = "quick", **more: Any) -> Raw:
    document = symbol("MeasurementRequest").model_validate(
        {
            "namespace": "ml",
            "profile": "nightly",
            "run": "r1",
            "attempt": 1,
            "node": {"name": node, "uid": f"uid-{node}", "product": product, "gpus": 4},
            "workload": {"preset": preset},
            "recipes": list(symbol("RECIPE_NAMES")),
            "timing": TIMINGS[timing] | {"seed": 7},
            "deadline_seconds": 5400,
        }
        | more
    )
    return {"request": symbol("request_json")(document), "scale": 1.0, "fault": None, "in_fleet": False}


def _node(name: str, given: Raw) -> Raw:
    """A report with the result of this replay, and the result."""
    asked, outcome = json.loads(given["request"]), _replayed(given)
    node, pool = asked["node"], f"NVIDIA-{asked['node']['product']}"
    job = symbol("job_view")(_job(node, outcome.result.request_hash))
    body = symbol("manifest.report")("ml", "nightly", PROFILE["uid"], node["name"], node["uid"])
    found = symbol("finding")(symbol("read_message")(outcome.message), outcome.log.decode())
    status = symbol("read_status")(found, job, symbol("report_view")(body), pool, NOW)
    meta = body["metadata"] | {"uid": f"uid-report-{name}", "resourceVersion": "100"}
    report = body | {"metadata": meta, "status": symbol("report_json")(status)}
    return {"pool": pool, "report": report, "result": outcome.result.model_dump(mode="json", by_alias=True)}


def _job(node: Raw, request_hash: str) -> Raw:
    labels = {f"{GROUP}/profile-uid": PROFILE["uid"], f"{GROUP}/node-uid": node["uid"]}
    labels |= {f"{GROUP}/run": "r1", f"{GROUP}/attempt": "1"}
    notes = {f"{GROUP}/node": node["name"], f"{GROUP}/profile": "nightly", f"{GROUP}/workload": FLEET_PRESET}
    notes |= {f"{GROUP}/request-hash": request_hash}
    meta = {"name": "job", "namespace": "ml", "uid": "uid-job", "creationTimestamp": "2026-11-21T08:50:00Z"}
    return {"metadata": meta | {"labels": labels, "annotations": notes}}


# Outputs, made by both versions.


def outputs(given: Raw) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each output."""
    for name, asked in given["requests"].items():
        yield f"replay/{name}.json", _result_bytes(asked)
    fleet = given["fleet"]
    for level in ("node", "pool"):
        yield f"metrics/{level}.txt", _metrics(fleet, level)
    yield "report/fleet.html", _page("Profile ml/nightly", [*fleet.values()], next(iter(fleet.values())))
    for name, node in fleet.items():
        yield f"report/{name}.html", _page(f"Node {name}", [node], node)


def _replayed(given: Mapping[str, Any]) -> Any:
    """The outcome of one replay at a clock that stands still."""
    clock = make("Clock", wall=NOW.timestamp, monotonic=float)
    options = make("ReplayOptions", scale=given["scale"], seed=0, fault=given["fault"])
    return symbol("run_request")(given["request"], "replay", options, clock=clock)


def _result_bytes(given: Mapping[str, Any]) -> bytes:
    """Exit code, termination message, and the full result as indented JSON."""
    outcome = _replayed(given)
    result = outcome.result.model_dump(mode="json", by_alias=True) if outcome.result is not None else None
    told = {"exit_code": outcome.exit_code, "result": result, "termination": outcome.message.decode()}
    return json.dumps(told, indent=1, sort_keys=True).encode()


def _metrics(fleet: Mapping[str, Raw], level: str) -> bytes:
    """The exposition text of the fleet's reports, its profile and a capacity plan, with GEMM times of every node."""
    made = symbol("Store")
    clock = (lambda: NOW,) if "clock" in signature(made).parameters else ()
    store = made(level, *clock)
    counts = {"matched": len(fleet), "eligible": len(fleet), "succeeded": len(fleet), "simulated": len(fleet)}
    status = {"phase": "Complete", "nodes": counts, "lastRun": "2026-11-21T09:00:00Z"}
    store.see_profile({"metadata": PROFILE, "spec": {"workload": {"preset": FLEET_PRESET}}, "status": status})
    store.see_plan(CAPACITY_PLAN)
    gemms = {}
    for node in fleet.values():
        store.see_report(node["report"])
        packed = gzip.compress(json.dumps(node["result"]).encode(), mtime=0)
        body = {"binaryData": {"result.json.gz": base64.b64encode(packed).decode()}}
        gemms["ml", "nightly", node["report"]["spec"]["nodeName"]] = symbol("gemm_times")(body)
    store.put_gemms(gemms)
    text: bytes = symbol("build")(store.view()).text
    return text


def _page(subject: str, nodes: list[Raw], full: Raw) -> bytes:
    """The report page of these nodes, with the full result of one of them."""
    rows = [
        symbol("Node")(
            node["report"]["spec"]["nodeName"],
            node["pool"],
            symbol("ReportStatus").model_validate(node["report"]["status"]),
        )
        for node in nodes
    ]
    result = symbol("MeasurementResult").model_validate(full["result"])
    given = make("Given", subject=subject, made_at=MADE_AT, nodes=tuple(rows), result=result, price=10.5)
    page: str = symbol("page")(given)
    return page.encode()


def _written(given: Raw, folder: Path) -> None:
    for name, content in outputs(given):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    check_version()
    match sys.argv[1:]:
        case ["inputs", file]:
            Path(file).write_text(json.dumps(inputs()))
        case ["make", file, folder]:
            _written(json.loads(Path(file).read_text()), Path(folder))
        case _:
            sys.exit(__doc__)
