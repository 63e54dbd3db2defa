"""What choices cost and take together, and the plan's `budget`: one row for each of its fields."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from precision_operator.planner.inputs.terms import Terms
from precision_operator.planner.rates.bands import Figures
from precision_operator.planner.rates.candidate_pool import CandidatePool
from precision_operator.planner.rates.pool_sizes import SizeArrays
from precision_operator.planner.solving.options import Option


def is_committed(option: Option) -> bool:
    """Whether some GPU hours of the option's pool are paid for, and the others have a price."""
    return option.pool.terms.committed_gpu_hours > 0 and option.gpu_dollars_per_hour is not None


def dollars_beside_committed(option: Option) -> float:
    """An option's own money; GPU hours of a pool that is partly paid for are counted for the whole pool."""
    gpu = 0.0 if is_committed(option) else option.gpu_hours * (option.gpu_dollars_per_hour or 0.0)
    return gpu + (option.power_dollars or 0.0)


def paid_shares(chosen: Sequence[Option]) -> Mapping[str, float]:
    """By pool with GPU hours that are paid for already, the share of its jobs' hours that has to be paid still."""
    hours: dict[str, float] = {}
    for option in chosen:
        if is_committed(option):
            hours[option.pool.name] = hours.get(option.pool.name, 0.0) + option.gpu_hours
    committed = {option.pool.name: option.pool.terms.committed_gpu_hours for option in chosen}
    return {name: max(0.0, used - committed[name]) / used for name, used in hours.items()}


def paid_dollars(option: Option, shares: Mapping[str, float]) -> float | None:
    """An option's money with its part of the hours that are paid for; None where it has no price."""
    if option.dollars is None or option.pool.name not in shares:
        return option.dollars
    gpu = option.gpu_hours * (option.gpu_dollars_per_hour or 0.0)
    return gpu * shares[option.pool.name] + (option.power_dollars or 0.0)


def committed_dollars(pools: Sequence[CandidatePool]) -> float:
    """What the hours cost that are paid for already, used or not."""
    return sum(pool.terms.committed_gpu_hours * (pool.terms.dollars_per_gpu_hour or 0.0) for pool in pools)


def cost(chosen: Sequence[Option]) -> float | None:
    """Dollars of these options together, after the hours that are paid for; None where one has no price."""
    shares = paid_shares(chosen)
    rows = [paid_dollars(option, shares) for option in chosen]
    dollars = [row for row in rows if row is not None]
    return sum(dollars) if len(dollars) == len(rows) else None


def energy(chosen: Sequence[Option]) -> float | None:
    """Megawatt hours of these options together; None where one is not known."""
    megawatt_hours = [option.megawatt_hours for option in chosen if option.megawatt_hours is not None]
    return sum(megawatt_hours) if len(megawatt_hours) == len(chosen) else None


class Budget(NamedTuple):
    """What all jobs together may take of one thing.

    - `name`: the field of the spec's `budget`
    - `unit` and `digits`: how sentences write its amounts
    - `total`: what choices take together; None where it is not known
    - `amount`: what one choice takes in the linear program; 0 where it is not known
    - `hour`: what a GPU hour of the choice's pool takes there, beyond those that are paid for already
    - `sizes`: a figure of all sizes that is not finite where it is not known what a size takes
    """

    name: str
    unit: str
    total: Callable[[Sequence[Option]], float | None]
    amount: Callable[[Option], float]
    digits: str = ",.0f"
    hour: Callable[[Option], float] = lambda option: 0.0
    sizes: Callable[[SizeArrays], Figures] = lambda arrays: arrays.days


DOLLARS = Budget(
    "dollars",
    "dollars",
    cost,
    dollars_beside_committed,
    hour=lambda option: option.gpu_dollars_per_hour or 0.0,
    sizes=lambda arrays: arrays.dollars,
)
GPU_HOURS = Budget(
    "gpuHours",
    "GPU hours",
    lambda chosen: sum(option.gpu_hours for option in chosen),
    lambda option: option.gpus * option.days * 24,
)
MEGAWATT_HOURS = Budget(
    "megawattHours",
    "MWh",
    energy,
    lambda option: option.megawatt_hours or 0.0,
    digits=",.3g",
    sizes=lambda arrays: arrays.energy,
)
BUDGETS = (DOLLARS, GPU_HOURS, MEGAWATT_HOURS)


def limited(terms: Terms) -> list[tuple[Budget, float]]:
    """The budgets that the plan sets, each with its limit."""
    return [(budget, terms.limits.budgets[budget.name]) for budget in BUDGETS if budget.name in terms.limits.budgets]


def budgets_used(chosen: Sequence[Option], terms: Terms) -> dict[str, float]:
    """By budget that the plan sets, the share of it that these choices take; infinite where it is not known."""
    totals = {budget.name: (budget.total(chosen), limit) for budget, limit in limited(terms)}
    return {name: math.inf if total is None else total / limit for name, (total, limit) in totals.items()}
