"""A plugin of pytest (`-p tests.security.controls.recorder`): how each test ended, and which of our code was imported.

It writes JSON to the file that the environment variable CONTROLS_RECORD names.
"""

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

RECORD = "CONTROLS_RECORD"
PACKAGES = ("precision_api", "precision_operator", "precision_agent", "precision_lab")
_ended: dict[str, dict[str, str]] = {}


def pytest_configure() -> None:
    """Any failing example will do: nobody reads the smallest one."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("controls", settings.default, phases=phases, report_multiple_bugs=False)
    settings.load_profile("controls")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps a test's worst phase: a failed setup before its call, and a failed call before its end."""
    report = yield
    if report.outcome != "passed":
        _ended.setdefault(item.nodeid, {"outcome": report.outcome, "when": report.when or "", "why": _why(call)})
    elif report.when == "call":
        _ended.setdefault(item.nodeid, {"outcome": "passed", "when": "call", "why": ""})
    return report


def _why(call: pytest.CallInfo[None]) -> str:
    """`assertion`, or the name of another exception; of a group, what all its members are."""
    return _kind(call.excinfo.value) if call.excinfo is not None else ""


def _kind(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        kinds = {_kind(inner) for inner in error.exceptions}
        return "assertion" if kinds == {"assertion"} else ", ".join(sorted(kinds - {"assertion"}))
    # pytest.raises that saw nothing raised fails the test by an exception of pytest's own.
    assertions = (AssertionError, pytest.fail.Exception)
    return "assertion" if isinstance(error, assertions) else f"{type(error).__name__}: {error}"[:300]


def pytest_sessionfinish() -> None:
    ours = {
        name: str(module.__file__)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in PACKAGES and getattr(module, "__file__", None)
    }
    Path(os.environ[RECORD]).write_text(json.dumps({"tests": _ended, "modules": ours}), encoding="utf-8")
