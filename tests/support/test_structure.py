"""The house stays in order: no modules that import each other in a circle, and no folder that is too full."""

from collections import Counter

from tests.support.figures import PACKAGES, ROOT, all_imports, cycles, imports_of


def test_no_modules_import_each_other() -> None:
    """Of all packages, within rooms too, and in functions: what needs that has one module too few."""
    imports = all_imports(imports_of(ROOT))
    assert len(imports) > 400
    assert [sorted(cycle) for cycle in cycles(imports)] == []


def test_no_folder_has_more_than_twenty_modules() -> None:
    files = [path for name, folder in PACKAGES.items() for path in (ROOT / folder / name).rglob("*.py")]
    counts = Counter(path.parent for path in files if path.name != "__init__.py")
    assert len(counts) > 30
    assert {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > 20} == {}
