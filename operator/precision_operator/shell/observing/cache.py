"""What the operator's watches, lists and writes have shown, by kind and UID, trimmed to what decisions need."""

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, get_args

from precision_api.facts import names
from precision_api.facts.names import AGENT_CONTAINER, ANNOTATION_RERUN, GPU_RESOURCE, KWOK_NODE, PROFILE_KIND
from precision_operator.cluster.object_store import ObjectStore, identity
from precision_operator.core.observe.gpu_slices import SliceView, slice_view
from precision_operator.core.observe.kept_report import kept_report
from precision_operator.core.observe.node_gate import CONDITION
from precision_operator.core.observe.nodes import NOT_CERTIFIED, QUARANTINED
from precision_operator.core.observe.observed import Raw, ReportView
from precision_operator.core.observe.raw_object import entries, section
from precision_operator.core.observe.views import asked_gpus, report_view

_log = logging.getLogger(__name__)

ObjectKind = Literal["nodes", "slices", "profiles", "reports", "jobs", "pods"]
KINDS: tuple[ObjectKind, ...] = get_args(ObjectKind)
OF_CLUSTER: tuple[ObjectKind, ...] = ("nodes", "slices")
"""Kinds that are in no namespace."""

SHORT_TEXT = 64  # longer texts are messages and digests, which differ from object to object

MOST_GONE_PODS = 256
"""Of one namespace."""
MARKS = [value for name, value in vars(names).items() if name.startswith(("LABEL_", "ANNOTATION_"))]
MARKS += ["batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"]
ROWS = (("conditions", "type", ("PodScheduled", "DisruptionTarget")), ("containerStatuses", "name", (AGENT_CONTAINER,)))
KEPT = ("name", "resourceClaimName", "imageID", "state", "type", "status", "reason", "message", "lastTransitionTime")
MOST_MARK, MOST_POD_CLAIMS = 8_192, 64
"""What is read of Jobs and pods, of which tenants may write a megabyte; bounds of a value, and of a pod's claims."""


