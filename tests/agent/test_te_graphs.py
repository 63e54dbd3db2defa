"""When a captured program may be timed, and how regions are averaged."""

import pytest

from precision_agent.backends.te.session import graphs
from tests.support.te_device import FakeEngine, FakeGpu

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("evidence", "fault"),
    [
        (graphs.ReplayEvidence(), None),
        (graphs.ReplayEvidence(scales_moved=True, gradients_differ=True), None),
        (graphs.ReplayEvidence(scales_moved=False), "delayed scales do not move over replays"),
        (
            graphs.ReplayEvidence(gradients_differ=False),
            "two replays round the gradients alike, which is not stochastic",
        ),
        (graphs.ReplayEvidence(finite=False), "a replay's gradients are not finite"),
    ],
)
def test_a_graph_is_used_only_if_what_must_change_does(evidence: graphs.ReplayEvidence, fault: str | None) -> None:
    assert graphs.graph_fault(evidence) == fault


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA error: operation not permitted when stream is capturing", False),
        ("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture", False),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("cuBLASLt found no algorithm", False),
    ],
)
def test_a_refused_capture_is_no_fatal_error(message: str, expected: bool) -> None:
    assert graphs.fatal(RuntimeError(message)) is expected


def program(gpu: FakeGpu, engine: FakeEngine) -> graphs.Program:
    regions = tuple(
        graphs.Region(name, batch_kind, lambda name=name, spent=spent: gpu.kernel(name, spent))  # type: ignore[misc]
        for batch_kind, times in (("first", (30.0, 10.0)), ("rest", (20.0, 10.0)))
        for name, spent in zip(("forward", "backward"), times, strict=True)
    )
    cycle = tuple(
        (name, batch_kind) for batch_kind in ("first", "rest", "rest", "rest") for name in ("forward", "backward")
    )
    return graphs.Program(engine, regions, cycle)


def test_a_regions_mean_is_in_the_cycles_proportion_and_lacking_ones_are_left_out() -> None:
    gpu = FakeGpu()
    timings = program(gpu, FakeEngine(gpu)).measure(200e-6)
    assert timings.cycles == 1
    means = graphs.by_name(timings, ("forward", "backward", "absent"))
    assert {name: spent * 1e6 for name, spent in means.items()} == pytest.approx({"forward": 22.5, "backward": 10.0})
    timings = graphs.Timings(0.0, 1.0, 1, {("a", "x"): 2.0}, {("a", "x"): 1})
    assert graphs.by_name(timings, ("a", "b")) == {"a": 2.0}


@pytest.mark.parametrize(("seconds", "cycles"), [(0.0, 1), (129e-6, 1), (1e-3, 7)])
def test_as_many_cycles_as_fit_are_run_and_at_least_one(seconds: float, cycles: int) -> None:
    gpu = FakeGpu()
    made = program(gpu, FakeEngine(gpu))
    made.pace()
    assert made.cycle_seconds == pytest.approx(130e-6)
    assert made.measure(seconds).cycles == cycles


def test_a_refused_capture_is_told_and_a_fatal_error_not_hidden() -> None:
    gpu = FakeGpu()
    made = program(gpu, FakeEngine(gpu, capture_as="refused"))
    made.capture(lambda program: graphs.ReplayEvidence())
    assert made.execution == "eager"
    assert made.reason.startswith("graph_unsupported: RuntimeError: CUDA error: operation not permitted")
    assert made.measure(0.0).cycles == 1
    made = program(gpu, FakeEngine(gpu))

    def check(program: graphs.Program) -> graphs.ReplayEvidence:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(RuntimeError, match="device-side assert"):
        made.capture(check)
