"""Schedules of what befalls a fleet whose verdicts reach its Nodes, and a reader of all that was written there.

The reader knows the samples of the results, boots and processes, and does its own arithmetic with nothing of the
operator's. `python -m benchmarks.node_conditions --seeds 500 [--first N] [--without GUARD]` prints what is wrong.
"""

import argparse
import asyncio
import logging
import math
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import median
from typing import Any, NamedTuple

from precision_api.acceptance.reference import Reference, sha256_of, text_of
from precision_api.exchange.message import Refusal
from precision_api.exchange.result import MeasurementResult, Software
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
from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts import node_state
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.node_gate import CONDITION, GatedProfile, NodeGate, NodeVerdict
from precision_operator.core.results import acceptance, node_condition
from precision_operator.shell.acting.node_conditions import Collected, NodeConditions
from precision_operator.shell.acting.starts import Starts
from tests.support.fake_cluster import FakeCluster, agent_pod
from tests.support.golden_nodes import NONE_FAILS, golden_draft, hot, made, measured_node
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.operator_in_memory import CLASSES, JOBS, NAMESPACE, PODS, PROFILES, REPORTS, OperatorInMemory
from tests.support.world import SETTINGS

STRICTER = {"reference": 5, "node": 5}
POLICY = "profiling.fleet.node-condition"
BEGIN, TICK = datetime(2026, 11, 27, 9, tzinfo=UTC), timedelta(microseconds=100)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MAPS = paths.config_maps(NAMESPACE)
BAD, STRICT = -7.0, -3.5
"""Per cent below the golden nodes: planted deficits lie between 9 and 14, noise within 3; mild ones at 5 fail alone by
a profile that asks for the stricter limit."""
REFUSED = -100.0
"""What a run counts as that a GPU's health counter refused."""


DRIVER_LABEL, DRIVER, OTHER_DRIVER = "nvidia.com/cuda.driver-version.full", "580.95.05", "590.10"
STACK = "0123456789abcdef"
ODD = {of: NONE_FAILS[of] for of in ("Fallback", "Partial", "Crashed")} | {
    "hot": hot,
    "Simulated": lambda it: it.model_copy(update={"provenance": "replayed"}),  # and says that it verified its kernels
}


class AtOnce(ThreadPoolExecutor):
    """Work for other threads, done where it is asked for: what befalls meanwhile is the same in every process."""

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class Killed(BaseException):
    """kill -9 at a request of the operator."""


class Subject(NamedTuple):
    """What a verdict is of."""

    uid: str
    boot: str
    driver: str
    gpus: str

    @property
    def ending(self) -> str:
        """Of a message about it."""
        return f" (node {self.uid}, boot {self.boot})"


def subject_of(raw: dict[str, Any]) -> Subject:
    """Of a Node as it is now."""
    labels, status = raw["metadata"]["labels"], raw["status"]
    gpus = status["allocatable"]["nvidia.com/gpu"]
    return Subject(raw["metadata"]["uid"], status["nodeInfo"]["bootID"], labels[DRIVER_LABEL], gpus)


@dataclass
class Measured:
    """One result as its agent gave it."""

    node: str
    run: str
    subject: "Subject"
    at: datetime
    worst: float
    """Of its slowest GPU, per cent off the golden nodes' median."""
    counts: bool
    """Whether it was measured, whole, cool, and by the software of the golden nodes."""
    process: int = 0
    """Which one wrote it into the report."""
    profile: str = "nightly"


@dataclass
class Written:
    """A condition as it was written, and what stood there before."""

    process: int
    name: str
    subject: Subject
    at: datetime
    before: dict[str, Any]
    row: dict[str, Any]
    guarded: bool
    """Whether a policy held the account to its condition."""


