"""The steps: what each answers, how long it may take, and which module does it. Imports nothing of torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.first_day.checks import Notebook

LONGEST_SECONDS = 570.0
"""No step takes longer: commands on rented machines often end after ten minutes."""


@dataclass(frozen=True, slots=True)
class Step:
    """`least_seconds`: with less it is not begun. `most_seconds`: then it is ended. `module`, beside this one, has a
    function `run`."""

    name: str
    answers: str
    least_seconds: float
    most_seconds: float
    module: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What a step gets: its name and notebook, a folder for the agent's results and one for traces, and its seconds."""

    name: str
    book: Notebook
    results: Path
    traces: Path
    seconds: float
    nvidia_script: Path | None = None
    recipe: str = "fp8_current"
    turns: int = 5
    first_turn: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)


_FP8 = ("--recipe", "bf16", "--recipe", "fp8_current")
_SHORT = (*_FP8, "--no-gemm", "--segment-seconds", "0.5")


def _profile(name: str, answers: str, least: float, preset: str, *options: str) -> Step:
    return Step(name, answers, least, LONGEST_SECONDS, "profile", {"preset": preset, "options": options})


STEPS: tuple[Step, ...] = (
    Step("smoke", "does anything run: imports, device, power and clocks, one FP8 GEMM", 20, 120, "smoke"),
    Step("after-profiler", "is a step slower after a profiler has run in its process", 40, 150, "after_profiler"),
    Step("cold-hot", "do kernel shares of a cold GPU differ from those under load", 60, 180, "cold_hot"),
    Step("plain-user", "does codonfm-5b train for a user without name and compiler", 90, 240, "plain_user"),
    Step("gpu-tests", "tests/gpu, test by test", 40, 300, "gpu_tests"),
    _profile("quick-llama3-8b", "a quick profile of llama3-8b in all recipes of the chip", 150, "llama3-8b"),
    _profile("quick-codonfm-5b", "a quick profile of codonfm-5b in all recipes of the chip", 150, "codonfm-5b"),
    Step("nvidia", "how far runs of NVIDIA's benchmark_gemm.py lie apart, and ours", 60, LONGEST_SECONDS, "nvidia"),
    Step("repeats", "how far apart short runs of one model lie", 60, LONGEST_SECONDS, "repeats",
         {"preset": "llama3-8b", "options": _SHORT}),
    Step("fused-experts", "Blackwell: is the plain SwiGLU called a cast, do fused experts tell a format", 40, 120,
         "fused_experts"),
    _profile("experts", "one training step of a mixture of experts", 80, "qwen3-30b-a3b", *_SHORT),
    _profile(
        "standard", "a standard profile, as far as ten minutes go", 300, "llama3-8b", "--timing", "standard", *_FP8
    ),
)  # fmt: skip
"""In the order in which they are worth the time."""
BY_NAME: Mapping[str, Step] = {step.name: step for step in STEPS}


@dataclass(frozen=True, slots=True)
class Command:
    """Steps that go into one command of a rented half hour, and the seconds that it is expected to take on a GPU."""

    steps: tuple[str, ...]
    seconds: float


HALF_HOUR: tuple[Command, ...] = (
    Command(("smoke", "after-profiler", "cold-hot", "plain-user", "gpu-tests"), 400),
    Command(("quick-llama3-8b",), 330),
    Command(("quick-codonfm-5b",), 330),
    Command(("nvidia",), 540),
)
"""In their order: with copies and the machine's start they take a rented half hour."""
