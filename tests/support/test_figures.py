"""What the figures of the structure count."""

from pathlib import Path

import grimp
import pytest

from tests.support.figures import Folder, all_imports, cycles, module_of, widest


def test_cycles_and_folders_are_counted() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == [frozenset("abc")]
    files = [Path("a/__init__.py"), Path("a/b.py"), Path("a/c/__init__.py"), Path("a/c/d.py"), Path("a/c/e.py")]
    assert widest(files) == Folder("c", 2)


def test_imports_within_functions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("def f():\n    from made_up_package.other import g\n    return g\n")
    (package / "other.py").write_text("from made_up_package.one import f\n\n\ndef g():\n    return f\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = frozenset({"made_up_package.one", "made_up_package.other"})
    assert cycles(all_imports(grimp.build_graph("made_up_package", cache_dir=None))) == [names]


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
