"""`python -m tests.rehearsal run --module tests.rehearsal.replays`: are the kernels of replayed graphs told apart?

In each recipe of the device forward, dgrad and wgrad of a dense layer and of a grouped one (experts) have gaps and
GEMMs of their own sizes; a short training step has gaps and the recipe's GEMMs, in the modules of the eager kernels.
Prints a line a recipe. Kernels' names have their sizes here (CUDA_REHEARSAL_SHAPES).
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.precision.evidence import CORE, ROUTER
from precision_agent.precision.kernels import classify, emulation_seen, share_by_class
from precision_agent.precision.verification import verdict
from precision_agent.protocol import KernelSeconds, Profile
from precision_api.exchange.result import Failure
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES, Recipe, support
from precision_api.models.shapes import PASSES, WHOLE, Pass
from tests.rehearsal.gemms import DENSE, TOKENS, Product, product, ran

MODULES = {"attention", "core_attention", "mlp"}
LAYERS = (LinearShape(TOKENS, 512, 2048), LinearShape(TOKENS, 512, 2048, groups=4))
DRIFT = (TypeError, AttributeError)
"""What calls raise that Transformer Engine does not take any more: no recipe declines so."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's replays by pass: the kernels' seconds, and which products their names tell."""

    shape: LinearShape
    seconds: Mapping[Pass, KernelSeconds]
    products: Mapping[Pass, set[Product]]

    def wrong(self) -> list[str]:
        """Passes that have no kernels or gaps, or another pass's GEMMs."""
        m, k, n = self.shape.m, self.shape.k, self.shape.n
        expected = zip(PASSES, [product("", (m, n), k), product("", (m, k), n), product("", (k, n), m)], strict=True)
        return [
            f"{pass_}, {self.shape.groups} groups: GEMMs {self.products[pass_]}, {self.seconds[pass_]}"
            for pass_, gemm in expected
            if self.products[pass_] != {gemm} or not self.seconds[pass_].gemm or not self.seconds[pass_].gaps
        ]


def wrong(recipe: Recipe, execution: str, layers: Sequence[Layer], step: Profile | Failure) -> str:
    """What is not told apart, or ran in other kernels than the recipe's; empty: nothing."""
    if isinstance(step, Failure):
        return f"no step: {step.message}"
    problems = [f"no graph ({execution})"] * (execution != "graph")
    problems += [words for layer in layers for words in layer.wrong()]
    problems += ["eager kernels of a training step, or no gaps"] * (not step.gaps)
    problems += sorted(MODULES - {kernel.module for kernel in step.kernels})
    problems += [f"no {name} kernels" for name in sorted({"forward", "backward"} - {k.pass_ for k in step.kernels})]
    claimed = [(kernel.name, kernel.seconds) for kernel in step.kernels if kernel.module not in ("head", CORE, ROUTER)]
    strange = [name for name, _ in claimed if classify(name).kernel_class == "unknown"]
    judged = verdict(recipe, share_by_class(claimed), emulation_seen(name for name, _ in claimed), unknown=strange)
    return "; ".join(problems + [judged.message] * (judged.verdict not in ("verified", "emulated")))


def seen(recipe: Recipe) -> tuple[str, tuple[Layer, ...], Profile | Failure]:
    """How layers and a step ran, the layers' kernels by pass, and the step's."""
    from precision_agent.backends.te.api import load
    from precision_agent.backends.te.problem import Problem
    from precision_agent.backends.te.session.engine import CudaEngine
    from precision_agent.backends.te.sizes import trials_of
    from precision_agent.backends.te.tiers.gemm_tier import Unit
    from precision_agent.backends.te.tiers.profiles import profile_of_model, profile_of_units
    from precision_agent.backends.te.tiers.training_tier import Shared, VariantModel
    from precision_agent.backends.trace import launches

    api, engine = load(), CudaEngine()
    traces: list[Mapping[str, Any]] = []
    profile: Callable[..., Mapping[str, Any]] = engine.profile
    engine.profile = lambda *work: traces.append(profile(*work)) or traces[-1]  # type: ignore[method-assign]
    with engine.stream():
        units = [Unit(api, engine, shape, recipe, 2, 0) for shape in LAYERS]
        problem = Problem(DENSE, 1, TOKENS, WHOLE, 2, 0, "fused")
        model = VariantModel(Shared(api, engine, problem, replace(trials_of(DENSE)[0], layers=2)), Parts.of(recipe))
        for failed in (*(unit.prepare() for unit in units), model.prepare()):
            if failed:
                raise RuntimeError(failed.message)
        profiled = profile_of_units(engine, units, 0.05, None)
        launched = launches(traces[-1])
        step = profile_of_model(engine, model, 0.05, None)
    layers = []
    for place, shape in enumerate(() if isinstance(profiled, Failure) else LAYERS):
        regions = {name: [run for run in launched if run.region == f"{place} {name}"] for name in PASSES}
        layers.append(Layer(shape, profiled[1][place], {name: set(ran(runs)) for name, runs in regions.items()}))
    reasons = [program.reason for program in (*(unit.program for unit in units), model.program) if program.reason]
    return reasons[0] if reasons else "graph", tuple(layers), step


def main() -> int:
    """1 where a recipe's replays are not told apart, and where neither BF16 nor a recipe beside it runs.

    One that Transformer Engine declines is none of its recipes.
    """
    os.environ["CUDA_REHEARSAL_SHAPES"] = "1"  # the runtime asks at its first GEMM
    from precision_agent.backends.te.session.graphs import unavailable

    major, minor = map(int, os.environ["CUDA_REHEARSAL_COMPUTE"].split("."))
    worked, faults = set[Recipe](), 0
    for recipe in (name for name in RECIPE_NAMES if support(name, (major, minor))):
        try:
            problems = wrong(recipe, *seen(recipe))
            worked.add(recipe)
        except DRIFT as error:
            problems = f"{type(error).__name__}: {error}"
        except Exception as error:
            print(unavailable(recipe, error).message, flush=True)
            continue
        faults += bool(problems)
        print(f"{recipe}: {problems or 'fprop, dgrad, wgrad and a training step are told apart'}", flush=True)
    return int(faults > 0 or "bf16" not in worked or len(worked) < 2)


if __name__ == "__main__":
    sys.exit(main())
