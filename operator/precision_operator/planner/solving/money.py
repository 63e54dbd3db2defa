"""What choices cost together, after the GPU hours that are paid for already, and the energy that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    if option.dollars is None:
        return None
    if option.pool.name not in shares:
        return option.dollars
    gpu = option.gpu_hours * (option.gpu_dollars_per_hour or 0.0)
    return gpu * shares[option.pool.name] + (option.power_dollars or 0.0)


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
