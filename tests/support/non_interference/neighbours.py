"""Worlds of other namespaces, beside which a tenant lives: every situation in turn, and random worlds of two."""

from dataclasses import replace
from random import Random
from typing import Any

from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.observed import JobView, Observed, PodView, ProfileView, ReportView, Settings
from precision_operator.core.observe.views import profile_view, with_operator_defaults
from precision_operator.core.observe.waiting_pods import WaitingPod
from tests.support import random_specs
from tests.support.node_objects import EIGHT_H100, node_object, resource_slice
from tests.support.random_specs import RACK
from tests.support.situations import SITUATIONS
from tests.support.world import MINUTE, NOW, SETTINGS, job, measured, observed, pod, report, tried

NAMESPACES = ("ml", "lab")
POOL = EIGHT_H100["nvidia.com/gpu.product"]


def neighbours(rng: Random, number: int) -> Observed:
    """The world of everybody but the tenant; of two such worlds one is a situation."""
    if number % 2 == 0:
        return tuple(SITUATIONS.values())[number // 2 % len(SITUATIONS)].seen
    return _random(rng)


def _random(rng: Random) -> Observed:
    names = [f"n{count}" for count in range(1, rng.randint(3, 7))]
    by_claim = rng.random() < 0.3
    labels = {name: (({} if by_claim else EIGHT_H100) | {RACK: rng.choice("ab")}) for name in names}
    gpus = None if by_claim else "8"
    nodes = {f"uid-{name}": node_object(labels[name], name=name, gpus=gpus) for name in names}
    slices = tuple(resource_slice("NVIDIA H100 80GB HBM3", node=name, count=8) for name in names) if by_claim else None
    settings = Settings(**vars(SETTINGS) | {"fleet_limits": fleet_limits(rng)})
    profiles = [_profile(rng, namespace, count, names, settings) for namespace in NAMESPACES for count in (1, 2)]
    profiles = profiles[: rng.randint(2, 4)]
    agents = [_agent(rng, rng.choice(profiles), name, by_claim) for name in names if rng.random() < 0.4]
    spare = [name for name in names if rng.random() < 0.5]
    seen = observed(
        profiles,
        nodes,
        {name: "team/train-0" for name in names if rng.random() < 0.1},
        settings=settings,
        jobs=tuple(agent for agent, _ in agents),
        pods=tuple(there for _, there in agents if there is not None),
        reports=tuple(_report(rng, rng.choice(profiles), name) for name in spare),
        slices=slices,
        queues={(namespace, random_specs.QUEUE): True for namespace in NAMESPACES},
        waiting_pods=tuple([_waiting(rng)] if rng.random() < 0.2 else []),
    )
    return replace(seen, occupancy={name: look for name, look in seen.occupancy.items() if rng.random() < 0.9})


def fleet_limits(rng: Random) -> FleetLimits:
    """Limits for all namespaces together, or none."""
    limits: dict[str, Any] = {}
    if rng.random() < 0.6:
        limits["maxConcurrent"] = rng.randint(1, 5)
    if rng.random() < 0.4:
        limits["powerBudgetWatts"] = rng.choice([5600, 11_200, 17_000])
    if rng.random() < 0.3:
        limits["perTopology"] = [{"key": RACK, "max": rng.randint(1, 2)}]
    if rng.random() < 0.3:
        limits["pools"] = [{"name": POOL, "maxConcurrent": rng.randint(1, 4), "wattsPerGPU": rng.choice([None, 350])}]
    return FleetLimits.model_validate(limits)


def _profile(rng: Random, namespace: str, count: int, names: list[str], settings: Settings) -> ProfileView:
    name = f"{namespace}-{count}"
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1}
    spec = random_specs.spec(rng, names) | {"rollout": {"maxConcurrent": rng.choice([1, 3, 10])}}
    return with_operator_defaults(profile_view({"metadata": meta, "spec": spec}), settings)


def _agent(rng: Random, of: ProfileView, node: str, by_claim: bool) -> tuple[JobView, PodView | None]:
    age = rng.choice([5, 70, 400]) * MINUTE / 60
    agent = job(node, of.name, namespace=of.namespace, created=NOW - age, suspended=rng.random() < 0.15)
    if agent.suspended or rng.random() < 0.2:
        return agent, None
    runs = rng.random() < 0.7
    since: dict[str, Any] = {"scheduled_at": agent.created, "started_at": agent.created} if runs else {}
    return agent, pod(agent, "Running" if runs else "Pending", claims=by_claim, claims_created=by_claim, **since)


def _report(rng: Random, of: ProfileView, node: str) -> ReportView:
    ago = rng.choice([1, 100, 3000]) * MINUTE
    outcomes = ("failed", "disrupted")
    status = measured(ago, rng.choice([None, 4000])) if rng.random() < 0.6 else tried(rng.choice(outcomes), ago=ago)
    return report(node, of.name, status, namespace=of.namespace)


def _waiting(rng: Random) -> WaitingPod:
    return WaitingPod("team/train-1", "uid-train-1", "uid-team", 1000, rng.choice([0, 8]), NOW - MINUTE)
