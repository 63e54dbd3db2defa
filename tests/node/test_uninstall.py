"""The end: the release is uninstalled, and the API server refused nothing to our programs as long as they ran."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.audit import requests
from tests.support.eventually import eventually
from tests.support.installed import EXPORTER, OPERATOR, Installed

pytestmark = pytest.mark.node
KILLING = re.compile(
    r'I(\d{4} [\d:.]+) .*"Killing container with a grace period".* pod="(\S+)".* containerName="(\w+)"'
)


@pytest.fixture(scope="module")
def terminated(installed: Installed) -> dict[str, datetime]:
    """When each pod of ours got SIGTERM in the uninstallation, by the pod's name, as the kubelets' logs say."""
    names = {pod["metadata"]["name"] for part in ("operator", "exporter") for pod in installed.pods(part)}
    installed.release.uninstall()
    eventually(lambda: names <= sigterms(installed).keys())
    return {name: at for name, at in sigterms(installed).items() if name in names}


def test_uninstalling_ends_all_programs(installed: Installed, terminated: dict[str, datetime]) -> None:
    assert len(terminated) == 3

    def left() -> str:
        return installed.kubectl("get", "pods,deployments", "--output=name")

    eventually(lambda: not left(), 60)


def test_nothing_was_refused_to_our_programs_before_they_got_sigterm(
    audit_log: Path, terminated: dict[str, datetime]
) -> None:
    first = min(terminated.values())
    entries = requests(audit_log)
    assert len(entries) > 100
    refused = [
        f"{entry['requestReceivedTimestamp']} {entry['user']['username']} {entry['verb']} {entry['requestURI']}"
        for entry in entries
        if entry["responseStatus"]["code"] in (401, 403) and received(entry) < last_of(entry, terminated, first)
    ]
    assert refused == []


def received(entry: dict[str, str]) -> datetime:
    return datetime.fromisoformat(entry["requestReceivedTimestamp"].replace("Z", "+00:00"))


def last_of(entry: dict[str, dict[str, str]], terminated: dict[str, datetime], first: datetime) -> datetime:
    """When the last pod of the account that asked got SIGTERM; `first` for an account of neither program."""
    account = entry["user"]["username"].rpartition(":")[2]
    if account not in (OPERATOR, EXPORTER):
        return first
    return max(at for name, at in terminated.items() if name.startswith(account))


def sigterms(installed: Installed) -> dict[str, datetime]:
    """When containers got SIGTERM, by pod, from the kubelets' logs."""
    year = datetime.now(UTC).year
    found: dict[str, datetime] = {}
    for node in installed.real.nodes.values():
        for stamp, pod, container in KILLING.findall(installed.lab.processes.log(node.kubelet)):
            if container in ("operator", "exporter"):
                local = datetime.strptime(f"{year}{stamp}", "%Y%m%d %H:%M:%S.%f").astimezone()
                found[pod.partition("/")[2]] = local.astimezone(UTC)
    return found
