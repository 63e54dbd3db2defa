"""What the audit log says of a phase: Jobs, places, latencies, requests, renewals."""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from precision_api.facts.names import LABEL_NODE_UID, LABEL_PROFILE_UID

Json = dict[str, Any]
KEPT = [
    {"group": "batch", "resources": ["jobs"]},
    {"group": "", "resources": ["pods/status"]},
    {
        "group": "precisionprofiler.io",
        "resources": ["nodeprecisionreports", "nodeprecisionreports/status", "precisionprofiles/status"],
    },
]
"""Whose bodies the log keeps, beside those of deletions of pods."""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "verbs": ["create", "update", "patch", "delete"], "resources": KEPT},
        {"level": "Request", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:precision-system"]},
        {"level": "None"},
    ],
}
FOR_A_NODE = (
    *(
        "list pods",
        "create nodeprecisionreports",
        "create jobs",
        "get pods/log",
        "create configmaps",
        "patch configmaps",
    ),
    *("get nodeprecisionreports", "patch nodeprecisionreports/status", "delete jobs"),
)
"""Requests for one measured node; what comes by time (statuses, switches, events, looks at busy nodes) or once at a
start is none of them."""
LOOKED_AT = re.compile(r"spec\.nodeName=([^,&]+)")
LARGEST_LOG_MB = 100_000
"""Above what any run writes: the API server begins a new file there, which nobody would read."""


