"""The option that makes skipping a failure, tried on small test files."""

import pytest

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


def run(pytester: pytest.Pytester, name: str, *options: str) -> pytest.RunResult:
    """Pytest, within this process, over one good test and the source of this name."""
    pytester.makeini(CONFIGURATION)
    pytester.makepyfile(test_good="def test_good(): pass\n", test_source=f"import pytest\n{SOURCES[name]}\n")
    return pytester.runpytest_inprocess("-q", "-p", "tests.support.only_skip", "-p", "no:asyncio", *options)


@pytest.mark.parametrize("name", SOURCES)
def test_a_run_fails_and_names_what_was_left_out_without_the_marker(name: str, pytester: pytest.Pytester) -> None:
    done = run(pytester, name, "--only-skip", "gpu")
    listed = [line for line in done.outlines if line.startswith("test_source.py") and ": " in line]
    if name in ALLOWED:
        assert (done.ret, listed) == (0, [])
    else:
        assert done.ret == 1
        assert len(listed) == 1
        assert listed[0].endswith(("here", "not yet", "No module named 'no_such_module'"))
        done.stdout.fnmatch_lines("*--only-skip: left out, and not marked gpu*")


def test_several_markers_may_be_allowed(pytester: pytest.Pytester) -> None:
    assert run(pytester, "otherwise marked", "--only-skip=gpu,torch").ret == 0


def test_without_the_option_skipping_is_no_failure(pytester: pytest.Pytester) -> None:
    assert run(pytester, "in the test").ret == 0


@pytest.mark.parametrize("name", ["in the test", "whole module", "xfail", "marked"])
def test_workers_of_xdist_tell_what_they_left_out(name: str, pytester: pytest.Pytester) -> None:
    assert run(pytester, name, "--only-skip=gpu", "-n", "1").ret == (0 if name in ALLOWED else 1)
