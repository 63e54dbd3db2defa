"""The fleet's table: TFLOP/s of a GPU stand first, and are absent where the FLOPs of the workload are not known."""

import pytest

from precision_operator.cli.columns import keys
from precision_operator.cli.commands.fleet import COLUMNS, rows
from tests.support.fleets import fleet, workload


def test_teraflops_stand_before_tokens_and_are_absent_without_flops() -> None:
    names = keys(COLUMNS)
    assert names.index("teraflopsPerGPU") < names.index("tokensPerSecondPerGpu")
    (row,) = rows(fleet())
    assert row["teraflopsPerGPU"] == pytest.approx(
        row["tokensPerSecondPerGpu"] * workload().flops_per_token / 1e12, rel=1e-3
    )
    (row,) = rows(fleet(workloads=[workload().model_copy(update={"flops_per_token": None})]))
    assert row["teraflopsPerGPU"] is None
