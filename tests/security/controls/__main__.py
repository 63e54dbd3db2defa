"""`python -m tests.security.controls`: takes each protection out of a copy, and runs the tests that must fail then."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tests.security.controls.control import NEEDS, ROOT, Control
from tests.security.controls.table import CONTROLS
from tests.security.controls.trial import ControlError, caught, copied, passed, without_protection


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where each control's tests fail without its protection, 1 where not, 2 where none is chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.controls", description=__doc__)
    parser.add_argument(
        "-k",
        dest="word",
        action="append",
        help="only controls with this in their name or their claim (of other rules: no claim)",
    )
    parser.add_argument("--needs", choices=NEEDS, action="append", help="only controls whose tests need this")
    options = parser.parse_args(arguments)
    chosen = [
        control
        for control in CONTROLS
        if control.needs in (options.needs or NEEDS)
        and any(word.lower() in f"{control.without} {control.claim}".lower() for word in options.word or ("",))
    ]
    if not chosen:
        print(f"no control has {' or '.join(options.word or ())} in its name or its claim", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="security-controls-") as folder:
        shown = len(list(protecting(chosen, copied(ROOT, Path(folder).resolve() / "tree"))))
    print(f"{shown} of {len(chosen)} controls: their tests fail without the protection")
    return 0 if shown == len(chosen) else 1


def protecting(controls: Sequence[Control], tree: Path) -> Iterator[Control]:
    """Those of the controls whose tests fail without the protection; the outcome of each is printed."""
    for needs in NEEDS:
        there = [control for control in controls if control.needs == needs]
        if not there or not _pass(there, tree, f"Tests that need {needs}"):
            continue
        for _, together in groupby(there, lambda control: control.changes):
            yield from _shown(tuple(together), tree)


def _shown(controls: Sequence[Control], tree: Path) -> Iterator[Control]:
    """Those of controls with the same change whose tests fail without the protection."""
    try:
        record = without_protection(controls, tree)
    except ControlError as error:
        print(f"  {', '.join(control.without for control in controls)}: NOT SHOWN: {error}", flush=True)
        return
    for control in controls:
        try:
            failed = len(caught(control, record))
        except ControlError as error:
            print(f"  {control.without}: NOT SHOWN: {error}", flush=True)
            continue
        print(f"  without {control.without}: {failed} tests fail, as they must", flush=True)
        yield control


def _pass(controls: Sequence[Control], tree: Path, what: str) -> bool:
    try:
        passed(tree, list(dict.fromkeys(test for control in controls for test in control.tests)))
    except ControlError as error:
        print(f"{what}: {error}", flush=True)
        return False
    print(f"{what}: all pass on the tree as it is", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
