"""GPUs by resource claim on a real kubelet: a claim's own GPUs reach the agent's container, and no others."""

from collections.abc import Iterator

import pytest

from tests.support.claimed_node import ClaimedNode, Container, claimed_node
from tests.support.eventually import eventually
from tests.support.installed import Installed

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClaimedNode]:
    """A node with eight GPUs, one of which the driver has tainted."""
    with claimed_node(installed, tmp_path_factory.mktemp("nvml"), tainted=("gpu-3",)) as found:
        yield found


def test_an_agent_gets_exactly_the_gpus_of_its_claim(installed: Installed, node: ClaimedNode) -> None:
    profile, pod = installed.at_work("claimed")
    container = Container.of(pod)
    (claim,) = node.claims()
    given = {result["device"] for result in claim["status"]["allocation"]["devices"]["results"]}
    assert given == {f"gpu-{number}" for number in range(8)} - {"gpu-3"}
    assert container.gpus() == {device.replace("gpu-", "nvidia") for device in given}
    assert container.variable("NVIDIA_VISIBLE_DEVICES") == "void"
    assert (container.user(), "ro" in container.root_options()) == (65532, True)
    # Not Complete, which is true of a profile whose node was Busy a moment ago.
    eventually(lambda: profile.report().get("status", {}).get("state") == "Measured", 110, profile.situation)
    status = profile.report()["status"]
    assert (status["data"], status["hardware"]["gpus"]) == ("simulated", 7)
    eventually(lambda: not node.claims() and not node.prepared())
    profile.delete()
