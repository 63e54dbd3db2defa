"""The agents' resource claims: one ResourceClaimTemplate for each profile and number of GPUs, which names no node.

A claim asks for a number of devices, never for all: `All` waits for every pool of the node that is being updated, of
any driver, costs 32 devices in a quota, and Kueue can't count it.
"""

from typing import Any

from precision_api.exchange.request import digest
from precision_api.facts import names
from precision_operator.core.observe.observed import ProfileView, Settings

REQUEST = "gpus"
"""Name of the pod's claim and of its only request."""


def template(profile: ProfileView, gpus: int, settings: Settings) -> dict[str, Any]:
    """The template for agents of `profile` that get so many GPUs. It goes with the profile."""
    wanted = {"deviceClassName": settings.device_class, "allocationMode": "ExactCount", "count": gpus}
    spec = {
        "metadata": {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_APP: names.AGENT_APP}},
        "spec": {"devices": {"requests": [{"name": REQUEST, "exactly": wanted}]}},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": f"pp-gpus-{digest([profile.uid, spec], 16)}",
            "namespace": profile.namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_PROFILE_UID: profile.uid},
            "ownerReferences": [owner(profile.name, profile.uid)],
        },
        "spec": spec,
    }


def owner(name: str, uid: str) -> dict[str, Any]:
    """The profile as only owner: with it go its Jobs, reports and details, by the cluster's own garbage collector."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PROFILE_KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
