"""The only medians and quantiles over nodes, and the one choice of the nodes that they are of.

Of a pool's readings those count that were measured, where any was; of these, those that hold; of these, those of the
workload, scope and baseline that most nodes have. Of a recipe's usable rows throttled ones stay out. Where nothing
would be left, the choice is not made: an old or a throttled figure, marked as such, says more than none.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, TypeVar, get_args

from precision_api.exchange.request import step_marks
from precision_api.exchange.stats import percentile
from precision_api.facts.names import grouped
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import decimal
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.results.intervals import Spread, median_spread
from precision_operator.core.results.reading import MedianGroup, Reading, RecipeRow

T = TypeVar("T")
PoolFigure = Literal["teraflops_per_gpu", "tokens_per_second", "speedup", "gemm_autocast", "tokens_per_joule", "watts"]
ENERGY: frozenset[PoolFigure] = frozenset({"tokens_per_joule", "watts"})


_THROTTLED: Callable[[RecipeRow], bool] = attrgetter("throttled")
_SPOILED: Mapping[PoolFigure, Callable[[RecipeRow], bool]] = dict.fromkeys(
    ("speedup", "gemm_autocast"), attrgetter("speedup_throttled")
)


def median(values: Iterable[float]) -> float | None:
    """The median; None for no values."""
    ordered = list(values)
    return statistics.median(ordered) if ordered else None


def quantile(values: Iterable[float], share: float) -> float | None:
    """The `share` quantile (0 to 1); None for no values."""
    ordered = list(values)
    return percentile(ordered, share) if ordered else None


def main_group(finished: Mapping[MedianGroup, Sequence[float]]) -> MedianGroup | None:
    """The group that a pool's medians are of, from when each group's runs ended (seconds, ascending).

    Measured groups come first, then those that hold, then the largest, then the one with the newest run.
    """

    def rank(group: MedianGroup) -> tuple[bool, bool, int, float, MedianGroup]:
        return group.data == "measured", group.holds, len(finished[group]), finished[group][-1], group

    return max(finished, key=rank, default=None)


def finished_seconds(reading: Reading) -> float:
    """When the reading's run ended, seconds since 1970; 0 without a result or a time that can be read."""
    try:
        return parse_time(reading.finished_at).timestamp() if reading.finished_at else 0.0
    except ValueError:
        return 0.0


