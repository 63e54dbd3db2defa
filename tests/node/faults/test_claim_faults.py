"""What goes wrong with GPUs by resource claim on a real kubelet: drivers that restart or refuse, classes that go."""

import signal
from collections.abc import Iterator

import pytest

from precision_lab.fleet.slices import device_classes
from tests.support.claimed_node import ClaimedNode, claimed_node
from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, ONLY_GPU_NODE, Installed

pytestmark = [pytest.mark.node, pytest.mark.long]


@pytest.fixture(scope="module")
def node(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClaimedNode]:
    with claimed_node(installed, tmp_path_factory.mktemp("nvml")) as found:
        yield found


def test_an_agent_outlives_a_dra_driver_that_restarts(installed: Installed, node: ClaimedNode) -> None:
    profile, _ = installed.at_work("driver-restarts")
    node.stop_driver()
    node.start_driver()
    assert profile.measured() == 1
    eventually(lambda: not node.prepared())


def test_agents_outlive_a_kubelet_that_restarts_and_forgets_slices(installed: Installed, node: ClaimedNode) -> None:
    profile, _ = installed.at_work("kubelet-restarts")
    installed.lab.processes.stop(node.node.kubelet, signal.SIGKILL)
    node.node.start_kubelet()
    assert profile.measured() == 1
    eventually(lambda: len(installed.real.published(GPU_NODE)) == 8)


def test_claims_that_are_not_prepared_are_told_and_cost_no_retry(installed: Installed, node: ClaimedNode) -> None:
    with node.fault("fail the CDI cache is stale"):
        profile = installed.apply(
            "not-prepared",
            target=ONLY_GPU_NODE,
            idle={"pendingTimeoutSeconds": 30},
            rollout={"retry": {"limit": 0, "backoffSeconds": 1}},
        )
        attempt = profile.ends("ClaimNotPrepared")
    assert attempt["outcome"] == "disrupted"
    assert attempt["message"].startswith(f"Node {GPU_NODE} did not prepare the agent's GPUs within 30 s: ")
    assert "the CDI cache is stale" in attempt["message"]
    assert profile.measured() >= 2


def test_without_the_device_class_nodes_wait_and_are_measured_with_it(installed: Installed, node: ClaimedNode) -> None:
    (whole,) = [item for item in device_classes() if item["metadata"]["name"] == "gpu.nvidia.com"]
    installed.lab.kubectl("delete", "deviceclass", "gpu.nvidia.com")
    try:
        # An operator that saw the class seconds ago starts an agent, which no scheduler places: it is given up soon.
        profile = installed.apply("no-class", target=ONLY_GPU_NODE, idle={"pendingTimeoutSeconds": 30})
        eventually(lambda: "DeviceClassMissing" in profile.reasons(), 90)
        assert not profile.jobs()
    finally:
        installed.lab.apply(whole)
    profile.measured()
    assert "failures" not in profile.attempt(), "no retry is used"


def test_a_node_with_plugin_and_driver_is_not_measured(installed: Installed, node: ClaimedNode) -> None:
    installed.real.start_plugin(GPU_NODE)
    try:
        profile = installed.apply("twice", target=ONLY_GPU_NODE)
        eventually(lambda: "GPUsOfferedTwice" in profile.reasons())
        assert not profile.jobs()
    finally:
        installed.real.stop_plugin(GPU_NODE)
    assert profile.measured() == 1
