"""The chart's own suite, charts/precision-profiler/tests, as people run it by `helm unittest`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from precision_lab.builds.binaries import binaries
from tests.support.helm import CHART


def unittest(chart: Path, suites: str = "tests/*_test.yaml") -> subprocess.CompletedProcess[str]:
    program = binaries(["helm-unittest"])["helm-unittest"]
    return subprocess.run([str(program), "--strict", "--file", suites, str(chart)], text=True, capture_output=True)


def test_the_charts_own_suite_passes() -> None:
    done = unittest(CHART)
    assert done.returncode == 0, done.stdout
    assert " 0 total" not in done.stdout.partition("Tests:")[2].splitlines()[0]


BROKEN = {
    "operator": ("templates/_names.tpl", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    "exporter": ("templates/exporter.yaml", "--shards=", "--shard="),
    "monitoring": ("templates/monitoring.yaml", "labeldrop", "labelkeep"),
    "agents": ("templates/agents.yaml", "preemptionPolicy: Never", "preemptionPolicy: PreemptLowerPriority"),
    "network": ("templates/networkpolicy.yaml", "cidr: {{ . | quote }}", "cidr: 0.0.0.0/0"),
    "refusals": ("templates/_checks.tpl", "(gt $shards 64)", "(gt $shards 65)"),
    "policies": ("templates/policies.yaml", "validationActions: [Deny]", "validationActions: [Warn]"),
    "crds": ("templates/crds.yaml", '"keep"', '"delete"'),
}


@pytest.mark.parametrize("suite", BROKEN)
def test_a_broken_template_fails_its_suite(suite: str, tmp_path: Path) -> None:
    name, right, wrong = BROKEN[suite]
    copy = shutil.copytree(CHART, tmp_path / "chart")
    text = (copy / name).read_text()
    assert right in text
    (copy / name).write_text(text.replace(right, wrong))
    done = unittest(copy, f"tests/{suite}_test.yaml")
    assert done.returncode == 1
    assert "1 failed, 0 passed" in done.stdout.partition("Test Suites:")[2].splitlines()[0]
