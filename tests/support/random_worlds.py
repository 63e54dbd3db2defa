"""Random worlds over several passes; what people do between two of them: functions, each a row of the table below."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from precision_api.facts.names import ANNOTATION_RERUN
from precision_lab.fleet.slices import slices_of
from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.observe.clock import format_time
from tests.support import random_nodes, random_specs
from tests.support.core_pass import Core
from tests.support.history import has_ended
from tests.support.node_objects import AGENT_IMAGE
from tests.support.random_cluster import CONFIG, PAUSES, RandomCluster

ACTIVE = 4
"""So many passes come first after which much happens."""


def grow(seed: str, passes: int, pools: int = 0, quiet: float = 0.0) -> dict[str, Any]:
    """A world as the core's own decisions shape it: its objects, and the steps that refer to them by number.

    After a share of the passes, `quiet`, but for the first, only time passes, or all work goes on and nothing happens,
    or one thing happens: all else that is seen is the same objects.
    In such a world people delete reports too, an admin stops all agents, and profiles ask for verdicts.
    """
    cluster = RandomCluster(seed, pools, asks_verdicts=quiet > 0)
    core = Core(cluster.objects)
    steps = []
    for number in range(passes):
        steps.append(cluster.step())
        decided = core.step(steps[-1])
        if number >= ACTIVE and cluster.rng.random() < quiet:
            what = cluster.rng.choice(("time", "work", "event"))
            if what != "time":
                cluster.apply(decided)
            if what == "work":
                cluster.run_jobs()
            if what == "event":
                cluster.rng.choice(ALONE)(cluster)
            cluster.only_time()
            continue
        cluster.apply(decided)
        cluster.run_jobs()
        happen(cluster)
        if quiet and cluster.rng.random() < 0.3:
            _no_report(cluster)
        cluster.pass_time()
    return {"world": seed, "objects": cluster.objects, "steps": steps}


def happen(cluster: RandomCluster) -> None:
    """None to three accidents."""
    for _ in range(cluster.rng.choice([0, 1, 1, 2] if cluster.calm else [1, 2, 3])):
        cluster.rng.choice(ACCIDENTS)(cluster)


def _profile(cluster: RandomCluster) -> None:
    """Somebody edits a profile, asks for a rerun of it, or deletes it."""
    rng = cluster.rng
    if not cluster.profiles:
        return
    uid = rng.choice(list(cluster.profiles))
    raw = cluster.profiles[uid]
    meta = dict(raw["metadata"])
    match rng.choice(["edit", "edit", "edit", "rerun", "delete" if len(cluster.profiles) > 1 else "edit"]):
        case "rerun":
            meta["annotations"] = {ANNOTATION_RERUN: cluster.now.isoformat()}
            cluster.profiles[uid] = raw | {"metadata": meta}
        case "delete":
            cluster.profiles.pop(uid)
        case _:
            cluster.before[uid] = raw
            meta["generation"] += 1
            names = sorted({node["metadata"]["name"] for node in cluster.nodes.values()})
            cluster.profiles[uid] = raw | {"metadata": meta, "spec": random_specs.edited(rng, raw["spec"], names)}


def _report(cluster: RandomCluster) -> None:
    """Somebody asks for a rerun of one node; or an older operator, or a hand, has left something odd."""
    rng = cluster.rng
    if not cluster.reports:
        return
    name = rng.choice(list(cluster.reports))
    raw = copy.deepcopy(cluster.reports[name])
    status = raw.get("status", {})
    attempt = status.get("attempt")
    if not isinstance(attempt, dict):  # none yet, or garbage
        return
    match rng.choice(["rerun", "rerun", "limit", "runs", "runs", "reason", "garbage", "verdict", "verdict"]):
        case "rerun":
            raw["metadata"]["annotations"] = {ANNOTATION_RERUN: cluster.now.isoformat()}
        case "limit" if "hardware" in status:
            status["hardware"]["limitWatts"] = rng.choice([4000, 5600, 7000])
        case "runs" if attempt["outcome"] == "failed":
            held = {"since": attempt["finishedAt"], "reason": attempt["reason"]}
            status |= {"failedRuns": 3, "quarantine": held}
        case "reason" if attempt["outcome"] == "failed":
            attempt |= {"reason": "OfAnotherVersion", "failures": 9}
            attempt.pop("message", None)
        case "verdict" if "acceptance" in status:
            status["acceptance"]["verdict"] = rng.choice(["Pass", "Fail"])
        case "garbage" if rng.random() < 0.3:
            raw["status"] = {"attempt": "none"}
        case _:
            return
    cluster.reports[name] = raw


def _no_report(cluster: RandomCluster) -> None:
    if cluster.reports:
        cluster.reports.pop(cluster.rng.choice(list(cluster.reports)))


def _job(cluster: RandomCluster) -> None:
    """A Job is deleted, by hand or with a finalizer that takes its time, or Kueue takes its place away."""
    rng = cluster.rng
    if not cluster.jobs:
        return
    name = rng.choice(list(cluster.jobs))
    job = cluster.jobs[name]
    match rng.choice(["by hand", "deleting", "take back"]):
        case "by hand":
            cluster.jobs.pop(name)
        case "deleting":
            cluster.jobs[name] = job | {"metadata": job["metadata"] | {"deletionTimestamp": format_time(cluster.now)}}
        case _ if not has_ended(job):
            cluster.jobs[name] = job | {"spec": job["spec"] | {"suspend": True}, "status": {}}
            cluster.pods.pop(job["metadata"]["uid"], None)


def _node(cluster: RandomCluster) -> None:
    """Something about a node changes."""
    if cluster.nodes:
        uid = cluster.rng.choice(list(cluster.nodes))
        cluster.before[uid] = cluster.nodes[uid]
        cluster.nodes[uid] = random_nodes.altered(cluster.rng, cluster.nodes[uid])


def _move(cluster: RandomCluster) -> None:
    """A node that was measured, if there is one, comes into another pool, or restarts."""
    measured = [it["spec"]["nodeUID"] for it in cluster.reports.values() if it["spec"]["nodeUID"] in cluster.nodes]
    uid = cluster.rng.choice(measured or list(cluster.nodes))
    cluster.nodes[uid] = random_nodes.altered(cluster.rng, cluster.nodes[uid], cluster.rng.choice(("pool", "boot")))


def _model(cluster: RandomCluster) -> None:
    """A profile takes its model from the ConfigMap; or one does, and the ConfigMap has another model."""
    uid, config = cluster.rng.choice(list(cluster.profiles)), {"workload": random_specs.FROM_CONFIG_MAP}
    if all(raw["spec"].get("workload") != config["workload"] for raw in cluster.profiles.values()):
        raw = cluster.profiles[uid]
        meta = raw["metadata"] | {"generation": raw["metadata"]["generation"] + 1}
        cluster.profiles[uid] = raw | {"metadata": meta, "spec": raw["spec"] | config}
    cluster.config_map = {"config.json": cluster.rng.choice((CONFIG, CONFIG.replace("512", "1024")))}


def _narrow(cluster: RandomCluster) -> None:
    """A profile's target is half of the nodes, or all again; its reports on the others stay."""
    uid = cluster.rng.choice(list(cluster.profiles))
    raw = cluster.profiles[uid]
    names = sorted(node["metadata"]["name"] for node in cluster.nodes.values())[:: cluster.rng.choice((1, 2))]
    meta = raw["metadata"] | {"generation": raw["metadata"]["generation"] + 1}
    cluster.profiles[uid] = raw | {"metadata": meta, "spec": raw["spec"] | {"target": {"nodeNames": names}}}


