"""What the operator's image adds to its base, package by package: `python -m precision_lab.release.package_sizes`.

Every locked wheel is resolved and unpacked for both platforms, with its hash checked and its modules compiled, as the
Dockerfile does; a package without a wheel for one of them is an error. No base image and no root is needed. Bytecode is
of the Python that runs this, and so a few percent off the image's. `--write` puts the tables into docs/supply-chain.md.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from precision_lab.builds.image_archives import LIMIT_MB
from precision_lab.release import page_block

REPOSITORY = Path(__file__).resolve().parents[3]
PLATFORMS: Mapping[str, str] = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
"""As containers call the platform -> as uv does."""
REQUIREMENTS: Mapping[str, tuple[str, str]] = {
    "operator": ("operator.txt", "3.13"),
    "agent": ("agent.txt", "3.12"),
}
"""Image -> what is locked for it, and its base's version of Python."""
PAGE = REPOSITORY / "docs" / "supply-chain.md"
COMMAND = "python -m precision_lab.release.package_sizes --write"
SMALL_MB = 1.0
"""Packages below are one row."""


class SizesError(Exception):
    """A package can't be had for a platform, or an image's packages are too large."""


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution and the bytes of its files, compiled modules among them."""

    name: str
    bytes: int


def unpacked(image: str, platform: str, folder: Path) -> list[Package]:
    """The image's packages for a platform, unpacked into `folder`. Raises SizesError."""
    file, python = REQUIREMENTS[image]
    options = [
        "--only-binary=:all:",
        "--require-hashes",
        "--no-deps",
        f"--python-version={python}",
        "--compile-bytecode",
    ]
    target = [f"--python-platform={PLATFORMS[platform]}", f"--target={folder}"]
    command = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", *options, *target]
    done = subprocess.run(
        [*command, f"--requirement={REPOSITORY / 'requirements' / file}"], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SizesError(f"{image} for {platform}: {done.stderr.strip()[-1000:]}")
    return sizes(folder)


def sizes(folder: Path) -> list[Package]:
    """The packages in a folder by size, the largest first. What no package claims is `(compiled modules, others)`."""
    found = []
    for info in sorted(folder.glob("*.dist-info")):
        name = info.name.partition("-")[0].replace("_", "-")
        files = {folder / row[0] for row in csv.reader((info / "RECORD").read_text().splitlines())}
        compiled = {cached for file in files if file.suffix == ".py" for cached in _compiled(file)}
        found.append(Package(name, sum(file.stat().st_size for file in files | compiled if file.is_file())))
    return sorted(found, key=lambda package: -package.bytes)


def _compiled(source: Path) -> list[Path]:
    return list((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"))


def table(by_platform: Mapping[str, Sequence[Package]]) -> str:
    """Markdown: a row for each package of SMALL_MB or more on some platform, one for the rest, one for all."""
    names = dict.fromkeys(package.name for found in by_platform.values() for package in found)
    sized = {at: {package.name: package.bytes / 1e6 for package in found} for at, found in by_platform.items()}
    large = [name for name in names if max(found.get(name, 0.0) for found in sized.values()) >= SMALL_MB]
    small = [name for name in names if name not in large]
    rows = [(name, [found.get(name, 0.0) for found in sized.values()]) for name in large]
    rows.append((f"{len(small)} others", [sum(found.get(name, 0.0) for name in small) for found in sized.values()]))
    rows.append(("all", [sum(found.values()) for found in sized.values()]))
    head = [f"| package | {' | '.join(f'{at}, MB' for at in by_platform)} |", f"|---|{'--:|' * len(by_platform)}"]
    return "\n".join([*head, *(f"| {name} | {' | '.join(f'{mb:.1f}' for mb in mbs)} |" for name, mbs in rows)])


def heading(image: str) -> str:
    """The line above an image's table: what is locked for it, and a digest by which a test sees that it has changed."""
    file = REQUIREMENTS[image][0]
    digest = hashlib.sha256((REPOSITORY / "requirements" / file).read_bytes()).hexdigest()
    return f"{image}, `requirements/{file}` (SHA-256 `{digest[:16]}`):"


def check(image: str, by_platform: Mapping[str, Sequence[Package]]) -> None:
    """Raises SizesError where an image's packages take more than LIMIT_MB."""
    for platform, found in by_platform.items():
        total = sum(package.bytes for package in found) / 1e6
        if total > LIMIT_MB.get(image, float("inf")):
            raise SizesError(
                f"{image} for {platform}: {total:.0f} MB of packages, at most {LIMIT_MB[image]} are allowed"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table in Markdown for each image; 1 where a wheel is missing or an image is too large."""
    parser = argparse.ArgumentParser("python -m precision_lab.release.package_sizes", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/supply-chain.md, too")
    write = parser.parse_args(arguments).write
    tables = []
    try:
        for image in REQUIREMENTS:
            with tempfile.TemporaryDirectory() as folder:
                found = {platform: unpacked(image, platform, Path(folder) / platform) for platform in PLATFORMS}
            tables.append(f"{heading(image)}\n\n{table(found)}\n")
            print(f"\n{tables[-1]}", end="")
            check(image, found)
    except SizesError as problem:
        print(f"sizes: {problem}", file=sys.stderr)
        return 1
    if write:
        page_block.put(PAGE, COMMAND, "\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
