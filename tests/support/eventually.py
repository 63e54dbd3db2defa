"""Waiting for what comes by itself: by looking again until a deadline, never by a pause that is hoped to be enough."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.2


def eventually(look: Callable[[], T], seconds: float = 120.0, why: Callable[[], object] | None = None) -> T:
    """What `look` gives once that is true.

    When the time is over it fails the test with what `why` says, or else with what `look` gave last.
    """
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not so after {seconds:g} s: {why() if why else seen!r}"
        threading.Event().wait(LOOK_SECONDS)
    return seen
