"""Do the fast tests see a broken rule? `python -m tests.equivalence.mutants [NAME ...]`

Each mutant breaks one rule in a copy of the tree: a text in one function is replaced. The function is found by its name
and that text in whatever module it stands, the tests by their files' names, so that what moves is still found. Exit 1
where a broken rule goes unseen.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.equivalence.versions import PACKAGES, REPOSITORY

LEFT_OUT = (".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "__pycache__", "screenshots")
LAST_LINES = 3


@dataclass(frozen=True)
class Mutant:
    """One broken rule: in `function`, `old` becomes `new`; the names of the test files that should see it."""

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "more agents than maxConcurrent",
        "max_concurrent_reached",
        "if request.view.agents >= limit else None",
        "if False else None",
        ("test_limits.py", "test_plan.py"),
    ),
    Mutant(
        "a quarantined node is measured",
        "_quarantined",
        "if status is None or status.quarantine is None:",
        "if True:",
        ("test_retry.py", "test_plan_again.py"),
    ),
    Mutant(
        "throttled nodes are in the reference",
        "_judge",
        "if row.usable and not row.throttled",
        "if row.usable",
        ("test_outliers.py", "test_profile_status.py"),
    ),
    Mutant(
        "one retry too few",
        "spent",
        "attempt.failures > retry.limit",
        "attempt.failures >= retry.limit",
        ("test_retry.py",),
    ),
    Mutant(
        "agents without a PriorityClass",
        "_pod",
        '"priorityClassName": settings.priority_class,',
        "",
        ("test_manifest.py",),
    ),
    Mutant(
        "power counts although its counter disagrees",
        "mean_power",
        "reasons.append(why.COUNTER_DISAGREES)",
        "pass",
        ("test_power.py",),
    ),
    Mutant(
        "a result with a foreign digest is taken",
        "_matching",
        "if packed is not None and hashlib.sha256(packed).hexdigest() == detail.sha256:",
        "if packed is not None:",
        ("test_wire.py",),
    ),
    Mutant(
        "a leader writes after its renewal deadline",
        "leads",
        "return self._clock.now() < self._until",
        "return self._until > -math.inf",
        ("test_leader_election.py",),
    ),
    Mutant(
        "a disruption counts as a failure",
        "failed_status",
        '(problem.outcome == "failed")',
        "True",
        ("test_ingest.py", "test_retry.py"),
    ),
    Mutant(
        "an agent starts on a busy node",
        "busy",
        "if not _idle_required(request) or occupancy is None or occupancy.holder is None:",
        "if True:",
        ("test_limits.py", "test_plan.py"),
    ),
    Mutant(
        "who got the GPUs of an ended agent counts for nothing",
        "fate_of_pending",
        'return "bound" if record.owner in owners else "taken" if owners else "pending"',
        'return "pending"',
        ("test_yielding.py",),
    ),
    Mutant(
        "nobody asks who got the GPUs of an ended agent",
        "_fate",
        "return fate_of_pending(one, [holder async for holder in self._holders(one.node)])",
        'return "pending"',
        ("test_yields.py",),
    ),
    Mutant(
        "a watch goes on without its right",
        "_take_again",
        "if error.status == 403:",
        "if error.status == 0:",
        ("test_watching.py",),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where every mutant is caught."""
    parser = argparse.ArgumentParser(prog="tests.equivalence.mutants", description=__doc__)
    parser.add_argument("name", nargs="*", help="of mutants; default: all")
    parser.add_argument("--tree", type=Path, default=REPOSITORY)
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.name or mutant.name in options.name]
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy = Path(name) / "tree"
        shutil.copytree(options.tree, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        print("| broken rule | where | |\n|---|---|---|")
        caught = [_is_caught(mutant, copy) for mutant in chosen]
    print(f"{sum(caught)} of {len(chosen)} caught")
    return 0 if chosen and all(caught) else 1


def _is_caught(mutant: Mutant, copy: Path) -> bool:
    """Whether the mutant's tests fail; the tree is as before afterwards. SystemExit where they fail without it."""
    path, text = mutated(mutant, copy)
    before = path.read_text()
    healthy = _tests(mutant, copy)
    if healthy.returncode:
        raise SystemExit(f"{mutant.name}: its tests fail on the tree as it is:\n{_end(healthy.stdout)}")
    path.write_text(text)
    broken = _tests(mutant, copy)
    path.write_text(before)
    if broken.returncode not in (0, 1):
        raise SystemExit(f"{mutant.name}: its tests could not be run:\n{_end(broken.stdout)}")
    failed = next((line for line in broken.stdout.splitlines() if line.startswith("FAILED")), "")
    told = f"caught: {failed.removeprefix('FAILED ').partition(' - ')[0]}" if failed else "NOT CAUGHT"
    print(f"| {mutant.name} | {path.relative_to(copy)} {mutant.function} | {told} |", flush=True)
    return bool(failed)


def mutated(mutant: Mutant, tree: Path) -> tuple[Path, str]:
    """The one file that the mutant changes, and its text after that. SystemExit where there is none, or several."""
    found = [
        each for folder in PACKAGES for path in sorted((tree / folder).rglob("*.py")) for each in _in(mutant, path)
    ]
    if len(found) != 1:
        places = ", ".join(str(path.relative_to(tree)) for path, _ in found) or "nowhere"
        raise SystemExit(f"{mutant.name}: {mutant.function} with its text stands {places}: correct MUTANTS")
    return found[0]


def _in(mutant: Mutant, path: Path) -> Iterator[tuple[Path, str]]:
    """The file with the text replaced, for each function of that name that holds it."""
    text = path.read_text()
    if mutant.old not in text:
        return
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == mutant.function:
            start, end = node.lineno - 1, node.end_lineno
            body = "".join(lines[start:end])
            if mutant.old in body:
                changed = body.replace(mutant.old, mutant.new, 1)
                yield path, "".join([*lines[:start], changed, *lines[end:]])


def _tests(mutant: Mutant, copy: Path) -> subprocess.CompletedProcess[str]:
    files = [str(path) for name in mutant.tests for path in sorted((copy / "tests").rglob(name))]
    if not files:
        raise SystemExit(f"{mutant.name}: there is no test file {' or '.join(mutant.tests)}: correct MUTANTS")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not cluster", "-p", "no:cacheprovider", *files]
    environment = os.environ | {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def _end(text: str) -> str:
    return "\n".join(text.splitlines()[-LAST_LINES:])


if __name__ == "__main__":
    sys.exit(main())
