"""Power of a node's sensors -> tokens per joule and joules per token, gross and with the idle power taken off.

A module's watts hold two GPUs and a CPU (Grace superchips): they count once, against the tokens of all its GPUs.
"""

import math
from collections.abc import Mapping, Sequence

from precision_agent.power import reasons as why
from precision_agent.power.energy import EnergyReading
from precision_agent.power.reasons import Reason
from precision_api.exchange.result import Energy


def node_power(energies: Mapping[str, EnergyReading], modules: Mapping[str, str]) -> EnergyReading:
    """The power of all these GPUs (UUIDs) at once; `modules` says on which board every GPU of the node sits.

    Of the GPUs that share a module's sensor one reading counts. The sensor pays for all of them: where one was not
    measured, the figure is void. ValueError where scopes are mixed: watts of a GPU and of a module don't add up to
    anything.
    """
    scopes = {energy.scope for energy in energies.values()}
    if len(scopes) != 1:
        raise ValueError(f"meters must have one scope, not {sorted(scopes)}")
    scope = scopes.pop()
    meters: dict[str, EnergyReading] = {}
    for uuid, energy in energies.items():
        meters.setdefault(modules.get(uuid, uuid) if scope == "module" else uuid, energy)
    reasons = [reason for energy in meters.values() for reason in energy.reasons]
    if scope == "module" and any(modules[uuid] in meters for uuid in modules.keys() - energies.keys()):
        reasons.append(why.MODULE_SHARED)
    reasons = list(dict.fromkeys(reasons))
    # meters of one run see the same windows; their watts add up
    seconds = max(energy.seconds for energy in meters.values())
    joules = math.fsum((energy.watts or 0.0) * seconds for energy in meters.values())
    updates = min(energy.updates for energy in meters.values())
    counted = all(energy.counted for energy in meters.values())
    return EnergyReading(None if reasons else joules, seconds, updates, scope, tuple(reasons), counted)


def token_energy(power: EnergyReading, tokens: float, idle_watts: float | None) -> Energy:
    """Tokens of the same windows over their joules, gross and net; without a valid power its reasons.

    `idle_watts` is what the same sensors drew before the run.
    """
    if power.joules is None:
        return void(power.reasons)
    if tokens <= 0:
        return void((why.NO_TOKENS,))
    net = None if idle_watts is None else power.joules - idle_watts * power.seconds
    net_reason = why.IDLE_UNKNOWN if net is None else why.IDLE_ABOVE_LOAD if net <= 0 else None
    return Energy(
        valid=True,
        scope=power.scope,
        watts=power.watts,
        tokens_per_joule=tokens / power.joules,
        joules_per_token=power.joules / tokens,
        tokens_per_joule_net=tokens / net if net is not None and net > 0 else None,
        net_reason=net_reason.name if net_reason else None,
        idle_watts=idle_watts,
        updates=power.updates,
        seconds=power.seconds,
        method="counter" if power.counted else "integral",
    )


def void(reasons: Sequence[Reason]) -> Energy:
    return Energy(valid=False, reasons=tuple(reason.name for reason in reasons)[:8])
