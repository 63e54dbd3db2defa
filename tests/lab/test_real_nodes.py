"""What can be said of real nodes without starting one: what they lack, their programs, what is left."""

from __future__ import annotations

from dataclasses import fields, replace

from precision_lab.nodes.leftovers import Snapshot
from precision_lab.nodes.support import missing

NOTHING = Snapshot(*[frozenset[str]()] * len(fields(Snapshot)))


def test_without_root_the_only_sentence_says_to_be_root() -> None:
    (sentence,) = missing(user_id=1000)
    assert "as root" in sentence


def test_what_came_and_what_went_is_said_with_its_kind() -> None:
    later = replace(NOTHING, mounts=frozenset({"/a"}), interfaces=frozenset({"veth0"}))
    assert NOTHING.differences(later) == ["mounts: + /a", "interfaces: + veth0"]
    assert later.differences(NOTHING) == ["mounts: - /a", "interfaces: - veth0"]
