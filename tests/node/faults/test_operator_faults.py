"""What happens to an agent on a real node when the operators move: `test_upgrade` replaces them."""

import pytest

from tests.support.eventually import eventually
from tests.support.installed import GPU_NODE, Installed

pytestmark = [pytest.mark.node, pytest.mark.long]
PACE = 0.15
"""An agent of `llama3-8b` takes some forty seconds: it is at work all the time."""


def test_an_agent_is_collected_once_although_both_nodes_of_the_operators_are_drained(installed: Installed) -> None:
    profile, _ = installed.at_work("operators-drained", PACE)
    for node in sorted(node for node in installed.real.nodes if node != GPU_NODE):
        installed.lab.kubectl("drain", node, "--delete-emptydir-data", "--force", "--timeout=90s")
        assert not [pod for pod in installed.pods("operator") if pod["spec"].get("nodeName") == node]
        installed.lab.kubectl("uncordon", node)
        installed.ready()
        eventually(lambda: installed.leader() in names(installed))
    assert profile.measured() == 1
    assert profile.runs() == 1, "nothing was measured twice"


def names(installed: Installed) -> set[str]:
    """The operators' pods that are not ending."""
    return {pod["metadata"]["name"] for pod in installed.pods("operator")}
