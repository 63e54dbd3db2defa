"""Two clusters whose nodes have the same names, under one Prometheus and one plan: is anything of both taken for one?

    python -m benchmarks.fleet.clusters

Each is a real control plane with the operator, the exporter and six nodes; agents replay figures, in `west` a fifth
slower and one node below its pool. When all is measured, three Prometheus evaluate the shipped rules: of both clusters,
and of each alone, which is what its figures should be. Of each cluster all series that the rules record must be the
same, name by name, label by label; values that count seconds may differ by those. Then a plan over both fleets must
count each cluster's pools apart. Exit 1 where it does not. Results go to benchmarks/results/fleet/clusters.json.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from benchmarks.fleet.__main__ import RESULTS, end_by_signals, say
from benchmarks.fleet.rig import NAMESPACE
from benchmarks.reconcile import provenance
from precision_api.facts.names import API_VERSION, PLAN_KIND, PROFILE_KIND
from precision_lab.fleet.fleet import NodeSpec
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.monitoring.prometheus import Prometheus, PrometheusSettings, Target, start_prometheus
from precision_lab.processes.processes import Processes, launch, ticks
from precision_lab.release.install import install
from precision_operator.cli import app
from precision_operator.cluster import paths
from precision_operator.monitoring import rule_file
from tests.support.api_server import ApiServer

Json = dict[str, Any]
Series = dict[tuple[tuple[str, str], ...], float]
FLEETS = {
    "east": [NodeSpec("GB200", 3), NodeSpec("H100", 3)],
    "west": [NodeSpec("GB200", 3, ("scale:0.8",)), NodeSpec("H100", 2), NodeSpec("H100", 1, ("scale:0.7",))],
}
PROFILE = {"workload": {"preset": "llama3-8b"}, "recipes": ["bf16", "fp8_current"]}
SETTLED_SECONDS, TOLERANCE, MOST_SECONDS = 300.0, 1e-9, 120.0
"""In which all three must have come to the same; of a value; of one that grows with time."""
RECORDED = '{__name__=~"precision:.+"}'


def measured(lab: Lab) -> Target:
    """The exporter of a cluster whose nodes are all measured."""
    installed = install(lab, watch=(NAMESPACE,), values=("exporter.metricsLevel=detail",))
    api = ApiServer(lab.kubeconfig)
    body = {"apiVersion": API_VERSION, "kind": PROFILE_KIND, "metadata": {"name": "p"}, "spec": PROFILE}
    api.ask("POST", paths.profiles(NAMESPACE), body)
    for _ in ticks(300, 0.5):
        status = api.ask("GET", paths.item(paths.profiles(NAMESPACE), "p")).get("status", {})
        if status.get("nodes", {}).get("succeeded") == 6:
            return Target("precision-exporter", installed.programs["exporter"].url.removeprefix("http://"), SHARDS)
    raise RuntimeError(f"after 300 s not all is measured: {status}")


SHARDS = ("/metrics", "/metrics/shard/0")


def prometheus(of: Processes, targets: Sequence[Target]) -> Prometheus:
    rules = of.run_dir / "rules.yaml"
    rules.write_text(rule_file.text())
    return start_prometheus(of, PrometheusSettings(tuple(targets), (rules,), 5.0, 5.0))


def recorded(of: Prometheus, cluster: str) -> Series:
    """What the rules record of a cluster, by name and labels without the cluster's own."""
    rows = [sample for sample in of.query(RECORDED) if sample.labels.get("cluster", cluster) == cluster]
    return {tuple(sorted((k, v) for k, v in row.labels.items() if k not in OF_SCRAPE)): row.value for row in rows}


OF_SCRAPE = ("cluster", "instance")


def differences(both: Series, alone: Series) -> list[str]:
    """Series that only one has, and values that differ by more than the seconds between two looks."""
    texts = [f"only together: {dict(key)}" for key in both.keys() - alone.keys()]
    texts += [f"only alone: {dict(key)}" for key in alone.keys() - both.keys()]
    for key in both.keys() & alone.keys():
        first, second = both[key], alone[key]
        near = TOLERANCE * max(abs(first), abs(second)) + (MOST_SECONDS if "seconds" in dict(key)["__name__"] else 0)
        texts += [f"{dict(key)}: {first} together, {second} alone"] if abs(first - second) > near else []
    return sorted(texts)


