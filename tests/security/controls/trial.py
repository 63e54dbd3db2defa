"""Takes a control's protection out of a copy of the tree, and runs its tests there."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.security.controls.control import Change, Control
from tests.security.controls.recorder import RECORD

FOLDERS = (".", "crds", "operator", "agent", "lab")
"""What tests import from, as pyproject.toml says it to pytest."""
LIMIT_SECONDS = 1200.0


class ControlError(Exception):
    """A control shows nothing: its tests fail anyway, can't be run, or are not run on the changed code."""


@dataclass(frozen=True)
class Ended:
    outcome: str
    when: str
    why: str

    def caught(self, raised: str = "") -> bool:
        """Whether it failed by an assertion, or by the exception named `raised`; a fixture's failure does not count."""
        kind = self.why.partition(":")[0]
        return (self.outcome, self.when) == ("failed", "call") and kind in ("assertion", raised)


@dataclass(frozen=True)
class Record:
    """What one run of pytest recorded: how each test ended by its node ID, and the files of our modules."""

    tests: Mapping[str, Ended]
    modules: Mapping[str, str]
    output: str

    def of(self, test: str) -> dict[str, Ended]:
        """The tests that a node ID names, with its parameters where it names none."""
        return {name: end for name, end in self.tests.items() if name == test or name.startswith(f"{test}[")}


def copied(root: Path, target: Path) -> Path:
    """A copy of the files that git knows, as they are in the working tree. Returns `target`."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source, place = root / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # deleted, and not yet committed
            shutil.copy2(source, place, follow_symlinks=False)
    return target


def run(tree: Path, tests: Sequence[str], seconds: float = LIMIT_SECONDS) -> Record:
    """Runs the tests in a copy. Raises ControlError where pytest could not run them, or ran code from elsewhere."""
    recorded = tree / "controls.json"
    recorded.unlink(missing_ok=True)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.security.controls.recorder", *tests)
    folders = os.pathsep.join(str(tree / folder) for folder in FOLDERS)
    environment = os.environ | {"PYTHONPATH": folders, RECORD: str(recorded)}
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise ControlError(f"the tests took longer than {seconds:.0f} s") from error
    if done.returncode not in (0, 1) or not recorded.exists():
        raise ControlError(f"pytest could not run the tests (exit code {done.returncode}):\n{_end(done.stdout)}")
    document = json.loads(recorded.read_text(encoding="utf-8"))
    elsewhere = [file for file in document["modules"].values() if not Path(file).is_relative_to(tree)]
    if elsewhere:
        raise ControlError(f"code was imported from outside of the copy: {elsewhere[0]}")
    ends = {name: Ended(**end) for name, end in document["tests"].items()}
    return Record(ends, document["modules"], done.stdout)


def passed(tree: Path, tests: Sequence[str]) -> None:
    """Runs the tests on the copy as it is. Raises ControlError unless each of them passes."""
    record = run(tree, tests)
    missing = [test for test in tests if not record.of(test)]
    if missing:
        raise ControlError(f"there is no test {missing[0]}")
    bad = [f"{name} {end.outcome}: {end.why}" for name, end in record.tests.items() if end.outcome != "passed"]
    if bad:
        raise ControlError(f"without any change {bad[0]}\n{_end(record.output)}")


def without_protection(controls: Sequence[Control], tree: Path) -> Record:
    """Runs the tests of controls that all take the same out, once. The copy is as before afterwards.

    Raises ControlError where they can't be run, or where the changed code was not imported.
    """
    changes = controls[0].changes
    with without(changes, tree):
        record = run(tree, [test for control in controls for test in control.tests])
    if controls[0].needs == "nothing":
        _imported(changes, tree, record)
    return record


def caught(control: Control, record: Record) -> list[str]:
    """The control's tests that failed by an assertion, by node ID.

    Raises ControlError where one of them does not fail, or fails in another way.
    """
    return [name for test in control.tests for name in _failed(test, control.raised, record)]


def _failed(test: str, raised: str, record: Record) -> list[str]:
    ends = record.of(test)
    for name, end in ends.items():
        if end.outcome != "passed" and not end.caught(raised):
            raise ControlError(f"{name} ended by {end.why or end.outcome} ({end.when})\n{_end(record.output)}")
    failed = [name for name, end in ends.items() if end.outcome != "passed"]
    if not failed:
        raise ControlError(f"{test} still passes")
    return failed


@contextmanager
def without(changes: Sequence[Change], tree: Path) -> Iterator[None]:
    """The copy with these changes, for the length of the block."""
    files = {tree / path: (tree / path).read_text(encoding="utf-8") for path in {change.path for change in changes}}
    try:
        for change in changes:
            _write(tree / change.path, change.applied(tree))
        yield
    finally:
        for path, text in files.items():
            _write(path, text)


def _write(path: Path, text: str) -> None:
    """Python's compiled copy goes by time of change in seconds and size: it could be that of the other text."""
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".py":
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _imported(changes: Sequence[Change], tree: Path, record: Record) -> None:
    files = set(record.modules.values())
    for change in changes:
        if (
            change.path.endswith(".py")
            and not change.path.startswith("tests/")
            and str(tree / change.path) not in files
        ):
            raise ControlError(f"{change.path} was changed, and the tests did not import it")


def _end(text: str) -> str:
    return "\n".join(text.splitlines()[-25:])
