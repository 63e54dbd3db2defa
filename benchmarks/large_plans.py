"""Plans with more sizes than one program holds: what is found in a limit, and how far from the proved bound it is.

    python -m benchmarks.large_plans [--seconds 30] [--first 0] [--problems 30] [--loose]

`large(number)` draws 20 jobs for 200 nodes in two pools with over 6,000 sizes: every second problem has GPU hours that
are paid for, every third is ordered by time, and of those by cost half have deadlines at 1.0 and half at 1.5 times the
days in which the work of all jobs fills all GPUs. `--loose` asks for 200 jobs on 20 pools by cost and by time, as
`benchmarks.planner` draws them. Nothing here was measured: rates are made up.
"""

import argparse
import random
import time
from typing import Any

from benchmarks.planner import problem
from precision_api.kinds.capacity_plan import PlanSpec
from precision_operator.planner.answer.planning import answer
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import clock_of
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.solving.options import sizes
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec

JOBS, NODES, GPUS_PER_NODE = 20, 100, 8
CAREFUL = 1.15
"""What bands and scaling take of the room, about."""


def large(number: int, seconds: int = 30) -> tuple[Fleet, PlanSpec]:
    """One problem: its number decides the objective, the deadlines and whether hours are paid for."""
    drawn = random.Random(4_300 + number // 3)
    by_time, tightness, paid = number % 3 == 2, (1.0, 1.5, None)[number % 3], number % 2 == 1
    made, own, speeds = [], [], []
    for place in range(2):
        base = drawn.uniform(5e4, 1.2e5)
        gain = drawn.uniform(1.2, 1.6)
        rates = [rate("bf16", base, watts=drawn.uniform(4000, 5400)), rate("fp8_current", base * gain, watts=5300)]
        made.append(pool(f"pool-{place}", node(f"p{place}", rates, count=NODES)))
        kept = drawn.uniform(0.8, 0.97)
        row: dict[str, Any] = {"name": f"pool-{place}", "dollarsPerGPUHour": f"{drawn.uniform(1.5, 6):.2f}"}
        row["scaling"] = [{"gpus": GPUS_PER_NODE, "efficiency": "1"}, {"gpus": 800, "efficiency": f"{kept:.3f}"}]
        speeds.append(base * gain * NODES * kept)
        own.append(row)
    tokens = [drawn.uniform(0.3, 6) * 1e12 for _ in range(JOBS)]
    least = sum(tokens) / sum(speeds) / 86_400 * CAREFUL
    for row in own if paid else ():
        row["committedGPUHours"] = str(round(drawn.uniform(0.2, 0.6) * least * 24 * NODES * GPUS_PER_NODE))
    jobs = []
    for place, amount in enumerate(tokens):
        more: dict[str, Any] = {}
        if place >= JOBS // 2 and drawn.random() < 0.5:
            more["after"] = [f"j{drawn.randrange(JOBS // 2):02d}"]
        if tightness is not None:
            more["deadlineDays"] = f"{least * tightness * drawn.uniform(0.9, 1.3):.2f}"
        if drawn.random() < 0.3:
            more["minGPUs"] = drawn.choice([32, 64, 128])
        jobs.append(job(f"j{place:02d}", tokens=f"{amount / 1e9:.0f}B", **more))
    order = ["time"] if by_time else ["cost"]
    return fleet(*made), spec(*jobs, objective=order, pools=own, solver={"timeLimitSeconds": seconds})


def row(name: str, known: Fleet, made: PlanSpec) -> str:
    """One line: the value, the proved gap, and the seconds that it took."""
    read = terms(made, NOW)
    candidates = pools(known, read, NOW)
    began, clock = time.monotonic(), clock_of(read.seconds)
    answered = answer(read, candidates, clock)
    seconds, by = time.monotonic() - began, "+".join(made.objective or ())
    head = f"{name:<12} {by:<6} {sizes(candidates, read):>10,} {seconds:>7.1f} s"
    if answered.solution is None:
        return f"{head}  {answered.not_known or 'no plan, proved'}"
    return f"{head} {answered.solution.values[0]:>15,.2f} {answered.solution.gap:>8.2%}"


def main() -> None:
    """Prints a line for each problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--loose", action="store_true", help="Only 200 jobs with loose limits.")
    asked = parser.parse_args()
    print("problem      by          sizes    took           value      gap")
    if asked.loose:
        for by in ("cost", "time"):
            print(row("200 jobs", *problem(20, 200, (by,), asked.seconds)), flush=True)
        return
    for number in range(asked.first, asked.first + asked.problems):
        print(row(f"large {number}", *large(number, asked.seconds)), flush=True)


if __name__ == "__main__":
    main()
