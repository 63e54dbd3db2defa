"""The code of the release before, as it was committed: what runs again after a `helm rollback`."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

from precision_lab.release.install import Program
from tests.support.golden import FOLDER

COMMIT = "c19b0ea3eec922114e0a1fca7eb7b46593970fb7"
CHART = FOLDER / "precision-profiler-0.2.0.tgz"
"""Packaged from that commit, without its README, tests and dashboards."""
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class OlderRelease:
    """The operator of the release before: its code in a folder, run by this Python with today's packages."""

    folder: Path

    @property
    def python_path(self) -> str:
        """PYTHONPATH that finds its code before the working tree's."""
        return f"{self.folder / 'operator'}:{self.folder / 'crds'}"

    def program(self, program: Program) -> Program:
        """The same program, arguments and rights, run from this release's code."""
        return replace(program, argv=("env", f"PYTHONPATH={self.python_path}", *program.argv))


def older_release(folder: Path) -> OlderRelease:
    """The code of `COMMIT` unpacked into `folder`. Fails the test where this clone lacks the commit."""
    command = ["git", "archive", COMMIT, "operator", "crds"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    assert done.returncode == 0, (
        f"this test runs the operator of commit {COMMIT[:7]}, which this clone does not have: fetch the whole history "
        f"(git fetch --unshallow). git says: {done.stderr.decode(errors='replace').strip()}"
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return OlderRelease(folder)
