"""The scripted NVML for all tests of this folder, compiled once."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.support.fake_nvml import compile_nvml, forking


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_nvml(tmp_path_factory.mktemp("fake_nvml"))


@pytest.fixture(scope="module")
def by(library: Path) -> Iterator[Popen[str]]:
    """What forks for each run."""
    with forking(library) as process:
        yield process
