"""The release before this one, from git: its code, its chart, and its images built by its own Dockerfile.

What a `helm rollback` brings back.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

from precision_lab.builds.go_build import Say, say
from precision_lab.builds.image_archives import REPOSITORY, image_archives
from precision_lab.release.install import Program

COMMIT = "c19b0ea3eec922114e0a1fca7eb7b46593970fb7"
"""Release 0.2.0 of the chart, whose programs say 0.1.0."""
PARTS = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements",
    "crds",
    "operator",
    "agent",
    "lab",
    "charts",
)
"""What that commit's Dockerfile copies, and its chart."""


class OlderReleaseError(Exception):
    """The release before can't be had from this clone."""


@dataclass(frozen=True)
class OlderRelease:
    """The release before; `folder` holds `PARTS`."""

    folder: Path

    @property
    def chart(self) -> Path:
        """Its chart, whose default values name the tag that `images` have."""
        return self.folder / "charts" / "precision-profiler"

    @property
    def python_path(self) -> str:
        """PYTHONPATH that finds its operator's code before the working tree's."""
        return f"{self.folder / 'operator'}:{self.folder / 'crds'}"

    def program(self, program: Program) -> Program:
        """The same program, arguments and rights, run from this release's code by this Python."""
        return replace(program, argv=("env", f"PYTHONPATH={self.python_path}", *program.argv))

    def images(self, say: Say = say) -> dict[str, Path]:
        """The docker-archives of its `operator` and `agent`, on today's stand-in base, from the cache or built.

        Its Dockerfile installs the Python packages that it pins. Raises ImageError.
        """
        return image_archives(say, self.folder)


def older_release(folder: Path) -> OlderRelease:
    """Unpacks `PARTS` of `COMMIT` into `folder`. Raises OlderReleaseError where this clone lacks the commit."""
    command = ["git", "archive", COMMIT, *PARTS]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    if done.returncode != 0:
        raise OlderReleaseError(
            f"The release before is commit {COMMIT[:7]}, which this clone does not have: fetch the whole history "
            f"(git fetch --unshallow). git says: {done.stderr.decode(errors='replace').strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return OlderRelease(folder)
