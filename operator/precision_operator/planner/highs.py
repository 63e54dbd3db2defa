"""One run of HiGHS over a program, within the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

from precision_operator.planner.program import Program, Row, Vector
from precision_operator.planner.quantities import Problem, Unusable


class OutOfTime(Unusable):
    """HiGHS found no plan at all within its time; whether there is one is not known."""

    def __init__(self, seconds: float) -> None:
        text = (
            f"no answer within {seconds:g} s: raise it, or narrow the choice with jobs[].pools, jobs[].recipes, "
            "jobs[].minGPUs and maxGPUs"
        )
        super().__init__(Problem("spec.solver.timeLimitSeconds", text))


def run(
    program: Program, wanted: Vector, gap: float, until: float, further: Sequence[Row] = (), whole: bool = True
) -> tuple[Vector, float, bool] | None:
    """(columns, lower bound, whether time ran out) of one run of HiGHS; None where there is no solution.

    Not `whole`: the linear relaxation.

    `wanted` may be longer than the program is wide: further rows bring continuous columns of their own. The
    program is built and solved before `until` (time.monotonic()), or it raises OutOfTime.
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
    if answer.x is None:
        return None
    bound = answer.mip_dual_bound
    known = bound is not None and math.isfinite(bound)
    return np.asarray(answer.x), float(bound) if known else -math.inf, answer.status == 1
