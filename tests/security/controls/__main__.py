"""`python -m tests.security.controls`: takes each protection out of a copy, and runs the tests that must fail then."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.security.controls.control import NEEDS, PAGE, ROOT, Control
from tests.security.controls.page import first_cell, row, with_outcomes
from tests.security.controls.table import CONTROLS
from tests.security.controls.trial import ControlError, copied, passed, tried


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where each control's tests fail without its protection, 1 where not, 2 where none is chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.controls", description=__doc__)
    parser.add_argument("-k", dest="word", default="", help="only controls whose name or claim holds this text")
    parser.add_argument("--needs", choices=NEEDS, action="append", help="only controls whose tests need this")
    parser.add_argument(
        "--write", action=argparse.BooleanOptionalAction, default=True, help=f"write the outcomes into {PAGE}"
    )
    options = parser.parse_args(arguments)
    chosen = [
        one
        for one in CONTROLS
        if options.word.lower() in f"{one.name} {one.claim}".lower() and one.needs in (options.needs or NEEDS)
    ]
    if not chosen:
        print(f"no control has {options.word!r} in its name or its claim", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="security-controls-") as folder:
        told = outcomes(chosen, copied(ROOT, Path(folder).resolve() / "tree"))
    if options.write:
        page = ROOT / PAGE
        page.write_text(with_outcomes(page.read_text(encoding="utf-8"), CONTROLS, told), encoding="utf-8")
    print(f"{len(told)} of {len(chosen)} controls: their tests fail without the protection")
    return 0 if len(told) == len(chosen) else 1


def outcomes(controls: Sequence[Control], tree: Path) -> dict[str, str]:
    """The rows of the page by first cell, of those controls whose tests fail; each is printed as it ends."""
    told: dict[str, str] = {}
    when = f"{datetime.now(UTC):%Y-%m-%d}, {commit()}"
    for needs in NEEDS:
        there = [control for control in controls if control.needs == needs]
        if not there:
            continue
        tests = list(dict.fromkeys(test for control in there for test in control.tests))
        try:
            passed(tree, tests)
        except ControlError as error:
            print(f"Tests that need {needs}: {error}", flush=True)
            continue
        print(f"Tests that need {needs}: all pass on the tree as it is", flush=True)
        for control in there:
            try:
                failed = tried(control, tree)
            except ControlError as error:
                print(f"  {control.name}: NOT SHOWN: {error}", flush=True)
                continue
            told[first_cell(control)] = row(control, len(failed), when)
            print(f"  {control.name}: {len(failed)} failed, as they must", flush=True)
    return told


def commit() -> str:
    """The commit of the working tree; with a + where files differ from it."""
    head = subprocess.run(
        ("git", "rev-parse", "--short=9", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    changed = subprocess.run(
        ("git", "diff", "--quiet", "HEAD", "--", ".", f":!{PAGE}"), cwd=ROOT, check=False
    ).returncode
    return f"`{head.stdout.strip()}`{'+' if changed else ''}"


if __name__ == "__main__":
    sys.exit(main())
