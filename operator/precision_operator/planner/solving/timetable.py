"""Choices and starts of all jobs at once, by ortools' CP-SAT with one worker and one seed.

Time is counted in ticks. Lengths, demands and amounts are rounded down and room is rounded up, so whatever holds in
days holds in ticks, and what is proved here is proved of all plans. Priorities, and how blocks share racks, are not in
it: each solution is placed by the schedule, which has them all, and where that is late the choice is forbidden.

Jobs may have two places: by the middle of their bands, for the end of the last job, and by the days that deadlines are
held against. Both have the same choice.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ortools.sat.python import cp_model_helper as ortools

from precision_operator.planner.inputs.terms import JobTerms, PlanClock
from precision_operator.planner.solving.budgets import DOLLARS, MEGAWATT_HOURS, Budget, is_committed, limited
from precision_operator.planner.solving.catalog import blocks
from precision_operator.planner.solving.options import Option
from precision_operator.planner.solving.schedule import SLACK, followers, schedule, spans_of, watts
from precision_operator.planner.solving.search import Candidate, Rank, Search

TICKS = 1 << 24
"""Of the last day that is looked at."""
STEPS = 1 << 24
"""Of the largest amount of money, energy or power."""
SMALL = 8
"""Jobs up to which the best choice is proved; of more, a plan that is there is made better part by part."""
PROVES = "num_workers: 1"
IMPROVES = (
    f"{PROVES} interleave_search: true use_lns_only: true linearization_level: 2 "
    "use_overload_checker_in_cumulative: true use_timetable_edge_finding_in_cumulative: true"
)


class _Program:
    """What CP-SAT is given."""

    def __init__(self) -> None:
        self.proto = ortools.CpModelProto()
        self.width, self.rows, self.impossible = 0, 0, False

    def variable(self, low: int, high: int) -> int:
        self.impossible |= low > high
        self.proto.variables.add().domain.extend([low, max(low, high)])
        self.width += 1
        return self.width - 1

    def linear(self, terms: Iterable[tuple[int, int]], low: int, high: int, where: int | None = None) -> None:
        """Low <= sum of coefficient x variable <= high; only where a variable is 1, if one is named."""
        made = self._row()
        if where is not None:
            made.enforcement_literal.append(where)
        row = made.linear
        for variable, coefficient in terms:
            row.vars.append(variable)
            row.coeffs.append(coefficient)
        row.domain.extend([low, high])

    def one_of(self, variables: Iterable[int]) -> None:
        self._row().exactly_one.literals.extend([*variables])

    def interval(self, taken: int, start: int, length: int) -> int:
        """It lasts so long where the choice is taken."""
        row = self._row()
        row.enforcement_literal.append(taken)
        for end in (row.interval.start, row.interval.end):
            end.vars.append(start)
            end.coeffs.append(1)
        row.interval.size.offset = row.interval.end.offset = length
        return self.rows - 1

    def room(self, capacity: int, demands: Sequence[tuple[int, int]]) -> None:
        """Of these intervals no more than so much at any time."""
        if sum(demand for _, demand in demands) <= capacity:
            return
        row = self._row().cumulative
        row.capacity.offset = capacity
        for interval, demand in demands:
            row.intervals.append(interval)
            row.demands.add().offset = demand

    def _row(self) -> Any:
        self.rows += 1
        return self.proto.constraints.add()


class Timetable(_Program):
    """The program of a search's offers for its objective of this number, over plans that end by the day `last`."""

    def __init__(
        self, search: Search, number: int, last: float, forbidden: Iterable[Sequence[Option]], ordered: bool = True
    ) -> None:
        super().__init__()
        self.ordered = ordered and len({offer.job.priority for offer in search.offers}) > 1
        """Whether no job waits for one of lower priority."""
        self.search, self.number, self.runs = search, number, 0
        due = max((offer.job.deadline_days or 0.0 for offer in search.offers), default=0.0)
        self.last = {False: last, True: due * (1 + 2 * SLACK)}
        """By whether it is for deadlines, the last day that is looked at."""
        self.options = [option for offer in search.offers for option in offer.options]
        self.taken = {id(option): self.variable(0, 1) for option in self.options}
        for offer in search.offers:
            self.one_of(self.taken[id(option)] for option in offer.options)
        names = [search.objectives[place] for place in (*search.held, number)]
        self.starts: dict[bool, dict[str, int]] = {}
        self.ends: dict[bool, dict[str, int]] = {}
        for careful in (False, True):
            jobs = self._jobs(careful, "time" in names)
            if jobs:
                self._place(jobs, careful)
        self.paid = {pool: self._beyond(pool) for pool in {o.pool.name for o in self.options if is_committed(o)}}
        for budget, limit in limited(search.terms):
            self._most(budget, limit)
        for place, most in search.held.items():
            if search.objectives[place] == "time":
                for end in self.ends[False].values():
                    self.linear([(end, 1)], 0, math.ceil(most * TICKS / last))
            else:
                self._most(_BUDGETS[search.objectives[place]], most)
        self._objective(search.objectives[number])
        for chosen in forbidden:
            self.forbid(chosen)
        if plan := search.best or search.nearest:
            self._hint(plan)

    def _jobs(self, careful: bool, by_end: bool) -> list[JobTerms]:
        """Jobs whose time matters: all for the last end; for deadlines those that have one, and that go before them."""
        jobs = [offer.job for offer in self.search.offers]
        if not careful:
            return jobs if by_end else []
        due = [job for job in jobs if job.deadline_days is not None]
        least = min((job.priority for job in due), default=math.inf)
        names = {job.name for job in due}
        return [job for job in jobs if followers(jobs, [job.name]) & names or job.priority > least]

    def _place(self, jobs: Sequence[JobTerms], careful: bool) -> None:
        """Starts and ends, what waits for what, and the room at every tick."""
        tick = self.last[careful] / TICKS
        ready, latest = spans_of(self.search.offers, careful, self.last[careful])
        starts, ends = self.starts.setdefault(careful, {}), self.ends.setdefault(careful, {})
        intervals: dict[int, int] = {}
        by_job = {offer.job.name: offer for offer in self.search.offers}
        for job in jobs:
            bounded = latest[job.name] < math.inf  # others may end after all that matters
            last = math.ceil(latest[job.name] / tick * (1 + SLACK)) if bounded else 2 * TICKS
            start = self.variable(math.floor(ready[job.name] / tick), 0 if job.running else last)
            end = self.variable(0, max(last, 0))
            starts[job.name], ends[job.name], lengths = start, end, list[tuple[int, int]]()
            for option in by_job[job.name].options:
                length = math.floor((option.deadline_days if careful else option.days) / tick)
                length, taken = length if bounded else min(length, TICKS), self.taken[id(option)]
                if length > last:
                    self.linear([(taken, 1)], 0, 0)
                    continue
                intervals[id(option)] = self.interval(taken, start, length)
                lengths.append((taken, -length))
            self.linear([(end, 1), (start, -1), *lengths], 0, 0)
        for job in jobs:
            for before in ends.keys() & {*job.after}:
                self.linear([(starts[job.name], 1), (ends[before], -1)], 0, 2 * TICKS)
        self._rooms([option for option in self.options if id(option) in intervals], intervals)
        if self.ordered:
            self._by_priority(starts, ends, {name: math.floor(day / tick) for name, day in ready.items()})

    def _by_priority(self, starts: Mapping[str, int], ends: Mapping[str, int], ready: Mapping[str, int]) -> None:
        """No job waits for one of lower priority: each starts when it is ready, or when one that goes before it ends.

        Not of jobs that wait for one of lower priority, as any other may then go before them.
        """
        jobs = [offer.job for offer in self.search.offers]
        for job in (job for job in jobs if job.name in starts and not job.running):
            before = [other for other in jobs if other is not job and (other.running or other.priority >= job.priority)]
            names = {other.name for other in before}
            awaited = {other.name for other in jobs if other is not job and job.name in followers(jobs, [other.name])}
            if len(before) == len(jobs) - 1 or not names <= starts.keys() or not awaited <= names:
                continue
            moments = [self.variable(0, 1) for _ in range(len(before) + 1)]
            self._row().bool_or.literals.extend(moments)
            self.linear([(starts[job.name], 1)], 0, ready[job.name] + len(jobs), moments[0])
            for other, moment in zip(before, moments[1:], strict=True):
                self.linear([(starts[job.name], 1), (ends[other.name], -1)], -4 * TICKS, len(jobs), moment)

    def _rooms(self, options: Sequence[Option], intervals: Mapping[int, int]) -> None:
        def held(mine: Iterable[Option], amount: Callable[[Option], int], most: int) -> None:
            self.room(most, [(intervals[id(o)], amount(o)) for o in mine if amount(o) > 0])

        def power(mine: Sequence[Option], limit: float | None) -> None:
            if limit is not None:
                step = limit / STEPS
                held(mine, lambda option: math.floor(watts(option) / step), math.ceil(STEPS * (1 + SLACK)))

        power(options, self.search.terms.limits.watts)
        for pool in {option.pool.name: option.pool for option in options}.values():
            mine = [option for option in options if option.pool.name == pool.name]
            held(mine, lambda option: option.gpus, pool.gpus)
            power(mine, pool.terms.power_watts)
            for size in sorted({option.block_gpus for option in mine if option.block_gpus > pool.gpus_per_node}):
                big = [option for option in mine if option.block_gpus >= size]
                held(big, lambda option, size=size: option.gpus // size, blocks(pool, size))  # type: ignore[misc]
            for nodes in sorted({option.tier for option in mine} - {0, pool.nodes}):
                fast = [option for option in mine if 0 < option.tier <= nodes]
                held(fast, lambda option: option.gpus, nodes * pool.gpus_per_node)

    def _beyond(self, pool: str) -> tuple[int, float]:
        """(dollars of the hours beyond those that are paid for as a variable, how many dollars are one step of it)."""
        mine = [option for option in self.options if option.pool.name == pool]
        price, hours = mine[0].gpu_dollars_per_hour or 0.0, mine[0].pool.terms.committed_gpu_hours
        step = max(option.gpu_hours for option in mine) * price / STEPS
        free = math.ceil(hours * price / step)
        beyond = self.variable(0, STEPS * len(self.search.offers))
        terms = [(self.taken[id(option)], -math.floor(option.gpu_hours * price / step)) for option in mine]
        self.linear([(beyond, 1), *terms], -free, STEPS * len(self.search.offers) * 2)
        return beyond, step

    def _amounts(self, budget: Budget) -> list[tuple[int, float]]:
        """What choices, and hours beyond those that are paid for, take of a budget."""
        amounts = [(self.taken[id(option)], budget.amount(option)) for option in self.options]
        return [*amounts, *(self.paid.values() if budget is DOLLARS else ())]

    def _most(self, budget: Budget, limit: float) -> None:
        amounts = self._amounts(budget)
        step = max(limit, max(amount for _, amount in amounts)) / STEPS / 16
        self.linear([(v, math.floor(a / step)) for v, a in amounts], 0, math.ceil(limit * (1 + SLACK) / step))

    def _objective(self, name: str) -> None:
        if name == "time":
            end = self.variable(0, TICKS)
            for each in self.ends[False].values():
                self.linear([(end, 1), (each, -1)], 0, TICKS)
            self.step, terms = self.last[False] / TICKS, [(end, 1)]
        else:
            amounts = [(variable, amount) for variable, amount in self._amounts(_BUDGETS[name]) if amount]
            self.step = max((amount for _, amount in amounts), default=1.0) / STEPS
            terms = [(variable, math.floor(amount / self.step)) for variable, amount in amounts]
        for variable, amount in terms:
            self.proto.objective.vars.append(variable)
            self.proto.objective.coeffs.append(amount)

    def forbid(self, chosen: Sequence[Option]) -> None:
        self.linear([(self.taken[id(option)], 1) for option in chosen], 0, len(chosen) - 1)

    def _hint(self, plan: Candidate) -> None:
        """Begin with this plan."""
        hint = self.proto.solution_hint
        chosen = {_key(option) for option in plan.chosen}
        for option in self.options:
            hint.vars.append(self.taken[id(option)])
            hint.values.append(int(_key(option) in chosen))
        for careful, starts in self.starts.items():
            slots = plan.slots
            if careful:
                slots = schedule(plan.chosen, self.search.terms.limits, lambda o: o.deadline_days, plan.rank) or ()
            for slot in slots:
                if slot.option.job.name in starts:
                    hint.vars.append(starts[slot.option.job.name])
                    hint.values.append(math.floor(slot.start * TICKS / self.last[careful]))

    def chosen_at(self, values: Sequence[int]) -> tuple[Option, ...]:
        """The options of a solution, in the offers' order."""
        return tuple(option for option in self.options if values[self.taken[id(option)]])

    def ranks_at(self, values: Sequence[int]) -> Iterator[Rank]:
        """The orders in which a solution starts the jobs, those without a place in time last."""
        for starts in self.starts.values():
            at = {
                offer.job.name: values[starts[name]] if (name := offer.job.name) in starts else TICKS
                for offer in self.search.offers
            }
            yield {name: place for place, name in enumerate(sorted(at, key=lambda name: (at[name], name)))}

    def solve(self, enough: float, clock: PlanClock) -> tuple[str, float]:
        """(optimal, infeasible or limit; what is proved of the objective), each solution put into the search.

        Ends with the search's clock, and with a plan whose objective is `enough`, or as good as proved.
        """
        watch, solver = _Watch(self, enough, clock), ortools.SolveWrapper()
        asked = ortools.SatParameters()
        first = self.search.best is None or len(self.search.offers) <= SMALL
        asked.merge_text_format(PROVES if first else IMPROVES)
        asked.random_seed = self.runs
        asked.max_time_in_seconds = max(min(clock.left, clock.search_seconds), 0.001)
        self.runs += 1
        solver.set_parameters(asked)
        solver.add_solution_callback(watch)
        answer = solver.solve(self.proto)  # type: ignore[no-untyped-call]
        if self.impossible or answer.status == ortools.INFEASIBLE:
            return "infeasible", math.inf
        if answer.status == ortools.OPTIMAL:
            self.last_chosen = self.chosen_at([*answer.solution])
            return "optimal", answer.inner_objective_lower_bound * self.step
        return "limit", answer.best_objective_bound * self.step


class _Watch(ortools.SolutionCallback):
    """Puts each solution into the search."""

    def __init__(self, table: Timetable, enough: float, clock: PlanClock) -> None:
        super().__init__()
        self.table, self.enough, self.clock = table, enough, clock

    def OnSolutionCallback(self) -> None:  # noqa: N802
        table, search = self.table, self.table.search
        values = [*self.Response().solution]  # type: ignore[no-untyped-call]
        search.try_choice(table.chosen_at(values), table.number, table.ranks_at(values))
        proved = max(self.BestObjectiveBound() * table.step, 0.0)
        enough = max(self.enough, proved * (1 + search.terms.gap))
        if self.clock.over or (search.best is not None and search.best.values[table.number] <= enough):
            self.StopSearch()


def _key(option: Option) -> tuple[object, ...]:
    """What tells choices apart, also those that were made anew."""
    return option.job.name, option.pool.name, option.recipe, option.gpus, option.tier


_BUDGETS = {"cost": DOLLARS, "energy": MEGAWATT_HOURS}
