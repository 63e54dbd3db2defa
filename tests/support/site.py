"""A lab with the chart installed, shared by all end-to-end tests, and one test's own corner of it."""

import itertools
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import Lab
from precision_lab.release.install import Program
from precision_operator.cluster import paths
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.eventually import eventually
from tests.support.history import Change, History, Object

MARK = "e2e.test/scene"
"""Label of a scene's nodes; its profiles ask for it."""
TINY = {"name": "tiny", "shapes": [{"m": 4096, "k": 4096, "n": 4096}]}
QUICK: Object = {
    "workload": TINY,
    "recipes": ["fp8_current"],
    "benchmarks": {"training": {"enabled": False}},
    "rollout": {"maxConcurrent": 50},
}
"""A spec whose agents cost little."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Site:
    """The cluster, what is installed in it, and all that has happened in the watched namespace."""

    lab: Lab
    operator: Program
    exporter: Program
    api: ApiServer
    history: History
    namespace: str

    def kill_operator(self) -> None:
        """As a node's crash does: no signal that it could answer."""
        self.lab.processes.stop(self.operator.name, signal.SIGKILL)

    @contextmanager
    def without_operator(self) -> Iterator[None]:
        """Nobody operates for the length of the block."""
        self.kill_operator()
        try:
            yield
        finally:
            self.operator.start()

    @contextmanager
    def operated_by(self, operator: Program) -> Iterator[None]:
        """Another operator for the length of the block (other arguments, another road to the cluster)."""
        with self.without_operator():
            try:
                operator.start()
                yield
            finally:
                self.kill_operator()

    def get(self, path: str) -> Object:
        return self.api.ask("GET", path)

    def items(self, path: str, profile_uid: str) -> list[Object]:
        return self.labelled(path, f"{names.LABEL_PROFILE_UID}={profile_uid}")

    def labelled(self, path: str, selector: str) -> list[Object]:
        return list(self.api.ask("GET", path, labelSelector=selector)["items"])

    def operator_has_looked(self) -> None:
        """Returns when the operator has made a pass over all profiles as they were at the call."""
        self.operator_counts({"nodeNames": ["nowhere"]}, 0)

    def operator_counts(self, target: Object, nodes: int) -> None:
        """Returns when the operator sees so many nodes that the target matches.

        A suspended profile is the probe: one pass decides over all profiles, and then writes its status.
        """
        probe = profile_manifest(self.namespace, f"probe-{next(_numbers)}", target=target, suspend=True)
        collection = paths.profiles(self.namespace)
        self.api.ask("POST", collection, probe)
        path = paths.item(collection, probe["metadata"]["name"])
        eventually(lambda: self.get(path).get("status", {}).get("nodes", {}).get("matched") == nodes)
        self.api.ask("DELETE", path)


@dataclass(frozen=True)
class Scene:
    """One test's nodes and profiles; `close` takes them away again."""

    site: Site
    mark: str = field(default_factory=lambda: f"s{next(_numbers)}")

    @property
    def lab(self) -> Lab:
        return self.site.lab

    def add_nodes(self, *specs: NodeSpec) -> list[str]:
        """Adds nodes that only this scene's profiles match; returns their names, in the order of `specs`.

        The operator has seen them then: a profile that came before its nodes would match nothing for a moment.
        """
        single = [spec for spec in specs for spec in [replace(spec, count=1)] * spec.count]
        there = len(self.nodes())
        named = [
            replace(spec, name=f"{self.mark}-{there + i:02d}", labels=(*spec.labels, (MARK, self.mark)))
            for i, spec in enumerate(single)
        ]
        added = self.lab.add_nodes(named)
        self.site.operator_counts({"nodeSelector": {MARK: self.mark}}, there + len(named))
        return added

    def add_node_again(self, name: str) -> None:
        self.lab.add_node(NodeSpec("H100", labels=((MARK, self.mark),)), name)

    def manifest(self, name: str = "", **spec: Any) -> Object:
        """A profile over this scene's nodes; a failure is told at once, without retries, unless the test says other."""
        spec["rollout"] = {"retry": {"limit": 0}, **spec.get("rollout", QUICK["rollout"])}
        target = {"nodeSelector": {MARK: self.mark}, **spec.pop("target", {})}
        return profile_manifest(self.site.namespace, name or self.mark, target=target, **spec)

    def apply(self, name: str = "", **spec: Any) -> "Profile":
        manifest = self.manifest(name, **spec)
        self.lab.apply(manifest)
        return self.profile(manifest["metadata"]["name"])

    def completed(self, name: str = "", **spec: Any) -> "Profile":
        """What was applied, once it is complete."""
        profile = self.apply(name, **spec)
        profile.completes()
        return profile

    def profile(self, name: str) -> "Profile":
        path = paths.item(paths.profiles(self.site.namespace), name)
        return Profile(self.site, name, self.site.get(path)["metadata"]["uid"])

    def nodes(self) -> list[Object]:
        return self.site.labelled(paths.NODES, f"{MARK}={self.mark}")

    def close(self) -> None:
        """Deletes what was made, profiles first, so that no agent is cut off from its node."""
        profiles = self.site.get(paths.profiles(self.site.namespace))["items"]
        mine = (it["metadata"] for it in profiles if it["spec"]["target"]["nodeSelector"].get(MARK) == self.mark)
        for meta in mine:
            self.lab.kubectl("delete", "pp", meta["name"], "-n", self.site.namespace, "--ignore-not-found")
            eventually(lambda uid=meta["uid"]: not self.site.items(paths.jobs(self.site.namespace), uid))
            its = f"{names.LABEL_PROFILE_UID}={meta['uid']}"  # not when the garbage collector comes: others compare
            self.site.api.call("DELETE", paths.reports(self.site.namespace), labelSelector=its)
        self.lab.kubectl("delete", "nodes", "--selector", f"{MARK}={self.mark}", "--wait=false")


