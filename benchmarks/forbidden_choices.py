"""Whether forbidding a choice ever makes a plan better: a plan without it is one that the first search could find.

    python -m benchmarks.forbidden_choices [--problems 200] [--first 0] [--large --seconds 10]

Of every problem that has a plan within 2 % of its bound, the pool of its largest job is forbidden to that job. Small
problems are those of `tests.planner.exhaustive`, large ones of `benchmarks.large_plans`. Nothing here was measured.
"""

import argparse

from benchmarks.large_plans import large
from precision_api.kinds.capacity_plan import PlanSpec
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.inputs.fleet import Fleet
from tests.planner.exhaustive import problem
from tests.support.fleets import NOW

NEAR, CHEAPER = 0.02, 0.005
"""Gap of the plans that are asked, and share by which a plan with fewer choices may be better."""


def gain(known: Fleet, made: PlanSpec) -> float | None:
    """Share by which the plan is better without the pool of its largest job; None where nothing can be said."""
    first = plan(made, known, NOW).solution
    if first is None or first.gap >= NEAR or not first.values[0]:
        return None
    largest = max((slot.option for slot in first.slots), key=lambda option: option.gpu_hours)
    others = tuple(pool.name for pool in known.pools if pool.name != largest.pool.name)
    if not others or largest.job.running:
        return None
    jobs = tuple(j.model_copy(update={"pools": others}) if j.name == largest.job.name else j for j in made.jobs)
    second = plan(made.model_copy(update={"jobs": jobs}), known, NOW).solution
    return None if second is None else 1 - second.values[0] / first.values[0]


def main() -> None:
    """Prints each problem whose plan is better with fewer choices, and how many were asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200, help="So many that have a plan with and without.")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seconds", type=int, default=10, help="Time limit of each large plan.")
    asked = parser.parse_args()
    gains, number = list[float](), asked.first
    while len(gains) < asked.problems:
        drawn = large(number, asked.seconds) if asked.large else problem(number, wide=True)
        share, number = gain(*drawn), number + 1
        if share is not None:
            gains.append(share)
        if share is not None and share > CHEAPER:
            print(f"problem {number - 1}: {share:.2%} better with fewer choices", flush=True)
    better = sum(share > CHEAPER for share in gains)
    print(f"{len(gains)} plans of {number - asked.first} problems: {better} better with fewer choices")
    print(f"by at most {max(gains):.3%}")


if __name__ == "__main__":
    main()
