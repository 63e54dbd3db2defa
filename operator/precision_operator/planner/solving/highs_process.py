"""HiGHS in a process of its own: models come in through a pipe, each better solution goes out as soon as it is found.

Whoever ends this process loses the proof, and keeps the last solution. Its memory is bounded: a program that needs more
ends the process, not the operator.
"""

import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Integers = NDArray[np.int32]
MEMORY_BYTES = 3 << 29
"""Address space of the process (1.5 GiB): Python, numpy and HiGHS take 0.5 of it before a model is there."""
READY = "ready"


@dataclass(frozen=True, slots=True)
class Model:
    """Least cost x >= 0 with low <= A x <= high; A by rows. `whole` columns are 0 or 1."""

    cost: Vector
    upper: Vector
    whole: Integers
    """Places of the columns that are 0 or 1; empty for a linear program."""
    low: Vector
    high: Vector
    starts: Integers
    columns: Integers
    values: Vector
    gap: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Solved:
    """One answer: a better solution on the way, or the last word."""

    state: Literal["better", "optimal", "limit", "infeasible", "failed"]
    x: Vector | None = None
    bound: float = -np.inf
    """Proved: no solution costs less."""
    duals: Vector | None = None
    """By row, of a linear program."""
    text: str = ""


def serve(pipe: Connection, parent: Connection) -> None:
    """Answer models until the other end is closed."""
    parent.close()  # a copy of the parent's end would keep this process alive when the parent dies
    if sys.platform == "linux":  # elsewhere this limit is refused or means something else
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import highspy

    while True:
        try:
            model = next_model(pipe)
        except (EOFError, OSError):
            return
        try:
            pipe.send(_answer(highspy, model, pipe))
        except MemoryError:
            pipe.send(Solved("failed", text="the solver's process has no memory left"))


def next_model(pipe: Connection) -> Model:
    """Says that it is there when it is asked, then waits for the model. Raises EOFError where the other end is closed.

    A model is larger than a pipe holds: who sends one to a process that does not read waits for ever.
    """
    pipe.recv()
    pipe.send(READY)
    model: Model = pipe.recv()
    return model


def _answer(highspy: Any, model: Model, pipe: Connection) -> Solved:
    solver = highspy.Highs()
    solver.silent()
    options = {"threads": 1, "time_limit": model.seconds, "mip_rel_gap": model.gap, "random_seed": 0}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_program(highspy, model))
    if len(model.whole):
        solver.cbMipImprovingSolution.subscribe(lambda event: pipe.send(_better(event)))
    solver.run()
    return _last(highspy, solver, model)


def _better(event: Any) -> Solved:
    out = event.data_out
    return Solved("better", np.array(out.mip_solution), float(out.mip_dual_bound))


def _program(highspy: Any, model: Model) -> Any:
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(model.cost), len(model.low)
    program.col_cost_, program.col_lower_ = model.cost, np.zeros(len(model.cost))
    program.col_upper_ = model.upper
    program.row_lower_, program.row_upper_ = model.low, model.high
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = model.starts
    program.a_matrix_.index_ = model.columns
    program.a_matrix_.value_ = model.values
    if len(model.whole):
        kinds = [highspy.HighsVarType.kContinuous] * len(model.cost)
        for place in model.whole:
            kinds[place] = highspy.HighsVarType.kInteger
        program.integrality_ = kinds
    return program


def _last(highspy: Any, solver: Any, model: Model) -> Solved:
    status, solution, info = solver.getModelStatus(), solver.getSolution(), solver.getInfo()
    kinds = highspy.HighsModelStatus
    x = np.array(solution.col_value) if solution.value_valid and len(solution.col_value) else None
    if status == kinds.kOptimal:
        mixed = len(model.whole) > 0
        bound = info.mip_dual_bound if mixed else info.objective_function_value
        return Solved("optimal", x, float(bound), None if mixed else np.array(solution.row_dual))
    if status == kinds.kInfeasible:
        return Solved("infeasible")
    if status == kinds.kTimeLimit:
        if not len(model.whole):
            return Solved("limit")
        return Solved("limit", x if info.primal_solution_status == 2 else None, float(info.mip_dual_bound))
    return Solved("failed", text=solver.modelStatusToString(status))
