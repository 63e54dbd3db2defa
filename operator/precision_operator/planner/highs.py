"""One run of HiGHS over a program, within the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

from precision_operator.planner.program import Constraint, Program, Vector
from precision_operator.planner.quantities import Problem, Unusable

NARROW = "narrow the choice with jobs[].pools, jobs[].recipes, jobs[].minGPUs and maxGPUs"


class NotKnown(Unusable):
    """No plan was found, and that there is none is not proved."""

    phase: ClassVar[Literal["TimedOut", "NotFound"]]
    """What the status then says."""


class NoneFound(NotKnown):
    """The search ended before its time without a plan."""

    phase = "NotFound"


class OutOfTime(NotKnown):
    """HiGHS found no plan at all within its time."""

    phase = "TimedOut"

    def __init__(self, seconds: float) -> None:
        text = f"no answer within {seconds:g} s: raise it, or {NARROW}"
        super().__init__(Problem("spec.solver.timeLimitSeconds", text))


def run(
    program: Program, wanted: Vector, gap: float, until: float, further: Sequence[Constraint] = (), whole: bool = True
) -> tuple[Vector, float, bool] | None:
    """(columns, lower bound, whether time ran out) of one run of HiGHS; None where it is proved that nothing holds.

    Not `whole`: the linear relaxation.

    `wanted` may be longer than the program is wide: further rows bring continuous columns of their own. The
    program is built and solved before `until` (time.monotonic()), or it raises OutOfTime; NoneFound where HiGHS fails.
    """
    matrix, low, high = program.matrix(further)
    width = max(matrix.shape[1], len(wanted))
    if matrix.shape[1] < width:
        matrix.resize((matrix.shape[0], width))
    integrality = np.concatenate([program.integrality, np.zeros(width - program.width)])
    left = until - time.monotonic()
    if left <= 0:
        raise OutOfTime(program.terms.seconds)
    answer = milp(
        np.concatenate([wanted, np.zeros(width - len(wanted))]),
        integrality=integrality if whole else np.zeros(width),
        bounds=Bounds(np.zeros(width), np.where(integrality > 0, 1.0, np.inf)),
        constraints=LinearConstraint(matrix, low, high),
        options={"time_limit": left, "mip_rel_gap": gap, "presolve": True},
    )
    if answer.x is None and answer.status == 1:
        raise OutOfTime(program.terms.seconds)
    # Status 2 is told of programs that HiGHS can't read, too.
    if answer.x is None and answer.status == 2 and "infeasible" in answer.message:
        return None
    if answer.x is None:
        text = f"the solver failed, so whether there is a plan is not known ({answer.message}): {NARROW}"
        raise NoneFound(Problem("spec", text))
    bound = answer.mip_dual_bound
    known = bound is not None and math.isfinite(bound)
    return np.asarray(answer.x), float(bound) if known else -math.inf, answer.status == 1


def share(until: float, parts: int) -> float:
    """When the first of so many equal parts of the time that is left ends (time.monotonic())."""
    now = time.monotonic()
    return now + max(until - now, 0.0) / parts
