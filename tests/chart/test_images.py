"""How images are built for users, how their archives are kept, and that the check of images can fail.

`make audit` never passes on what was not checked; the bases that images name.
"""

import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from precision_lab.builds import image_archives
from precision_lab.builds.image_archives import ImageError
from precision_lab.builds.programs import ALL, modules_for
from precision_lab.release import audit, images, images_check
from precision_lab.release.audit import REQUIREMENTS, Finding, audited, of_govulncheck, of_pip_audit, verdict
from tests.support.golden import beside
from tests.support.helm import CHART

TABLES = beside(__file__)

REGISTRY = "registry.example.com/team"
ROOT = Path(__file__).parents[2]
KNOWN = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited: b (1)"}


def test_docker_builds_each_target_for_all_platforms_and_pushes_it() -> None:
    first, second = images.push_commands("docker", REGISTRY, images.PLATFORMS, "1.2")
    assert " ".join(first) == (
        "docker buildx build --platform=linux/amd64,linux/arm64 --target=operator "
        "--tag=registry.example.com/team/operator:1.2 --push ."
    )
    assert second[4:6] == ["--target=agent", "--tag=registry.example.com/team/agent:1.2"]


@pytest.mark.parametrize("builder", ["podman", "buildah"])
def test_other_builders_make_a_manifest_and_push_all_of_it(builder: str) -> None:
    built, pushed, *_ = images.push_commands(builder, REGISTRY, "linux/arm64", "1.2")
    name = "registry.example.com/team/operator:1.2"
    assert built == [builder, "build", "--platform=linux/arm64", "--target=operator", f"--manifest={name}", "."]
    assert pushed == [builder, "manifest", "push", "--all", name, f"docker://{name}"]


DIGEST = "sha256:" + "ab" * 32


def test_bases_are_the_dockerfiles_or_told_ones_and_a_digest_asks_nobody() -> None:
    dockerfile = (image_archives.REPOSITORY / "Dockerfile").read_text()
    told = {"PYTHON": "", "PYTORCH": f"registry.example.com:5000/pytorch@{DIGEST}"}
    assert images.base_images(told, dockerfile) == {"PYTHON": "python:3.13-slim", "PYTORCH": told["PYTORCH"]}
    assert images.resolved("docker", "PYTHON", f"python@{DIGEST}").digest == DIGEST
    with pytest.raises(ImageError, match=r"make images PYTHON_IMAGE=NAME@sha256:"):
        images.resolved("docker", "PYTHON", "python@sha256:short")


@pytest.mark.parametrize(
    ("image", "built"),
    [
        ("python:3.13-slim", f"python@{DIGEST}"),
        ("registry.example.com:5000/base/python:3.13", f"registry.example.com:5000/base/python@{DIGEST}"),
        (f"nvcr.io/nvidia/pytorch@{DIGEST}", f"nvcr.io/nvidia/pytorch@{DIGEST}"),
    ],
)
def test_images_are_built_on_the_digest_and_named_by_it(image: str, built: str) -> None:
    base = images.Base("PYTHON", image, DIGEST)
    command = images.push_commands("docker", REGISTRY, images.PLATFORMS, "1.2", [base])[0]
    assert [word for word in command if word.startswith("--build-arg")] == [
        f"--build-arg=PYTHON_IMAGE={built}",
        f"--build-arg=PYTHON_DIGEST={DIGEST}",
    ]


def push(*arguments: str, path: Path | str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """`push` without site packages, since users push without the lab's, and with the programs of `path`."""
    command = [sys.executable, "-S", "-m", "precision_lab.release.images", "push", *arguments]
    folder, environment = image_archives.REPOSITORY / "lab", os.environ | {"PATH": str(path)}
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)


