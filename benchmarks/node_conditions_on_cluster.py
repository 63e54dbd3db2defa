"""The schedules of `node_conditions` on a real kube-apiserver, with the operator's own process and the same reader.

Agents replay there, without a driver, and what nobody measured counts. No hour can pass: what is open is never closed.
`python -m benchmarks.node_conditions_on_cluster --seeds 30 [--first N]` prints what is wrong.
"""

import argparse
import base64
import gzip
import json
import time
from bisect import bisect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.node_conditions.reader import wrong
from benchmarks.node_conditions.record import Measured, Record, Written, rates_of, subject_of, worst_off
from precision_api.acceptance.reference import sha256_of
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.names import ANNOTATION_RERUN, LABEL_PROFILE_UID, REFERENCE_FILE
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import LabSettings, start_lab
from precision_lab.release.install import install
from precision_operator.cluster import paths
from precision_operator.core.observe.node_gate import CONDITION
from precision_operator.core.observe.raw_object import condition_of
from tests.support.api_server import MERGE_PATCH, ApiServer
from tests.support.eventually import eventually
from tests.support.history import Change, History, Watches
from tests.support.plugin import Plugin
from tests.support.site import MARK, Scene, Site

NAMESPACE, PROFILE = "gate", "nightly"
ARGUMENTS = ("--disruption-backoff-seconds=2", "--unresponsive-grace-seconds=2", "--no-leader-elect")
GOLDEN_NODES, BROKEN = 9, "0.86"
EVENTS = (
    *("reboot", "reboot", "repaired or broken", "degrades", "namesake", "kill", "kill", "down"),
    *("reference", "edit", "suspend", "rerun", "rerun", "forged report", "measure", "measure"),
)


