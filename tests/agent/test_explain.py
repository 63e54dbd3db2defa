"""The words on a full-depth step whose layers are of two kinds."""

from __future__ import annotations

from precision_agent.results.explain import _full_depth
from precision_api.exchange.result import Interval, Region, Training


def seconds(value: float) -> Interval:
    return Interval(value=value, lower=value, upper=value, n=3)


def training(dense: int | None) -> Training:
    regions = {"layers_forward": 0.004, "layers_backward": 0.008, "head": 0.002, "optimizer": 0.001}
    regions |= {"dense_forward": 0.001, "dense_backward": 0.002} if dense else {}
    return Training(
        tokens_per_second=seconds(1.0),
        layers=27,
        layers_measured=4,
        dense_measured=dense,
        regions=tuple(Region(name=name, seconds=seconds(value)) for name, value in regions.items()),  # type: ignore[arg-type]
    )


def test_layers_with_experts_and_dense_ones_are_a_sum_of_two() -> None:
    assert "27 layers: those with experts x 12 ms / 4 that ran + dense ones x 3 ms / 1 that ran" in _full_depth(
        training(1)
    )
    assert "27 x 12 ms / 4 layers that ran + 2 ms of head" in _full_depth(training(None))
