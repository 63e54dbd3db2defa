"""Every plan of a small problem, tried one after the other, by the words of docs/planner.md alone.

    python -m tests.planner.exhaustive [--problems 300] [--wide]

The figures of single choices (days, watts, dollars of one pool, recipe and size) are the planner's; how choices go
together is written here anew: one choice a job, blocks within racks, room and power at every instant, starts after
what is waited for, deadlines by the lengths that they are held against, orders by priority.
"""

import argparse
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Any

from precision_api.kinds.capacity_plan import PlanSpec
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.inputs.fleet import Fleet, PoolFacts
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.inputs.terms import Terms
from precision_operator.planner.rates.evidence import pools
from precision_operator.planner.rates.pool_sizes import idle_watts
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.options import offers
from tests.support.fleets import MODEL, NOW, fleet, job, node, pool, rate, spec

NEAR = 1e-6


@dataclass(frozen=True)
class Choice:
    """One pool, recipe and size of one job."""

    job: str
    pool: str
    gpus: int
    block: int
    days: float
    careful: float
    watts: float
    energy: float
    hours: float
    price: float
    electricity: float


@dataclass(frozen=True)
class Placed:
    choice: Choice
    start: float
    end: float


def problem(seed: int, wide: bool = False) -> tuple[Fleet, PlanSpec]:
    """One or two pools of two to six nodes, one to three jobs, with some of all limits.

    A `wide` one may also have hours that are paid for, budgets of energy and GPU hours, idle power, goodput, unequal
    nodes, blocks of a pool, another scope of limits, a rate of whole jobs, dates in place of days, and a job that runs.
    """
    drawn = random.Random(seed)
    known, limits = [], []
    racks = drawn.random() < 0.3
    for number in range(drawn.randint(1, 2)):
        name, base = f"p{number}", drawn.uniform(4e4, 1.2e5)
        rates = [rate("bf16", base, watts=drawn.uniform(2500, 5400))]
        if drawn.random() < 0.4:
            rates.append(rate("fp8_current", base * drawn.uniform(1.1, 1.7), watts=drawn.uniform(3000, 5500)))
        many = drawn.randint(2, 6)
        if racks:
            nodes = [node(f"{name}-{i}", rates, rack=f"r{i // 2}") for i in range(many)]
        else:
            nodes = [node(name, rates, count=many)]
        known.append(pool(name, *nodes))
        entry: dict[str, Any] = {"name": name, "dollarsPerGPUHour": f"{drawn.uniform(1, 8):.2f}"}
        if drawn.random() < 0.7:
            kept = drawn.uniform(0.75, 1.0)
            entry["scaling"] = [{"gpus": 8, "efficiency": "1"}, {"gpus": 48, "efficiency": f"{kept:.3f}"}]
        if drawn.random() < 0.2:
            entry["powerBudget"] = f"{drawn.randint(12, 60)}kW"
        limits.append(entry)
    jobs = []
    for number in range(drawn.randint(1, 3)):
        more: dict[str, Any] = {"priority": drawn.choice([0, 0, 1])}
        if drawn.random() < 0.5:
            more["deadlineDays"] = f"{drawn.uniform(1, 14):.2f}"
        if number and drawn.random() < 0.4:
            more["after"] = [f"j{drawn.randrange(number)}"]
        elif drawn.random() < 0.2:
            more["notBefore"] = f"2026-12-0{drawn.randint(2, 6)}T00:00:00Z"
        if racks and drawn.random() < 0.5:
            more["blockGPUs"] = 16
        if drawn.random() < 0.3:
            more["minGPUs"] = drawn.choice([8, 16])
        jobs.append(job(f"j{number}", tokens=f"{drawn.randint(20, 200)}B", **more))
    power: dict[str, Any] = {"pue": "1.2", "overhead": {"gpu": "1.25"}}
    if drawn.random() < 0.4:
        power["budget"] = f"{drawn.randint(12, 80)}kW"
    budget = {"dollars": str(drawn.randint(300, 6000))} if drawn.random() < 0.15 else {}
    objective = drawn.choice([["time"], ["time"], ["cost"], ["energy"], ["cost", "time"]])
    if wide:
        budget |= {"megawattHours": str(drawn.randint(1, 60))} if drawn.random() < 0.3 else {}
        budget |= {"gpuHours": str(drawn.randint(500, 9000))} if drawn.random() < 0.15 else {}
        objective = drawn.choice([objective, ["cost", "time"], ["time", "cost"]])
        power["overhead"]["module"] = "1.1"
        limits, known = [entry | _wide(drawn) for entry in limits], [_unequal(drawn, each) for each in known]
        _wide_jobs(drawn, jobs, known[0])
    made = spec(*jobs, pools=limits, power=power, budget=budget, objective=objective, solver={"timeLimitSeconds": 60})
    return fleet(*known), made


