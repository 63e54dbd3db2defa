"""What a profile's status takes from each measured node's report, read once for the same report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from precision_api.recipes import Recipe
from precision_api.report import RecipeReport, ReportStatus
from precision_operator.core.nodes import NodeFacts
from precision_operator.core.observed_once import Once
from precision_operator.core.outliers import Comparable, Measured, best_of, comparable, fell_back
from precision_operator.core.stands import ProfilePlan


@dataclass(frozen=True, slots=True)
class Figures:
    """One recipe's figures as numbers; None where there is none."""

    speedup: float | None
    tokens_per_second: float | None
    tokens_per_joule: float | None
    watts: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One node with a result of the current run."""

    pool: str
    """Where the node stands now."""
    comparable: Comparable
    best_by_energy: Recipe | None
    figures: Mapping[Recipe, Figures]
    fell_back: bool
    data: str | None
    finished_at: str | None

    @property
    def best(self) -> Recipe | None:
        return self.comparable.best

    @property
    def throttled(self) -> bool:
        return self.comparable.throttled


_READINGS: Once[Reading] = Once()


def readings(plan: ProfilePlan) -> tuple[Reading, ...]:
    """The profile's nodes with a result of this run, in the plan's order."""
    found = ((stand.facts, stand.report) for stand in plan.stands if stand.state == "succeeded")
    return tuple(
        _reading(plan.profile.uid, facts, report.status)
        for facts, report in found
        if report is not None and report.status is not None
    )


def _reading(profile_uid: str, facts: NodeFacts, status: ReportStatus) -> Reading:
    node = Measured(facts.name, facts.pool, status)
    return _READINGS.of((profile_uid, facts.uid), (facts, status), lambda: read(node))


def read(node: Measured) -> Reading:
    """What is taken from one report."""
    status = node.status
    by_energy = best_of(status.results, "tokens_per_joule")
    return Reading(
        pool=node.pool,
        comparable=comparable(node),
        best_by_energy=by_energy.recipe if by_energy is not None else None,
        figures={row.recipe: _figures(row) for row in reversed(status.results)},
        fell_back=fell_back(status),
        data=status.data,
        finished_at=status.run.finished_at if status.run is not None else None,
    )


def _figures(row: RecipeReport) -> Figures:
    texts = (row.speedup, row.tokens_per_second, row.tokens_per_joule, row.watts)
    return Figures(*(float(text) if text is not None else None for text in texts))
