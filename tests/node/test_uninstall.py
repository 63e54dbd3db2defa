"""The end: the release is uninstalled, and the API server refused nothing to its programs as long as they ran.

What they ask for once they are uninstalled is `tests/e2e/test_uninstall`.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.audit import requests
from tests.support.eventually import eventually
from tests.support.installed import Installed

pytestmark = pytest.mark.node


def test_nothing_was_refused_to_the_programs_that_run_now(installed: Installed, audit_log: Path) -> None:
    """Pods that another test has ended may have been refused something at their end."""
    names = {pod["metadata"]["name"] for part in ("operator", "exporter") for pod in installed.pods(part)}
    entries = [entry for entry in requests(audit_log) if pod_of(entry) in names]
    assert {pod_of(entry) for entry in entries} == names
    refused = [entry for entry in entries if entry["responseStatus"]["code"] in (401, 403)]
    assert [f"{pod_of(entry)} {entry['verb']} {entry['requestURI']}" for entry in refused] == []


def pod_of(entry: dict[str, Any]) -> str:
    """The pod whose token a request had."""
    return str(entry["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])[0])


def test_uninstalling_ends_all_programs(installed: Installed) -> None:
    installed.release.uninstall()
    eventually(lambda: not installed.kubectl("get", "pods,deployments", "--output=name"), 60)
