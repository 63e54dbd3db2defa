"""torch's profiler as the GPU backends use it: kernels of some work, told by the modules that launched them."""

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from precision_agent.backends.trace import Launch, kernel_seconds, kernels, launches, range_name
from precision_agent.protocol import NO_KERNELS, Profile, window_of_profile
from precision_api.exchange.result import Failure


def annotated(name: str) -> AbstractContextManager[Any]:
    """A range of this name in the trace."""
    made: AbstractContextManager[Any] = torch.profiler.record_function(name)
    return made


def profiled(
    work: Callable[[], None],
    wait: Callable[[], None],
    keep: Path | None = None,
    lead: Callable[[], None] = lambda: None,
) -> Mapping[str, Any]:
    """The trace of `work`, in Chrome's format, and a copy of it at `keep`. `wait` returns when the device is done.

    `lead` runs right before it, with the profiler ready but not recording: the device is under load when `work` begins,
    not at rest as the profiler's start leaves it. Activities of CPU and CUDA: the CPU's are needed for the ranges and
    the launches.
    """
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    wait()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Profiler clears events")  # there is one cycle only
        warnings.filterwarnings("ignore", message=".*CUDA is not available")
        order = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
        with torch.profiler.profile(activities=activities, schedule=order) as profiler:
            lead()
            wait()
            profiler.step()
            work()
            wait()
    return trace_of(profiler, keep)


def profile_under_load(
    profile: Callable[[Callable[[], None], Path | None, Callable[[], None]], Mapping[str, Any]],
    wait: Callable[[], None],
    lead: Callable[[], object],
    work: Callable[[], None],
    steps: int,
    keep: Path | None,
) -> tuple[Profile, tuple[Launch, ...]] | Failure:
    """Kernels of the `steps` steps of `work` right after the load `lead`, in one session of `profile` (as `profiled`).

    And its launches.
    """
    began = ready = end = monotonic()

    def load() -> None:
        nonlocal began, ready
        began = monotonic()
        lead()
        wait()
        ready = monotonic()

    def timed_work() -> None:
        nonlocal end
        work()
        wait()
        end = monotonic()

    launched = launches(profile(timed_work, keep, load))
    if not launched:
        return NO_KERNELS
    rows, whole = kernels(launched, steps), kernel_seconds(launched, steps)
    return Profile(rows, whole, steps, window_of_profile(began, ready), end), launched


def trace_of(profiler: Any, keep: Path | None = None) -> Mapping[str, Any]:
    """The trace of a torch.profiler.profile that has ended; a copy at `keep`, whose folder is made where it is not."""
    with tempfile.TemporaryDirectory(prefix="precision-agent-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        if keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            whole = keep.with_name(f".{keep.name}.{os.getpid()}")  # all GPUs' processes may keep theirs: one stays
            shutil.copyfile(path, whole)
            whole.replace(keep)
        trace: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    return trace


@contextmanager
def told_modules(
    modules: Iterable[tuple[str, Any]], annotate: Callable[[str], AbstractContextManager[Any]] = annotated
) -> Iterator[None]:
    """Marks modules in the trace by these names, forward and backward; of nested ones the inner name is told."""
    handles: list[Any] = []
    try:
        for name, module in modules:
            handles += _hooked(module, name, annotate)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooked(module: Any, name: str, annotate: Callable[[str], AbstractContextManager[Any]]) -> list[Any]:
    open_: list[Any] = []

    def entering(range_: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            open_.append(annotate(range_))
            open_[-1].__enter__()

        return enter

    def leave(*_: Any) -> None:
        if open_:
            open_.pop().__exit__(None, None, None)

    return [
        module.register_forward_pre_hook(entering(range_name("forward", name))),
        module.register_forward_hook(leave),
        module.register_full_backward_pre_hook(entering(range_name("backward", name))),
        module.register_full_backward_hook(leave),
    ]