def _slices(cluster: RandomCluster) -> None:
    """A node's driver publishes its GPUs, or takes them back; or none of them may be read any more, or all again."""
    by_claim = [uid for uid, node in cluster.nodes.items() if cluster.slices[uid] or slices_of(node)]
    uid = cluster.rng.choice(by_claim or list(cluster.nodes))
    if not cluster.serves_slices or cluster.rng.random() < 0.3:
        cluster.serves_slices = not cluster.serves_slices
    else:
        cluster.slices[uid] = [] if cluster.slices[uid] else slices_of(cluster.nodes[uid])


def _stop(cluster: RandomCluster) -> None:
    """An admin stops all agents, or lets them go on; a reference comes or goes."""
    cluster.stop = cluster.rng.choice([None, "Hold", "End"])
    cluster.has_references = not cluster.has_references


def _memory(cluster: RandomCluster) -> None:
    """The operator has been refused an agent's creation, or an agent gave way to a pod; or all that is over."""
    rng, at = cluster.rng, cluster.now.isoformat()
    profile, node = rng.choice([*cluster.profiles]), rng.choice([*cluster.nodes])
    row = {"at": at, "until": (cluster.now + timedelta(seconds=rng.choice(PAUSES))).isoformat()}
    match rng.choice(["refused", "refused", "yield", "over"]):
        case "refused":
            cluster.refused[profile, node] = row | {"reason": rng.choice([*RULES]), "words": "no", "stage": "Job"}
        case "yield":
            name, uid = cluster.nodes[node]["metadata"]["name"], cluster.uid("pod")
            row = {"profile_uid": profile, "node": name, "node_uid": node, "job_uid": cluster.uid("job"), "at": at}
            cluster.yields.append(row | {"pod": "team/train-1", "pod_uid": uid, "owner": uid, "priority": 1})
        case _:
            cluster.refused.clear()
            cluster.yields.clear()


