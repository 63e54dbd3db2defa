"""No file names a document that is not in the repository, and what the method's page names in code is there."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
METHOD = ROOT / "docs" / "development" / "method.md"
AGENT = ROOT / "agent" / "precision_agent"
"""Where the modules lie that the method's page names without their package."""
PACKAGES = {"precision_api": ROOT / "crds"}
UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "%": 1e-2}
THRESHOLD = re.compile(r"`((?:[a-z_]+\.)+[A-Z_\d]+)`\s+\(([\d.]+)(?: (s|ms|%))?(?: of [^)]*)?\)")
"""A constant of the page with its one value and unit behind it, in parentheses."""
OUTSIDE = re.compile(
    r"\b(?:METHOD|OBSERVABILITY|OPERATOR|HOUSE|MODELS|CLUSTER|STYLE|DRA)(?:\.md\b|'s\b| [0-9])|\[try\]"
)
"""A document that only its writers had, by name and section; and its mark of an assumption."""
HEADING = re.compile(r'docs/development/method\.md,\s+"([^"]+)"')


@cache
def tracked() -> tuple[str, ...]:
    """The paths of all files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(path for path in listed.stdout.split("\0") if path)


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of all files that are text; a file that was deleted and not yet committed is left out."""
    for path in tracked():
        file = ROOT / path
        if file.is_symlink() or not file.is_file():
            continue
        try:
            yield path, file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture


def outside_references(text: str) -> list[str]:
    """What names a document outside of the repository."""
    return [match.group() for match in OUTSIDE.finditer(text)]


def unknown_headings(text: str) -> list[str]:
    """Headings of the method's page that `text` refers to and that are not there."""
    headings = re.findall(r"^## (.+)$", METHOD.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for name in HEADING.findall(text) if name not in headings]


def test_no_file_names_a_missing_document_or_heading_and_such_are_seen() -> None:
    found = {path: outside_references(text) for path, text in texts()}
    assert len(found) > 100
    assert {path: names for path, names in found.items() if names} == {}
    assert outside_references("a threshold [" + "try]: a tenth")
    found = {path: unknown_headings(text) for path, text in texts()}
    assert {path: names for path, names in found.items() if names} == {}
    assert unknown_headings(f'{METHOD.relative_to(ROOT)}, "No such heading"') == ["No such heading"]
    assert unknown_headings(f'{METHOD.relative_to(ROOT)}, "Intervals and noise"') == []
    assert len(THRESHOLD.findall(METHOD_TEXT)) > 20


@pytest.mark.parametrize("name", ["METHOD", "OBSERVABILITY", "OPERATOR", "HOUSE", "MODELS", "CLUSTER", "STYLE", "DRA"])
@pytest.mark.parametrize("rest", [" 4.10", ".md", "'s 180 s"])
def test_such_a_name_is_seen(name: str, rest: str) -> None:
    assert outside_references(f"by ({name}{rest})")


def module_of(dotted: str) -> Path:
    """Where a package of this dotted name would lie; with `.py`, a module."""
    parts = dotted.split(".")
    return PACKAGES.get(parts[0], AGENT).joinpath(*parts)


def names_in(module: Path) -> dict[str, ast.expr | None]:
    """What a module gives at its top: names with the expression assigned to them, None for functions and classes."""
    found: dict[str, ast.expr | None] = {}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = None
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                found[name] = value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                found |= {one.id: value for one, value in zip(names, values, strict=True) if isinstance(one, ast.Name)}
    return found


def in_code(dotted: str) -> bool:
    """Whether a dotted name is a package, a module, or what a module gives at its top."""
    place = module_of(dotted)
    module = place.parent.with_suffix(".py")
    if place.is_dir() or place.with_suffix(".py").is_file():
        return True
    return module.is_file() and place.name in names_in(module)


METHOD_TEXT = METHOD.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", METHOD_TEXT))))
def test_what_the_method_names_in_code_is_there(name: str) -> None:
    assert in_code(name)


@pytest.mark.parametrize(
    "name", ["power.none", "power.energy.NONE", "precision_api.exchange.stats.NONE", "none.at_all"]
)
def test_a_name_that_is_not_in_code_is_seen(name: str) -> None:
    assert not in_code(name)


@pytest.mark.parametrize(("name", "number", "unit"), THRESHOLD.findall(METHOD_TEXT))
def test_a_threshold_of_the_method_has_the_value_that_the_page_gives(name: str, number: str, unit: str) -> None:
    place = module_of(name)
    value = names_in(place.parent.with_suffix(".py"))[place.name]
    assert value is not None
    shown = float(number) * (1.0 if name.endswith("_PERCENT") else UNITS[unit])
    assert shown == pytest.approx(float(ast.literal_eval(value)))
