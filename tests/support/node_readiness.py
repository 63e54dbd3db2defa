"""Node Readiness Controller in a lab: itself, built in a checkout of its source, or a stand-in.

The stand-in decides in the order of 0.5.0 (reconcileDelete, processDryRun, evaluateRuleForNode): a rule that goes takes
its taint off all nodes; a dry run counts; else a node has the taint while its conditions are not as required.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from precision_lab.lab import Lab
from precision_operator.cluster import paths
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.history import Object

GROUP, PLURAL = "readiness.node.x-k8s.io", "nodereadinessrules"
RULES = f"/apis/{GROUP}/v1alpha1/{PLURAL}"
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSION = {"name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}}}
KIND: Object = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP, "scope": "Cluster", "versions": [VERSION | {"schema": {"openAPIV3Schema": SCHEMA}}],
        "names": {"plural": PLURAL, "singular": PLURAL[:-1], "kind": "NodeReadinessRule"},
    },
}  # fmt: skip


@contextmanager
def readiness_controller(lab: Lab, checkout: str) -> Iterator[None]:
    """Its kind and its controller for the length of the block; from `checkout`, or without one the stand-in."""
    kind, ending = f"{checkout}/config/crd/bases/{GROUP}_{PLURAL}.yaml", threading.Event()
    lab.kubectl("apply", "-f", kind) if checkout else lab.apply(KIND)
    lab.wait_until_established(KIND["metadata"]["name"])
    stand_in = threading.Thread(target=_act_until, args=(ApiServer(lab.kubeconfig), ending), daemon=True)
    if checkout:
        argv = (f"{checkout}/bin/manager", "--health-probe-bind-address=0")
        lab.processes.start(GROUP, argv, env={"KUBECONFIG": str(lab.kubeconfig)})
    else:
        stand_in.start()
    try:
        yield
    finally:
        lab.kubectl("delete", PLURAL, "--all", "--timeout=30s")
        ending.set()
        lab.processes.stop(GROUP) if checkout else stand_in.join(30)
        lab.kubectl("delete", "crd", KIND["metadata"]["name"])


def has_taint(node: Object, taint: Object) -> bool:
    return any((it["key"], it["effect"]) == (taint["key"], taint["effect"]) for it in node["spec"].get("taints", ()))


def _is_ready(spec: Object, node: Object) -> bool:
    """By a rule of allOf without a defaultStatus."""
    says = {it["type"]: it["status"] for it in node["status"].get("conditions", ())}
    return all(says.get(it["type"], "Unknown") == it["requiredStatus"] for it in spec["conditions"])


def _act_until(api: ApiServer, ending: threading.Event) -> None:
    while not ending.wait(0.1):
        for rule in api.call("GET", RULES)[1].get("items", ()):
            _act(api, rule)


def _act(api: ApiServer, rule: Object) -> None:
    meta, spec, path = rule["metadata"], rule["spec"], paths.item(RULES, rule["metadata"]["name"])
    taint, is_going = spec["taint"], "deletionTimestamp" in meta
    selector = ",".join(f"{key}={value}" for key, value in spec["nodeSelector"]["matchLabels"].items())
    nodes = api.call("GET", paths.NODES, labelSelector=selector)[1].get("items", ())
    due = [node for node in nodes if has_taint(node, taint) == (is_going or _is_ready(spec, node))]
    if not spec["dryRun"] or is_going:
        for node in due:
            taints = [it for it in node["spec"].get("taints", ()) if not has_taint({"spec": {"taints": [it]}}, taint)]
            body: Object = {"spec": {"taints": taints if has_taint(node, taint) else [*taints, taint]}}
            body["metadata"] = {"resourceVersion": node["metadata"]["resourceVersion"]}
            api.call("PATCH", paths.item(paths.NODES, node["metadata"]["name"]), body, kind=MERGE_PATCH)
    elif meta["generation"] != rule.get("status", {}).get("observedGeneration"):  # counted once: nodes don't count anew
        adds = sum(not has_taint(node, taint) for node in due)
        counts = {"affectedNodes": len(nodes), "taintsToAdd": adds, "taintsToRemove": len(due) - adds}
        status = {"observedGeneration": meta["generation"], "dryRunResults": counts}
        api.call("PATCH", f"{path}/status", {"status": status}, kind=MERGE_PATCH)
    if not (is_going and due):
        held = [] if is_going else [f"{GROUP}/cleanup-taints"]
        api.call("PATCH", path, {"metadata": {"finalizers": held}}, kind=MERGE_PATCH)
