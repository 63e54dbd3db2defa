"""Both container images: `push` builds and pushes them for users, `check` builds and starts them on stand-in bases.

`archives` prints where the stand-in builds are and how large. Both need root, buildah and debootstrap
(apt-get install -y buildah debootstrap). They prove the Dockerfile and the programs, not torch, Transformer Engine,
CUDA, or another architecture than this one.

Standard library only: `push` works without the lab's packages.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from precision_lab.builds.go_build import say
from precision_lab.builds.image_archives import (
    REPOSITORY,
    TARGETS,
    Command,
    ImageError,
    demand_sizes,
    image_archives,
    size_of,
    version,
)

PLATFORMS = "linux/amd64,linux/arm64"
BUILDERS = ("docker", "podman", "buildah")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
NO_BUILDX = (
    "docker has no buildx plugin: install it, or use another builder that is installed: "
    "make images BUILDER=podman, or BUILDER=buildah."
)


@dataclass(frozen=True, slots=True)
class Base:
    """A base image: its build argument (PYTHON or PYTORCH), its name with tag or digest, and the digest it has now."""

    argument: str
    image: str
    digest: str

    def build_arguments(self) -> Command:
        """Of the Dockerfile: the image by its digest, and the digest for the label."""
        head, _, last = self.image.partition("@")[0].rpartition("/")
        bare = f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]
        option = f"--build-arg={self.argument}"
        return [f"{option}_IMAGE={bare}@{self.digest}", f"{option}_DIGEST={self.digest}"]


def base_images(options: Mapping[str, str], dockerfile: str) -> dict[str, str]:
    """The base image of each build argument: what the user told, else the Dockerfile's default."""
    defaults = dict(re.findall(r"^ARG (\w+)_IMAGE=(\S+)$", dockerfile, flags=re.MULTILINE))
    return defaults | {name: image for name, image in options.items() if image}


def inspect_command(builder: str, image: str) -> Command:
    """What prints the digest that a tag has in its registry, of all platforms together."""
    if builder == "docker":
        return ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    return ["skopeo", "inspect", "--no-tags", "--format", "{{.Digest}}", f"docker://{image}"]


def resolved(builder: str, argument: str, image: str) -> Base:
    """The base with its digest. Raises ImageError where the registry does not tell it."""
    digest = image.partition("@")[2]
    words = f"{digest!r} is none" if digest else ""
    if not digest:
        digest, words = _asked(inspect_command(builder, image))
    if not DIGEST.fullmatch(digest):
        raise ImageError(
            f"The digest of {image} is not known: {words}. Log in to its registry if it asks; or name the base "
            f"by its digest: make images {argument}_IMAGE=NAME@sha256:..."
        )
    return Base(argument, image, digest)


