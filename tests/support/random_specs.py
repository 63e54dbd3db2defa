"""Random profiles, good and bad, as plain specs; each oddity is rare enough that most of a world still works."""

from random import Random
from typing import Any

from tests.support.node_objects import EIGHT_H100
from tests.support.world import WORKLOAD

POOL = EIGHT_H100["nvidia.com/gpu.product"]
RACK = "topology.example/rack"
QUEUE = "gpus"
CONFIG_MAP = "model"
OTHER_IMAGE = "registry.example/agent:2"
OTHER_SHAPES: dict[str, Any] = {"name": "two", "shapes": [{"m": 256, "k": 256, "n": 512}]}
FROM_CONFIG_MAP: dict[str, Any] = {
    "name": "own",
    "huggingFaceConfig": {"configMapKeyRef": {"name": CONFIG_MAP, "key": "config.json"}},
    "microBatchSize": 1,
    "sequenceLength": 128,
}
BROKEN: tuple[dict[str, Any], ...] = (
    {"workload": {}},
    {"rollout": {"maxConcurrent": -1}},
    {"benchmarks": {"gemm": {"enabled": False}, "training": {"enabled": False}}},
    {"unheardOf": True},
)
"""Fields that make a spec unreadable."""
UNMEASURABLE: tuple[dict[str, Any], ...] = (
    {"workload": {"preset": "llama3-8b"}, "benchmarks": {"lastLayersBF16": 2048}},
    {"workload": {"name": "odd", "shapes": [{"m": 3, "k": 5, "n": 7}]}, "recipes": ["mxfp8"]},
)
"""Fields that can be read, but not measured."""
RECIPES = (["bf16"], ["bf16", "fp8_current"], ["fp8_delayed"])
BAD_SCHEDULES = ({"cron": "0 0 31 2 *"}, {"cron": "0 2 * * *", "timeZone": "Mars/Phobos"}, {"cron": "61 2 * * *"})
CRONS = ("0 12 * * *", "*/30 * * * *", "0 9 * * *", "0 0 1 1 *")


def spec(rng: Random, node_names: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"workload": _workload(rng), "rollout": _rollout(rng)}
    made |= _maybe(rng, 0.25, target=_target(rng, node_names))
    made |= _maybe(rng, 0.3, schedule=_schedule(rng))
    made |= _maybe(rng, 0.25, agent=_agent(rng))
    made |= _maybe(rng, 0.3, idle=_idle(rng))
    made |= _maybe(rng, 0.1, recipes=rng.choice(RECIPES))
    made |= _maybe(rng, 0.1, rerunOn=rng.choice([["SpecChange"], ["DriverChange", "HardwareChange"]]))
    made |= _maybe(rng, 0.4, retention={"deletedNodes": rng.choice(["1h", "30m", "24h"]), "history": rng.randint(1, 4)})
    made |= _maybe(rng, 0.05, suspend=True)
    made |= _maybe(rng, 0.4, poolLabel=rng.choice([RACK, RACK, "nvidia.com/gpu.clique"]))
    made |= _maybe(rng, 0.1, thresholds={"slowNodePercent": rng.choice([1, 10, 30])})
    made |= rng.choice(BROKEN) if rng.random() < 0.03 else {}
    return made | (rng.choice(UNMEASURABLE) if rng.random() < 0.03 else {})


def edited(rng: Random, before: dict[str, Any], node_names: list[str]) -> dict[str, Any]:
    """The spec after somebody has edited one field of it."""
    fresh = spec(rng, node_names) | {"recipes": rng.choice(RECIPES)}
    fields = ["workload", "workload", "rollout", "rollout", "agent", "schedule", "suspend", "target", "recipes"]
    field = rng.choice([*fields, "unheardOf"] + ["acceptance"] * 4 * ("acceptance" in before))
    asked = {**(before.get("acceptance") or {}), "validFor": rng.choice(["1h", "1d"])}
    fresh |= {"unheardOf": True, "acceptance": rng.choice([asked, asked, asked, None])}
    after = {key: value for key, value in before.items() if key not in (field, "unheardOf")}
    if field == "suspend":
        return after | ({} if before.get("suspend") else {"suspend": True})
    return (
        after
        | ({field: fresh[field]} if field in fresh else {})
        | ({} if "workload" in after else {"workload": WORKLOAD})
    )