@dataclass
class Record:
    """All that the reader sees."""

    measured: list[Measured] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    moved: list[tuple[datetime, str]] = field(default_factory=list)
    """When a node's boot, driver or GPUs changed, by UID."""
    limits: list[tuple[datetime, str, float]] = field(default_factory=list)
    """From when on a profile fails a GPU that lies so far off."""
    forgotten: list[tuple[datetime, str]] = field(default_factory=list)
    """When what was measured ceased to count: of a profile that was deleted, of a node whose report was, or whose
    condition was removed by hand."""
    nodes: int = 0
    golden: float = 0.0

    def counting(self, subject: Subject, at: datetime) -> list[Measured]:
        """Runs on this boot that count at that time."""
        since = [(when, of) for when, of in self.forgotten if when <= at]
        return [
            m for m in self.measured
            if m.subject == subject and m.at <= at and m.process and m.counts
            and not any(m.at <= when and of in (m.profile, m.node) for when, of in since)
        ]  # fmt: skip

    def is_bad(self, m: Measured, at: datetime) -> bool:
        """Whether its profile fails it, as it asks at that time."""
        return m.worst < next((it for when, of, it in reversed(self.limits) if of == m.profile and when <= at), BAD)


class Server(FakeCluster):
    """Patches of nodes/status as an API server takes them and as the chart's policy refuses them; faults on demand."""

    guarded, kill_in, preconditions = True, 0, True
    meanwhile: tuple[str, bool] | None = None
    """What befalls the next Node that is to be written, after that was decided; whether a watch shows it at once."""
    refused: Mapping[str, ApiError] = {}
    """By node, what its writes are answered with, whoever guards them."""
    record: Record
    world: "Fleet"

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
        wrong = any(not row["message"].endswith(subject.ending) for row in rows)
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

    async def all_measured(self) -> None:
        """As many runs as are asked for."""
        await self.settle()
        while self.loop.jobs():
            await self.end_agents()

    def conditions(self) -> dict[str, dict[str, Any]]:
        conditions = {name: self.server.objects[f"{paths.NODES}/{name}"]["status"]["conditions"] for name in self.names}
        return {name: next((it for it in rows if it["type"] == CONDITION), {}) for name, rows in conditions.items()}

    async def step(self) -> str:
        """One thing happens."""
        name, what = self.dice.choice(self.names), self.dice.choice(EVENTS)
        await FAULTS[what][0](self, name)
        await self.settle(self.dice.randint(1, 2))
        if self.stale:
            self.stale = False
            await self.settle(1)
        return what

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


async def reboots(fleet: Fleet, name: str) -> None:
    await fleet.reboot(name, fleet.dice.choice(["", "Simulated"]))


async def gets_another_driver(fleet: Fleet, name: str) -> None:
    fleet.befall(name, "driver")


async def loses_a_gpu(fleet: Fleet, name: str) -> None:
    fleet.befall(name, "GPU")


async def gets_other_gpus(fleet: Fleet, name: str) -> None:
    fleet.swaps[name] += 1
    fleet.repair(name, fleet.dice.random() < 0.3)
    fleet.boot(name)


async def changes_meanwhile(fleet: Fleet, name: str) -> None:
    """Between decision and write."""
    fleet.boot(name)
    await fleet.settle()
    fleet.server.meanwhile = fleet.dice.choice(["namesake", "reboot", "driver", "GPU"]), fleet.dice.random() < 0.3
    await fleet.end_agents()
    fleet.server.meanwhile = None


async def operator_is_down(fleet: Fleet, name: str) -> None:
    for it in fleet.names[::3]:
        fleet.boot(it)
    fleet.wait(HOUR)
    fleet.start()


async def operator_restarts(fleet: Fleet, name: str) -> None:
    fleet.start()


async def operator_is_killed(fleet: Fleet, name: str) -> None:
    fleet.server.kill_in = fleet.dice.randint(1, 12)


async def is_repaired_or_breaks(fleet: Fleet, name: str) -> None:
    fleet.repair(name, fleet.dice.random() < 0.4)
    fleet.boot(name)
    if fleet.truths[name] == Truth():
        fleet.forget(name)


async def degrades(fleet: Fleet, name: str) -> None:
    for it in fleet.dice.choice([[name], fleet.names[::2]]):
        fleet.repair(it, True)
    fleet.rerun()
    for _ in range(3):
        await fleet.settle()
        await fleet.end_agents()


async def is_mildly_slow(fleet: Fleet, name: str) -> None:
    fleet.truths[name] = Truth(gpu_off=-5.0)
    fleet.boot(name)
    fleet.forget(name)


async def namesake_comes(fleet: Fleet, name: str) -> None:
    fleet.repair(name, fleet.dice.random() < 0.3)
    fleet.boot(name, anew=True)


