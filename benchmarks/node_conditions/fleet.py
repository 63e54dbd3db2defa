"""Nodes whose verdicts reach their conditions, and an operator in memory that measures them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import median
from typing import Any, NamedTuple, Self

from benchmarks.node_conditions.record import (
    BAD,
    DRIVER_LABEL,
    REFUSED,
    STRICT,
    Measured,
    Record,
    rates_of,
    subject_of,
    worst_off,
)
from benchmarks.node_conditions.server import POLICY, Killed, Server
from precision_api.acceptance.reference import Reference, sha256_of, text_of
from precision_api.exchange.message import Refusal
from precision_api.exchange.result import Software
from precision_api.exchange.wire import encode
from precision_api.facts.names import (
    ANNOTATION_BOOT,
    ANNOTATION_PROFILE,
    ANNOTATION_REQUEST_HASH,
    ANNOTATION_RERUN,
    LABEL_NODE_UID,
    LABEL_RUN,
    REFERENCE_FILE,
)
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.node_gate import CONDITION, NodeGate
from precision_operator.shell.acting.node_conditions import NodeConditions
from tests.support.fake_cluster import agent_pod
from tests.support.golden_nodes import NONE_FAILS, golden_draft, hot, made, measured_node
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.operator_in_memory import CLASSES, JOBS, NAMESPACE, PODS, PROFILES, REPORTS, OperatorInMemory
from tests.support.world import SETTINGS

STRICTER = {"reference": 5, "node": 5}
BEGIN, TICK = datetime(2026, 11, 27, 9, tzinfo=UTC), timedelta(microseconds=100)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NODE = "g0"
MAPS = paths.config_maps(NAMESPACE)
DRIVER, OTHER_DRIVER = "580.95.05", "590.10"
STACK = "0123456789abcdef"
ODD = {of: NONE_FAILS[of] for of in ("Fallback", "Partial", "Crashed")} | {
    "hot": hot,
    "Simulated": lambda it: it.model_copy(update={"provenance": "replayed"}),  # and says that it verified its kernels
}


class Truth(NamedTuple):
    """What a node's GPUs really are: the first one's deficit, and the node's."""

    gpu_off: float = 0.0
    off: float = 0.0
    sick: bool = False
    """Whether a health counter of one speaks: no agent runs there."""
    by: str = ""
    """The profile whose workload alone shows it; empty: any."""


