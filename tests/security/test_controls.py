"""The table of controls stays true: it fits the code, the tests and the claims of docs/security.md; and it can fail."""

import ast
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.security.controls import recorder
from tests.security.controls.control import ROOT, RULE, Change, Control
from tests.security.controls.table import CONTROLS
from tests.security.controls.trial import ControlError, caught, copied, passed, without_protection
from tests.support.golden import beside

TABLES = beside(__file__)

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.without)
def test_what_a_control_takes_out_is_there_once_and_its_tests_are_there(control: Control) -> None:
    for change in control.changes:
        assert change.applied(ROOT) != (ROOT / change.path).read_text(encoding="utf-8")
    for test in control.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in functions(ROOT / file)


@cache
def functions(file: Path) -> frozenset[str]:
    parts = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return frozenset(part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_claim_of_the_page_has_a_control_and_every_control_a_claim() -> None:
    sections = [
        part for part in PAGE.split("\n## ") if part.startswith(("A tenant who writes", "A hostile agent image"))
    ]
    tables = [[line for line in section.splitlines() if line.startswith("|")][2:] for section in sections]
    claims = {row.split("|")[1].strip() for table in tables for row in table}
    controlled = {control.claim for control in CONTROLS} - {RULE}
    assert len(claims) >= 14
    assert claims - controlled == set()
    assert [claim for claim in controlled if claim not in " ".join(PAGE.split())] == []


def test_every_test_that_the_page_names_fails_in_some_control() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert named - {test.partition("::")[0] for control in CONTROLS for test in control.tests} == set()


TOY = """
import pytest
from limits import bound

def test_bound():
    assert bound(9) == 5

def test_nothing():
    assert bound(1) == 1

@pytest.fixture
def broken():
    assert bound(9) == 5

def test_setup(broken):
    pass
"""


@pytest.mark.parametrize("toy", TABLES["toys"].values(), ids=TABLES["toys"])
def test_a_control_is_shown_by_an_assertion_of_its_own_test_alone(
    toy: tuple[str, str, str, str], tmp_path: Path
) -> None:
    old, new, name, problem = toy
    a_tree(tmp_path, TOY)
    made = Control("c", "w", (Change("limits.py", old, new),), (f"test_toy.py::{name}",), needs="cluster")
    if problem:
        with pytest.raises(ControlError) as raised:
            tried(made, tmp_path)
        assert problem in str(raised.value)
    else:
        assert tried(made, tmp_path) == ["test_toy.py::test_bound"]
    if "NameError" in problem:
        assert tried(replace(made, raised="NameError"), tmp_path) == ["test_toy.py::test_bound"]
    assert (tmp_path / "limits.py").read_text() == "def bound(n):\n    return min(n, 5)\n"


def a_tree(root: Path, tests: str) -> None:
    """A tree with the recorder, a limit to take out, and these tests."""
    place = root / "tests" / "security" / "controls"
    place.mkdir(parents=True)
    shutil.copy(recorder.__file__, place)
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "limits.py").write_text("def bound(n):\n    return min(n, 5)\n")
    (root / "test_toy.py").write_text(tests)


def tried(made: Control, tree: Path) -> list[str]:
    return caught(made, without_protection([made], tree))


def test_a_test_that_fails_without_any_change_shows_nothing(tmp_path: Path) -> None:
    a_tree(tmp_path, "def test_bad():\n    assert False\n")
    with pytest.raises(ControlError, match=r"without any change test_toy\.py::test_bad failed"):
        passed(tmp_path, ["test_toy.py::test_bad"])


def test_a_copy_holds_the_files_that_git_knows(tmp_path: Path) -> None:
    tree = copied(ROOT, tmp_path / "tree")
    assert (tree / "Makefile").read_text(encoding="utf-8") == (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not (tree / ".git").exists()
    assert not (tree / ".venv").exists()
