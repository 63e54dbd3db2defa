"""A cluster that says no: what an administrator puts up against agents, each kind before a profile of its own.

Who is refused by the webhook says so in its profile's name: `job-400` is denied its Job with code 400, `pod-hangs` gets
no answer for its pod.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_api.facts import names
from precision_lab.cluster.webhook import HANGS, Denial
from precision_lab.lab import KubectlError, Lab

REFUSING = "refusing"
"""The namespace with a webhook and a policy."""
QUOTAS: Mapping[str, Mapping[str, str]] = {
    "quota-jobs": {"count/jobs.batch": "0"},
    "quota-pods": {"pods": "0"},
    "quota-gpus": {"requests.nvidia.com/gpu": "8"},
    "quota-configmaps": {"count/configmaps": "1"},
}
"""Namespaces with a quota of their name; one ConfigMap is the cluster's own."""
PLACES = (REFUSING, *QUOTAS)
POLICY = "no-agents"
WEBHOOK = f"{POLICY}.lab.precisionprofiler.io"
OF_POLICY = "vap"
"""The profile whose Jobs the ValidatingAdmissionPolicy denies."""
AGENTS = {names.LABEL_APP: names.AGENT_APP}
_KINDS = ("validatingadmissionpolicybinding", "validatingadmissionpolicy", "validatingwebhookconfiguration")


@dataclass(frozen=True)
class Rule:
    """What the webhook thinks of agents."""

    mended: threading.Event = field(default_factory=threading.Event)
    """It lets everybody pass."""
    reserved: set[str] = field(default_factory=set)
    """Names of nodes that no agent may have."""

    def __call__(self, body: Mapping[str, Any]) -> Denial | None:
        notes = body["metadata"]["annotations"]
        what, _, how = str(notes[names.ANNOTATION_PROFILE]).partition("-")
        if self.mended.is_set():
            return None
        if notes[names.ANNOTATION_NODE] in self.reserved:
            return Denial(403, "the node is reserved")
        if what != str(body["kind"]).lower():
            return None
        return HANGS if how == "hangs" else Denial(int(how), "no agents here")


def policy() -> tuple[dict[str, Any], dict[str, Any]]:
    """A ValidatingAdmissionPolicy against the Jobs of one profile, and its binding."""
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}]
    meta = {"metadata": {"name": POLICY}, "apiVersion": "admissionregistration.k8s.io/v1"}
    expression = f"object.metadata.?annotations['{names.ANNOTATION_PROFILE}'].orValue('') != '{OF_POLICY}'"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": expression, "message": "no agents by policy"}],
    }
    bound = {"policyName": POLICY, "validationActions": ["Deny"]}
    return (
        {**meta, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**meta, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    )


def remove_policies(lab: Lab) -> None:
    for kind in _KINDS:
        lab.kubectl("delete", kind, POLICY, "--ignore-not-found")


def apply_quotas(lab: Lab) -> None:
    metas = {name: {"name": name, "namespace": name} for name in QUOTAS}
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    lab.apply(*({**kind, "metadata": metas[name], "spec": {"hard": dict(hard)}} for name, hard in QUOTAS.items()))
    for name in QUOTAS:
        lab.kubectl("wait", "--for=jsonpath={.status.hard}", f"quota/{name}", "-n", name, "--timeout=60s")


def remove_quotas(lab: Lab) -> None:
    for name in QUOTAS:
        lab.kubectl("delete", "quota", name, "-n", name, "--ignore-not-found")


def is_denied(lab: Lab, profile: str) -> bool:
    """Whether the API server refuses Jobs of a profile of this name by now: it learns of policies a moment later."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "agent", "image": "none"}]}}
    notes = {names.ANNOTATION_PROFILE: profile, names.ANNOTATION_NODE: "none"}
    meta = {"name": "probe", "namespace": REFUSING, "labels": AGENTS, "annotations": notes}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
    try:
        lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    except KubectlError:
        return True
    return False
