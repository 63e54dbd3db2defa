"""Fixtures of the contract's tests on a real API server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from precision_api.kinds import crdgen
from precision_lab.builds.binaries import binaries
from tests.support.api_server import ApiServer
from tests.support.eventually import eventually
from tests.support.kubectl import Kubectl


@pytest.fixture(scope="session")
def kubectl_everywhere(cluster: Any) -> Kubectl:
    """kubectl as the cluster's administrator, with our definitions installed."""
    kubectl = Kubectl(binaries(["kubectl"])["kubectl"], cluster.kubeconfig)
    for name in crdgen.files():
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(Path(crdgen.__file__).parents[2] / name))
    # A definition that has no conditions yet is an error to kubectl.
    established = ("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    eventually(lambda: kubectl.run(*established).returncode == 0)
    kubectl("api-resources")  # asks anew: `explain` would believe a list from before our kinds were there
    return kubectl


@pytest.fixture(scope="session")
def api(cluster: Any, kubectl_everywhere: Kubectl) -> ApiServer:
    """Plain requests, as the cluster's administrator."""
    return ApiServer(cluster.kubeconfig)


@pytest.fixture
def kubectl(kubectl_everywhere: Kubectl, namespace: str) -> Kubectl:
    """kubectl in the test's own namespace."""
    return replace(kubectl_everywhere, namespace=namespace)
