"""A version of the repository on disk, and a module of this package run with that version's code in its own process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PACKAGES = ("crds", "operator", "agent", "lab")


def tree(version: str, folder: Path) -> Path:
    """The files of `version`: a folder is used as it is, any other word is a commit, unpacked into `folder`.

    Raises SystemExit where there is no such commit.
    """
    if (Path(version) / "pyproject.toml").is_file():
        return Path(version).resolve()
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    command = ["git", "-C", str(REPOSITORY), "archive", "--output", str(archive), version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"unpacking {version}: {done.stderr.strip()}")
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()
    return folder


def start(version: Path, tool: Path, module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """`module` of a copy of this package, begun with the version's code before everything else on the path."""
    copy = tool / "equivalence"
    if not copy.exists():
        shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    places = [tool, *(version / package for package in PACKAGES), version]
    environment = os.environ | {
        "EQUIVALENCE_VERSION": str(version),
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", f"equivalence.{module}", *arguments]
    return subprocess.Popen(command, env=environment, cwd=tool)


def finish(*processes: subprocess.Popen[bytes]) -> None:
    """Wait for all of them. Raises SystemExit where one has failed; it has said why."""
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"a version could not be run: exit codes {', '.join(map(str, codes))}")
