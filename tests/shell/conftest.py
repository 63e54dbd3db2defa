"""One cluster for each test."""

import pytest

from precision_operator.shell.acting import act, creating, late_writes
from tests.support.acting import Scene

ANSWER_SECONDS = 10.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass goes on without an answer that hangs, and not without one that waits for a busy machine."""
    for module in (act, creating, late_writes):
        monkeypatch.setattr(module, "GRACE_SECONDS", ANSWER_SECONDS)


@pytest.fixture
def scene() -> Scene:
    return Scene()
