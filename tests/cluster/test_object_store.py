"""The object store: in whatever order events and lists come, it ends with what the cluster has."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_operator.cluster.object_store import Identity, ObjectStore, identity, resource_version

NAMESPACES = ("blue", "red")


@dataclass(frozen=True)
class Event:
    """A change of the object `uid`, at resourceVersion `version`."""

    uid: str
    namespace: str
    version: int
    deleted: bool = False


@dataclass(frozen=True)
class Listing:
    """A complete list of a namespace (None: of all), as it was at `version`."""

    namespace: str | None
    version: int


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """What happened to a few objects; the version counts on, and who was deleted does not come back."""
    events: list[Event] = []
    gone: set[str] = set()
    for version in range(1, draw(st.integers(1, 12)) + 1):
        number = draw(st.integers(0, 3))
        uid = f"u{number}"
        if uid not in gone:
            deleted = any(event.uid == uid for event in events) and draw(st.booleans())
            events.append(Event(uid, NAMESPACES[number % 2], version, deleted))
            gone |= {uid} if deleted else set()
    return events


def state(history: list[Event], version: int) -> dict[str, Event]:
    """What there was at `version`: each object's newest event."""
    newest = {event.uid: event for event in history if event.version <= version}
    return {uid: event for uid, event in newest.items() if not event.deleted}


def deliver(store: ObjectStore[int], delivery: Event | Listing, history: list[Event]) -> bool:
    if isinstance(delivery, Event):
        return store.delete(delivery.uid, delivery.version) if delivery.deleted else put(store, delivery)
    found = [e for e in state(history, delivery.version).values() if delivery.namespace in (None, e.namespace)]
    changed = [put(store, event) for event in found]
    ended = store.delete_unlisted({event.uid for event in found}, str(delivery.version), delivery.namespace)
    return any(changed) or ended


def put(store: ObjectStore[int], event: Event) -> bool:
    return store.put(Identity(event.uid, event.namespace, event.version), event.version)


@given(history=histories(), data=st.data())
def test_events_and_lists_in_any_order_end_with_what_there_is(history: list[Event], data: st.DataObject) -> None:
    listings = data.draw(
        st.lists(st.builds(Listing, st.sampled_from((None, *NAMESPACES)), st.integers(0, 12)), max_size=4)
    )
    store: ObjectStore[int] = ObjectStore()
    for delivery in data.draw(st.permutations([*history, *listings])):
        before = dict(store.objects)
        assert deliver(store, delivery, history) is (store.objects != before)
    assert store.objects == {uid: event.version for uid, event in state(history, 99).items()}


def test_a_kind_that_is_not_served_for_a_while_comes_back_with_its_objects() -> None:
    store: ObjectStore[int] = ObjectStore()
    for event in (here := Event("u0", "blue", 5), Event("u1", "red", 6)):
        put(store, event)
    assert store.clear("blue")
    assert store.objects == {"u1": 6}
    assert not store.clear("blue")
    assert put(store, here)


@pytest.mark.parametrize("value", [None, "", "x", "-1", "²", "9" * 20])
def test_what_is_no_resource_version_is_older_than_any(value: object) -> None:
    assert resource_version(value) < resource_version("0") < resource_version("9") < resource_version("10")


def test_what_we_deleted_or_has_no_metadata_does_not_come() -> None:
    store: ObjectStore[int] = ObjectStore()
    assert not store.put(identity({}), 1)
    assert store.objects == {}
    store.put(Identity("u1", "a", 5), 5)
    store.delete("u1")
    store.delete("u1", 7)  # as a watch shows it afterwards
    assert not store.put(Identity("u1", "a", 9), 9), "an event of its end, with another version"
    assert store.objects == {}


def test_an_object_whose_label_was_taken_off_comes_back_with_the_label() -> None:
    """To a watch by label, the end of a label is the end of the object."""
    store: ObjectStore[int] = ObjectStore()
    assert store.put(Identity("u1", "a", 5), 5)
    assert store.delete("u1", 7)
    assert not store.put(Identity("u1", "a", 6), 6), "a late event of the time before"
    assert store.put(Identity("u1", "a", 9), 9)
    assert not store.put(Identity("u1", "a", 8), 8)
    assert store.objects == {"u1": 9}