def population(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    """The readings of one pool that its medians are of, in the same order."""
    readings = tuple(reading for reading in readings if reading.finished_at is not None)
    finished = grouped((reading.group, finished_seconds(reading)) for reading in readings)
    main = main_group({group: sorted(times) for group, times in finished.items()})
    return tuple(reading for reading in readings if reading.group == main)


def steady(rows: Sequence[T], is_throttled: Callable[[T], bool]) -> Sequence[T]:
    """The rows that were not throttled; all of them where there are no others."""
    return [row for row in rows if not is_throttled(row)] or rows


def of_one_scope(rows: Sequence[T], scope_of: Callable[[T], str]) -> Sequence[T]:
    """Rows whose watts are of the same thing (GPUs or whole modules): of what most of them are."""
    counts = Counter(map(scope_of, rows))
    scope = max(counts, key=lambda name: (counts[name], name), default="")
    return [row for row in rows if scope_of(row) == scope]


def _voted(recipes: Iterable[Recipe | None]) -> Recipe | None:
    return most_voted(Counter(recipe for recipe in recipes if recipe is not None))


def most_voted(votes: Counter[Recipe]) -> Recipe | None:
    """The one with the most votes, of equal ones the first by name; None without any."""
    return min(votes, key=lambda recipe: (-votes[recipe], recipe), default=None)


def _behind(figure: PoolFigure, usable: Sequence[RecipeRow]) -> Sequence[RecipeRow]:
    rows = [row for row in steady(usable, _SPOILED.get(figure, _THROTTLED)) if getattr(row, figure) is not None]
    return of_one_scope(rows, attrgetter("power_scope")) if figure in ENERGY else rows


@dataclass(frozen=True)
class Pool:
    """The nodes of one pool; what is asked of it is asked of its population."""

    readings: tuple[Reading, ...]

    @cached_property
    def population(self) -> tuple[Reading, ...]:
        return population(self.readings)

    @cached_property
    def best(self) -> Recipe | None:
        """The recipe that is fastest on most nodes; ties go to the first by name."""
        return _voted(reading.marks.best for reading in self.population)

    @cached_property
    def best_by_energy(self) -> Recipe | None:
        return _voted(reading.marks.best_by_energy for reading in self.population)

    def layers_bf16(self, recipe: Recipe | None) -> int | None:
        """The last layers that stay in BF16 on the first node whose result says so: one workload has one number."""
        listed = (layers for reading in self.population for name, layers in reading.marks.listed if name == recipe)
        return next((layers for layers in listed if layers is not None), None)

    def usable(self, recipe: Recipe) -> list[RecipeRow]:
        """The recipe's rows whose figures may be used."""
        return [row for reading in self.population if (row := reading.rows.get(recipe)) is not None and row.usable]

    def steady(self, figure: PoolFigure, recipe: Recipe) -> Sequence[RecipeRow]:
        """Usable rows whose figure throttling has not spoiled, or all of them; some may lack the figure."""
        return steady(self.usable(recipe), _SPOILED.get(figure, _THROTTLED))

    def rows(self, figure: PoolFigure, recipe: Recipe) -> Sequence[RecipeRow]:
        """The rows behind the figure's median."""
        return _behind(figure, self.usable(recipe))

    def spread(self, figure: PoolFigure, recipe: Recipe) -> Spread | None:
        """Of one node: with its own interval. Of several: the median, with its interval over nodes."""
        rows = self.rows(figure, recipe)
        if len(rows) != 1:
            return median_spread([getattr(row, figure) for row in rows]) if rows else None
        source = next(reading for reading in self.population if reading.rows.get(recipe) == rows[0])
        value, ends = getattr(rows[0], figure), source.intervals(recipe).get(figure)
        return Spread(value, ends.lower, ends.upper, 1, "interval") if ends else Spread(value, value, value, 1, "point")

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Its figures as a profile's status shows them."""
        best = self.best
        rows = self.usable(best) if best is not None else []
        values = {of: [float(getattr(row, of)) for row in _behind(of, rows)] for of in get_args(PoolFigure)}
        return {
            "nodes": len(self.readings),
            "best_recipe": best,
            "best_recipe_by_energy": self.best_by_energy,
            "last_layers_bf16": self.layers_bf16(best),
            "baseline": next((of for it in self.population if (of := it.group.baseline) != "bf16"), None),
            "step": step_marks(best, self.population[0].timing) if best else None,
            "speedup": decimal(median(values["speedup"])),
            "teraflops_per_gpu": decimal(median(values["teraflops_per_gpu"])),
            "tokens_per_second": decimal(median(values["tokens_per_second"])),
            "tokens_per_joule_p10": decimal(quantile(values["tokens_per_joule"], 0.1)),
            "tokens_per_joule": decimal(median(values["tokens_per_joule"])),
            "tokens_per_joule_p90": decimal(quantile(values["tokens_per_joule"], 0.9)),
            "watts": decimal(median(values["watts"])),
            "fallback_nodes": sum(bool(reading.marks.fallen_back) for reading in self.readings),
            "throttled_nodes": sum(reading.marks.throttled for reading in self.readings),
            "simulated": any(reading.made_up for reading in self.readings),
        }

    def median(self, figure: PoolFigure, recipe: Recipe | None) -> float | None:
        """The figure of the pool; None where no node has it."""
        return median(getattr(row, figure) for row in self.rows(figure, recipe)) if recipe is not None else None
