"""Does the planner core of two versions decide the same? `python -m tests.equivalence.worlds --old COMMIT --new COMMIT`

The old version grows random worlds over several passes, so that its own decisions shape them; then both versions get
the same worlds, and everything that they decide and write is compared. Exit 1 on a difference that no pattern of the
`--allow` file names, or where a reason or a kind of action occurs fewer than 20 times.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.equivalence import versions
from tests.equivalence.comparison import differences, patterns
from tests.equivalence.coverage import LEAST, NEVER, counts

DIFFERENCES_SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where both versions give the same and everything occurs often enough."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="worlds-") as name:
        old, new = played(options, Path(name))
        rare = _print_counts(old, options.least)
        differing = _print_differences(old, new, patterns(options.allow))
    print(f"{differing} differences in {options.worlds} worlds of {options.passes} passes, seed {options.seed}")
    if rare:
        print(f"fewer than {options.least} times: {', '.join(rare)}")
    return 1 if differing or rare else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.equivalence.worlds", description=__doc__)
    parser.add_argument("--old", required=True, help="commit or folder that the worlds are grown with")
    parser.add_argument("--new", default=str(versions.REPOSITORY), help="commit or folder; default: this checkout")
    parser.add_argument("--allow", type=Path, help="file with patterns of paths that may differ")
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=14)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--least", type=int, default=LEAST, help="how often each reason and action must occur")
    return parser.parse_args(arguments)


def played(options: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    """What the old and the new version gave for the same worlds: JSON lines, the first of them the table of reasons."""
    old, new = versions.tree(options.old, folder / "old"), versions.tree(options.new, folder / "new")
    worlds, outputs = folder / "worlds.jsonl", (folder / "old.jsonl", folder / "new.jsonl")
    size = (str(options.worlds), str(options.passes))
    versions.finish(versions.start(old, folder, "side", "grow", options.seed, *size, str(worlds)))
    both = zip((old, new), outputs, strict=True)
    versions.finish(*[versions.start(tree, folder, "side", "play", str(worlds), str(out)) for tree, out in both])
    return outputs


def _print_counts(output: Path, least: int) -> list[str]:
    """Print the table of what occurred; give the names of what occurred too seldom."""
    with output.open() as file:
        reasons = json.loads(next(file))["reasons"]
        found = counts(map(json.loads, file), reasons)
    kinds = {code: kind for code, kind, *_ in reasons}
    print("| what | of | times |\n|---|---|---:|")
    for name, number in sorted(found.items(), key=lambda item: (kinds.get(item[0], "action"), item[0])):
        print(f"| {name} | {kinds.get(name, 'action')} | {number} |")
    for name, why in NEVER.items():
        print(f"| {name} | {kinds.get(name, '')} | never: {why} |")
    return sorted(name for name, number in found.items() if number < least)


def _print_differences(old: Path, new: Path, allowed: Sequence[str]) -> int:
    """Print the first differences, and how many there are at each path; give the number of those not allowed."""
    paths: Counter[str] = Counter()
    with old.open() as before, new.open() as after:
        for difference in differences(before, after):
            if difference.is_allowed(allowed):
                continue
            if paths.total() < DIFFERENCES_SHOWN:
                print(difference)
            paths[re.sub(r"\[\d+\]", "", difference.path)] += 1
    for path, number in paths.most_common(DIFFERENCES_SHOWN):
        print(f"  {number} x {path}")
    return paths.total()


if __name__ == "__main__":
    sys.exit(main())
