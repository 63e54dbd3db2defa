"""Fixtures of the tests of rules."""

from pathlib import Path

import pytest

from precision_lab.builds.binaries import binaries
from tests.monitoring.replay import EVERYWHERE, PROMTOOLS


@pytest.fixture(scope="session", params=PROMTOOLS if EVERYWHERE else PROMTOOLS[:1])
def promtool_of_long_tests(request: pytest.FixtureRequest) -> Path:
    """A promtool for tests that take a minute."""
    name: str = request.param
    return binaries([name])[name]


@pytest.fixture(scope="session", params=PROMTOOLS)
def promtool(request: pytest.FixtureRequest) -> Path:
    """A promtool, each in turn: what the rules do must not depend on which."""
    name: str = request.param
    return binaries([name])[name]
