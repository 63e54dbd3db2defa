"""A made-up audit log of a small sweep, of which each request is as the API server writes it; for trying the reader.

Eight nodes of GB300 in two racks. Waves of four agents, each with two in a rack, begin as soon as the last has ended.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
GROUP = "precisionprofiler.io"
PROFILE = {"metadata": {"name": "p", "namespace": "ml", "uid": "uid-p"}, "spec": {}}
NODES = [
    {
        "metadata": {
            "name": f"n{place}",
            "uid": f"uid-n{place}",
            "labels": {"rack": f"rack-{place % 2}", "nvidia.com/gpu.product": "NVIDIA-GB300"},
        },
        "status": {"allocatable": {"nvidia.com/gpu": "4"}},
    }
    for place in range(8)
]
WAVE = 4
BEGAN = datetime(2026, 11, 27, 12, tzinfo=UTC)


def log(lost: int | None = None, same_node: bool = False) -> list[Json]:
    """The log's entries, by time. `lost`: this agent's result is not written; `same_node`: the last agent of the first
    wave is on the node of the first, one that is in another rack then."""
    return sorted(_entries(lost, same_node), key=lambda entry: entry["stageTimestamp"])


def _entries(lost: int | None, same_node: bool) -> Iterator[Json]:
    for place in range(len(NODES)):
        at = BEGAN + timedelta(seconds=10 * (place // WAVE))
        node = 0 if same_node and place == 2 else place
        job, report = f"pp-{place:016x}", f"p-{place:010x}"
        labels = {f"{GROUP}/profile-uid": "uid-p", f"{GROUP}/node-uid": f"uid-n{node}"}
        marks = {"app.kubernetes.io/name": "precision-agent", f"{GROUP}/run": "run", f"{GROUP}/attempt": "1"}
        body = {"metadata": {"name": report, "namespace": "ml", "labels": labels}}
        yield _entry(at, 0.1, "create", "nodeprecisionreports", "", body)
        yield _entry(at, 0.2, "create", "jobs", "", {"metadata": {"name": job, "labels": labels | marks}})
        yield _entry(at, 0.3, "create", "pods/binding", f"{job}-abcde")
        end = {"state": {"terminated": {"exitCode": 0, "message": '{"v": "PPS1"}'}}}
        yield _entry(at, 1, "patch", "pods/status", f"{job}-abcde", {"status": {"phase": "Running"}})
        ended = {"status": {"phase": "Succeeded", "containerStatuses": [end]}}
        yield _entry(at, 9, "patch", "pods/status", f"{job}-abcde", ended)
        status = {"attempt": {"outcome": "succeeded", "run": "run", "number": 1}}
        if place != lost:
            patch = [{"op": "test", "path": "/metadata/uid"}, {"op": "add", "path": "/status", "value": status}]
            yield _entry(at, 9.2, "patch", "nodeprecisionreports/status", report, patch)
        yield _entry(at, 9.4, "delete", "jobs", job, {"propagationPolicy": "Background"})
        yield _entry(at, 9.6, "delete", "pods", f"{job}-abcde", {"gracePeriodSeconds": 0})


def _entry(at: datetime, seconds: float, verb: str, what: str, name: str, body: Any = None) -> Json:
    received = at + timedelta(seconds=seconds)
    resource, _, part = what.partition("/")
    ref = {"resource": resource, "namespace": "ml"} | ({"name": name} if name else {})
    return {
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": ref | ({"subresource": part} if part else {}),
        "responseStatus": {"code": 201 if verb == "create" else 200},
        "requestReceivedTimestamp": received.isoformat(timespec="microseconds"),
        "stageTimestamp": (received + timedelta(milliseconds=5)).isoformat(timespec="microseconds"),
    } | ({"requestObject": body} if body is not None else {})
