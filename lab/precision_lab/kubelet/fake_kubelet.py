"""The stand-in for the kubelets of all simulated nodes: runs the real agent program for each agent pod.

kwok plays all other pods. This one watches the pods that carry the agent's label and are bound to a simulated node,
keeps their status as a kubelet does, runs the agent's replay for each, and answers for their logs.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from precision_api.facts.names import AGENT_APP, AGENT_CONTAINER, KWOK_NODE, LABEL_APP
from precision_lab.cluster.kubeconfig import administrator
from precision_lab.cluster.objects import Object
from precision_lab.kubelet.agent_pod import DELETED, AgentPod, Whereabouts
from precision_lab.kubelet.agent_process import AgentHost, agent_host
from precision_lab.kubelet.faults import Plan, plan_of
from precision_lab.kubelet.log_server import log_server
from precision_operator.cluster import ApiError, Cluster, get_or_none, paths
from precision_operator.cluster.watch_loop import WatchLoop, WatchTarget
from precision_operator.cluster.withdrawal import first_of

log = logging.getLogger("precision_lab.kubelet.fake_kubelet")
LOOK_SECONDS = 0.5
"""How often a pod whose node is gone or has a fault looks again."""


class Kubelets(WatchLoop):
    """The agent pods of all simulated nodes, by UID."""

    def __init__(self, cluster: Cluster, agents: AgentHost, folder: Path, seconds: float) -> None:
        super().__init__(cluster, [WatchTarget("", "v1", "pods", label_selector=f"{LABEL_APP}={AGENT_APP}")], log)
        self.agents = agents
        self.slots = asyncio.Semaphore(os.cpu_count() or 1)
        self._folder = folder
        self._seconds = seconds
        self._pods: dict[str, tuple[AgentPod, asyncio.Task[None]]] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, str] = {}
        self._runs: Counter[str] = Counter()

    async def _list(self, target: WatchTarget) -> str:
        pods, version = await self._cluster.list_all(target.path, target.label_selector)
        for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._forget(self._pods[uid][0].pod)
        for pod in pods:
            self._see(target, {"type": "ADDED", "object": pod})
        return version

    def _see(self, target: WatchTarget, event: Object) -> None:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._forget(pod)
        elif _is_ours(pod):
            if uid not in self._pods or self._pods[uid][1].done():
                self._begin(pod)
            if pod["metadata"].get("deletionTimestamp"):
                self._pods[uid][0].interrupt(DELETED)

    def log_of(self, namespace: str, pod: str) -> AgentPod | None:
        """The log of the pod that has this name now."""
        uid = self._uids.get((namespace, pod))
        return self._pods[uid][0] if uid in self._pods else None

    async def plan(self, pod: Object) -> Plan | None:
        """What the node's annotations say about its next agent; None when there is no such simulated node."""
        node = await self._node(pod)
        annotations = node["metadata"].get("annotations", {}) if node else {}
        if node is None or annotations.get(KWOK_NODE) != "fake":
            return None
        node_uid = node["metadata"]["uid"]
        self._nodes[pod["metadata"]["uid"]] = node_uid
        plan = plan_of(annotations, self._runs[node_uid], self._seconds)
        self._runs[node_uid] += 1
        return plan

    async def whereabouts(self, pod: Object) -> Whereabouts:
        """Whether the node still is the one that the pod was started on."""
        node = await self._node(pod)
        if node is None:
            return "gone"
        return "there" if node["metadata"]["uid"] == self._nodes.get(pod["metadata"]["uid"]) else "replaced"

    async def until_node(self, pod: Object, holds: Callable[[Object], bool]) -> None:
        """Returns when there is a node of the pod's node's name, perhaps another one, for which that holds.

        Cancelled when the garbage collector takes the pod first.
        """
        while True:
            node = await self._node(pod)
            if node is not None and holds(node):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def patch_status(self, patch: Object, pod: Object) -> None:
        """Writes the status; a pod that is gone or was made anew under its name is left alone."""
        await _unless_gone(self._cluster.patch(f"{_path(pod)}/status", patch, kind="strategic"))

    async def remove(self, pod: Object) -> None:
        """Deletes the object, as a kubelet does when all containers have ended."""
        await _unless_gone(self._cluster.delete(_path(pod), uid=pod["metadata"]["uid"], grace_seconds=0))

    def _begin(self, pod: Object) -> None:
        meta = pod["metadata"]
        agent_pod = AgentPod(pod, self, self._folder / meta["uid"])
        task = asyncio.create_task(agent_pod.handle())
        task.add_done_callback(_report)
        self._pods[meta["uid"]] = (agent_pod, task)
        self._uids[meta["namespace"], meta["name"]] = meta["uid"]

    def _forget(self, pod: Object) -> None:
        meta = pod["metadata"]
        agent_pod, task = self._pods.pop(meta["uid"], (None, None))
        self._nodes.pop(meta["uid"], None)
        if self._uids.get((meta["namespace"], meta["name"])) == meta["uid"]:
            del self._uids[meta["namespace"], meta["name"]]
        if agent_pod and task:
            task.cancel()
            agent_pod.forget()

    async def _node(self, pod: Object) -> Object | None:
        return await get_or_none(self._cluster, paths.item(paths.NODES, pod["spec"]["nodeName"]))


def _is_ours(pod: Object) -> bool:
    names = [container["name"] for container in pod["spec"]["containers"]]
    return bool(pod["spec"].get("nodeName")) and AGENT_CONTAINER in names


def _path(pod: Object) -> str:
    return paths.item(paths.pods(pod["metadata"]["namespace"]), pod["metadata"]["name"])


async def _unless_gone(write: Awaitable[object]) -> None:
    try:
        await write
    except ApiError as problem:
        if problem.status not in (404, 409):
            raise


def _report(task: asyncio.Task[None]) -> None:
    """One pod's trouble must not end the others, and must not go unseen."""
    if not task.cancelled() and task.exception():
        log.error("handling a pod: %s", task.exception(), exc_info=task.exception())


async def serve(kubeconfig: Path, port: int, folder: Path, seconds: float) -> None:
    """Runs the stand-in until SIGTERM. `port`: where the API server asks for logs; `folder`: for the agents' files.

    An agent takes `seconds` before it measures.
    """
    pki = kubeconfig.parent / "pki"
    shutil.rmtree(folder, ignore_errors=True)
    async with administrator(kubeconfig) as cluster, agent_host() as agents:
        kubelets = Kubelets(cluster, agents, folder, seconds)
        async with log_server(kubelets.log_of, port, pki / "apiserver.crt", pki / "apiserver.key"):
            this = asyncio.current_task()
            assert this
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
            with suppress(asyncio.CancelledError):
                await first_of(kubelets.run(), agents.listen())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    kubeconfig, port, folder, seconds = sys.argv[1:]
    asyncio.run(serve(Path(kubeconfig), int(port), Path(folder), float(seconds)))
