"""The fewest GPUs that hold a model, the most that a global batch feeds, and who overrides that."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.products import part
from precision_api.facts.recipes import Recipe
from precision_api.models.memory import MOST_STATE_SHARE
from precision_api.models.presets import PRESETS, PresetName
from precision_api.models.workload import Workload
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.inputs.workloads import JobWorkload, target
from precision_operator.planner.rates.memory_fit import GIBIBYTE, fewest_gpus
from precision_operator.planner.solving.options import Option
from tests.support.fleets import NOW, fleet, job, node, pool, rate, spec, workload
from tests.support.published_rows import read


def wanted(preset: str) -> JobWorkload:
    return target(Workload.model_validate({"preset": preset}), None, "")


def asked(product: str, gpus: int, recipe: str = "bf16", count: int = 64, **changes: Any) -> PlanAnswer:
    """Llama 3.1 70B on nodes of so many GPUs."""
    seventy = workload("llama3.1-70b")
    rates = [rate(recipe, 10_000.0)]
    nodes = fleet(
        pool(product, node("n", rates, count=count, gpus=gpus, workload=seventy.key), product=product),
        workloads=[seventy],
    )
    task = job(**{"workload": {"preset": "llama3.1-70b"}, "tokens": "100B", "minGPUs": 1} | changes)
    return plan(spec(task, objective=["energy"]), nodes, NOW)


def option(found: PlanAnswer) -> Option:
    return found.solution.slots[0].option


def test_70b_does_not_fit_on_four_gb200_and_the_fewest_that_hold_it_are_offered() -> None:
    found = asked("GB200", 4, maxGPUs=4)
    assert found.solution is None
    assert "at least 8 GPUs hold the model" in str(found.problems[0])
    assert "of which they may take 80%" in str(found.problems[0])
    found = asked("GB200", 4)
    assert min(each.gpus for each in found.offers[0].options) == 8


def test_an_override_is_shown_and_a_copy_that_is_too_small_holds_nothing() -> None:
    found = asked("GB200", 4, maxGPUs=4, memoryCheck="Ignore")
    assert option(found).gpus == 4
    (note,) = [note for note in found.notes if note.startswith("OVERRIDDEN")]
    assert "train gets 4 GPUs of GB200, but at least 8 GPUs hold the model" in note
    found = asked("H100", 8, gpusPerReplica=2)
    assert found.solution is None
    assert "no number of GPUs holds it with gpusPerReplica 2" in str(found.problems[0])


def test_given_memory_replaces_the_products_and_an_unknown_one_is_not_checked() -> None:
    seventy = workload("llama3.1-70b")
    nodes = fleet(pool("GB200", node("n", gpus=4, workload=seventy.key), product="GB200"), workloads=[seventy])
    pools = [{"name": "GB200", "memoryGiBPerGPU": 400}]
    task = job(workload={"preset": "llama3.1-70b"}, minGPUs=1, maxGPUs=4)
    assert plan(spec(task, pools=pools), nodes, NOW).solution is not None
    assert plan(spec(task), nodes, NOW).solution is None
    found = asked("Other", 4, maxGPUs=4, globalBatch=2)
    assert option(found).gpus == 4
    assert any("memory of the GPUs of Other is not known" in note for note in found.notes)


@pytest.mark.parametrize(("more", "most"), [({}, 64), ({"gpusPerReplica": 16}, 256)])
def test_a_global_batch_feeds_so_many_gpus(more: dict[str, Any], most: int) -> None:
    """70B needs at least 8 H100 for a copy: 8 sequences feed 64."""
    found = asked("H100", 8, globalBatch=8 if not more else 16, **more)
    assert max(each.gpus for each in found.offers[0].options) == most
    more_than_that = asked("H100", 8, globalBatch=8 if not more else 16, minGPUs=most + 8, **more)
    assert more_than_that.solution is None
    assert f"feeds {most} GPUs at most" in str(more_than_that.problems[0])


def test_nothing_that_was_published_is_refused() -> None:
    rows = [row for row in read() if row.model in get_args(PresetName) and part(row.product)]
    assert len(rows) > 50
    for row in rows:
        known = part(row.product)
        assert fewest_gpus(wanted(row.model), row.recipe, known.memory_gb * GIBIBYTE) <= row.gpus, row


def test_by_hand() -> None:
    """16 bytes a parameter over 0.8 of the memory."""
    weights = 70_553_706_496
    assert fewest_gpus(wanted("llama3.1-70b"), "bf16", 186 * GIBIBYTE) == pytest.approx(
        16 * weights / (MOST_STATE_SHARE * 186 * GIBIBYTE), abs=1
    )
    seventy = target(None, "70B", "")
    assert fewest_gpus(seventy, "bf16", 80 * GIBIBYTE) == 17


@given(
    st.sampled_from([*PRESETS]), st.sampled_from(get_args(Recipe)), st.integers(16, 512), st.sampled_from([None, 64])
)
def test_more_memory_never_needs_more_gpus(preset: str, recipe: Recipe, gib: int, copy: int | None) -> None:
    if PRESETS[preset].model.vocab_size is None:  # type: ignore[index]
        return
    few, many = (fewest_gpus(wanted(preset), recipe, size * GIBIBYTE, copy) for size in (2 * gib, gib))
    assert few <= many


@pytest.mark.parametrize(("product", "gpus"), [("H100", 320), ("B200", 120), ("GB200", 116)])
def test_a_shared_expert_is_split_as_the_other_matrices_are(product: str, gpus: int) -> None:
    """Kimi-K2's shared expert is 2.6 billion weights in 60 layers: whole on every GPU it would ask for 1,816 H100."""
    known = part(product)
    assert known
    assert fewest_gpus(wanted("kimi-k2"), "fp8_current", known.memory_gb * GIBIBYTE) == gpus
