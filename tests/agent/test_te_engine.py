"""What of the GPU's engine needs no GPU: the profiler's trace, and where it is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from precision_agent.backends.profiler import trace_of
from precision_agent.backends.te.tiers.saved import has_own_storage
from precision_agent.backends.trace import range_name

pytestmark = pytest.mark.torch


def profiled() -> Any:
    """A profiler that has ended; it writes its trace once."""
    told = torch.profiler.record_function(range_name("forward", "mlp", "layers_forward"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found, told:
        torch.ones(2, 2) @ torch.ones(2, 2)
    return found


def names(trace: Any) -> set[str]:
    return {event.get("name", "") for event in trace["traceEvents"]}


def test_a_kept_trace_lies_where_it_was_asked_for_and_nowhere_without_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "pp:forward:mlp:layers_forward" in names(trace_of(profiled()))
    assert list(tmp_path.iterdir()) == []
    place = tmp_path / "traces" / "run-1" / "trace-fp8_current.json"
    trace = trace_of(profiled(), place)
    assert "pp:forward:mlp:layers_forward" in names(trace)
    assert names(json.loads(place.read_text())) == names(trace)
    trace_of(profiled(), place)  # a second one takes its place
    assert [path.name for path in place.parent.iterdir()] == [place.name]


class Wrapper(torch.Tensor):
    """A tensor that only wraps its parts, as Transformer Engine's quantised tensors do."""

    @staticmethod
    def __new__(cls, part: torch.Tensor) -> "Wrapper":
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, part.shape, dtype=torch.bfloat16)
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_a_kept_quantised_weight_has_no_bytes_of_its_own_and_is_not_asked_for_them() -> None:
    wrapped = Wrapper(torch.zeros(4, 4, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="invalid python storage"):
        wrapped.untyped_storage().data_ptr()
    assert not has_own_storage(wrapped)
    assert has_own_storage(torch.zeros(4))
    assert has_own_storage(torch.nn.Parameter(torch.zeros(4)))
