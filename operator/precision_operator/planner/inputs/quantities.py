"""What a user writes as text, as numbers: counts, powers, shares, times. Nothing that is not finite comes out."""

import math
from dataclasses import dataclass
from datetime import datetime

from precision_operator.core.observe.clock import parse_time

COUNT_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
POWER_UNITS = {"MW": 1e6, "kW": 1e3, "W": 1.0}
SECONDS_PER_DAY = 86_400.0
WATTS_PER_MEGAWATT = 1e6


@dataclass(frozen=True, slots=True)
class InputProblem:
    """Something that keeps a plan from being made: the field, what is wrong with it, and what to do."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class UnusableInput(ValueError):
    """The inputs make no plan; `problems` says why, each with its field and a remedy."""

    def __init__(self, *problems: InputProblem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def unusable(field: str, message: str) -> UnusableInput:
    """To be raised for one problem."""
    return UnusableInput(InputProblem(field, message))


def require(holds: bool, field: str, message: str) -> None:
    """Raises UnusableInput with this problem unless it holds."""
    if not holds:
        raise unusable(field, message)


def count(text: str, field: str) -> float:
    """`15T` as 1.5e13; more than zero. Raises UnusableInput for anything else, a missing unit among it."""
    unit = COUNT_UNITS.get(text[-1:])
    if unit is None:
        raise unusable(field, f"{text!r} has no unit: write a number and K, M, B or T, for example 15T")
    return positive(text[:-1], field) * unit


def power(text: str, field: str) -> float:
    """`2.5MW` in watts; more than zero. Raises UnusableInput for anything else, a missing unit among it."""
    for name, unit in POWER_UNITS.items():
        if text.endswith(name):
            return positive(text[: -len(name)], field) * unit
    raise unusable(field, f"{text!r} has no unit: write a number and W, kW or MW, for example 2.5MW")


def positive(text: str, field: str, remedy: str = "give a number above 0, or leave the field out") -> float:
    """A finite number above zero. Raises UnusableInput for anything else: zero, negative, NaN, infinite, no number."""
    try:
        value = float(text)
    except ValueError:
        raise unusable(field, f"{text!r} is no number: {remedy}") from None
    require(math.isfinite(value) and value > 0, field, f"{text} is not above 0: {remedy}")
    return value


def share(text: str, field: str) -> float:
    """A share above 0 and at most 1. Raises UnusableInput for anything else."""
    value = positive(text, field, "give a share above 0 and up to 1")
    require(value <= 1, field, f"{text} is above 1: give a share, for example 0.95")
    return value


def age(days: float) -> str:
    """How old something is, in the largest unit of which it is at least one: `40 s`, `1 min`, `3 h`, `12 days`."""
    seconds = max(0.0, days * SECONDS_PER_DAY)
    for unit, length in (("days", SECONDS_PER_DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            count = math.floor(seconds / length)
            return "1 day" if (count, unit) == (1, "days") else f"{count} {unit}"
    return f"{math.floor(seconds)} s"


def moment(text: str, field: str) -> datetime:
    """A time. Raises UnusableInput for what is none."""
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise unusable(field, f"{text!r} is no time: write RFC 3339, for example 2027-01-31T00:00:00Z") from None
