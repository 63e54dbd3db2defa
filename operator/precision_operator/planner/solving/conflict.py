"""Why there is no plan: the limits that clash, and the smallest relaxation that would do.

Limits are made elastic: each may be passed by a share of itself, and the sum of the shares is made small. A limit whose
relaxation alone makes a plan possible is part of every contradiction; where there is none, several are at work.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from precision_api.facts.plain_text import first_of
from precision_operator.planner.inputs.terms import NotKnown, OutOfTime, PlanClock, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.solving.budgets import BUDGETS
from precision_operator.planner.solving.catalog import Catalog
from precision_operator.planner.solving.linear import run
from precision_operator.planner.solving.options import LIMITS, Offer
from precision_operator.planner.solving.options import offers as offers_of
from precision_operator.planner.solving.program import TOLERANCE, AssignmentProgram, Constraint, RelaxableLimit
from precision_operator.planner.solving.schedule import watts

MOST_TESTS = 16
"""Limits that are tried alone."""
TOGETHER = 1 / 3
"""Part of the time for the question whether all limits together could give enough."""
NEGLIGIBLE = 1e-7


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Limits and by how much (in their own unit) each would have to be passed."""

    parts: tuple[tuple[RelaxableLimit, float], ...]

    @property
    def share(self) -> float:
        """The sum of the parts, each as a share of its limit."""
        return sum(amount / group.limit for group, amount in self.parts)


@dataclass(frozen=True, slots=True)
class Conflict:
    """`clashing` limits can't hold together; `smallest` is the least that helps, `others` are ways by one limit."""

    clashing: tuple[RelaxableLimit, ...]
    smallest: Relaxation | None
    others: tuple[Relaxation, ...]
    out_of_time: bool = False
    """Whether the search for what clashes ended before it had found anything."""
    queued: bool = False
    """Whether jobs wait: relaxations are then the least that is needed, and may not be enough."""


@dataclass(frozen=True)
class _Elastic(AssignmentProgram):
    """The program with some limits that may be passed, each by a column of its own behind the others."""

    loose: tuple[RelaxableLimit, ...] = ()
    rigid: tuple[Constraint, ...] = ()
    """The program's own rows."""

    @cached_property
    def rows(self) -> tuple[Constraint, ...]:
        columns = {group: self.width + i for i, group in enumerate(self.loose)}
        return tuple(_eased(row, columns) for row in self.rigid)


def _eased(row: Constraint, columns: Mapping[RelaxableLimit, int]) -> Constraint:
    loose = [(columns[group], -gain) for group, gain in row.eases if group in columns]
    if not loose:
        return row
    return replace(
        row,
        columns=np.concatenate([row.columns, [c for c, _ in loose]]).astype(np.int64),
        values=np.concatenate([row.values, [value for _, value in loose]]),
    )


def conflict(offers: Sequence[Offer], terms: Terms, clock: PlanClock) -> Conflict:
    """What keeps these jobs from being placed. Every offer has an option."""
    clash = _conflict(AssignmentProgram(tuple(offers), terms, rounded=False, clock=clock), clock)
    # What only the rows of rounded sizes refute is told by these; then relaxations are no longer the smallest.
    if clash.clashing or clash.out_of_time:
        return clash
    return _conflict(AssignmentProgram(tuple(offers), terms, clock=clock), clock)


def _conflict(program: AssignmentProgram, clock: PlanClock) -> Conflict:
    # Where jobs wait, relaxations are bounds in any case: those of the linear program are bounds too, and quick.
    whole = len(program.offers) == 1
    try:
        groups = tuple(dict.fromkeys(group for row in program.rows for group, _ in row.eases))
        together = _relaxed(program, groups, clock.part(TOGETHER), whole)
        if not whole and together is not None and not together.parts:
            whole, together = True, _relaxed(program, groups, clock.part(TOGETHER))
    except NotKnown:
        return Conflict((), None, (), out_of_time=True)
    if together is None or not together.parts:
        return Conflict((), None, ())
    tested = sorted(groups, key=lambda group: (group not in {g for g, _ in together.parts}, group.kind == "deadline"))
    alone: list[Relaxation] = []
    for number, group in enumerate(tested[:MOST_TESTS]):
        with suppress(NotKnown):
            found = _relaxed(program, (group,), clock.part(1 / (MOST_TESTS - number)), whole)
            alone += [] if found is None else [found]
    alone.sort(key=lambda relaxation: relaxation.share)
    clashing = tuple(relaxation.parts[0][0] for relaxation in alone if relaxation.parts)
    every = [together, *alone]
    return Conflict(
        clashing=clashing or tuple(group for group, _ in together.parts),
        smallest=min(every, key=lambda relaxation: (round(relaxation.share, 9), len(relaxation.parts))),
        others=tuple(alone[:4]),
        queued=len(program.offers) > 1,
    )


