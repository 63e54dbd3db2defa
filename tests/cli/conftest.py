"""A cluster for the plugin: an API server in memory behind a program in the place of kubectl."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.api import Api, served


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """An API server without any object; the kubectl on the PATH leads to it."""
    with served(Api(tmp_path)) as found:
        yield found
