"""Nodes that can't be measured now wait without holding anybody up, and profiles share nodes by taking turns."""

import json
from pathlib import Path

import pytest

from precision_api.facts import names
from precision_lab.fleet.fleet import NodeSpec
from tests.support.eventually import eventually
from tests.support.history import Change, created
from tests.support.plugin import Plugin
from tests.support.site import Profile, Scene, reasons, specs

pytestmark = pytest.mark.cluster


def statuses_of(history: list[Change], kind: str) -> list[str]:
    """The statuses that one of the profile's conditions went through, each once in a row."""
    told = [
        condition["status"]
        for change in history
        if change.kind == "profiles"
        for condition in change.object.get("status", {}).get("conditions", ())
        if condition["type"] == kind
    ]
    return [status for i, status in enumerate(told) if i == 0 or told[i - 1] != status]


def test_a_profile_completes_although_nodes_are_busy_or_cordoned_and_measures_them_when_they_are_free(
    scene: Scene, tmp_path: Path
) -> None:
    free, busy, cordoned = scene.add_nodes(
        NodeSpec("GB200"), NodeSpec("GB200", traits=("busy",)), NodeSpec("H100", traits=("cordoned",))
    )
    profile = scene.apply()
    status = profile.completes()
    assert profile.condition(names.COMPLETE)["reason"] == "SomeWaiting"
    assert reasons(status) == {"Busy": 1, "Cordoned": 1}
    told = {row["reason"]: row for row in status["reasons"]}
    assert (told["Busy"]["example"], told["Cordoned"]["example"]) == (busy, cordoned)
    assert "a pod of another namespace holds" in told["Busy"]["message"].lower()
    (why,) = Plugin.of(scene.lab, tmp_path).json("why", busy, "--profile", profile.name)
    assert f"training-{busy}" in why["message"], "who may list pods is told its name"
    assert f"kubectl uncordon {cordoned}" in told["Cordoned"]["message"]

    scene.lab.kubectl("delete", "pod", f"training-{busy}", "--namespace=default", "--force", "--grace-period=0")
    scene.lab.kubectl("uncordon", cordoned)
    eventually(lambda: profile.counts().get("succeeded") == 3)
    assert set(profile.attempts()) == {free, busy, cordoned}
    eventually(lambda: profile.condition(names.COMPLETE)["reason"] == "AllMeasured")
    assert statuses_of(profile.history(), names.COMPLETE) == ["False", "True"]
    progressing = statuses_of(profile.history(), names.PROGRESSING)
    assert (progressing[:3], progressing[-1]) == (["True", "False", "True"], "False")


def test_a_cordoned_node_is_repaired_measured_and_uncordoned(scene: Scene) -> None:
    [node] = scene.add_nodes(NodeSpec("H100", traits=("cordoned",)))
    profile = scene.apply(target={"nodeNames": [node], "cordoned": "Include"})
    status = profile.completes()
    assert (profile.condition(names.COMPLETE)["reason"], reasons(status)) == ("AllMeasured", {})
    scene.lab.kubectl("uncordon", node)
    assert set(profile.attempts()) == {node}


def ends(profile: Profile, how: str, seconds: int = 60) -> str:
    """Waits as a script does until the profile has ended in this way; returns the reason."""
    wait = ("wait", f"--for=condition={how}", f"pp/{profile.name}", f"--timeout={seconds}s")
    profile.site.lab.kubectl(*wait, f"--namespace={profile.site.namespace}")
    assert not profile.condition(({names.SUCCEEDED, names.FAILED} - {how}).pop()), "one of them at most"
    return str(profile.condition(how)["reason"])


def goes_on(profile: Profile) -> bool:
    """Whether the operator has looked, and says of the profile neither that it succeeded nor that it failed."""
    eventually(lambda: profile.condition(names.COMPLETE))
    profile.site.operator_has_looked()
    return not profile.condition(names.SUCCEEDED) and not profile.condition(names.FAILED)


