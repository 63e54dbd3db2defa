"""The end: the release is uninstalled. What its programs ask for meanwhile is `tests/e2e/test_uninstall`."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually
from tests.support.installed import Installed

pytestmark = pytest.mark.node


def test_uninstalling_ends_all_programs(installed: Installed) -> None:
    installed.release.uninstall()
    eventually(lambda: not installed.kubectl("get", "pods,deployments", "--output=name"), 60)
