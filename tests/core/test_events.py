"""Few events, each once: conditions that turn and new reasons to fail, never one event a node."""

import re
from typing import Any

import pytest

from precision_api.kinds.profile import ProfileStatus
from precision_operator.core.status.events import Note, event, notes
from tests.support.golden import beside
from tests.support.world import MINUTE, NOW, profile

TABLES = beside(__file__)


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


@pytest.mark.parametrize(("before", "after", "told"), TABLES["changes"].values(), ids=TABLES["changes"])
def test_only_what_people_must_know_is_told(before: dict[str, Any], after: dict[str, Any], told: str) -> None:
    written = [f"{note.type} {note.reason}" for note in notes(status(**before), status(**after))]
    assert written == ([told] if told else [])


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
