"""Both container images as archives in the user's cache, built by the Dockerfile on a stand-in for its bases.

The stand-in is a plain Debian with Python, so the archives carry our programs without torch, Transformer Engine or
CUDA. Building needs root, buildah and debootstrap (apt-get install -y buildah debootstrap); it reaches PyPI and the
Debian mirror of the machine, and no container registry.

Standard library only: what pushes images imports this, and works without the lab's packages.
"""

import hashlib
import json
import math
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from precision_lab.builds.binaries import cache_folder
from precision_lab.builds.go_build import Say, say
from precision_lab.processes.locks import locked

REPOSITORY = Path(__file__).resolve().parents[3]
TARGETS = ("operator", "agent")
NAMES = {target: f"registry.example.com/precision-profiler/{target}" for target in TARGETS}
"""As the chart's default values name the images."""
PACKAGES = "python3,python3-pip,python-is-python3,ca-certificates"
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
STAND_IN = "localhost/stand-in"
LIMIT_MB = {"operator": 270}
"""What an image may add to its base at most, in 10^6 bytes, uncompressed."""
KEPT = 3
"""Builds in the cache, those that were used last: both archives of one have 0.8 GB."""
IN_USE_SECONDS = 3600.0
"""After its last use a build may still be read: another checkout's build does not remove it."""
SCRATCH = ".building-"
COMMAND_SECONDS = 900.0
Command = list[str]


class ImageError(Exception):
    """An image can't be built or pushed, or does not do what it should."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of an image's layers, uncompressed: all, and those that the Dockerfile adds to the base."""

    all: int
    added: int


def version(repository: Path = REPOSITORY) -> str:
    """The programs' version, which is the images' tag and the chart's appVersion."""
    return str(tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"])


def image_archives(say: Say = say, repository: Path = REPOSITORY) -> dict[str, Path]:
    """The docker-archive of each target (`operator`, `agent`) of a tree, built where the cache does not hold it.

    The images are named as in NAMES, with the tree's version as tag. A second process waits for the first. Raises
    ImageError.
    """
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "build.lock", lambda: say("another process builds the images: waiting for it")):
        built = folder / source_hash(repository)
        if not built.is_dir():
            demand_tools()
            for leftover in folder.glob(f"{SCRATCH}*"):  # of a build that was killed
                with buildah_storage(leftover):  # unmounts what it had mounted
                    pass
                shutil.rmtree(leftover)
            with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
                os.replace(build_images(repository, Path(scratch), _base(folder, say), say), built)
        os.utime(built)
        keep_newest(folder)
    return {target: built / f"{target}.tar" for target in TARGETS}


def source_hash(repository: Path = REPOSITORY) -> str:
    """A hash of all that the builder gets (.dockerignore names it) and of how the images are built here."""
    lines = (repository / ".dockerignore").read_text().split("\n")
    roots = [repository / line[1:] for line in lines if line.startswith("!")]
    files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*"))]
    files = [file for file in files if file.is_file() and "__pycache__" not in file.parts]
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted([repository / "Dockerfile", *files]):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(repository)} {content}\n".encode())
    return digest.hexdigest()[:16]


def build_images(repository: Path, scratch: Path, base: Path, say: Say) -> Path:
    """Builds both targets on the stand-in whose root is the tar `base`; returns the folder of their archives."""
    archives = scratch / "archives"
    archives.mkdir()
    with buildah_storage(scratch) as buildah:
        _make_stand_in(buildah, base)
        for target in TARGETS:
            tag = f"{NAMES[target]}:{version(repository)}"
            say(f"building the image {tag}")
            bases = [f"--build-arg={name}_IMAGE={STAND_IN}" for name in ("PYTHON", "PYTORCH")]
            where = [f"--target={target}", f"--tag={tag}"]
            run([*buildah, "build", "--isolation=chroot", "--layers", "--quiet", *where, *bases, str(repository)])
            run([*buildah, "push", "--quiet", tag, f"docker-archive:{archives / target}.tar:{tag}"])
    return archives


