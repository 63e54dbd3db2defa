"""Power of a node's sensors -> tokens per joule and joules per token, gross and with the idle power taken off.

A module's watts hold two GPUs and a CPU (Grace superchips): they count once, against the tokens of all its GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from precision_agent.power import reasons as why
from precision_agent.power.energy import EnergyReading
from precision_agent.power.reasons import Reason


@dataclass(frozen=True, slots=True)
class MeteredGpus:
    """One sensor's power and the GPUs (UUIDs) whose work it pays for: one, or all of a module."""

    gpus: frozenset[str]
    energy: EnergyReading


@dataclass(frozen=True, slots=True)
class TokenEnergy:
    """What a token costs. The net figures have the idle power taken off; absent with `net_reason`."""

    tokens_per_joule: float
    joules_per_token: float
    net_tokens_per_joule: float | None = None
    net_joules_per_token: float | None = None
    net_reason: Reason | None = None


def node_power(meters: Sequence[MeteredGpus], measured: Iterable[str]) -> EnergyReading:
    """The power of all `measured` GPUs (UUIDs) at once: each under exactly one meter, no meter with a foreign GPU.

    ValueError where scopes are mixed: watts of a GPU and of a module don't add up to anything.
    """
    scopes = {meter.energy.scope for meter in meters}
    if len(scopes) != 1:
        raise ValueError(f"meters must have one scope, not {sorted(scopes)}")
    metered = [uuid for meter in meters for uuid in meter.gpus]
    wanted = set(measured)
    reasons = [reason for meter in meters for reason in meter.energy.reasons]
    if len(metered) != len(set(metered)) or set(metered) - wanted:
        reasons.append(why.MODULE_SHARED)
    if wanted - set(metered):
        reasons.append(why.NO_INSTANT_POWER)
    told = tuple(dict.fromkeys(reasons))
    # meters of one run see the same windows; their watts add up
    seconds = max(meter.energy.seconds for meter in meters)
    joules = math.fsum((meter.energy.watts or 0.0) * seconds for meter in meters)
    renewed = min(meter.energy.updates for meter in meters)
    counted = all(meter.energy.counted for meter in meters)
    return EnergyReading(None if told else joules, seconds, renewed, scopes.pop(), told, counted)


def meters_of(energies: Mapping[str, EnergyReading], modules: Mapping[str, str]) -> tuple[MeteredGpus, ...]:
    """One meter a GPU, or with module scope one a module; `modules` says where every GPU of the node sits.

    Both go by UUID. A GPU of the module that was not measured is in the meter: then the figure is void.
    """
    meters: dict[str, MeteredGpus] = {}
    for uuid, found in energies.items():
        module = modules.get(uuid, uuid)
        sharing = {other for other, its in modules.items() if its == module} if found.scope == "module" else set()
        meters.setdefault(module if found.scope == "module" else uuid, MeteredGpus(frozenset({uuid, *sharing}), found))
    return tuple(meters.values())


def token_energy(found: EnergyReading, tokens: float, idle_watts: float | None) -> TokenEnergy | tuple[Reason, ...]:
    """Tokens of the same windows over their joules; without a valid power its reasons.

    `idle_watts` is what the same sensors drew before the run.
    """
    if found.joules is None:
        return found.reasons
    if tokens <= 0:
        return (why.NO_TOKENS,)
    gross = TokenEnergy(tokens / found.joules, found.joules / tokens)
    if idle_watts is None:
        return _gross_only(gross, why.IDLE_UNKNOWN)
    net = found.joules - idle_watts * found.seconds
    if net <= 0:
        return _gross_only(gross, why.IDLE_ABOVE_LOAD)
    return TokenEnergy(gross.tokens_per_joule, gross.joules_per_token, tokens / net, net / tokens)


def _gross_only(gross: TokenEnergy, reason: Reason) -> TokenEnergy:
    return TokenEnergy(gross.tokens_per_joule, gross.joules_per_token, net_reason=reason)