async def is_gone(fleet: Fleet, name: str) -> None:
    """Its Node is deleted, at times under a new operator, and another one takes its name."""
    del fleet.server.objects[f"{paths.NODES}/{name}"]
    await fleet.settle(1)
    if fleet.dice.random() < 0.5:
        fleet.start()
    fleet.repair(name, fleet.dice.random() < 0.3)
    fleet.boot(name)


async def guard_is_lost(fleet: Fleet, name: str) -> None:
    fleet.server.guarded = False


async def guard_is_back(fleet: Fleet, name: str) -> None:
    fleet.server.guarded = True


async def reference_changes(fleet: Fleet, name: str) -> None:
    fleet.save(fleet.dice.choice([None, fleet.text.replace("bf16", "bf16 "), fleet.text]))


async def profile_is_edited(fleet: Fleet, name: str) -> None:
    lax: dict[str, Any] = {"mustDetectPercent": {"reference": 15, "node": 15}}
    slow: dict[str, Any] = {"reference": {"name": "slow", "sha256": sha256_of(fleet.tenants)}}
    fleet.save(fleet.tenants, "slow")
    strict: dict[str, Any] = {"mustDetectPercent": STRICTER}
    fleet.ask(**fleet.dice.choice([{}, lax, slow, strict, strict, {"validFor": "1d"}]))
    await fleet.reboot(name)


async def profile_is_suspended(fleet: Fleet, name: str) -> None:
    fleet.ask(suspend=fleet.dice.random() < 0.5)


async def profile_is_deleted(fleet: Fleet, name: str) -> None:
    fleet.delete(fleet.dice.choice(fleet.profiles))


async def condition_is_removed(fleet: Fleet, name: str) -> None:
    fleet.remove(name)


async def is_collected_late(fleet: Fleet, name: str) -> None:
    fleet.rerun()
    await fleet.settle()
    await fleet.end_agents(late=timedelta(minutes=58))


async def run_is_spoilt(fleet: Fleet, name: str) -> None:
    await fleet.reboot(name, fleet.dice.choice([*ODD]))


async def cache_is_stale(fleet: Fleet, name: str) -> None:
    fleet.boot(name)
    fleet.stale = True


async def write_is_refused(fleet: Fleet, name: str) -> None:
    answers = [(409, "Conflict"), (410, "Gone"), (429, "TooManyRequests"), (500, "Error")]
    status, why = fleet.dice.choice(answers)
    fleet.server.fail("PATCH", "/status", ApiError(status, why, "not now"), after=fleet.dice.random() < 0.3)


async def is_asked_anew(fleet: Fleet, name: str) -> None:
    fleet.rerun()


async def agent_is_upgraded(fleet: Fleet, name: str) -> None:
    fleet.stack = fleet.dice.choice([STACK, STACK, "ffff"])


async def season_changes(fleet: Fleet, name: str) -> None:
    fleet.season = fleet.dice.choice([0.0, -1.0])


async def reports_are_forged(fleet: Fleet, name: str) -> None:
    fleet.forge_reports(fleet.dice.choice(["Pass", "Fail"]), **fleet.dice.choice([{}, {"basis": "another"}]))


async def agent_is_forged(fleet: Fleet, name: str) -> None:
    what = fleet.dice.choice(["Job", "pod"])
    fleet.boot(name)
    await fleet.settle()
    if name in fleet.loop.jobs():
        fleet.forge(name, what)


async def time_passes(fleet: Fleet, name: str) -> None:
    fleet.wait(fleet.dice.choice([HOUR / 2, 2 * HOUR, DAY, 31 * DAY]))


async def agents_end(fleet: Fleet, name: str) -> None:
    await fleet.settle(1)
    await fleet.end_agents(fleet.dice.choice(["", "", "", *ODD]))


