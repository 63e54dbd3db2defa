"""One cluster with real nodes for all tests of this folder, with the chart installed by Helm.

The definitions come late: the operator runs before the cluster knows its kinds. ORDER is a release's life, from its
installation to its end.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from precision_lab.nodes.support import missing
from tests.support.audit import AUDIT_LOG, audit_flags
from tests.support.installed import EXPORTER, OPERATOR, Installed, cluster

ORDER = """
    test_leftovers test_release test_install test_measure test_check test_nvsentinel test_faults test_claims
    test_claim_faults test_agent_faults test_gpu_faults test_image_faults test_node_faults test_api_server_faults
    test_operator_faults test_hostile_agent test_upgrade test_uninstall
"""
LOG_LINES = 30
FOLDER = Path(__file__).parent
KEY = pytest.StashKey[Installed]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts this folder's modules, and those of `faults`, into ORDER, behind all others."""
    places = {name: place for place, name in enumerate(ORDER.split(), 1)}
    items.sort(key=lambda item: places[item.path.stem] if FOLDER in item.path.parents else 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed is shown with pods, events, and the end of our programs' logs."""
    report = yield
    installed = item.config.stash.get(KEY, None)
    if report.failed and installed is not None:
        for words in (
            ["get", "pods,jobs,pp", "--all-namespaces", "--output=wide"],
            ["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
            ["logs", f"deployment/{OPERATOR}", f"--tail={LOG_LINES}", "-n", installed.release.namespace],
            ["logs", f"deployment/{EXPORTER}", f"--tail={LOG_LINES}", "-n", installed.release.namespace],
        ):
            try:
                text = installed.lab.kubectl(*words)
            except Exception as problem:  # whatever it is, the test's own failure counts
                text = str(problem)
            report.sections.append((f"kubectl {' '.join(words)}", "\n".join(text.splitlines()[-60:])))
    return report


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the API server writes what our programs asked for."""
    return tmp_path_factory.mktemp("audit") / AUDIT_LOG


@pytest.fixture(scope="session")
def bare(request: pytest.FixtureRequest, audit_log: Path) -> Iterator[Installed]:
    """Real and simulated nodes, and nothing of ours yet."""
    lacking = missing()
    if lacking:
        pytest.skip(" ".join(lacking))
    with cluster(audit_flags(audit_log.parent)) as installed:
        request.config.stash[KEY] = installed
        yield installed
        del request.config.stash[KEY]


@pytest.fixture(scope="session")
def early(bare: Installed) -> Installed:
    """The chart without its definitions: the programs run, and there is nothing to watch yet."""
    bare.release.put(**bare.values(crds={"enabled": False}))
    return bare


@pytest.fixture(scope="session")
def installed(early: Installed) -> Installed:
    """The chart with all that it has; its programs are ready."""
    early.release.put(**early.values())
    early.ready()
    return early
