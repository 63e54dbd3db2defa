"""Linear and mixed-integer programs, solved by ortools on one core within the time that is left."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Integers = NDArray[np.int32]


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
    """What came of it; `limit`: the time ended the proof, with or without a solution."""

    state: Literal["optimal", "limit", "infeasible", "failed"]
    x: Vector | None = None
    bound: float = -np.inf
    """Proved: no solution costs less."""
    duals: Vector | None = None
    """By row, of a linear program."""
    text: str = ""


def run(model: Model) -> Solved:
    """One model: GLOP for linear programs, HiGHS where columns are whole; the same answer each time."""
    from ortools.math_opt import callback_pb2, model_parameters_pb2, parameters_pb2  # only here: they take time to load
    from ortools.math_opt.core.python import solver

    mixed = len(model.whole) > 0
    asked = parameters_pb2.SolveParametersProto(random_seed=0)
    asked.time_limit.FromNanoseconds(int(max(model.seconds, 0.001) * 1e9))
    if mixed:
        asked.relative_gap_tolerance = model.gap
        asked.highs.string_options["parallel"] = "off"
    kind = parameters_pb2.SOLVER_TYPE_HIGHS if mixed else parameters_pb2.SOLVER_TYPE_GLOP
    first, rest = parameters_pb2.SolverInitializerProto(), model_parameters_pb2.ModelSolveParametersProto()
    none = callback_pb2.CallbackRegistrationProto()
    try:
        answer = solver.solve(_program(model), kind, first, asked, rest, None, none, None, None)
    except Exception as error:  # ortools' StatusNotOk has no name to import: whatever it refuses has proved nothing
        return Solved("failed", text=str(error))
    return _last(answer, model, mixed)


def _program(model: Model) -> Any:
    from ortools.math_opt import model_pb2

    program, width, many = model_pb2.ModelProto(), len(model.cost), len(model.low)
    variables, rows, matrix = program.variables, program.linear_constraints, program.linear_constraint_matrix
    variables.ids.extend(range(width))
    variables.lower_bounds.extend([0.0] * width)
    variables.upper_bounds.extend(model.upper.tolist())
    variables.integers.extend(np.isin(np.arange(width), model.whole).tolist())
    program.objective.linear_coefficients.ids.extend(range(width))
    program.objective.linear_coefficients.values.extend(model.cost.tolist())
    rows.ids.extend(range(many))
    rows.lower_bounds.extend(model.low.tolist())
    rows.upper_bounds.extend(model.high.tolist())
    by_row = np.repeat(np.arange(many), np.diff(model.starts))
    order = np.lexsort((model.columns, by_row))
    matrix.row_ids.extend(by_row[order].tolist())
    matrix.column_ids.extend(model.columns[order].tolist())
    matrix.coefficients.extend(model.values[order].tolist())
    return program


def _last(answer: Any, model: Model, mixed: bool) -> Solved:
    from ortools.math_opt import result_pb2, solution_pb2

    reason, ended = answer.termination.reason, answer.termination
    if reason in (result_pb2.TERMINATION_REASON_INFEASIBLE, result_pb2.TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED):
        return Solved("infeasible")
    first = answer.solutions[0] if answer.solutions else None
    x = duals = None
    if first is not None and first.primal_solution.feasibility_status == solution_pb2.SOLUTION_STATUS_FEASIBLE:
        x = np.zeros(len(model.cost))
        x[list(first.primal_solution.variable_values.ids)] = first.primal_solution.variable_values.values
    bound = float(ended.objective_bounds.dual_bound)
    if reason == result_pb2.TERMINATION_REASON_OPTIMAL and x is not None:
        if not mixed and first is not None:
            duals = np.array(first.dual_solution.dual_values.values)
        return Solved("optimal", x, bound, duals)
    if reason in (result_pb2.TERMINATION_REASON_FEASIBLE, result_pb2.TERMINATION_REASON_NO_SOLUTION_FOUND):
        return Solved("limit", x if mixed else None, bound if mixed else -np.inf)
    return Solved("failed", text=ended.detail)
