"""`python -m tests.rehearsal run --module tests.rehearsal.gemms [-- CONFIG ...]`: a step runs what is listed.

One micro batch of a short model runs through the real Transformer Engine, in each recipe that the device has: of a
dense model, a mixture of experts and one with latent attention, or of the Hugging Face configs that are given. The GEMM
kernels of its trace must be those of the shapes' list, each as often: what is listed runs, and what runs is listed.
Of experts the rows that the recipe pads them to count. Attention's products are left out by both. Kernels' names have
their sizes here (CUDA_REHEARSAL_SHAPES).
"""

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from precision_agent.method.expert_rows import expert_rows
from precision_agent.precision.evidence import CORE, ROUTER
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import RECIPE_NAMES, Recipe, support
from precision_api.models.model import LatentAttention, ModelSpec, MoE
from precision_api.models.shapes import WHOLE, Gemm, Split, model_gemms, passes

TOKENS = 1024
DENSE = ModelSpec(
    hidden_size=512, intermediate_size=1024, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4,
    vocab_size=2048, gated_mlp=True,
)  # fmt: skip
MIXTURE = DENSE.model_copy(update={"moe": MoE(num_experts=8, top_k=2, expert_intermediate_size=256)})
LATENT = ModelSpec(
    hidden_size=512, intermediate_size=1024, num_attention_heads=4, num_hidden_layers=4, vocab_size=2048,
    gated_mlp=True, head_dim=192,
    latent_attention=LatentAttention(query_rank=256, key_value_rank=128, rope_head_dim=64, value_head_dim=128),
    moe=MoE(
        num_experts=8, top_k=2, expert_intermediate_size=256, shared_expert_intermediate_size=256, dense_layers=1
    ),
)  # fmt: skip
MODELS: Mapping[str, tuple[ModelSpec, Split]] = {
    "dense": (DENSE, WHOLE),
    "mixture of experts": (MIXTURE, WHOLE),
    "half of its experts": (MIXTURE, Split(expert=2)),
    "latent attention": (LATENT, WHOLE),
}
_SHAPE = re.compile(r" (\d+)x(\d+)x(\d+)$")
Product = tuple[str, int, int, int]
"""Where it runs (attention, mlp, router, head), the product's sides (the smaller first), what is summed over."""


def product(module: str, sides: Iterable[int], inner: int) -> Product:
    """Cublas may see a matrix or its transpose: the order of the sides says nothing."""
    low, high = sorted(sides)
    return module, low, high, inner


def module_of(gemm: Gemm) -> str:
    """The module of the step that a listed GEMM runs in."""
    if gemm.name in ("lm_head", "router"):
        return {"lm_head": "head", "router": ROUTER}[gemm.name]
    return "mlp" if gemm.name.split("_")[0] in ("mlp", "experts", "shared", "latent") else "attention"


def listed(
    model: ModelSpec, tokens: int, split: Split, layers: int, dense: int, recipe: Recipe = "bf16"
) -> Counter[Product]:
    """The GEMMs of a micro batch of a short model: `layers` and, where others have experts, `dense` ones."""
    moe = model.moe.model_copy(update={"dense_layers": dense}) if model.moe else None
    short = model.model_copy(update={"num_hidden_layers": layers + dense, "moe": moe})
    found: Counter[Product] = Counter()
    gemms = list(model_gemms(short, tokens, split))
    if moe is not None and not any(gemm.name == "router" for gemm in gemms):
        gemms += passes(Gemm("router", "fprop", tokens, model.hidden_size, moe.num_experts, layers))
    for gemm in gemms:
        for one in _experts(gemm, tokens, moe, split, recipe) if moe and "experts" in gemm.name else (gemm,):
            found[product(module_of(one), (one.m, one.n), one.k)] += one.count
    return found


def _experts(gemm: Gemm, tokens: int, moe: MoE, split: Split, recipe: Recipe) -> Iterator[Gemm]:
    """Each of the experts' GEMMs with its own rows, padded: they are listed with the fullest expert's, all alike."""
    rows = expert_rows(tokens, moe.top_k, moe.num_experts, split.expert, recipe).padded
    for own in rows:
        sizes = {"k": own} if gemm.pass_ == "wgrad" else {"m": own}
        yield replace(gemm, count=gemm.count // len(rows), **sizes)


def ran(launches: Iterable[Any]) -> Counter[Product]:
    """The GEMMs of a trace's launches, but for attention's core."""
    found: Counter[Product] = Counter()
    for launch in launches:
        shape = _SHAPE.search(launch.name)
        if shape and launch.module != CORE:
            m, n, k = map(int, shape.groups())
            found[product(launch.module, (m, n), k)] += 1
    return found


def wrong(expected: Counter[Product], seen: Counter[Product]) -> tuple[str, ...]:
    return tuple(
        f"{module}: {low} x {high}, summed over {inner}: listed {expected[key]}, ran {seen[key]}"
        for key in sorted(expected | seen)
        if expected[key] != seen[key]
        for module, low, high, inner in (key,)
    )


def step(api: Any, engine: Any, model: ModelSpec, split: Split, recipe: Recipe) -> tuple[Counter[Product], Any]:
    """GEMMs of one eager micro batch, and the short model that ran."""
    from precision_agent.backends.profiler import told_modules
    from precision_agent.backends.te.problem import Problem
    from precision_agent.backends.te.sizes import trials_of
    from precision_agent.backends.te.tiers.profiles import told_parts
    from precision_agent.backends.te.tiers.training_tier import Shared, VariantModel
    from precision_agent.backends.trace import launches

    problem = Problem(model, 1, TOKENS, split, 2, 0, "fused")
    trial = replace(trials_of(model)[0], layers=2)
    with engine.stream():
        made = VariantModel(Shared(api, engine, problem, trial), Parts.of(recipe))
        failed = made.prepare()
        if failed:
            raise RuntimeError(failed.message)
        with told_modules(told_parts(made.stack.layers, made.parts), engine.annotate):
            trace = engine.profile(made.eager_step)
    return ran(launches(trace)), made


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each model and recipe; 1 where a step does not run what is listed."""
    os.environ["CUDA_REHEARSAL_SHAPES"] = "1"  # the runtime asks at its first GEMM
    from precision_agent.backends.te.api import load
    from precision_agent.backends.te.session.engine import CudaEngine
    from precision_api.models.huggingface import model_from_config

    models = {Path(name).stem: (model_from_config(Path(name).read_text()), WHOLE) for name in arguments} or MODELS
    api, engine, faults = load(), CudaEngine(), 0
    major, minor = map(int, os.environ["CUDA_REHEARSAL_COMPUTE"].split("."))
    for name, (model, split) in models.items():
        for recipe in RECIPE_NAMES:
            if not support(recipe, (major, minor)):
                continue
            seen, made = step(api, engine, model, split, recipe)
            trial, how = made.shared.trial, made.program.execution
            told = wrong(listed(model, TOKENS, split, trial.layers, trial.dense, recipe), seen)
            ran_ = f"{trial.layers} layers" + (f" and {trial.dense} dense" if trial.dense else "")
            print(f"{name}, {recipe}: {sum(seen.values())} GEMMs of {ran_}, {how}: {'as listed' if not told else ''}")
            for line in (*told, *((made.program.reason,) if made.program.reason else ())):
                print(f"    {line}")
            faults += bool(told)
            del made
            gc.collect()  # its graphs refer to themselves: a large model would not fit beside the one before
            engine.release()
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
