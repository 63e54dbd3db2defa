"""Test files by how long they take: the longest of those with a cluster begin first; and the table at a run's end.

`python -m tests.support.files TIMES` prints the slowest files of all runs that had TEST_TIMES=TIMES in the environment.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

VARIABLE = "TEST_TIMES"
SHOWN = 15
LONGEST_FIRST = (
    "test_on_prometheus", "test_in_chromium", "test_chart_on_cluster", "test_plugin", "test_why_and_rerun",
    "test_fifty_nodes", "test_places", "test_healthy", "test_refusing_cluster", "test_faults", "test_stories",
    "test_lost_nodes", "test_fleet_care", "test_upgrade", "test_capacity_plan", "test_lab", "test_waiting",
)  # fmt: skip
"""Files of cluster tests that take longest: begun last, one of them would keep a single worker busy at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest first."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)) if "cluster" in item.keywords else -1)


def pytest_configure(config: pytest.Config) -> None:
    """Where somebody wants the times, count; workers of pytest-xdist hand theirs to the process that started them."""
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(Path(path)), "times-of-files")


class Times:
    """Seconds by file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set up, call and tear down alike: what a module starts for all its tests counts with the first."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Adds what this run has counted, also where tests failed."""
        with self._path.open("a") as times:
            times.writelines(f"{seconds:.3f} {name}\n" for name, seconds in self._seconds.items())


def table(lines: Iterable[str]) -> str:
    """The slowest files of these lines, the longest first."""
    seconds: Counter[str] = Counter()
    for line in lines:
        number, _, name = line.strip().partition(" ")
        seconds[name] += float(number)  # type: ignore[assignment]
    rows = [f"{number:8.1f} s  {name}" for name, number in seconds.most_common(SHOWN)]
    return "\n".join([f"The slowest {len(rows)} of {len(seconds)} test files, waiting included:", *rows])


def main(arguments: Sequence[str]) -> None:
    """Prints the table; nothing where no test ran."""
    lines = Path(arguments[0]).read_text().splitlines()
    if lines:
        print(table(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
