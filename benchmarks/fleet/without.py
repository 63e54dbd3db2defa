"""Does the independent reader find a limit that the operator does not keep? Six are taken out, one at a time.

    python -m benchmarks.fleet.without [--nodes 20]

On the rig of `benchmarks.fleet`, agents simulated: a sweep by the operator as it is, under limits that all bite, which
the reader must find nothing wrong with; then for each of six limits one by an operator that lacks its check, which the
reader must name. Ends with 1 where it says anything else. Results go to benchmarks/results/fleet/without.json.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.fleet import reader
from benchmarks.fleet.__main__ import RESULTS, Run, end_by_signals, say, spec
from benchmarks.fleet.rig import NAMESPACE, rig
from benchmarks.reconcile import provenance
from precision_lab.fleet.hardware import HARDWARE

Json = dict[str, Any]
RACK = "topology.kubernetes.io/rack"
POOL, RACKS = {"name": HARDWARE["GB200"].label, "maxConcurrent": 1}, [{"key": RACK, "max": 1}]
WATTS = 2 * HARDWARE["B300"].gpus * 1_100
CASES: Mapping[str, tuple[str, Json]] = {
    "": ("", {"maxConcurrent": 3, "pools": [POOL], "perTopology": RACKS, "powerBudgetWatts": WATTS}),
    "MaxConcurrentReached": ("maxConcurrent", {"maxConcurrent": 2}),
    "PoolLimitReached": (f"pool {POOL['name']} maxConcurrent", {"maxConcurrent": 4, "pools": [POOL]}),
    "TopologyLimitReached": (f"perTopology {RACK}", {"maxConcurrent": 4, "perTopology": RACKS}),
    "PowerBudgetReached": ("powerBudgetWatts", {"maxConcurrent": 4, "powerBudgetWatts": WATTS}),
    "FleetLimitReached": ("fleet maxConcurrent", {"maxConcurrent": 16}),
    "MeasuredByAnotherProfile": ("one agent a node", {"maxConcurrent": 2}),
}
"""The check that is taken out, by its reason; the rule that the reader must name then, and a rollout."""


def found(run: Run, code: str, rollout: Json) -> set[str]:
    """The rules that the reader finds broken in a sweep without this check; of a profile's limits without its name."""
    on, log = run.on, run.on.trail.path
    before = log.stat().st_size
    operator = on.operator
    module = operator.argv.index("benchmarks.fleet.beating_operator")
    argv = (*operator.argv[: module + 1], f"--without={code}", *operator.argv[module + 1 :])
    on.operator = replace(operator, argv=argv if code else operator.argv)
    names = ["first", "second"] if code == "MeasuredByAnotherProfile" else ["first"]
    idle = {"idle": {"required": False}} if len(names) > 1 else {}
    busy = {node["metadata"]["name"] for node in on.nodes} - {node["metadata"]["name"] for node in on.idle}
    target = {
        "target": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn"} | {"values": [*busy]}]}
    }
    run.profiles = [run.profile(NAMESPACE, name, spec(rollout) | idle | target) for name in names]
    on.operator.start()
    for profile in run.profiles:
        run.until_measured(f"without {code or 'nothing'}", profile)
    on.lab.processes.stop(on.operator.name)
    on.operator = operator
    with log.open() as lines:
        lines.seek(before)
        broken = reader.violations(reader.Log(lines), on.nodes, run.profiles, {"maxConcurrent": on.places})
    run.forget(*run.profiles)
    for it in broken[:3]:
        say(f"  {it.rule}: {it.text}")
    return {it.rule.removeprefix("first ").removeprefix("second ") for it in broken}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    end_by_signals()
    rows = []
    with rig(options.nodes, say) as on:
        run = Run(on)
        for code, (rule, rollout) in CASES.items():
            say(f"a sweep without {code or 'nothing: the operator as it is'}")
            named = found(run, code, rollout)
            rows.append({"without": code, "expected": rule, "found": sorted(named), "right": named == {rule} - {""}})
            say(f"  {'right' if rows[-1]['right'] else 'WRONG'}: found {sorted(named) or 'nothing'}")
    (RESULTS / "without.json").write_text(
        json.dumps({"rows": rows, "nodes": options.nodes} | provenance(), indent=2) + "\n"
    )
    return int(not all(row["right"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
