"""How images are built for users, and that the check of images can fail."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from precision_lab import images
from tests.support.helm import CHART

REGISTRY = "registry.example.com/team"


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


def told(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the program says; without site packages, since users push without the lab's."""
    command = [sys.executable, "-S", "-m", "precision_lab.images", *arguments]
    return subprocess.run(command, cwd=images.REPOSITORY / "lab", text=True, capture_output=True)


def test_without_a_registry_it_is_said_what_to_write() -> None:
    done = told("push", "--builder=docker")
    assert (done.returncode, done.stdout) == (1, "")
    assert "make images REGISTRY=" in done.stderr


def test_a_dry_run_prints_the_commands_and_needs_no_builder() -> None:
    done = told("push", "--builder=docker", "--dry-run", f"--registry={REGISTRY}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(images.TARGETS)


def test_images_carry_the_version_that_the_chart_asks_for() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == images.version()


@pytest.mark.parametrize(("code", "output"), [(1, "PPR1 1/2 x"), (0, "Traceback")], ids=["code", "words"])
def test_an_image_that_starts_otherwise_fails_the_check(code: int, output: str) -> None:
    agent = next(start for start in images.STARTS if start.target == "agent")
    images.verdict(agent, 0, "PPR1 1/2 x")
    with pytest.raises(images.CheckFailed, match="agent ended with"):
        images.verdict(agent, code, output)
