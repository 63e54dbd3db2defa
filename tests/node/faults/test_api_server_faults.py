"""What happens to agents on real nodes while nobody reaches the API server: neither kubelets nor operators."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from precision_lab.lab import KubectlError
from precision_lab.processes.processes import Processes
from tests.support.eventually import eventually
from tests.support.installed import Installed

pytestmark = [pytest.mark.node, pytest.mark.long]
AWAY_SECONDS = 40
API_SERVER = "kube-apiserver"


@contextmanager
def killed(processes: Processes) -> Iterator[None]:
    """Connections are refused in the block."""
    processes.stop(API_SERVER, signal.SIGKILL)
    try:
        yield
    finally:
        processes.restart(API_SERVER)


@contextmanager
def stopped(processes: Processes) -> Iterator[None]:
    """Connections are taken in the block, and nothing is answered."""
    processes.signal(API_SERVER, signal.SIGSTOP)
    try:
        yield
    finally:
        processes.signal(API_SERVER, signal.SIGCONT)


@pytest.mark.parametrize(("name", "away"), [("api-server-killed", killed), ("api-server-stopped", stopped)])
def test_an_agent_that_ends_while_the_api_server_is_away_is_not_measured_again(
    installed: Installed, name: str, away: Callable[[Processes], AbstractContextManager[None]]
) -> None:
    profile, _ = installed.at_work(name)
    with away(installed.lab.processes):
        threading.Event().wait(AWAY_SECONDS)
    eventually(lambda: is_ready(installed), 180)
    assert profile.measured() == 1
    assert profile.runs() == 1, "nothing was measured twice"
    assert profile.report()["status"]["run"]["detail"], "the full result is there"
    installed.ready(180)


def is_ready(installed: Installed) -> bool:
    """Whether the API server answers, and says that it is ready."""
    try:
        return installed.lab.kubectl("get", "--raw=/readyz") == "ok"
    except KubectlError:
        return False
