"""What a tenant without any profile that may be measured can put into its namespace, and its shadow.

The tenant has what role `edit` gives: any labels, annotations, owners, finalizers, gates, suspension and node names on
Jobs and pods. Statuses are as kubelet, scheduler and Job controller write them, reports as the operator writes what a
lying agent says. The API server alone gives UIDs and creation times.

The shadow is what these objects hold, and nothing that they say: each pod that is bound and not over, with its name,
node and priority, and what it got there of its requests and claims; and each pod that waits for GPUs by claim, with
what the scheduler reads of it. What a shadow holds is counted here, from what was drawn: not as the product reads it.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from precision_api.facts import names
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.waiting_pods import NO_DEVICES
from tests.support.node_objects import EIGHT_H100
from tests.support.report_objects import report_object, report_status

Raw = dict[str, Any]
TENANT = "mallory"
PROFILE = f"uid-{TENANT}-profile-"
"""Beginning of the UIDs of its profiles."""
JOB_UID_LABEL, JOB_NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
GPU_RESOURCES = (names.GPU_RESOURCE, "nvidia.com/mig-1g.10gb")
"""The second is one that no node has."""
DRIVER, NEVER_MADE = "gpu.nvidia.com", "never-made"


class Device(NamedTuple):
    driver: str
    node: str
    name: str

    @property
    def claim(self) -> Raw:
        """A ResourceClaim with it."""
        field = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        row = {"driver": self.driver, "pool": self.node, "device": self.name}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return {"metadata": {}, "status": {"allocation": {"devices": {"results": [row]}, "nodeSelector": selector}}}


@dataclass(frozen=True)
class Victims:
    """What the tenant knows of others, by name and UID; it may write any of it into its own objects."""

    now: datetime
    nodes: Mapping[str, str]
    """Name by UID."""
    profiles: Mapping[str, str]
    """namespace/name by UID."""
    jobs: Mapping[str, str]
    """Name by UID."""


@dataclass
class Hostile:
    """The tenant's objects, and the kinds of trick that they are."""

    jobs: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    reports: list[Raw] = field(default_factory=list)
    profiles: list[Raw] = field(default_factory=list)
    claims: dict[str, Device] = field(default_factory=dict)
    """What the scheduler has allocated to the claims that there are, by name."""
    requests: dict[str, Raw] = field(default_factory=dict)
    """What bound pods request in all, by UID, wherever in their specs and statuses that stands."""
    own: dict[str, str] = field(default_factory=dict)
    """Node by UID of the Jobs that the leader has made for it."""
    kinds: set[str] = field(default_factory=set)

    def shadow(self, offered: Mapping[str, Container[str]]) -> "Hostile":
        """The pods that are left when nobody believes what an object says; `offered` are resources by node."""
        kept = [pod for pod in self.pods if _is_bound(pod) or _waits(pod)]
        return Hostile(pods=[self._got(_shadow(pod), offered) for pod in kept], claims=self.claims)

    def _got(self, pod: Raw, offered: Mapping[str, Container[str]]) -> Raw:
        """A bound pod with those of its requests and claims that its kubelet could give it."""
        spec, node = pod["spec"], pod["spec"].get("nodeName")
        if node is None:
            return pod
        here = {"cpu", *(key for key in GPU_RESOURCES if key in offered.get(node, ()))}
        got = {key: count for key, count in self.requests[pod["metadata"]["uid"]].items() if key in here}
        claims = [row for row in _claims(pod) if (device := self.claims.get(row)) and device.node == node]
        rows = [{"name": name, "resourceClaimName": name} for name in claims]
        containers = [{"name": "agent", "resources": {"requests": got}}]
        return pod | {"spec": spec | {"containers": containers, "resourceClaims": rows}}

    def holds(self, node: str) -> tuple[str | None, int, int]:
        """Of a shadow: the first of its pods on the node with GPUs, their GPUs, and thousandths of CPUs of all."""
        here = {pod["metadata"]["name"]: pod for pod in self.pods if pod["spec"].get("nodeName") == node}
        counts = {name: sum(int(_requests(pod).get(key, 0)) for key in GPU_RESOURCES) for name, pod in here.items()}
        devices = {name: {self.claims[row] for row in _claims(pod)} for name, pod in here.items()}
        gpus = {name: {device for device in devices[name] if device.driver == DRIVER} for name in here}
        holders = sorted(f"{TENANT}/{name}" for name in here if counts[name] or gpus[name])
        cpus = sum(1000 * int(_requests(pod).get("cpu", 0)) for pod in here.values())
        return next(iter(holders), None), sum(counts.values()) + len(set().union(*gpus.values())), cpus


