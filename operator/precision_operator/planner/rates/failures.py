"""What failures take of a job's time, by its size, and the spare nodes for those that are in repair.

    1 / share = M e^(R / M) (e^((t + d) / M) - 1) / t,   M = 1 / (GPUs x interruptions of a GPU hour)

(Daly 2006, exponential failures: exact where each comes independently, while work, a checkpoint or a restart goes on.)
R: restart; d: the stall of a checkpoint; t: work between two, the best one where it isn't given. Each interruption is
taken as one node's, away until its repair, and a job stops where no node is free in its place: nodes in repair are the
busy lines of Erlang's loss system (`waits`), or of M/G/infinity as long as no job stops (`spares`).
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
_TERMS, _MOST_JOBS = 500, 20.0
"""Of Erlang's sum, and alike jobs that share free nodes: beyond them stops are rarer than is said."""


def share(failures: Failures, gpus: Counts, per_gpu_hour: float) -> Values:
    """Of the time, by size."""
    mean = 1 / (per_gpu_hour * gpus.astype(np.float64))
    stall, restart = failures.stall_seconds / 3600, failures.restart_minutes / 60
    work = interval_hours(failures, gpus, per_gpu_hour)
    with np.errstate(over="ignore"):
        made = work / (mean * np.exp(restart / mean) * np.expm1((work + stall) / mean))
    return np.maximum(made, NEVER) / (1 + waits(failures, gpus, per_gpu_hour)[0])


def interval_hours(failures: Failures, gpus: Counts, per_gpu_hour: float) -> Values:
    """Of work between two checkpoints, by size: as given, else the best."""
    mean = 1 / (per_gpu_hour * gpus.astype(np.float64))
    minutes = failures.interval_minutes
    return mean * _best(failures.stall_seconds / 3600 / mean) if minutes is None else np.full(len(gpus), minutes / 60)


def waits(failures: Failures, gpus: Counts, per_gpu_hour: float) -> tuple[Values, Values, Values]:
    """By size: hours in which no node is free for one of the others, the hours of one such stop, and the variance of
    their sum over that of stops that come independently, of one length.

    In steady state: a stopped job has no failures; other jobs of the pool, assumed to be alike, go on and compete for
    the free nodes. For one job this is the Erlang B formula; the variance is Riordan's formula for overflow traffic.
    """
    repairs = failures.repairs
    if repairs is None:
        return np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(len(gpus))
    mine = -(-gpus // repairs.node_gpus)
    free, rows = np.unique(repairs.nodes - np.minimum(repairs.planned, mine + repairs.others), return_inverse=True)
    of_node = per_gpu_hour * repairs.node_gpus * repairs.hours
    load = np.clip(of_node * (repairs.nodes - free), 1e-12, 1e12)
    lost = _lost(free, load)
    spread = 3 * (1 - load * lost + load / (free + 1 + load * lost - load)) - 1
    free, load, lost, spread = free[rows], load[rows], lost[rows], spread[rows]
    jobs = np.minimum((repairs.nodes - free) / mine, _MOST_JOBS)
    chance, total, still = lost, np.ones(len(gpus)), np.zeros(len(gpus))  # that so many jobs stand still
    for number in range(1, int(_MOST_JOBS) + 1):
        chance = chance * load * np.maximum(0.0, 1 - (number - 1) / jobs) / (free + number)
        total, still = total + chance, still + np.minimum(number, jobs) * chance
    odds = still / (total * jobs - still)
    return odds, odds * repairs.hours / np.maximum(of_node * mine * lost, 1e-300), spread


def _lost(lines: Counts, load: Values) -> Values:
    """Erlang's loss formula: the share of calls that find all lines busy."""
    near = lines < load + 8 * np.sqrt(load) + 8  # else under 1e-12
    inverse, term = np.ones(near.sum()), np.ones(near.sum())
    for number in range(min(_TERMS, int(lines[near].max(initial=0)))):
        term = np.minimum(term * np.maximum(lines[near] - number, 0) / load[near], 1e200)
        inverse += term
    lost = np.zeros(len(lines))
    lost[near] = 1 / inverse
    return lost


def repair_band(failures: Failures, gpus: Counts, run_hours: Values) -> tuple[Values, Values]:
    """Ends of the 90 % band, factors on the rate, by size: chance decides how often and how long a run stops."""
    odds, stop_hours, spread = waits(failures, gpus, failures.per_gpu_hour or PER_GPU_HOUR)
    scatter = np.sqrt(spread * stop_hours * odds / (1 + odds) / run_hours)
    return np.exp(-bands.Z_95 * scatter), np.minimum(np.exp(bands.Z_95 * scatter), 1 + odds)


def _best(stall: Values) -> Values:
    """The work between two checkpoints that takes least, both over M: 1 - x = e^-(x + stall), by Newton."""
    stall = np.maximum(stall, 1e-12)
    x = np.minimum(np.sqrt(2 * stall), 1.0)
    for _ in range(_STEPS):
        late = np.exp(-x - stall)
        x = np.clip(x + (1 - x - late) / (1 - late), 1e-12, 1.0)
    return x


def progress(terms: Goodput | Failures, gpus: Counts) -> Kept:
    """The share of time in which a job makes progress, with its band."""
    if isinstance(terms, Goodput):
        half = bands.GOODPUT_PLUS_MINUS if terms.plus_minus is None else terms.plus_minus
        ends = terms.share, terms.share * (1 - half), max(terms.share, min(terms.share * (1 + half), 1.0))
        return Kept(*(np.full(len(gpus), end) for end in ends))
    return Kept(*(share(terms, gpus, rate) for rate in rates_of(terms)))


def rates_of(failures: Failures) -> tuple[float, float, float]:
    """Interruptions of a GPU hour: the middle, and the most and the least of nine in ten."""
    per_hour = failures.per_gpu_hour
    return (PER_GPU_HOUR, MOST, LEAST) if per_hour is None else (per_hour, per_hour * OWN_FACTOR, per_hour / OWN_FACTOR)


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