def kept_apart(together: Prometheus, series_of: dict[str, Series], alone: dict[str, Series]) -> list[str]:
    """What is wrong, in words."""
    unnamed = [sample.labels for sample in together.query(RECORDED) if "cluster" not in sample.labels]
    wrong = [f"recorded of no cluster: {labels}" for labels in unnamed]
    return wrong + [f"{of}: {text}" for of, series in alone.items() for text in differences(series_of[of], series)]


def planned(folder: Path, kubeconfigs: dict[str, Path]) -> Json:
    """Nodes by pool in the plan over both, and in each fleet."""
    files, alone = [], {}
    for cluster, kubeconfig in kubeconfigs.items():
        os.environ["KUBECONFIG"] = str(kubeconfig)
        done = CliRunner().invoke(app, ["fleet", "-n", NAMESPACE, "-o", "json"])
        assert done.exit_code == 0, done.output
        (folder / f"{cluster}.json").write_text(done.stdout)
        for pool in json.loads(done.stdout)["pools"]:
            gpus = sum(node["gpus"] * node.get("count", 1) for node in pool["nodes"])
            alone[f"{cluster}/{pool['name']}"] = gpus
        files += ["--fleet", f"{cluster}={folder / f'{cluster}.json'}"]
    jobs = [{"name": "train", "workload": {"preset": "llama3-8b"}, "tokens": "10B"}]
    spec: Json = {"jobs": jobs, "whatIfs": [], "fleet": {"allow": ["simulated"]}}
    spec["pools"] = [{"name": name, "spareNodes": 0} for name in alone]
    head = {"apiVersion": API_VERSION, "kind": PLAN_KIND, "metadata": {"name": "both"}, "spec": spec}
    (folder / "plan.yaml").write_text(yaml.safe_dump(head))
    done = CliRunner().invoke(app, ["plan", "-f", str(folder / "plan.yaml"), *files, "-o", "json"])
    assert done.exit_code == 0, done.output
    return {"together": {row["name"]: row["gpus"] for row in json.loads(done.stdout)["pools"]}, "alone": alone}


def main() -> int:
    """The exit code."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    end_by_signals()
    with ExitStack() as stack:
        labs = {}
        for cluster, nodes in FLEETS.items():
            say(f"{cluster}: starting a cluster, measuring its six nodes (simulated)")
            labs[cluster] = stack.enter_context(start_lab(nodes, LabSettings(agent_seconds=0.3)))
        targets = {cluster: measured(lab) for cluster, lab in labs.items()}
        named = [Target(it.job, it.address, it.paths, (("cluster", cluster),)) for cluster, it in targets.items()]
        outside = launch()
        stack.callback(outside.end)
        together = prometheus(outside, named)
        alone = {cluster: prometheus(lab.processes, [targets[cluster]]) for cluster, lab in labs.items()}
        say("one Prometheus for both, and one for each")
        for _ in ticks(SETTLED_SECONDS, 5.0):
            series_of = {cluster: recorded(together, cluster) for cluster in labs}
            wrong = kept_apart(together, series_of, {cluster: recorded(of, cluster) for cluster, of in alone.items()})
            if not wrong and all(series_of.values()):
                break
        with tempfile.TemporaryDirectory() as folder:
            pools = planned(Path(folder), {cluster: lab.kubeconfig for cluster, lab in labs.items()})
        wrong += [] if pools["together"] == pools["alone"] else [f"pools of the plan: {pools}"]
    for text in wrong:
        say(f"WRONG: {text}")
    row = {"series": {cluster: len(series) for cluster, series in series_of.items()}, "pools": pools, "wrong": wrong}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "clusters.json").write_text(json.dumps(row | provenance(), indent=2) + "\n")
    say(f"{row['series']} recorded series, {len(wrong)} wrong; pools {pools['together']}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