def test_without_a_registry_it_is_said_and_a_dry_run_prints_the_commands() -> None:
    done = push("--builder=docker")
    assert (done.returncode, done.stdout) == (1, "")
    assert "make images REGISTRY=" in done.stderr
    done = push("--builder=docker", "--dry-run", f"--registry={REGISTRY}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(image_archives.TARGETS)


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def push_with(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return push(f"--registry={REGISTRY}", *arguments, path=folder)


def test_docker_without_its_buildx_plugin_leaves_the_work_to_buildah(tmp_path: Path) -> None:
    program(tmp_path, "docker", "exit 1")
    program(tmp_path, "buildah", "exit 0")
    assert push_with(tmp_path, "--dry-run").stdout.startswith("buildah build ")
    program(tmp_path, "docker", "exit 0")
    assert push_with(tmp_path, "--dry-run").stdout.startswith("docker buildx build ")


@pytest.mark.parametrize("chosen", [[], ["--builder=docker"]], ids=["found", "chosen"])
def test_docker_without_its_buildx_plugin_alone_says_what_to_do(tmp_path: Path, chosen: list[str]) -> None:
    program(tmp_path, "docker", "exit 1")
    done = push_with(tmp_path, *chosen)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("images: docker has no buildx plugin: install it, or use another builder")


def test_what_was_pushed_is_named_by_digest_or_it_is_said_why_not(tmp_path: Path) -> None:
    program(tmp_path, "buildah", "exit 0")
    program(tmp_path, "skopeo", f'case "$*" in *agent*) echo gone >&2; exit 1;; esac; echo {DIGEST}')
    bases = [f"--{name}-image={name}@{DIGEST}" for name in ("python", "pytorch")]
    done = push_with(tmp_path, "--tag=1.2", *bases)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        f"  --set operator.image.digest={DIGEST}",
        f"  the digest of {REGISTRY}/agent:1.2 is not known: gone",
    ]


def test_images_carry_the_charts_version_and_stay_below_their_limit() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {image_archives.version()}
    assert {target: values[target]["image"]["repository"] for target in image_archives.TARGETS} == image_archives.NAMES
    limit = image_archives.LIMIT_MB["operator"] * 1_000_000
    image_archives.demand_sizes({"operator": limit, "agent": 10 * limit})
    with pytest.raises(ImageError, match=r"operator adds 270\.1 MB to its base, at most 270 are allowed"):
        image_archives.demand_sizes({"operator": limit + 100_000})


@pytest.mark.parametrize(("changed", "rebuilt"), TABLES["changes"])
def test_images_are_rebuilt_where_what_the_builder_gets_changed(tmp_path: Path, changed: str, rebuilt: bool) -> None:
    for name in ("Dockerfile", "README.md", "agent/run.py", "docs/install.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("*\n!README.md\n!agent\n**/__pycache__\n")
    before = image_archives.source_hash(tmp_path)
    (tmp_path / changed).parent.mkdir(exist_ok=True)
    (tmp_path / changed).write_text("changed")
    assert (image_archives.source_hash(tmp_path) != before) is rebuilt


def test_the_builds_that_were_used_last_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(("newest", "second", "third", "oldest")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "base.tar").touch()
    image_archives.keep_newest(tmp_path, kept=2)
    assert {path.name for path in tmp_path.iterdir()} == {"newest", "second", "base.tar"}


@pytest.mark.parametrize("fault", ["missing", "older", "empty"])
def test_modules_that_would_be_compiled_at_each_start_are_an_error(tmp_path: Path, fault: str) -> None:
    source = tmp_path / "precision_x" / "room" / "a.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    py_compile.compile(str(source))
    images_check.demand_bytecode("operator", tmp_path)
    if fault == "older":
        os.utime(source, (1e9, 1e9))
    else:
        shutil.rmtree(source.parents[1] if fault == "empty" else source.parent / "__pycache__")
    with pytest.raises(ImageError, match=r"operator: \d of \d modules would be compiled at each start"):
        images_check.demand_bytecode("operator", tmp_path)


@pytest.mark.parametrize(("code", "output"), [(1, "PPR1 1/2 x"), (0, "Traceback")], ids=["code", "words"])
def test_an_agent_that_ends_otherwise_fails_the_check(code: int, output: str) -> None:
    images_check.demand_result("65532:65532", 0, "PPR1 1/2 x", "")
    with pytest.raises(ImageError, match=f"The agent as 65532:65532 ended with {code}"):
        images_check.demand_result("65532:65532", code, output, "")


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([KNOWN], "clean"),
        ([KNOWN, SKIPPED], "not checked"),
        ([KNOWN, SKIPPED, {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1"}]}], "vulnerable"),
        ([], "not checked"),
    ],
)
def test_packages_that_the_database_does_not_know_were_not_checked(rows: list[object], state: str) -> None:
    assert of_pip_audit("f", json.dumps({"dependencies": rows}), "").state == state


def test_a_tool_without_an_answer_checked_nothing_and_those_of_the_audit_are_locked() -> None:
    assert of_pip_audit("f", "", "Could not connect") == Finding("f", "not checked", "Could not connect")
    assert of_govulncheck("p", 1, "", "dial tcp: no such host").state == "not checked"
    assert of_govulncheck("p", 3, "GO-2026-1", "").state == "vulnerable"
    assert of_govulncheck("p", 0, "No vulnerabilities found.", "").state == "clean"
    locked = (ROOT / "requirements" / "tools.txt").read_text()
    assert re.findall(r"^(cyclonedx-bom|pip-audit)==\S+ \\\n    --hash=sha256:", locked, re.MULTILINE)
    assert "govulncheck" not in ALL
    assert [module.name for module in modules_for(("govulncheck",))] == ["govulncheck"]


@pytest.mark.parametrize(("states", "code", "words"), TABLES["states"])
def test_only_what_was_checked_throughout_passes(states: Sequence[audit.State], code: int, words: str) -> None:
    found = verdict([Finding(str(i), state, "") for i, state in enumerate(states)])
    assert found[0] == code
    assert words in found[1]


def test_each_locked_file_and_each_of_our_go_programs_is_looked_at() -> None:
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        if command[0] != "pip-audit":
            folder = Path(command[2])
            assert {"go.mod", "go.sum"} < {file.name for file in folder.iterdir()}
        return subprocess.CompletedProcess(command, 0, json.dumps({"dependencies": [KNOWN]}), "")

    found = list(audited(["pip-audit"], Path("govulncheck"), run))
    assert {f"requirements/{name}" for name in REQUIREMENTS} <= {each.what for each in found}
    assert set(REQUIREMENTS) == {path.name for path in (ROOT / "requirements").glob("*.txt")}
    ours = {path.stem for path in (ROOT / "lab").rglob("*.go")}
    assert len([each for each in found if each.what.endswith("(Go)")]) == len(ours)
    assert len(asked) == len(found)


@pytest.mark.parametrize(("target", "base"), [("operator", "PYTHON"), ("agent", "PYTORCH")])
def test_images_name_the_base_that_they_were_built_on(target: str, base: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    stage = re.split(rf"^FROM \S+ AS {target}\n", text, flags=re.MULTILINE)[1].split("\nFROM ")[0]
    assert f"ARG {base}_IMAGE\nARG {base}_DIGEST=\n" in stage
    assert f'org.opencontainers.image.base.name="${{{base}_IMAGE}}"' in stage
    assert f'org.opencontainers.image.base.digest="${{{base}_DIGEST}}"' in stage