class Cache:
    """The operator's picture of the cluster; `changed` is set when a decision might come out differently."""

    def __init__(self, image_prefixes: Sequence[str] = (), whole_reports: bool = False) -> None:
        """Of the images that a node lists those are kept whose name begins so; of reports what plans read, or all."""
        self._whole_reports = whole_reports
        self.image_prefixes = tuple(image_prefixes)
        self.changed = asyncio.Event()
        self._stores: dict[ObjectKind, ObjectStore[Any]] = {kind: ObjectStore() for kind in KINDS}
        self._slices_known = False
        self._gone_pods: dict[str, dict[str, Raw]] = {}
        """By namespace and UID, oldest first."""

    def all(self, kind: ObjectKind) -> Mapping[str, Any]:
        """What is kept of objects, by UID: they as they came, trimmed, but of reports their views."""
        return self._stores[kind].objects

    def changed_reports(self) -> Iterator[tuple[ReportView | None, ReportView | None]]:
        """Those that have changed since this was last asked, at first all: as they were then, and as they are."""
        return self._stores["reports"].take_changed()

    def version(self, kind: ObjectKind, uid: str) -> str:
        """The newest resourceVersion of an object that was seen."""
        return str(self._stores[kind].identities[uid].version)

    def slices(self) -> tuple[SliceView, ...] | None:
        """What is kept of the GPU driver's ResourceSlices; None while no list of them has succeeded."""
        if not self._slices_known:
            return None
        kept = (raw["slice"] for raw in self._stores["slices"].objects.values())
        return tuple(view for view in kept if view is not None)

    def slices_refused(self) -> None:
        """ResourceSlices are not served, or may not be listed: nothing is known of them any more."""
        if self._slices_known:
            self._slices_known = False
            self.changed.set()

    def put(self, kind: ObjectKind, raw: Raw) -> None:
        """Take an object as seen in an event, a list, or the answer to a write of ours.

        One that can't be taken (nobody knows of what shape it will be) stays as it was: a list must not end over it.
        """
        named = identity(raw)
        if kind == "reports" and named == self._stores[kind].identities.get(named.uid):
            return
        try:
            kept = TRIM[kind](raw)
            if kind == "reports" and not self._whole_reports and kept.status is not None:
                kept = replace(kept, status=kept_report(kept.status))
            if kind == "nodes" and (images := _images(raw, self.image_prefixes)):
                kept["status"]["images"] = [{"names": images}]
        except Exception:
            _log.exception("%s %s can't be kept: it stays as it was", kind, named.uid)
            return
        if self._stores[kind].put(named, kept):
            self.changed.set()

    def drop(self, kind: ObjectKind, uid: str, version: int | None = None) -> None:
        """Take the end of an object, as a watch saw it at `version`; None: we have deleted it."""
        last = self._stores[kind].objects.get(uid)
        if not self._stores[kind].delete(uid, version):
            return
        self.changed.set()
        if kind == "pods" and last is not None:
            gone = self._gone_pods.setdefault(str(last["metadata"].get("namespace")), {})
            gone[uid] = last
            if len(gone) > MOST_GONE_PODS:
                del gone[next(iter(gone))]

    def is_lost(self, kind: ObjectKind, uid: str) -> bool:
        """Whether nothing shows an object that may be there: a watch by label has seen its end, if that."""
        return uid not in self.all(kind) and self._stores[kind].deleted.get(uid) != math.inf

    def gone_pods(self) -> Iterable[Raw]:
        """Pods that were deleted lately, as they were last seen: a Job that has lost its pod does not say to whom."""
        return chain.from_iterable(gone.values() for gone in self._gone_pods.values())

    def end_list(self, kind: ObjectKind, listed: Collection[str], version: str, namespace: str | None = None) -> None:
        """A complete list of one namespace (None: of all) has ended, read at resourceVersion `version`.

        Its objects, of which these are the UIDs, were put page by page as they came; what it lacks has gone.
        """
        if kind == "slices" and not self._slices_known:
            self._slices_known = True
            self.changed.set()
        if self._stores[kind].delete_unlisted(frozenset(listed), version, namespace):
            self.changed.set()


def _meta(raw: Raw, *keys: str) -> dict[str, Any]:
    meta = raw.get("metadata") or {}
    return {key: meta[key] for key in ("name", "namespace", "uid", "deletionTimestamp", *keys) if key in meta}


def _labels(raw: Raw) -> dict[str, Any]:
    """All labels: a fleet's nodes share nearly all of them, up to two hundred a node."""
    labels = (raw.get("metadata") or {}).get("labels")
    return {"labels": _interned(labels)} if labels else {}


def _interned(value: Any) -> Any:
    """The same value, its long texts cut. Each short one is held once for the fleet: thousands of objects share it."""
    if isinstance(value, dict):
        return {sys.intern(key): _interned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_interned(item) for item in value]
    if not isinstance(value, str):
        return value
    return sys.intern(value) if len(value) <= SHORT_TEXT else value[:MOST_MARK]


def _annotations(raw: Raw, *keys: str, part: str = "annotations") -> dict[str, Any]:
    """Only these annotations: kubectl's own copy of a spec is as large as the object."""
    values = (raw.get("metadata") or {}).get(part) or {}
    kept = {key: str(values[key])[:MOST_MARK] for key in keys if key in values}
    return {part: kept} if kept else {}


def _marked(raw: Raw) -> dict[str, Any]:
    """Metadata of a Job or a pod, as far as it is read."""
    kept = _meta(raw, "creationTimestamp") | _owner(raw, controller=True)
    return kept | _annotations(raw, *MARKS) | _annotations(raw, *MARKS, part="labels")


def _owner(raw: Raw, **fields: object) -> dict[str, Any]:
    """The first owner of which this holds, its texts cut."""
    rows = (raw.get("metadata") or {}).get("ownerReferences") or ()
    row: Raw = next((row for row in rows if fields.items() <= row.items()), {})
    return {"ownerReferences": [_interned(row)]} if row else {}


