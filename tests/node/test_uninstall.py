"""The end: the release is uninstalled, and the API server refused nothing to our programs as long as they ran."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit import answered, received, requests
from tests.support.eventually import eventually
from tests.support.installed import Installed

pytestmark = pytest.mark.node
KILLING = re.compile(
    r'I(\d{4} [\d:.]+) .*"Killing container with a grace period".* pod="(\S+)".* containerName="(\w+)"'
)


@dataclass(frozen=True)
class Uninstalled:
    """When Helm was asked to uninstall, and when each pod of ours got SIGTERM, as the kubelets' logs say."""

    began: datetime
    sigterms: dict[str, datetime]
    """By the pod's name."""


@pytest.fixture(scope="module")
def uninstalled(installed: Installed) -> Uninstalled:
    names = {pod["metadata"]["name"] for part in ("operator", "exporter") for pod in installed.pods(part)}
    began = datetime.now(UTC)
    installed.release.uninstall()
    eventually(lambda: names <= sigterms(installed).keys())
    return Uninstalled(began, {name: at for name, at in sigterms(installed).items() if name in names})


def test_uninstalling_ends_all_programs(installed: Installed, uninstalled: Uninstalled) -> None:
    assert len(uninstalled.sigterms) == 3

    def left() -> str:
        return installed.kubectl("get", "pods,deployments", "--output=name")

    eventually(lambda: not left(), 60)


def test_nothing_was_refused_to_our_programs_before_they_got_sigterm(audit_log: Path, uninstalled: Uninstalled) -> None:
    """Each pod's requests count until its own SIGTERM; those of pods that another test has ended count there.

    What a pod asks for between Helm's first deletion and its own notice of it may be refused (decision 0021).
    """
    entries = [entry for entry in requests(audit_log) if pod_of(entry) in uninstalled.sigterms]
    assert {pod_of(entry) for entry in entries} == uninstalled.sigterms.keys()
    notices = {pod: noticed(entries, pod, sigterm) for pod, sigterm in uninstalled.sigterms.items()}
    refused = [
        f"{entry['requestReceivedTimestamp']} {pod_of(entry)} {entry['verb']} {entry['requestURI']}"
        for entry in entries
        if entry["responseStatus"]["code"] in (401, 403)
        and received(entry) < uninstalled.sigterms[pod_of(entry)]
        and not uninstalled.began <= received(entry) <= notices[pod_of(entry)]
    ]
    assert refused == []


def noticed(entries: list[dict[str, Any]], pod: str, sigterm: datetime) -> datetime:
    """When a pod last ended a watch of its own Deployment before its SIGTERM; the least time where it ended none."""
    ends = [
        answered(entry)
        for entry in entries
        if pod_of(entry) == pod
        and (entry["verb"], entry["stage"]) == ("watch", "ResponseComplete")
        and entry.get("objectRef", {}).get("resource") == "deployments"
    ]
    return max((end for end in ends if end < sigterm), default=datetime.min.replace(tzinfo=UTC))


def pod_of(entry: dict[str, Any]) -> str:
    """The pod whose token a request had."""
    return str(entry["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])[0])


def sigterms(installed: Installed) -> dict[str, datetime]:
    """When containers got SIGTERM, by pod, from the kubelets' logs."""
    year = datetime.now(UTC).year
    found: dict[str, datetime] = {}
    for node in installed.real.nodes.values():
        for stamp, pod, container in KILLING.findall(installed.lab.processes.log(node.kubelet)):
            if container in ("operator", "exporter"):
                local = datetime.strptime(f"{year}{stamp}", "%Y%m%d %H:%M:%S.%f").astimezone()
                found.setdefault(pod.partition("/")[2], local.astimezone(UTC))
    return found
