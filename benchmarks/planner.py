"""How long a plan takes, how it grows with pools and jobs, and what it is better by than the greedy answer.

    python -m benchmarks.planner [--seconds 10] [--loop]

Fleets and jobs are drawn from one seed. The greedy answer (best rate first) is made of the same choices.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from typing import Any

import numpy as np

from benchmarks.reconcile import beating
from precision_api.capacity_plan import PlanSpec
from precision_operator.planner.evidence import pools
from precision_operator.planner.fleet import Fleet
from precision_operator.planner.greedy import greedy
from precision_operator.planner.options import offers
from precision_operator.planner.solution import value
from precision_operator.planner.solve import solve
from precision_operator.planner.straggler import quiet, straggler
from precision_operator.planner.terms import terms
from precision_operator.shell.cache import Cache
from precision_operator.shell.capacity_plans import Planning
from tests.planner.test_planning_loop import Written, plan_object
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.report_objects import profile_object, report_object

RECIPES = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
SIZES = ((5, 20), (10, 50), (20, 50), (20, 100), (20, 200))
OBJECTIVES = (("cost",), ("cost", "time"), ("time",))


def problem(many_pools: int, many_jobs: int, objective: tuple[str, ...], seconds: int) -> tuple[Fleet, PlanSpec]:
    """A fleet of pools of 64 to 256 nodes, and jobs of which half have a deadline."""
    drawn = random.Random(1)
    made = []
    for number in range(many_pools):
        base = drawn.uniform(5e4, 2e5)
        rates = [
            rate(recipe, base * (1 + 0.3 * i) * drawn.uniform(0.9, 1.1), watts=5000 * drawn.uniform(0.9, 1.1))
            for i, recipe in enumerate(RECIPES)
        ]
        made.append(pool(f"pool-{number:02d}", node(f"p{number}", rates, count=drawn.choice([64, 128, 256]))))
    prices = [{"name": each.name, "dollarsPerGPUHour": f"{drawn.uniform(2, 9):.2f}"} for each in made]
    jobs = []
    for number in range(many_jobs):
        more: dict[str, Any] = {"deadlineDays": str(drawn.randint(30, 90))} if drawn.random() < 0.5 else {}
        jobs.append(job(f"j{number:03d}", tokens=f"{drawn.randint(200, 3000)}B", priority=drawn.randint(0, 3), **more))
    electric = {"pue": "1.2", "overhead": {"gpu": "1.3"}, "budget": "30MW"}
    limit = {"timeLimitSeconds": seconds}
    return fleet(*made), spec(*jobs, objective=[*objective], pools=prices, power=electric, solver=limit)


def measured(many_pools: int, many_jobs: int, objective: tuple[str, ...], seconds: int) -> str:
    """One line of the table."""
    known, made = problem(many_pools, many_jobs, objective, seconds)
    began, began_at = time.perf_counter(), time.monotonic()
    read = terms(made, NOW)
    found = offers(pools(known, read, NOW), read)
    offered = time.perf_counter()
    solution = solve(found, read, began_at)
    solved = time.perf_counter()
    assert solution is not None
    simple = greedy(found, read.limits, solution.objectives[0])
    name = solution.objectives[0]
    worse = (
        "finds no place for all" if simple is None else f"{(value(name, simple) / solution.values[0] - 1) * 100:+.1f} %"
    )
    choices = sum(len(offer.options) for offer in found)
    return (
        f"{many_pools:>5} {many_jobs:>5} {'+'.join(objective):<10} {choices:>8} {offered - began:>8.2f} "
        f"{solved - offered:>8.2f} {solved - began:>8.2f} {solution.gap * 100:>7.3f} %  {worse}"
    )


def distribution(nodes: int) -> str:
    """Seconds to remove the noise from a pool and to work out the straggler of every job size."""
    drawn = np.random.default_rng(1)
    rates = np.where(drawn.random(nodes) < 0.01, 0.8, 1.0) * drawn.normal(1, 0.01, nodes)
    began = time.perf_counter()
    known = quiet(rates, 0.01)
    for chosen in range(1, nodes + 1, max(1, nodes // 200)):
        straggler(known, 1.0, chosen)
    return f"{nodes:>6} nodes, 200 sizes: {time.perf_counter() - began:.3f} s"


async def held_up(nodes: int) -> str:
    """Longest time for which the operator's loop is held while it answers a plan, its process started before or not."""
    cache, written = Cache(), Written()
    cache.put("profiles", profile_object())
    for name in (f"n{number}" for number in range(nodes)):
        cache.put("nodes", {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "5", "labels": {}}})
        cache.put("reports", report_object(name))
    cluster: Any = written
    planning = Planning(cluster, cache, ("ml",))
    async with beating() as pauses:
        began = time.perf_counter()
        await planning.see({"type": "ADDED", "object": plan_object()})
        await planning.look()
        seconds = time.perf_counter() - began
    planning.end()
    longest, own = max(wall for wall, _ in pauses), max(work for _, work in pauses)
    return f"{nodes:>6} nodes: {seconds:.1f} s; loop held {longest:.3f} s at the longest ({own:.3f} s own work)"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="Time limit of a solve: %(default)s.")
    parser.add_argument("--loop", action="store_true", help="Only how long the operator's loop is held.")
    asked = parser.parse_args()
    if asked.loop:
        for nodes in (1_000, 10_000):
            print(asyncio.run(held_up(nodes)), flush=True)
        return
    seconds: int = asked.seconds
    print("pools  jobs objective   choices  offers s  solve s   all s     gap    greedy is worse by")
    for objective in OBJECTIVES:
        for many_pools, many_jobs in SIZES:
            print(measured(many_pools, many_jobs, objective, seconds), flush=True)
    print("\nStragglers:")
    for nodes in (500, 5_000, 50_000):
        print(distribution(nodes))


if __name__ == "__main__":
    main()
