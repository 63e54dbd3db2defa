"""`make release`: all that a user takes, in dist/, from the commit that is checked out. Nothing is published.

Everything is made from `git archive` with the commit's time, so that two clones write the same bytes whatever their
folder, umask, time zone or day. Without a registry it is a draft, and says so in names, versions and addresses.
"""

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from precision_lab.builds.binaries import binaries
from precision_lab.builds.image_archives import REPOSITORY, TARGETS, ImageError
from precision_lab.builds.image_archives import version as version_of
from precision_lab.release.krew import PLATFORMS, PLUGIN, archive, manifest

CHART = "charts/precision-profiler"
EXAMPLE = "registry.example.com/precision-profiler"
DRAFT = "draft.invalid/precision-profiler"
"""A draft's registry and home: no name below .invalid is ever served (RFC 2606)."""
REGISTRY = re.compile(r"(?!([^/]+\.)?example\.)[a-z0-9][a-z0-9.:-]*(/[a-z0-9._-]+)*")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)]+)\)")


@dataclass(frozen=True)
class Release:
    """`source` is a commit's tree, `seconds` its time since 1970, `out` the folder to fill, `number` the version."""

    source: Path
    out: Path
    seconds: int
    number: str
    registry: str = DRAFT
    home: str = f"https://{DRAFT}"
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """By semantic versioning."""
        return self.number + ("-draft" if self.registry == DRAFT else "")

    @property
    def downloads(self) -> str:
        """Where the files of dist/ will be, as GitHub has those of a release."""
        return f"{self.home}/releases/download/v{self.version}"

    def images(self) -> dict[str, str]:
        """Each program's image, with its digest where that is known."""
        return {name: f"{self.registry}/{name}:{self.number}{self.digests.get(name, '')}" for name in TARGETS}

    def run(self, *command: str | Path, cwd: str = ".") -> None:
        """Runs a command in the tree, at the commit's time. Raises ImageError with its words."""
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(self.seconds)}
        done = subprocess.run(command, cwd=self.source / cwd, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ImageError(f"{' '.join(map(str, command[:4]))}: {(done.stderr or done.stdout)[-1500:].strip()}")


def release(made: Release, platforms: Sequence[str] = tuple(PLATFORMS), sboms: Path = REPOSITORY / "sbom") -> None:
    """Fills the folder. Raises ImageError."""
    source, out = made.source, made.out
    sections = (source / "CHANGELOG.md").read_text().split("\n## ")
    titled = {title.split(" ")[0].strip("[]"): text for title, _, text in (part.partition("\n") for part in sections)}
    changes = titled.get(made.number) or titled["Unreleased"]
    package_chart(made, changes)
    definitions = sorted((source / "crds").glob("*.yaml"))
    (out / "crds.yaml").write_text("---\n".join(path.read_text() for path in definitions))
    (out / "images.txt").write_text("".join(f"{image}\n" for image in made.images().values()))
    page = rf"[\1]({made.home}/blob/v{made.version}/\2)"
    (out / "NOTES.md").write_text(f"# Precision Profiler {made.version}\n{LINK.sub(page, changes)}")
    files = [*(source / CHART / "files/dashboards").glob("*.json"), *(source / "requirements").glob("plugin*.txt")]
    files += [path for name in (*TARGETS, "plugin-plan") for path in sboms.glob(f"{name}.cdx.json")]
    for path in (*files, source / "docs/icon.svg"):
        shutil.copyfile(path, out / path.name)
    if made.registry == DRAFT:
        project, plain = source / "pyproject.toml", f'version = "{made.number}"'
        project.write_text(project.read_text().replace(plain, f'{plain[:-1]}+draft"', 1))
    made.run(sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={out}", cwd=PLUGIN)
    (wheel,) = out.glob("*.whl")
    archives = {}
    for platform in platforms:
        path = out / f"kubectl-precision-{made.version}_{platform}.tar.gz"
        path.write_bytes(archive(source, wheel, platform, made.seconds, made.run))
        archives[platform] = (f"{made.downloads}/{path.name}", path)
    (out / "precision.yaml").write_text(manifest(source, made.version, made.home, archives))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums))
    for path in out.iterdir():
        # Helm writes the time of a chart's file into what it pushes, and so into its digest.
        os.utime(path, (made.seconds, made.seconds))


