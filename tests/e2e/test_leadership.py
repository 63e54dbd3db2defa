"""Two replicas of the operator on a real control plane: the leader is killed, stopped, held up, or told to end.

That a replica which lost its Lease writes nothing more is read from the API server's audit log, not from the replica.
"""

import re
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from precision_api.facts import names
from precision_lab.processes.ports import free_ports
from precision_lab.release.install import NAMESPACE, Program
from precision_operator.cluster import paths
from tests.support.audit import received, requests
from tests.support.eventually import eventually
from tests.support.history import created, most_agents
from tests.support.site import Profile, Scene, Site, specs

pytestmark = pytest.mark.cluster

NODES = 20
AT_ONCE = 4
LEASE_SECONDS = 12
TERMS = (f"--lease-seconds={LEASE_SECONDS}", "--renew-deadline=9", "--retry=1")
WRITES = {"create", "update", "patch", "delete"}
HOLDABLE = """import runpy, signal, sys
hold = sys.argv.pop(1)
signal.signal(signal.SIGUSR1, lambda *_: exec(hold))
runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"""
"""Runs a module whose event loop is held, once SIGUSR1 comes, for as long as the first argument runs."""
LOOP = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass\nprint('held', flush=True)"
JSON_50_MB = """from pydantic_core import from_json
from_json(b'[' + b'{"name":"node","values":["%s",1.5]},' % (b'x' * 66) * 500_000 + b'0]')
print('held', flush=True)"""
WAIT = "import threading\nthreading.Event().wait()"


@dataclass(frozen=True)
class Pair:
    """Two replicas in place of the site's operator: `first` leads, `second` stands by, ready."""

    site: Site
    lease_name: str
    first: Program
    second: Program
    audit_log: Path

    def lease(self) -> dict[str, Any]:
        return dict(self.site.get(paths.item(paths.leases(NAMESPACE), self.lease_name))["spec"])

    def signal(self, replica: Program, number: signal.Signals) -> None:
        self.site.lab.processes.signal(replica.name, number)

    def exit_of(self, replica: Program) -> int | None:
        return self.site.lab.processes.states()[replica.name].exit

    def writes_of(self, identity: str) -> list[dict[str, Any]]:
        """What a replica has written, the Lease apart, as the API server saw it."""
        return [e for e in self.asked_by(identity, *WRITES) if e["objectRef"]["resource"] != "leases"]

    def asked_by(self, identity: str, *verbs: str) -> list[dict[str, Any]]:
        """A replica's requests with these verbs, as the API server saw them."""
        mine = (entry for entry in requests(self.audit_log) if entry["userAgent"].endswith(f"/{identity}"))
        return [entry for entry in mine if entry["verb"] in verbs]

    def taken_by_another(self, old: str, seconds: float = 120.0) -> dict[str, Any]:
        """The Lease, once a replica other than `old` holds it."""
        return eventually(lambda: lease if (lease := self.lease())["holderIdentity"] not in ("", old) else {}, seconds)


@pytest.fixture
def pair(request: pytest.FixtureRequest, scene: Scene, audit_log: Path) -> Iterator[Pair]:
    """`param` is what SIGUSR1 holds a replica up with."""
    site, lease_name = scene.site, f"operator-{scene.mark}"
    python, _, module, *arguments = site.operator.argv
    held = (python, "-c", HOLDABLE, getattr(request, "param", ""), module, *arguments)
    first, second = (
        replace(
            site.operator,
            name=f"operator-{scene.mark}-{number}",
            port=port,
            argv=(*held, "--leader-elect", f"--lease-name={lease_name}", *TERMS, f"--port={port}"),
        )
        for number, port in enumerate(free_ports(2), 1)
    )
    site.kill_operator()
    try:
        first.start()
        eventually(lambda: leads(first))
        second.start()
        yield Pair(site, lease_name, first, second, audit_log)
    finally:
        for replica in (first, second):
            if replica.name in site.lab.processes.states():
                site.lab.processes.stop(replica.name, signal.SIGKILL)
        site.operator.start()


