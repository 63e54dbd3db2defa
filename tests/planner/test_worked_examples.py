"""The manual's worked examples, worked out again by hand and by the planner; that the pages show what the plugin
prints is tested with the other pages."""

import json
import math
from pathlib import Path

import pytest
import yaml

from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_api.models.flops import training_flops_per_token
from precision_api.models.presets import PRESETS
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, read_fleet
from precision_operator.planner.inputs.snapshot import fleet_of
from tests.support.fleets import NOW

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
EMPTY = Fleet(taken_at="2026-12-01T00:00:00Z")


def worked(name: str, known: Fleet = EMPTY) -> PlanStatus:
    spec = PlanSpec.model_validate(yaml.safe_load((ROOT / "docs" / "planner" / f"{name}.yaml").read_text())["spec"])
    found = plan(spec, known, NOW)
    return status(found, what_ifs(spec, known, found, NOW))


def test_llama_405b_takes_the_published_days_and_an_empty_cluster_is_an_empty_fleet() -> None:
    rows = json.loads((GOLDEN / "megatron_bridge.json").read_text())["rows"]
    gpus = {"H100": 1024, "GB200": 256, "GB300": 256}
    best = max(rows, key=lambda row: gpus[row[1]] * row[4])
    (job,) = worked("published").jobs
    assert (job.pool, job.recipe, job.gpus) == (best[1], best[2], gpus[best[1]])
    assert float(job.days.mid) == pytest.approx(10e12 / (job.gpus * best[4]) / 86_400, rel=1e-5)
    assert fleet_of([], [], {}, NOW, "x").pools == ()


def test_published_rates_stand_in_one_row_with_product_recipe_and_gpus() -> None:
    rows = {
        (row["product"], row["recipe"], row["gpus"], row["tokens_per_s_gpu"])
        for row in json.loads((GOLDEN / "multinode_rows.json").read_text())["rows"]
        if (row["model"], row["software"]) == ("llama3.1-405b", "NeMo 26.06")
    }
    spec = yaml.safe_load((ROOT / "docs" / "planner" / "published.yaml").read_text())["spec"]
    quoted = [
        (pool["name"], rate["recipe"], rate["gpus"], float(rate["tokensPerSecondPerGPU"]))
        for pool in spec["pools"]
        for rate in pool["jobRates"]
    ]
    assert len(quoted) == 7
    assert set(quoted) <= rows


def test_nvfp4_saves_the_share_that_maxtext_publishes() -> None:
    rows = json.loads((GOLDEN / "maxtext_nvfp4.json").read_text())["rows"]
    days = {job.name: float(job.days.mid) for job in worked("nvfp4").jobs}
    flops = training_flops_per_token(PRESETS["llama3.1-405b"].model, 8192)
    for model, system, fp8, nvfp4 in rows:
        if model == "llama3.1-405b":
            found = days[f"{system.lower()}-fp8"], days[f"{system.lower()}-nvfp4"]
            assert found[0] / found[1] == pytest.approx(nvfp4 / fp8, rel=1e-4)
            assert found[0] == pytest.approx(1e12 / (1024 * fp8 * 1e12 / flops) / 86_400, rel=1e-4)


def test_one_percent_of_slow_nodes_costs_a_fifth_and_draining_them_buys_it_back() -> None:
    known = read_fleet((ROOT / "docs" / "planner" / "slow-nodes.json").read_text())
    found = worked("slow-nodes", known)
    (job,) = found.jobs
    none_slow = math.comb(990, 256) / math.comb(1000, 256)
    by_hand = 1 / (none_slow + (1 - none_slow) / 0.8)
    assert float(job.straggler) == pytest.approx(by_hand, abs=1e-4)
    drained = -float(found.what_ifs[0].days or 0) / float(job.days.mid)
    assert drained == pytest.approx(1 - by_hand, abs=1e-3)
