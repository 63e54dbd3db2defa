"""Who a process is: its id and when it started. A bare id may have been given to somebody else meanwhile."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, told apart from every other one since the machine booted."""

    pid: int
    started: int
    """Clock ticks after boot (field 22 of /proc/PID/stat)."""

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """The process that has this id now; None when there is none, or only its remains (a zombie)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *fields = stat[stat.rindex(")") + 2 :].split()
        return None if state in "ZX" else cls(pid, int(fields[18]))

    @classmethod
    def own(cls) -> "Identity":
        """This process."""
        this = cls.of(os.getpid())
        assert this is not None
        return this

    @classmethod
    def parse(cls, text: str) -> "Identity | None":
        """The identity that `str` gave; None for anything else."""
        pid, _, started = text.strip().partition("-")
        return cls(int(pid), int(started)) if pid.isdigit() and started.isdigit() else None

    def __str__(self) -> str:
        """`<pid>-<started>`: fit for a file's name."""
        return f"{self.pid}-{self.started}"

    def alive(self) -> bool:
        """True while this very process runs."""
        return Identity.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Sends a signal if this very process still runs; False when it is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True
