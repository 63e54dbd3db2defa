"""What the operator's account may write to a Node, on a real API server: its one condition, and nothing else.

By raw PATCH: `kubectl patch` reads first, and so hides what a patch of nodes/status can do.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import yaml

from precision_lab.builds.binaries import binaries
from precision_lab.lab import Lab
from precision_operator.cluster import ApiError
from precision_operator.core.observe.node_gate import NodeGate
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.results.node_condition import Write
from precision_operator.shell.acting.node_conditions import NodeConditions
from precision_operator.shell.observing.cache import Cache
from tests.support.api_server import MERGE_PATCH, SERVER_SIDE_APPLY, ApiServer
from tests.support.eventually import eventually
from tests.support.golden import beside
from tests.support.helm import Helm, of_kind

pytestmark = pytest.mark.cluster

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CONDITION = "precisionprofiler.io/ComputeAccepted"
STRATEGIC, JSON_PATCH = "application/strategic-merge-patch+json", "application/json-patch+json"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
BOOT, NEXT_BOOT, NOBODY = "b0070001", "b0070002", "0" * 36
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
FULL = {"type": "DiskPressure", "status": "False", "reason": "NoDiskPressure", "message": "enough"}
LABELS = "the metadata of a Node"
STATUS = "nothing of a Node's status but its conditions"
OTHERS = "conditions of others may not be changed"
ONE = "exactly one condition"
WORDS = "the condition needs a status, a reason and a message"
SUFFIX = "the message must end with this Node's UID and present boot"


class Node:
    """A Node of a kubelet that reports its boot, as the operator's account sees it."""

    def __init__(self, api: ApiServer) -> None:
        self.name, self._admin = f"gate-{uuid.uuid4().hex[:8]}", api
        self._operator = api.acting_as("system:serviceaccount:profiling:fleet-operator")
        labels = {"nvidia.com/gpu.product": "NVIDIA-GB200"}
        meta = {"name": self.name, "labels": labels, "annotations": {"a/b": "c"}}
        code, raw = api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        assert code == 201, raw
        self.uid = raw["metadata"]["uid"]
        self.reboot(BOOT)

    def reboot(self, boot: str) -> None:
        """What a kubelet writes."""
        info = {"bootID": boot, "machineID": "m", "systemUUID": "s", "kernelVersion": "6"}
        counts = {"nvidia.com/gpu": "4", "cpu": "72"}
        status = {"nodeInfo": info, "capacity": counts, "allocatable": counts, "conditions": [READY, FULL]}
        code, raw = self._admin.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, kind=STRATEGIC)
        assert code == 200, raw

    def condition(self, status: str = "True", boot: str = BOOT, uid: str = "", **changes: Any) -> dict[str, Any]:
        row = {"type": CONDITION, "status": status, "reason": "Pass", "lastTransitionTime": "2026-11-23T23:40:00Z"}
        message = f"All checks passed; compute only (node {uid or self.uid}, boot {boot})"
        return {name: value for name, value in ({**row, "message": message} | changes).items() if value is not None}

    def write(self, kind: str, body: Any, path: str = "/status", **query: str) -> str:
        """Empty where it is taken, else why it is refused."""
        code, raw = self._operator.call("PATCH", f"/api/v1/nodes/{self.name}{path}", body, kind=kind, **query)
        return "" if code == 200 else f"{code} {raw.get('message', '')}"

    def put(self, *conditions: dict[str, Any], uid: str = "", **meta: Any) -> str:
        """The operator's way to write: a strategic merge patch by type that names the Node's UID."""
        named = {"uid": uid or self.uid} | meta
        return self.write(STRATEGIC, {"metadata": named, "status": {"conditions": conditions}})

    async def patch(self, path: str, body: Any, kind: str, query: Any = None) -> Any:
        """As the operator's own cluster does it."""
        code, raw = self._operator.call("PATCH", path, body, kind=STRATEGIC, **(query or {}))
        if code != 200:
            raise ApiError(code, raw["reason"], raw["message"])
        return raw

    def index(self) -> int:
        _, raw = self._admin.call("GET", f"/api/v1/nodes/{self.name}")
        return [row["type"] for row in raw["status"]["conditions"]].index(CONDITION)


@pytest.fixture(scope="module")
def node(cluster: Lab, api: ApiServer) -> Iterator[Node]:
    """A Node with our condition, guarded by the chart's policy."""
    values = {"acceptance": {"nodeCondition": {"enabled": True}}}
    policies = of_kind(Helm(binaries(["helm"])["helm"]).manifests(**values), *KINDS)
    assert len(policies) == len(KINDS)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(policies))
    made = Node(api)
    eventually(lambda: "denied" in made.write(MERGE_PATCH, {"metadata": {"labels": {"canary": "x"}}}, dryRun="All"))
    assert made.put(made.condition()) == ""
    yield made
    api.call("DELETE", f"/api/v1/nodes/{made.name}")
    cluster.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(policies))


def test_its_condition_is_written_and_changed(node: Node) -> None:
    for status, reason in (("False", "Fail"), ("Unknown", "SubjectChanged"), ("True", "Pass")):
        assert node.put(node.condition(status, reason=reason)) == ""
    at = f"/status/conditions/{node.index()}"
    tests = {"/metadata/uid": node.uid, "/status/nodeInfo/bootID": BOOT, f"{at}/type": CONDITION}
    guards = [{"op": "test", "path": path, "value": value} for path, value in tests.items()]
    assert node.write(JSON_PATCH, [*guards, {"op": "replace", "path": at, "value": node.condition()}]) == ""


FORBIDDEN = [(part, *change) for part, changes in beside(__file__).items() for change in changes.items()]


