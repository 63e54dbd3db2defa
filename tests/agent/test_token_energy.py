"""Joules to tokens: gross, net, and whose watts they are."""

import pytest

from precision_agent.power import reasons as why
from precision_agent.power.energy import EnergyReading
from precision_agent.power.token_energy import node_power, token_energy
from precision_api.exchange.result import Energy


def reading(watts: float = 500.0, **changes: object) -> EnergyReading:
    return EnergyReading(**({"joules": watts * 12, "seconds": 12.0, "updates": 120} | changes))  # type: ignore[arg-type]


def void(reason: why.Reason) -> EnergyReading:
    return EnergyReading(None, 12.0, 120, reasons=(reason,))


def figures(energy: Energy) -> tuple[object, ...]:
    return energy.tokens_per_joule, energy.joules_per_token, energy.tokens_per_joule_net, energy.net_reason


def test_a_token_costs_the_inverse_of_a_joule_or_there_are_reasons() -> None:
    assert figures(token_energy(reading(500.0), tokens=12_000.0, idle_watts=100.0)) == (2.0, 0.5, 2.5, None)
    assert token_energy(void(why.SAMPLE_GAP), 12_000.0, 100.0) == Energy(valid=False, reasons=("sample_gap",))
    assert token_energy(reading(), 0.0, 100.0) == Energy(valid=False, reasons=("no_tokens",))


@pytest.mark.parametrize(
    ("idle", "reason"), [(None, why.IDLE_UNKNOWN), (500.0, why.IDLE_ABOVE_LOAD), (900.0, why.IDLE_ABOVE_LOAD)]
)
def test_idle_that_is_unknown_or_not_below_the_load_leaves_the_gross_figure(
    idle: float | None, reason: why.Reason
) -> None:
    assert figures(token_energy(reading(), 12_000.0, idle)) == (2.0, 0.5, None, reason.name)


def test_watts_add_up_over_gpus_and_modules_and_one_void_gpu_voids_the_node() -> None:
    readings = {"a": reading(), "b": void(why.SAMPLE_GAP), "c": void(why.SAMPLE_GAP), "d": void(why.SENSOR_LOST)}
    found = node_power(readings, {})
    assert (found.joules, found.reasons) == (None, (why.SAMPLE_GAP, why.SENSOR_LOST))
    readings = {"a": reading(500.0), "b": reading(700.0, updates=80)}
    found = node_power(readings, {})
    assert (found.watts, found.updates) == (1200.0, 80)
    readings = {uuid: reading(2000.0, scope="module") for uuid in "abcd"}
    modules = {"a": "M1", "b": "M1", "c": "M2", "d": "M2"}
    assert node_power(readings, modules).watts == 4000.0
    assert node_power({uuid: readings[uuid] for uuid in "abc"}, modules).reasons == (why.MODULE_SHARED,)


@pytest.mark.parametrize("meters", [[], [reading(), reading(scope="module")]], ids=["none", "mixed"])
def test_meters_have_one_scope(meters: list[EnergyReading]) -> None:
    with pytest.raises(ValueError, match="one scope"):
        node_power({str(index): energy for index, energy in enumerate(meters)}, {})
