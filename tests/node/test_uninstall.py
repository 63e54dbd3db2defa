"""The end: the release is uninstalled, and the API server refused nothing to our programs as long as they ran."""

from __future__ import annotations

import re
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
    """Each pod's requests count from when it noticed to its SIGTERM; those of pods that another test ended, there."""
    entries = [entry for entry in requests(audit_log) if pod_of(entry) in terminated]
    assert {pod_of(entry) for entry in entries} == terminated.keys()
    known = {pod: noticed(entries, pod, sigterm) for pod, sigterm in terminated.items()}
    refused = [
        f"{entry['requestReceivedTimestamp']} {pod_of(entry)} {entry['verb']} {entry['requestURI']}"
        for entry in entries
        if entry["responseStatus"]["code"] in (401, 403)
        and known[pod_of(entry)] < received(entry) < terminated[pod_of(entry)]
    ]
    assert refused == []


def noticed(entries: list[dict[str, Any]], pod: str, sigterm: datetime) -> datetime:
    """When a pod ended the watch of its own Deployment: what left just before may be refused (decision 0021).

    A pod that ended none before its SIGTERM gets no such allowance.
    """
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
