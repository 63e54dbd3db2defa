"""A test of this folder leaves no profile behind, also where it fails: none measures the node while others do."""

from collections.abc import Iterator

import pytest

from tests.support.installed import TEAM, Installed


@pytest.fixture(autouse=True)
def no_profile_stays(installed: Installed) -> Iterator[None]:
    """The agents of deleted profiles end by themselves."""
    yield
    installed.lab.kubectl("delete", "pp", "--all", "-n", TEAM)
