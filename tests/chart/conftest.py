"""Fixtures of the chart's tests."""

import pytest

from precision_lab.builds.binaries import binaries
from tests.support.helm import Helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(binaries(["helm"])["helm"])
