"""An uninstall by Helm while the programs run: nothing that they ask for is refused, since they ask for nothing."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.release.helm import Release
from tests.support.audit import AUDIT_LOG, audit_flags, received, requests
from tests.support.eventually import eventually

pytestmark = pytest.mark.cluster

LONGER_SECONDS = 8.0
"""Than two renewals of a Lease, and than any pause between two attempts to watch."""
PROGRAMS = ("operator", "exporter")
NOTICE = "our Deployment is deleted"
BACK_SECONDS = 10.0
"""So long after its notice a program asks whether its Deployment is back, which nobody allows it by then."""


@dataclass(frozen=True)
class Left:
    """The programs after an uninstall that sent them no signal, as a slow kubelet would leave them."""

    lab: Lab
    audit_log: Path
    began: datetime
    """When Helm was asked to uninstall."""
    noticed: datetime
    """When Helm was done and both programs knew; a request that left between may have been refused."""

    def later(self) -> list[dict[str, Any]]:
        return [entry for entry in requests(self.audit_log) if received(entry) > self.noticed]

    def asks_whether_it_is_back(self, entry: dict[str, Any]) -> bool:
        asked = (entry["verb"], entry.get("objectRef", {}).get("resource"), "name" in entry.get("objectRef", {}))
        late = received(entry) >= self.began + timedelta(seconds=BACK_SECONDS)
        return late and asked == ("get", "deployments", True)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    folder = tmp_path_factory.mktemp("uninstall-audit")
    settings = LabSettings(simulate=False, apiserver_flags=audit_flags(folder))
    log = folder / AUDIT_LOG
    with start_lab(settings=settings) as lab:
        release = Release(lab)
        release.put()
        for program in release.programs().values():
            program.start()
        eventually(lambda: {who(entry) for entry in requests(log) if watches_deployments(entry)} == set(PROGRAMS))
        began = datetime.now(UTC)
        release.helm("uninstall", release.name)
        eventually(lambda: all(NOTICE in lab.processes.log(name) for name in PROGRAMS))
        noticed = datetime.now(UTC)
        time.sleep(LONGER_SECONDS)
        yield Left(lab, log, began, noticed)


def watches_deployments(entry: dict[str, Any]) -> bool:
    return entry["verb"] == "watch" and entry.get("objectRef", {}).get("resource") == "deployments"


def who(entry: dict[str, Any]) -> str:
    return str(entry["user"]["username"]).rpartition("-")[2]


def test_after_an_uninstall_nothing_that_the_programs_ask_for_is_refused(left: Left) -> None:
    refused = [entry for entry in left.later() if entry["responseStatus"]["code"] in (401, 403)]
    unexpected = [entry for entry in refused if not left.asks_whether_it_is_back(entry)]
    assert [(entry["verb"], entry["requestURI"]) for entry in unexpected] == []


def test_programs_that_are_uninstalled_wait_for_their_signal_and_end_by_it(left: Left) -> None:
    for name in PROGRAMS:
        assert left.lab.processes.states()[name].exit is None
        left.lab.processes.signal(name, signal.SIGTERM)
    for name in PROGRAMS:
        assert eventually(lambda name=name: left.lab.processes.states()[name].exit is not None)
        assert left.lab.processes.states()[name].exit == 0
