"""Of a pool in which only some nodes were measured: how often a job's band holds, and how wide it is.

    python -m benchmarks.sampled_pool

Simulated: 1,000 nodes, 1 % of them at 0.8, a measurement's deviation of 1 %, jobs of 256 nodes drawn at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from precision_operator.planner.rates.bands import Z_95, BandPart, combined, plus_minus
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


def band(measured: Rates, chosen: int = CHOSEN) -> tuple[float, float, float]:
    """(low, promised, high) of a job's rate over a usual node's, the measurement's own band in it."""
    known = quiet(measured, NOISE)
    usual = float(np.median(known))
    nodes = np.array([chosen])
    laws = stragglers(known, usual, nodes) if len(known) == NODES else sampled(known, usual, NODES, nodes)
    found = laws.at(0)
    factors = tuple(value / found.days for value in found.values)
    law = BandPart("slow nodes", found.low / found.days, found.high / found.days, values=factors)
    made = combined([law, plus_minus("measurement", NOISE * Z_95)])
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


def main() -> None:
    """Prints one row for each number of measured nodes."""
    print("measured  in the band  promised  from   to")
    for measured in MEASURED:
        found = simulated(measured)
        print(f"{measured:8}  {found.held:11.0%}  {found.promised:8.0%}  {found.low:.2f}  {found.high:.2f}")


if __name__ == "__main__":
    main()
