"""What our programs ask of the API server in a run is what the chart allows, and nothing that they ask is refused."""

from collections import Counter
from pathlib import Path

import pytest

from precision_lab.fleet.fleet import NodeSpec
from tests.support.audit import requests
from tests.support.eventually import eventually
from tests.support.site import Scene, specs
from tests.support.tenant import TENANT

pytestmark = pytest.mark.cluster

Asked = tuple[str, str]
"""Resource (with its subresource) and verb."""


def test_nothing_that_our_programs_ask_for_is_forbidden(scene: Scene, audit_log: Path) -> None:
    scene.add_nodes(*specs(2), NodeSpec("H100", traits=("fault:crash",)), NodeSpec("H100", traits=("busy",)))
    profile = scene.completed(retention={"deletedNodes": "1s"})
    profile.delete()
    eventually(lambda: not profile.jobs())
    assert Counter(entry["responseStatus"]["code"] for entry in requests(audit_log))[201] > 0
    assert Counter(map(decision, requests(audit_log)))["allow"] > 0
    taken = f"/namespaces/{TENANT}/"  # whose rights tests take away
    # of the programs themselves: with their tokens, other tests ask by kubectl for what they may not have
    asked = [entry for entry in requests(audit_log) if not entry["userAgent"].startswith("kubectl/")]
    refused = [entry["requestURI"] for entry in asked if decision(entry) != "allow"]
    assert [uri for uri in refused if taken not in uri] == []


def decision(entry: dict[str, dict[str, str]]) -> str:
    """What became of the rights that a request needs; a quota that refuses it with 403 is no question of rights."""
    return entry.get("annotations", {}).get("authorization.k8s.io/decision", "")


def test_the_operator_uses_the_rights_that_it_has(scene: Scene, audit_log: Path) -> None:
    scene.add_nodes(*specs(1))
    scene.apply().completes()
    used = {asked(entry) for entry in requests(audit_log) if "objectRef" in entry}
    needed = {
        ("nodes", "list"),
        ("nodes", "watch"),
        ("pods", "list"),
        ("pods/log", "get"),
        ("jobs", "create"),
        ("jobs", "delete"),
        ("nodeprecisionreports", "create"),
        ("nodeprecisionreports/status", "patch"),
        ("precisionprofiles/status", "patch"),
        ("configmaps", "create"),
        ("events", "create"),
    }
    assert needed <= used


def asked(entry: dict[str, dict[str, str]]) -> Asked:
    ref = entry["objectRef"]
    resource = "/".join(part for part in (ref.get("resource", ""), ref.get("subresource", "")) if part)
    return resource, str(entry["verb"])
