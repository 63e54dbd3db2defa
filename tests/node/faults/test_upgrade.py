"""An upgrade from another version, the way back, and a reinstallation on real nodes, each in the middle of a run.

Both releases are charts and images of this tree, under two versions. By default a profile is measured again when the
chart brings another agent, so one profile has four runs: the older agent's, which the newer operator reads; the newer
one's, which the older operator reads; the older one's again, which the release that is installed in its place reads;
and the last.
One story in steps; each test looks at what the steps left behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from precision_lab.builds.image_archives import NAMES, image_archives, version
from tests.support.eventually import eventually
from tests.support.helm import command_in_docs
from tests.support.installed import ONLY_GPU_NODE, Installed, Object, Profile, on_nodes
from tests.support.other_version import CHART, other_version

pytestmark = [pytest.mark.node, pytest.mark.long]
PACE = 0.3
"""An agent of `llama3-8b` is at work until the release's programs have been replaced."""
READY_SECONDS = 180
"""Both releases start from images that the nodes have just got."""
NOT_FOR_AGENTS = ["DriverChange", "HardwareChange", "SpecChange"]
"""`rerunOn` of a profile that is not measured again because the chart brings another agent."""


@dataclass(frozen=True)
class Step:
    """A change of the release with an agent at work."""

    images: set[str]
    """Of operators and exporter, all of them ready."""
    restarts: int
    """Of their containers."""
    agent: str
    """The UID of the agent's pod before the change."""
    left: str
    """That of the agent's pod when the programs were ready."""
    report: Object
    """The report's status with that agent's result."""


@dataclass(frozen=True)
class Story:
    """The steps, and in the end the reports of the profile and of the one that other agents do not concern."""

    older: str
    """The older programs' version."""
    installed: set[str]
    """The images of operators and exporter of the older release, all of them ready."""
    upgraded: Step
    rolled_back: Step
    reinstalled: Step
    last: Object
    unconcerned: Object


@pytest.fixture(scope="module")
def older(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The older release, in a cluster without a trace of the newer one, which is back in the end."""
    tree = other_version(tmp_path_factory.mktemp("older"))
    installed.real.import_images(on_nodes(image_archives(repository=tree)))
    installed.release.uninstall()
    installed.lab.kubectl(*command_in_docs("kubectl delete crd", "Uninstall"))
    installed.release.put(tree / CHART, **installed.values())
    installed.ready(READY_SECONDS)
    yield tree
    installed.release.put(**installed.values())
    installed.ready(READY_SECONDS)


@pytest.fixture(scope="module")
def story(installed: Installed, older: Path) -> Story:
    release, first = installed.release, images(installed)
    unconcerned = installed.apply("not-for-agents", target=ONLY_GPU_NODE, rerunOn=NOT_FOR_AGENTS)
    unconcerned.measured()
    with installed.paced(PACE):
        profile = installed.apply("story", target=ONLY_GPU_NODE, retention={"history": 4})
        agent = profile.running_agent()
        release.helm(*command_in_docs("helm upgrade", "Upgrade"))
        upgraded = step(installed, profile, agent, 1)
        agent = profile.running_agent()
        release.helm(*command_in_docs("helm rollback", "Upgrade"))
        rolled_back = step(installed, profile, agent, 2)
        agent = profile.running_agent()
    release.uninstall()
    release.put(**installed.values())
    reinstalled = step(installed, profile, agent, 3)
    last = result(profile, 4)
    return Story(version(older), first, upgraded, rolled_back, reinstalled, last, unconcerned.report()["status"])


def step(installed: Installed, profile: Profile, agent: Object, run: int) -> Step:
    """Waits until all programs are ready, then for the result of this run: that of the agent before the change."""
    installed.ready(READY_SECONDS)
    left = profile.agent()
    statuses = [status for pod in programs(installed) for status in pod["status"]["containerStatuses"]]
    return Step(
        images(installed),
        sum(status["restartCount"] for status in statuses),
        agent["metadata"]["uid"],
        left["metadata"]["uid"] if left else "",
        result(profile, run),
    )


def programs(installed: Installed) -> list[Object]:
    return [*installed.pods("operator"), *installed.pods("exporter")]


def images(installed: Installed) -> set[str]:
    return {container["image"] for pod in programs(installed) for container in pod["spec"]["containers"]}


def result(profile: Profile, run: int) -> Object:
    """The report's status once this run, counted from 1, has ended."""
    eventually(lambda: profile.runs() >= run, 120, profile.situation)
    status: Object = profile.report()["status"]
    return status


def test_the_programs_of_both_releases_become_ready_and_stay_so(story: Story) -> None:
    newer, older = ({f"{NAMES['operator']}:{tag}"} for tag in (version(), story.older))
    assert newer != older
    assert story.installed == older
    steps = (story.upgraded, story.rolled_back, story.reinstalled)
    assert [(step.images, step.restarts) for step in steps] == [(newer, 0), (older, 0), (newer, 0)]


def test_agents_run_on_through_each_change(story: Story) -> None:
    for step in (story.upgraded, story.rolled_back, story.reinstalled):
        assert step.left == step.agent


def test_each_result_is_taken_by_the_other_release_with_figures_and_detail(story: Story) -> None:
    agents = []
    for status in (story.upgraded.report, story.rolled_back.report, story.reinstalled.report, story.last):
        agents.append(status["software"]["agent"])
        assert (status["attempt"]["outcome"], status["attempt"]["number"]) == ("succeeded", 1)
        assert status["run"].get("detail"), status["run"]
        assert {"bf16", "fp8_current"} <= {row["recipe"] for row in status["results"] if row["tokensPerSecond"]}
    assert agents == [story.older, version(), story.older, version()]


def test_a_node_is_measured_once_for_each_agent_that_a_chart_brings(story: Story) -> None:
    assert [row["outcome"] for row in story.last["history"]] == ["succeeded"] * 4


def test_a_profile_that_names_no_change_of_agents_is_not_measured_again(story: Story) -> None:
    assert len(story.unconcerned["history"]) == 1
    assert (story.unconcerned["state"], story.unconcerned["software"]["agent"]) == ("Measured", story.older)
