"""A fleet of 24 nodes with planted stories, five days of it, in the lab's Prometheus, with its dashboards in a page."""

from collections.abc import Iterator

import pytest

from precision_lab.pictures.screenshots import Shown, shown_fleet


@pytest.fixture(scope="session")
def shown() -> Iterator[Shown]:
    """One for all tests: they only read."""
    with shown_fleet(24) as fleet:
        yield fleet
