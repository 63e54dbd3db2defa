"""`make audit` never passes on what was not checked; the bases that images name."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from precision_lab.builds.programs import ALL, modules_for
from precision_lab.release import audit
from precision_lab.release.audit import REQUIREMENTS, Finding, audited, of_govulncheck, of_pip_audit, verdict

ROOT = Path(__file__).parents[2]
KNOWN = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited: b (1)"}
VULNERABLE = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1"}]}


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([KNOWN], "clean"),
        ([KNOWN, SKIPPED], "not checked"),
        ([KNOWN, SKIPPED, VULNERABLE], "vulnerable"),
        ([], "not checked"),
    ],
)
def test_packages_that_the_database_does_not_know_were_not_checked(rows: list[object], state: str) -> None:
    assert of_pip_audit("f", json.dumps({"dependencies": rows}), "").state == state


def test_a_tool_without_an_answer_checked_nothing_and_those_of_the_audit_are_locked() -> None:
    assert of_pip_audit("f", "", "Could not connect") == Finding("f", "not checked", "Could not connect")
    assert of_govulncheck("p", 1, "", "dial tcp: no such host").state == "not checked"
    assert of_govulncheck("p", 3, "GO-2026-1", "").state == "vulnerable"
    assert of_govulncheck("p", 0, "No vulnerabilities found.", "").state == "clean"
    locked = (ROOT / "requirements" / "tools.txt").read_text()
    assert re.findall(r"^(cyclonedx-bom|pip-audit)==\S+ \\\n    --hash=sha256:", locked, re.MULTILINE)
    assert "govulncheck" not in ALL
    assert [module.name for module in modules_for(("govulncheck",))] == ["govulncheck"]


@pytest.mark.parametrize(
    ("states", "code", "words"),
    [
        (["clean", "clean"], 0, "no known vulnerability"),
        (["clean", "not checked"], 2, "NOT CHECKED: 1"),
        (["not checked", "vulnerable"], 1, "known vulnerabilities in 1"),
        ([], 2, "nothing was looked at"),
    ],
)
def test_only_what_was_checked_throughout_passes(states: Sequence[audit.State], code: int, words: str) -> None:
    found = verdict([Finding(str(i), state, "") for i, state in enumerate(states)])
    assert found[0] == code
    assert words in found[1]


def test_each_locked_file_and_each_of_our_go_programs_is_looked_at() -> None:
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        if command[0] != "pip-audit":
            folder = Path(command[2])
            assert {"go.mod", "go.sum"} < {file.name for file in folder.iterdir()}
        return subprocess.CompletedProcess(command, 0, json.dumps({"dependencies": [KNOWN]}), "")

    found = list(audited(["pip-audit"], Path("govulncheck"), run))
    assert {f"requirements/{name}" for name in REQUIREMENTS} <= {each.what for each in found}
    assert set(REQUIREMENTS) == {path.name for path in (ROOT / "requirements").glob("*.txt")}
    ours = {path.stem for path in (ROOT / "lab").rglob("*.go")}
    assert len([each for each in found if each.what.endswith("(Go)")]) == len(ours)
    assert len(asked) == len(found)


@pytest.mark.parametrize(("target", "base"), [("operator", "PYTHON"), ("agent", "PYTORCH")])
def test_images_name_the_base_that_they_were_built_on(target: str, base: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    stage = re.split(rf"^FROM \S+ AS {target}\n", text, flags=re.MULTILINE)[1].split("\nFROM ")[0]
    assert f"ARG {base}_IMAGE\nARG {base}_DIGEST=\n" in stage
    assert f'org.opencontainers.image.base.name="${{{base}_IMAGE}}"' in stage
    assert f'org.opencontainers.image.base.digest="${{{base}_DIGEST}}"' in stage
