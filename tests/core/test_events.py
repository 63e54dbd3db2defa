"""Few events, each once: conditions that turn and new reasons to fail, never one event a node."""

import re
from typing import Any

import pytest

from precision_api.kinds.profile import ProfileStatus
from precision_operator.core.status.events import Note, event, notes
from tests.support.world import MINUTE, NOW, profile


def status(reasons: dict[str, int] | None = None, **conditions: str) -> ProfileStatus:
    """A status by its conditions, each written as Type="True Reason", and counts by reason."""
    turned: list[dict[str, Any]] = [
        {
            "type": kind,
            "status": told.split()[0],
            "reason": told.split()[1],
            "lastTransitionTime": "2026-11-21T09:00:00Z",
        }
        for kind, told in conditions.items()
    ]
    rows = [{"reason": r, "count": n, "example": "n1", "message": "So it is."} for r, n in (reasons or {}).items()]
    return ProfileStatus.model_validate({"conditions": turned, "reasons": rows})


CHANGES: dict[str, tuple[ProfileStatus, ProfileStatus, str]] = {
    "a new profile that is accepted": (status(), status(Accepted="True Accepted"), "Normal Accepted"),
    "a profile that is refused": (
        status(Accepted="True Accepted"),
        status(Accepted="False ImageNotAllowed"),
        "Warning ImageNotAllowed",
    ),
    "refused for another reason": (
        status(Accepted="False ImageNotAllowed"),
        status(Accepted="False ConfigMapMissing"),
        "Warning ConfigMapMissing",
    ),
    "all measured": (status(Complete="False Measuring"), status(Complete="True AllMeasured"), "Normal AllMeasured"),
    "nodes failed": (status(Degraded="False NoFailures"), status(Degraded="True NodesFailed"), "Warning NodesFailed"),
    "work begins again": (status(Complete="True AllMeasured"), status(Complete="False Measuring"), ""),
    "agents come and go": (status(Progressing="False Idle"), status(Progressing="True Measuring"), ""),
    "nothing": (status(Accepted="True Accepted"), status(Accepted="True Accepted"), ""),
    "the first node that crashes": (status(), status({"AgentCrashed": 1}), "Warning AgentCrashed"),
    "one more node that crashes": (status({"AgentCrashed": 1}), status({"AgentCrashed": 2}), ""),
    "nodes that wait": (status(), status({"Busy": 3, "Cordoned": 1, "MIGEnabled": 2}), ""),
}


@pytest.mark.parametrize(("before", "after", "told"), CHANGES.values(), ids=CHANGES)
def test_only_what_people_must_know_is_told(before: ProfileStatus, after: ProfileStatus, told: str) -> None:
    assert [f"{note.type} {note.reason}" for note in notes(before, after)] == ([told] if told else [])


def test_a_failure_is_told_with_how_many_nodes_and_one_of_them() -> None:
    (note,) = notes(status(), status({"AgentCrashed": 4}))
    assert note.message == "4 node(s), e.g. n1: So it is."


NOTE = Note("Warning", "AgentCrashed", "4 node(s), e.g. n1: So it is.")


def test_an_event_is_its_words_on_its_profile_at_any_time() -> None:
    first, later = event(profile(), NOTE, NOW), event(profile(), NOTE, NOW + MINUTE)
    assert first["metadata"] == later["metadata"]
    assert first["lastTimestamp"] != later["lastTimestamp"]
    made = [
        event(profile(), NOTE, NOW),
        event(profile(uid="another"), NOTE, NOW),
        event(profile(), Note("Warning", "AgentCrashed", "5 node(s)"), NOW),
    ]
    assert len({body["metadata"]["name"] for body in made}) == 3
    body = event(profile(), NOTE, NOW)
    assert body["metadata"]["namespace"] == body["involvedObject"]["namespace"] == "ml"
    assert (body["involvedObject"]["name"], body["involvedObject"]["uid"]) == ("nightly", "uid-nightly")


@pytest.mark.parametrize("name", ["a" * 253, "a" * 199 + "-b", "a" * 199 + ".b", "x"])
def test_an_event_can_be_written_whatever_the_length_of_name_and_message(name: str) -> None:
    body = event(profile(name), Note("Normal", "Accepted", "x" * 5000), NOW)
    part = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{part}(\.{part})*", body["metadata"]["name"])
    assert len(body["metadata"]["name"]) <= 253
    assert len(body["message"]) <= 1024