@pytest.fixture
def half_done(scene: Scene, pair: Pair) -> Profile:
    """A rollout over the nodes, of which some are measured, some are being measured and some wait."""
    scene.add_nodes(*specs(NODES, "agent-seconds:1"))
    profile = scene.apply(rollout={"maxConcurrent": AT_ONCE})
    eventually(lambda: len(profile.attempts()) >= NODES // 4)
    assert len(profile.attempts()) < NODES
    return profile


def leads(replica: Program) -> bool:
    with urllib.request.urlopen(f"{replica.url}/metrics", timeout=5) as answer:
        found = re.search(r"^precision_operator_leader (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found
    return float(found[1]) == 1


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def assert_each_node_was_measured_once(profile: Profile) -> None:
    profile.completes(240)
    assert profile.status()["progress"] == f"{NODES}/{NODES}"
    told = Counter((a["outcome"], a["number"]) for a in profile.attempts().values())
    assert told == {("succeeded", 1): NODES}
    history = profile.history()
    jobs = Counter(job["metadata"]["labels"][names.LABEL_NODE_UID] for job in created(history, "jobs"))
    assert (len(jobs), set(jobs.values())) == (NODES, {1})
    assert most_agents(history) <= AT_ONCE


def test_a_leader_is_killed_and_the_other_measures_the_rest(pair: Pair, half_done: Profile) -> None:
    assert not leads(pair.second)
    old = pair.lease()["holderIdentity"]
    pair.signal(pair.first, signal.SIGKILL)
    lease = pair.taken_by_another(old)
    assert_each_node_was_measured_once(half_done)
    assert leads(pair.second)
    assert lease["leaseTransitions"] == 1
    new = lease["holderIdentity"]
    began = min(received(entry) for entry in pair.writes_of(new))
    assert began >= when(lease["acquireTime"])
    lists = Counter(e["requestURI"].partition("?")[0] for e in pair.asked_by(new, "list") if received(e) < began)
    assert {n for path, n in lists.items() if path.endswith(("/nodes", names.REPORT_PLURAL))} == {1}


def test_a_leader_that_was_stopped_and_wakes_late_writes_nothing_more_and_ends(pair: Pair, half_done: Profile) -> None:
    old = pair.lease()["holderIdentity"]
    pair.signal(pair.first, signal.SIGSTOP)
    lease = pair.taken_by_another(old)
    assert half_done.condition(names.COMPLETE)["status"] != "True"
    pair.signal(pair.first, signal.SIGCONT)
    assert eventually(lambda: pair.exit_of(pair.first)) == 3
    assert_each_node_was_measured_once(half_done)
    assert pair.writes_of(lease["holderIdentity"])
    by_the_old = [received(entry) for entry in pair.writes_of(old)]
    assert by_the_old
    assert max(by_the_old) < when(lease["acquireTime"])
    pair.first.start()
    assert (leads(pair.first), leads(pair.second)) == (False, True)


def test_a_leader_that_is_told_to_end_hands_over_at_once(pair: Pair, half_done: Profile) -> None:
    old = pair.lease()["holderIdentity"]
    pair.site.lab.processes.stop(pair.first.name, signal.SIGTERM)
    assert pair.exit_of(pair.first) == 0
    assert "gave the lease back" in pair.site.lab.processes.log(pair.first.name)
    ended = max(received(entry) for entry in pair.writes_of(old))
    lease = pair.taken_by_another(old)
    assert (when(lease["acquireTime"]) - ended).total_seconds() < LEASE_SECONDS - 1
    assert_each_node_was_measured_once(half_done)


@pytest.mark.parametrize("pair", [LOOP.format(15), JSON_50_MB], indirect=True, ids=["a loop of 15 s", "50 MB of JSON"])
def test_a_leader_that_is_held_up_for_a_while_keeps_its_lease(pair: Pair) -> None:
    old = pair.lease()["holderIdentity"]
    pair.signal(pair.first, signal.SIGUSR1)
    eventually(lambda: "held" in pair.site.lab.processes.log(pair.first.name))
    assert (pair.lease()["holderIdentity"], leads(pair.first), leads(pair.second)) == (old, True, False)


@pytest.mark.parametrize(
    ("pair", "exit_code"), [(LOOP.format(45), 3), (WAIT, None)], indirect=["pair"], ids=["for 45 s", "for ever"]
)
def test_a_leader_that_is_held_up_for_long_has_lost_its_lease_within_40_s(pair: Pair, exit_code: int | None) -> None:
    old = pair.lease()["holderIdentity"]
    pair.signal(pair.first, signal.SIGUSR1)
    lease = pair.taken_by_another(old, 40)
    assert eventually(lambda: leads(pair.second))
    assert exit_code is None or eventually(lambda: pair.exit_of(pair.first)) == exit_code
    assert all(received(entry) < when(lease["acquireTime"]) for entry in pair.writes_of(old))
