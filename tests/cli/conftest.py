"""A cluster for the plugin: an API server in memory behind real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.api import Api, served


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """An API server without any object; the plugin reaches it by its own kubeconfig."""
    with served(Api(tmp_path)) as found:
        yield found
