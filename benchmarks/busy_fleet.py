"""A sweep of a fleet of which most nodes are busy: looks a second, and how long an idle node waits for a free place.

    python -m benchmarks.busy_fleet [--nodes 1000] [--busy 700] [--places 100] [--agent-seconds 60] [--seed 0]

The operator's own loop on an API server in memory (tests/support/operator_in_memory.py). Busy nodes stay busy; which
they are is drawn, and with `--first` they are those that come first by name. An agent takes so long by the clock, which
goes on as fast as the operator computes, and jumps on where it would wait. Ends with 1 where more than ten looks come a
second, or an idle node waits for more than 60 s while a place is free.
"""

import argparse
import asyncio
import random
import sys
from datetime import timedelta

from benchmarks.measured_operator import Loop
from precision_operator.shell import reconcile
from tests.support.operator_in_memory import PODS, OperatorInMemory

MOST_LOOKS_PER_SECOND, MOST_WAIT_SECONDS = 10.0, 60.0


class Sweep:
    """A sweep in progress, by the clock of its event loop."""

    def __init__(self, loop: Loop, idle: list[str], busy: list[str]) -> None:
        self._loop, self._idle, self._ends = loop, {*idle}, dict[str, float]()
        self.operator = OperatorInMemory(*sorted([*idle, *busy]))
        for name in busy:
            container = {"resources": {"requests": {"nvidia.com/gpu": "8"}}}
            pod = {"spec": {"containers": [container], "nodeName": name}, "status": {"phase": "Running"}}
            self.operator.cluster._store(f"{PODS}/{name}", pod | {"metadata": {"name": name, "namespace": "team"}})
        self.free_since = loop.time()
        self.longest = 0.0

    async def run(self, places: int, agent_seconds: float) -> None:
        """Pass after pass until every idle node is measured."""
        self.operator.apply("sweep", rollout={"maxConcurrent": places})
        await self.operator.switch.look()
        await self.operator.list_everything()
        while self._idle:
            due = await self.operator.reconciler.once()
            now, jobs = self._loop.time(), self.operator.jobs()
            self._idle -= {*self.operator.measured()}
            waiting = self._idle - jobs.keys()
            if len(jobs) >= places or not waiting:
                self.free_since = now
            self.longest = max(self.longest, now - self.free_since)
            self._ends |= dict.fromkeys(jobs.keys() - self._ends.keys(), now + agent_seconds)
            next_end = min((self._ends[name] for name in jobs), default=now + due)
            seconds = reconcile.SETTLE_SECONDS if self.operator.cache.changed.is_set() else min(due, next_end - now)
            self.operator.cache.changed.clear()
            self._loop.jump(max(seconds, 0.0))
            self.operator.offset += timedelta(seconds=max(seconds, 0.0))
            await self._end_agents()

    async def _end_agents(self) -> None:
        jobs = self.operator.jobs()
        self._ends = {name: at for name, at in self._ends.items() if name in jobs}
        over = [name for name, at in self._ends.items() if at <= self._loop.time()]
        for name in over:
            self.operator.end_agent(name)
        if over:
            await self.operator.list_everything()

    def looks(self) -> int:
        return sum(how == "LIST" and "spec.nodeName=" in path for how, path in self.operator.cluster.requests)


async def measured(loop: Loop, options: argparse.Namespace) -> int:
    """The exit code."""
    names = [f"n{number:05}" for number in range(options.nodes)]
    busy = names[: options.busy] if options.first else random.Random(options.seed).sample(names, options.busy)
    sweep = Sweep(loop, sorted({*names} - {*busy}), busy)
    began = loop.time()
    await sweep.run(options.places, options.agent_seconds)
    seconds = loop.time() - began
    rate = sweep.looks() / seconds
    print(f"{options.nodes} nodes, {options.busy} busy, {options.places} places, agents of {options.agent_seconds} s")
    print(f"{seconds:.0f} s, {sweep.looks()} looks: {rate:.1f} a second (at most {MOST_LOOKS_PER_SECOND:g})")
    print(f"longest wait beside a free place: {sweep.longest:.1f} s (at most {MOST_WAIT_SECONDS:g})")
    return int(rate > MOST_LOOKS_PER_SECOND or sweep.longest > MOST_WAIT_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 1000), ("busy", 700), ("places", 100), ("agent-seconds", 60), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--first", action="store_true")
    loop = Loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(measured(loop, parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
