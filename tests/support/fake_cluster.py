"""An API server in memory: it keeps objects with uid and resourceVersion, and fails where a test tells it to."""

import asyncio
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from precision_operator.cluster import ApiError
from precision_operator.cluster.server_time import ServerTime

Json = dict[str, Any]
TIMEOUT = ApiError(0, "Timeout", "no answer within 30 s")


def discovery(group: str, plural: str, *versions: str) -> dict[str, Json]:
    """What discovery tells of a kind that is served in these versions, in this order of preference, by path."""
    if not versions:
        return {}
    kinds = {f"/apis/{group}/{version}": {"resources": [{"name": plural}]} for version in versions}
    return {f"/apis/{group}": {"versions": [{"groupVersion": f"{group}/{version}"} for version in versions]}} | kinds


def agent_pod(job: Json, phase: str, state: Json | None = None, **meta: Any) -> Json:
    """The pod that the Job controller makes of an agent's Job; bound to its node once its container has a state."""
    owner = job["metadata"]
    marks = {"batch.kubernetes.io/job-name": owner["name"], "batch.kubernetes.io/controller-uid": owner["uid"]}
    container = {"name": "agent", "image": "agent", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
    metadata = {"name": f"{owner['name']}-x", "namespace": owner["namespace"], "labels": owner["labels"] | marks}
    bound = {"nodeName": owner["annotations"]["precisionprofiler.io/node"]} if state else {}
    statuses = {"containerStatuses": [{"name": "agent", "state": state}]} if state else {}
    return {
        "metadata": metadata | meta,
        "spec": {"containers": [container]} | bound,
        "status": {"phase": phase} | statuses,
    }


class FakeCluster:
    """Stands in for the client of the API server: the requests that reading and acting make, by path."""

    namespace = "ml"

    def __init__(self, *objects: tuple[str, Json]) -> None:
        self.server_time = ServerTime()
        self.objects: dict[str, Json] = {}
        self.logs: dict[str, bytes] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        """By pod, until when its log does not come."""
        self.held_up: dict[str, asyncio.Event] = {}
        """By part of the path, until when a write gets no answer."""
        self.requests: list[tuple[str, str]] = []
        self.patches: list[tuple[str, Any]] = []
        """Path and body of each."""
        self.failures: list[tuple[str, str, Exception, bool]] = []
        self.forbidden: set[str] = set()
        """Collections that may not be listed."""
        self.version = 100
        self.created = "2026-11-21T09:00:00Z"
        """When whatever is created now was created, as it says."""
        for collection, body in objects:
            self._store(f"{collection}/{body['metadata']['name']}", body)

    def fail(self, method: str, part: str, error: Exception, after: bool = False) -> None:
        """The next `method` on a path that holds `part` fails; with `after`, although it was done."""
        self.failures.append((method, part, error, after))

    def serve(self, group: str, plural: str, *versions: str) -> None:
        """Discovery knows a kind in these versions, in this order of preference; without any it is not known."""
        self.objects |= discovery(group, plural, *versions)

    def _asked(self, method: str, path: str, after: bool = False) -> None:
        if not after:
            self.requests.append((method, path))
        for failure in self.failures:
            if failure[0] == method and failure[1] in path and failure[3] is after:
                self.failures.remove(failure)
                raise failure[2]

    async def _answered(self, path: str) -> None:
        """Returns when the webhooks of a write have answered."""
        for part, event in self.held_up.items():
            if part in path:
                await event.wait()

    def _store(self, path: str, given: Mapping[str, Any]) -> Json:
        self.version += 1
        body = pickle.loads(pickle.dumps(dict(given)))
        stamp = {"uid": f"uid-{self.version}", "creationTimestamp": self.created}
        body["metadata"] = stamp | body["metadata"] | {"resourceVersion": str(self.version)}
        self.objects[path] = body
        return pickle.loads(pickle.dumps(body))

    def _found(self, path: str) -> Json:
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path}: not found")
        return self.objects[path]

    async def get(self, path: str, query: object = None) -> Json:
        self._asked("GET", path)
        return pickle.loads(pickle.dumps(self._found(path)))

    async def list_all(
        self, path: str, label_selector: str | None = None, field_selector: str | None = None, limit: int = 500
    ) -> tuple[list[Json], str]:
        self._asked("LIST", f"{path}?{label_selector or ''}&{field_selector or ''}")
        if path in self.forbidden:
            raise ApiError(403, "Forbidden", f"LIST {path}: forbidden", words=f"{path.rpartition('/')[2]} is forbidden")
        terms = re.findall(r"([^,=\s]+)(?:=([^,]*)| in \(([^)]*)\))", label_selector or "")
        wanted = [(key, (one or several).split(",")) for key, one, several in terms]
        fields = [pair.split("=") for pair in (field_selector or "").split(",")]
        fields = [pair for pair in fields if pair[0] in ("metadata.name", "spec.nodeName")]
        found = [
            pickle.loads(pickle.dumps(body))
            for where, body in self.objects.items()
            if _in(path, where)
            and all(body["metadata"].get("labels", {}).get(key) in values for key, values in wanted)
            and all((body.get(name.split(".")[0]) or {}).get(name.split(".")[1], "") == value for name, value in fields)
        ]
        return found, str(self.version)

    async def list_trimmed(
        self, path: str, view: Callable[[Json], Any], *told: Any, cut: Any = list, **more: Any
    ) -> tuple[list[Any], str]:
        asked = {key: value for key, value in more.items() if key not in ("most", "progress")}
        items, version = await self.list_all(path, *told, **asked)
        return cut([seen for item in items if (seen := view(item)) is not None]), version

    async def create(self, path: str, body: Json, query: object = None) -> Json:
        where = f"{path}/{body['metadata']['name']}"
        self._asked("POST", where)
        await self._answered(where)
        if where in self.objects:
            raise ApiError(409, "AlreadyExists", f"{where} already exists")
        created = self._store(where, body)
        self._asked("POST", where, after=True)
        return created

    async def patch(self, path: str, body: Json | Sequence[Json], kind: str = "merge", query: object = None) -> Json:
        self._asked("PATCH", path)
        self.patches.append((path, body))
        await self._answered(path)
        there = pickle.loads(pickle.dumps(self._found(path.removesuffix("/status"))))
        if isinstance(body, Mapping):
            given = body.get("metadata") or {}
            if any(there["metadata"].get(key) != given[key] for key in ("uid", "resourceVersion") if key in given):
                raise ApiError(409, "Conflict", f"{path}: it has changed")
            there |= {key: value for key, value in body.items() if key != "metadata"}
            if "annotations" in given:
                there["metadata"]["annotations"] = there["metadata"].get("annotations", {}) | given["annotations"]
        else:
            for test in (row for row in body if row["op"] == "test"):
                if there["metadata"].get(test["path"].removeprefix("/metadata/")) != test["value"]:
                    raise ApiError(422, "Invalid", f"{path}: the test of the patch fails")
            for row in (row for row in body if row["op"] == "add"):
                _set(there, row["path"], row["value"])
        patched = self._store(path.removesuffix("/status"), there)
        self._asked("PATCH", path, after=True)
        return patched

    async def delete(
        self, path: str, uid: str | None = None, resource_version: str | None = None, propagation: str = "Background"
    ) -> Json:
        self._asked("DELETE", path)
        if uid is not None and self._found(path)["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", f"{path}: another uid")
        del self.objects[path]
        self._asked("DELETE", path, after=True)
        return {"kind": "Status", "status": "Success"}

    async def read_log(self, namespace: str, pod: str, container: str | None = None, **_: Any) -> bytes:
        self._asked("LOG", pod)
        if pod in self.hanging:
            await self.hanging[pod].wait()
        if pod not in self.logs:
            raise ApiError(404, "NotFound", f"log of {pod}: not found")
        return self.logs[pod]


def _set(body: Json, path: str, value: Any) -> None:
    """Set what a JSON pointer names."""
    *parents, last = [part.replace("~1", "/") for part in path.strip("/").split("/")]
    for part in parents:
        body = body[part]
    body[last] = value


def _in(collection: str, path: str) -> bool:
    """Whether an object lies in a collection of one namespace, or of all."""
    folder = path.rsplit("/", 1)[0]
    root, plural = collection.rsplit("/", 1)
    return folder == collection or (folder.startswith(f"{root}/namespaces/") and folder.endswith(f"/{plural}"))
