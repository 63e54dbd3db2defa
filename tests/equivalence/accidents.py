"""What people and clusters do to a world between two passes: each kind is a function, and a row of the table below."""

from __future__ import annotations

import copy
from collections.abc import Callable

from . import fleet, specs
from .growth import World
from .objects import CONFIG, GROUP, finished, time_text


def happen(world: World) -> None:
    """None to three accidents."""
    for _ in range(world.rng.choice([0, 1, 1, 2] if world.calm else [1, 2, 3])):
        world.rng.choice(ACCIDENTS)(world)


def _profile(world: World) -> None:
    """Somebody edits a profile, asks for a rerun of it, or deletes it."""
    rng = world.rng
    if not world.profiles:
        return
    uid = rng.choice(list(world.profiles))
    raw = world.profiles[uid]
    meta = dict(raw["metadata"])
    match rng.choice(["edit", "edit", "edit", "rerun", "delete" if len(world.profiles) > 1 else "edit"]):
        case "rerun":
            meta["annotations"] = {f"{GROUP}/rerun": world.now.isoformat()}
            world.profiles[uid] = raw | {"metadata": meta}
        case "delete":
            world.profiles.pop(uid)
        case _:
            world.before[uid] = raw
            meta["generation"] += 1
            names = sorted({node["metadata"]["name"] for node in world.nodes.values()})
            world.profiles[uid] = raw | {"metadata": meta, "spec": specs.edited(rng, raw["spec"], names)}


def _report(world: World) -> None:
    """Somebody asks for a rerun of one node; or an older operator, or a hand, has left something odd."""
    rng = world.rng
    if not world.reports:
        return
    name = rng.choice(list(world.reports))
    raw = copy.deepcopy(world.reports[name])
    status = raw.get("status", {})
    attempt = status.get("attempt")
    if not isinstance(attempt, dict):  # none yet, or garbage
        return
    match rng.choice(["rerun", "rerun", "limit", "runs", "runs", "reason", "garbage"]):
        case "rerun":
            raw["metadata"]["annotations"] = {f"{GROUP}/rerun": world.now.isoformat()}
        case "limit" if "hardware" in status:
            status["hardware"]["limitWatts"] = rng.choice([4000, 5600, 7000])
        case "runs" if attempt["outcome"] == "failed":
            held = {"since": attempt["finishedAt"], "reason": attempt["reason"]}
            status |= {"failedRuns": 3, "quarantine": held}
        case "reason" if attempt["outcome"] == "failed":
            attempt |= {"reason": "OfAnotherVersion", "failures": 9}
            attempt.pop("message", None)
        case "garbage" if rng.random() < 0.3:
            raw["status"] = {"attempt": "none"}
        case _:
            return
    world.reports[name] = raw


def _job(world: World) -> None:
    """A Job is deleted, by hand or with a finalizer that takes its time, or Kueue takes its place away."""
    rng = world.rng
    if not world.jobs:
        return
    name = rng.choice(list(world.jobs))
    job = world.jobs[name]
    match rng.choice(["by hand", "deleting", "take back"]):
        case "by hand":
            world.jobs.pop(name)
        case "deleting":
            world.jobs[name] = job | {"metadata": job["metadata"] | {"deletionTimestamp": time_text(world.now)}}
        case _ if not finished(job):
            world.jobs[name] = job | {"spec": job["spec"] | {"suspend": True}, "status": {}}
            world.pods.pop(job["metadata"]["uid"], None)


def _node(world: World) -> None:
    """Something about a node changes."""
    if world.nodes:
        uid = world.rng.choice(list(world.nodes))
        world.before[uid] = world.nodes[uid]
        world.nodes[uid] = fleet.altered(world.rng, world.nodes[uid])


def _undo(world: World) -> None:
    """A node is as it was, or a profile has its spec of before."""
    if not world.before:
        return
    uid = world.rng.choice(list(world.before))
    before = world.before.pop(uid)
    if uid in world.nodes:
        world.nodes[uid] = before
    elif uid in world.profiles:
        world.profiles[uid] = world.profiles[uid] | {"spec": before["spec"]}


def _leave(world: World) -> None:
    """A node leaves the cluster."""
    if len(world.nodes) > 1:
        uid = world.rng.choice(list(world.nodes))
        world.away[uid] = world.nodes.pop(uid)


def _return(world: World) -> None:
    """A node comes back, as the same object or under its name only."""
    if not world.away:
        return
    uid = world.rng.choice(list(world.away))
    node = world.away.pop(uid)
    if world.rng.random() < 0.5:
        world.nodes[uid] = node
    else:
        world.join(node["metadata"]["name"])


def _busy(world: World) -> None:
    """Somebody's training begins or ends on a node."""
    if not world.nodes:
        return
    node = world.nodes[world.rng.choice(list(world.nodes))]["metadata"]["name"]
    if world.busy.pop(node, None) is None:
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        meta = {"name": "train-0", "namespace": "team", "uid": world.uid("pod")}
        world.busy[node] = {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running"}}


def _cluster(world: World) -> None:
    """What profiles lean on comes or goes: PriorityClass, queue, ConfigMap, the operator's own image."""
    rng = world.rng
    match rng.choice(["class" if not world.priority_class else "image", "queue", "map", "image", "lost class"]):
        case "class":
            world.priority_class = True
        case "lost class":
            world.priority_class = rng.random() < 0.8
        case "queue":
            world.queue = rng.choice([True, False])
        case "map":
            world.config_map = rng.choice([None, {}, {"config.json": CONFIG}])
        case _:
            world.settings["agent_image"] = rng.choice([specs.IMAGE, specs.OTHER_IMAGE])


ACCIDENTS: tuple[Callable[[World], None], ...] = (
    *(_profile, _profile, _report, _report, _job, _node, _node),
    *(_undo, _undo, _leave, _return, _busy, _cluster),
)
"""More often the more rows."""
