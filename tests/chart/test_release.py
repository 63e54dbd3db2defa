"""Two clones write the same release, which names its own images alone; krew installs the plugin, and it starts."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from precision_lab.builds.binaries import binaries
from precision_lab.builds.image_archives import ImageError
from precision_lab.release import release
from tests.support.helm import Helm

ROOT = Path(__file__).parents[2]
REGISTRY, HOME = "registry.lab:5000/team", "https://git.lab/team/precision-profiler"
DIGESTS = {"operator": "sha256:" + "a" * 64, "agent": "sha256:" + "b" * 64}
IMAGES = [f"{REGISTRY}/{name}:{release.version_of(ROOT)}@{digest}" for name, digest in DIGESTS.items()]


def released(clone: Path, umask: int, **environment: str) -> Path:
    """dist/ of a clone of what is committed, for one platform."""
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True, umask=umask)
    (clone / "sbom").mkdir()
    (clone / "sbom" / f"{clone.name}.cdx.json").write_text("of another version")
    digests = clone.with_suffix(".txt")
    digests.write_text("\n".join(IMAGES))
    asked = [f"--registry={REGISTRY}", f"--url={HOME}", f"--digests={digests}", "--platforms=linux_amd64"]
    path = ":".join(str(clone / room) for room in ("lab", "crds", "operator"))
    command = [sys.executable, "-m", "precision_lab.release.release", *asked]
    subprocess.run(command, cwd=clone, env={**os.environ, **environment, "PYTHONPATH": path}, check=True, umask=umask)
    return clone / "dist"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("release") / "one", 0o077, TZ="Asia/Tokyo", LANG="tr_TR.UTF-8")


def contents(path: Path) -> dict[str, bytes]:
    """What a file holds, by name: of an archive its files."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    if path.name.endswith("gz"):
        with tarfile.open(path) as tar:
            return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    return {path.name: path.read_bytes()}


def test_another_clone_writes_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[core]\nautocrlf = true\nattributesFile = {tmp_path}/text\n[log]\nshowSignature = true\n")
    (tmp_path / "text").write_text("* text eol=crlf\n")
    git = {"GIT_CONFIG_GLOBAL": str(settings)}
    again = released(tmp_path / "another name", 0o022, **git, TZ="UTC", LANG="C", SOURCE_DATE_EPOCH="86400")
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=again, check=True)
    committed = int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
    assert {path.stat().st_mtime for path in again.iterdir()} == {committed}, "Helm pushes the time of a chart's file"


def test_a_release_names_its_own_images_and_no_example(dist: Path, helm: Helm) -> None:
    assert (dist / "images.txt").read_text().split() == IMAGES
    [chart] = dist.glob("*.tgz")
    rendered = helm.run({}, chart).stdout
    assert {*re.findall(r"^ +image: (.+)$", rendered, re.M)} == {f'"{REGISTRY}/operator@{DIGESTS["operator"]}"'}
    assert f"--agent-image={REGISTRY}/agent@{DIGESTS['agent']}\n" in rendered
    files = {name.partition("/")[2]: text.decode() for name, text in contents(chart).items()}
    assert files["LICENSE"] == (ROOT / "LICENSE").read_text()
    assert not re.search(r"\]\((?!https?:|#)", files["README.md"]), "a registry's page has no files beside it"
    begins = ["Install", "Test", "First profile", "Uninstall"]
    assert re.findall(r"^## (.+)", files["README.md"], re.M)[:4] == begins
    head = yaml.safe_load(files["Chart.yaml"])
    assert (head["home"], head["sources"]) == (HOME, [HOME])
    rows = {name: yaml.safe_load(text) for name, text in head["annotations"].items()}
    assert [row["image"] for row in rows["artifacthub.io/images"]] == IMAGES
    crds = [*yaml.safe_load_all((dist / "crds.yaml").read_text())]
    assert [row["name"] for row in rows["artifacthub.io/crds"]] == [crd["metadata"]["name"] for crd in crds]
    named = {path.name for path in dist.iterdir() if b"registry.example.com" in b"".join(contents(path).values())}
    assert named == set()


def test_what_is_no_release_is_a_draft_or_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    draft = release.Release(ROOT, tmp_path, 0, "1.2")
    assert (draft.version, draft.images()["agent"]) == ("1.2-draft", "draft.invalid/precision-profiler/agent:1.2")
    assert release.main(["--registry=registry.example.com/precision-profiler", f"--url={HOME}"]) == 1
    assert "needs REGISTRY=HOST/PATH, whose host is no example, not 'registry.ex" in capsys.readouterr().err
    assert release.main(["--registry=r.lab/example/a"]) == 1
    assert "needs URL=https://HOST/OWNER/NAME, not ''" in capsys.readouterr().err
    file = tmp_path / "images.txt"
    file.write_text(f"other.lab/operator:1.2@{DIGESTS['operator']}\n")
    with patch.object(release, "REPOSITORY", tmp_path):
        assert release.main([]) == 1, "no clone"
    with pytest.raises(ImageError, match=r"must name registry\.lab:5000/team/operator:1\.2@sha256"):
        release.read_digests(file, REGISTRY, "1.2")


def test_krew_installs_the_plugin_which_runs_by_a_python_that_it_can_take(dist: Path, tmp_path: Path) -> None:
    [archive] = dist.glob("*_linux_amd64.tar.gz")
    natives = {name.split("/")[1] for name in contents(archive) if name.startswith("native/")}
    assert natives == {f"cpython-3{minor}-x86_64" for minor in range(11, 15)}
    names = {name.split("/")[0] for name in contents(archive)}
    assert names == {"LICENSE", "__main__.py", "kubectl-precision", "native", "packages"}
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho cpython-39\n")
    old.chmod(0o755)
    alone = {"PATH": str(tmp_path), "HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "krew")}
    both = alone | {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    krew = [binaries(["krew"])["krew"], "install", f"--manifest={dist / 'precision.yaml'}", f"--archive={archive}"]
    subprocess.run(krew, env=both | {"KREW_OS": "linux", "KREW_ARCH": "amd64"}, check=True)
    program, completion = (tmp_path / "krew/bin" / name for name in ("kubectl-precision", "kubectl_complete-precision"))
    shapes = subprocess.check_output([program, "shapes", "--preset=llama3-8b", "-o", "json"], env=both)
    assert len(json.loads(shapes)) > 10
    completion.symlink_to(program.name)
    assert subprocess.check_output([completion, "sha"], env=both).startswith(b"shapes\t")
    there = program.resolve().parent
    done = subprocess.run(["/bin/sh", program.name], cwd=there, env=alone, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)
    assert "needs Python 3.11, 3.12, 3.13 or 3.14 for x86_64 on" in done.stderr


def test_the_workflow_is_valid_and_of_make_targets_alone() -> None:
    workflow = ROOT / ".github/workflows/release.yaml"
    subprocess.run([binaries(["actionlint"])["actionlint"], "-no-color", workflow], check=True)
    steps = yaml.safe_load(workflow.read_text())["jobs"]["release"]["steps"]
    called = [step["run"].split() for step in steps if "run" in step]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert [words[0] for words in called if len(words) == 2 and words[1] in targets] == ["make"] * 6
    assert len(called) == 6
