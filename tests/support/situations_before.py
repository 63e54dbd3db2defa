"""Situations of nodes that are not measured, or wait for their turn."""

from dataclasses import replace
from datetime import timedelta

from precision_api.facts.names import DEFAULT_POOL_LABEL, LABEL_WATTS_PER_GPU
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.device_class import DeviceClass
from precision_operator.core.observe.pod_requests import Requests
from precision_operator.core.observe.stop import Stop
from precision_operator.core.observe.tenants import ANOTHERS_POD
from tests.support import situation_worlds as w
from tests.support.node_objects import gpu_device, resource_slice
from tests.support.world import MINUTE, NOW, job, nodes, observed, pod, profile, report, tried

NOVEL = "NVIDIA-GH200-480GB"
OF_OURS = {
    "workload": {"preset": "llama3-8b"},
    "mixtures": [{"name": "ours", "mlp": "mxfp8", "attention": "bf16"}],
    "benchmarks": {"baseline": "ours"},
}
OF_NOVEL = {DEFAULT_POOL_LABEL: NOVEL, "nvidia.com/gpu.count": "8"}
"""Labels of a node whose GPU is in no table."""

NODES: dict[str, w.Situation] = {
    "NotMatched": w.Situation(
        observed([profile(target={"nodeNames": ["n2"]})]), {"why": "spec.target.nodeNames does not name it"}
    ),
    "ExcludedTaint": w.Situation(
        observed([profile(target={"excludeTaints": [{"key": "reserved"}]})], nodes("n1", taints=[w.taint("reserved")])),
        {"taint": "reserved=yes:NoSchedule"},
    ),
    "MIGEnabled": w.Situation(
        w.node_with({"nvidia.com/mig.config": "all-1g.10gb"}), {"why": "label nvidia.com/mig.config=all-1g.10gb"}
    ),
    "GPUsSharedRenamed": w.Situation(
        w.node_with(allocatable={"nvidia.com/gpu.shared": "16"}), {"resource": "nvidia.com/gpu.shared: 16"}
    ),
    "GPUsShared": w.Situation(
        w.node_with({"nvidia.com/gpu.replicas": "4"}), {"why": "label nvidia.com/gpu.replicas=4"}
    ),
    "GPUsOfferedTwice": w.Situation(
        observed([profile()], slices=(w.EIGHT_BY_CLAIM,)), {"allocatable": 8, "published": 8}
    ),
    "GPUsPassedThrough": w.Situation(w.by_claim(w.of(w.VFIO)), {"gpus": 1}),
    "UnsupportedProduct": w.Situation(
        w.node_with({"nvidia.com/gpu.product": "Tesla-T4"}),
        {"name": "Tesla-T4", "supported": "GB200, GB300, H100, H200, B200, B300"},
    ),
    "BaselineUnsupported": w.Situation(
        observed([profile(recipes=["bf16"], **OF_OURS)], nodes("n1")), {"product": "H100", "baseline": "mxfp8"}
    ),
    "DRAClaimsNotSupported": w.Situation(
        w.node_with(allocatable={"nvidia.com/gpu": "0"}, capacity={"nvidia.com/gpu": "8"}), {"why": "capacity is 8"}
    ),
    "UnknownProduct": w.Situation(observed([profile()], nodes("n1", labels={})), {"why": "capacity nvidia.com/gpu: 8"}),
    "NoGPU": w.Situation(observed([profile(target={"nodeNames": ["n1"]})], nodes("n1", labels={}, gpus=None)), {}),
    "UntoleratedTaint": w.Situation(
        w.node_with(taints=[w.taint("team")]),
        {"taint": "team=yes:NoSchedule", "toleration": "{key: team, operator: Equal, value: yes, effect: NoSchedule}"},
    ),
    "MIGReconfiguring": w.Situation(
        w.node_with({"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "pending"}),
        {"why": "label nvidia.com/mig.config.state=pending"},
    ),
    "NodeDeleting": w.Situation(
        w.node_with(deletionTimestamp="2026-11-21T08:00:00Z"), {"why": "it has a deletionTimestamp"}
    ),
    "NotReady": w.Situation(
        w.node_with(ready="Unknown"), {"why": "condition Ready is Unknown (KubeletReady)", "node": "n1"}
    ),
    "NotInService": w.Situation(
        w.node_with(taints=[w.taint("readiness.k8s.io/driver")]),
        {"mark": "taint readiness.k8s.io/driver=yes:NoSchedule of Node Readiness Controller", "node": "n1"},
    ),
    "Cordoned": w.Situation(w.node_with(unschedulable=True), {"node": "n1"}),
    "GPUsNotReady": w.Situation(
        w.by_claim(resource_slice("NVIDIA H100 80GB HBM3", count=4, slices=2)),
        {
            "why": "4 GPUs in ResourceSlices of gpu.nvidia.com",
            "lack": "pool n1 has 1 of 2 ResourceSlices",
            "node": "n1",
        },
    ),
    "GPUsTainted": w.Situation(
        w.by_claim(w.of(gpu_device(0, taints=[w.taint("gpu.nvidia.com/xid")]))),
        {"gpus": "gpu-0 (gpu.nvidia.com/xid=yes:NoSchedule)", "node": "n1"},
    ),
}
"""Which nodes: decided from the Node object alone."""

TURNS: dict[str, w.Situation] = {
    "DeviceClassShares": w.Situation(
        replace(w.by_claim(w.EIGHT_BY_CLAIM), device_class=DeviceClass(sharing="TimeSlicing")),
        {"name": "gpu.nvidia.com", "strategy": "TimeSlicing"},
    ),
    "DeviceClassMissing": w.Situation(
        replace(w.by_claim(w.EIGHT_BY_CLAIM), device_class=DeviceClass(exists=False)), {"name": "gpu.nvidia.com"}
    ),
    "KeptForPod": w.Situation(
        replace(w.by_claim(w.EIGHT_BY_CLAIM), yields=(w.YIELD,)),
        {"pod": ANOTHERS_POD, "priority": 1000, "since": format_time(NOW - MINUTE)},
    ),
    "Busy": w.Situation(observed([profile()], busy={"n1": "team/train-0"}), {"pod": ANOTHERS_POD, "gpus": 8}),
    "InsufficientCPUAndMemory": w.Situation(
        w.without_room(Requests(cpu_millis=93_500, memory_bytes=250 * 1024**3)),
        {
            "cpus": "4",
            "cpus_requested": "93500m",
            "cpus_allocatable": "96",
            "memory": "32.0Gi",
            "memory_requested": "250.0Gi",
            "memory_allocatable": "256.0Gi",
        },
    ),
    "InsufficientCPU": w.Situation(
        w.without_room(Requests(cpu_millis=93_500)), {"wanted": "4", "requested": "93500m", "allocatable": "96"}
    ),
    "InsufficientMemory": w.Situation(
        w.without_room(Requests(memory_bytes=250 * 1024**3)),
        {"wanted": "32.0Gi", "requested": "250.0Gi", "allocatable": "256.0Gi"},
    ),
    "CheckingIdle": w.Situation(observed([profile()], occupancy={}), {}),
    "MeasuredByAnotherProfile": w.Situation(
        observed([profile(), profile("other")], jobs=(job(owner="other"),)), {"profile": "profile ml/other"}
    ),
    "MaxConcurrentReached": w.Situation(w.rolled(None, "n2", maxConcurrent=1), {"limit": 1}),
    "TooManyFailures": w.Situation(w.failed_first(maxFailures=1), {"failed": 2, "limit": 1}),
    "CanaryFailed": w.Situation(w.failed_first(canary=1), {"failed": 2, "canary": 1}),
    "CanaryFirst": w.Situation(w.rolled(None, "n2", canary=1), {"succeeded": 0, "canary": 1}),
    "ImagePullLimitReached": w.Situation(
        replace(
            w.rolled(nodes("n1", "n2", images=()), maxImagePulls=1),
            jobs=(job("n2"),),
            pods=(pod(job("n2"), "Pending", scheduled_at=NOW),),
        ),
        {"limit": 1},
    ),
    "PoolLimitReached": w.Situation(
        w.rolled(None, "n2", pools=[w.POOL | {"maxConcurrent": 1}]), {"limit": 1, "pool": w.H100}
    ),
    "TopologyLimitReached": w.Situation(
        w.rolled(w.TWO_RACKS, "n2", perTopology=[{"key": w.NVLINK, "max": 1}]),
        {"limit": 1, "key": w.NVLINK, "group": "a.1"},
    ),
    "LimitOfAnotherProfile": w.Situation(
        observed(
            [profile(), profile("other", rollout={"pools": [w.POOL | {"maxConcurrent": 1}]})],
            nodes("n1", "n2"),
            jobs=(job("n2", owner="other"),),
        ),
        {
            "profile": "ml/other",
            "detail": f"the number of agents in pool {w.H100} has reached its limit in spec.rollout.pools (1)",
        },
    ),
    "FleetLimitReached": w.Situation(
        w.in_a_fleet(w.rolled(None, "n2"), maxConcurrent=1), {"where": "in the cluster", "limit": 1}
    ),
    "FleetPowerUnknown": w.Situation(
        w.in_a_fleet(
            observed([profile(target={"products": [NOVEL]})], nodes("n1", labels=OF_NOVEL)), powerBudgetWatts=1
        ),
        {"gpu": NOVEL, "label": LABEL_WATTS_PER_GPU},
    ),
    "FleetPowerReached": w.Situation(
        w.in_a_fleet(w.rolled(None, "n2"), pools=[{"name": w.H100, "powerBudgetWatts": 8000}]),
        {
            "drawn": 5600,
            "watts": 5600,
            "where": f"in pool {w.H100}",
            "origin": "factory limit of H100 SXM",
            "budget": 8000,
        },
    ),
    "FleetPowerTooSmall": w.Situation(
        w.in_a_fleet(w.rolled(), powerBudgetWatts=5000),
        {"watts": 5600, "where": "in the cluster", "origin": "factory limit of H100 SXM", "budget": 5000},
    ),
    "TopologyKeyMissing": w.Situation(w.rolled(perTopology=[{"key": "rack", "max": 1}]), {"key": "rack"}),
    "PowerBudgetReached": w.Situation(
        w.rolled(None, "n2", powerBudgetWatts=8000),
        {
            "drawn": 5600,
            "watts": 5600,
            "origin": "H100 SXM default, not yet measured",
            "name": "spec.rollout.powerBudgetWatts",
            "budget": 8000,
        },
    ),
    "PowerBudgetTooSmall": w.Situation(
        w.rolled(powerBudgetWatts=5000),
        {
            "watts": 5600,
            "origin": "H100 SXM default, not yet measured",
            "name": "spec.rollout.powerBudgetWatts",
            "budget": 5000,
        },
    ),
    "Ramping": w.Situation(w.rolled(None, "n2", rampSeconds=60), {"seconds": 60, "until": format_time(NOW + MINUTE)}),
    "NotDueYet": w.Situation(
        observed([profile(schedule={"cron": "0 12 * * *"})]), {"at": format_time(NOW + timedelta(hours=3))}
    ),
    "GPUsMissing": w.Situation(
        w.measured_for(
            {"hardware": "H100/8/"}, w.node_with(allocatable={"nvidia.com/gpu": "7"}, capacity={"nvidia.com/gpu": "8"})
        ),
        {"gpus": 7, "all": 8, "node": "n1"},
    ),
    "Quarantined": w.Situation(w.quarantined(), {"runs": "3 runs", "why": "AgentCrashed", "node": "n1"}),
    "Retrying": w.Situation(
        observed(
            [profile()], reports=(report(status=tried("failed", failures=1, message="It crashed.", ago=0 * MINUTE)),)
        ),
        {"attempt": 1, "why": "It crashed.", "retry": 1, "limit": 2, "until": format_time(NOW + MINUTE)},
    ),
    "BackingOff": w.Situation(
        observed([profile()], reports=(report(status=tried("disrupted", reason="Disrupted", ago=0 * MINUTE)),)),
        {"why": "Disrupted", "until": format_time(NOW + timedelta(seconds=30))},
    ),
    "StoppedByAdmin": w.Situation(
        observed([profile()], stop=Stop("Hold", "Rack 12 is too hot.", "ConfigMap a/b")),
        {"does": "holds all agents", "words": "Rack 12 is too hot.", "origin": "ConfigMap a/b"},
    ),
    "PlanFailed": w.Situation(
        observed([profile()], reports=(report(status=tried("disrupted", finishedAt="2026-13-45T00:00:00Z")),)),
        {"why": "ValueError: month must be in 1..12"},
    ),
    "Suspended": w.Situation(observed([profile(suspend=True)]), {}),
    "ProfileNotAccepted": w.Situation(
        observed([profile()], priority_class_exists=False),
        {
            "why": "PriorityClass precision-profiler-agent does not exist; without it agents could preempt "
            "other pods. Upgrade or reinstall the chart, or create it."
        },
    ),
    "WaitsInQueue": w.Situation(
        observed([profile(agent={"queueName": "gpus"})], jobs=(job(suspended=True),)), {"queue": "gpus"}
    ),
    "AgentStarting": w.Situation(
        w.agent(job(), phase="Pending", waiting_reason="ContainerCreating"), {"attempt": 1, "why": "ContainerCreating"}
    ),
    "PullingImage": w.Situation(
        w.agent(job(), nodes("n1", images=()), phase="Pending", scheduled_at=NOW - MINUTE),
        {
            "attempt": 1,
            "node": "n1",
            "since": format_time(NOW - MINUTE),
            "until": format_time(NOW + timedelta(seconds=1740)),
        },
    ),
    "ImagePullFailing": w.Situation(
        w.agent(job(), phase="Pending", scheduled_at=NOW, waiting_reason="ErrImagePull", waiting_message="not found"),
        {"attempt": 1, "node": "n1", "why": "not found", "until": format_time(NOW + timedelta(seconds=300))},
    ),
    "AgentUnreachable": w.Situation(
        w.agent(job(), nodes("n1", ready="Unknown"), deleting_since=NOW - timedelta(seconds=9)),
        {
            "attempt": 1,
            "node": "n1",
            "why": "condition Ready is Unknown (KubeletReady)",
            "until": f"at {format_time(NOW + timedelta(seconds=51))}",
        },
    ),
    "AgentUnschedulable": w.Situation(
        w.agent(job(), phase="Pending", unschedulable="9 node(s) didn't satisfy existing pods anti-affinity rules"),
        {
            "attempt": 1,
            "why": "9 node(s) didn't satisfy existing pods anti-affinity rules; they may be of a pod of any namespace: "
            "see docs/security.md, What the cluster must enforce",
        },
    ),
    "AgentRunning": w.Situation(w.agent(job()), {"attempt": 1, "job": job().name}),
    "Collecting": w.Situation(
        w.agent(w.COMPLETE, phase="Succeeded", message="{}"), {"attempt": 1, "why": "its result is being read"}
    ),
    "Measured": w.Situation(
        observed([profile()], reports=(report(status=tried()),)), {"attempt": 1, "node": report().node_name}
    ),
}
"""Whose turn: decided from everything that runs and has run."""