@dataclass(frozen=True)
class Profile:
    """A profile that was applied; equal to another one of its name only if it is the same object."""

    site: Site
    name: str
    uid: str

    @property
    def path(self) -> str:
        return paths.item(paths.profiles(self.site.namespace), self.name)

    def completes(self, seconds: int = 240) -> Object:
        """Waits as a user does; returns the status."""
        wait = ("wait", "--for=condition=Complete", f"pp/{self.name}", f"--timeout={seconds}s")
        self.site.lab.kubectl(*wait, f"--namespace={self.site.namespace}")
        return self.status()

    def get(self) -> Object:
        return self.site.get(self.path)

    def status(self) -> Object:
        return dict(self.get().get("status", {}))

    def counts(self) -> dict[str, int]:
        return dict(self.status().get("nodes", {}))

    def condition(self, kind: str) -> Object:
        """One of its conditions; empty when it is not there."""
        return next((c for c in self.status().get("conditions", ()) if c["type"] == kind), {})

    def patch(self, **spec: Any) -> None:
        self.site.api.ask("PATCH", self.path, {"spec": spec}, kind=MERGE_PATCH)

    def delete(self) -> None:
        self.site.lab.kubectl("delete", "pp", self.name, f"--namespace={self.site.namespace}")

    def reports(self) -> list[Object]:
        return self.site.items(paths.reports(self.site.namespace), self.uid)

    def report_of(self, node: str) -> Object:
        """The only report of a node of this name; empty when there is none."""
        mine = [report for report in self.reports() if report["spec"]["nodeName"] == node]
        assert len(mine) < 2, mine
        return mine[0] if mine else {}

    def attempts(self) -> dict[str, Object]:
        """The newest attempt by node name, of the reports that have one."""
        told = ((report["spec"]["nodeName"], report.get("status", {}).get("attempt")) for report in self.reports())
        return {node: attempt for node, attempt in told if attempt}

    def jobs(self) -> list[Object]:
        return self.site.items(paths.jobs(self.site.namespace), self.uid)

    def pods(self) -> list[Object]:
        return self.site.items(paths.pods(self.site.namespace), self.uid)

    def details(self) -> list[Object]:
        """The ConfigMaps of its reports, those included that are gone by now."""
        mine = {change.uid for change in self.history() if change.kind == "reports"}
        found = self.site.get(paths.config_maps(self.site.namespace))["items"]
        return [item for item in found if mine & {ref["uid"] for ref in item["metadata"].get("ownerReferences", ())}]

    def history(self) -> list[Change]:
        return self.site.history.changes(self.uid)


def profile_manifest(namespace: str, name: str, base: Object = QUICK, **spec: Any) -> Object:
    """A profile with the spec `base` (by default it is measured fast), but for what `spec` says otherwise."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PROFILE_KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": base | spec,
    }


def node_uid(scene: Scene, name: str) -> str:
    """UID of a node that is there now."""
    return str(scene.site.get(paths.item(paths.NODES, name))["metadata"]["uid"])


def without_times(status: Mapping[str, Any]) -> Object:
    conditions = {row["type"]: (row["status"], row["reason"], row.get("message")) for row in status["conditions"]}
    return {"phase": status["phase"], "nodes": status["nodes"], "progress": status["progress"], **conditions}


def reasons(status: Object) -> dict[str, int]:
    """Nodes by reason, as the profile's status counts them."""
    return {row["reason"]: row["count"] for row in status.get("reasons", ())}


def specs(count: int, *traits: str, products: Sequence[Any] = ("GB200", "GB300", "H100")) -> list[NodeSpec]:
    """`count` nodes, the products in turn, each with these traits."""
    return [NodeSpec(products[i % len(products)], traits=traits) for i in range(count)]
