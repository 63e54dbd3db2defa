"""What was expected beside what was measured, and the notebook that keeps both even if its step ends half way."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["as expected", "differs", "not measured"]


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation in words, what was measured in words, and how the two compare; `why` names the expectation's
    source."""

    name: str
    expected: str
    measured: str
    verdict: Verdict
    why: str = ""

    def line(self) -> str:
        """For the log."""
        return f"{self.verdict.upper():<13} {self.name}: expected {self.expected}, measured {self.measured}"


def between(name: str, value: float | None, low: float, high: float, unit: str = "", why: str = "") -> Check:
    """Expects a number from `low` to `high`, bounds included; infinite bounds are left out of the words."""
    bounds = [
        text for bound, text in ((low, f"at least {low:.4g}"), (high, f"at most {high:.4g}")) if math.isfinite(bound)
    ]
    expected = f"{' and '.join(bounds)}{unit}"
    if value is None or not math.isfinite(value):
        return Check(name, expected, "nothing", "not measured", why)
    verdict: Verdict = "as expected" if low <= value <= high else "differs"
    return Check(name, expected, f"{value:.4g}{unit}", verdict, why)


def holds(name: str, expected: str, truth: bool | None, measured: str, why: str = "") -> Check:
    """Expects something that is so or not; None: it could not be seen."""
    verdict: Verdict = "not measured" if truth is None else "as expected" if truth else "differs"
    return Check(name, expected, measured, verdict, why)


@dataclass(slots=True)
class Notebook:
    """Facts and checks of one step, written to `path` at every entry: a step that is killed leaves what it had."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def fact(self, name: str, value: Any) -> None:
        """A figure or a name that nothing was expected of; JSON takes it."""
        self.facts[name] = value
        print(f"{name}: {json.dumps(value)[:400]}", flush=True)
        self._write()

    def check(self, *checks: Check) -> None:
        """Expectations, as they turned out."""
        for check in checks:
            self.checks.append(check)
            print(check.line(), flush=True)
        self._write()

    def _write(self) -> None:
        whole = self.path.with_suffix(".part")
        written = {"facts": self.facts, "checks": [asdict(check) for check in self.checks]}
        whole.write_text(json.dumps(written), encoding="utf-8")
        whole.replace(self.path)


def read_notebook(path: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Facts and checks that a step left; empty where it left none."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}, []
    return written["facts"], written["checks"]


def counted(checks: Iterable[dict[str, str]]) -> dict[str, int]:
    """How many checks have each verdict."""
    verdicts = [check["verdict"] for check in checks]
    return {verdict: verdicts.count(verdict) for verdict in ("as expected", "differs", "not measured")}
