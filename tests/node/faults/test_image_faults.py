"""What happens to agents on a real node whose registry has no such image yet, or sends it slowly."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from precision_api.facts.names import ANNOTATION_RERUN
from precision_lab.builds.image_archives import NAMES
from precision_lab.processes.ports import free_ports
from tests.support.eventually import eventually
from tests.support.installed import AGENT_RESOURCES, GPU_NODE, ONLY_GPU_NODE, TEAM, Installed, Object

pytestmark = [pytest.mark.node, pytest.mark.long]
PULL_SECONDS = 20


@dataclass(frozen=True)
class Registry:
    """A registry that the nodes reach; it has the tags that its file lists."""

    address: str
    tags: Path

    def agent(self, tag: str) -> Object:
        """The agent's part of a spec: this registry's image."""
        return {"resources": AGENT_RESOURCES, "image": f"{self.address}/agent:{tag}"}


@pytest.fixture(scope="module")
def registry(installed: Installed) -> Iterator[Registry]:
    """The operator allows its images as long as it is there."""
    processes, (port,) = installed.lab.processes, free_ports(1)
    found = Registry(f"127.0.0.1:{port}", installed.lab.run_dir / "registry-tags")
    found.tags.touch()
    installed.real.nodes[GPU_NODE].pull_from(f"http://{found.address}")
    options = [str(installed.images["agent"]), str(port), str(found.tags), str(PULL_SECONDS)]
    processes.start("image-registry", [sys.executable, "-m", "tests.support.image_registry", *options])
    installed.release.put(**installed.values(agent={"allowedImages": [NAMES["agent"], f"{found.address}/agent"]}))
    installed.ready()
    yield found
    processes.stop("image-registry")
    installed.release.put(**installed.values())
    installed.ready()


def test_a_slow_pull_is_told_and_is_no_failure(installed: Installed, registry: Registry) -> None:
    registry.tags.write_text("slow")
    profile = installed.apply("slow-pull", target=ONLY_GPU_NODE, agent=registry.agent("slow"))
    eventually(lambda: "PullingImage" in profile.reasons())
    assert profile.measured() == 1


def test_an_image_that_comes_before_the_timeout_costs_nothing(installed: Installed, registry: Registry) -> None:
    profile = installed.apply("late-image", target=ONLY_GPU_NODE, agent=registry.agent("late"))
    eventually(lambda: "ImagePullFailing" in profile.reasons())
    registry.tags.write_text("late")
    assert profile.measured() == 1


def test_an_image_that_does_not_come_fails_and_a_rerun_measures_when_it_is_there(
    installed: Installed, registry: Registry
) -> None:
    profile = installed.apply(
        "no-image",
        target=ONLY_GPU_NODE,
        agent=registry.agent("absent"),
        idle={"pendingTimeoutSeconds": 30},
        rollout={"retry": {"limit": 0}},
    )
    attempt = profile.ends("ImagePullFailed")
    assert attempt["message"].startswith("Image of the agent could not be pulled: ")
    assert f"{registry.address}/agent:absent" in attempt["message"], "the runtime's words name the image"
    eventually(lambda: profile.status()["nodes"]["failed"] == 1)
    registry.tags.write_text("absent")
    installed.lab.kubectl("annotate", "pp", profile.name, "-n", TEAM, f"{ANNOTATION_RERUN}=image-pushed")
    profile.measured()