def package_chart(made: Release, changes: str) -> None:
    """The chart by Helm 4, with the images' names and digests in its values, and what Artifact Hub reads."""
    chart = made.source / CHART
    for path in (path for path in chart.rglob("*") if path.is_file()):
        text = path.read_text().replace(EXAMPLE, made.registry).replace("oci://REGISTRY", f"oci://{made.registry}")
        for name, digest in made.digests.items():
            text = re.sub(rf'(repository: \S+/{name}\n(?:.*\n)*?    digest: )""', rf'\1"{digest[1:]}"', text, count=1)
            text = text.replace(f'`{name}.image.digest` | `""`', f'`{name}.image.digest` | `"{digest[1:]}"`')
        path.write_text(text.replace("VERSION", made.version) if path.name == "README.md" else text)
    shutil.copyfile(made.source / "LICENSE", chart / "LICENSE")
    head = yaml.safe_load((chart / "Chart.yaml").read_text())
    head |= {"version": made.version, "home": made.home, "sources": [made.home], "icon": f"{made.downloads}/icon.svg"}
    bullets = re.findall(r"^- (.+(?:\n  .+)*)", changes, re.MULTILINE)
    rows = {
        "images": [{"name": name, "image": image} for name, image in made.images().items()],
        "changes": [{"kind": "added", "description": " ".join(LINK.sub(r"\1", bullet).split())} for bullet in bullets],
    }
    head["annotations"] |= {f"artifacthub.io/{name}": yaml.safe_dump(value, width=1000) for name, value in rows.items()}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(head, sort_keys=False, allow_unicode=True))
    made.run(binaries(["helm-4"])["helm-4"], "package", chart, f"--destination={made.out}")


def read_digests(path: Path, registry: str, version: str) -> dict[str, str]:
    """`@sha256:...` by program, of what `make images` wrote. Raises ImageError where it is of other images."""
    lines = dict(line.partition("@")[::2] for line in path.read_text().split())
    digests = {name: "@" + lines.get(f"{registry}/{name}:{version}", "") for name in TARGETS}
    if not all(re.fullmatch(r"@sha256:[0-9a-f]{64}", digest) for digest in digests.values()):
        raise ImageError(f"{path} must name {registry}/operator:{version}@sha256:... and the agent: run make images.")
    return digests


def export(tree: Path) -> int:
    """Writes the tree of HEAD; returns the commit's time. Raises ImageError where anything is not committed."""
    mine = ("tar.umask=0022", "core.autocrlf=false", "core.attributesFile=/dev/null", "log.showSignature=false")
    git = ["git", *(word for setting in mine for word in ("-c", setting)), "-C", str(REPOSITORY)]
    if changed := subprocess.check_output([*git, "status", "--porcelain"], text=True):
        raise ImageError(f"A release is made of a commit; not committed: {', '.join(changed.split()[1::2])}")
    with tarfile.open(fileobj=io.BytesIO(subprocess.check_output([*git, "archive", "HEAD"]))) as tar:
        tar.extractall(tree, filter="data")
    return int(subprocess.check_output([*git, "log", "-1", "--format=%ct"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 with what to do on stderr."""
    parser = argparse.ArgumentParser("python -m precision_lab.release.release", description=__doc__)
    parser.add_argument("--registry", default="", help="where images and chart are; without it all is a draft")
    parser.add_argument("--url", default="", help="home of the project, https://HOST/OWNER/NAME")
    parser.add_argument("--digests", type=Path, help="what make images wrote")
    parser.add_argument("--platforms", default=",".join(PLATFORMS))
    asked = parser.parse_args(arguments)
    named, dist = (asked.registry, asked.url.rstrip("/")), REPOSITORY / "dist"
    try:
        if any(named) and not REGISTRY.fullmatch(asked.registry):
            raise ImageError(f"A release needs REGISTRY=HOST/PATH, whose host is no example, not {asked.registry!r}")
        if any(named) and not asked.url.startswith("https://"):
            raise ImageError(f"A release needs URL=https://HOST/OWNER/NAME, not {asked.url!r}")
        with tempfile.TemporaryDirectory(prefix="precision-release-") as scratch:
            tree, out = Path(scratch, "tree"), Path(scratch, "dist")
            out.mkdir()
            seconds, number = export(tree), version_of(tree)
            digests = read_digests(asked.digests, asked.registry, number) if asked.digests else {}
            registry, home = named if any(named) else (DRAFT, f"https://{DRAFT}")
            release(Release(tree, out, seconds, number, registry, home, digests), asked.platforms.split(","))
            shutil.rmtree(dist, ignore_errors=True)
            shutil.copytree(out, dist)
    except (ImageError, OSError, subprocess.CalledProcessError) as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1
    return subprocess.run(["ls", "-l", dist], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