def _maybe(rng: Random, share: float, **fields: Any) -> dict[str, Any]:
    return fields if rng.random() < share else {}


def _workload(rng: Random) -> dict[str, Any]:
    """Shapes as a rule; now and then a preset, or a model's config from a ConfigMap."""
    if rng.random() < 0.08:
        return FROM_CONFIG_MAP
    return rng.choices([WORKLOAD, OTHER_SHAPES, {"preset": "llama3-8b"}], [6, 3, 1])[0]


def _rollout(rng: Random) -> dict[str, Any]:
    made: dict[str, Any] = {"maxConcurrent": rng.choice([1, 2, 10, 10, 10, "50%"])}
    made |= _maybe(rng, 0.15, canary=rng.choice([1, 2]))
    made |= _maybe(rng, 0.15, maxFailures=rng.choice([1, 1, "20%"]))
    made |= _maybe(rng, 0.15, powerBudgetWatts=rng.choice([5000, 8000, 12000]))
    made |= _maybe(rng, 0.15, rampSeconds=rng.choice([30, 60, 600]))
    made |= _maybe(rng, 0.2, perTopology=[{"key": RACK, "max": rng.choice([1, 2])}])
    made |= _maybe(rng, 0.2, pools=[_pool(rng)])
    return made | _maybe(rng, 0.6, retry={"limit": rng.choice([0, 0, 1]), "backoffSeconds": rng.choice([1, 30, 60])})


def _pool(rng: Random) -> dict[str, Any]:
    row: dict[str, Any] = {"name": POOL}
    row |= _maybe(rng, 0.7, maxConcurrent=1)
    return row | _maybe(rng, 0.4, powerBudgetWatts=rng.choice([6000, 12000]))


def _target(rng: Random, node_names: list[str]) -> dict[str, Any]:
    return rng.choice(
        [
            {"nodeNames": rng.sample(node_names, min(3, len(node_names)))},
            {"nodeNames": ["nobody"]},
            {"nodeSelector": {"team": "training"}},
            {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["a", "b"]}]},
            {"products": [rng.choice(["H100", "GB200", "H200"])]},
            {"excludeTaints": [{"key": "example.com/reserved"}]},
            {"excludeTaints": [{"key": "example.com/reserved"}], "nodeNames": node_names},
            {"nodeNames": node_names},
            {"nodeNames": node_names},
        ]
    )


def _schedule(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.1:
        return dict(rng.choice(BAD_SCHEDULES))
    if rng.random() < 0.5:
        return {"maxAge": rng.choice(["2h", "1d"])}
    return (
        {"cron": rng.choice(CRONS)} | _maybe(rng, 0.3, jitterSeconds=600) | _maybe(rng, 0.3, timeZone="Europe/Berlin")
    )


def _agent(rng: Random) -> dict[str, Any]:
    return rng.choice(
        [
            {"image": "evil.example/agent:1"},
            {"image": OTHER_IMAGE},
            {"gpus": "One"},
            *[{"queueName": QUEUE}] * 4,
            {"tolerations": [{"key": "team", "operator": "Exists"}]},
        ]
    )


def _idle(rng: Random) -> dict[str, Any]:
    made: dict[str, Any] = {"pendingTimeoutSeconds": rng.choice([30, 300])}
    made |= _maybe(rng, 0.2, required=False)
    return made | _maybe(rng, 0.6, queueTimeoutSeconds=rng.choice([60, 600]))
