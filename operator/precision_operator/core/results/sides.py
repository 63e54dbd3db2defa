"""The two sides of a comparison: nodes with their figures, and what these were measured under."""

from dataclasses import dataclass, fields

from precision_api.facts.recipes import Recipe


@dataclass(frozen=True)
class Setting:
    """What a figure was measured under; None where that was not recorded."""

    hardware: str | None = None
    driver: str | None = None
    software: str | None = None
    workload: str | None = None
    method: str | None = None
    """Scope and backend: no rate depends on the baseline."""
    data: str | None = None
    """measured, replayed, simulated or a trial; None is unknown, and never taken for measured."""


DIMENSIONS: tuple[str, ...] = tuple(field.name for field in fields(Setting))


@dataclass(frozen=True)
class ComparedFigure:
    """One recipe on one node. `error` is the relative half-width of the rate's 95 % interval, where it is known."""

    recipe: Recipe
    rate: float
    error: float | None = None
    tokens_per_joule: float | None = None
    throttled: bool = False
    power_scope: str = ""
    layers_bf16: int | None = None
    teraflops_per_gpu: float | None = None


@dataclass(frozen=True)
class Point:
    node: str
    setting: Setting
    figures: tuple[ComparedFigure, ...]

    @property
    def throttled(self) -> bool:
        return any(figure.throttled for figure in self.figures)


@dataclass(frozen=True)
class Side:
    """One of the two. A node is in it once."""

    name: str
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    """Which nodes are not in it, and why."""


def different(a: Setting, b: Setting) -> tuple[str, ...]:
    """Dimensions in which two settings are known to differ."""
    return tuple(
        name
        for name in DIMENSIONS
        if None not in (x := getattr(a, name), y := getattr(b, name)) and not same_values(name, {x}, {y})
    )


def same_driver(a: str, b: str) -> bool:
    """Whether both name one driver. It may be told with or without its last part: labels say 580.95, NVML 580.95.05."""
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


def same_values(name: str, a: set[str], b: set[str]) -> bool:
    if name != "driver":
        return a == b
    return all(any(same_driver(x, y) for y in b) for x in a) and all(any(same_driver(x, y) for x in a) for y in b)
