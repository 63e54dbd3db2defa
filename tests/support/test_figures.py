"""What the figures of the structure count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import figures
from tests.support.figures import Folder, branches, cycles, doubled, module_of, widest

LONG = "def f(x):\n    '''Words.'''\n" + "    x += 1\n" * 7 + "    return 1 if x and not x else [y for y in x if y]\n"
DOCUMENTED = '''"""A module
of two lines."""

# A comment.
class Row:
    """One line."""

    text = """no docstring

    but code"""
    """What the text is."""
'''


def test_modules_that_import_each_other_are_a_cycle() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == [frozenset("abc")]


def test_imports_within_functions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("def f():\n    from made_up_package.other import g\n    return g\n")
    (package / "other.py").write_text("from made_up_package.one import f\n\n\ndef g():\n    return f\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = frozenset({"made_up_package.one", "made_up_package.other"})
    assert figures.figures_of_installed("made_up_package").cycles == (names,)


def test_a_class_and_an_alias_of_one_name_are_a_name_defined_twice() -> None:
    assert doubled([module_of("class Row: ...\nclass Own: ...\n"), module_of("Row = dict[str, int]\n")]) == ("Row",)


def test_branches_are_counted_in_functions_of_eight_lines_or_more() -> None:
    assert branches([module_of(LONG), module_of("def g(x):\n    return 1 if x else 2\n")]) == 3 / 8


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    module = module_of(DOCUMENTED)
    assert (module.lines, module.code, module.statements) == (11, 5, 5)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("def f(found, told=1):\n    found = told\n    return found\n", 2),
        ("rows = [one for one in found]\n", 1),
        ("class Row:\n    own: int\n", 1),
        ("def known():\n    return found.given\n", 0),
    ],
    ids=["parameters", "a loop", "a field", "functions and what is read"],
)
def test_each_scope_counts_that_binds_one_of_the_seven_words(text: str, number: int) -> None:
    assert module_of(text).words == number


def test_a_folder_has_its_modules_alone() -> None:
    files = [Path("a/__init__.py"), Path("a/b.py"), Path("a/c/__init__.py"), Path("a/c/d.py"), Path("a/c/e.py")]
    assert widest(files) == Folder("c", 2)