def test_a_script_learns_how_a_profile_ended_and_waits_while_it_goes_on(scene: Scene) -> None:
    traits = ("reserved", "cordoned", "fault:crash")
    reserved, cordoned, broken = scene.add_nodes(*(NodeSpec("H100", traits=(trait,)) for trait in traits))
    [free] = scene.add_nodes(*specs(1))
    lab = scene.lab
    assert ends(scene.apply("reserved", target={"nodeNames": [reserved]}), names.FAILED) == "NothingEligible"
    assert ends(scene.apply("broken", target={"nodeNames": [broken, free]}), names.FAILED) == "SomeFailed"
    held = scene.apply("held", target={"nodeNames": [cordoned]})
    assert goes_on(held)
    held.patch(suspend=True)
    lab.kubectl("uncordon", cordoned)
    eventually(lambda: reasons(held.status()) == {"Suspended": 1})
    assert goes_on(held)
    held.patch(suspend=False)
    assert ends(held, names.SUCCEEDED) == "AllMeasured"

    lab.kubectl("delete", "node", cordoned)
    assert ends(held, names.FAILED) == "NothingEligible"

    yearly = scene.apply("yearly", target={"nodeNames": [free]}, schedule={"cron": "0 0 1 1 *"})
    assert goes_on(yearly)
    lab.kubectl("annotate", "pp", "yearly", f"{names.ANNOTATION_RERUN}=now", "-n", scene.site.namespace)
    assert ends(yearly, names.SUCCEEDED) == "AllMeasured"


def state(profile: Profile) -> tuple[object, ...]:
    """All that a user could see change."""
    reports = sorted(json.dumps(report, sort_keys=True) for report in profile.reports())
    return profile.get(), reports, len(created(profile.history(), "jobs"))


def test_applying_the_same_profile_twice_changes_nothing(scene: Scene) -> None:
    scene.add_nodes(*specs(3))
    profile = scene.completed()
    scene.site.operator_has_looked()
    before = state(profile)
    scene.apply()
    scene.site.operator_has_looked()
    assert state(profile) == before


def test_a_suspended_profile_starts_nothing_new_and_lets_running_agents_finish(scene: Scene) -> None:
    scene.add_nodes(*specs(4, "agent-seconds:2"))
    profile = scene.apply(rollout={"maxConcurrent": 2})
    eventually(lambda: len(profile.jobs()) == 2)
    profile.patch(suspend=True)
    eventually(lambda: profile.status().get("phase") == "Suspended")
    assert reasons(profile.status()) == {"Suspended": 2}
    assert (profile.counts()["succeeded"], profile.condition(names.PROGRESSING)["reason"]) == (2, "Suspended")
    scene.site.operator_has_looked()
    assert len(created(profile.history(), "jobs")) == 2

    profile.patch(suspend=False)
    profile.completes()
    assert profile.counts()["succeeded"] == 4


def test_an_edit_of_the_rollout_measures_nothing_again_and_one_of_the_workload_everything(scene: Scene) -> None:
    scene.add_nodes(*specs(2))
    profile = scene.completed()
    profile.patch(rollout={"maxConcurrent": 1}, retention={"deletedNodes": "1h"})
    edited = profile.get()["metadata"]["generation"]
    eventually(lambda: profile.status()["observedGeneration"] == edited)
    scene.site.operator_has_looked()
    assert len(created(profile.history(), "jobs")) == 2
    assert statuses_of(profile.history(), names.COMPLETE) == ["False", "True"]

    old_run = profile.status()["run"]
    profile.patch(workload={"name": "tiny", "shapes": [{"m": 8192, "k": 4096, "n": 4096}]})
    eventually(lambda: profile.status()["run"] != old_run and profile.condition(names.COMPLETE)["status"] == "True")
    assert {attempt["basis"]["spec"] for attempt in profile.attempts().values()} == {profile.status()["run"]}
    assert len(created(profile.history(), "jobs")) == 4
    assert statuses_of(profile.history(), names.COMPLETE) == ["False", "True", "False", "True"]
