"""The times of test files, tried on small ones."""

from pathlib import Path

import pytest

from tests.support.files import VARIABLE, table


def test_a_run_adds_the_seconds_of_its_files_also_where_a_test_fails(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = tmp_path / "times"
    monkeypatch.setenv(VARIABLE, str(times))
    pytester.makepyfile(test_good="def test_good(): pass", test_bad="def test_bad(): assert False")
    for _ in range(2):
        pytester.runpytest_inprocess("-q", "-p", "tests.support.files", "-p", "no:asyncio")
    lines = times.read_text().splitlines()
    assert sorted(line.partition(" ")[2] for line in lines) == ["test_bad.py"] * 2 + ["test_good.py"] * 2
    assert "of 2 test files" in table(lines)


def test_the_table_sums_a_file_over_the_runs_and_begins_with_the_slowest() -> None:
    first, *rows = table(["1.5 a.py", "2.0 b.py", "1.0 a.py", *(f"0.1 c{n}.py" for n in range(20))]).splitlines()
    assert first.startswith("The slowest 15 of 22 test files")
    assert ([row.split() for row in rows[:2]], len(rows)) == ([["2.5", "s", "a.py"], ["2.0", "s", "b.py"]], 15)
