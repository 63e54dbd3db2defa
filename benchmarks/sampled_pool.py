"""Of a pool in which only some nodes were measured: how often a job's band holds, and how wide it is.

    python -m benchmarks.sampled_pool

Simulated: 1,000 nodes, 1 % of them at 0.8, a measurement's deviation of 1 %, jobs of 256 nodes drawn at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from precision_operator.planner.rates.bands import Z_95, BandPart, combined
from precision_operator.planner.rates.straggler import Rates, quiet, sampled, stragglers

NODES, CHOSEN, SLOW, SLOW_RATE, NOISE = 1_000, 256, 10, 0.8, 0.01
MEASURED = (40, 100, 300, 1_000)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Shares of jobs within the band and at or above what is promised; mean ends of the band over a usual node."""

    held: float
    promised: float
    low: float
    high: float


def band(measured: Rates, chosen: int = CHOSEN, nodes_of_pool: int = NODES) -> tuple[float, float, float]:
    """(low, promised, high) of a job's rate over a usual node's, the measurement's own band in it."""
    known = quiet(measured, NOISE)
    usual = float(np.median(known))
    nodes = np.array([chosen])
    laws = (
        stragglers(known, usual, nodes) if len(known) == nodes_of_pool else sampled(known, usual, nodes_of_pool, nodes)
    )
    found = laws.at(0)
    factors = tuple(value / found.days for value in found.values)
    law = BandPart("slow nodes", found.low / found.days, found.high / found.days, values=factors)
    made = combined([law, BandPart("measurement", 1 - NOISE * Z_95, 1 + NOISE * Z_95)])
    return found.days * made.low, found.days * made.promised, found.days * made.high


def simulated(measured: int, pools: int = 250) -> Simulated:
    """Over so many pools, each with its own sample and one job; one seed."""
    rng = np.random.default_rng(measured)
    rows: list[Sequence[float]] = []
    for _ in range(pools):
        truth = np.ones(NODES)
        truth[:SLOW] = SLOW_RATE
        rng.shuffle(truth)
        low, promised, high = band(truth[:measured] * rng.normal(1, NOISE, measured))
        real = rng.choice(truth, CHOSEN, replace=False).min()
        rows.append((low <= real <= high, real >= promised, low, high))
    return Simulated(*map(float, np.mean(rows, axis=0)))


def kept(
    share: float, rates: tuple[float, float], chosen: int, nodes: int = 200, measured: int = 50, pools: int = 400
) -> float:
    """How often what is promised is reached where a share of the nodes runs at a rate evenly between `rates`."""
    rng, reached = np.random.default_rng(chosen), 0
    for _ in range(pools):
        truth = np.ones(nodes)
        truth[: round(share * nodes)] = rng.uniform(*rates, round(share * nodes))
        rng.shuffle(truth)
        _, promised, _ = band(truth[:measured] * rng.normal(1, NOISE, measured), chosen, nodes)
        reached += bool(rng.choice(truth, chosen, replace=False).min() >= promised)
    return reached / pools


def main() -> None:
    """Prints one row for each number of measured nodes, then how often promises are kept beyond the prior."""
    print("measured  in the band  promised  from   to")
    for measured in MEASURED:
        found = simulated(measured)
        print(f"{measured:8}  {found.held:11.0%}  {found.promised:8.0%}  {found.low:.2f}  {found.high:.2f}")
    print("\n50 of 200 nodes measured: how often jobs of 4, 25, 100 nodes reach what is promised nine times in ten")
    for share in (0.05, 0.10, 0.20, 0.35):
        for rates in ((0.65, 0.95), (0.8, 0.8), (0.65, 0.65), (0.5, 0.5)):
            row = " ".join(f"{kept(share, rates, chosen):.0%}" for chosen in (4, 25, 100))
            print(f"{share:.0%} of the nodes at {rates[0]:.2f} to {rates[1]:.2f}: {row}")


if __name__ == "__main__":
    main()
