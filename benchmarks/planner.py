"""How long a plan takes, and how it grows with pools and jobs.

    python -m benchmarks.planner [--seconds 60] [--jobs 200] [--loop]

Fleets and jobs are drawn from one seed. Where seconds are far above the processor's seconds, others used the machine at
the time.
"""

import argparse
import asyncio
import random
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from precision_api.kinds.capacity_plan import PlanSpec
from precision_operator.planner.answer.planning import answer, with_odds
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import clock_of
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.rates.straggler import quiet, stragglers
from precision_operator.planner.solving.options import sizes
from precision_operator.shell.observing.cache import Cache
from precision_operator.shell.plans.capacity_plans import Planning
from tests.planner.test_planning_loop import Written, plan_object
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec
from tests.support.report_objects import profile_object, report_object

RECIPES = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
SIZES = ((5, 20), (10, 50), (20, 200))
OBJECTIVES = (("cost",), ("time",))


def problem(many_pools: int, many_jobs: int, objective: tuple[str, ...], seconds: int) -> tuple[Fleet, PlanSpec]:
    """A fleet of pools of 500 nodes, and jobs of which half have a deadline and half wait for another one."""
    drawn = random.Random(1)
    made = []
    for number in range(many_pools):
        base = drawn.uniform(5e4, 2e5)
        rates = [
            rate(recipe, base * (1 + 0.3 * i) * drawn.uniform(0.9, 1.1), watts=5000 * drawn.uniform(0.9, 1.1))
            for i, recipe in enumerate(RECIPES)
        ]
        made.append(pool(f"pool-{number:02d}", node(f"p{number}", rates, count=500)))
    prices = [{"name": each.name, "dollarsPerGPUHour": f"{drawn.uniform(2, 9):.2f}"} for each in made]
    jobs = []
    for number in range(many_jobs):
        more: dict[str, Any] = {"deadlineDays": str(drawn.randint(60, 160))} if drawn.random() < 0.5 else {}
        if number >= many_jobs // 2:
            more["after"] = [f"j{drawn.randrange(many_jobs // 2):03d}"]
        jobs.append(job(f"j{number:03d}", tokens=f"{drawn.randint(2, 30)}T", **more))
    electric = {"pue": "1.2", "overhead": {"gpu": "1.3"}, "budget": f"{3.5 * many_pools}MW"}
    limit = {"timeLimitSeconds": seconds}
    return fleet(*made), spec(*jobs, objective=[*objective], pools=prices, power=electric, solver=limit)


def measured(many_pools: int, many_jobs: int, objective: tuple[str, ...], seconds: int) -> str:
    """One line of the table."""
    fleet, made = problem(many_pools, many_jobs, objective, seconds)
    began, worked = time.monotonic(), processor_seconds()
    read = terms(made, NOW)
    candidates = pools(fleet, read, NOW)
    clock = clock_of(read.seconds)
    answered = with_odds(answer(read, candidates, clock), clock)
    reading, solving, work = (
        clock.until - seconds - began,
        seconds - clock.until + clock.now(),
        processor_seconds() - worked,
    )
    head = f"{many_pools:>5} {many_jobs:>5} {'+'.join(objective):<10} {sizes(candidates, read):>9}"
    head += f" {reading:>7.1f} {solving:>8.1f} {work:>9.1f}"
    solution = answered.solution
    if solution is None:
        return f"{head}  {'; '.join(map(str, answered.problems)) or 'no plan'}"
    memory = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    ended = "  (ended by the time limit)" if solution.timed_out else ""
    return f"{head} {solution.gap * 100:>7.3f} % {memory:>9}{ended}"


def processor_seconds() -> float:
    """What this process has used of processors until now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def distribution(nodes: int) -> str:
    """Seconds to remove the noise from a pool and to work out the straggler of every job size."""
    drawn = np.random.default_rng(1)
    rates = np.where(drawn.random(nodes) < 0.01, 0.8, 1.0) * drawn.normal(1, 0.01, nodes)
    began = time.perf_counter()
    quiet_rates = quiet(rates, 0.01)
    stragglers(quiet_rates, 1.0, np.arange(1, nodes + 1, max(1, nodes // 200)))
    return f"{nodes:>6} nodes, 200 sizes: {time.perf_counter() - began:.3f} s"


@asynccontextmanager
async def beating() -> AsyncIterator[list[tuple[float, float]]]:
    """For how long the loop has been held, again and again: wall seconds, and seconds of this thread's work."""
    pauses: list[tuple[float, float]] = []

    async def beat() -> None:
        while True:
            began, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            pauses.append((time.perf_counter() - began, time.thread_time() - worked))

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    yield pauses
    await asyncio.sleep(0.002)
    task.cancel()


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
        planning.see({"type": "ADDED", "object": plan_object()})
        await planning.look()
        seconds = time.perf_counter() - began
    planning.end()
    longest, longest_work = max(wall for wall, _ in pauses), max(work for _, work in pauses)
    return (
        f"{nodes:>6} nodes: {seconds:.1f} s; loop held {longest:.3f} s at the longest ({longest_work:.3f} s own work)"
    )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="Time limit of a solve: %(default)s.")
    parser.add_argument("--jobs", type=int, help="Only the fleet with so many jobs.")
    parser.add_argument("--loop", action="store_true", help="Only how long the operator's loop is held.")
    asked = parser.parse_args()
    if asked.loop:
        for nodes in (1_000, 10_000):
            print(asyncio.run(held_up(nodes)), flush=True)
        return
    seconds: int = asked.seconds
    print("pools  jobs objective      sizes reading  solving processor       gap    memory")
    for objective in OBJECTIVES:
        for many_pools, many_jobs in SIZES:
            if asked.jobs not in (None, many_jobs):
                continue
            print(measured(many_pools, many_jobs, objective, seconds), flush=True)
    print("\nStragglers:")
    for nodes in (500, 5_000, 50_000):
        print(distribution(nodes))


if __name__ == "__main__":
    main()
