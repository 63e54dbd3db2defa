"""The plugin as krew takes it: an archive for each platform, and the manifest that names them.

An archive has the launcher and its start (operator/kubectl-precision), LICENSE, `packages` with all that any Python
reads, and `native/cpython-3NN-MACHINE` with what was compiled for one.
"""

import csv
import gzip
import hashlib
import io
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

PLATFORMS = {
    "linux_amd64": "x86_64-manylinux_2_28",
    "linux_arm64": "aarch64-manylinux_2_28",
    "darwin_amd64": "x86_64-apple-darwin",
    "darwin_arm64": "aarch64-apple-darwin",
}
"""By krew's words (os, arch): the platform as uv names it."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLUGIN, LAUNCHER = "operator/kubectl-precision", "kubectl-precision"
KEPT = ("METADATA", "LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
"""What an archive has of a package's metadata: what installing wrote there differs by machine."""


def archive(source: Path, wheel: Path, platform: str, seconds: int, run: Callable[..., None]) -> bytes:
    """The .tar.gz of one platform: the wheel, and its locked packages for each of PYTHONS. `run` runs a command."""
    files = {name: (source / PLUGIN / name).read_bytes() for name in (LAUNCHER, "__main__.py")}
    files["LICENSE"] = (source / "LICENSE").read_bytes()
    with zipfile.ZipFile(wheel) as ours:
        files |= {f"packages/{name}": ours.read(name) for name in ours.namelist() if not name.endswith("RECORD")}
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", f"--python={sys.executable}", "--no-deps"]
    for python in PYTHONS:
        with tempfile.TemporaryDirectory() as folder:
            where = [f"--target={folder}", f"--python-version={python}", f"--python-platform={PLATFORMS[platform]}"]
            run(*uv, *where, "--only-binary=:all:", "--require-hashes", "--requirement=requirements/plugin.txt")
            machine = "arm64" if platform == "darwin_arm64" else PLATFORMS[platform].partition("-")[0]  # uname's word
            native = f"native/cpython-{python.replace('.', '')}-{machine}"
            files |= {name: path.read_bytes() for name, path in _installed(Path(folder), native)}
    return tar_gz(files, seconds)


def _installed(folder: Path, native: str) -> Iterator[tuple[str, Path]]:
    """(name in the archive, file) of what pip would put beside Python's modules; scripts name this machine's Python."""
    for info in folder.glob("*.dist-info"):
        pure = "\nTag: py3-none-any" in (info / "WHEEL").read_text()
        for name, *_ in csv.reader((info / "RECORD").read_text().splitlines()):
            is_metadata = name.startswith(info.name) and not any(kept in name for kept in KEPT)
            if not is_metadata and not name.startswith(("bin/", "..")):
                yield f"{'packages' if pure else native}/{name}", folder / name


def tar_gz(files: Mapping[str, bytes], seconds: int) -> bytes:
    """The files, by name: each of that time and of nobody."""
    data = io.BytesIO()
    with gzip.GzipFile(fileobj=data, mode="wb", mtime=seconds) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(files[name]), seconds, 0o755 if name == LAUNCHER else 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    return data.getvalue()


def manifest(source: Path, version: str, home: str, archives: Mapping[str, tuple[str, Path]]) -> str:
    """The Plugin document; `archives` are address and file by platform."""
    plugin = yaml.safe_load((source / PLUGIN / "precision.yaml").read_text())
    plugin["spec"] |= {"version": f"v{version}", "homepage": home, "platforms": []}
    for platform, (uri, path) in archives.items():
        labels = dict(zip(("os", "arch"), platform.split("_"), strict=True))
        row = {"uri": uri, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "bin": LAUNCHER}
        plugin["spec"]["platforms"].append({"selector": {"matchLabels": labels}, **row})
    return str(yaml.safe_dump(plugin, sort_keys=False))
