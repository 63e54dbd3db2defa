"""Both container images: `push` builds and pushes them for users, `check` builds and starts them on stand-in bases.

The check needs root, buildah and debootstrap (apt-get install -y buildah debootstrap); it reaches PyPI and the Debian
mirror of the machine. It needs no container registry: a plain Debian with Python stands for both base images, so it
proves the Dockerfile and the programs, not torch, Transformer Engine, CUDA, or another architecture than this one.

Standard library only: `push` shall work without the lab's packages.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TARGETS = ("operator", "agent")
PLATFORMS = "linux/amd64,linux/arm64"
BUILDERS = ("docker", "podman", "buildah")
USER = "65532:65532"
PYTHONS = {"operator": "3.13", "agent": "3.12"}
"""Of the Dockerfile's own base images."""
ARCHITECTURES = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
PACKAGES = "python3,python3-pip,python-is-python3,ca-certificates"
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
READ_ONLY = """set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec chroot --userspec="$2" "$1" /usr/bin/env -i "${@:3}"
"""
"""What a runtime does with readOnlyRootFilesystem and an emptyDir at /tmp: $1 root, $2 user, variables, command."""
Command = list[str]


class CheckFailed(Exception):
    """An image can't be built, or does not do what it should."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an image: its arguments, the exit code that must come, and words that must be told."""

    target: str
    arguments: tuple[str, ...]
    code: int
    told: str


STARTS = (
    Start("operator", ("--help",), 0, "--watch-namespaces"),
    Start("operator", ("--watch-namespaces=a", "--kubeconfig=/tmp/none"), 2, "/tmp/none"),
    Start("agent", ("run", "--request=env", "--backend=replay"), 0, "PPR1 1/"),
)


def version(repository: Path = REPOSITORY) -> str:
    """The programs' version, which is the images' tag and the chart's appVersion."""
    return str(tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"])


def push_commands(builder: str, registry: str, platforms: str, tag: str) -> list[Command]:
    """What builds both images for all platforms and pushes them as REGISTRY/operator and REGISTRY/agent."""
    if builder == "docker":
        return [
            ["docker", "buildx", "build", f"--platform={platforms}", f"--target={target}", tagged, "--push", "."]
            for target in TARGETS
            for tagged in [f"--tag={registry}/{target}:{tag}"]
        ]
    return [
        command
        for target in TARGETS
        for name in [f"{registry}/{target}:{tag}"]
        for command in (
            [builder, "build", f"--platform={platforms}", f"--target={target}", f"--manifest={name}", "."],
            [builder, "manifest", "push", "--all", name, f"docker://{name}"],
        )
    ]


def push(builder: str, registry: str, platforms: str, tag: str, dry_run: bool) -> None:
    """Builds and pushes both images, or prints the commands. Raises CheckFailed where a command fails."""
    if not registry:
        raise CheckFailed("Say where to push: make images REGISTRY=registry.example.com/precision-profiler")
    for command in push_commands(builder, registry, platforms, tag):
        print(shlex.join(command), flush=True)
        if not dry_run and subprocess.run(command, cwd=REPOSITORY, check=False).returncode != 0:
            raise CheckFailed(f"{shlex.join(command[:4])} failed: see above.")


def any_builder() -> str:
    """The first of the known builders on PATH. Raises CheckFailed where there is none."""
    found = next((name for name in BUILDERS if shutil.which(name)), None)
    if found is None:
        raise CheckFailed(f"Install one of {', '.join(BUILDERS)} (docker with buildx) to build images.")
    return found


def check() -> None:
    """Builds both images on stand-in bases and starts each as the chart does. Raises CheckFailed."""
    missing = [name for name in ("buildah", "debootstrap", "unshare") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        raise CheckFailed("The check needs root, and: apt-get install -y --no-install-recommends buildah debootstrap")
    for target in TARGETS:
        _wheels_exist(target)
    with tempfile.TemporaryDirectory(prefix="precision-images-") as scratch, _storage(Path(scratch)) as buildah:
        stand_in = _stand_in(buildah, Path(scratch) / "base")
        for target in TARGETS:
            _say(f"building {target}")
            bases = [f"--build-arg={name}_IMAGE={stand_in}" for name in ("PYTHON", "PYTORCH")]
            where = [f"--target={target}", f"--tag=localhost/{target}"]
            _run([*buildah, "build", "--isolation=chroot", "--quiet", *where, *bases, str(REPOSITORY)])
        for start in STARTS:
            _say(f"starting {start.target} {' '.join(start.arguments)}")
            _start(buildah, start)
    _say("both images were built and started, as 65532 on a read-only root; both architectures have all wheels")


def verdict(start: Start, code: int, output: str) -> None:
    """Nothing where an image did what it should. Raises CheckFailed with the end of what it said."""
    if code != start.code or start.told not in output:
        wanted = f"exit {start.code} and {start.told!r}"
        raise CheckFailed(f"{start.target} ended with {code}, not {wanted}. It said: {output[-1500:]}")


def _wheels_exist(target: str) -> None:
    """Every locked requirement has a wheel for both architectures: an image never compiles anything."""
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--dry-run", "--quiet", "--no-deps"]
    locked = REPOSITORY / "requirements" / f"{target}.txt"
    for architecture in ARCHITECTURES:
        _say(f"looking for wheels: {target}, {architecture}")
        place = [f"--python-platform={architecture}", f"--python-version={PYTHONS[target]}", "--only-binary=:all:"]
        with tempfile.TemporaryDirectory() as empty:
            _run([*uv, *place, f"--target={empty}", "--require-hashes", "-r", str(locked)])


@contextmanager
def _storage(scratch: Path) -> Iterator[Command]:
    """buildah with a storage of its own; whatever it still has mounted at the end is given back."""
    buildah = ["buildah", f"--root={scratch}/storage", f"--runroot={scratch}/run"]
    try:
        yield buildah
    finally:
        for command in (["umount", "--all"], ["rm", "--all"]):
            subprocess.run([*buildah, *command], capture_output=True, check=False)


def _stand_in(buildah: Command, root: Path) -> str:
    """An image of plain Debian with Python and pip, which trusts what this machine trusts; its name."""
    mirror, codename = _mirror()
    _say(f"making a stand-in base: Debian {codename}, about a minute")
    _run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename, str(root), mirror])
    for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):  # no base image of ours has it
        mark.unlink()
    if Path("/", CA_BUNDLE).exists():
        shutil.copy(Path("/", CA_BUNDLE), root / CA_BUNDLE)
    container = _run([*buildah, "from", "scratch"]).strip()
    _run([*buildah, "add", "--quiet", container, str(root), "/"])
    told = {"PIP_CERT": f"/{CA_BUNDLE}", "PIP_ROOT_USER_ACTION": "ignore"}
    told |= {name: os.environ[name] for name in ("PIP_INDEX_URL",) if os.environ.get(name)}
    _run([*buildah, "config", *(f"--env={name}={value}" for name, value in told.items()), container])
    _run([*buildah, "commit", "--quiet", container, "localhost/stand-in"])
    return "localhost/stand-in"


