"""An API server in memory that guards the Nodes' conditions as the chart's policy does, and fails on demand."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from benchmarks.node_conditions.record import Record, Written, subject_of
from precision_operator.cluster import ApiError
from precision_operator.core.observe.node_gate import CONDITION
from tests.support.fake_cluster import FakeCluster
from tests.support.operator_in_memory import OperatorInMemory

POLICY = "profiling.fleet.node-condition"


class Killed(BaseException):
    """kill -9 at a request of the operator."""


class World(Protocol):
    """What the server serves."""

    process: int
    loop: OperatorInMemory

    def now(self) -> datetime: ...

    def befall(self, name: str, what: str) -> None: ...


class Server(FakeCluster):
    """Patches of nodes/status as an API server takes them and as the chart's policy refuses them; faults on demand."""

    guarded, kill_in, preconditions = True, 0, True
    meanwhile: tuple[str, bool] | None = None
    """What befalls the next Node that is to be written, after that was decided; whether a watch shows it at once."""
    refused: Mapping[str, ApiError] = {}
    """By node, what its writes are answered with, whoever guards them."""
    record: Record
    world: World

    def _asked(self, method: str, path: str, after: bool = False) -> None:
        super()._asked(method, path, after)
        if self.kill_in:
            self.kill_in -= 1
            if not self.kill_in:
                raise Killed

    async def patch(self, path: str, body: Any, kind: str = "merge", query: Any = None) -> dict[str, Any]:
        if kind != "strategic":
            try:
                return await super().patch(path, body, kind, query)
            finally:  # one that is killed by the answer has written it
                raw = self.objects.get(path.removesuffix("/status")) or {}
                run, node = ((raw.get("status") or {}).get("attempt") or {}).get("run"), raw.get("spec") or {}
                for it in self.record.measured:
                    is_it = (it.run, it.node, it.profile) == (run, node.get("nodeName"), node.get("profile"))
                    it.process = it.process or self.world.process * is_it
        if (error := self.refused.get(path.split("/")[-2])) is not None:
            raise error
        rows = (body.get("status") or {}).get("conditions") or ()
        there = self._found(path.removesuffix("/status"))
        if query and self.meanwhile is not None:
            (what, watched), self.meanwhile = self.meanwhile, None
            self.world.befall(there["metadata"]["name"], what)
            there = self._found(path.removesuffix("/status"))
            if watched:
                self.world.loop.cache.put("nodes", there)
        meta, subject = there["metadata"], subject_of(there)
        wrong = any(not row["message"].endswith(subject.ending) or len(row["reason"]) > 128 for row in rows)
        if self.guarded and wrong:
            denied = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request"
            raise ApiError(403, "Forbidden", f"nodes is forbidden: {denied}")
        if query:
            return there
        kept = {it["type"]: it for it in (*there["status"]["conditions"], *rows)}
        status = there["status"] | {"conditions": list(kept.values())}
        before: dict[str, Any] = next((it for it in there["status"]["conditions"] if it["type"] == CONDITION), {})
        patched = await super().patch(
            path, {"metadata": body["metadata"] if self.preconditions else {}, "status": status}
        )
        at, process = self.world.now(), self.world.process
        self.record.written += [Written(process, meta["name"], subject, at, before, row, self.guarded) for row in rows]
        return patched
