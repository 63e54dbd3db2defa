"""A profile that is deleted takes everything of it along, whether the operator runs or not."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.history import created
from tests.support.lagging_proxy import Trouble, lagging_proxy
from tests.support.site import Profile, Scene, specs

pytestmark = pytest.mark.cluster


def half_done(scene: Scene) -> Profile:
    """A profile with results and details of some nodes and agents on others."""
    scene.add_nodes(*specs(2), *specs(2, "agent-seconds:600"))
    profile = scene.apply()
    eventually(lambda: len(profile.details()) == 2 and len(profile.pods()) == 2)
    return profile


def leftovers(profile: Profile) -> list[str]:
    """Kind, name and end of all that is still there of a profile."""
    groups = {"Job": profile.jobs(), "Pod": profile.pods(), "report": profile.reports(), "detail": profile.details()}
    metas = [(kind, item["metadata"]) for kind, items in groups.items() for item in items]
    return [f"{kind} {meta['name']} {meta.get('deletionTimestamp', '')}" for kind, meta in metas]


def assert_unmarked(profile: Profile) -> None:
    """Nothing that the operator made or wrote ever had a finalizer or an annotation of the watch library's."""
    ours = [change.object["metadata"] for change in profile.history() if change.kind != "pods"]
    assert len(ours) > 10
    assert [meta["name"] for meta in ours if meta.get("finalizers")] == []
    assert [key for meta in ours for key in meta.get("annotations", {}) if "kopf" in key] == []


def test_a_profile_that_is_deleted_in_the_middle_takes_everything_along(scene: Scene) -> None:
    profile = half_done(scene)
    profile.delete()
    eventually(lambda: not leftovers(profile), why=lambda: leftovers(profile))
    scene.site.operator_has_looked()
    assert leftovers(profile) == []
    assert len(created(profile.history(), "jobs")) == 4
    assert_unmarked(profile)


def test_a_profile_can_be_deleted_while_the_operator_is_down(scene: Scene) -> None:
    profile = half_done(scene)
    with scene.site.without_operator():
        profile.delete()
        eventually(lambda: not leftovers(profile), why=lambda: leftovers(profile))
    scene.site.operator_has_looked()
    assert leftovers(profile) == []
    assert_unmarked(profile)


def test_a_profile_that_comes_back_under_the_same_name_is_measured_anew(scene: Scene) -> None:
    scene.add_nodes(*specs(2))
    before = scene.apply()
    before.completes()
    before.delete()
    again = scene.apply()
    again.completes()
    assert again.uid != before.uid
    assert again.counts()["succeeded"] == 2
    assert len(created(again.history(), "jobs")) == 2
    eventually(lambda: not leftovers(before))


def test_reports_that_outlived_their_profile_are_those_of_the_next_one_of_its_name(scene: Scene) -> None:
    nodes = scene.add_nodes(*specs(2))
    before = scene.apply()
    before.completes()
    kept = {report["metadata"]["uid"] for report in before.reports()}
    scene.lab.kubectl("delete", "pp", before.name, "-n", scene.site.namespace, "--cascade=orphan")
    after = scene.apply()
    after.completes()
    assert after.uid != before.uid
    eventually(lambda: {report["metadata"]["uid"] for report in after.reports()} == kept)
    owners = [report["metadata"]["ownerReferences"] for report in after.reports()]
    assert [[owner["uid"] for owner in of_report] for of_report in owners] == [[after.uid]] * len(nodes)
    assert set(after.attempts()) == set(nodes)


def jobs_pending(profile: Profile) -> bool:
    pods = profile.pods()
    return len(pods) == 2 and {pod["status"]["phase"] for pod in pods} == {"Pending"}


def collecting(profile: Profile) -> bool:
    """Both Jobs have ended, and their results can't be read yet."""
    jobs = profile.jobs()
    return len(jobs) == 2 and all(job["status"].get("succeeded") == 1 for job in jobs)


PHASES: dict[str, tuple[Callable[[Profile], bool], tuple[str, ...]]] = {
    "just created": (lambda _: True, ()),
    "Jobs pending": (jobs_pending, ("fault:image-pull",)),
    "collecting": (collecting, ()),
}
"""When a profile is deleted, and what its nodes are like so that this moment lasts."""


@pytest.mark.parametrize("phase", PHASES)
def test_a_profile_that_is_deleted_leaves_nothing_at_whatever_moment(scene: Scene, phase: str, tmp_path: Path) -> None:
    reached, traits = PHASES[phase]
    scene.add_nodes(*specs(2, *traits))
    no_log = (Trouble("429", "GET", 1, "/log"),)
    with lagging_proxy(scene.site, tmp_path, troubles=no_log) if phase == "collecting" else nullcontext():
        profile = scene.apply()
        eventually(lambda: reached(profile))
        profile.delete()
        eventually(lambda: not leftovers(profile), why=lambda: leftovers(profile))
        scene.site.operator_has_looked()
        assert leftovers(profile) == []