@pytest.mark.parametrize(("part", "what", "change"), FORBIDDEN)
def test_nothing_else_of_a_node_is_changed(node: Node, part: str, what: str, change: dict[str, Any]) -> None:
    why = LABELS if part == "metadata" else STATUS
    assert why in node.write(MERGE_PATCH, {part: change}), what
    if part == "metadata":
        assert why in node.put(node.condition(), **change), "beside a good condition"


def test_conditions_of_others_are_not_changed(node: Node) -> None:
    ours = node.condition()
    assert OTHERS in node.put(READY | {"status": "False"})
    assert OTHERS in node.put(READY | {"lastHeartbeatTime": "2026-11-23T23:59:00Z"})
    assert OTHERS in node.put(ours, node.condition(type="AcceleratedHardwareReady"))
    for rows in ([ours], [FULL, READY, ours]):
        assert OTHERS in node.write(MERGE_PATCH, {"status": {"conditions": rows}})
    add, remove = {"op": "add", "path": "/status/conditions/-", "value": ours}, {"op": "remove"}
    assert ONE in node.write(JSON_PATCH, [add])
    assert ONE in node.write(JSON_PATCH, [remove | {"path": f"/status/conditions/{node.index()}"}])


@pytest.mark.parametrize(("changes", "why"), [
    ({"message": "fine (node , boot b0070001)"}, SUFFIX), ({"uid": NOBODY}, SUFFIX), ({"boot": NEXT_BOOT}, SUFFIX),
    ({"boot": NEXT_BOOT, "status": "False"}, SUFFIX), ({"boot": ""}, SUFFIX), ({"message": ""}, WORDS),
    ({"status": "Maybe"}, WORDS), ({"reason": ""}, WORDS),
])  # fmt: skip
def test_a_condition_names_its_node_and_boot(node: Node, changes: dict[str, Any], why: str) -> None:
    assert why in node.put(node.condition(**changes))


def test_other_writes_are_refused(node: Node, api: ApiServer) -> None:
    ours = node.condition()
    assert SUFFIX in node.put(node.condition(message=ours["message"] + " and more"))
    for changes in ({"message": "x" * 2000 + ours["message"]}, {"reason": "R" * 300_000}):
        assert WORDS in node.put(node.condition(**changes))
    assert "immutable" in node.put(ours, uid=NOBODY)
    meta = {"name": node.name, "labels": {"a": "b"}}
    applied = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"conditions": [ours]}}
    assert LABELS in node.write(SERVER_SIDE_APPLY, applied, fieldManager="x", force="true")
    for path, value in (("/status/nodeInfo/bootID", "x"), ("/metadata/resourceVersion", "1")):
        change = {"op": "add", "path": "/status/conditions/-", "value": ours}
        assert node.write(JSON_PATCH, [{"op": "test", "path": path, "value": value}, change]).startswith("422")
    only = "only the status of a Node that exists"
    assert only in node.write(MERGE_PATCH, {"metadata": {"labels": {"x": "y"}}}, path="")
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{node.name}-2"}}
    account = api.acting_as("system:serviceaccount:profiling:fleet-operator")
    code, raw = account.call("POST", "/api/v1/nodes", body)
    assert (code, only in raw["message"]) == (403, True)


def test_a_rebooted_node_takes_no_verdict_on_its_last_boot(node: Node) -> None:
    node.reboot(NEXT_BOOT)
    try:
        assert SUFFIX in node.put(node.condition())
        assert node.put(node.condition("Unknown", NEXT_BOOT, reason="SubjectChanged")) == ""
        node.reboot("")
        assert SUFFIX in node.put(node.condition(boot=""))
    finally:
        node.reboot(BOOT)


async def test_the_operator_writes_nothing_without_the_policys_binding(node: Node, api: ApiServer) -> None:
    (binding,) = (it for it in api.ask("GET", BINDINGS)["items"] if it["metadata"]["name"].endswith("node-condition"))
    name, path, cache = binding["metadata"]["name"], f"/api/v1/nodes/{node.name}", Cache()
    gate, now = NodeGate(policy=binding["spec"]["policyName"]), partial(datetime.now, UTC)

    async def write(status: str) -> tuple[str, str]:
        """Why it is not written, and the Node's version then."""
        raw = api.ask("GET", path)
        cache.put("nodes", raw)
        operator = NodeConditions(node, cache, None, gate, now, None)  # type: ignore[arg-type]
        why = await operator._write(Write(node_facts(raw), node.condition(status, reason="x")), cache.all("nodes"))
        return why, api.ask("GET", path)["metadata"]["resourceVersion"]

    forbidden = {"status": {"conditions": [node.condition(message="of no boot")]}}
    before = (await write("False"))[1]
    try:
        api.ask("DELETE", f"{BINDINGS}/{name}")
        eventually(lambda: node.write(STRATEGIC, forbidden, dryRun="All") == "")
        assert await write("True") == ("Unguarded", before)
    finally:
        api.ask("POST", BINDINGS, {**binding, "metadata": {"name": name}})
        eventually(lambda: SUFFIX in node.write(STRATEGIC, forbidden, dryRun="All"))
    why, after = await write("True")
    assert (why, after != before) == ("", True)


def test_others_write_as_before(node: Node, api: ApiServer) -> None:
    path = f"/api/v1/nodes/{node.name}"
    assert api.call("PATCH", path, {"metadata": {"labels": {"by": "admin"}}}, kind=MERGE_PATCH)[0] == 200
    assert api.call("PATCH", path, {"metadata": {"labels": {"by": None}}}, kind=MERGE_PATCH)[0] == 200
