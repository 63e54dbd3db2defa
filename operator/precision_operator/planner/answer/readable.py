"""How a plan's figures are written for people."""

from precision_api.facts.plain_text import three_digits
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT


def readable_watts(value: float) -> str:
    """`258 kW`, `1.25 MW`: three digits."""
    for size, unit in ((WATTS_PER_MEGAWATT, "MW"), (1e3, "kW")):
        if value >= size:
            return f"{three_digits(value / size)} {unit}"
    return f"{value:.0f} W"


def readable_days(days: float, low: float | None = None, high: float | None = None) -> str:
    """`11 days (10.5 to 11.7)`, below two days in hours, then in minutes or seconds; two digits, of bounds three."""
    size = abs(days)
    units = (2.0, "days", 1.0), (1 / 24, "hours", 24.0), (1 / 1440, "minutes", 1440.0), (0.0, "seconds", 86_400.0)
    unit, scale = next((unit, scale) for least, unit, scale in units if size >= least)
    value = days * scale
    text = f"{three_digits(round(value))} {unit}" if abs(value) >= 10 else f"{value:.2g} {unit}"
    if low is None or high is None:
        return text
    return f"{text} ({three_digits(low * scale)} to {three_digits(high * scale)})"


def readable_energy(megawatt_hours: float) -> str:
    """`12,300 MWh`, `3.07 kWh`: three digits."""
    small = abs(megawatt_hours) < 1
    return f"{three_digits(megawatt_hours * (1e3 if small else 1))} {'kWh' if small else 'MWh'}"


def readable_dollars(value: float) -> str:
    """`$1,230,000`, `-$0.0123`: three digits."""
    return f"{'-' if value < 0 else ''}${three_digits(abs(value))}"