def flags(folder: Path) -> tuple[str, ...]:
    """Flags of an API server that writes its audit log into this folder."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps(POLICY))
    log = f"--audit-log-path={folder / 'audit.log'}"
    return (f"--audit-policy-file={policy}", log, f"--audit-log-maxsize={LARGEST_LOG_MB}")


@dataclass
class Trail:
    """The audit log as far as it was read, and what later entries need of earlier ones."""

    path: Path
    operator: str
    """How the operator's user name ends."""
    offset: int = 0
    jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Profile and node (UIDs) by name, and so of reports."""
    reports: dict[str, tuple[str, str]] = field(default_factory=dict)

    def phase(self) -> "Phase":
        """All that has come since the last call."""
        phase = Phase()
        with self.path.open("rb") as log:
            log.seek(self.offset)
            while (line := log.readline()).endswith(b"\n"):
                self.offset = log.tell()
                entry = json.loads(line)
                if entry["stage"] == "ResponseComplete":
                    self._see(entry, phase)
        return phase

    def _see(self, entry: Json, phase: "Phase") -> None:
        ref, body = entry.get("objectRef") or {}, entry.get("requestObject")
        named = "/".join(filter(None, (ref.get("resource"), ref.get("subresource")))) or "of the server itself"
        what = f"{entry['verb']} {named}"
        code = entry.get("responseStatus", {}).get("code", 0)
        received, answered = (_seconds(entry[key]) for key in ("requestReceivedTimestamp", "stageTimestamp"))
        if what in ("patch pods/status", "update pods/status") and code < 300:
            job = ref["name"].rpartition("-")[0]
            if (body or {}).get("status", {}).get("phase") in ("Succeeded", "Failed") and job in self.jobs:
                phase.ended[self.jobs[job]] = received
        if not entry["user"]["username"].endswith(f":{self.operator}"):
            return
        if what.endswith(" leases"):
            if entry["verb"] in ("update", "create") and code < 300:
                phase.renewals.append(received)
            return
        if entry["verb"] == "watch":
            return
        phase.requests[what] += 1
        if what == "list pods" and (node := LOOKED_AT.search(unquote(entry["requestURI"]))):
            phase.looks[node[1]] += 1
        phase.refused[str(code)] += code >= 300
        if code >= 300:
            return
        if what == "create jobs":
            self.jobs[body["metadata"]["name"]] = _of(body)
            phase.created.append(received)
        elif what == "delete jobs":
            phase.deleted.append(answered)
        elif what == "create nodeprecisionreports":
            self.reports[body["metadata"]["name"]] = _of(body)
        elif what == "patch nodeprecisionreports/status" and ref["name"] in self.reports:
            if _status(body).get("attempt", {}).get("outcome") == "succeeded":
                phase.written[self.reports[ref["name"]]] = answered
        elif what == "patch precisionprofiles/status":
            phase.statuses.append((answered, int(_status(body).get("nodes", {}).get("succeeded") or 0)))


@dataclass
class Phase:
    """One phase, in seconds since 1970."""

    requests: Counter[str] = field(default_factory=Counter)
    """The operator's, by verb and resource, but for watches and the Lease."""
    looks: Counter[str] = field(default_factory=Counter)
    """Lists of a node's pods, by node."""
    refused: Counter[str] = field(default_factory=Counter)
    created: list[float] = field(default_factory=list)
    deleted: list[float] = field(default_factory=list)
    ended: dict[tuple[str, str], float] = field(default_factory=dict)
    written: dict[tuple[str, str], float] = field(default_factory=dict)
    statuses: list[tuple[float, int]] = field(default_factory=list)
    renewals: list[float] = field(default_factory=list)

    def figures(self, began: float, busy: Collection[str], first_sweep: bool = False) -> Json:
        """`began`: when the phase did; `busy`: nodes that were so all the time; `first_sweep`: whether no node of the
        profile had a result before."""
        reports = [self.written[key] - at for key, at in self.ended.items() if key in self.written]
        row: Json = {
            "jobs": len(self.created),
            "requests": dict(self.requests.most_common()),
            "refused": {code: count for code, count in self.refused.items() if count},
            "longestRenewalGapSeconds": max((b - a for a, b in pairwise(self.renewals)), default=None),
            "toReportSeconds": percentiles(reports),
        }
        if self.created:
            first, last = min(self.created), max(self.created)
            row |= {"firstJobSeconds": first - began, "sweepSeconds": max(self.written.values(), default=last) - began}
            row |= {"jobsPerSecond": len(self.created) / (last - first) if last > first else None}
            row |= {"placesInUse": self._places(first, last), "requestsPerNode": self._per_node(*self.requests)}
            in_vain = sum(self.looks[name] for name in busy)
            row["requestsForANode"] = self._per_node(*FOR_A_NODE) - in_vain / len(self.created)
            row["looksAtBusyNodes"] = in_vain
        if first_sweep:
            row["toStatusSeconds"] = percentiles(self._to_status())
        return row

    def _per_node(self, *what: str) -> float:
        return sum(self.requests[it] for it in what) / len(self.created)

    def _places(self, first: float, last: float) -> float | None:
        """The mean from the first creation to the last."""
        steps = [(at, 1) for at in self.created] + [(at, -1) for at in self.deleted]
        area = sum(step * (last - at) for at, step in steps if at < last)
        return area / (last - first) if last > first else None

    def _to_status(self) -> list[float]:
        """From a pod's end to the first status of the profile that counts as many results as there were reports."""
        rows = sorted((at, self.ended[key]) for key, at in self.written.items() if key in self.ended)
        taken = []
        for count, (_, ended) in enumerate(rows, 1):
            shown = next((at for at, succeeded in self.statuses if succeeded >= count), None)
            if shown is not None:
                taken.append(shown - ended)
        return taken


def percentiles(values: Sequence[float]) -> Json | None:
    """P50, P95, P99, the largest and how many; None without any."""
    ordered = sorted(values)
    if not ordered:
        return None
    places = {f"p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 95, 99)}
    return places | {"most": ordered[-1], "count": len(ordered)}


def _of(body: Json) -> tuple[str, str]:
    labels = body["metadata"]["labels"]
    return labels[LABEL_PROFILE_UID], labels[LABEL_NODE_UID]


def _status(body: Any) -> Json:
    """The status that a JSON patch sets whole; of one that sets parts, those."""
    rows = [row for row in body or () if row.get("op") != "test"] if isinstance(body, list) else []
    whole = next((row["value"] for row in rows if row["path"] == "/status"), None)
    return whole or {row["path"].removeprefix("/status/"): row["value"] for row in rows}


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
