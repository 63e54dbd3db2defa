"""What failures take of a job's time, by its size, and the spare nodes for those that are in repair.

    1 / share = M e^(R / M) (e^((t + d) / M) - 1) / t,   M = 1 / (GPUs x interruptions of a GPU hour)

(Daly 2006, exponential failures: exact where each comes independently, while work, a checkpoint or a restart goes on.)
R: restart; d: the stall of a checkpoint; t: work between two, the best one where it isn't given. Where a job takes all
nodes and there is no spare, the share is divided by 1 + repair / M: no node fails while the job waits for one.

Nodes in repair are Poisson where nodes fail independently (M/G/infinity), each interruption taken as one node's.
"""

import math

import numpy as np

from precision_operator.planner.inputs.terms import Failures, Goodput
from precision_operator.planner.rates import bands
from precision_operator.planner.rates.size_law import Kept, Values
from precision_operator.planner.rates.straggler import Counts

PER_GPU_HOUR, LEAST, MOST = 4e-5, 1.2e-5, 1.3e-4
"""Interruptions of a GPU hour, nine in ten between the last two; SOURCES."""
SOURCES = (
    "Llama 3 405B on 16,384 H100 2e-5 (arXiv 2407.21783), Meta's research clusters of A100 1.2e-5 and 3.4e-5, their "
    "jobs of 1,024 GPUs 1.2e-4 (2410.21680), OPT-175B on 992 A100 1.3e-4, 504 B200 1.5e-5 (2605.09370)"
)
OWN_FACTOR = 1.5  # either way of a rate that a user gives: what a run's count of events tells of the next run's
RUN_DAYS, WAITS = 30.0, 0.1
"""A run of so many days waits for a node with less than this chance."""
_STEPS, NEVER = 40, 1e-9


def share(failures: Failures, gpus: Counts, per_gpu_hour: float) -> Values:
    """Of the time, by size."""
    mean = 1 / (per_gpu_hour * gpus.astype(np.float64))
    stall, restart = failures.stall_seconds / 3600, failures.restart_minutes / 60
    work = mean * _best(stall / mean) if failures.interval_minutes is None else failures.interval_minutes / 60
    with np.errstate(over="ignore"):
        made = work / (mean * np.exp(restart / mean) * np.expm1((work + stall) / mean))
    return np.maximum(made, NEVER) / (1 + _repair(failures, gpus) / mean)


def _repair(failures: Failures, gpus: Counts) -> Values:
    """Hours that an interruption stops the job until the node is back, by size."""
    return np.where(gpus > failures.all_but, failures.repair_hours, 0.0)


def repair_band(failures: Failures, gpus: Counts, run_hours: Values) -> tuple[Values, Values]:
    """Ends of the 90 % band, factors on the rate: the number of stops is Poisson, repairs are exponential; by size."""
    ratio = _repair(failures, gpus) * (failures.per_gpu_hour or PER_GPU_HOUR) * gpus
    scatter = np.sqrt(2 * _repair(failures, gpus) * ratio / (1 + ratio) / run_hours)
    return np.exp(-bands.Z_95 * scatter), np.minimum(np.exp(bands.Z_95 * scatter), 1 + ratio)


def _best(stall: Values) -> Values:
    """The work between two checkpoints that takes least, both over M: 1 - x = e^-(x + stall), by Newton."""
    x = np.minimum(np.sqrt(2 * stall), 1.0)
    for _ in range(_STEPS):
        late = np.exp(-x - stall)
        x = np.clip(x + (1 - x - late) / (1 - late), 1e-12, 1.0)
    return x


def progress(terms: Goodput | Failures, gpus: Counts) -> Kept:
    """The share of time in which a job makes progress, with its band."""
    if isinstance(terms, Goodput):
        part = bands.goodput_part(terms.share, terms.plus_minus, "")
        return Kept(*(np.full(len(gpus), terms.share * factor) for factor in (1.0, part.low, part.high)))
    own = terms.per_gpu_hour
    rates = (PER_GPU_HOUR, MOST, LEAST) if own is None else (own, own * OWN_FACTOR, own / OWN_FACTOR)
    return Kept(*(share(terms, gpus, rate) for rate in rates))


def spares(failures: Failures, nodes: int, gpus_per_node: int, repair_days: float) -> int:
    """The fewest nodes with which a run on all the others waits for one less often than WAITS."""
    per_day = (failures.per_gpu_hour or PER_GPU_HOUR) * 24 * gpus_per_node * nodes
    mean, below = per_day * repair_days, 0.0
    for number in range(nodes):
        chance = math.exp(number * math.log(mean) - mean - math.lgamma(number + 1))  # that so many are in repair
        below += chance
        if 1 - below * math.exp(-per_day * RUN_DAYS * chance) < WAITS and number >= mean - 1:
            return number
    return max(0, nodes - 1)
