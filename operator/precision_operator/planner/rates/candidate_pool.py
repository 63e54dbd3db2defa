"""A pool as plans see it: its nodes and racks, and by workload and recipe the rates that may be used."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_

import numpy as np

from precision_api.facts.products import part
from precision_api.facts.recipes import Recipe
from precision_operator.core.results.pool import median, steady
from precision_operator.planner.inputs.fleet import WorkloadFacts
from precision_operator.planner.inputs.terms import JobTerms, PoolTerms
from precision_operator.planner.rates.straggler import Rates, Straggler, quiet, stretched

STEP = 0.002
"""Rates that differ by less are of one tier,"""
MOST_TIERS = 5
"""and of more tiers an even choice is offered."""
Key = tuple[str, Recipe]
"""Workload key and recipe."""


def verdict_counts(verdicts: Counter[str]) -> str:
    """`10 verified, 2 unknown`, the most first."""
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())


@dataclass(frozen=True)
class PoolSample:
    """One recipe and workload on the nodes of one pool; rates are synchronous tokens/s of one GPU."""

    workload: WorkloadFacts
    recipe: Recipe
    names: tuple[str, ...]
    rates: Rates
    throttled: frozenset[str]
    noise: float
    """Relative standard deviation of one measurement."""
    half_width: float
    """Relative half-width of a measurement's 95 % interval, the median of all."""
    watts_per_gpu: float | None
    power_scope: str
    marks: Mapping[str, int]
    """What was let in by `allow`, with the number of nodes."""
    profiles: tuple[str, ...]
    oldest_days: float
    verdicts: Counter[str]
    """Nodes by the verdict on their precision."""
    layers_bf16: int | None = None
    step: str | None = None
    """What is special in the training step."""
    barred: bool = False
    """As in reading.RecipeRow, of any of these rates."""
    judged_slow: frozenset[str] = frozenset()
    """Nodes that core/outliers calls slow: the decision of kubectl and the alerts, one for all recipes of a node."""

    @cached_property
    def reference(self) -> float:
        """Median of the nodes that were not throttled."""
        nodes = list(zip(self.names, self.rates.tolist(), strict=True))
        rates = [rate for _, rate in steady(nodes, lambda node: node[0] in self.throttled)]
        return median(rates) or 0.0

    @cached_property
    def quiet(self) -> Rates:
        """All rates, ascending, without measurement noise."""
        return quiet(self.rates, self.noise)

    @cached_property
    def factors(self) -> dict[tuple[int, int, int], Straggler]:
        """Stragglers that were worked out, by nodes of the pool, nodes of the job, and placement."""
        return {}

    @cached_property
    def slow(self) -> frozenset[str]:
        """Nodes that are slow or throttled."""
        return self.throttled | self.judged_slow


@dataclass(frozen=True, slots=True)
class Cell:
    """GPUs of a pool that stand together: a rack, or nodes of about the same speed."""

    name: str
    gpus: int
    fastest: int = 0
    """They are among so many fastest nodes of the pool; 0 where nobody places jobs by speed."""
    rack: bool = False


@dataclass(frozen=True)
class CandidatePool:
    """One pool that jobs may be given."""

    name: str
    product: str
    gpus_per_node: int
    nodes: int
    limit_watts_per_gpu: float | None
    samples: Mapping[Key, PoolSample]
    terms: PoolTerms
    fastest: bool = False
    """Whether somebody places jobs on the fastest nodes."""
    counted: int = 0
    """Nodes with a usable figure of any recipe; of `nodes` the others are assumed to be like them."""
    spares: int = 0
    """Nodes beside `nodes` that are kept for those in repair."""
    racks: Mapping[str, int] = field(default_factory=dict)
    """Nodes by rack or NVLink domain, where labels name it."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Results (node and recipe) that were refused, by why."""
    refused_recipes: frozenset[Recipe] = frozenset()
    """Recipes of which a result was refused: they were tried here, so nothing is predicted of them."""
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs to plan with."""
        return self.nodes * self.gpus_per_node

    @property
    def sold_as(self) -> str:
        """The product, by the name that it has in published rows."""
        gpu = part(self.product)
        return gpu.product if gpu else self.product

    @cached_property
    def tiers(self) -> tuple[int, ...]:
        """Numbers of fastest nodes that jobs may be placed on: at each step in the rates, and all that were measured.

        Which of the nodes that nobody measured are fast is not known: they are in the last tier, with all nodes.
        """
        steps, whole = {self.nodes}, {self.nodes}
        for sample in self.samples.values():
            ordered = self.fastest_first(sample)
            steps |= {int(place) + 1 for place in np.flatnonzero(ordered[1:] < ordered[:-1] * (1 - STEP))}
            whole.add(len(ordered))
        between = sorted(steps - whole)
        return tuple(sorted({*between[:: max(1, -(-len(between) // MOST_TIERS))], *whole}))

    def fastest_first(self, sample: PoolSample) -> Rates:
        """Rates of the nodes of which they are known, fastest first; those that a question adds are like the others."""
        if self.unmeasured(sample):
            return sample.quiet[::-1]
        return stretched(sample.quiet, max(self.nodes, len(sample.quiet)))[::-1][: self.nodes]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """How the pool is divided for the schedule: by speed, by rack, or not at all."""
        node = self.gpus_per_node
        if self.fastest:
            before = (0, *self.tiers[:-1])
            return tuple(Cell(f"fastest {n}", (n - b) * node, n) for b, n in zip(before, self.tiers, strict=True))
        racks = [Cell(name, nodes * node, rack=True) for name, nodes in sorted(self.racks.items())]
        others = self.nodes - sum(self.racks.values())
        return (*racks, *([Cell("no rack", others * node)] if racks and others > 0 else []))

    def usable(self, sample: PoolSample) -> int:
        """Nodes with a usable figure of this recipe; nodes that are only planned count in the share that has one."""
        return self.nodes * len(sample.rates) // max(self.counted, len(sample.rates), 1)

    def unmeasured(self, sample: PoolSample) -> int:
        """Nodes without a figure of this sample; those that a question adds are like the others and don't count."""
        return max(0, self.nodes - self.terms.more_nodes - len(sample.rates))

    @cached_property
    def slow(self) -> frozenset[str]:
        """Nodes that are slow or throttled with any recipe."""
        return frozenset[str]().union(*(sample.slow for sample in self.samples.values()))

    @cached_property
    def marks(self) -> Mapping[str, int]:
        """What is doubtful about the pool's figures, with the largest number of nodes of any recipe."""
        largest = reduce(or_, (Counter(sample.marks) for sample in self.samples.values()), Counter[str]())
        return dict(sorted(largest.items()))


def may_use(job: JobTerms, pool: CandidatePool) -> bool:
    if job.running is not None:
        return job.running.pool == pool.name
    return not job.pools or bool(job.pools & {pool.name, pool.product})
