"""`python -m tests.rehearsal run --module tests.rehearsal.mixtures`: mixtures, primary weights and cores that decline.

The real Transformer Engine builds a short model of each, trains it, and captures it into graphs; quantizers and weights
of each part must be its recipe's, which `prepare` checks. Mixtures are of every two linear recipes of the device.
"""

import json
import os
import sys
from collections.abc import Iterator
from itertools import permutations

from precision_agent.backends.te.api import load
from precision_agent.backends.te.problem import Problem
from precision_agent.backends.te.session.engine import CudaEngine
from precision_agent.backends.te.session.graphs import declined
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.steps.recipes import hint
from precision_agent.backends.te.tiers.core_probe import core_probe, core_question, run_core
from precision_agent.backends.te.tiers.training_tier import Shared, VariantModel
from precision_api.facts.mixtures import Parts
from precision_api.facts.recipes import PlainRecipe, by_default
from precision_api.models.model import ModelSpec, MoE
from precision_api.models.shapes import WHOLE

MODEL = ModelSpec(
    hidden_size=512, intermediate_size=1024, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1,
    vocab_size=512, gated_mlp=True,
)  # fmt: skip
EXPERTS = MODEL.model_copy(update={"moe": MoE(num_experts=4, top_k=2, expert_intermediate_size=256)})


def variants(recipes: list[PlainRecipe]) -> Iterator[Parts]:
    """Plain recipes, then each two of them and BF16 mixed, the head in the second one."""
    yield from (Parts.of(recipe) for recipe in recipes)
    for first, second in permutations([recipe for recipe in recipes if recipe != "fp8_delayed"], 2):
        yield Parts(mlp=first, attention=second, attention_out="bf16", mamba=first, mamba_out=first, head=second)


def main() -> int:
    """Prints a line for each; 1 where one is not built, trained, captured or proved."""
    api, engine, wrong = load(), CudaEngine(), 0
    compute = tuple(int(part) for part in os.environ["CUDA_REHEARSAL_COMPUTE"].split("."))
    recipes = [recipe for recipe in by_default(compute) if hint(api, recipe)[0]]
    for model, primary in ((MODEL, False), (MODEL, True), (EXPERTS, True)):
        problem = Problem(model, 1, 256, WHOLE, 2, 0, primary_weights=primary)
        with engine.stream():
            shared = Shared(api, engine, problem, Trial(1))
            for parts in variants(recipes):
                try:
                    made = VariantModel(shared, parts)
                    told = made.prepare() or (made.program.execution, made.program.reason, made.flags)
                except Exception as error:
                    if not declined(error):
                        raise
                    told = f"{type(error).__name__}: {error}"
                right = isinstance(told, tuple) and told[0] == "graph"
                wrong += not right
                print(
                    f"{'experts' if model.moe else 'dense'}{' primary' if primary else ''} {parts}: {told}", flush=True
                )
    for core in ("fp8_delayed", "fp8_current", "mxfp8"):
        question = core_question(Problem(MODEL, 1, 256, WHOLE, 2, 0, attention_core=core)) or ""
        print(core_probe(question, 0, json.dumps(run_core(api, engine, question)), ""))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
