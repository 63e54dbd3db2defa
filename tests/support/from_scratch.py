"""Is a plan that takes over what has not changed the plan that is made from scratch?

    python -m tests.support.from_scratch [--worlds 1000] [--first 0] [--passes 14]

Random worlds grow as the core's own decisions shape them; a third of them have 200 nodes in 80 pools. In a third of the
steps only time passes, also back. Actions, node states, statuses, events, reports and answers of `why` are compared
after each pass. Exit 1 on a difference.
"""

import argparse
import json
import sys
from collections.abc import Iterator

from tests.support.compare_commits import differences
from tests.support.core_pass import Core
from tests.support.random_worlds import grow


def unlike(number: int, passes: int) -> Iterator[tuple[str, str, str]]:
    """Where the two differ in one world: its place, the path to the value, and the values."""
    world = grow(f"again/{number}", passes, pools=80 if number % 3 == 2 else 0, quiet=0.8)
    taking_over, from_scratch = Core(world["objects"]), Core(world["objects"], takes_over=False)
    for at, step in enumerate(world["steps"]):
        row = {"world": world["world"], "pass": at}
        new, old = (json.dumps(row | core.step(step), default=str) for core in (taking_over, from_scratch))
        yield from differences([old], [new])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("worlds", 1000), ("first", 0), ("passes", 14)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    differ = 0
    for number in range(options.first, options.first + options.worlds):
        rows = [*unlike(number, options.passes)]
        differ += bool(rows)
        for row in rows[:5]:
            print(*row, sep=": ", flush=True)
    print(f"{differ} of {options.worlds} worlds of {options.passes} passes differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