def _wide(drawn: random.Random) -> dict[str, Any]:
    """What a pool may have beside."""
    kept: dict[str, Any] = {}
    kept |= {"committedGPUHours": str(drawn.randint(1, 5000))} if drawn.random() < 0.5 else {}
    kept |= {"idleWattsPerGPU": drawn.randint(40, 120)} if drawn.random() < 0.2 else {}
    kept |= {"goodput": f"{drawn.uniform(0.85, 1):.2f}"} if drawn.random() < 0.2 else {}
    kept |= {"blockGPUs": 16} if drawn.random() < 0.15 else {}
    kept |= {"limitScope": "module"} if drawn.random() < 0.2 else {}
    if drawn.random() < 0.2:
        row = {"workload": {"preset": MODEL}, "recipe": "bf16", "gpus": 16, "source": "a friend"}
        kept["jobRates"] = [row | {"tokensPerSecondPerGPU": str(drawn.randint(5_000, 14_000))}]
    return kept


def _unequal(drawn: random.Random, whole: PoolFacts) -> PoolFacts:
    """The pool with a slower node more."""
    slower = node(f"{whole.name}-slower", [rate("bf16", drawn.uniform(3e4, 6e4), watts=4000)], rack=whole.nodes[0].rack)
    return whole.model_copy(update={"nodes": (*whole.nodes, slower)}) if drawn.random() < 0.2 else whole


def _wide_jobs(drawn: random.Random, jobs: list[dict[str, Any]], first: PoolFacts) -> None:
    """Dates in place of days, and the first job as one that runs."""
    for each in jobs:
        if "deadlineDays" in each and drawn.random() < 0.3:
            each["deadline"] = f"{NOW + timedelta(days=float(each.pop('deadlineDays'))):%Y-%m-%dT%H:%M:%SZ}"
    if drawn.random() < 0.25:
        jobs[0] = {key: value for key, value in jobs[0].items() if key not in ("notBefore", "minGPUs", "blockGPUs")}
        jobs[0]["running"] = {"pool": first.name, "recipe": "bf16", "gpus": 16, "tokensDone": "10B"}
        jobs[0]["running"] |= {"startedAt": "2026-11-30T12:00:00Z"} if drawn.random() < 0.5 else {}


def choices(known: Fleet, read: Terms) -> list[list[Choice]]:
    offered = offers(Catalog(pools(known, read, NOW), read), every=True)
    return [
        [
            Choice(
                *(offer.job.name, option.pool.name, option.gpus, option.block_gpus, option.days, option.deadline_days),
                *(max(0.0, (option.limit_watts or 0.0) - option.idle_watts), option.megawatt_hours or 0.0),
                *(option.gpu_hours, option.gpu_dollars_per_hour or 0.0, option.power_dollars or 0.0),
            )
            for option in offer.options
        ]
        for offer in offered
    ]


