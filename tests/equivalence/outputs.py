"""Do two versions give the same bytes? `python -m tests.equivalence.outputs --old COMMIT --new COMMIT [--allow FILE]`

Replayed results of every product, workload preset and fault, the exporter's text, and report pages, from inputs that
the old version made once. Exit 1 on a difference that no pattern of the `--allow` file names (as a shell's).
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.equivalence import versions
from tests.equivalence.comparison import patterns

EXCERPT_LINES = 8
EXCERPT_WIDTH = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where all outputs are the same, but for those that may differ."""
    options = _options(arguments)
    allowed = patterns(options.allow)
    with tempfile.TemporaryDirectory(prefix="outputs-") as name:
        old, new = made(options.old, options.new, Path(name))
        return compared(old, new, allowed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.equivalence.outputs", description=__doc__)
    parser.add_argument("--old", required=True, help="commit or folder that the inputs are made with")
    parser.add_argument("--new", default=str(versions.REPOSITORY), help="commit or folder; default: this checkout")
    parser.add_argument("--allow", type=Path, help="file with patterns of outputs that may differ")
    return parser.parse_args(arguments)


def made(old: str, new: str, folder: Path) -> tuple[Path, Path]:
    """Folders with the outputs of both versions."""
    trees = versions.tree(old, folder / "old"), versions.tree(new, folder / "new")
    inputs, places = folder / "inputs.json", (folder / "old-outputs", folder / "new-outputs")
    versions.finish(versions.start(trees[0], folder, "outputs_side", "inputs", str(inputs)))
    both = zip(trees, places, strict=True)
    versions.finish(*[versions.start(t, folder, "outputs_side", "make", str(inputs), str(p)) for t, p in both])
    return places


def compared(old: Path, new: Path, allowed: Sequence[str]) -> int:
    """Print the table and an excerpt of each difference; 1 where one is not allowed."""
    names = sorted({str(path.relative_to(side)) for side in (old, new) for path in side.rglob("*") if path.is_file()})
    verdicts = {name: _verdict(old / name, new / name, name, allowed) for name in names}
    print("| output | bytes | |\n|---|---:|---|")
    for name, verdict in verdicts.items():
        size = (old / name).stat().st_size if (old / name).exists() else 0
        print(f"| {name} | {size} | {verdict} |")
    for name, verdict in verdicts.items():
        if verdict != "same":
            print("\n".join(_excerpt(old / name, new / name)))
    differing = [name for name, verdict in verdicts.items() if verdict != "same"]
    print(f"{len(differing)} of {len(names)} outputs differ")
    return int("differs" in verdicts.values() or not names)


def _verdict(old: Path, new: Path, name: str, allowed: Sequence[str]) -> str:
    if old.exists() and new.exists() and old.read_bytes() == new.read_bytes():
        return "same"
    return "differs, as allowed" if any(fnmatchcase(name, pattern) for pattern in allowed) else "differs"


def _excerpt(old: Path, new: Path) -> list[str]:
    """The first lines of a unified diff, each cut short."""
    before, after = (path.read_text().splitlines() if path.exists() else [] for path in (old, new))
    lines = difflib.unified_diff(before, after, f"old/{old.name}", f"new/{new.name}", n=0, lineterm="")
    return [line[:EXCERPT_WIDTH] for line, _ in zip(lines, range(EXCERPT_LINES), strict=False)]


if __name__ == "__main__":
    sys.exit(main())
