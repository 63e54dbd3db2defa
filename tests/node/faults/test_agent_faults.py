"""What happens to one agent on a real node that asks for more than it may have."""

from __future__ import annotations

import pytest

from tests.support.installed import AGENT_RESOURCES, ONLY_GPU_NODE, Installed

pytestmark = pytest.mark.node
NO_RETRY = {"retry": {"limit": 0}}
EATS_MEMORY = "kept = [bytearray(1 << 24) for _ in range(1 << 10)]"


def test_an_agent_that_is_out_of_memory_says_what_to_raise(installed: Installed) -> None:
    with installed.real.agents_run(EATS_MEMORY):
        profile = installed.apply(
            "out-of-memory",
            target=ONLY_GPU_NODE,
            rollout=NO_RETRY,
            agent={"resources": {**AGENT_RESOURCES, "memory": "64Mi"}},
        )
        attempt = profile.ends("AgentOutOfMemory")
    assert (attempt["outcome"], "spec.agent.resources.memory" in attempt["message"]) == ("failed", True)
    profile.delete()
