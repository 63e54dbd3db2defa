"""Waiting for what comes by itself: by looking again until a deadline, never by a pause that is hoped to be enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.2


def eventually(look: Callable[[], T], seconds: float = 60.0) -> T:
    """What `look` gives once that is true. Fails the test with what it gave last when the time is over."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not so after {seconds:g} s; the last look gave {seen!r}"
        threading.Event().wait(LOOK_SECONDS)
    return seen
