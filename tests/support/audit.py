"""The API server's audit log: every request of our programs, and how it was answered."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

AUDIT_LOG = "audit.log"
PROGRAMS = "system:serviceaccounts:precision-system"
"""The group of the service accounts that operator and exporter run as."""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],  # a watch is told where it starts: it ends after the tests
    "rules": [{"level": "Metadata", "userGroups": [PROGRAMS]}, {"level": "None"}],
}


def audit_flags(folder: Path) -> tuple[str, ...]:
    """Flags of an API server that writes its audit log into this folder."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps(POLICY))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={folder / AUDIT_LOG}")


def requests(log: Path) -> list[dict[str, Any]]:
    """The requests of our programs so far: one a line; a last line without its end is still being written."""
    return [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]


def received(entry: dict[str, Any]) -> datetime:
    """When the API server received a request."""
    return datetime.fromisoformat(entry["requestReceivedTimestamp"])
