"""Which pod held which device when, from outside: every ResourceClaim of the cluster, in the order of its writes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from tests.support.api_server import ApiServer

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
Object = dict[str, Any]


class ClaimHistory:
    """Watches all ResourceClaims from now on, until `close`."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._seen: list[tuple[str, Object]] = []
        self._ending = threading.Event()
        self.broken = False
        """Whether the watch lost its place, so that something may be missing."""
        status, listed = api.call("GET", CLAIMS)
        assert status == 200, listed
        self._seen += [("ADDED", item) for item in listed["items"]]
        threading.Thread(target=self._follow, args=(listed["metadata"]["resourceVersion"],), daemon=True).start()

    def close(self) -> None:
        """Lets the watch run out."""
        self._ending.set()

    def changes(self) -> list[tuple[str, Object]]:
        """All changes up to now, as (type of event, claim)."""
        assert not self.broken, "the watch of claims lost its place"
        return list(self._seen)

    def held_twice(self) -> list[str]:
        """Devices that two claims were allocated at the same instant, admin access left out; empty is as it must be."""
        held: dict[str, frozenset[str]] = {}
        found: list[str] = []
        for kind, claim in self.changes():
            uid = claim["metadata"]["uid"]
            held.pop(uid, None)
            if kind != "DELETED":
                held[uid] = frozenset("/".join(device) for device in allocated(claim))
            times = Counter(device for devices in held.values() for device in devices)
            found += [device for device, number in times.items() if number > 1]
        return found

    def of_pods(self) -> dict[str, list[tuple[str, str, str]]]:
        """The devices of each pod's claims, by the pod's name, as they were last allocated."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for _, claim in self.changes():
            devices = allocated(claim)
            for pod in (claim.get("status") or {}).get("reservedFor") or () if devices else ():
                found[pod["name"]] = devices
        return found

    def _follow(self, version: str) -> None:
        while not self._ending.is_set():
            try:
                for event in self._api.watch(CLAIMS, version):
                    if event["type"] == "ERROR":
                        self.broken = True
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._seen.append((event["type"], event["object"]))
            except OSError:
                self._ending.wait(0.1)


def allocated(claim: Object) -> list[tuple[str, str, str]]:
    """(driver, pool, device) of each device that a claim has for itself."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(row["driver"], row["pool"], row["device"]) for row in results if not row.get("adminAccess")]
