"""One cluster for each test."""

from __future__ import annotations

import pytest

from tests.support.acting import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()
