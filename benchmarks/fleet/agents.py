"""Agents that cost nothing: what stands in for the kubelets of the fleet's nodes. The lab starts it.

No agent runs. An agent's pod is Running at once and ends 1 to 5 s later, drawn by its UID, with the termination message
and the log of a replay that `record` made before: the same figures for each node of a product, under the run, request
and node of the pod, and with UUIDs of GPUs of the node's own.
"""

import asyncio
import base64
import gzip
import hashlib
import json
import logging
import random
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from precision_api.exchange.wire import PAYLOAD
from precision_api.facts.names import AGENT_APP, ANNOTATION_REQUEST_HASH, LABEL_APP, REQUEST_ENV
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.kubelet.agent_pod import environment
from precision_lab.kubelet.faults import SIGTERM_EXIT, Ended
from precision_lab.kubelet.log_server import log_server
from precision_lab.kubelet.pod_status import running, terminated
from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.cluster.watch_loop import WatchLoop, WatchTarget
from precision_operator.core.observe.clock import format_time

Json = dict[str, Any]
RECORDINGS = "recordings.json"
"""In the cluster's folder: by product, what a replay left."""
SECONDS = (1.0, 5.0)
log = logging.getLogger("benchmarks.fleet.agents")


def gpu_uuids(node_uid: str, count: int) -> list[str]:
    """As a replay makes them."""
    texts = (hashlib.sha256(f"{node_uid}/{gpu}".encode()).hexdigest() for gpu in range(count))
    return [f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}" for text in texts]


def left(recording: Mapping[str, Any], request: Json, request_hash: str, now: str) -> tuple[str, bytes]:
    """Termination message and log of an agent that has answered this request."""
    uuids = gpu_uuids(request["node"]["uid"], len(recording["uuids"]))
    old = [recording["run"], recording["hash"], recording["node"], recording["finished"], *recording["uuids"]]
    new = [request["run"], request_hash, request["node"]["name"], now, *uuids]
    result, message = recording["result"], recording["message"]
    for before, after in zip(old, new, strict=True):
        result, message = (text.replace(f'"{before}"', f'"{after}"') for text in (result, message))
    packed = gzip.compress(result.encode(), mtime=0)
    payload = base64.b64encode(packed).decode()
    pieces = [payload[start : start + PAYLOAD] for start in range(0, len(payload), PAYLOAD)]
    detail = {"bytes": len(packed), "lines": len(pieces), "sha256": hashlib.sha256(packed).hexdigest()}
    lines = "".join(f"PPR1 {number}/{len(pieces)} {piece}\n" for number, piece in enumerate(pieces, 1))
    return json.dumps(json.loads(message) | {"detail": detail}, separators=(",", ":")), f"\n{lines}".encode()


class AgentPod:
    """One pod, and its log."""

    def __init__(self, pod: Json, cluster: Cluster) -> None:
        self.pod, self._cluster = pod, cluster
        self.ended, self.deleted, self._log = asyncio.Event(), asyncio.Event(), b""

    def written(self) -> bytes:
        return self._log

    async def live(self, recordings: Mapping[str, Any]) -> None:
        """From its start until its object is deleted; a pod that is gone is no error."""
        meta = self.pod["metadata"]
        path = paths.item(paths.pods(meta["namespace"]), meta["name"])
        with suppress(_Gone):
            if self.pod["status"].get("phase") not in ("Succeeded", "Failed"):
                await self._run(path, recordings)
            await self.deleted.wait()
            await self._ask(self._cluster.delete(path, uid=meta["uid"], grace_seconds=0))

    async def _run(self, path: str, recordings: Mapping[str, Any]) -> None:
        meta, started = self.pod["metadata"], _now()
        await self._ask(self._cluster.patch(f"{path}/status", running(self.pod, started), kind="strategic"))
        with suppress(TimeoutError):
            await asyncio.wait_for(self.deleted.wait(), random.Random(meta["uid"]).uniform(*SECONDS))
        end = Ended(SIGTERM_EXIT)
        if not self.deleted.is_set():
            request = json.loads(environment(self.pod)[REQUEST_ENV])
            recording = recordings[request["node"]["product"]]
            message, self._log = left(recording, request, meta["annotations"][ANNOTATION_REQUEST_HASH], _now())
            end = Ended(0, message)
        self.ended.set()
        patch = terminated(self.pod, end, started, _now())
        await self._ask(self._cluster.patch(f"{path}/status", patch, kind="strategic"))

    async def _ask(self, request: Any) -> None:
        try:
            await request
        except ApiError as error:
            if error.status in (404, 409):
                raise _Gone from error
            raise


class _Gone(Exception):
    """The pod is not there any more, or another one has its name."""


class Agents(WatchLoop):
    """The agents' pods of all nodes, by UID."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, [WatchTarget("", "v1", "pods", label_selector=f"{LABEL_APP}={AGENT_APP}")], log)
        self._folder = folder
        self._recordings: Mapping[str, Any] = {}
        self._pods: dict[str, tuple[AgentPod, asyncio.Task[None]]] = {}
        self._uids: dict[tuple[str, str], str] = {}

    def log_of(self, namespace: str, pod: str) -> AgentPod | None:
        uid = self._uids.get((namespace, pod))
        return self._pods[uid][0] if uid in self._pods else None

    async def _list(self, target: WatchTarget) -> str:
        pods, version = await self._cluster.list_all(target.path, target.label_selector)
        for pod in pods:
            self._see(target, {"type": "ADDED", "object": pod})
        return version

    def _see(self, target: WatchTarget, event: Json) -> None:
        pod = event["object"]
        meta = pod["metadata"]
        if event["type"] == "DELETED":
            _, task = self._pods.pop(meta["uid"], (None, None))
            self._uids.pop((meta["namespace"], meta["name"]), None)
            if task:
                task.cancel()
        elif pod["spec"].get("nodeName"):
            if meta["uid"] not in self._pods:
                self._recordings = self._recordings or json.loads((self._folder / RECORDINGS).read_text())
                agent = AgentPod(pod, self._cluster)
                task = asyncio.create_task(agent.live(self._recordings))
                task.add_done_callback(_report)
                self._pods[meta["uid"]] = agent, task
                self._uids[meta["namespace"], meta["name"]] = meta["uid"]
            if meta.get("deletionTimestamp"):
                self._pods[meta["uid"]][0].deleted.set()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception():
        log.error("an agent's pod: %s", task.exception(), exc_info=task.exception())


def _now() -> str:
    return format_time(datetime.now(UTC))


async def serve(kubeconfig: Path, port: int) -> None:
    """Until SIGTERM; the API server asks for logs at `port`."""
    pki = kubeconfig.parent / "pki"
    async with administrator(kubeconfig) as cluster:
        agents = Agents(cluster, kubeconfig.parent)
        async with log_server(agents.log_of, port, pki / "apiserver.crt", pki / "apiserver.key"):
            this = asyncio.current_task()
            assert this
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
            with suppress(asyncio.CancelledError):
                await agents.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