FAULTS: dict[str, tuple[Callable[[Fleet, str], Awaitable[None]], int]] = {
    "reboot": (reboots, 1),
    "another driver": (gets_another_driver, 1),
    "GPU lost": (loses_a_gpu, 1),
    "swapped GPUs": (gets_other_gpus, 1),
    "changes meanwhile": (changes_meanwhile, 2),
    "repaired or broken": (is_repaired_or_breaks, 1),
    "degrades": (degrades, 2),
    "mild": (is_mildly_slow, 1),
    "namesake": (namesake_comes, 1),
    "Node gone": (is_gone, 1),
    "down": (operator_is_down, 1),
    "restart": (operator_restarts, 1),
    "kill": (operator_is_killed, 1),
    "guard lost": (guard_is_lost, 1),
    "guard back": (guard_is_back, 2),
    "reference": (reference_changes, 1),
    "edit": (profile_is_edited, 1),
    "suspend": (profile_is_suspended, 1),
    "deleted profile": (profile_is_deleted, 1),
    "removed": (condition_is_removed, 1),
    "late": (is_collected_late, 2),
    "spoilt": (run_is_spoilt, 2),
    "stale cache": (cache_is_stale, 1),
    "refused": (write_is_refused, 1),
    "rerun": (is_asked_anew, 2),
    "upgrade": (agent_is_upgraded, 1),
    "season": (season_changes, 1),
    "forged report": (reports_are_forged, 1),
    "forged agent": (agent_is_forged, 2),
    "time": (time_passes, 2),
    "measure": (agents_end, 6),
}
"""What may befall a fleet, or one node of it, and how often beside the others."""
EVENTS = [what for what, (_, often) in FAULTS.items() for _ in range(often)]


def slow_draft() -> Reference:
    """A reference of nodes as slow as those that are broken."""
    return made({f"n{at}": measured_node(f"n{at}", 1, off=-11) for at in range(8)}, {})[0]


def rates_of(result: MeasurementResult) -> dict[str, float]:
    training = result.recipes[0].training if result.recipes else None
    return dict(training.tokens_per_second_by_gpu) if training is not None else {}


def worst_off(result: MeasurementResult, golden: float) -> float:
    """Of its slowest GPU, per cent off the golden nodes' median."""
    return min((100 * math.log(rate / golden) for rate in rates_of(result).values()), default=math.nan)


