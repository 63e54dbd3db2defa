"""Plans beside each other: how long each takes against its limit, and whether the same inputs give the same plan.

    python -m benchmarks.plans_at_once [--seconds 3] [--at-once 4] [--runs 4] [--first 0] [--same [--small]]

Each plan is one of `benchmarks.large_plans` with three questions, in a process of its own. With `--same` all runs are
of one problem, with `--small` problems are those of `tests.planner.exhaustive`. Nothing here was measured.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from benchmarks.large_plans import large
from precision_api.kinds.capacity_plan import MoreNodes, WhatIf
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.solving.former import JobPlace, place_of
from tests.planner.exhaustive import problem
from tests.support.fleets import NOW

SLOWER, BESIDE = 1.2, 1.0
"""A plan with its questions may take so many times its limits, and so many seconds more."""
QUESTIONS = (
    WhatIf(name="bf16", deny_recipes=("fp8_current",)),
    WhatIf(name="more", add_nodes=MoreNodes(pool="pool-0", nodes=8)),
    WhatIf(name="dear", add_nodes=MoreNodes(pool="pool-1", nodes=8)),
)


class Run(NamedTuple):
    """One plan: seconds with questions and without, its gap, whether it was near enough or time ended it, and jobs."""

    seconds: float
    alone: float
    gap: float
    is_near: bool
    timed_out: bool
    places: tuple[JobPlace, ...]


def run(number: int, seconds: int, small: bool) -> Run | None:
    """One problem; None where no plan was found."""
    known, made = problem(number) if small else large(number, seconds)
    made = made.model_copy(update={"what_ifs": () if small else QUESTIONS})
    began = time.monotonic()
    answer = plan(made, known, NOW)
    alone, solution = time.monotonic() - began, answer.solution
    what_ifs(made, known, answer, NOW)
    if solution is None or answer.terms is None:
        return None
    is_near = solution.gap <= answer.terms.gap + 1e-6
    places = tuple(place_of(slot.option) for slot in solution.slots)
    return Run(time.monotonic() - began, alone, solution.gap, is_near, solution.timed_out, places)


def main() -> None:
    """Prints a line for each run, then how many broke what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3, help="Time limit of each plan and question.")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--same", action="store_true", help="All runs are of the first problem.")
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    numbers = [asked.first + (0 if asked.same else place) for place in range(asked.runs)]
    with ProcessPoolExecutor(asked.at_once) as processes:
        waiting = [processes.submit(run, number, asked.seconds, asked.small) for number in numbers]
        made = [future.result() for future in waiting]
    runs = [each for each in made if each is not None]
    for number, each in zip(numbers, made, strict=True):
        said = f"{each.seconds:.1f} s, {each.alone:.1f} alone, gap {each.gap:.2%}" if each else "no plan"
        print(f"{number}: {said}")
    most = asked.seconds * (1 + len(QUESTIONS)) * SLOWER + BESIDE
    slow = sum(each.seconds > most for each in runs)
    short = sum(not each.is_near and each.alone < 0.9 * asked.seconds for each in runs)
    sure = {each.places for each in runs if not each.timed_out}
    print(f"{len(made)} runs: {slow} above {most:.1f} s, {short} ended early with the gap not reached")
    print(f"{sum(not each.timed_out for each in runs)} that no time limit ended: {len(sure)} different plans")


if __name__ == "__main__":
    main()
