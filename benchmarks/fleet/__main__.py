"""A fleet under the operator on a real control plane: what a sweep takes, beside a bare client's.

    make bench-fleet NODES="100 1000 10000"
    python -m benchmarks.fleet --nodes 100 1000 [--only-print]

For each size: etcd, API server, controller manager and scheduler (real), nodes of 31 KiB that kwok keeps Ready, a
fifth of them busy, operator, exporter and Prometheus (real). Agents are simulated: each pod ends 1 to 5 s after its
start with what a replay left (`agents`). In turn: the bare client; the operator's cold start and sweep of all idle
nodes; its start where nothing is due; changed drivers on 1 % of the nodes; up to 1,000 nodes a second sweep; the bare
client again. At last the independent `reader` holds the whole audit log against all limits.

Seconds of CPU judge, wall seconds are told: other programs on the machine make them longer, and the table says how many
cores those took. Results go to benchmarks/results/fleet/NODES.json, and all of them into fleet.svg there.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.dashboards import asked, measure
from benchmarks.fleet import chart, reader, record
from benchmarks.fleet.agents import RECORDINGS, SECONDS
from benchmarks.fleet.beating_operator import longest
from benchmarks.fleet.rig import BARE, NAMESPACE, Rig, places_of, rig
from benchmarks.large_fleet import RECIPES
from benchmarks.reconcile import provenance
from benchmarks.sizes import etcd_size
from precision_api.facts.names import API_VERSION, PROFILE_KIND
from precision_lab.cluster.kwok import LEASE_SECONDS
from precision_lab.fleet.hardware import HARDWARE
from precision_lab.processes.processes import ticks
from precision_operator.cluster import paths
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from tests.support.api_server import MERGE_PATCH

Json = dict[str, Any]
RESULTS = Path(__file__).parents[1] / "results/fleet"
DRIVER, NEW_DRIVER = "nvidia.com/cuda.driver-version", "580.999.01"
WHOLE_TURNS, PART_TURN = 1_000, 500
"""Up to so many nodes the bare client sweeps all, and the operator twice; of a larger fleet it takes so many."""
QUIET_SECONDS, TALK_SECONDS = 10.0, 15.0
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s  {text}", flush=True)


class Run:
    """One size, from an empty cluster to its row."""

    def __init__(self, on: Rig) -> None:
        self.on = on
        flags = dict(flag.removeprefix("--").split("=", 1) for flag in on.operator.argv if "=" in flag)
        self.samples = record.samples(flags["priority-class"], flags["agent-service-account"])
        recordings = {sample.product: record.recording(sample) for sample in self.samples}
        (on.lab.run_dir / RECORDINGS).write_text(json.dumps(recordings))
        self.phases: dict[str, Json] = {}
        self.clients: list[Json] = []
        self.profiles: list[Json] = []
        on.lab.create_namespace(BARE)
        accounts = paths.collection("v1", "serviceaccounts", BARE)
        self._create(accounts, {"metadata": {"name": flags["agent-service-account"]}})

    def row(self) -> Json:
        """All of it."""
        whole = len(self.on.nodes) <= WHOLE_TURNS
        self.client("client-1")
        self.sweep("sweep-1", cold=True)
        scraped = self.scrape()
        self.nothing_due()
        self.changed_drivers()
        if whole:
            self.sweep("sweep-2", cold=False)
        self.client("client-2")
        return {
            "nodes": len(self.on.nodes),
            "idleNodes": len(self.on.idle),
            "places": self.on.places,
            "simulated": f"agents ({SECONDS[0]:g} to {SECONDS[1]:g} s, a replay's results), nodes and GPUs",
            "phases": self.phases,
            "clients": self.clients,
            "reader": self.read(),
            **scraped,
        }

    def client(self, turn: str) -> None:
        """A sweep by the bare client, in a namespace that the operator does not watch; nothing of it is left."""
        nodes = self.on.idle if len(self.on.nodes) <= WHOLE_TURNS else self.on.idle[:PART_TURN]
        say(f"{turn}: a bare client makes the operator's writes for {len(nodes)} nodes, {self.on.places} at once")
        profile = self.profile(BARE, turn, spec({}) | {"target": {"nodeNames": ["nowhere"]}, "suspend": True})
        of = {s.product: record.bodies(s, BARE, turn, profile["metadata"]["uid"]) for s in self.samples}
        rows = [self._named(node) for node in nodes]
        work = {"turn": turn, "namespace": BARE, "places": self.on.places, "bodies": of, "nodes": rows}
        path = self.on.lab.run_dir / "work.json"
        path.write_text(json.dumps(work))
        self.on.trail.phase()
        self.on.meter.look()
        command = [sys.executable, "-m", "benchmarks.fleet.bare_client", str(self.on.lab.kubeconfig), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the bare client ended with {done.returncode}: {done.stderr[-2000:]}")
        machine = self.on.meter.look()
        self.clients.append({"turn": turn} | json.loads(done.stdout) | {"machine": machine})
        self.forget(profile)

    def sweep(self, name: str, cold: bool) -> None:
        """A profile over all nodes, until each idle one has a result."""
        on = self.on
        if self.profiles:
            self.forget(self.profiles[-1])
        pools = [{"name": HARDWARE["B300"].label, "maxConcurrent": on.places // 4 + 1}]
        rollout = {"maxConcurrent": on.places, "pools": pools, "powerBudgetWatts": on.places * 9_000}
        rollout |= {"perTopology": [{"key": "topology.kubernetes.io/rack", "max": min(12, on.places)}]}
        etcd = etcd_size(on.lab)
        self._start_phase()
        began = time.time()
        if cold:
            self.profiles.append(self.profile(NAMESPACE, name, spec(rollout)))
            say(f"{name}: starting the operator, the Lease is free, {len(on.idle)} idle nodes are due")
            began = time.time()
            on.operator.launch()
        else:
            say(f"{name}: the same again under a new profile")
            self.profiles.append(self.profile(NAMESPACE, name, spec(rollout)))
        self.until_measured(name, self.profiles[-1])
        figures = self._end_phase(name, began, first_sweep=True)
        figures["etcdBytes"] = {"before": etcd, "after": etcd_size(on.lab)}

    def nothing_due(self) -> None:
        """A restart of the operator where every idle node has its result."""
        on = self.on
        say("nothing due: stopping the operator politely, and starting it again")
        on.lab.processes.stop(on.operator.name)
        self._start_phase()
        began = time.time()
        on.operator.launch()
        self._until_quiet()
        figures = self._end_phase("nothing due", began)
        if figures["jobs"]:
            raise RuntimeError(f"nothing was due, and {figures['jobs']} agents started")

    def changed_drivers(self) -> None:
        """A new driver on 1 % of the nodes: those and no others are measured again."""
        on = self.on
        changed = on.idle[:: max(1, len(on.idle) // max(1, len(on.nodes) // 100))][: max(1, len(on.nodes) // 100)]
        say(f"changed drivers: new labels on {len(changed)} nodes")
        major, minor, revision = NEW_DRIVER.split(".")
        texts = {"full": NEW_DRIVER, "major": major, "minor": minor, "revision": revision}
        labels = {f"{DRIVER}.{key}": text for key, text in texts.items()}
        self._start_phase()
        began = time.time()
        for node in changed:
            path = paths.item(paths.NODES, node["metadata"]["name"])
            on.api.ask("PATCH", path, {"metadata": {"labels": labels}}, kind=MERGE_PATCH)
        time.sleep(QUIET_SECONDS)
        self.until_measured("changed drivers", self.profiles[-1])
        self._until_quiet()
        figures = self._end_phase("changed drivers", began)
        if figures["jobs"] != len(changed):
            raise RuntimeError(f"{len(changed)} drivers changed, and {figures['jobs']} agents started")

    def scrape(self) -> Json:
        """What a scrape takes, the slowest rule group, the slowest query of the dashboards."""
        on = self.on
        say("scraping the exporter, asking each query of the dashboards")
        began, size, packed = time.perf_counter(), 0, 0
        for path in on.endpoints:
            request = urllib.request.Request(on.exporter.url + path, headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                packed += len(answer.read())
        seconds = time.perf_counter() - began
        for path in on.endpoints:
            with urllib.request.urlopen(on.exporter.url + path, timeout=60) as answer:
                size += len(answer.read())
        on.prometheus.wait_for("precision:pool_degraded", 300)
        groups = on.prometheus.ask("rules")["groups"]
        slowest = max(groups, key=lambda group: float(group["evaluationTime"]))
        node = on.idle[0]["metadata"]["name"]
        queries = [
            measure(on.prometheus, dashboard, panel, expr)
            for dashboard in DASHBOARDS
            for panel, expr in asked(dashboard, node)
        ]
        query = max(queries, key=lambda row: row.first)
        return {
            "scrape": {"seconds": seconds, "bytes": size, "gzipBytes": packed, "endpoints": len(on.endpoints)},
            "slowestRuleGroup": {"name": slowest["name"], "seconds": float(slowest["evaluationTime"])},
            "slowestQuery": {"dashboard": query.dashboard, "panel": query.title, "seconds": query.first},
        }

    def read(self) -> Json:
        """The independent reader's verdict on the whole log."""
        say("the independent reader holds the audit log against the limits")
        with self.on.trail.path.open() as lines:
            log = reader.Log(lines)
        objects = (self.on.nodes, self.profiles, {"maxConcurrent": self.on.places})
        broken = reader.violations(log, *objects)
        for it in broken:
            say(f"BROKEN at {it.at}: {it.rule}: {it.text}")
        return {
            "agents": len(log.agents),
            "results": sum(agent.has_result for agent in log.agents),
            "violations": [f"{it.rule}: {it.text}" for it in broken],
            "peaks": {name: {"most": most, "allowed": of} for name, (most, of) in reader.peaks(log, *objects).items()},
        }

    def _start_phase(self) -> None:
        self.on.trail.phase()
        self.on.meter.look()

    def _end_phase(self, name: str, began: float, **how: bool) -> Json:
        time.sleep(1)
        passes = self._passes()
        all_names, idle = ({node["metadata"]["name"] for node in nodes} for nodes in (self.on.nodes, self.on.idle))
        figures = self.on.trail.phase().figures(began, all_names - idle, **how) | {
            "passes": passes,
            "machine": self.on.meter.look(),
        }
        figures["longestHoldSeconds"] = longest(self.on.beats, began)
        self.phases[name] = figures
        return figures

    def _passes(self) -> Json:
        """Of the operator since it began: how many, and their wall seconds."""
        with urllib.request.urlopen(f"{self.on.operator.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        name = "precision_operator_reconcile_seconds"
        count, total = (float(re.findall(rf"^{name}_{of} (\S+)$", text, re.M)[0]) for of in ("count", "sum"))
        return {"count": int(count), "wallSeconds": total}

    def until_measured(self, phase: str, profile: Json) -> None:
        """Until each idle node has a result of this profile. Raises RuntimeError where that takes far too long."""
        path = paths.item(paths.profiles(NAMESPACE), profile["metadata"]["name"])
        talked, idle = time.monotonic(), len(self.on.idle)
        for _ in ticks(60 + idle * 2.0, 0.5):
            self.on.lab.processes.check(self.on.operator.name)
            status = self.on.api.ask("GET", path).get("status", {})
            counts = status.get("nodes", {})
            if counts.get("succeeded") == idle and not counts.get("running") and not counts.get("queued"):
                return
            if time.monotonic() - talked > TALK_SECONDS:
                say(
                    f"{phase}: {status.get('progress')}, {counts.get('running')} running, load {os.getloadavg()[0]:.1f}"
                )
                talked = time.monotonic()
        raise RuntimeError(f"{phase}: {idle} nodes should be measured, the profile says {counts}")

    def _until_quiet(self) -> None:
        """Until the operator is ready and has rested for a while, but for its Lease and what it does by time."""
        quiet = 0.0
        self.on.operator.wait_until_ready()
        spent = self._operator_cpu()
        for _ in ticks(600, 1.0):
            now = self._operator_cpu()
            quiet = quiet + 1 if now - spent < 0.1 else 0.0
            spent = now
            if quiet >= QUIET_SECONDS:
                return

    def _operator_cpu(self) -> float:
        pid = self.on.lab.processes.states()[self.on.operator.name].pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def profile(self, namespace: str, name: str, spec: Json) -> Json:
        """Creates it."""
        body = {"apiVersion": API_VERSION, "kind": PROFILE_KIND, "metadata": {"name": name}, "spec": spec}
        return self._create(paths.profiles(namespace), body)

    def _create(self, path: str, body: Json) -> Json:
        return self.on.api.ask("POST", path, body)

    def forget(self, *profiles: Json) -> None:
        """Delete profiles of a namespace, and wait until the garbage collector has taken all that they own."""
        namespace = profiles[0]["metadata"]["namespace"]
        for profile in profiles:
            name = profile["metadata"]["name"]
            say(f"deleting profile {name}, its reports and full results")
            self.on.api.ask("DELETE", paths.item(paths.profiles(namespace), name))
        for kind, stays in ((paths.jobs, 0), (paths.reports, 0), (paths.config_maps, 1)):  # kube-root-ca.crt stays
            for _ in ticks(600, 0.5):
                if len(self.on.api.ask("GET", kind(namespace), limit="2")["items"]) <= stays:
                    break
            else:
                raise RuntimeError(f"after 600 s there still are objects in {kind(namespace)}: see the log of etcd")

    def _named(self, node: Json) -> Json:
        name = node["metadata"]["name"]
        return {"name": name, "uid": node["metadata"]["uid"], "product": name.partition("-")[0].upper()}


def spec(rollout: Json) -> Json:
    """Of a profile over all nodes."""
    return {"workload": {"preset": "llama3-8b"}, "recipes": [*RECIPES], "rollout": rollout}


def end_by_signals() -> None:
    """What Ctrl-C does SIGTERM does too, also in the background of a script: everything is cleaned up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def lease_requests(on: Rig) -> float:
    """Renewals of all Leases that the API server has answered: nearly all of them are kwok's."""
    text = on.lab.kubectl("get", "--raw=/metrics")
    rows = re.findall(r'^apiserver_request_total\{([^}]*resource="leases"[^}]*)\} (\S+)$', text, re.M)
    return sum(float(count) for labels, count in rows if re.search('verb="(PUT|PATCH|APPLY)"', labels))


def settings(on: Rig) -> Json:
    """What the figures rest on beside the product."""
    pid = on.lab.processes.states()["etcd"].pid
    flags = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    of_etcd = [flag for flag in flags if "fsync" in flag or "quota" in flag]
    size = len(json.dumps(on.api.ask("GET", paths.item(paths.NODES, on.nodes[0]["metadata"]["name"]))))
    return {"etcd": of_etcd, "kwokLeaseSeconds": LEASE_SECONDS, "nodeBytes": size, "cores": os.cpu_count()}


def run(nodes: int) -> Json:
    """The row of a size."""
    say(f"{nodes} nodes, {places_of(nodes)} agents at once, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    began = time.time()
    with rig(nodes, say) as on:
        leases, since = lease_requests(on), time.time()
        row = Run(on).row() | {"settings": settings(on)}
        row["settings"]["leaseRenewalsPerSecond"] = (lease_requests(on) - leases) / (time.time() - since)
        say("stopping the cluster, removing its folder")
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    return row | {"seconds": time.time() - began, "finished": finished} | provenance()


def main() -> int:
    """The exit code: 1 where the reader found a rule broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100])
    parser.add_argument("--only-print", action="store_true", help="save nothing")
    options = parser.parse_args()
    if min(options.nodes) < 20:
        parser.error("--nodes: at least 20, so that each product has idle and busy ones")
    broken = False
    end_by_signals()
    for nodes in options.nodes:
        try:
            row = run(nodes)
        except KeyboardInterrupt:
            say("interrupted: the cluster is stopped and its folder removed; nothing is saved of this size")
            return 130
        print("\n".join(chart.table(row)), flush=True)
        broken |= bool(row["reader"]["violations"])
        if not options.only_print:
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{nodes}.json").write_text(json.dumps(row, indent=2) + "\n")
            rows = [json.loads(path.read_text()) for path in RESULTS.glob("[0-9]*.json")]
            (RESULTS / "fleet.svg").write_text(chart.svg(sorted(rows, key=lambda it: it["nodes"])))
            say(f"saved {RESULTS / f'{nodes}.json'} and fleet.svg")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