def _mirror() -> tuple[str, str]:
    """The Debian mirror and release that this machine itself installs from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
    rows = [line.split() for line in _run(asked).splitlines()]
    found = next(((uri, name) for uri, name in rows if "-" not in name and "security" not in uri), None)
    if found is None:
        raise CheckFailed("apt-get knows no Debian mirror: the check runs on Debian, with its sources set.")
    return found


def _start(buildah: Command, start: Start) -> None:
    """Starts an image on its own root, read-only but for /tmp, with the variables of the image and no others."""
    image = f"localhost/{start.target}"
    config = json.loads(_run([*buildah, "inspect", "--type=image", image]))["OCIv1"]["config"]
    if config["User"] != USER:
        raise CheckFailed(f"{start.target} runs as {config['User']}, not {USER}.")
    root = _run([*buildah, "mount", _run([*buildah, "from", image]).strip()]).strip()
    variables = [*config["Env"], f"PRECISION_REQUEST={_request()}"]
    command = ["unshare", "--mount", "--propagation=private", "bash", "-c", READ_ONLY, "start", root, USER]
    done = _finished([*command, *variables, *config["Entrypoint"], *start.arguments])
    verdict(start, done.returncode, done.stdout + done.stderr)


def _request() -> str:
    """A request as the operator sends it: that of the Job which the core's tests pin."""
    job = json.loads((REPOSITORY / "tests" / "golden" / "job_gb200.json").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return next(str(variable["value"]) for variable in container["env"] if variable["name"] == "PRECISION_REQUEST")


def _finished(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def _run(command: Sequence[str]) -> str:
    """What a command prints. Raises CheckFailed with the end of what it said."""
    done = _finished(command)
    if done.returncode != 0:
        raise CheckFailed(f"{shlex.join(command[:6])} ... failed: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _say(text: str) -> None:
    print(f"images: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 with what to do on stderr."""
    parser = argparse.ArgumentParser("python -m precision_lab.images", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    pushing = what.add_parser("push", help="build and push both images")
    pushing.add_argument("--registry", default="")
    pushing.add_argument("--platforms", default=PLATFORMS)
    pushing.add_argument("--tag", default=version())
    pushing.add_argument("--builder", choices=BUILDERS, help="default: the first of them on PATH")
    pushing.add_argument("--dry-run", action="store_true", help="print the commands only")
    what.add_parser("check", help="build both on stand-in bases and start them (root, buildah, debootstrap)")
    told = parser.parse_args(arguments)
    try:
        if told.what == "check":
            check()
        else:
            push(told.builder or any_builder(), told.registry, told.platforms, told.tag, told.dry_run)
    except CheckFailed as problem:
        print(f"images: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
