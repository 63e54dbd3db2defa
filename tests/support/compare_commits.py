"""Does the core of another commit decide the same? `make compare-commits OLD=COMMIT [NEW=COMMIT]`

The old commit grows random worlds over several passes, so that its own decisions shape them; then both commits get the
same worlds, each in its own process with its own tree, and all actions, node states, statuses, events, reports and
answers of `why` are compared. Each commit reads the worlds by its own tests/support/core_pass.py, so both must have it.
Without NEW the checkout is compared as it is. Exit 1 on a difference.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import precision_operator
from tests.support.core_pass import Core
from tests.support.random_worlds import grow

REPOSITORY = Path(__file__).parents[2]
SHOWN, WIDTH = 20, 160
"""Differences that are printed, and characters of each value."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where both commits decide the same."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="compare-commits-") as name:
        folder = Path(name)
        trees = {side: _tree(getattr(options, side), folder / side) for side in ("old", "new")}
        worlds = folder / "worlds"
        _finish(_start(trees["old"], "grow", options.seed, options.worlds, options.passes, worlds))
        _finish(*(_start(tree, "play", worlds, folder / f"{side}.out") for side, tree in trees.items()))
        with (folder / "old.out").open() as old, (folder / "new.out").open() as new:
            number = _print(differences(old, new))
    print(f"{number} differences in {options.worlds} worlds of {options.passes} passes, seed {options.seed}")
    return 1 if number else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.support.compare_commits", description=__doc__)
    parser.add_argument("--old", required=True, help="commit or folder that the worlds are grown with")
    parser.add_argument("--new", default=str(REPOSITORY), help="commit or folder; default: this checkout")
    for name, default in (("worlds", 300), ("passes", 14), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(arguments)


def _tree(version: str, folder: Path) -> Path:
    """The files of a commit, unpacked into `folder`; a folder is used as it is. SystemExit where there is neither."""
    if (Path(version) / "pyproject.toml").is_file():
        return Path(version).resolve()
    archive = folder.with_suffix(".tar")
    command = ["git", "-C", str(REPOSITORY), "archive", "--output", str(archive), version]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"there is no commit {version}")
    shutil.unpack_archive(archive, folder, filter="data")
    return folder


def _start(tree: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """This module's `grow` or `play`, as it stands in `tree`, begun with that tree's code."""
    places = [str(tree), *(str(tree / package) for package in ("crds", "operator", "agent", "lab"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.support.compare_commits", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, cwd=tree)


def _finish(*processes: subprocess.Popen[bytes]) -> None:
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("a commit could not be run over the worlds")


def play(worlds: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What the core decides in each pass of each world; an error is a result too, to be compared like any other."""
    for world in map(json.loads, worlds):
        core = Core(world["objects"])
        for number, step in enumerate(world["steps"]):
            row = {"world": world["world"], "pass": number}
            try:
                yield row | core.step(step)
            except Exception as error:
                yield row | {"error": f"{type(error).__name__}: {error}"}


def differences(old: Iterable[str], new: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """All differences between JSON lines: world and pass, path to the value, and the value before and after."""
    for before, after in itertools.zip_longest(old, new):
        if before is None or after is None:
            yield "end", "", "one commit gives more than the other"
            return
        if before != after:
            old_row, new_row = json.loads(before), json.loads(after)
            place = f"world {old_row['world']} pass {old_row['pass']}"
            yield from ((place, path, values) for path, values in _between(old_row, new_row, ""))


def _between(old: Any, new: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _between(old.get(key, "(absent)"), new.get(key, "(absent)"), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for index, pair in enumerate(itertools.zip_longest(old, new, fillvalue="(absent)")):
            yield from _between(*pair, f"{path}[{index}]")
    elif type(old) is not type(new) or old != new:
        yield path, f"{json.dumps(old)[:WIDTH]} -> {json.dumps(new)[:WIDTH]}"


def _print(rows: Iterable[tuple[str, str, str]]) -> int:
    """Print the first differences, and how many there are at each path; give their number."""
    paths: Counter[str] = Counter()
    for place, path, values in rows:
        if paths.total() < SHOWN:
            print(f"{place}: {path}: {values}")
        paths[re.sub(r"\[\d+\]", "", path)] += 1
    for path, number in paths.most_common(SHOWN):
        print(f"  {number} x {path}")
    return paths.total()


def _write(path: str, rows: Iterable[dict[str, Any]]) -> None:
    assert str(precision_operator.__file__).startswith(f"{Path.cwd()}/"), "the code is not that of this tree"
    with Path(path).open("w") as file:
        file.writelines(json.dumps(row, sort_keys=True) + "\n" for row in rows)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["grow", seed, count, passes, path]:
            _write(path, (grow(f"{seed}/{number}", int(passes)) for number in range(int(count))))
        case ["play", worlds, path]:
            with Path(worlds).open() as lines:
                _write(path, play(lines))
        case _:
            sys.exit(main())
