"""One agent pod on a simulated node, from its start to its removal, as the node's kubelet would handle it."""

import asyncio
import shutil
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from precision_api.facts.names import AGENT_CONTAINER
from precision_lab.cluster.objects import Object
from precision_lab.kubelet import pod_status
from precision_lab.kubelet.agent_process import AgentHost
from precision_lab.kubelet.faults import SIGKILL_EXIT, SIGTERM_EXIT, Ended, Plan
from precision_lab.names import FAULT
from precision_operator.cluster.withdrawal import first_of
from precision_operator.core.observe.clock import format_time

DELETED, DEADLINE = "Deleted", "DeadlineExceeded"
DEFAULT_GRACE_SECONDS = 30
LOST = Ended(
    SIGKILL_EXIT, "The container could not be located when the pod was terminated", None, "ContainerStatusUnknown"
)
"""What a kubelet says of a container that it does not know, but that should run: it or its machine was replaced."""
Whereabouts = Literal["there", "replaced", "gone"]
"""Of a machine: replaced means that another one has its name now."""


class Machine(Protocol):
    """What a pod needs of the node that it is on and of the API server."""

    agents: AgentHost
    slots: asyncio.Semaphore

    async def plan(self, pod: Object) -> Plan | None:
        """What shall happen to this pod; None when its node is gone or is not simulated."""

    async def whereabouts(self, pod: Object) -> Whereabouts:
        """What has become of the node that the pod was started on."""

    async def until_node(self, pod: Object, holds: Callable[[Object], bool]) -> None:
        """Returns when there is a node of that name, perhaps another one, for which that holds."""

    async def patch_status(self, patch: Object, pod: Object) -> None:
        """Writes the pod's status; a pod that is gone is no error."""

    async def remove(self, pod: Object) -> None:
        """Deletes the pod's object for good."""


class AgentPod:
    """One pod. `handle` is its life; `interrupt` asks it to end; it is its own log."""

    def __init__(self, pod: Object, machine: Machine, folder: Path) -> None:
        self.pod = pod
        self.machine = machine
        self.folder = folder
        self.ended = asyncio.Event()
        self._wanted, self._why = asyncio.Event(), ""
        """Somebody wants the pod to end before its time, and why."""
        self._kept: bytes | None = b""

    def interrupt(self, why: str) -> None:
        """Asks the pod to end, as deleting it or its deadline does; the first reason stays, but deletion wins."""
        if why == DELETED or not self._why:
            self._why = why
        self._wanted.set()

    def written(self) -> bytes | None:
        """The agent's output so far; None when a fault lost it."""
        if self.ended.is_set():
            return self._kept
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_bytes()
        return b""

    async def handle(self) -> None:
        """Starts the pod, runs its agent, reports its end, and removes it once it is deleted."""
        phase = self.pod["status"].get("phase")
        if phase not in ("Succeeded", "Failed"):
            plan = await self.machine.plan(self.pod)
            if plan is None:
                return  # no machine, no kubelet: the pod is left to the garbage collector
            ended, started = (LOST, format_time(datetime.now(UTC))) if phase == "Running" else await self._live(plan)
            now = await self.machine.whereabouts(self.pod)
            if now == "gone":
                await self.machine.until_node(self.pod, lambda node: True)
                now = "replaced"
            if now == "replaced":
                ended = LOST
            self._kept = ended.log
            self.ended.set()
            patch = pod_status.terminated(self.pod, ended, started, format_time(datetime.now(UTC)))
            await self.machine.patch_status(patch, self.pod)
        while self._why != DELETED:
            self._wanted.clear()
            await self._wanted.wait()
        await self.machine.remove(self.pod)

    async def _live(self, plan: Plan) -> tuple[Ended, str]:
        """The pod's life from Pending on, and when it started."""
        started = format_time(datetime.now(UTC))
        if plan.fault.waiting:
            message = f"Back-off pulling image {self.pod['spec']['containers'][0]['image']}"
            patch = pod_status.waiting(self.pod, started, plan.fault.waiting, message)
        else:
            patch = pod_status.running(self.pod, started)
        await self.machine.patch_status(patch, self.pod)
        return await self._until_end(plan), started

    async def _until_end(self, plan: Plan) -> Ended:
        """The container's life, ended early by an interrupt."""
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        loop = asyncio.get_running_loop()
        timer = loop.call_later(deadline, self.interrupt, DEADLINE) if deadline else None
        try:
            ended = await self._container(plan)
        finally:
            if timer:
                timer.cancel()
        return replace(ended, pod_reason=DEADLINE) if self._why == DEADLINE else ended

    async def _container(self, plan: Plan) -> Ended:
        wanted = self._wanted
        if plan.fault.waiting:
            await wanted.wait()
            return LOST
        if plan.fault.held:
            free = self.machine.until_node(self.pod, lambda node: FAULT not in node["metadata"].get("annotations", {}))
            await first_of(wanted.wait(), free)
        if await _happens(wanted, plan.seconds if plan.fault.ends else None):
            return Ended(SIGTERM_EXIT)
        if not plan.fault.runs:
            return plan.fault.change(Ended(0), plan.argument)
        async with self.machine.slots:
            if wanted.is_set():
                return Ended(SIGTERM_EXIT)
            ended = await self._run_agent(plan)
        return ended if wanted.is_set() else plan.fault.change(ended, plan.argument)

    async def _run_agent(self, plan: Plan) -> Ended:
        """Runs the agent; asked to end, it gets SIGTERM and, after the pod's grace, SIGKILL."""
        self.folder.mkdir(parents=True, exist_ok=True)
        uid = self.pod["metadata"]["uid"]
        agents = self.machine.agents
        agent = asyncio.create_task(agents.run(uid, plan.agent_arguments, environment(self.pod), self.folder))
        ender = asyncio.create_task(self._end_agent(lambda number: agents.signal(uid, number)))
        try:
            return await agent
        finally:
            agent.cancel()
            ender.cancel()

    async def _end_agent(self, send: Callable[[int], None]) -> None:
        await self._wanted.wait()
        send(signal.SIGTERM)
        await asyncio.sleep(self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
        send(signal.SIGKILL)

    def forget(self) -> None:
        """Removes what the pod left on the machine's disk; who follows its log need not wait any longer."""
        self.ended.set()
        shutil.rmtree(self.folder, ignore_errors=True)


def environment(pod: Object) -> dict[str, str]:
    """The variables of the agent's container that have their value in the manifest."""
    container = next(item for item in pod["spec"]["containers"] if item["name"] == AGENT_CONTAINER)
    return {item["name"]: item["value"] for item in container.get("env", []) if "value" in item}


async def _happens(event: asyncio.Event, seconds: float | None) -> bool:
    waiting: Coroutine[Any, Any, bool] = event.wait()
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        return False
