"""The model's own formulas against published rates."""

import json
from pathlib import Path
from typing import Any

import pytest

from precision_api.models.flops import training_flops_per_token
from precision_api.models.presets import PRESETS, PresetName
from precision_operator.planner.answer.planning import plan
from tests.support.fleets import NOW, UNMEASURED, declared, job, spec

GOLDEN = Path(__file__).parent.parent / "golden"
ROWS = [tuple(row) for row in json.loads((GOLDEN / "megatron_bridge.json").read_text())["rows"]]
RECIPES = {"fp8": "fp8_current", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}


def published(system: str, recipe: str, model: str, rate: float) -> dict[str, Any]:
    return declared(system, 1024, model, recipe=recipe, tokensPerSecondPerGPU=f"{rate:.6f}")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_published_flop_rates_become_the_published_token_rates_and_days(
    row: tuple[PresetName, str, str, int, float, float],
) -> None:
    model, system, recipe, sequence, tokens_per_second, tflops = row
    flops = training_flops_per_token(PRESETS[model].model, sequence)
    rate = tflops * 1e12 / flops
    assert rate == pytest.approx(tokens_per_second, rel=0.005)
    made = plan(
        spec(
            job(workload={"preset": model}, tokens="10T", minGPUs=1024, recipes=[RECIPES[recipe]]),
            pools=[published(system, RECIPES[recipe], model, rate)],
        ),
        UNMEASURED,
        NOW,
    )
    found = made.solution.slots[0].option
    assert found.days == pytest.approx(10e12 / (tokens_per_second * 1024) / 86_400, rel=0.005)
    assert not found.source.upper_bound
