"""A random cluster of raw Kubernetes objects: what the core makes of them, and what else happens meanwhile.

Objects are replaced, never changed in place, so that a step can refer to them by number. The world keeps plain data
only; what the operator does to it comes in as the plain output of `core_pass`.
"""

import copy
from datetime import datetime, timedelta
from random import Random
from typing import Any

from precision_api.facts import names
from precision_lab.kubelet.pod_status import running, terminated, waiting
from precision_operator.core.observe.clock import format_time
from tests.support import random_nodes, random_specs
from tests.support.fake_cluster import agent_pod
from tests.support.history import has_ended
from tests.support.node_objects import AGENT_IMAGE
from tests.support.random_remains import Remains, bad, good
from tests.support.world import NOW, SETTINGS

Raw = dict[str, Any]
NAMESPACE, POOL_LABEL = "ml", random_nodes.POOL_LABEL
CONFIG = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, '
    '"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 512}'
)
"""A model's config.json."""
PAUSES = (1, 5, 10, 30, 60, 60, 300, 300, 600, 3600, 7 * 3600, 26 * 3600)
"""Seconds between two passes."""


class RandomCluster:
    """All objects by name or UID, and how this world tends to go."""

    def __init__(self, seed: str, pools: int = 0, asks_verdicts: bool = False) -> None:
        """With `pools` it has 200 nodes, spread over so many."""
        self.asks_verdicts, self.has_references, self.serves_slices = asks_verdicts, True, True
        self.stop: str | None = None
        self.rng = rng = Random(seed)
        self.objects: list[Raw] = []
        self._numbers: dict[int, int] = {}
        self._serial = 0
        self._tag, self._pools = seed.rsplit("/", 1)[-1], pools
        self.now = NOW + timedelta(seconds=rng.randrange(0, 86_400))
        self.calm = rng.random() < 0.3
        """Whether most goes well: then many nodes are measured and held against each other."""
        self.failing = 0.0 if self.calm else rng.choice([0.1, 0.3, 0.6, 0.9])
        self.nodes: dict[str, Raw] = {}
        self.slices: dict[str, list[Raw]] = {}
        """By the UID of their node, also of one that is away."""
        self.away: dict[str, Raw] = {}
        self.before: dict[str, Raw] = {}
        """Nodes and profiles as they were before they were changed, by UID: what changes may be undone."""
        self.profiles: dict[str, Raw] = {}
        self.jobs: dict[str, Raw] = {}
        """By name."""
        self.pods: dict[str, Raw] = {}
        """By the UID of their Job."""
        self.reports: dict[str, Raw] = {}
        self.busy: dict[str, Raw] = {}
        """Somebody else's pod, by node."""
        self.refusals: dict[str, str] = {}
        self.refused: dict[tuple[str, str], Raw] = {}
        self.yields: list[Raw] = []
        """What the operator remembers: creations that were refused, by UIDs of profile and node; who gave way."""
        self.logs: dict[str, str | None] = {}
        self.speeds: dict[str, tuple[float, str]] = {}
        """Rate and trouble of each node."""
        self._populate()

    # The beginning.

    def _populate(self) -> None:
        rng = self.rng
        most = 201 if self._pools else rng.randint(6, 8) if self.calm else rng.randint(3, 6)
        node_names = [f"n{number}" for number in range(1, most)]
        for name in node_names:
            self.join(name)
        for number in range(rng.choice([1, 1, 2, 3])):
            self._add_profile(f"p{number}", node_names)
        self.settings = {
            "agent_image": "" if rng.random() < 0.03 else AGENT_IMAGE,
            "allowed_images": [*SETTINGS.allowed_images],
            "priority_class": SETTINGS.priority_class,
            "agent_service_account": SETTINGS.agent_service_account,
            "agent_defaults": {"queueName": random_specs.QUEUE} if rng.random() < 0.05 else {},
            "disruption_backoff_seconds": 30,
        }
        self.priority_class = rng.random() > 0.04
        self.queue: bool | None = rng.choice([True, True, True, False, None])
        texts = [{"config.json": text} for text in ("no json", "{}", CONFIG)]
        self.config_map: dict[str, str] | None = rng.choice([None, {}, {"other": "1"}, *texts])

    def _add_profile(self, name: str, node_names: list[str]) -> None:
        rng, uid = self.rng, self.uid("profile")
        spec = random_specs.spec(rng, node_names)
        if self.calm:
            spec["rollout"] = {"maxConcurrent": 10}
            spec.pop("target", None)
        elif self.failing > 0.5 and rng.random() < 0.5:
            stop = rng.choice([{"maxFailures": 1}, {"canary": 2}, {}])
            spec["rollout"] = {"maxConcurrent": 10, "retry": {"limit": 0}} | stop
        if self._pools:
            spec["poolLabel"], spec["rollout"] = POOL_LABEL, {**spec["rollout"], "maxConcurrent": "50%"}
        if self.asks_verdicts and rng.random() < 0.5:
            reference = {"name": random_specs.CONFIG_MAP, "sha256": "0" * 64}
            acceptance = {"reference": reference, "validFor": rng.choice(["1h", "1d"])}
            spec |= {"acceptance": acceptance} | rng.choice([{"schedule": {"cron": "*/30 * * * *"}}, {}])
            spec |= rng.choice([{"target": {"nodeNames": ["none"]}}, {"poolLabel": random_specs.RACK}, {}, {}])
        created = self.now - timedelta(seconds=rng.choice([0, 60, 3 * 86_400]))
        meta = {"name": name, "namespace": NAMESPACE, "uid": uid, "generation": 1, "resourceVersion": "1"}
        self.profiles[uid] = {"metadata": meta | {"creationTimestamp": format_time(created)}, "spec": spec}

    def join(self, name: str) -> None:
        rng, uid = self.rng, self.uid("node")
        self.nodes[uid], self.slices[uid] = random_nodes.node(rng, name, uid, 0.05 if self.calm else 0.3)
        if self._pools:
            self.nodes[uid]["metadata"]["labels"][POOL_LABEL] = f"pool-{rng.randrange(self._pools)}"
        slow = rng.random() < (0.15 if self.calm else 0.05)
        trouble = rng.choice(["throttled", "fallback", ""]) if slow else rng.choice(["", "", "", "partial", "measured"])
        self.speeds[name] = (0.7 if slow else 1.0, trouble)

    def uid(self, word: str) -> str:
        """A UID that no other world uses."""
        self._serial += 1
        return f"{word}-{self._tag}-{self._serial}"

    def step(self) -> Raw:
        """What is seen now; objects by their number in `objects`."""
        holders: dict[str, list[int]] = {}
        for node, pod in self.busy.items():
            holders.setdefault(node, []).append(self._number(pod))
        for pod in self.pods.values():
            if pod["status"]["phase"] == "Running":
                holders.setdefault(pod["spec"]["nodeName"], []).append(self._number(pod))
        node_names = [node["metadata"]["name"] for node in self.nodes.values()]
        job_uids = {raw["metadata"]["uid"] for raw in self.jobs.values()}
        return {
            "now": self.now.isoformat(),
            "settings": dict(self.settings),
            "profiles": [self._number(raw) for raw in self.profiles.values()],
            "nodes": {uid: self._number(raw) for uid, raw in self.nodes.items()},
            "jobs": [self._number(raw) for raw in self.jobs.values()],
            "pods": [self._number(raw) for raw in self.pods.values()],
            "reports": [self._number(raw) for raw in self.reports.values()],
            "slices": [self._number(raw) for uid in self.nodes for raw in self.slices[uid]]
            if self.serves_slices
            else None,
            "holders": holders,
            "looked": sorted(name for name in self.busy if self.rng.random() < 0.3),
            "stop": self.stop,
            "references": [[NAMESPACE, random_specs.CONFIG_MAP]] if self.has_references else [],
            "config_maps": [[NAMESPACE, random_specs.CONFIG_MAP, self.config_map]],
            "priority_class_exists": self.priority_class,
            "queues": [] if self.queue is None else [[NAMESPACE, random_specs.QUEUE, self.queue]],
            "refused": [[*key, row] for key, row in self.refused.items()],
            "yields": [*self.yields],
            "refusals": {uid: text for uid, text in self.refusals.items() if uid in job_uids},
            "logs": {uid: self.logs.get(uid, "") for uid in sorted(job_uids)},
            "asked": sorted(node_names)
            if self.calm and not self._pools
            else self.rng.sample(node_names, min(2, len(node_names))),
        }

    def _number(self, raw: Raw) -> int:
        if id(raw) not in self._numbers:
            self._numbers[id(raw)] = len(self.objects)
            self.objects.append(raw)
        return self._numbers[id(raw)]

    # What the operator does.

    def apply(self, decided: Raw) -> None:
        """The plan's actions, and what is written to reports and profiles; now and then a write is lost."""
        written = {row["name"]: row for row in decided["writes"]}
        for action in decided["actions"]:
            if self.rng.random() < 0.95:
                self._act(action, written.get(action.get("report") or ""), decided)
        for row in decided["profiles"]:
            there = self.profiles.get(row["uid"], {})
            if there.get("status", {}) != row["status"] and there and self.rng.random() < 0.9:
                self.profiles[row["uid"]] = there | {"status": row["status"]}

    def _act(self, action: Raw, write: Raw | None, decided: Raw) -> None:
        match action["kind"]:
            case "Start":
                self._start(action)
            case "Drop":
                (self.jobs if action["of"] == "Job" else self.reports).pop(action["name"], None)
            case "Withdraw":
                self.jobs.pop(action["job"], None)
            case "Collect" | "Close":
                job = self.jobs.get(action["job"])
                if job is None:
                    return
                row = write or next((r for r in decided["writes"] if _is_report_of(r["body"], job)), None)
                if row is not None:
                    self._write(row)
                    if self.rng.random() < 0.85:  # else the operator is killed between its two writes
                        self.jobs.pop(action["job"])
            case _:
                if write is not None:
                    self._write(write)

    def _start(self, action: Raw) -> None:
        if action["new_report"] is not None:
            self._create_report(action["new_report"])
        body = copy.deepcopy(action["job"])
        body["spec"].pop("template")
        body["metadata"] |= {"uid": self.uid("job"), "creationTimestamp": format_time(self.now)}
        self.jobs.setdefault(body["metadata"]["name"], body)

    def _create_report(self, body: Raw) -> None:
        meta = body["metadata"] | {"uid": self.uid("report"), "resourceVersion": "1"}
        self.reports.setdefault(meta["name"], copy.deepcopy(body | {"metadata": meta}))

    def _write(self, row: Raw) -> None:
        if row["body"] is not None:
            self._create_report(row["body"])
        if row["name"] in self.reports:
            self.reports[row["name"]] = self.reports[row["name"]] | {"status": copy.deepcopy(row["status"])}

    # What else happens.

    def run_jobs(self) -> None:
        """Kueue, the Job controller, the scheduler, kubelets and agents do their work."""
        for _ in range(self.rng.choice([1, 2, 3, 3])):
            for name in list(self.jobs):
                self._of_job(name)

    def pass_time(self) -> None:
        """What has lost its owner goes, and the clock goes on; now and then it jumps back."""
        self._collect_garbage()
        self.only_time()

    def only_time(self) -> None:
        """The clock goes on, or back, and nothing else happens."""
        seconds = self.rng.choice(PAUSES if self._serial % 3 else PAUSES[:9])
        self.now += timedelta(seconds=self.rng.choice((-90, -5400)) if self.rng.random() < 0.04 else seconds)

    def _of_job(self, name: str) -> None:
        job, rng = self.jobs[name], self.rng
        uid, pod = job["metadata"]["uid"], self.pods.get(job["metadata"]["uid"])
        if has_ended(job):
            return
        if job["spec"].get("suspend"):
            if rng.random() < 0.35:
                self.jobs[name] = _admitted(job, self.now)
            return
        if pod is None:
            if rng.random() < 0.85:
                self.pods[uid] = self._pod(job)
            else:
                self.refusals[uid] = "exceeded quota: gpus"
        elif pod["status"]["phase"] == "Pending":
            self._pull(uid, pod)
        elif pod["status"]["phase"] == "Running" and rng.random() < 0.7:
            self._end(name)

    def _pod(self, job: Raw) -> Raw:
        created = format_time(self.now)
        notes = {names.ANNOTATION_NODE: job["metadata"]["annotations"][names.ANNOTATION_NODE]}
        return agent_pod(job, "Pending", uid=self.uid("pod"), annotations=notes, creationTimestamp=created)

    def _pull(self, uid: str, pod: Raw) -> None:
        rng, node = self.rng, pod["metadata"]["annotations"][f"{names.GROUP}/node"]
        match rng.choices(["run", "image", "scheduler", "slow"], [8, 1, 1, 1])[0]:
            case "run" if node not in self.busy:
                bound = pod | {"spec": pod["spec"] | {"nodeName": node}}
                self.pods[uid] = bound
                self._shows(uid, running(bound, format_time(self.now)))
            case "image":
                why = rng.choice([("ErrImagePull", "no such image"), ("ImagePullBackOff", "")])
                self._shows(uid, waiting(pod, format_time(self.now), *why))
            case "slow":
                self._shows(uid, waiting(pod, format_time(self.now), "ContainerCreating", ""))
            case _:
                condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
                self._shows(uid, {"status": {"phase": "Pending", "conditions": [condition]}})

    def _shows(self, uid: str, patch: Raw) -> None:
        self.pods[uid] = self.pods[uid] | {"status": patch["status"]}

    def _end(self, name: str) -> None:
        """The agent's container ends, and with it pod and Job; what it leaves may be anything."""
        job = self.jobs[name]
        uid, node = job["metadata"]["uid"], job["metadata"]["annotations"][f"{names.GROUP}/node"]
        speed, trouble = self.speeds.get(node, (1.0, ""))
        is_bad = self.rng.random() < self.failing
        left = bad(self.rng, job) if is_bad else good(self.rng, job, speed, trouble)
        log = left.ended.log if left.ended is not None else b""
        self.logs[uid] = log.decode() if log is not None else None
        failed = left.ended is None or left.ended.exit_code != 0 or left.job_reason == "DeadlineExceeded"
        if left.pod:
            self._shows(uid, _ended_pod(self.pods[uid], left, format_time(self.now)))
        else:
            self.pods.pop(uid)
        end: Raw = {
            "type": "Failed" if failed else "Complete",
            "status": "True",
            "lastTransitionTime": format_time(self.now),
        }
        end |= {"reason": left.job_reason, "message": left.disruption or "told so"} if failed else {}
        self.jobs[name] = job | {"status": {"conditions": [end]}}

    def _collect_garbage(self) -> None:
        """The garbage collector goes now and then; so do pods whose Job is gone, and finished deletions."""
        if self.rng.random() < 0.6:
            self.reports = {n: r for n, r in self.reports.items() if _owner(r) in self.profiles}
        kept = {job["metadata"]["uid"] for job in self.jobs.values()}
        if self.rng.random() < 0.7:
            self.pods = {uid: pod for uid, pod in self.pods.items() if uid in kept}
        if self.rng.random() < 0.5:
            self.jobs = {n: j for n, j in self.jobs.items() if "deletionTimestamp" not in j["metadata"]}


def _admitted(job: Raw, now: datetime) -> Raw:
    """The Job after Kueue has let it go."""
    condition = {"type": "Suspended", "status": "False", "lastTransitionTime": format_time(now)}
    return job | {"spec": job["spec"] | {"suspend": False}, "status": {"conditions": [condition]}}


def _ended_pod(pod: Raw, left: Remains, now: str) -> Raw:
    """The patch of its status; without a word of its container where there is none."""
    if left.ended is None:
        patch: Raw = {"status": {"phase": "Failed", "conditions": []}}
    else:
        patch = terminated(pod, left.ended, now, now)
    if left.disruption:
        moved = {"type": "DisruptionTarget", "status": "True", "message": left.disruption}
        patch["status"]["conditions"].append(moved)
    return patch


def _owner(raw: Raw) -> str:
    return str(raw["metadata"]["ownerReferences"][0]["uid"])


def _is_report_of(body: Raw | None, job: Raw) -> bool:
    if body is None:
        return False
    return (body["spec"]["nodeUID"], _owner(body)) == (job["metadata"]["labels"][names.LABEL_NODE_UID], _owner(job))
