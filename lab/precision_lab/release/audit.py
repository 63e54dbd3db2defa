"""`make audit`: known vulnerabilities in what we lock: Python packages by pip-audit, our own Go by govulncheck.

Each tool asks a database over the network. What a database has not answered for was not checked, and that is never a
pass: the table says so, and the exit code is 2. pip-audit itself ends with 0 where its database knows no package.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from precision_lab.builds.binaries import binaries
from precision_lab.builds.programs import MODULES, NODE_MODULES, TOOL_MODULES, Module

REPOSITORY = Path(__file__).resolve().parents[3]
LOCKED = ("operator", "agent", "demo", "dev", "build", "tools", "plugin", "plugin-plan")
REQUIREMENTS = tuple(f"{name}.txt" for name in LOCKED)
SECONDS = 900.0
SHOWN = 300
"""Characters of a tool's own words that the table has."""
State = Literal["clean", "vulnerable", "not checked"]
EXITS: dict[State, int] = {"clean": 0, "vulnerable": 1, "not checked": 2}
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one locked file or one program."""

    what: str
    state: State
    words: str


def of_pip_audit(what: str, printed: str, errors: str) -> Finding:
    """What pip-audit's JSON says. A package that it skipped was not checked."""
    try:
        rows = json.loads(printed)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Finding(what, "not checked", _short(errors) or "pip-audit gave no answer")
    vulnerabilities = [
        f"{row['name']} {row.get('version', '')}: {vulnerability['id']}"
        for row in rows
        for vulnerability in row.get("vulns", ())
    ]
    skipped = [row for row in rows if "skip_reason" in row]
    if vulnerabilities:
        return Finding(what, "vulnerable", "; ".join(vulnerabilities))
    if skipped or not rows:
        reason = skipped[0]["skip_reason"] if skipped else "no package was read"
        return Finding(what, "not checked", f"{len(skipped)} of {len(rows)} packages: {_short(reason)}")
    return Finding(what, "clean", f"{len(rows)} packages")


def of_govulncheck(what: str, code: int, printed: str, errors: str) -> Finding:
    """What govulncheck's exit code says: 0 nothing, 3 something, anything else that it could not look."""
    if code == 0:
        return Finding(what, "clean", _short(printed) or "no vulnerability found")
    if code == 3:
        return Finding(what, "vulnerable", _short(printed))
    return Finding(what, "not checked", _short(errors or printed) or f"govulncheck ended with {code}")


def own_go() -> Iterator[tuple[Module, str, Path]]:
    """(module, program, source) of the Go that we wrote ourselves."""
    for module in (*MODULES, *NODE_MODULES, *TOOL_MODULES):
        for name, package in module.programs:
            if package.endswith(".go"):
                yield module, name, module.folder / package


def audited(pip_audit: Sequence[str], govulncheck: Path, run: Run) -> Iterator[Finding]:
    """A finding for each locked file and each of our Go programs."""
    for name in REQUIREMENTS:
        path = REPOSITORY / "requirements" / name
        args = ["--disable-pip", "--require-hashes", "--format=json", "--progress-spinner=off", f"--requirement={path}"]
        done = run([*pip_audit, *args])
        yield of_pip_audit(f"requirements/{name}", done.stdout, done.stderr)
    for module, name, source in own_go():
        with tempfile.TemporaryDirectory() as folder:
            for file in (module.folder / "go.mod", module.folder / "go.sum", source):
                shutil.copy(file, folder)
            done = run([str(govulncheck), "-C", folder, "./..."])
        yield of_govulncheck(f"{name} (Go)", done.returncode, done.stdout, done.stderr)


def table(findings: Sequence[Finding]) -> str:
    rows = [f"| {finding.what} | {finding.state} | {finding.words.replace('|', '/')} |" for finding in findings]
    return "\n".join(["| what | result | in words |", "|---|---|---|", *rows])


def verdict(findings: Sequence[Finding]) -> tuple[int, str]:
    """Exit code, and the sentence that goes with it: a vulnerability first, then what was not checked."""
    of = {state: [finding.what for finding in findings if finding.state == state] for state in EXITS}
    if of["vulnerable"]:
        return EXITS["vulnerable"], f"audit: known vulnerabilities in {', '.join(of['vulnerable'])}. Upgrade, make lock"
    if of["not checked"] or not findings:
        return EXITS["not checked"], (
            f"audit: NOT CHECKED: {', '.join(of['not checked']) or 'nothing was looked at'}. The vulnerability "
            "databases did not answer for these, so this is no pass. Run it where PyPI's JSON API and vuln.go.dev are "
            "reached."
        )
    return EXITS["clean"], "audit: no known vulnerability."


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= SHOWN else words[: words.rindex(" ", 0, SHOWN)] + " ..."


def main() -> int:
    """Prints the table, and on stderr what follows from it."""
    tools = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(sys.executable).parent
    govulncheck = binaries(["govulncheck"])["govulncheck"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False, timeout=SECONDS)
    findings = list(audited([str(tools / "pip-audit")], govulncheck, run))
    code, words = verdict(findings)
    print(table(findings))
    print(words, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