def _relaxed(
    program: AssignmentProgram, loose: tuple[RelaxableLimit, ...], clock: PlanClock, whole: bool = True
) -> Relaxation | None:
    """The smallest relaxation of these limits; None where they do not help. Not `whole`: if jobs could be split.

    Raises NotKnown.
    """
    clock.check()
    elastic = _Elastic(program.offers, program.terms, rounded=program.rounded, loose=loose, rigid=program.rows)
    wanted = np.concatenate([np.zeros(elastic.width), np.ones(len(loose))])
    model = elastic.model(wanted, 0.01, 0.0, whole=whole)
    clock.check()
    solved = run(replace(model, seconds=clock.left))
    if solved.state == "infeasible":
        return None
    if solved.x is None:
        raise OutOfTime(clock.limit)
    shares = solved.x[elastic.width :]
    parts = [(group, float(s) * group.limit) for group, s in zip(loose, shares, strict=True) if s > NEGLIGIBLE]
    return Relaxation(tuple(parts))


def broken_by_running(pools: Sequence[CandidatePool], terms: Terms) -> Iterator[RelaxableLimit]:
    """The limits that jobs break which run already, each with the jobs: there is no plan beside them."""
    jobs = tuple(job for job in terms.jobs if job.running)
    mine = [o for offer in offers_of(Catalog(pools, replace(terms, jobs=jobs)), every=True) for o in offer.options]
    limits = [("power budget", None, watts, terms.limits.watts)] + [
        row
        for pool in pools
        for row in (
            (f"GPUs of pool {pool.name}", pool, lambda option: float(option.gpus), float(pool.gpus)),
            (f"power budget of pool {pool.name}", pool, watts, pool.terms.power_watts),
        )
    ]
    for name, pool, amount, most in limits:
        chosen = [option for option in mine if pool is None or option.pool.name == pool.name]
        total = sum(map(amount, chosen))
        if chosen and most is not None and total > most * (1 + TOLERANCE):
            names = first_of([option.job.name for option in chosen], 4)
            yield RelaxableLimit("running", f"{names} run already and take {total / most:.0%} of the {name}", most)


_WORDS: Mapping[str, Sequence[str]] = LIMITS["words"] | {
    row.name: (f"budget.{row.name} of {{limit:{row.digits}}}", f"{{amount:{row.digits}}} {row.unit} more")
    for row in BUDGETS
}
"""By kind of a limit the limit itself and its relaxation."""


def named(group: RelaxableLimit) -> str:
    where = f" of pool {group.of}" if group.of else ""
    return _WORDS[group.kind][0].format(limit=group.limit, of=group.of, where=where).replace("(1 days)", "(1 day)")


def told(relaxation: Relaxation) -> str:
    words = []
    for group, amount in relaxation.parts:
        more = float(np.ceil(amount - NEGLIGIBLE)) if group.kind in ("gpus", "blocks", "fast nodes") else amount
        where = f" for pool {group.of}" if group.of else ""
        words.append(_WORDS[group.kind][1].format(amount=more, of=group.of, where=where))
    return " and ".join(words)


def way_out(conflict: Conflict, tried: bool) -> str:
    """The smallest relaxation, in one sentence; `tried`: only some sizes were, and nothing is proved. Empty: none."""
    way = LIMITS["ways out"][2 * tried + conflict.queued]
    return f"{way}: {told(conflict.smallest)}" if conflict.smallest else ""


def clash_words(conflict: Conflict, tried: bool) -> str:
    """Which limits clash, in one sentence; empty where none is known."""
    clash = " and ".join(named(group) for group in conflict.clashing)
    begin = "With the sizes that were tried, " if tried else ""
    words = "this limit can't be kept" if len(conflict.clashing) == 1 else "these limits clash"
    words = f"{begin}{words}: {clash}"
    return f"{words[0].upper()}{words[1:]}" if clash else ""