def _asked(command: Command) -> tuple[str, str]:
    """What a command prints, and what it says on stderr; nothing where it is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "", f"{command[0]} is not installed"
    return done.stdout.strip(), done.stderr.strip()


def push_commands(builder: str, registry: str, platforms: str, tag: str, bases: Sequence[Base] = ()) -> list[Command]:
    """What builds both images for all platforms and pushes them as REGISTRY/operator and REGISTRY/agent."""
    named = [argument for base in bases for argument in base.build_arguments()]
    commands: list[Command] = []
    for target in TARGETS:
        name, common = f"{registry}/{target}:{tag}", [f"--platform={platforms}", f"--target={target}"]
        if builder == "docker":
            commands.append(["docker", "buildx", "build", *common, f"--tag={name}", *named, "--push", "."])
        else:
            commands.append([builder, "build", *common, f"--manifest={name}", *named, "."])
            commands.append([builder, "manifest", "push", "--all", name, f"docker://{name}"])
    return commands


def push(
    builder: str, registry: str, platforms: str, tag: str, asked: Mapping[str, str], dry_run: bool, file: Path
) -> None:
    """Builds and pushes both images, or prints the commands. Raises ImageError where a command fails.

    Each base is taken by the digest that its tag has now (`asked`: bases by argument); a dry run asks no registry, and
    names none. At the end it prints how to pin what was pushed (`pins`).
    """
    if not registry:
        raise ImageError("Say where to push: make images REGISTRY=registry.example.com/precision-profiler")
    if builder == "docker" and not dry_run and not has_buildx():
        raise ImageError(NO_BUILDX)
    named = base_images(asked, (REPOSITORY / "Dockerfile").read_text())
    bases = [] if dry_run else [resolved(builder, argument, image) for argument, image in named.items()]
    for command in push_commands(builder, registry, platforms, tag, bases):
        print(shlex.join(command), flush=True)
        if not dry_run and subprocess.run(command, cwd=REPOSITORY, check=False).returncode != 0:
            raise ImageError(f"{shlex.join(command[:4])} failed: see above.")
    if not dry_run:
        print("\n".join(pins(builder, registry, tag, file)))


def pins(builder: str, registry: str, tag: str, file: Path) -> Iterator[str]:
    """The chart's values that pin both pushed images; a digest that the registry does not give is named, with why.

    Writes `IMAGE@DIGEST` to the file, a line for each that is known, for `make release`.
    """
    yield "Pushed. Pin the images by these values of the chart:"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as pinned_images:
        for target in TARGETS:
            image = f"{registry}/{target}:{tag}"
            digest, problem = _asked(inspect_command(builder, image))
            if DIGEST.fullmatch(digest):
                pinned_images.write(f"{image}@{digest}\n")
                yield f"  --set {target}.image.digest={digest}"
            else:
                yield f"  the digest of {image} is not known: {problem or 'no digest in the answer'}"


def has_buildx() -> bool:
    """Whether docker has the plugin that builds for several platforms; a bare client has not."""
    return subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0


def any_builder() -> str:
    """The first builder on PATH that can build. Raises ImageError where there is none."""
    installed = [name for name in BUILDERS if shutil.which(name)]
    builder = next((name for name in installed if name != "docker" or has_buildx()), None)
    if builder is None and installed:
        raise ImageError(NO_BUILDX)
    if builder is None:
        raise ImageError(f"Install one of {', '.join(BUILDERS)} (docker with buildx) to build images.")
    return builder


def show_archives() -> None:
    """Prints the archives, built where needed. Raises ImageError where one is larger than is allowed.

    A line each: target, size without and with the stand-in base (MB, uncompressed), path.
    """
    archives = image_archives()
    sizes = {target: size_of(archive) for target, archive in archives.items()}
    print(f"{'IMAGE':<10}{'ADDED MB':>10}{'ALL MB':>10}   ARCHIVE")
    for target, size in sizes.items():
        print(f"{target:<10}{size.added / 1e6:>10.1f}{size.all / 1e6:>10.1f}   {archives[target]}")
    demand_sizes({target: size.added for target, size in sizes.items()})


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser("python -m precision_lab.release.images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    pushing = commands.add_parser("push", help="build and push both images")
    pushing.add_argument("--registry", default="")
    pushing.add_argument("--platforms", default=PLATFORMS)
    pushing.add_argument("--tag", default=version())
    pushing.add_argument("--python-image", default="", help="base of the operator; a tag, or a digest")
    pushing.add_argument("--pytorch-image", default="", help="base of the agent; a tag, or a digest")
    pushing.add_argument("--builder", choices=BUILDERS, help="default: the first of them on PATH that can build")
    pushing.add_argument("--digests", type=Path, default=REPOSITORY / "build/images.txt", help="file to write")
    pushing.add_argument("--dry-run", action="store_true", help="print the commands only")
    commands.add_parser("check", help="build both on stand-in bases and start them (root, buildah, debootstrap)")
    commands.add_parser("archives", help="build both on stand-in bases; print their paths and sizes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 with what to do on stderr."""
    options = parse_arguments(arguments)
    try:
        if options.command == "check":
            # It needs the lab's packages; `push` does not have them.
            from precision_lab.release.images_check import check

            check(say)
        elif options.command == "archives":
            show_archives()
        else:
            builder = options.builder or any_builder()
            bases = {"PYTHON": options.python_image, "PYTORCH": options.pytorch_image}
            push(builder, options.registry, options.platforms, options.tag, bases, options.dry_run, options.digests)
    except ImageError as problem:
        print(f"images: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
