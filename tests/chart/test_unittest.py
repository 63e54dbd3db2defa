"""The chart's own suite, charts/precision-profiler/tests, as people run it by `helm unittest`."""

import subprocess

from precision_lab.builds.binaries import binaries
from tests.support.helm import CHART


def test_the_charts_own_suite_passes() -> None:
    command = [binaries(["helm-unittest"])["helm-unittest"], "--strict", "--file", "tests/*_test.yaml", CHART]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
    assert " 0 total" not in done.stdout.partition("Tests:")[2].splitlines()[0]