def _undo(cluster: RandomCluster) -> None:
    """A node is as it was, or a profile has its spec of before."""
    if not cluster.before:
        return
    uid = cluster.rng.choice(list(cluster.before))
    before = cluster.before.pop(uid)
    if uid in cluster.nodes:
        cluster.nodes[uid] = before
    elif uid in cluster.profiles:
        cluster.profiles[uid] = cluster.profiles[uid] | {"spec": before["spec"]}


def _leave(cluster: RandomCluster) -> None:
    if len(cluster.nodes) > 1:
        uid = cluster.rng.choice(list(cluster.nodes))
        cluster.away[uid] = cluster.nodes.pop(uid)


def _return(cluster: RandomCluster) -> None:
    """A node comes back, as the same object or under its name only."""
    if not cluster.away:
        return
    uid = cluster.rng.choice(list(cluster.away))
    node = cluster.away.pop(uid)
    if cluster.rng.random() < 0.5:
        cluster.nodes[uid] = node
    else:
        cluster.join(node["metadata"]["name"])


def _busy(cluster: RandomCluster) -> None:
    """Somebody's training begins or ends on a node."""
    if not cluster.nodes:
        return
    node = cluster.nodes[cluster.rng.choice(list(cluster.nodes))]["metadata"]["name"]
    if cluster.busy.pop(node, None) is None:
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        meta = {"name": "train-0", "namespace": "team", "uid": cluster.uid("pod")}
        cluster.busy[node] = {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running"}}


def _cluster(cluster: RandomCluster) -> None:
    """What profiles lean on comes or goes: PriorityClass, queue, ConfigMap, the operator's own image."""
    rng = cluster.rng
    match rng.choice(["class" if not cluster.priority_class else "image", "queue", "map", "image", "lost class"]):
        case "class":
            cluster.priority_class = True
        case "lost class":
            cluster.priority_class = rng.random() < 0.8
        case "queue":
            cluster.queue = rng.choice([True, False])
        case "map":
            cluster.config_map = rng.choice([None, {}, {"config.json": CONFIG}])
        case _:
            cluster.settings["agent_image"] = rng.choice([AGENT_IMAGE, random_specs.OTHER_IMAGE])


ACCIDENTS: tuple[Callable[[RandomCluster], None], ...] = (
    *(_profile, _profile, _report, _report, _job, _node, _node),
    *(_undo, _undo, _leave, _return, _busy, _cluster),
)
"""More often the more rows."""
ALONE = (
    _node,
    _leave,
    _return,
    _slices,
    _slices,
    _stop,
    _move,
    _move,
    _narrow,
    _no_report,
    _profile,
    _memory,
    _cluster,
    _report,
    _report,
    _model,
    _model,
)