class Fleet:
    """Nodes of one pool under a profile of the chart's list."""

    def __init__(self, seed: int = 0, size: int = 0, profiles: Sequence[str] = ("nightly",), **listed: Any) -> None:
        """`size` nodes under the `profiles`, else some; `listed` are fields of their rows in the chart's list."""
        self.dice, self.process, self.runs, self.reads = Random(seed), 0, 0, 0
        self.loop = OperatorInMemory(cluster=Server((CLASSES, {"metadata": {"name": SETTINGS.priority_class}})))
        self.server: Server = self.loop.cluster
        self.record = self.server.record = Record()
        self.server.world = self
        reference = golden_draft()
        self.text, self.tenants = text_of(reference), text_of(slow_draft())
        golden = [of for at in range(8) for of in rates_of(measured_node(f"n{at}", 1)).values()]
        self.record.golden = median(golden)
        self.names = [f"g{at}" for at in range(size or self.dice.choice([3, 3, 6, 6, 12, 24]))]
        self.record.nodes = len(self.names)
        self.truths: dict[str, Truth] = {}
        self.boots: Counter[str] = Counter()
        self.swaps: Counter[str] = Counter()
        self.drivers = dict.fromkeys(self.names, DRIVER)
        self.stack, self.season, self.forged = STACK, 0.0, 0
        self.stale = False
        self.profiles = profiles if size or self.dice.random() < 0.5 else ("nightly", "other")
        for name in self.names:
            self.repair(name, self.dice.random() < 0.2 and not size)
            self.boot(name)
        row: dict[str, Any] = {"namespace": NAMESPACE, "profile": "nightly", "recipes": ["bf16"]}
        row |= {"referenceSha256": sha256_of(self.text), "mostDetectPercent": {"reference": 10, "node": 10}}
        rows = [row | listed | {"profile": profile} for profile in self.profiles]
        self.gate = NodeGate.model_validate({"policy": POLICY, "profiles": rows})
        self.save(self.text)
        self.ask()
        self.start()

    @classmethod
    async def in_service(cls, **arguments: Any) -> Self:
        """One of these, whose nodes were measured."""
        fleet = cls(**arguments)
        await fleet.all_measured()
        return fleet

    def now(self) -> datetime:
        """No two reads of this clock are alike, and it goes in every process as in the last."""
        return self.tick() + self.loop.offset

    def tick(self) -> datetime:
        self.reads += 1
        return BEGIN + self.reads * TICK

    def start(self) -> None:
        """A new process leads."""
        self.process += 1
        old, clock = self.loop, self.now
        self.loop = OperatorInMemory(cluster=old.cluster)
        self.loop.offset, self.loop.now, self.loop.clock = old.offset, BEGIN, self.tick
        self.wait(timedelta())
        loop = self.loop
        loop.actor._now = loop.gatherer._now = loop.actor._reports._now = loop.actor._collector._now = clock
        arguments = loop.cluster, loop.cache, loop.actor._reports, self.gate, clock, loop.actor.writes
        loop.actor.node_conditions = NodeConditions(*arguments)
        loop.gatherer._settings = replace(SETTINGS, node_gate=self.gate, started=str(self.process))

    def wait(self, time: timedelta) -> None:
        self.loop.offset += time
        self.server.created = format_time(self.now())

    def repair(self, name: str, broken: bool) -> None:
        """What is true of a node from now on; one that is broken keeps its fault while it is broken."""
        off, was = -self.dice.uniform(9, 14), self.truths.get(name, Truth())
        by = self.dice.choice(["", *self.profiles])
        faults = [Truth(gpu_off=off, by=by), Truth(off=off), Truth(sick=True)]
        fault = self.dice.choice(faults[: 2 + (self.record.nodes > 1)]) if broken else Truth()
        self.truths[name] = was if broken and was != Truth() else fault

    def forget(self, name: str) -> None:
        """Its runs count for a day, over reboots: who repairs a node deletes its report, as docs/verdict.md says."""
        self.record.forgotten.append((self.now(), name))
        for path, raw in list(self.server.objects.items()):
            if path.startswith(f"{REPORTS}/") and raw["spec"]["nodeName"] == name:
                del self.server.objects[path]  # and the garbage collector its results
                self.server.objects.pop(f"{MAPS}/{raw['metadata']['name']}-detail", None)

    def remove(self, name: str) -> None:
        """Somebody removes the node's condition: it is to be measured again."""
        self.record.forgotten.append((self.now(), name))
        status = self.server.objects[f"{paths.NODES}/{name}"]["status"]
        status["conditions"] = [it for it in status["conditions"] if it["type"] != CONDITION]

    def delete(self, profile: str) -> None:
        """And the garbage collector its reports and Jobs."""
        self.record.forgotten.append((self.now(), profile))
        gone = f"{REPORTS}/{profile}-", f"{JOBS}/{profile}-", f"{MAPS}/{profile}-"
        for path in [f"{PROFILES}/{profile}", *(of for of in self.server.objects if of.startswith(gone))]:
            self.server.objects.pop(path, None)

    def boot(self, name: str, anew: bool = False) -> None:
        """A reboot; kubelets keep our condition. `anew`: another Node object of that name."""
        self.boots[name] += 1
        path, boot = f"{paths.NODES}/{name}", f"{name}-boot-{self.boots[name]}"
        raw = node_object(EIGHT_H100 | {DRIVER_LABEL: self.drivers[name]}, name=name, boot=boot)
        before = self.server.objects.get(path)
        if before is not None and not anew:
            raw["metadata"]["uid"] = before["metadata"]["uid"]
            raw["status"]["conditions"] = before["status"]["conditions"]
        else:
            raw["metadata"]["uid"] = f"uid-{name}-{self.boots[name]}"
        self._stored(raw)

    def befall(self, name: str, what: str) -> None:
        """The Node changes now, whoever has just decided about it."""
        raw = self.node(name)
        match what:
            case "namesake" | "reboot":
                self.boot(name, anew=what == "namesake")
            case "driver":
                self.drivers[name] = OTHER_DRIVER if self.drivers[name] == DRIVER else DRIVER
                raw["metadata"]["labels"] |= {DRIVER_LABEL: self.drivers[name]}
                self._stored(raw)
            case "GPU":
                raw["status"]["allocatable"] = {"cpu": "96", "nvidia.com/gpu": "7"}
                self._stored(raw)

    def node(self, name: str) -> dict[str, Any]:
        return deepcopy(self.server.objects[f"{paths.NODES}/{name}"])

    def _stored(self, raw: dict[str, Any]) -> None:
        self.server._store(f"{paths.NODES}/{raw['metadata']['name']}", raw)
        self.record.moved.append((self.now(), raw["metadata"]["uid"]))

    def forge(self, name: str, what: str) -> None:
        """Who may create Jobs or pods there copies an agent that runs, and ends it with a sound node's result."""
        self.forged += 1
        job = deepcopy(self.loop.jobs()[name])
        meta = job["metadata"] | {"name": f"forged-{self.forged}", "uid": f"uid-forged-{self.forged}"}
        run = f"{self.forged:010}" if what == "Job" else meta["labels"][LABEL_RUN]
        named = {"run": run, "request_hash": meta["annotations"][ANNOTATION_REQUEST_HASH]}
        published = encode(measured_node(name, 1).model_copy(update=named))
        state = {"terminated": {"exitCode": 0, "message": published.message.decode()}}
        if what == "Job":
            meta["labels"] = meta["labels"] | {LABEL_RUN: run}
            ended = {"type": "Complete", "status": "True", "lastTransitionTime": format_time(self.now())}
            self.server._store(f"{JOBS}/{meta['name']}", {**job, "metadata": meta, "status": {"conditions": [ended]}})
        pod = agent_pod({"metadata": meta}, "Succeeded", state)
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = job["metadata"]["name"]
        self.server._store(f"{PODS}/{pod['metadata']['name']}", pod)
        self.server.logs[pod["metadata"]["name"]] = "\n".join(published.lines).encode()

    def save(self, text: str | None, name: str = "h100-jan") -> None:
        path = f"{MAPS}/{name}"
        self.server.objects.pop(path, None)
        if text is not None:
            self.server._store(path, {"metadata": {"name": name}, "data": {REFERENCE_FILE: text}})
        self.loop.gatherer._references._last.clear()

    def ask(self, suspend: bool = False, **acceptance: Any) -> None:
        """The first profile with these fields; each that was deleted is made again."""
        asked = {"reference": {"name": "h100-jan", "sha256": sha256_of(self.text)}}
        asked |= {"mustDetectPercent": {"reference": 7, "node": 7}}
        for profile in self.profiles:
            path, edit = f"{PROFILES}/{profile}", acceptance if profile == "nightly" else {}
            old = self.server.objects.get(path) or {}
            is_strict = edit.get("mustDetectPercent") == STRICTER
            self.record.limits.append((self.now(), profile, STRICT if is_strict else BAD))
            self.loop.apply(profile, acceptance=asked | edit, suspend=suspend, rollout={"maxConcurrent": 50})
            there = self.server.objects[path]
            if old:
                there["metadata"] |= {
                    "uid": old["metadata"]["uid"],
                    "annotations": old["metadata"].get("annotations") or {},
                }
                there["status"] = old.get("status") or {}

    def rerun(self) -> None:
        self.runs += 1
        for profile in self.profiles:
            if (there := self.server.objects.get(f"{PROFILES}/{profile}")) is not None:
                there["metadata"]["annotations"] = {ANNOTATION_RERUN: f"{self.runs}"}

    async def settle(self, passes: int = 3) -> None:
        """As many passes; the operator soon makes one anew that a kill ended or the API server refused."""
        while passes:
            before = self.server.version, len(self.server.failures)
            try:
                await self.once()
            except Killed:
                self.server.kill_in = 0
                await asyncio.gather(self.loop.actor.settled(), return_exceptions=True)
                self.start()
                await self.settle(passes)
                break
            self.loop.gatherer.forget_idle()
            passes -= before[1] == len(self.server.failures)
            if before == (self.server.version, len(self.server.failures)):
                break  # and the next pass would write nothing either

    async def once(self) -> None:
        if self.stale:
            self.loop.reconciler._written.clear()
            await self.loop.reconciler.once()
        else:
            await self.loop.once()

    async def end_agents(self, odd: str = "", late: timedelta = timedelta()) -> None:
        """Each agent that runs ends with what is true of its node; the operator looks `late`."""
        for name in list(self.loop.jobs()):
            meta = self.loop.jobs()[name]["metadata"]
            if self.loop.jobs()[name].get("status"):
                continue
            self.runs += 1
            truth, board = self.truths[name], f"{name}-{self.swaps[name]}"
            profile = meta["annotations"][ANNOTATION_PROFILE]
            truth = truth if truth.by in ("", profile) else Truth()
            software = Software(agent="0.2.0", driver=self.drivers[name], stack_hash=self.stack)
            off: dict[str, Any] = {"gpu_off": truth.gpu_off, "off": truth.off + self.season}
            result = measured_node(board, 1, day=self.runs % 28 + 1, **off, software=software)
            result = ODD[odd](result) if odd else result
            pod = self.loop.end_agent(name, result)
            if truth.sick:
                said = Refusal(reason="GPUUnhealthy", message="GPUUnhealthy ecc_uncorrectable GPU-1").model_dump_json()
                status = self.server.objects[f"{PODS}/{pod}"]["status"]["containerStatuses"][0]
                status["state"] = {"terminated": {"exitCode": 19, "message": said}}
            worst = REFUSED if truth.sick else worst_off(result, self.record.golden)
            counts = truth.sick or (not odd and self.stack == STACK)
            subject = subject_of(self.node(name))._replace(
                uid=meta["labels"][LABEL_NODE_UID], boot=meta["annotations"][ANNOTATION_BOOT]
            )
            run = meta["labels"][LABEL_RUN]
            self.record.measured.append(Measured(name, run, subject, self.now(), worst, counts, profile=profile))
        self.wait(late)
        await self.settle()
        self.loop.collect_garbage()

    async def all_measured(self, again: bool = False) -> None:
        """As many runs as are asked for; `again`: of each node."""
        if again:
            self.rerun()
        await self.settle()
        while self.loop.jobs():
            await self.end_agents()

    async def fail(self, *names: str) -> None:
        """Nodes in service fail, an hour ago."""
        self.truths |= dict.fromkeys(names, Truth(gpu_off=-8))
        await self.all_measured(again=True)
        self.wait(timedelta(minutes=62))

    async def fail_twice(self, *names: str) -> None:
        """And again an hour later."""
        await self.fail(*names)
        await self.all_measured()
        self.wait(timedelta(minutes=62))
        await self.settle()

    def problem(self, name: str) -> float:
        """How much there is of it by the operator's metrics."""
        return self.loop.metric("precision_operator_node_condition_problems", problem=name)

    def conditions(self) -> dict[str, dict[str, Any]]:
        conditions = {name: self.server.objects[f"{paths.NODES}/{name}"]["status"]["conditions"] for name in self.names}
        return {name: next((it for it in rows if it["type"] == CONDITION), {}) for name, rows in conditions.items()}

    async def reboot(self, name: str, odd: str = "") -> None:
        """And what was due then ends."""
        self.boot(name)
        await self.settle()
        await self.end_agents(odd)

    def forge_reports(self, verdict: str, **more: str) -> None:
        """Whoever may write reports does; with another `basis` each is judged anew."""
        forged = {"verdict": verdict, "reason": "Forged"} | more
        for path, body in list(self.server.objects.items()):
            if path.startswith(f"{REPORTS}/") and (body.get("status") or {}).get("acceptance"):
                body["status"]["acceptance"] |= forged
                self.server._store(path, body)

    async def heal(self) -> None:
        """Nothing is wrong any more but nodes, and each is measured."""
        self.server.guarded, self.server.kill_in, self.stale, self.season = True, 0, False, 0.0
        self.server.failures.clear()
        self.stack, self.drivers = STACK, dict.fromkeys(self.names, DRIVER)
        for name in self.names:
            if subject_of(self.node(name))[2:] != (DRIVER, "8"):
                self.boot(name)
        self.save(self.text)
        self.ask()
        self.rerun()
        for _ in range(3):
            for _ in range(4):
                await self.settle()
                await self.end_agents()
            self.wait(2 * HOUR)  # who failed is measured again by itself
        self.start()  # remembers nothing: who waits is measured
        for name in [name for name, truth in self.truths.items() if truth == Truth()][::2]:
            self.remove(name)  # an admin starts over
        for _ in range(3):
            await self.settle()
            await self.end_agents()
            self.wait(HOUR)


class One(Fleet):
    """One sound node, which was never judged."""

    def __init__(self, **listed: Any) -> None:
        super().__init__(size=1, **listed)

    @property
    def row(self) -> dict[str, Any]:
        return self.conditions()[NODE]

    @property
    def says(self) -> tuple[str, str]:
        return self.row.get("status", ""), self.row.get("reason", "")

    def offer(self, allocatable: int, capacity: int) -> None:
        status = self.server.objects[f"{paths.NODES}/{NODE}"]["status"]
        offered = {"allocatable": allocatable, "capacity": capacity}
        status |= {part: {**status[part], "nvidia.com/gpu": f"{gpus}"} for part, gpus in offered.items()}

    async def measure(self, broken: bool = False) -> tuple[str, str]:
        """What the condition says after as many runs as are asked for."""
        self.repair(NODE, broken)
        await self.all_measured()
        return self.says


def slow_draft() -> Reference:
    """A reference of nodes as slow as those that are broken."""
    return made({f"n{at}": measured_node(f"n{at}", 1, off=-11) for at in range(8)}, {})[0]
