"""`pytest --only-skip gpu,torch`: a run fails when it skipped (or xfailed) a test that carries none of these markers.

Skipping is how a test says that this machine lacks something. Where everything is there but a GPU, a test that is
skipped for any other reason is one that nobody runs.
"""

import pytest

OPTION = "--only-skip"
Report = pytest.TestReport | pytest.CollectReport


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "fail, and list them, if tests were skipped or xfailed that carry none of these markers (gpu,torch)"
    parser.addoption(OPTION, metavar="MARKERS", type=_names, default=None, help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Where the option is given, watch; workers of pytest-xdist hand their reports to the process that started them."""
    allowed = config.getoption(OPTION)
    if allowed is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(OnlySkip(allowed), "only-skip")


class OnlySkip:
    """What was left out without leave."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._left_out: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's outcome; it carries the test's markers among its keywords."""
        if (report.skipped or hasattr(report, "wasxfail")) and not self._allowed & set(report.keywords):
            self._left_out.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that skips itself as a whole tells no markers, so nothing can allow that."""
        if report.skipped:
            self._left_out.append(f"{report.nodeid}: {_reason(report)}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run that was good so far is good no longer."""
        if self._left_out and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._left_out:
            return
        allowed = ", ".join(sorted(self._allowed)) or "none"
        terminalreporter.section(f"{OPTION}: left out, and not marked {allowed}", red=True)
        for line in self._left_out:
            terminalreporter.write_line(line)


def _names(told: str) -> frozenset[str]:
    return frozenset(word.strip() for word in told.split(",") if word.strip())


def _reason(report: Report) -> str:
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return f"xfail {expected}".strip()
    told = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")
