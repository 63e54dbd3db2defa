"""Everything that our programs may do in a cluster, as one table. The chart's roles and the lab's are made from it.

The agent has no row: it has no token, and never speaks to Kubernetes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from precision_api.facts.names import GROUP, PLAN_PLURAL, PROFILE_PLURAL, REPORT_PLURAL

Component = Literal["operator", "exporter"]
Scope = Literal["cluster", "namespace", "own"]
"""cluster: bound once, for all namespaces; namespace: in each watched namespace; own: in the program's own."""
COMPONENTS: tuple[Component, ...] = get_args(Component)
ANYWHERE = "kube-public"
"""A namespace where no right of ours is bound: what may be done there may be done everywhere."""

_READ = ("get", "list", "watch")
OWN_DEPLOYMENT = "OWN-DEPLOYMENT"
OWN_STOP = "OWN-STOP"
_UNINSTALL = "that an uninstall has begun, before the rights go"


@dataclass(frozen=True)
class Grant:
    """One row: who may do what where, and what for."""

    component: Component
    scope: Scope
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str
    only: str = ""
    """The only object that it is for; empty: all of them. The two OWN_... stand for names that the chart knows."""


_cluster, _watched = partial(Grant, "operator", "cluster"), partial(Grant, "operator", "namespace")
_own = partial(Grant, "operator", "own")
GRANTS: tuple[Grant, ...] = (
    _cluster("", ("nodes",), _READ, "which nodes there are, and what GPUs they have"),
    _cluster("", ("pods",), ("list",), "who holds a node's GPUs just now, and who waits for them"),
    _cluster("scheduling.k8s.io", ("priorityclasses",), ("get",), "whether the agents' PriorityClass is there"),
    _cluster("resource.k8s.io", ("resourceslices",), ("list", "watch"), "which GPUs a node has, by claims"),
    _cluster("resource.k8s.io", ("resourceclaims", "deviceclasses"), ("get",), "which GPUs pods hold; the DeviceClass"),
    _watched(GROUP, (PROFILE_PLURAL,), _READ, "what to measure"),
    _watched(GROUP, (f"{PROFILE_PLURAL}/status",), ("patch",), "what has come of it"),
    _watched(GROUP, (REPORT_PLURAL,), (*_READ, "create", "delete", "patch"), "one report for each node"),
    _watched(GROUP, (f"{REPORT_PLURAL}/status",), ("patch",), "a node's figures"),
    _watched(GROUP, (PLAN_PLURAL,), _READ, "which jobs to plan"),
    _watched(GROUP, (f"{PLAN_PLURAL}/status",), ("patch",), "the plan"),
    _watched("batch", ("jobs",), (*_READ, "create", "delete"), "one Job for each attempt"),
    _watched("resource.k8s.io", ("resourceclaimtemplates",), ("get", "create"), "the claim for an agent's GPUs"),
    _watched("", ("pods",), _READ, "how an agent ended: its termination message"),
    _watched("", ("pods/log",), ("get",), "the full result; the end of a failed agent's log"),
    _watched("", ("configmaps",), ("get", "create", "patch"), "full results of nodes; a profile's Hugging Face config"),
    _watched("kueue.x-k8s.io", ("localqueues",), ("get",), "whether the queue is there that a profile names"),
    _watched("", ("events",), ("create", "patch", "list"), "what people should notice"),
    _own("coordination.k8s.io", ("leases",), ("get", "create", "update"), "which replica leads"),
    _own("", ("configmaps",), ("get",), "whether an admin has stopped all agents", OWN_STOP),
    _own("apps", ("deployments",), _READ, _UNINSTALL, OWN_DEPLOYMENT),
    Grant("exporter", "own", "apps", ("deployments",), _READ, _UNINSTALL, OWN_DEPLOYMENT),
    Grant("exporter", "namespace", GROUP, (PROFILE_PLURAL, REPORT_PLURAL, PLAN_PLURAL), _READ, "what it shows"),
)


def rules(component: Component, scope: Scope) -> list[dict[str, Any]]:
    """The PolicyRules of a component's Role (namespace, own) or ClusterRole (cluster), fresh, in the table's order."""
    return [
        {
            "apiGroups": [row.group],
            "resources": list(row.resources),
            "verbs": list(row.verbs),
            **({"resourceNames": [row.only]} if row.only else {}),
        }
        for row in GRANTS
        if (row.component, row.scope) == (component, scope)
    ]


def table() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """All rules by component and scope; a scope that a component has no rights in is left out."""
    rights = {who: {where: rules(who, where) for where in get_args(Scope)} for who in COMPONENTS}
    return {who: {where: rows for where, rows in scopes.items() if rows} for who, scopes in rights.items()}