def _pick(raw: Raw, part: str, *keys: str) -> dict[str, Any]:
    values = raw.get(part) or {}
    return {key: values[key] for key in keys if key in values}


def _node(raw: Raw) -> dict[str, Any]:
    """Heartbeats must not look like changes: of conditions only Ready and NVCRE's, without those, and ours."""
    status = _pick(raw, "status", "allocatable", "capacity", "nodeInfo")
    conditions = (raw.get("status") or {}).get("conditions") or []
    ready = [c for c in conditions if c.get("type") in ("Ready", NOT_CERTIFIED)]
    keep = ("type", "status", "reason", "message", "lastTransitionTime")
    ours = [c for c in conditions if c.get("type") == CONDITION]
    status["conditions"] = [{key: c[key] for key in keep if key in c} for c in ready] + ours
    status["nodeInfo"] = {k: v for k, v in (status.get("nodeInfo") or {}).items() if k in ("architecture", "bootID")}
    return {
        "metadata": _meta(raw) | _labels(raw) | _annotations(raw, QUARANTINED, KWOK_NODE),
        "spec": _pick(raw, "spec", "taints", "unschedulable", "providerID"),
        "status": status,
    }


def _images(raw: Raw, prefixes: tuple[str, ...]) -> list[str]:
    """Names of images that begin so, each text held once; in one order, for a kubelet's changes with their sizes."""
    listed = (raw.get("status") or {}).get("images") or [] if prefixes else []
    names = (str(name) for image in listed for name in image.get("names") or ())
    return sorted(sys.intern(name) for name in names if name.startswith(prefixes))


def _profile(raw: Raw) -> dict[str, Any]:
    meta = _meta(raw, "resourceVersion", "generation", "creationTimestamp") | _annotations(raw, ANNOTATION_RERUN)
    return {"metadata": meta, "spec": raw.get("spec") or {}, "status": raw.get("status") or {}}


def _report(raw: Raw) -> ReportView:
    """The report, read as it comes; without a node's UID where it does not say which node it is of."""
    marks = _annotations(raw, ANNOTATION_RERUN, names.ANNOTATION_CLOSED)
    meta = _meta(raw, "resourceVersion") | _owner(raw, kind=PROFILE_KIND) | marks
    kept = {"metadata": _interned(meta), "spec": _interned(raw.get("spec") or {}), "status": raw.get("status") or {}}
    view = report_view(kept)
    if view is not None and (view.status is not None or not kept["status"]):
        return view
    name, namespace, uid = (str(meta.get(key, "")) for key in ("name", "namespace", "uid"))
    return replace(view or ReportView(name, namespace, uid, "", "", "", ""), unread=_interned(kept))


def _job(raw: Raw) -> dict[str, Any]:
    spec, status = _pick(raw, "spec", "suspend"), _pick(raw, "status", "conditions")
    return {"metadata": _marked(raw), "spec": spec, "status": status}


def _pod(raw: Raw) -> dict[str, Any]:
    status, asked = section(raw, "status"), entries(section(raw, "spec"), "resourceClaims")[:MOST_POD_CLAIMS]
    read = {
        part: [{name: row[name] for name in KEPT if name in row} for row in entries(status, part) if row.get(key) in of]
        for part, key, of in (*ROWS, ("resourceClaimStatuses", "name", {row.get("name") for row in asked}))
    }
    return {
        "metadata": _marked(raw),
        "spec": _pick(raw, "spec", "nodeName", "priority")
        | {"resourceClaims": asked}
        | {"containers": [{"resources": {"requests": {GPU_RESOURCE: str(asked_gpus(raw, (GPU_RESOURCE,)))}}}]},
        "status": _interned(_pick(raw, "status", "phase", "reason", "message") | read),
    }


TRIM: Mapping[ObjectKind, Callable[[Raw], Any]] = {
    "nodes": _node,
    "slices": lambda raw: {"slice": slice_view(raw)},  # as they come, a fleet's are ten times as large
    "profiles": _profile,
    "reports": _report,
    "jobs": _job,
    "pods": _pod,
}
