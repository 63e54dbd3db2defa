"""A creation that the cluster refuses: YAML in, status out. Nothing runs or is said to run, and the cause is named.

These tests need no more than the definitions, an operator and what kubectl shows.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.site import Profile, Scene, specs

pytestmark = pytest.mark.cluster

NOT_A_KEY = "not a key!"
NO_JOBS = "no-jobs"


def says(profile: Profile, words: str) -> dict[str, Any]:
    """The profile's status, once it has these words: it does not say then that anything runs."""
    eventually(lambda: words in json.dumps(profile.status(), ensure_ascii=False))
    status = profile.status()
    told = {c["type"]: c["status"] for c in status["conditions"]}
    assert (status["phase"], status.get("eta")) in (("Degraded", None), ("Pending", None))
    assert (told["Progressing"], told["Complete"]) == ("False", "False")
    assert status["nodes"]["running"] == 0
    return status


def events_of(profile: Profile) -> list[dict[str, Any]]:
    """The warnings about a profile."""
    chosen = f"involvedObject.uid={profile.uid},type=Warning"
    found = profile.site.lab.get("events", "-n", profile.site.namespace, f"--field-selector={chosen}")
    return list(found["items"])


def test_a_job_that_the_api_server_finds_invalid_is_named_and_the_mended_profile_goes_at_once(scene: Scene) -> None:
    nodes = scene.add_nodes(*specs(2))
    profile = scene.apply(
        agent={"tolerations": [{"key": NOT_A_KEY, "operator": "Exists"}]}, rollout={"maxConcurrent": 1}
    )
    status = says(profile, NOT_A_KEY)
    assert status["waitsFor"] == "InvalidJob (2)"
    assert {c["type"]: c["reason"] for c in status["conditions"]}["Degraded"] == "InvalidJob"
    (event,) = eventually(lambda: events_of(profile))
    assert event["reason"] == "InvalidJob"
    assert "tolerations" in event["message"]
    assert profile.jobs() == []
    profile.patch(agent=None)
    profile.completes()
    assert set(profile.attempts()) == set(nodes)


def test_a_quota_of_jobs_is_a_wait_of_the_profile_and_no_failure_of_its_nodes(scene: Scene) -> None:
    scene.add_nodes(*specs(2))
    namespace = scene.site.namespace
    hard = {"count/jobs.batch": "0"}
    meta = {"name": NO_JOBS, "namespace": namespace}
    scene.lab.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    in_force = "--for=jsonpath={.status.hard}"
    scene.lab.kubectl("wait", in_force, f"quota/{NO_JOBS}", "-n", namespace, "--timeout=60s")
    try:
        profile = scene.apply(rollout={"maxConcurrent": 1, "maxFailures": 1})
        status = says(profile, f"exceeded quota: {NO_JOBS}: 0 of 0 count/jobs.batch used, 1 more requested")
        assert status["waitsFor"] == "QuotaExceeded (2)"
        assert status["nodes"]["failed"] == 0
    finally:
        scene.lab.kubectl("delete", "quota", NO_JOBS, "-n", namespace)
    profile.completes()
    assert profile.counts()["succeeded"] == 2
    assert {attempt["number"] for attempt in profile.attempts().values()} == {1}, "no retry was spent"


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
    assert [[owner["uid"] for owner in each] for each in owners] == [[after.uid]] * len(nodes)
    assert set(after.attempts()) == set(nodes)
