"""Writes what a run left: the file for a person, the message for the operator, the lines of the log last."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from precision_agent.run.run import Outcome

TERMINATION_LOG_ENV = "PRECISION_TERMINATION_LOG"
TERMINATION_LOG = Path("/dev/termination-log")
"""Where a kubelet looks by default; it makes the file before the container starts."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where to write; an absent place is left out (a run on a laptop has no termination log)."""

    message: Path | None
    output: Path | None


def places(environment: Mapping[str, str], output: Path | None) -> Places:
    """The termination log that the environment names, else the kubelet's own where it exists."""
    named = environment.get(TERMINATION_LOG_ENV)
    if named:
        return Places(Path(named), output)
    return Places(TERMINATION_LOG if TERMINATION_LOG.exists() else None, output)


def checkpoint(outcome: Outcome, where: Places) -> None:
    """Writes file and message but no lines: those belong to the end of the log. OSError as it comes."""
    if where.output and outcome.result:
        text = outcome.result.model_dump_json(by_alias=True, exclude_none=True, indent=2)
        replace_file(where.output, text.encode() + b"\n")
    if where.message:
        # In place: a kubelet mounts this very file, so it can't be renamed over. One write of less than a page.
        where.message.write_bytes(outcome.message)


def publish(outcome: Outcome, where: Places, stdout: BinaryIO, lines: bool = True) -> None:
    """Writes all: the message before the lines, for the summary must get through even if the log does not."""
    checkpoint(outcome, where)
    if lines:
        stdout.write(outcome.log)
        stdout.flush()


def replace_file(path: Path, content: bytes) -> None:
    """Puts `content` under `path` at once: a reader sees the old file or the new, never half of one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
