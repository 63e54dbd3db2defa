"""An uninstall by Helm while the programs run: nothing that they ask for is refused, since they ask for nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
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


@dataclass(frozen=True)
class Left:
    """The programs after an uninstall that sent them no signal, as a slow kubelet would leave them."""

    lab: Lab
    audit_log: Path
    noticed: datetime
    """When Helm was done and both programs knew; a request that left between may have been refused."""

    def later(self) -> list[dict[str, Any]]:
        return [entry for entry in requests(self.audit_log) if received(entry) > self.noticed]


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
        release.helm("uninstall", release.name)
        eventually(lambda: all(NOTICE in lab.processes.log(name) for name in PROGRAMS))
        noticed = datetime.now(UTC)
        time.sleep(LONGER_SECONDS)
        yield Left(lab, log, noticed)


def watches_deployments(entry: dict[str, Any]) -> bool:
    return entry["verb"] == "watch" and entry.get("objectRef", {}).get("resource") == "deployments"


def who(entry: dict[str, Any]) -> str:
    return str(entry["user"]["username"]).rpartition("-")[2]


def test_after_an_uninstall_nothing_that_the_programs_ask_for_is_refused(left: Left) -> None:
    refused = [(e["verb"], e["requestURI"]) for e in left.later() if e["responseStatus"]["code"] in (401, 403)]
    assert refused == []


def test_programs_that_are_uninstalled_wait_for_their_signal_and_end_by_it(left: Left) -> None:
    for name in PROGRAMS:
        assert left.lab.processes.states()[name].exit is None
        left.lab.processes.signal(name, signal.SIGTERM)
    for name in PROGRAMS:
        assert eventually(lambda name=name: left.lab.processes.states()[name].exit is not None)
        assert left.lab.processes.states()[name].exit == 0
