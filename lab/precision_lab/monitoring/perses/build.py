"""Builds the page that draws dashboards, by npm from its lock file, into the user's cache."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from precision_lab.builds.binaries import cache_folder
from precision_lab.builds.go_build import BuildFailed, say
from precision_lab.processes.locks import locked

SOURCES = ("package.json", "package-lock.json", "vite.config.js", "index.html", "src/main.jsx")
OLDEST_NODE = 20
_HERE = Path(__file__).parent
_NPM_CI = ("npm", "ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
_VITE = ("npm", "run", "--silent", "build")


def page(cache: Path | None = None) -> Path:
    """The folder with the built page; built when missing (a minute). Raises BuildFailed with what npm said."""
    cache = cache or cache_folder()
    target = cache / "perses" / _key()
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache / "perses" / "build.lock", lambda: say("another process builds the dashboards' page: waiting")):
        if not target.is_dir():
            _build(target)
    return target


def has_node() -> bool:
    """Whether npm and a Node.js that is new enough are on the PATH."""
    node = shutil.which("node")
    if not node or not shutil.which("npm"):
        return False
    version_text = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"v(\d+)\.", version_text)
    return match is not None and int(match[1]) >= OLDEST_NODE


def _key() -> str:
    """Of exactly these sources; the lock file names every package with its hash."""
    return hashlib.sha256(b"\0".join((_HERE / name).read_bytes() for name in SOURCES)).hexdigest()[:12]


def _build(target: Path) -> None:
    if not shutil.which("npm"):
        raise BuildFailed(
            "building the dashboards' page: there is no npm on PATH. Install Node.js 20 or newer (Debian: apt-get "
            "install nodejs npm) and run the same command again."
        )
    say("building the page that draws dashboards (npm ci, vite): about a minute, once")
    with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as scratch:
        for name in SOURCES:
            copy = Path(scratch) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_HERE / name, copy)
        for command in (_NPM_CI, _VITE):
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                output = (done.stdout + done.stderr).strip()[-2000:]
                raise BuildFailed(
                    f"building the dashboards' page: {' '.join(command)} ended with {done.returncode}: {output}\n"
                    "Run the same command again; npm needs its registry."
                )
        os.replace(Path(scratch) / "dist", target)
