"""What the watches have shown, by kind and UID, trimmed to what decisions need.

Three writers: watch events, complete lists, and the answers to our own writes. The newest resourceVersion wins, and
what was deleted stays deleted, so that neither a slow watch nor an old list brings a past state back.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from precision_api.names import ANNOTATION_RERUN

Kind = Literal["nodes", "profiles", "reports", "jobs", "pods"]
KINDS: tuple[Kind, ...] = ("nodes", "profiles", "reports", "jobs", "pods")
TOMBSTONES = 20_000

Raw = Mapping[str, Any]


class Cache:
    """The operator's picture of the cluster; `changed` is set when a decision might come out differently."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._objects: dict[Kind, dict[str, Raw]] = {kind: {} for kind in KINDS}
        self._versions: dict[str, int] = {}
        self._buried: OrderedDict[str, None] = OrderedDict()
        self._began = time.monotonic()
        self._heard: dict[tuple[Kind, str | None], float] = {}

    def all(self, kind: Kind) -> Mapping[str, Raw]:
        """Trimmed objects by UID."""
        return self._objects[kind]

    def hear(self, kind: Kind, namespace: str | None) -> None:
        """Something of this kind has come from the API server unasked, or in a complete list of the namespace."""
        self._heard[kind, namespace] = time.monotonic()

    def age(self, kind: Kind, namespace: str | None) -> float:
        """Seconds since anything of this kind was heard from the namespace; since the start where nothing was."""
        return time.monotonic() - self._heard.get((kind, namespace), self._began)

    def put(self, kind: Kind, raw: Raw) -> None:
        """Take an object as seen in an event, a list, or the answer to a write of ours."""
        uid, version = _identity(raw)
        if not uid or uid in self._buried or version < self._versions.get(uid, 0):
            return
        self._versions[uid] = version
        trimmed = TRIM[kind](raw)
        if self._objects[kind].get(uid) != trimmed:
            self._objects[kind][uid] = trimmed
            self.changed.set()

    def drop(self, kind: Kind, uid: str) -> None:
        """Take the end of an object; UIDs don't come back."""
        self._buried[uid] = None
        while len(self._buried) > TOMBSTONES:
            self._buried.popitem(last=False)
        self._versions.pop(uid, None)
        if self._objects[kind].pop(uid, None) is not None:
            self.changed.set()

    def take_list(
        self, kind: Kind, items: Iterable[Raw], version: str, before: frozenset[str], namespace: str | None = None
    ) -> None:
        """Take a complete list. What was known `before` the list began, is older than it and not in it, is gone."""
        self.hear(kind, namespace)
        seen = set()
        for raw in items:
            seen.add(_identity(raw)[0])
            self.put(kind, raw)
        for uid in before - seen:
            if self._versions.get(uid, 0) <= _number(version):
                self.drop(kind, uid)


def _identity(raw: Raw) -> tuple[str, int]:
    meta = raw.get("metadata") or {}
    return str(meta.get("uid") or ""), _number(meta.get("resourceVersion"))


def _number(version: object) -> int:
    """resourceVersions are comparable numbers since Kubernetes 1.35 says so; etcd's always were."""
    text = str(version or "0")
    return int(text) if text.isdigit() else 0


def _meta(raw: Raw, *keys: str) -> dict[str, Any]:
    meta = raw.get("metadata") or {}
    return {key: meta[key] for key in ("name", "namespace", "uid", "deletionTimestamp", *keys) if key in meta}


def _annotations(raw: Raw, *keys: str) -> dict[str, Any]:
    """Only these annotations: kubectl's own copy of a spec is as large as the object."""
    found = (raw.get("metadata") or {}).get("annotations") or {}
    kept = {key: found[key] for key in keys if key in found}
    return {"annotations": kept} if kept else {}


def _pick(raw: Raw, part: str, *keys: str) -> dict[str, Any]:
    found = raw.get(part) or {}
    return {key: found[key] for key in keys if key in found}


def _node(raw: Raw) -> Raw:
    """Heartbeats must not look like changes: of the conditions only Ready, without its times."""
    status = _pick(raw, "status", "allocatable", "capacity", "nodeInfo")
    conditions = (raw.get("status") or {}).get("conditions") or []
    ready = [c for c in conditions if c.get("type") == "Ready"]
    keep = ("type", "status", "reason", "message")
    status["conditions"] = [{key: c[key] for key in keep if key in c} for c in ready]
    status["nodeInfo"] = {k: v for k, v in (status.get("nodeInfo") or {}).items() if k == "architecture"}
    return {
        "metadata": _meta(raw, "labels"),
        "spec": _pick(raw, "spec", "taints", "unschedulable", "providerID"),
        "status": status,
    }


def _profile(raw: Raw) -> Raw:
    return {
        "metadata": _meta(raw, "resourceVersion", "generation", "creationTimestamp")
        | _annotations(raw, ANNOTATION_RERUN),
        "spec": raw.get("spec") or {},
        "status": raw.get("status") or {},
    }


def _report(raw: Raw) -> Raw:
    return {
        "metadata": _meta(raw, "resourceVersion", "ownerReferences") | _annotations(raw, ANNOTATION_RERUN),
        "spec": raw.get("spec") or {},
        "status": raw.get("status") or {},
    }


def _job(raw: Raw) -> Raw:
    return {
        "metadata": _meta(raw, "labels", "annotations", "creationTimestamp"),
        "spec": _pick(raw, "spec", "suspend"),
        "status": _pick(raw, "status", "conditions"),
    }


def _pod(raw: Raw) -> Raw:
    return {
        "metadata": _meta(raw, "labels", "annotations", "creationTimestamp"),
        "spec": _pick(raw, "spec", "nodeName"),
        "status": _pick(raw, "status", "phase", "conditions", "containerStatuses"),
    }


TRIM: Mapping[Kind, Callable[[Raw], Raw]] = {
    "nodes": _node,
    "profiles": _profile,
    "reports": _report,
    "jobs": _job,
    "pods": _pod,
}
