"""What Prometheus is told of a plan: totals and pools, absent where not known, and few series however many jobs."""

from __future__ import annotations

from typing import Any

from precision_operator.exporter.families.plan import PLAN_FAMILIES, read_plan
from precision_operator.planner.answer.conditions import finished
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.planning import plan
from tests.support.fleets import NOW, fleet, job, spec


def raw(*jobs: Any, **changes: Any) -> dict[str, Any]:
    """A CapacityPlan object as the operator leaves it."""
    told = status(plan(spec(*jobs, **changes), fleet(), NOW))
    written = finished(told, told.model_copy(update={"conditions": ()}), "x", 1, NOW)
    return {
        "metadata": {"namespace": "ml", "name": "q1", "uid": "u"},
        "status": written.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def lines(shown: dict[str, Any]) -> list[str]:
    found = read_plan(shown)
    assert found is not None
    return [line for family in PLAN_FAMILIES for line in family.render(found).decode().splitlines()]


def test_a_plan_is_told_by_its_totals_and_pools() -> None:
    found = "\n".join(lines(raw(job(minGPUs=64, maxGPUs=64))))
    assert 'precision_plan_phase{phase="Solved",plan="q1",plan_namespace="ml"} 1.0' in found
    assert 'precision_plan_pool_peak_gpus{plan="q1",plan_namespace="ml",pool="H100"} 64.0' in found
    assert 'precision_plan_jobs{plan="q1",plan_namespace="ml",pool="H100",recipe="bf16"} 1.0' in found
    assert 'precision_plan_duration_seconds{plan="q1",plan_namespace="ml"} 156250' in found


def test_what_is_not_known_has_no_series() -> None:
    assert not any("cost" in line for line in lines(raw()))
    assert not any("cost" in line for line in lines(raw(job(minGPUs=9999))))


def test_the_number_of_series_does_not_grow_with_jobs() -> None:
    few, many = raw(job("a")), raw(*(job(f"j{i}", tokens="1B") for i in range(16)))
    assert len(lines(few)) == len(lines(many))


def test_a_plan_without_a_status_is_not_shown() -> None:
    assert read_plan({"metadata": {"namespace": "ml", "name": "q1"}}) is None