def size_of(archive: Path) -> Size:
    """The size of the image in a docker-archive; its first layer is the stand-in base."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest, "a docker-archive has a manifest"
        (image,) = json.load(manifest)
        base, *added = [tar.getmember(layer).size for layer in image["Layers"]]
    return Size(base + sum(added), sum(added))


def demand_sizes(added: Mapping[str, int]) -> None:
    """Raises ImageError where an image adds more bytes to its base than LIMIT_MB allows; by target."""
    for target, size in added.items():
        if size > LIMIT_MB.get(target, math.inf) * 1e6:
            raise ImageError(
                f"The image of the {target} adds {size / 1e6:.1f} MB to its base, at most {LIMIT_MB[target]} are "
                "allowed."
            )


def keep_newest(folder: Path, kept: int = KEPT) -> None:
    """Removes all builds but those that were used last, or within the last hour."""
    latest = time.time() - IN_USE_SECONDS
    builds = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(SCRATCH)]
    for old in sorted(builds, key=lambda path: path.stat().st_mtime, reverse=True)[kept:]:
        if old.stat().st_mtime < latest:
            shutil.rmtree(old)


def demand_tools() -> None:
    """Raises ImageError where images can't be built, with what to install."""
    missing = [name for name in ("buildah", "debootstrap", "unshare") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        raise ImageError("This needs root, and: apt-get install -y --no-install-recommends buildah debootstrap")


@contextmanager
def buildah_storage(scratch: Path) -> Iterator[Command]:
    """buildah with a storage of its own; unmounts at the end whatever is still mounted."""
    buildah = ["buildah", f"--root={scratch}/storage", f"--runroot={scratch}/run"]
    try:
        yield buildah
    finally:
        for command in (["umount", "--all"], ["rm", "--all"]):
            subprocess.run([*buildah, *command], capture_output=True, check=False)


def run(command: Sequence[str]) -> str:
    """What a command prints. Raises ImageError with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)
    if done.returncode != 0:
        raise ImageError(f"{shlex.join(command[:6])} ... failed: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _base(folder: Path, say: Say) -> Path:
    """The root of a plain Debian with Python and pip as a tar: debootstrap takes a minute, so the cache keeps it."""
    mirror, codename = _mirror()
    base = folder / f"base-{codename}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:12]}.tar"
    if not base.exists():
        say(f"making the images' stand-in base: Debian {codename}, about a minute")
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
            root, packed = Path(scratch) / "root", Path(scratch) / "base.tar"
            run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename, str(root), mirror])
            for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):  # no base image of ours has it
                mark.unlink()
            for package in root.glob("var/cache/apt/archives/*.deb"):
                package.unlink()
            run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(packed), "."])
            os.replace(packed, base)
    return base


def _make_stand_in(buildah: Command, base: Path) -> None:
    """An image of the base's root, which trusts what this machine trusts and installs from where it does."""
    container = run([*buildah, "from", "scratch"]).strip()
    run([*buildah, "add", "--quiet", container, str(base), "/"])
    if Path("/", CA_BUNDLE).exists():
        run([*buildah, "copy", "--quiet", container, f"/{CA_BUNDLE}", f"/{CA_BUNDLE}"])
    variables = {"PIP_CERT": f"/{CA_BUNDLE}", "PIP_ROOT_USER_ACTION": "ignore"}
    variables |= {name: os.environ[name] for name in ("PIP_INDEX_URL",) if os.environ.get(name)}
    run([*buildah, "config", *(f"--env={name}={value}" for name, value in variables.items()), container])
    run([*buildah, "commit", "--quiet", container, STAND_IN])


def _mirror() -> tuple[str, str]:
    """The Debian mirror and release that this machine itself installs from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
    rows = [line.split() for line in run(asked).splitlines()]
    source = next(((uri, name) for uri, name in rows if "-" not in name and "security" not in uri), None)
    if source is None:
        raise ImageError("apt-get knows no Debian mirror: images are built on Debian, with its sources set.")
    return source
