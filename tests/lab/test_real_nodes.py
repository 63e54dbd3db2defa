"""What can be said of real nodes without starting one: what they lack, their programs, what is left."""

from dataclasses import fields, replace

from precision_lab.nodes.leftovers import Snapshot
from precision_lab.nodes.support import missing

NOTHING = Snapshot(*[frozenset[str]()] * len(fields(Snapshot)))


def test_without_root_it_is_said_and_what_came_and_went_with_its_kind() -> None:
    (sentence,) = missing(user_id=1000)
    assert "as root" in sentence
    later = replace(NOTHING, mounts=frozenset({"/a"}), interfaces=frozenset({"veth0"}))
    assert NOTHING.differences(later) == ["mounts: + /a", "interfaces: + veth0"]
    assert later.differences(NOTHING) == ["mounts: - /a", "interfaces: - veth0"]
