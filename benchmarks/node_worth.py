"""What a node more is said to be worth, against every plan of small problems with and without it.

    python -m benchmarks.node_worth [--intervals 200] [--first 0] [--wide]

Problems are those of `tests.planner.exhaustive`; of each that has a plan the worth of one node in its last pool
is asked. Nothing here was measured: rates are made up.
"""

import argparse
import math

from precision_api.kinds.capacity_plan import MoreNodes, WhatIf
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from tests.planner.exhaustive import least, problem
from tests.support.fleets import NOW


def worth_verdict(seed: int, wide: bool = False) -> tuple[str, bool]:
    """What is wrong with what a node more is said to be worth (empty: nothing), and whether anything is said."""
    known, made = problem(seed, wide)
    name = known.pools[-1].name
    asked = WhatIf(name="more", add_nodes=MoreNodes(pool=name, nodes=1))
    base = plan(made, known, NOW)
    answers = what_ifs(made.model_copy(update={"what_ifs": (asked,)}), known, base, NOW)
    if not answers or answers[0].worth_least is None or answers[0].worth_most is None:
        return "", False
    before, after = least(known, made), least(known, made, name)
    if before is None:
        return "the plan breaks a limit: there is none", True
    exact, near = max(0.0, before - (math.inf if after is None else after)), before * 1e-5
    low, high = float(answers[0].worth_least), float(answers[0].worth_most)
    holds = low - near <= exact <= high + near
    return "" if holds else f"a node more in {name} is worth {exact}, not {low} to {high}", True


def main() -> None:
    """Prints each interval that does not hold, and how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--wide", action="store_true", help="With all that a plan may have beside.")
    asked = parser.parse_args()
    said, seed, wrong = 0, asked.first, 0
    while said < asked.intervals:
        text, has_worth = worth_verdict(seed, asked.wide)
        said, wrong, seed = said + has_worth, wrong + bool(text), seed + 1
        if text:
            print(f"problem {seed - 1}: {text}", flush=True)
    print(f"{said} intervals of {seed - asked.first} problems, {wrong} wrong")


if __name__ == "__main__":
    main()
