"""Everything that became of a namespace's objects, in the order in which it did: what an observer from outside saw.

The API server numbers all writes of a cluster in one order (resourceVersion), so that what several watches show can be
put together afterwards as it was. A watch that lost its place would leave a gap: that fails the test.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Literal

from precision_api.facts import names
from precision_operator.cluster import paths
from tests.support.api_server import ApiServer
from tests.support.eventually import eventually

Object = dict[str, Any]
Kind = Literal["profiles", "reports", "jobs", "pods", "details"]
PATHS: dict[Kind, Callable[[str], str]] = {
    "profiles": paths.profiles,
    "reports": paths.reports,
    "jobs": paths.jobs,
    "pods": paths.pods,
    "details": paths.config_maps,
}


@dataclass(frozen=True)
class Change:
    """One write: `type` is ADDED, MODIFIED or DELETED (with the object as it was last)."""

    version: int
    kind: str
    type: str
    object: Object

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])


class Watches:
    """Watches lists of the API server, by the kind of what is in them, from now on, until `close`."""

    def __init__(self, api: ApiServer, lists: Mapping[str, str]) -> None:
        self._api = api
        self._paths = lists
        self._seen: list[Change] = []
        self._ending = threading.Event()
        self._broken = False
        for kind, path in self._paths.items():
            eventually(lambda path=path: api.call("GET", path)[0] == 200)  # a new definition's storage starts slowly
            listed = self._api.ask("GET", path)
            self._seen += [Change(_version(item), kind, "ADDED", item) for item in listed["items"]]
            version = listed["metadata"]["resourceVersion"]
            threading.Thread(target=self._follow, args=(kind, path, version), daemon=True).start()

    def close(self) -> None:
        """Lets the watches run out."""
        self._ending.set()

    def all_changes(self) -> list[Change]:
        """All changes up to now in the order of the cluster."""
        eventually(lambda: all(self._shows(kind, self._api.ask("GET", path)) for kind, path in self._paths.items()))
        assert not self._broken, "a watch lost its place, so that the history has a gap"
        return sorted(self._seen, key=lambda change: change.version)

    def _shows(self, kind: str, listed: Object) -> bool:
        seen = [change for change in list(self._seen) if change.kind == kind]
        last = {change.uid: change.version for change in sorted(seen, key=lambda change: change.version)}
        now = {item["metadata"]["uid"]: _version(item) for item in listed["items"]}
        gone = {uid for uid, item in present(seen).items() if _version(item) <= _version(listed)} - now.keys()
        return not gone and all(last.get(uid, 0) >= version for uid, version in now.items())

    def _follow(self, kind: str, path: str, version: str) -> None:
        while not self._ending.is_set():
            try:
                for event in self._api.watch(path, version):
                    if event["type"] == "ERROR":
                        self._broken = True
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._seen.append(Change(_version(event["object"]), kind, event["type"], event["object"]))
            except (OSError, HTTPException, ValueError):
                self._ending.wait(0.1)  # the connection was lost, also within a line: go on from where it was


class History(Watches):
    """Watches one namespace from now on, until `close`."""

    def __init__(self, api: ApiServer, namespace: str, kinds: Collection[Kind] = tuple(PATHS)) -> None:
        """`kinds`: those to watch; a definition that is changed meanwhile breaks the watches of its kind."""
        super().__init__(api, {kind: path(namespace) for kind, path in PATHS.items() if kind in kinds})

    def changes(self, profile_uid: str | None = None) -> list[Change]:
        """All changes up to now, or those of one profile and what belongs to it, in the order of the cluster."""
        return [change for change in self.all_changes() if profile_uid in (None, owner_uid(change))]


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def owner_uid(change: Change) -> str:
    """UID of the profile that a change is of or belongs to."""
    meta = change.object["metadata"]
    if change.kind == "profiles":
        return str(meta["uid"])
    labels = meta.get("labels", {})
    owners = [ref["uid"] for ref in meta.get("ownerReferences", ()) if ref["kind"] == names.PROFILE_KIND]
    return str(labels.get(names.LABEL_PROFILE_UID) or next(iter(owners), ""))


def present(changes: Iterable[Change]) -> dict[str, Object]:
    """The objects that are there after these changes, by UID."""
    there: dict[str, Object] = {}
    for change in sorted(changes, key=lambda change: change.version):
        if change.type == "DELETED":
            there.pop(change.uid, None)
        else:
            there[change.uid] = change.object
    return there


def created(changes: Iterable[Change], kind: Kind) -> list[Object]:
    return [change.object for change in changes if change.kind == kind and change.type == "ADDED"]


def most_agents(changes: Iterable[Change], place: str = "") -> int:
    """The most agents that there were at one time, or on one node where `place` is a node's UID.

    An agent is a Job that has not ended, or a pod that has not, whichever lasts longer.
    """
    jobs: dict[str, str] = {}
    pods: dict[str, str] = {}
    most = 0
    for change in changes:
        labels = change.object["metadata"].get("labels", {})
        if change.kind not in ("jobs", "pods") or place not in ("", labels.get(names.LABEL_NODE_UID)):
            continue
        held = jobs if change.kind == "jobs" else pods
        held.pop(change.uid, None)
        if change.type != "DELETED" and not has_ended(change.object):
            held[change.uid] = (
                labels["batch.kubernetes.io/job-name"] if held is pods else change.object["metadata"]["name"]
            )
        most = max(most, len({*jobs.values(), *pods.values()}))
    return most


def has_ended(item: Object) -> bool:
    """Whether a pod or a Job is over."""
    status = item.get("status", {})
    over = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"} & {"Complete", "Failed"}
    return bool(over) or status.get("phase") in ("Succeeded", "Failed")