def offers(nodes: Iterable[Raw]) -> dict[str, Container[str]]:
    """The resources that nodes have, by their name."""
    return {node["metadata"]["name"]: node["status"].get("allocatable", ()) for node in nodes}


def _requests(pod: Raw) -> Raw:
    return dict(pod["spec"]["containers"][0]["resources"].get("requests", {}))


def _claims(pod: Raw) -> list[str]:
    return [row.get("resourceClaimName", NEVER_MADE) for row in pod["spec"].get("resourceClaims", ())]


def _is_bound(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


NAMED_NOWHERE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x" * 63] * 99}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NAMED_NOWHERE]}}
NOWHERE: Raw = {"affinity": {"nodeAffinity": REQUIRED}, "nodeSelector": {"x": "y"}, "tolerations": []}
"""Where a bound pod says that it may run, at length, which nobody asks."""


def _waits(pod: Raw) -> bool:
    """Whether the scheduler has too few GPUs for it, and would preempt for it; what is called an agent gets none."""
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    told = any(NO_DEVICES in row["message"] for row in status.get("conditions", ()))
    is_held = meta.keys() & {"deletionTimestamp"} or spec.keys() & {"nodeName", "schedulingGates", "preemptionPolicy"}
    return told and not is_held and meta["labels"].get(names.LABEL_APP) != names.AGENT_APP


def _shadow(pod: Raw) -> Raw:
    """The pod without a word of its tenant; one that waits keeps what the scheduler reads, its owner and condition."""
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    held = {"nodeName", "priority", "resourceClaims", "containers"}
    waits = not spec.get("nodeName")
    wanted = {"conditions"} if waits else set()
    return {
        "metadata": {key: meta[key] for key in {"name", "namespace", "uid"} | ({"ownerReferences"} if waits else set())
                     if key in meta},
        "spec": {key: value for key, value in spec.items() if key in held},
        "status": {key: value for key, value in status.items() if key in {"resourceClaimStatuses"} | wanted},
    }  # fmt: skip


def disguises(asked: Raw, status: Raw) -> list[Raw]:
    """Where all that a bound pod requests may stand in its spec and status: what it holds is the same."""
    cpu = {"cpu": asked.get("cpu", "0")}
    plain, none, less = _container(asked), _container({}), _container(asked | {"cpu": "0"})
    rows = [row | {"allocatedResources": cpu} | _container(cpu) for row in status.get("containerStatuses", [none])]
    resizes = [("9000", "Infeasible"), ("0", "Deferred")]
    return [
        {"containers": [plain], "initContainers": [plain, plain]},
        {"containers": [none], "initContainers": [plain | {"restartPolicy": "Always"}]},
        {"containers": [less], "overhead": cpu},
        {"containers": [less], "resources": {"requests": cpu}},
        *(
            {
                "containers": [_container(asked | {"cpu": wanted})],
                "status": {
                    "containerStatuses": rows,
                    "conditions": [{"type": "PodResizePending", "reason": reason, "message": "any"}],
                },
            }
            for wanted, reason in resizes
        ),
    ]


def _container(requests: Raw) -> Raw:
    return {"name": "agent", "resources": {"requests": requests}}


@dataclass(frozen=True)
class Tenant:
    """Makes hostile objects."""

    rng: Random
    of: Victims

    def objects(self) -> Hostile:
        """Two to six tricks, and often several objects of each."""
        made = Hostile()
        for kind in self.rng.sample([*TRICKS], self.rng.randint(2, 6)):
            made.kinds.add(kind)
            for _ in range(self.rng.choice([1, 1, 2, 6])):
                TRICKS[kind](self, made)
        return made

    def ago(self) -> str:
        return format_time(self.of.now - timedelta(seconds=self.rng.choice((0, 5, 59, 61, 3600, 86_400))))

    def node(self) -> tuple[str, str]:
        """UID and name of a node, seldom of one that is not there."""
        return self.rng.choice([*self.of.nodes.items(), *self.of.nodes.items(), ("uid-gone", "gone")])

    def profile_uid(self) -> str:
        return self.rng.choice([*self.of.profiles, "unknown", f"{PROFILE}0", ""])

    def job_uid(self, made: Hostile) -> str:
        theirs = (job["metadata"]["uid"] for job in made.jobs)
        return self.rng.choice([*self.of.jobs, *(uid for uid in theirs if uid not in made.own), "uid-of-no-job"])

    def marks(self, node: tuple[str, str], profile_uid: str) -> Raw:
        """Labels and annotations as agents have them, for any node, run and attempt."""
        rng = self.rng
        run, attempt = rng.choice(["r1", "r2", "x"]), rng.choice(["1", "2", "999999999", "0", "one"])
        labels = {names.LABEL_APP: names.AGENT_APP, names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: run}
        labels |= {names.LABEL_PROFILE_UID: profile_uid, names.LABEL_NODE_UID: node[0], names.LABEL_ATTEMPT: attempt}
        words = self.of.profiles.get(profile_uid, "ml/any").rpartition("/")[2]
        notes = {names.ANNOTATION_PROFILE: words, names.ANNOTATION_NODE: node[1]}
        notes[names.ANNOTATION_REQUEST_HASH] = "ab" * 32
        notes[names.ANNOTATION_DEADLINE] = rng.choice(["1800", "999999", "-1", "soon"])
        return {"labels": labels, "annotations": notes}

    def meta(self, made: Hostile, **more: Any) -> Raw:
        count = len(made.jobs) + len(made.pods) + len(made.reports) + len(made.profiles)
        meta = {"name": f"m{count}", "namespace": TENANT, "uid": f"uid-{TENANT}-{count}", "resourceVersion": "7"}
        meta["creationTimestamp"] = self.ago()
        if self.rng.random() < 0.25:
            meta["finalizers"] = ["example.com/never"]
        return meta | more

    def job(self, made: Hostile, status: Raw, suspend: bool = False, **more: Any) -> None:
        """A Job as ours are, but for its status; its name may be that of an attempt of another namespace."""
        node, profile_uid = self.node(), self.profile_uid()
        meta = self.meta(made, **self.marks(node, profile_uid), **more)
        if self.rng.random() < 0.5:
            meta["name"] = names.job_name(profile_uid, node[0], "r1", self.rng.randint(1, 9))
        owner = {"kind": names.PROFILE_KIND, "name": "nightly", "uid": profile_uid, "controller": True}
        meta["ownerReferences"] = [owner]
        made.jobs.append({"kind": "Job", "metadata": meta, "spec": {"suspend": suspend}, "status": status})

    def pod(self, made: Hostile, spec: Raw, status: Raw, **more: Any) -> Raw:
        """An agent's pod, as far as words go."""
        marks = self.marks(self.node(), self.profile_uid())
        job_uid = self.job_uid(made)
        marks["labels"] |= {JOB_NAME_LABEL: self.of.jobs.get(job_uid, "m0"), JOB_UID_LABEL: self.job_uid(made)}
        if self.rng.random() < 0.2:
            del marks["labels"][names.LABEL_NODE_UID]
        owners = [{"kind": "Job", "name": "m0", "uid": job_uid, "controller": True}] if self.rng.random() < 0.5 else []
        meta = self.meta(made, **marks, ownerReferences=owners, **more)
        spec = {"priority": self.rng.choice([0, -10, 10**9])} | spec | (NOWHERE if "nodeName" in spec else {})
        raw = {"kind": "Pod", "metadata": meta, "spec": spec, "status": status}
        asked = made.requests[meta["uid"]] = _requests(raw)
        if spec.get("nodeName") and (number := crc32(repr(raw).encode())) % 2:  # beside the worlds' own draws
            places = disguises(asked, status)
            spec |= places[number // 2 % len(places)]
            raw["status"] = status | spec.pop("status", {})
        made.pods.append(raw)
        return raw

    def bound(self, gpus: int | None = None) -> Raw:
        """The spec of a pod on a node, with GPUs or without, with much of its CPU or none."""
        count = self.rng.choice([0, 1, 8]) if gpus is None else gpus
        asked = {self.rng.choice(GPU_RESOURCES): str(count)} if count else {}
        requests: Raw = {"cpu": self.rng.choice(["0", "1", "95"])} | asked
        return {"nodeName": self.node()[1], "containers": [{"name": "agent", "resources": {"requests": requests}}]}

    def condition(self, kind: str) -> Raw:
        return {"type": kind, "status": "True", "lastTransitionTime": self.ago(), "reason": "Any", "message": "any"}


NOTHING_ASKED: Raw = {"containers": [{"name": "agent", "resources": {}}]}


def gated(tenant: Tenant, made: Hostile) -> None:
    """A pod that asks for nothing and is never scheduled."""
    gates = {"schedulingGates": [{"name": "example.com/never"}]} if tenant.rng.random() < 0.7 else {}
    tenant.pod(made, NOTHING_ASKED | gates, {"phase": "Pending"})


def bound_agent(tenant: Tenant, made: Hostile) -> None:
    """A pod with an agent's labels that runs on a node."""
    state = tenant.rng.choice([{"running": {"startedAt": tenant.ago()}}, {"waiting": {"reason": "ImagePullBackOff"}}])
    status = {"phase": tenant.rng.choice(["Running", "Pending"]), "conditions": [tenant.condition("PodScheduled")]}
    tenant.pod(made, tenant.bound(), status | {"containerStatuses": [{"name": "agent", "state": state}]})


def bound_other(tenant: Tenant, made: Hostile) -> None:
    """A tenant's usual work."""
    raw = tenant.pod(made, tenant.bound(), {"phase": "Running", "conditions": [tenant.condition("PodScheduled")]})
    raw["metadata"] |= {"labels": {}, "annotations": {}}


def bound_by_claim(tenant: Tenant, made: Hostile) -> None:
    """A pod that names a claim of its own or of another pod: of a GPU there or elsewhere, of a NIC, or never made."""
    raw = tenant.pod(made, tenant.bound(0), {"phase": "Running", "conditions": [tenant.condition("PodScheduled")]})
    own, node = f"c-{raw['metadata']['name']}", raw["spec"]["nodeName"]
    name = tenant.rng.choice([own, own, NEVER_MADE, *made.claims])
    key = "resourceClaimTemplateName" if name == NEVER_MADE and tenant.rng.random() < 0.5 else "resourceClaimName"
    raw["spec"]["resourceClaims"] = [{"name": "gpus", key: name}]
    if name == own:
        there, elsewhere = Device(DRIVER, node, "gpu-0"), Device(DRIVER, tenant.node()[1], "gpu-1")
        made.claims[own] = tenant.rng.choice([there, there, elsewhere, Device("nic.example", node, "nic-0")])


def remade(tenant: Tenant, made: Hostile) -> None:
    """The pod of a Job of the leader's own, by hand: where there are no GPUs, or with a claim that has none there."""
    uid = f"uid-{TENANT}-own-{len(made.own)}"
    node, at = tenant.node()[1], tenant.rng.choice(["cpu-0", "cpu-1"])
    made.own[uid] = node
    if tenant.rng.random() < 0.3:
        tenant.job(made, {})
        made.jobs[-1]["metadata"] |= {"uid": uid, "creationTimestamp": format_time(tenant.of.now - timedelta(hours=1))}
    asked = {"containers": [{"name": "agent", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}]}
    if tenant.rng.random() < 0.5:
        asked, at = NOTHING_ASKED | {"resourceClaims": [{"name": "gpus", "resourceClaimName": NEVER_MADE}]}, node
    state = {"running": {"startedAt": tenant.ago()}}
    status = {"phase": "Running", "containerStatuses": [{"name": "agent", "state": state}]}
    raw = tenant.pod(made, {"nodeName": at} | asked, status)
    raw["metadata"]["labels"] |= {JOB_UID_LABEL: uid, names.LABEL_PROFILE_UID: f"{PROFILE}0"}
    del raw["metadata"]["ownerReferences"]


def over(tenant: Tenant, made: Hostile) -> None:
    """A pod that has ended, with any message, and stays by a finalizer."""
    message = tenant.rng.choice(["", "{}", '{"run":"r1"}', "\x1b[31m", "PPR1 1/1 x"])
    ended = {"terminated": {"exitCode": tenant.rng.choice([0, 1, 137]), "reason": "Error", "message": message}}
    status = {"phase": tenant.rng.choice(["Succeeded", "Failed"])}
    tenant.pod(made, tenant.bound(), status | {"containerStatuses": [{"name": "agent", "state": ended}]})


def deleted(tenant: Tenant, made: Hostile) -> None:
    """A pod that is deleted and does not go: its kubelet is silent, or a finalizer stands."""
    spec = tenant.rng.choice([tenant.bound(), NOTHING_ASKED])
    at = format_time(tenant.of.now + timedelta(seconds=tenant.rng.choice([-86_400, -61, -1, 30, 10**7])))
    tenant.pod(made, spec, {"phase": tenant.rng.choice(["Running", "Pending"])}, deletionTimestamp=at)


def waiting(tenant: Tenant, made: Hostile) -> None:
    """A pod that waits for GPUs by claim, with an agent's labels or without; or is gated, deleted, never preempts."""
    condition = {"type": "PodScheduled", "status": "False", "message": f"0/3 nodes are available: 3 {NO_DEVICES}."}
    spec = NOTHING_ASKED | {"resourceClaims": [{"name": "gpus", "resourceClaimName": "wanted"}]}
    held = tenant.rng.choice([{}, {}, {"preemptionPolicy": "Never"}, {"schedulingGates": [{"name": "example.com/x"}]}])
    going = tenant.rng.choice([{}, {}, {}, {"deletionTimestamp": tenant.ago()}])
    raw = tenant.pod(made, spec | held, {"phase": "Pending", "conditions": [condition]}, **going)
    if tenant.rng.random() < 0.7:
        raw["metadata"] |= {"labels": {}, "annotations": {}}


def suspended_job(tenant: Tenant, made: Hostile) -> None:
    """A Job in a queue that admits nothing."""
    tenant.job(made, {"conditions": [tenant.condition("Suspended")]} if tenant.rng.random() < 0.6 else {}, True)


def running_job(tenant: Tenant, made: Hostile) -> None:
    """A Job whose controller has made its pod, or cannot."""
    tenant.job(made, tenant.rng.choice([{}, {"conditions": [tenant.condition("FailureTarget")]}]))


def ended_job(tenant: Tenant, made: Hostile) -> None:
    """A Job that is over, and held by a finalizer."""
    kind = tenant.rng.choice(["Complete", "Failed"])
    going = {"deletionTimestamp": tenant.ago(), "finalizers": ["example.com/never"]}
    tenant.job(made, {"conditions": [tenant.condition(kind)]}, **tenant.rng.choice([going, {}]))


def lying_report(tenant: Tenant, made: Hostile) -> None:
    """What a lying agent says of a node: any watts, any figures; owned by anybody."""
    node, profile_uid, rng = tenant.node(), tenant.profile_uid(), tenant.rng
    status = report_status(None, finishedAt=tenant.ago())
    pool = rng.choice([*EIGHT_H100.values(), node[1], "NVIDIA-GB200"])
    status["hardware"] |= {"limitWatts": rng.choice([0, 1, 8, 5600, 10**6]), "pool": pool}
    status["attempt"] |= {"startedAt": tenant.ago(), "outcome": rng.choice(["succeeded", "failed", "disrupted"])}
    status = rng.choice([status, status, {}, {"attempt": "none"}, status | {"attempt": {"run": "r1"}}])
    owner = {"kind": names.PROFILE_KIND, "name": "nightly", "uid": profile_uid, "controller": True}
    raw = report_object(node[1], node_uid=node[0], namespace=TENANT, status=status)
    raw["metadata"] |= tenant.meta(made, labels={names.LABEL_MANAGED_BY: names.MANAGED_BY})
    raw["metadata"]["ownerReferences"] = rng.choice([[owner], []])
    made.reports.append(raw)


def unaccepted_profile(tenant: Tenant, made: Hostile) -> None:
    """A profile that cannot be read, or asks for what is forbidden; its UID is one that its objects may name."""
    spec = tenant.rng.choice([{"workload": {}}, {"workload": 1}, {"unheardOf": True}, {"rollout": {"canary": -1}}])
    meta = tenant.meta(made, generation=1, uid=f"{PROFILE}{len(made.profiles)}")
    made.profiles.append({"kind": names.PROFILE_KIND, "metadata": meta, "spec": spec, "status": {}})


def suspended_profile(tenant: Tenant, made: Hostile) -> None:
    """A profile that measures nothing; its limits, queue and UID are what its tenant likes."""
    rollout = {"maxConcurrent": 10, "powerBudgetWatts": 1, "perTopology": [{"key": "kubernetes.io/arch", "max": 1}]}
    workload = {"name": "one", "shapes": [{"m": 128, "k": 256, "n": 512}]}
    spec = {"workload": workload, "suspend": True, "rollout": rollout}
    meta = tenant.meta(made, generation=1, uid=f"{PROFILE}{len(made.profiles)}")
    made.profiles.append({"kind": names.PROFILE_KIND, "metadata": meta, "spec": spec, "status": {}})


TRICKS: Mapping[str, Callable[[Tenant, Hostile], None]] = {
    trick.__name__: trick
    for trick in (
        gated,
        bound_agent,
        bound_other,
        bound_by_claim,
        remade,
        over,
        deleted,
        waiting,
        suspended_job,
        running_job,
        ended_job,
        lying_report,
        unaccepted_profile,
        suspended_profile,
    )
}
