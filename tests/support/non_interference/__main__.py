"""Whether what a tenant makes changes anything for others, in many worlds; a tenth as many through the whole operator.

    python -m tests.support.non_interference [--worlds 50000] [--first 0]

Prints what was drawn, and the worlds in which something of another namespace differs; exit code 1 where there is one.
"""

import argparse
import logging
import sys
from itertools import islice

from tests.support.non_interference.in_memory import check_in_memory
from tests.support.non_interference.worlds import Drawn, check

TENTH = 10


def main() -> int:
    """Exit code 1 where something of another namespace differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=50_000, help="%(default)s")
    parser.add_argument("--first", type=int, default=0, help="number of the first world: %(default)s")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first, last = options.first, options.first + options.worlds
    differing = _print("the core", check(range(first, last)))
    differing += _print("the operator in memory", check_in_memory(range(first // TENTH, last // TENTH)))
    return int(differing > 0)


def _print(where: str, drawn: Drawn) -> int:
    print(f"{where}: {drawn.worlds} worlds, {len(drawn.reasons)} reasons, {len(drawn.differing)} differ", flush=True)
    for kind, count in sorted(drawn.kinds.items()):
        print(f"{count / drawn.worlds:>7.1%}  {kind}")
    for number, difference in islice(drawn.differing.items(), 20):
        print(f"world {number}: {difference[:600]}")
    return len(drawn.differing)


if __name__ == "__main__":
    sys.exit(main())
