"""Helm 4 on our chart: it finds nothing wrong, and makes of it what Helm 3 makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from precision_lab.builds.binaries import binaries
from tests.chart.test_render import REFUSED, VALUE_SETS
from tests.support.helm import CHART, Helm, Manifest


@pytest.fixture(scope="module")
def helm_4() -> Helm:
    """Helm 4 as the lab has it."""
    return Helm(binaries(["helm-4"])["helm-4"])


def test_it_is_helm_4(helm: Helm, helm_4: Helm) -> None:
    told = [subprocess.run([one.program, "version", "--short"], capture_output=True).stdout for one in (helm, helm_4)]
    assert [version[:3] for version in told] == [b"v3.", b"v4."]


def test_lint_finds_nothing(helm_4: Helm) -> None:
    done = subprocess.run([helm_4.program, "lint", "--strict", CHART], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_same_objects_are_rendered_in_the_same_order(name: str, helm: Helm, helm_4: Helm) -> None:
    assert helm_4.manifests(**VALUE_SETS[name]) == helm.manifests(**VALUE_SETS[name])


@pytest.mark.parametrize(("values", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_the_same_values_are_refused_in_the_same_words(values: Manifest, told: str, helm_4: Helm) -> None:
    done = helm_4.run(values)
    assert (done.returncode, told in done.stderr) == (1, True), done.stderr


def test_an_installation_is_shown_without_a_cluster(helm_4: Helm, tmp_path: Path) -> None:
    command = [helm_4.program, "install", "fleet", CHART, "--dry-run=client"]
    done = subprocess.run(command, env={"HOME": str(tmp_path)}, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "NOTES:" in done.stdout
