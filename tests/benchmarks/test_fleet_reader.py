"""The independent reader of the audit log finds each rule that a sweep breaks by one, and none where none is broken."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.fleet import reader
from benchmarks.fleet.made_up import NODES, PROFILE, log

RACK, POOL = {"key": "rack", "max": 2}, {"name": "NVIDIA-GB300", "maxConcurrent": 4, "powerBudgetWatts": 22_400}
FULL = {"maxConcurrent": 4, "powerBudgetWatts": 22_400}
FLEET = FULL | {"pools": [POOL], "perTopology": [RACK | {"powerBudgetWatts": 11_200}]}
CASES = {
    "p maxConcurrent": ({"maxConcurrent": 3}, {}, {}),
    "p powerBudgetWatts": ({"powerBudgetWatts": 22_399}, {}, {}),
    "p perTopology rack": ({"perTopology": [RACK | {"max": 1}]}, {}, {}),
    "p pool NVIDIA-GB300 maxConcurrent": ({"pools": [POOL | {"maxConcurrent": 3}]}, {}, {}),
    "p pool NVIDIA-GB300 powerBudgetWatts": ({"pools": [POOL | {"powerBudgetWatts": 22_399}]}, {}, {}),
    "fleet maxConcurrent": ({}, {"maxConcurrent": 3}, {}),
    "fleet perTopology rack maxConcurrent": ({}, {"perTopology": [RACK | {"max": 1}]}, {}),
    "one agent a node": ({}, {}, {"same_node": True}),
    "result in a report": ({}, {}, {"lost": 1}),
    "": ({}, {}, {}),
}


@pytest.mark.parametrize("rule", CASES)
def test_each_broken_rule_is_found_and_no_other_by_the_standard_library_alone(rule: str, tmp_path: Path) -> None:
    rollout, fleet, made = CASES[rule]
    profile = PROFILE | {"spec": {"rollout": {"pools": [POOL], "perTopology": [RACK]} | FULL | rollout}}
    objects = {"items": NODES}, {"items": [profile]}, FLEET | fleet
    written = ["\n".join(map(json.dumps, log(**made))), *map(json.dumps, objects)]
    paths = [tmp_path / str(number) for number in range(len(written))]
    for path, text in zip(paths, written, strict=True):
        path.write_text(text)
    done = subprocess.run([sys.executable, "-I", "-S", reader.__file__, *paths], capture_output=True, text=True)
    *findings, total = done.stdout.splitlines()
    assert {line.partition(" ")[2].partition(": ")[0] for line in findings if line[0] != " "} == ({rule} - {""})
    assert (done.returncode, total.split(",")[0]) == (int(rule != ""), "8 agents")


@pytest.mark.parametrize(("seconds", "broken"), [(30, []), (90, ["result in a report"])])
def test_a_result_may_be_lost_with_its_node_but_not_before(seconds: int, broken: list[str]) -> None:
    lines = [*map(json.dumps, log(lost=1))]
    (agent,) = (it for it in reader.Log(lines).agents if it.node == "uid-n1")
    assert agent.until
    meta = NODES[1]["metadata"] | {"deletionTimestamp": (agent.until + timedelta(seconds=seconds)).isoformat()}
    nodes = [NODES[1] | {"metadata": meta} if node is NODES[1] else node for node in NODES]
    assert [it.rule for it in reader.violations(reader.Log(lines), nodes, [PROFILE], {})] == broken
