"""This tree as a release of another version: what upgrade and rollback are tested with until there is a tag."""

import shutil
from pathlib import Path

from precision_lab.builds.image_archives import REPOSITORY, version

PARTS = ("Dockerfile", ".dockerignore", "pyproject.toml", "LICENSE", "requirements", "crds", "operator", "agent")
"""What the Dockerfile copies."""
CHART = Path("charts", "precision-profiler")
VERSION = "0.0.1"


def other_version(folder: Path) -> Path:
    """Copies the tree into `folder`, under VERSION: PARTS, and the chart, whose values name the tag of its images."""
    for part in (*PARTS, CHART):
        source, target = REPOSITORY / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for path in (folder / "pyproject.toml", folder / CHART / "Chart.yaml"):
        path.write_text(path.read_text().replace(version(), VERSION))
    return folder
