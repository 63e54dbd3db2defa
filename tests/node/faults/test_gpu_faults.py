"""What happens to an agent on a real kubelet whose GPUs, or their device plugin, fail while it measures."""

import pytest

from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, Installed

pytestmark = [pytest.mark.node, pytest.mark.long]


def test_a_gpu_that_turns_unhealthy_in_mid_run_begins_no_other_run(installed: Installed) -> None:
    """Kubernetes ends no pod for a GPU's sake: the run ends with all GPUs, and its result holds when all are well."""
    profile, _ = installed.at_work("unhealthy-in-mid-run")
    try:
        installed.real.unhealthy_gpus(GPU_NODE, "GPU-3")
        eventually(lambda: profile.report().get("status", {}).get("hardware", {}).get("gpus") == 8, 180)
        assert profile.attempt()["number"] == 1
        eventually(lambda: "GPUsMissing" in profile.reasons(), 180)
    finally:
        installed.real.unhealthy_gpus(GPU_NODE)
    eventually(lambda: "GPUsMissing" not in profile.reasons(), 180)
    assert (profile.measured(), profile.report()["status"]["hardware"]["gpus"]) == (1, 8)
    assert profile.runs() == 1, "nothing was measured twice"


def test_an_agent_outlives_a_device_plugin_that_restarts(installed: Installed) -> None:
    profile, _ = installed.at_work("plugin-restarts")
    installed.real.stop_plugin(GPU_NODE)
    installed.real.start_plugin(GPU_NODE)
    assert profile.measured() == 1
    assert profile.runs() == 1, "nothing was measured twice"
