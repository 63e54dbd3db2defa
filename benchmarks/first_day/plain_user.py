"""Does a model with a plain GELU train for a container's user: no entry in /etc/passwd, no USER, no HOME, no compiler?

Before all variants ran one GELU, BF16 alone took the compiled one: without a name for the user it failed, without a
compiler it ran as some thirty small kernels, and every speedup was too high for it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.first_day.agent_runs import agent
from benchmarks.first_day.checks import between, holds
from benchmarks.first_day.steps import Context
from precision_agent.run.trace_reading import kernels_of
from tests.rehearsal.activations import wrong

USER = 65532
ARGUMENTS = (
    "--local", "--preset", "codonfm-5b", "--recipe", "bf16", "--recipe", "fp8_current", "--no-gemm",
    "--segment-seconds", "0.5",
)  # fmt: skip
LEFT_OUT = ("USER", "LOGNAME", "USERNAME", "HOME", "CC", "CXX", "MAIL", "SHELL")
SEES_A_GPU = (
    "import os, sys, precision_agent.run.cli; from precision_agent.power import nvml;"
    f"sys.exit(os.getuid() != {USER} or not nvml.read().gpus)"
)


@dataclass(frozen=True, slots=True)
class Way:
    """How a process comes to have the user."""

    name: str
    prefix: tuple[str, ...] = ()
    user: int | None = None


def ways() -> tuple[Way, ...]:
    """Ways in the order of how near they are to a container's; the process may have the user already."""
    if os.getuid() == USER:
        return (Way("already this user"),)
    unshare = shutil.which("unshare")
    possible = (Way("set by root", user=USER),) if os.getuid() == 0 else ()
    if unshare:
        mapped = (unshare, "--user", f"--map-user={USER}", f"--map-group={USER}")
        possible = (*possible, Way("a user namespace", mapped))
    return possible


def bare(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of such a user: nothing to call it by, and no compiler on the path."""
    kept = {name: value for name, value in environment.items() if name not in LEFT_OUT}
    return {**kept, "PATH": "/nonexistent", "TMPDIR": "/tmp"}


def run(context: Context) -> None:
    """A short run of BF16 and FP8; no way to become the user is a failure with what each way said."""
    environment = bare(os.environ)
    way = _way(environment)
    context.book.fact("user", {"uid": USER, "by": way.name})
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        output = context.results / f"{context.name}.json"
        result = agent([*ARGUMENTS, "--trace", folder], output, context.seconds, way.prefix, environment, way.user)
        traces = {
            path.stem.removeprefix("trace-"): [kernel.name for kernel in kernels_of(str(path), sys.stdin.buffer)]
            for path in sorted(Path(folder).glob("trace-*.json"))
        }
    trained = {row.recipe: row.training for row in result.recipes}
    for recipe in ("bf16", "fp8_current"):
        training = trained.get(recipe)
        rate = training.tokens_per_second.value if training and training.tokens_per_second else None
        why = training.failure.message if training and training.failure else ""
        context.book.check(between(f"{recipe} trains as user {USER}: tokens/s", rate, 1.0, float("inf"), "", why))
    problems = wrong(traces)
    context.book.check(
        holds(
            "all recipes run one activation kernel",
            "Transformer Engine's GELU",
            not problems,
            "; ".join(problems) or "so",
        )
    )
    training = trained.get("fp8_current")
    if training and training.speedup:
        context.book.fact("fp8_current speedup", training.speedup.model_dump())


def _way(environment: Mapping[str, str]) -> Way:
    failures = []
    for way in ways():
        others = {} if way.user is None else {"user": way.user, "group": way.user, "extra_groups": []}
        tried = subprocess.run(
            [*way.prefix, sys.executable, "-c", SEES_A_GPU], env=dict(environment), capture_output=True, text=True,
            check=False, **others,
        )  # type: ignore[call-overload]  # fmt: skip
        if tried.returncode == 0:
            return way
        last = (tried.stderr.strip().splitlines() or ["it sees no GPU"])[-1]
        failures.append(f"{way.name}: exit code {tried.returncode}: {last}")
    raise RuntimeError(f"no way to run as user {USER} with a GPU: {'; '.join(failures) or 'neither root nor unshare'}")
