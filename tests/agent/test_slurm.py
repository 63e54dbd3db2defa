"""integrations/slurm: a node is measured at boot, and slurmd's prolog lets jobs start by the verdict of that boot."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from precision_api.acceptance.reference import text_of
from tests.support.golden import beside
from tests.support.golden_nodes import replayed_draft

TABLES = beside(__file__)

FOLDER = Path(__file__).parents[2] / "integrations" / "slurm"
MADE = text_of(replayed_draft(recipes=("bf16",), gpus=4, gemm_modes=("autocast",)))
REPLAY = "--backend replay --replay-seed 77 --accept-simulated"
Job = tuple[str, str]


class Node:
    """A node with the folder's files, and slurmd's rule: a prolog that ends with another code than 0 drains it."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.root, self.boot, self.bin = root, root / "boot_id", root / "bin"
        self.bin.mkdir(parents=True)
        self.script("scontrol", f'echo "$@" >> {root}/told')
        self.script("precision-agent", f'exec {sys.executable} -m precision_agent "$@"')
        (root / "reference.json").write_text(MADE)
        paths = {"REFERENCE": root / "reference.json", "STATE": root / "state", "EVIDENCE": root / "evidence"}
        programs = {"AGENT": self.bin / "precision-agent", "SCONTROL": self.bin / "scontrol"}
        chosen = {"INCONCLUSIVE": "drain", "OPTIONS": REPLAY, **programs, **paths, **settings}
        lines = (FOLDER / "precision.conf").read_text().splitlines()
        named = [line.partition("=")[0] for line in lines]
        assert set(chosen) < set(named)
        lines = [f"{name}={chosen[name]}" if name in chosen else line for name, line in zip(named, lines, strict=True)]
        (root / "precision.conf").write_text("\n".join(lines) + "\n")

    def script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def run(self, program: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        files = {"CONF": "precision.conf", "VERDICT": "run/verdict", "BOOT_ID": "boot_id"}
        named = {f"PRECISION_{name}": str(self.root / file) for name, file in files.items()}
        call = ["/bin/bash", str(FOLDER / program)]
        return subprocess.run(call, env={**environment, **named}, capture_output=True, text=True, check=False)

    def boots(self, name: str) -> int:
        """The exit code of the unit."""
        self.boot.write_text(f"{name}\n")
        return self.run("precision-verdict", os.environ).returncode

    def job(self, partition: str = "gpu") -> Job:
        """What becomes of a job, and why the node is drained."""
        slurmd = {"SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": partition, "PATH": ""}
        done = self.run("precision-prolog", slurmd)
        told = self.root / "told"
        why = told.read_text().strip() if told.exists() else ""
        told.unlink(missing_ok=True)
        why = why.removeprefix("update NodeName=n1 State=DRAIN Reason=precision: ")
        return "drained" if done.returncode else "runs", why


def test_a_sound_node_takes_jobs_and_one_with_a_slow_gpu_is_drained_with_the_reason(tmp_path: Path) -> None:
    sound = Node(tmp_path)
    assert (sound.boots("first"), sound.job()) == (0, ("runs", ""))
    (kept,) = (tmp_path / "evidence").iterdir()
    assert kept.name.startswith("check-")
    slow = Node(tmp_path / "slow", OPTIONS=f"{REPLAY} --replay-fault slow_gpu", INCONCLUSIVE="run")
    assert slow.boots("first") == 30
    state, why = slow.job()
    assert (state, why.split()[:3]) == ("drained", ["Fail:", "TooSlow", "GPU"])
    (slow.bin / "scontrol").unlink()
    assert slow.job() == ("drained", "")


UNPROVED = TABLES["unproved"]


@pytest.mark.parametrize("name", UNPROVED)
def test_what_is_no_verdict_does_what_the_owner_chose(tmp_path: Path, name: str) -> None:
    end, why = UNPROVED[name]
    line = '{"reason":"WrongKey","verdict":"Inconclusive"}'
    for chosen in ("drain", "run"):
        node = Node(tmp_path / chosen, INCONCLUSIVE=f'"{chosen}"\r')
        node.script("precision-agent", f"echo '{line}'; {end}")
        assert node.boots("first") not in (0, 30)
        state, told = node.job()
        assert (state, why in told) == (("drained", True) if chosen == "drain" else ("runs", False))


def test_a_verdict_holds_for_its_boot_and_none_without_a_choice(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.job() == ("drained", "Inconclusive: no verdict of this boot: see systemctl status precision-verdict")
    assert Node(tmp_path / "kept", MAINTENANCE="repair").job("repair") == ("runs", "")
    node.script("precision-agent", """echo '{"reason":"WithinLimits","verdict":"Pass"}'""")
    assert (node.boots("first"), node.job()) == (0, ("runs", ""))
    node.boot.write_text("second\n")
    assert node.job() == ("drained", "Inconclusive: measured before this boot")
    unset = Node(tmp_path / "new", INCONCLUSIVE="")
    assert (unset.boots("first"), unset.job()) == (78, ("runs", ""))
    (tmp_path / "new" / "precision.conf").unlink()
    assert unset.job() == ("runs", "")
