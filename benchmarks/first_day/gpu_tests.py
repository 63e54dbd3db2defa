"""tests/gpu, test by test."""

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path

from benchmarks.first_day.checks import holds
from benchmarks.first_day.steps import Context

FIXED = ("-m", "gpu", "tests/gpu", "-q", "--noconftest", "-p", "no:cacheprovider", "--durations=5")
"""No conftest: these tests want nothing of it, and it wants packages that a GPU machine may lack."""


PROBES = "every_recipe_is_probed"
"""Each starts a process that imports everything again: side by side where pytest-xdist and processors are there."""
LEAST_PROCESSORS = 8


def run(context: Context) -> None:
    """Each test is a check; a machine on which all are skipped is a failure."""
    many = importlib.util.find_spec("xdist") and (os.cpu_count() or 1) >= LEAST_PROCESSORS
    outcomes = _outcomes(context, "probes", ("-k", PROBES, *(("-n", "7") if many else ())))
    outcomes |= _outcomes(context, "others", ("-k", f"not {PROBES}"))
    for name, (outcome, words) in outcomes.items():
        truth = None if outcome == "skipped" else outcome == "passed"
        context.book.check(holds(name, "passes", truth, words or outcome))
    if not any(outcome != "skipped" for outcome, _ in outcomes.values()):
        raise RuntimeError("no test ran: is there a GPU with Transformer Engine?")


def _outcomes(context: Context, name: str, selection: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    report = context.results.parent / f"gpu-tests-{name}.xml"
    command = [sys.executable, "-m", "pytest", *FIXED, *selection, "--junitxml", str(report)]
    ran = subprocess.run(command, check=False)
    if not report.exists():
        raise RuntimeError(f"pytest ended with code {ran.returncode} and no report")
    return outcomes_of(report)


def outcomes_of(report: Path) -> dict[str, tuple[str, str]]:
    """Outcome and the first words of its failure, by test."""
    outcomes = {}
    for case in Xml.parse(report).getroot().iter("testcase"):
        wrong = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        words = "" if wrong is None else (wrong.get("message") or wrong.text or "").strip()[:600]
        outcome = "passed" if wrong is None else "skipped" if wrong.tag == "skipped" else "failed"
        outcomes[str(case.get("name"))] = outcome, words
    return outcomes
