"""What may befall a fleet, or one node of it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from benchmarks.node_conditions.fleet import DAY, HOUR, ODD, STACK, STRICTER, Fleet, Truth
from precision_api.acceptance.reference import sha256_of
from precision_operator.cluster import ApiError, paths


async def reboots(fleet: Fleet, name: str) -> None:
    await fleet.reboot(name, fleet.dice.choice(["", "Simulated"]))


async def gets_another_driver(fleet: Fleet, name: str) -> None:
    fleet.befall(name, "driver")


async def loses_a_gpu(fleet: Fleet, name: str) -> None:
    fleet.befall(name, "GPU")


async def gets_other_gpus(fleet: Fleet, name: str) -> None:
    fleet.swaps[name] += 1
    fleet.repair(name, fleet.dice.random() < 0.3)
    fleet.boot(name)


async def changes_meanwhile(fleet: Fleet, name: str) -> None:
    """Between decision and write."""
    fleet.boot(name)
    await fleet.settle()
    fleet.server.meanwhile = fleet.dice.choice(["namesake", "reboot", "driver", "GPU"]), fleet.dice.random() < 0.3
    await fleet.end_agents()
    fleet.server.meanwhile = None


async def operator_is_down(fleet: Fleet, name: str) -> None:
    for it in fleet.names[::3]:
        fleet.boot(it)
    fleet.wait(HOUR)
    fleet.start()


async def operator_restarts(fleet: Fleet, name: str) -> None:
    fleet.start()


async def operator_is_killed(fleet: Fleet, name: str) -> None:
    fleet.server.kill_in = fleet.dice.randint(1, 12)


async def is_repaired_or_breaks(fleet: Fleet, name: str) -> None:
    fleet.repair(name, fleet.dice.random() < 0.4)
    fleet.boot(name)
    if fleet.truths[name] == Truth():
        fleet.forget(name)


async def degrades(fleet: Fleet, name: str) -> None:
    for it in fleet.dice.choice([[name], fleet.names[::2]]):
        fleet.repair(it, True)
    fleet.rerun()
    for _ in range(3):
        await fleet.settle()
        await fleet.end_agents()


async def closed_ones_are_replaced(fleet: Fleet, name: str) -> None:
    """Nodes in service fail; those that are closed are replaced, and a new operator sees the others fail."""
    for it in fleet.names[::2]:
        fleet.repair(it, True)
    for is_new in (False, True):
        if is_new:
            fleet.start()
        for _ in range(2):
            fleet.rerun()
            await fleet.settle()
            await fleet.end_agents()
            fleet.wait(HOUR * 1.1)
        await fleet.settle(1)
        for it, row in fleet.conditions().items():
            if row.get("status") == "False" and not is_new:
                fleet.boot(it, anew=True)


async def is_mildly_slow(fleet: Fleet, name: str) -> None:
    fleet.truths[name] = Truth(gpu_off=-5.0)
    fleet.boot(name)
    fleet.forget(name)


async def namesake_comes(fleet: Fleet, name: str) -> None:
    fleet.repair(name, fleet.dice.random() < 0.3)
    fleet.boot(name, anew=True)


async def is_gone(fleet: Fleet, name: str) -> None:
    """Its Node is deleted, at times under a new operator, and another one takes its name."""
    del fleet.server.objects[f"{paths.NODES}/{name}"]
    await fleet.settle(1)
    if fleet.dice.random() < 0.5:
        fleet.start()
    fleet.repair(name, fleet.dice.random() < 0.3)
    fleet.boot(name)


async def guard_is_lost(fleet: Fleet, name: str) -> None:
    fleet.server.guarded = False


async def guard_is_back(fleet: Fleet, name: str) -> None:
    fleet.server.guarded = True


async def reference_changes(fleet: Fleet, name: str) -> None:
    fleet.save(fleet.dice.choice([None, fleet.text.replace("bf16", "bf16 "), fleet.text]))


async def profile_is_edited(fleet: Fleet, name: str) -> None:
    lax: dict[str, Any] = {"mustDetectPercent": {"reference": 15, "node": 15}}
    slow: dict[str, Any] = {"reference": {"name": "slow", "sha256": sha256_of(fleet.tenants)}}
    fleet.save(fleet.tenants, "slow")
    strict: dict[str, Any] = {"mustDetectPercent": STRICTER}
    fleet.ask(**fleet.dice.choice([{}, lax, slow, strict, strict, {"validFor": "1d"}]))
    await fleet.reboot(name)


async def profile_is_suspended(fleet: Fleet, name: str) -> None:
    fleet.ask(suspend=fleet.dice.random() < 0.5)


async def profile_is_deleted(fleet: Fleet, name: str) -> None:
    fleet.delete(fleet.dice.choice(fleet.profiles))


async def condition_is_removed(fleet: Fleet, name: str) -> None:
    fleet.remove(name)


async def is_collected_late(fleet: Fleet, name: str) -> None:
    fleet.rerun()
    await fleet.settle()
    await fleet.end_agents(late=timedelta(minutes=58))


async def run_is_spoilt(fleet: Fleet, name: str) -> None:
    await fleet.reboot(name, fleet.dice.choice([*ODD]))


async def cache_is_stale(fleet: Fleet, name: str) -> None:
    fleet.boot(name)
    fleet.stale = True


async def write_is_refused(fleet: Fleet, name: str) -> None:
    answers = [(409, "Conflict"), (410, "Gone"), (429, "TooManyRequests"), (500, "Error")]
    status, why = fleet.dice.choice(answers)
    fleet.server.fail("PATCH", "/status", ApiError(status, why, "not now"), after=fleet.dice.random() < 0.3)


async def is_asked_anew(fleet: Fleet, name: str) -> None:
    fleet.rerun()


async def agent_is_upgraded(fleet: Fleet, name: str) -> None:
    fleet.stack = fleet.dice.choice([STACK, STACK, "ffff"])


async def season_changes(fleet: Fleet, name: str) -> None:
    fleet.season = fleet.dice.choice([0.0, -1.0])


async def reports_are_forged(fleet: Fleet, name: str) -> None:
    fleet.forge_reports(fleet.dice.choice(["Pass", "Fail"]), **fleet.dice.choice([{}, {"basis": "another"}]))


async def agent_is_forged(fleet: Fleet, name: str) -> None:
    what = fleet.dice.choice(["Job", "pod"])
    fleet.boot(name)
    await fleet.settle()
    if name in fleet.loop.jobs():
        fleet.forge(name, what)


async def time_passes(fleet: Fleet, name: str) -> None:
    fleet.wait(fleet.dice.choice([HOUR / 2, 2 * HOUR, DAY, 31 * DAY]))


async def agents_end(fleet: Fleet, name: str) -> None:
    await fleet.settle(1)
    await fleet.end_agents(fleet.dice.choice(["", "", "", *ODD]))


FAULTS: dict[str, tuple[Callable[[Fleet, str], Awaitable[None]], int]] = {
    "reboot": (reboots, 1),
    "another driver": (gets_another_driver, 1),
    "GPU lost": (loses_a_gpu, 1),
    "swapped GPUs": (gets_other_gpus, 1),
    "changes meanwhile": (changes_meanwhile, 2),
    "repaired or broken": (is_repaired_or_breaks, 1),
    "degrades": (degrades, 2),
    "closed ones replaced": (closed_ones_are_replaced, 1),
    "mild": (is_mildly_slow, 1),
    "namesake": (namesake_comes, 1),
    "Node gone": (is_gone, 1),
    "down": (operator_is_down, 1),
    "restart": (operator_restarts, 1),
    "kill": (operator_is_killed, 1),
    "guard lost": (guard_is_lost, 1),
    "guard back": (guard_is_back, 2),
    "reference": (reference_changes, 1),
    "edit": (profile_is_edited, 1),
    "suspend": (profile_is_suspended, 1),
    "deleted profile": (profile_is_deleted, 1),
    "removed": (condition_is_removed, 1),
    "late": (is_collected_late, 2),
    "spoilt": (run_is_spoilt, 2),
    "stale cache": (cache_is_stale, 1),
    "refused": (write_is_refused, 1),
    "rerun": (is_asked_anew, 2),
    "upgrade": (agent_is_upgraded, 1),
    "season": (season_changes, 1),
    "forged report": (reports_are_forged, 1),
    "forged agent": (agent_is_forged, 2),
    "time": (time_passes, 2),
    "measure": (agents_end, 6),
}
"""What may befall a fleet, or one node of it, and how often beside the others."""
EVENTS = [what for what, (_, often) in FAULTS.items() for _ in range(often)]