@dataclass
class RealFleet:
    """Nodes of one pool under the profile of the chart's list, on a real API server."""

    scene: Scene
    reference: dict[str, str]
    text: str
    golden: float
    watches: Watches
    starts: list[int] = field(default_factory=list)
    """Versions of the cluster at which an operator began."""
    names: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Nodes that are slow from their next run on."""
    longest: float = 0.0
    """Seconds for which a True of another subject stood while an operator was there."""

    @property
    def site(self) -> Site:
        return self.scene.site

    def write(self, path: str, body: Any, kind: str = MERGE_PATCH) -> None:
        code, raw = self.site.api.call("PATCH", path, body, kind=kind)
        assert code == 200, raw

    def node(self, name: str) -> dict[str, Any]:
        return self.site.get(f"{paths.NODES}/{name}")

    def conditions(self) -> dict[str, tuple[dict[str, Any], bool]]:
        """By node, and whether it names another node or boot than is there."""
        raws = {raw["metadata"]["name"]: raw for raw in self.scene.nodes()}
        rows = {name: dict(condition_of(raw["status"], CONDITION)) for name, raw in raws.items() if name in self.names}
        is_of = {
            name: str(row.get("message", "")).endswith(subject_of(raws[name]).ending) for name, row in rows.items()
        }
        return {name: (row, not is_of[name]) for name, row in rows.items()}

    def start(self) -> None:
        self.site.operator.start()
        time.sleep(1)  # it can't have written; what the API server still had of one that was killed is stored by now
        self.starts.append(int(self.site.get(paths.NODES)["metadata"]["resourceVersion"]))

    def add(self, name: str) -> None:
        traits = (f"scale:{BROKEN}",) if name in self.broken else ()
        self.scene.lab.add_node(NodeSpec("H100", traits=traits, labels=((MARK, self.scene.mark),)), name)

    def repair(self, name: str, is_broken: bool) -> None:
        self.broken = self.broken | {name} if is_broken else self.broken - {name}
        self.scene.lab.annotate_node(name, scale=BROKEN if is_broken else None)

    def forget(self, name: str) -> None:
        """Its runs count for a day, over reboots: who repairs a node deletes its report, as docs/verdict.md says."""
        for report in self.scene.profile(PROFILE).reports():
            if report["spec"]["nodeName"] == name:
                self.site.api.call("DELETE", paths.item(paths.reports(NAMESPACE), report["metadata"]["name"]))

    def reboot(self, name: str) -> None:
        boot = f"boot-{self.site.get(paths.NODES)['metadata']['resourceVersion']}"
        self.write(f"{paths.NODES}/{name}/status", {"status": {"nodeInfo": {"bootID": boot}}})

    def save(self, text: str | None) -> None:
        path = paths.item(paths.config_maps(NAMESPACE), self.reference["name"])
        self.site.api.call("DELETE", path)
        if text is not None:
            meta = {"name": self.reference["name"]}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {REFERENCE_FILE: text}}
            assert self.site.api.call("POST", paths.config_maps(NAMESPACE), body)[0] == 201

    def ask(self, suspend: bool = False, **acceptance: Any) -> None:
        asked = {"reference": self.reference, "mustDetectPercent": {"reference": 8}} | acceptance
        self.scene.profile(PROFILE).patch(suspend=suspend, acceptance=asked)

    def rerun(self) -> None:
        path = paths.item(paths.profiles(NAMESPACE), PROFILE)
        self.write(path, {"metadata": {"annotations": {ANNOTATION_RERUN: f"{time.time()}"}}})

    def measured(self, seconds: float = 60.0) -> None:
        """Returns when no agent runs, and none has begun for a moment."""
        quiet = 0

        def is_quiet() -> bool:
            nonlocal quiet
            quiet = 0 if self.scene.profile(PROFILE).jobs() else quiet + 1
            return quiet > 8

        eventually(is_quiet, seconds)

    def look(self) -> None:
        """Returns when no True of another subject stands; counts for how long one did."""
        began = time.monotonic()
        eventually(lambda: not any(row.get("status") == "True" and old for row, old in self.conditions().values()), 60)
        self.longest = max(self.longest, time.monotonic() - began)

    def step(self, dice: Random) -> str:
        name, what = dice.choice(self.names), dice.choice(EVENTS)
        match what:
            case "reboot":
                self.reboot(name)
            case "repaired or broken":
                self.repair(name, dice.random() < 0.4)
                self.reboot(name)
                self.forget(name)
            case "degrades":
                self.repair(name, True)
                self.rerun()
            case "namesake":
                self.scene.lab.delete_node(name)
                eventually(lambda: self.site.api.call("GET", f"{paths.NODES}/{name}")[0] == 404)
                self.add(name)
            case "kill":  # wherever it is
                self.rerun()
                time.sleep(dice.uniform(0, 2))
                self.site.kill_operator()
                self.start()
            case "down":
                self.site.kill_operator()
                for it in self.names[::2]:
                    self.reboot(it)
                time.sleep(dice.uniform(0, 2))
                self.start()
            case "reference":
                self.save(dice.choice([None, self.text.replace("bf16", "bf16 "), self.text]))
            case "edit":
                lax: dict[str, Any] = {"mustDetectPercent": {"reference": 15, "node": 15}}
                self.ask(**dice.choice([{}, lax, {"validFor": "1d"}]))
                self.reboot(name)
            case "suspend":
                self.ask(suspend=dice.random() < 0.5)
            case "rerun":
                self.rerun()
            case "forged report":
                forged = {"verdict": dice.choice(["Pass", "Fail"]), "reason": "Forged"}
                for report in self.scene.profile(PROFILE).reports():
                    if (report.get("status") or {}).get("acceptance"):
                        path = paths.item(paths.reports(NAMESPACE), report["metadata"]["name"], "status")
                        self.site.api.call("PATCH", path, {"status": {"acceptance": forged}}, kind=MERGE_PATCH)
            case "measure":
                self.measured()
        self.look()
        time.sleep(dice.uniform(0, 1))
        return what

    def heal(self) -> list[str]:
        """Nothing is wrong any more but nodes; which of them are open at last and should not be, or not open."""
        self.save(self.text)
        self.ask()
        self.rerun()
        good = {name for name in self.names if name not in self.broken}

        def is_open(name: str) -> bool:
            row, old = rows.get(name, ({}, True))
            return row.get("status") == "True" and not old and row["reason"] == "Pass"

        deadline, rows = time.monotonic() + 180, self.conditions()
        while time.monotonic() < deadline and sum(map(is_open, good)) < 0.95 * len(good):
            self.measured(120)
            rows = self.conditions()
        self.measured(120)
        rows = self.conditions()
        bad = [name for name in sorted(self.broken) if is_open(name)]
        errors = [f"{name} is bad and open: {rows[name][0]}" for name in bad]
        closed = [name for name in good if not is_open(name)]
        if len(closed) > 0.05 * len(good):
            errors.append(f"good nodes are not open at the end: {[(name, rows.get(name)) for name in closed]}")
        return errors

    def schedule(self, seed: int, steps: int) -> tuple[list[str], int]:
        """What is wrong in one schedule; how often a condition was written."""
        dice = Random(seed)
        self.names, self.broken, self.longest = [f"s{seed}-{at}" for at in range(dice.choice([3, 6]))], set(), 0.0
        for name in self.names:
            self.broken |= {name} if dice.random() < 0.2 else set()
            self.add(name)
        events, errors = list[str](), list[str]()
        try:
            events = [self.step(dice) for _ in range(steps)]
            errors = [f"{it} after {events}" for it in self.heal()]
        except AssertionError as error:
            errors.append(f"after {events}: {str(error)[:500]}")
        record = record_of(self.watches.all_changes(), {*self.names}, self.starts, self.golden)
        for name in self.names:
            self.scene.lab.delete_node(name)
        selector = f"{LABEL_PROFILE_UID}={self.scene.profile(PROFILE).uid}"
        self.site.api.call("DELETE", paths.reports(NAMESPACE), labelSelector=selector)
        return errors + wrong(record), len(record.written)


def result_in(raw: dict[str, Any]) -> MeasurementResult | None:
    """The full result that a ConfigMap holds; None where it is another one."""
    packed = (raw.get("binaryData") or {}).get("result.json.gz")
    return MeasurementResult.model_validate_json(gzip.decompress(base64.b64decode(packed))) if packed else None


def record_of(changes: Iterable[Change], names: set[str], starts: list[int], golden: float) -> Record:
    """What befell these nodes, in the cluster's order: a version counts as a microsecond."""
    record, nodes, details, runs = Record(), dict[str, dict[str, Any]](), dict[str, MeasurementResult](), set[str]()
    for change in changes:
        at, raw = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=change.version), change.object
        process = bisect(starts, change.version)
        if change.kind == "nodes" and raw["metadata"]["name"] in names and change.type != "DELETED":
            before, uid, subject = nodes.get(change.uid), change.uid, subject_of(raw)
            nodes[uid] = raw
            row, was = (dict(condition_of(of["status"], CONDITION)) if of else {} for of in (raw, before))
            if before is None or subject_of(before) != subject:
                record.moved.append((at, uid))
            if row and row != was:
                record.written.append(Written(process, raw["metadata"]["name"], subject, at, was, row, True))
        elif change.kind == "details" and (result := result_in(raw)) is not None:
            details[raw["metadata"]["name"]] = result
        elif change.kind == "reports" and raw["spec"]["nodeName"] in names and change.type != "DELETED":
            status, uid = raw.get("status") or {}, raw["spec"]["nodeUID"]
            run, attempt = status.get("run") or {}, status.get("attempt") or {}
            named = f"{uid} {run.get('run')} {run.get('finishedAt')}"
            if (
                run.get("run") == attempt.get("run")
                and run.get("detail") in details
                and named not in runs
                and uid in nodes
            ):
                runs.add(named)
                worst = worst_off(details[run["detail"]], golden)
                subject = subject_of(nodes[uid])._replace(boot=attempt.get("bootID", ""))
                measured = Measured(raw["spec"]["nodeName"], run["run"], subject, at, worst, True, process)
                record.measured.append(measured)
    record.nodes = len(names)
    return record


