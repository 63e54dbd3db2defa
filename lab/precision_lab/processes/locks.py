"""A lock between processes that no crash can leave behind (the kernel drops it with its holder)."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, when_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock file `path` alone; calls `when_waiting` once if somebody else holds it first."""
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
