"""What happens to an agent whose node falls silent or loses its power."""

import signal
import time

import pytest

from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, Installed

pytestmark = [pytest.mark.node, pytest.mark.long]
GRACE_SECONDS = 20
SILENT_SECONDS = 85


def test_an_agent_outlives_a_kubelet_that_is_silent_until_its_node_is_not_ready(installed: Installed) -> None:
    node = installed.real.nodes[GPU_NODE]
    with installed.real.node_grace(GRACE_SECONDS):
        profile, _ = installed.at_work("silent")
        installed.lab.processes.stop(node.kubelet, signal.SIGKILL)
        back = time.monotonic() + SILENT_SECONDS
        eventually(lambda: "AgentUnreachable" in profile.reasons())
        eventually(lambda: time.monotonic() > back, 2 * SILENT_SECONDS)
        assert not profile.attempt(), "nothing is decided about an agent that may be at work"
        node.start_kubelet()
        assert profile.measured() == 1
    assert profile.runs() == 1, "nothing was measured twice"
    assert profile.report()["status"]["run"]["detail"], "the log was read when the node was back"


def test_a_node_that_is_rebooted_is_measured_by_the_next_attempt_and_no_retry_is_used(installed: Installed) -> None:
    profile, _ = installed.at_work("rebooted", rollout={"retry": {"limit": 0}})
    installed.real.reboot(GPU_NODE)
    attempt = profile.ends("ContainerLost")
    assert (attempt["outcome"], attempt["nodeLosses"], "failures" in attempt) == ("disrupted", 1, False)
    assert attempt["message"].startswith(f"Node {GPU_NODE} lost the agent's container, as in a restart of the node: ")
    assert (profile.measured(), profile.runs()) == (2, 1)
    eventually(lambda: installed.offered_gpus() == 8)
