"""This tree as a release of another version: what upgrade and rollback are tested with until there is a tag."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from precision_lab.builds.image_archives import REPOSITORY, image_archives, version

PARTS = ("Dockerfile", ".dockerignore", "pyproject.toml", "LICENSE", "requirements", "crds", "operator", "agent")
"""What the Dockerfile copies."""
CHART = Path("charts", "precision-profiler")
VERSION = "0.0.1"


@dataclass(frozen=True)
class OtherVersion:
    """The release; `folder` holds `PARTS` and the chart, whose default values name the tag that `images` have."""

    folder: Path

    @property
    def chart(self) -> Path:
        return self.folder / CHART

    def images(self) -> dict[str, Path]:
        """The docker-archives of its `operator` and `agent`, from the cache or built. Raises ImageError."""
        return image_archives(repository=self.folder)


def other_version(folder: Path) -> OtherVersion:
    """Copies the tree into `folder`, under VERSION."""
    for part in (*PARTS, CHART):
        source, target = REPOSITORY / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for path in (folder / "pyproject.toml", folder / CHART / "Chart.yaml"):
        path.write_text(path.read_text().replace(version(), VERSION))
    return OtherVersion(folder)
