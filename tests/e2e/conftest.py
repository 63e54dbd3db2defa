"""The lab of the end-to-end tests: one for the whole run, its operator and exporter with the rights of the chart."""

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from precision_lab.lab import LabSettings, start_lab
from precision_lab.release.install import install
from tests.support import kueue
from tests.support.api_server import ApiServer
from tests.support.audit import AUDIT_LOG, audit_flags
from tests.support.history import History
from tests.support.kubernetes_version import kubernetes_flags
from tests.support.plugin import Plugin
from tests.support.refusing import PLACES
from tests.support.site import Scene, Site
from tests.support.tenant import TENANT

NAMESPACE = "e2e"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
ARGUMENTS = ("--disruption-backoff-seconds=2", "--unresponsive-grace-seconds=2", "--no-leader-elect")
"""A node whose agent was taken away rests half a minute by default, a kubelet has a minute to end a pod, and a Lease
outlives its killed holder: too long to watch."""
POLICIES = (
    "policies.agents.enabled=true",
    f"policies.agents.kueueAccount={kueue.ACCOUNT}",
    "policies.namespaceSelector.matchExpressions[0].key=kubernetes.io/metadata.name",
    "policies.namespaceSelector.matchExpressions[0].operator=NotIn",
    f"policies.namespaceSelector.matchExpressions[0].values={{{TENANT}}}",
)
"""On, but in the namespace in which tests forge agents."""
SITE = pytest.StashKey[Site]()
LOG_CHARACTERS = 4000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed is told with the end of the operator's log."""
    report = yield
    site = item.config.stash.get(SITE, None)
    if report.failed and site is not None:
        state = site.lab.processes.states().get(site.operator.name)
        log = site.lab.processes.log(site.operator.name)[-LOG_CHARACTERS:]
        report.sections.append((f"the operator, {state}", log))
    return report


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A control plane without nodes, the chart installed, its programs running; pods must be `restricted`."""
    folder = tmp_path_factory.mktemp("audit")
    apiserver, common = kubernetes_flags()
    flags = (*audit_flags(folder), *apiserver)
    settings = LabSettings(agent_seconds=0.3, apiserver_flags=flags, kubernetes_flags=common)
    with start_lab(settings=settings) as lab, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(lab.binaries["kubectl"].parent), prepend=os.pathsep)
        installed = install(lab, watch=(NAMESPACE, *PLACES, TENANT), values=POLICIES, start=False)
        lab.kubectl("label", "namespace", NAMESPACE, RESTRICTED)
        operator = installed.programs["operator"]
        operator = replace(operator, argv=(*operator.argv, *ARGUMENTS))
        exporter = installed.programs["exporter"]
        api = ApiServer(lab.kubeconfig)
        history = History(api, NAMESPACE)
        for program in (operator, exporter):
            program.start()
        found = request.config.stash[SITE] = Site(lab, operator, exporter, api, history, NAMESPACE)
        yield found
        del request.config.stash[SITE]
        history.close()
        for program in (operator, exporter):
            lab.processes.stop(program.name, 9)


def corner(site: Site) -> Iterator[Scene]:
    """A test's own nodes and profiles."""
    made = Scene(site)
    yield made
    made.close()


scene = pytest.fixture(corner)
stage = pytest.fixture(scope="module")(corner)
"""The same for all tests of a module, which look at one story from several sides."""


@pytest.fixture
def plugin(site: Site, tmp_path: Path) -> Plugin:
    return Plugin.of(site.lab, tmp_path)


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the API server writes what our programs asked for."""
    return next(tmp_path_factory.getbasetemp().glob(f"audit*/{AUDIT_LOG}"))