@contextmanager
def gated(folder: Path) -> Iterator[RealFleet]:
    """A cluster in which verdicts of one profile reach Nodes: its reference is of nodes that were measured there."""
    with start_lab(settings=LabSettings(agent_seconds=0.3)) as lab:
        installed = install(lab, (NAMESPACE,), ["acceptance.nodeCondition.enabled=true"], start=False)
        made = installed.programs["operator"]
        policy = next(argument for argument in made.argv if argument.startswith("--node-condition="))
        rest = [argument for argument in made.argv if argument != policy]
        operator = replace(made, argv=(*rest, *ARGUMENTS, "--accept-simulated"))
        api = ApiServer(lab.kubeconfig)
        history = History(api, NAMESPACE)
        site = Site(lab, operator, installed.programs["exporter"], api, history, NAMESPACE)
        operator.start()
        scene = Scene(site)
        golden = scene.add_nodes(NodeSpec("H100", GOLDEN_NODES))
        asked = {
            "workload": {"preset": "llama3-8b"},
            "recipes": ["bf16"],
            "benchmarks": {"training": {"enabled": True}},
        }
        scene.completed(PROFILE, **asked)
        trial = "--accept-simulated", "--accept-level", "a trial"
        Plugin.of(lab, folder)("reference", "create", "golden", "-n", NAMESPACE, "--profile", PROFILE, *trial)
        text = site.get(paths.item(paths.config_maps(NAMESPACE), "golden"))["data"][REFERENCE_FILE]
        reference = {"name": "golden", "sha256": sha256_of(text)}
        row = {"namespace": NAMESPACE, "profile": PROFILE, "referenceSha256": reference["sha256"], "recipes": ["bf16"]}
        gate = json.loads(policy.partition("=")[2]) | {"profiles": [row | {"mostDetectPercent": {"reference": 10}}]}
        operator = replace(operator, argv=(*operator.argv, f"--node-condition={json.dumps(gate)}"))
        details = [change.object for change in history.all_changes() if change.kind == "details"]
        level = median(rate for result in map(result_in, details) if result for rate in rates_of(result).values())
        for name in golden:
            lab.delete_node(name)
        site.kill_operator()
        lists = {"nodes": paths.NODES, "reports": paths.reports(NAMESPACE), "details": paths.config_maps(NAMESPACE)}
        fleet = RealFleet(
            Scene(replace(site, operator=operator), scene.mark), reference, text, level, Watches(api, lists)
        )
        fleet.start()
        fleet.ask()
        yield fleet
        fleet.watches.close()
        history.close()
        fleet.site.kill_operator()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    failed = 0
    with TemporaryDirectory() as folder, gated(Path(folder)) as fleet:
        for seed in range(options.first, options.first + options.seeds):
            began = time.monotonic()
            errors, written = fleet.schedule(seed, options.steps)
            failed += bool(errors)
            took = f"{time.monotonic() - began:.0f} s, {written} writes, longest stale True {fleet.longest:.1f} s"
            print(f"seed {seed}: {took}", *errors[:6], sep="\n  ", flush=True)
    print(f"{options.seeds} schedules, {failed} with a wrong write, a stale True or good nodes closed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