def wrong(record: Record) -> list[str]:
    """What was written to Nodes and should not have been, in words."""
    errors, closed = list[str](), list[datetime]()
    for number, it in enumerate(record.written):
        was, now, reason = it.before.get("status", ""), it.row["status"], it.row["reason"]
        uid, ending = it.subject.uid, it.subject.ending
        last = next((at.at for at in reversed(record.written[:number]) if at.subject.uid == uid), None)
        on_boot = record.counting(it.subject, it.at)
        ours, bads = [m for m in on_boot if m.process == it.process], dict[str, list[Measured]]()
        for m in on_boot:  # one bad run is a doubt, two within a day are a Fail, until its profile finds it sound
            before = [of for of in bads.get(m.profile, ()) if m.at - of.at < DAY]
            bads[m.profile] = [*before, *[m] * (1 + (m.worst == REFUSED))] if record.is_bad(m, it.at) else []
        failing = [f"{profile} {of[-1].worst:.1f} %" for profile, of in bads.items() if len(of) > 1]
        is_sound = any(not record.is_bad(m, it.at) for m in {m.profile: m for m in ours}.values())
        where = f"{it.name} at {it.at:%d %H:%M:%S}: {was or 'nothing'} to {now} ({reason})"
        was_it = it.before.get("message", "").endswith(ending)
        if now == "True" and not (was == "True" and was_it) and not is_sound:
            errors.append(f"{where}: nothing sound was measured on this boot by this process")
        if now == "True" and failing and (reason == "Pass" or not (was == "True" and was_it)):
            errors.append(f"{where}: its newest runs do not pass: {failing}")
        if was == "True" and now == "False":
            bad, first = [m for m in ours if record.is_bad(m, it.at)], None
            for before in reversed(record.written[:number]):
                if before.subject.uid == uid:
                    if before.row["reason"] not in ("FailUnconfirmed", "FailHeld"):
                        break
                    first = before.at
            if not bad or first is None:
                errors.append(f"{where}: no bad run of this process, or it was not said before")
            elif bad[-1].at - first < HOUR - timedelta(seconds=2):
                errors.append(f"{where}: confirmed too soon")
            closed.append(it.at)
            if sum(it.at - at < DAY for at in closed) > max(1, record.nodes // 10):
                errors.append(f"{where}: more than a tenth in a day")
        moved = any(of == uid and last is not None and last <= at <= it.at for at, of in record.moved)
        if (was, now) == ("True", "Unknown") and was_it and not moved:
            errors.append(f"{where}: nothing of the subject changed")
        if not it.guarded:
            errors.append(f"{where}: no policy guarded this write")
        if not it.row["message"].endswith(ending):
            errors.append(f"{where}: it names another node or boot")
    return errors


async def schedule(seed: int, steps: int = 25) -> list[str]:
    """What the reader finds in one schedule, and which good nodes are not open at its end."""
    fleet, events, errors, loop = Fleet(seed), list[str](), list[str](), asyncio.get_running_loop()
    loop.set_default_executor(AtOnce())
    loop.time = lambda: fleet.now().timestamp()  # type: ignore[method-assign]
    for _ in range(2 * (seed % 2)):  # a fleet in service, or a new one
        await fleet.settle()
        await fleet.end_agents()
    for _ in range(steps):
        events.append(await fleet.step())
        healthy = fleet.server.guarded and not fleet.stale and not fleet.server.failures and not fleet.server.kill_in
        for name, row in fleet.conditions().items() if healthy else ():
            subject = subject_of(fleet.node(name))
            tail = f"driver {subject.driver}, {subject.gpus} GPUs", subject.ending
            if row.get("status") == "True" and not all(part in row["message"] for part in tail):
                errors.append(f"{name}: a True of another boot or node stands after {events[-1]}")
    errors += wrong(fleet.record)
    await fleet.heal()
    errors += [it for it in wrong(fleet.record) if it not in errors]
    rows = fleet.conditions()
    good = {name for name in fleet.names if fleet.truths[name] == Truth()}
    mild = {name for name in fleet.names if fleet.truths[name].gpu_off == -5}
    is_open = {name for name, row in rows.items() if row.get("status") == "True"}
    drifted = {
        name for name, row in rows.items() if "ReferenceDrifted" in (row.get("reason"), row.get("message", "")[:16])
    }
    if len(good) < 2 / 3 * len(rows):  # the guard on the reference speaks then: it passes nobody, and fails nobody
        good, is_open = good - drifted, is_open - drifted
    if len(good - is_open) > 0.05 * len(good):
        errors.append(f"good nodes are not open at the end: {[(name, rows[name]) for name in good - is_open]}")
    held = {name for name in is_open if rows[name]["reason"] == "FailHeld"}
    return [*errors, *(f"{name} is bad and open: {rows[name]}" for name in is_open - good - held - mild)]


async def _guarded(*_: Any) -> bool:
    return True


async def _as_reported(self: NodeConditions, report: Any, terms: Any, facts: Any) -> None:
    """Evidence from what the report says."""
    verdict, key = report.status.acceptance if report.status else None, (report.namespace, report.profile)
    if verdict is not None and verdict.verdict and verdict.subject:
        evidence = node_condition.Evidence("/".join(key), verdict, datetime.now(UTC))
        self._collected[*key, report.node_uid] = Collected(report.uid, report.status, "", None, evidence)


GUARDS: dict[str, tuple[Any, str, Any]] = {
    "evidence is of the present subject": (node_condition, "change", lambda *_: ""),
    "a changed subject is unknown": (node_condition, "changed_subject", lambda *_: ""),
    "a second run an hour later": (node_condition, "CONFIRM_AFTER", -DAY),
    "at most a tenth in a day": (node_condition, "MOST_CLOSED", 1.0),
    "closings are remembered": (NodeVerdict, "closed", None),
    "the canary": (NodeConditions, "_is_guarded", _guarded),
    "what was collected alone": (NodeConditions, "judge", _as_reported),
    "what the list admits": (GatedProfile, "admits", lambda *_: True),
    "a measured result": (acceptance, "provenance_of", lambda *_: "measured"),
    "a waiting node is measured": (node_state, "run_to_prove", lambda *_: ""),
    "a Fail is tried again": (NodeVerdict, "failing_since", None),
    "a Job of its own": (Starts, "has_created", lambda *_: True),
    "the Node that was seen": (Server, "preconditions", False),
}
"""Each that can be taken out: where it is, and what stands there then."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--without", choices=GUARDS)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a history
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    if options.without:
        setattr(*GUARDS[options.without])
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        if errors := asyncio.run(schedule(seed)):
            failed += 1
            print(f"seed {seed}:", *errors[:6], sep="\n  ", flush=True)
            if options.without:
                break
        if seed % 25 == 24:
            print(f"up to seed {seed}: {failed} failed", flush=True)
    print(f"{options.seeds} schedules, {failed} with a wrong write, a stale True or good nodes closed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