class World:
    """What holds at every instant, and orders."""

    def __init__(self, known: Fleet, read: Terms) -> None:
        self.read = read
        self.jobs = {each.name: each for each in read.jobs}
        self.racks: dict[str, list[int]] = {}
        self.gpus: dict[str, int] = {}
        for each in known.pools:
            counts: dict[str, int] = {}
            for one in each.nodes:
                counts[one.rack] = counts.get(one.rack, 0) + one.gpus * one.count
            self.racks[each.name] = [gpus for rack, gpus in counts.items() if rack]
            if self.racks[each.name] and (more := read.pools[each.name].more_nodes):
                self.racks[each.name].append(more * each.nodes[0].gpus)
            self.gpus[each.name] = sum(counts.values())
        offered = pools(known, read, NOW)
        self.idle = {pool.name: idle_watts(pool, read) for pool in offered}
        self.gpus = {pool.name: pool.gpus for pool in offered}

    def may(self, running: Sequence[Choice]) -> bool:
        """Whether these may run at one instant."""
        total, limit = sum(c.watts for c in running) + sum(self.idle.values()), self.read.limits.watts
        if limit is not None and total > limit * (1 + NEAR):
            return False
        for name in {c.pool for c in running}:
            mine = [c for c in running if c.pool == name]
            if sum(c.gpus for c in mine) > self.gpus[name]:
                return False
            limit = self.read.pools[name].power_watts
            if limit is not None and sum(c.watts for c in mine) + self.idle[name] > limit * (1 + NEAR):
                return False
            if self.racks[name] and not packs(
                self.racks[name], [c.block for c in mine for _ in range(c.gpus // c.block)]
            ):
                return False
        return True

    def orders(self) -> Iterator[tuple[str, ...]]:
        """Orders in which each job comes after what it waits for, and else after those of higher priority."""
        for order in itertools.permutations(self.jobs):
            if all(self._turn(order[:i], name) for i, name in enumerate(order)):
                yield order

    def _turn(self, before: Sequence[str], name: str) -> bool:
        if not set(self.jobs[name].after) <= {*before}:
            return False
        if self.jobs[name].running or any(job.running for job in self.jobs.values() if job.name not in before):
            return bool(self.jobs[name].running)
        others = [self.jobs[each] for each in self.jobs if each not in before and each != name]
        return not any(o.priority > self.jobs[name].priority and set(o.after) <= {*before} for o in others)

    def placed(self, chosen: Sequence[Choice], order: Sequence[str], careful: bool) -> list[Placed] | None:
        """Each as early as it finds room, in this order."""
        by_name = {choice.job: choice for choice in chosen}
        done: dict[str, Placed] = {}
        for name in order:
            choice, own = by_name[name], self.jobs[name]
            length = choice.careful if careful else choice.days
            ready = 0.0 if own.running else max([own.not_before, *(done[each].end for each in own.after)])
            for start in sorted({ready, *(each.end for each in done.values() if each.end > ready)}):
                end = start + length
                moments = {start, *(each.start for each in done.values() if start < each.start < end - 1e-9)}
                together = ([e.choice for e in done.values() if e.start <= m < e.end - 1e-9] for m in moments)
                if all(self.may([*beside, choice]) for beside in together):
                    done[name] = Placed(choice, start, end)
                    break
            else:
                return None
        return [done[choice.job] for choice in chosen]

    def within(self, chosen: Sequence[Choice]) -> bool:
        """Whether budgets hold."""
        budgets = self.read.limits.budgets
        totals = {
            "dollars": self.dollars(chosen),
            "gpuHours": sum(c.hours for c in chosen),
            "megawattHours": sum(c.energy for c in chosen),
        }
        return all(totals[name] <= most * (1 + NEAR) for name, most in budgets.items())

    def dollars(self, chosen: Sequence[Choice]) -> float:
        """Hours beyond those that are paid for, and electricity."""
        total = sum(choice.electricity for choice in chosen)
        for name in {choice.pool for choice in chosen}:
            mine = [choice for choice in chosen if choice.pool == name]
            beyond = sum(choice.hours for choice in mine) - self.read.pools[name].committed_gpu_hours
            total += max(0.0, beyond) * mine[0].price
        return total

    def holds(self, chosen: Sequence[Choice], order: Sequence[str]) -> list[Placed] | None:
        """The plan of these choices in this order; None where a limit or a deadline does not hold."""
        careful = self.placed(chosen, order, careful=True)
        if careful is None:
            return None
        for each in careful:
            day = self.jobs[each.choice.job].deadline_days
            if day is not None and each.end > day * (1 + NEAR):
                return None
        return self.placed(chosen, order, careful=False)


def packs(racks: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether blocks of these sizes go into racks of these sizes."""
    left = sorted(wanted, reverse=True)
    if not left:
        return True
    tried = set()
    for place, room in enumerate(racks):
        if room >= left[0] and room not in tried:
            tried.add(room)
            if packs([*racks[:place], room - left[0], *racks[place + 1 :]], left[1:]):
                return True
    return False


def least(known: Fleet, made: PlanSpec, more: str = "") -> float | None:
    """The least first objective of all plans; None where there is none. With a node more in the pool `more`."""
    read = terms(made, NOW)
    if more:
        read = replace(read, pools={**read.pools, more: replace(read.pools[more], more_nodes=1)})
    world, name = World(known, read), (made.objective or ("time",))[0]
    orders, best = list(world.orders()), math.inf
    for chosen in itertools.product(*choices(known, read)):
        totals = {
            "cost": world.dollars(chosen),
            "energy": sum(c.energy for c in chosen),
            "time": max(c.days for c in chosen),
        }
        floor = totals[name]
        if floor >= best or not world.within(chosen):
            continue
        for order in orders:
            found = world.holds(chosen, order)
            if found is not None:
                best = min(best, max(each.end for each in found) if name == "time" else floor)
                if name != "time":
                    break
    return None if best == math.inf else best


def verdict(seed: int, wide: bool = False) -> tuple[str, float | None, PlanAnswer]:
    """What is wrong with the planner's answer to one problem (empty: nothing), the gap, and the answer."""
    known, made = problem(seed, wide)
    found = plan(made, known, NOW)
    if found.terms is None or (found.problems and found.not_known is None):
        return "", None, found
    wanted = least(known, made)
    if found.solution is None:
        wrong = "called infeasible, and there is a plan" if wanted is not None and found.not_known is None else ""
        return wrong, None, found
    gap, reached = found.solution.gap, found.solution.values[0]
    if wanted is None:
        return "the plan breaks a limit: there is none", gap, found
    if wanted < reached * (1 - gap) * (1 - 1e-5):
        return f"{wanted} is better than {reached} with a gap of {gap}", gap, found
    if reached < wanted * (1 - 1e-5):
        return f"{reached} is better than the best, {wanted}: it breaks a limit", gap, found
    return "", gap, found


def main() -> None:
    """Prints what does not hold, and how wide the gaps are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--wide", action="store_true", help="With all that a plan may have beside.")
    asked = parser.parse_args()
    gaps, phases, wrong = [], {"solved": 0, "infeasible": 0, "not known": 0, "refused": 0}, 0
    for seed in range(asked.first, asked.first + asked.problems):
        text, gap, found = verdict(seed, asked.wide)
        if text:
            wrong += 1
            print(f"problem {seed}: {text}", flush=True)
        if gap is not None:
            gaps.append(gap)
        phase = "solved" if found.solution else "not known" if found.not_known else "infeasible"
        phases["refused" if found.problems and not found.not_known else phase] += 1
    print(f"{asked.problems} problems: {phases}; {wrong} wrong")
    print(f"gaps: median {median(gaps):.2%}, largest {max(gaps):.2%}, above 2 %: {sum(gap > 0.02 for gap in gaps)}")


if __name__ == "__main__":
    main()
