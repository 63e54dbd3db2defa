"""The option that makes skipping a failure, tried on small test files by a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CONFIGURATION = """[pytest]
markers =
    gpu: needs a GPU
    torch: needs torch
"""
SOURCES = {
    "marked": "@pytest.mark.gpu\n@pytest.mark.skip(reason='no GPU here')\ndef test_it(): pass",
    "marked module": "pytestmark = pytest.mark.gpu\ndef test_it(): pytest.skip('no GPU here')",
    "in a marked class": "@pytest.mark.gpu\nclass TestIt:\n    def test_it(self): pytest.skip('no GPU here')",
    "by a fixture": "@pytest.fixture\ndef tool(): pytest.skip('no tool here')\ndef test_it(tool): pass",
    "in the test": "def test_it(): pytest.skip('no tool here')",
    "otherwise marked": "@pytest.mark.torch\ndef test_it(): pytest.skip('no torch here')",
    "whole module": "pytest.skip('no tool here', allow_module_level=True)",
    "missing import": "pytest.importorskip('no_such_module', exc_type=ImportError)",
    "xfail": "@pytest.mark.xfail(reason='not yet')\ndef test_it(): assert False",
    "xfail that passes": "@pytest.mark.xfail(reason='not yet')\ndef test_it(): pass",
    "good": "def test_it(): pass",
}
ALLOWED = ("marked", "marked module", "in a marked class", "good")


def run(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Pytest over one good test and the source of this name."""
    (folder / "pytest.ini").write_text(CONFIGURATION)
    (folder / "test_good.py").write_text("def test_good(): pass\n")
    (folder / "test_source.py").write_text(f"import pytest\n{SOURCES[name]}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.only_skip", *options]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", SOURCES)
def test_a_run_fails_and_names_what_was_left_out_without_the_marker(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, name, "--only-skip", "gpu")
    listed = [line for line in done.stdout.splitlines() if line.startswith("test_source.py") and ": " in line]
    if name in ALLOWED:
        assert (done.returncode, listed) == (0, []), done.stdout
    else:
        assert done.returncode == 1, done.stdout
        assert len(listed) == 1
        assert listed[0].endswith(("here", "not yet", "No module named 'no_such_module'"))
        assert "--only-skip: left out, and not marked gpu" in done.stdout


def test_several_markers_may_be_allowed(tmp_path: Path) -> None:
    assert run(tmp_path, "otherwise marked", "--only-skip=gpu,torch").returncode == 0


def test_without_the_option_skipping_is_no_failure(tmp_path: Path) -> None:
    assert run(tmp_path, "in the test").returncode == 0


@pytest.mark.parametrize("name", ["in the test", "whole module", "xfail", "marked"])
def test_workers_of_xdist_tell_what_they_left_out(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, name, "--only-skip=gpu", "-n", "1")
    assert done.returncode == (0 if name in ALLOWED else 1), done.stdout
