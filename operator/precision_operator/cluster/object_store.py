"""Objects of one kind as watches, complete lists and the answers to our own writes have shown them.

They may come in any order: of an object's versions the newest stays, and what was deleted stays deleted, so that
neither a slow watch nor an old list brings a past state back.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

Kept = TypeVar("Kept")
TOMBSTONES = 20_000
"""How many deleted objects are remembered."""


class Identity(NamedTuple):
    """What tells an object and its versions apart."""

    uid: str
    namespace: str
    version: int
    """resourceVersion; of one object's versions, the highest is the newest."""


def identity(raw: Mapping[str, Any]) -> Identity:
    """An object's identity; its UID is empty where it has none."""
    meta = raw.get("metadata") or {}
    return Identity(
        str(meta.get("uid") or ""), str(meta.get("namespace") or ""), resource_version(meta.get("resourceVersion"))
    )


def resource_version(value: object) -> int:
    """A resourceVersion as the number that it is; -1 when it is none, which is older than any.

    Since Kubernetes 1.35 they are comparable numbers by definition; etcd's revisions always were.
    """
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1


class ObjectStore(Generic[Kept]):
    """What is kept of each object, by UID. Methods that write return whether what is kept has changed."""

    def __init__(self) -> None:
        self.objects: dict[str, Kept] = {}
        self.identities: dict[str, Identity] = {}
        """Of what is held: its newest version."""
        self.deleted: OrderedDict[str, float] = OrderedDict()
        """Of objects that ended: the version up to which nothing of them is taken any more."""
        self._before: dict[str, Kept | None] | None = None
        """Of what has changed since that was last asked for, what was kept then."""

    def take_changed(self) -> Iterator[tuple[Kept | None, Kept | None]]:
        """What has changed since this was last asked, at first all: what was kept then, and is now."""
        before = dict.fromkeys(self.objects) if self._before is None else self._before
        self._before = {}
        return ((was, self.objects.get(uid)) for uid, was in before.items())

    def put(self, identity: Identity, kept: Kept) -> bool:
        """Take what is kept of an object, unless a newer version is held or its end was seen."""
        uid = identity.uid
        held = self.identities.get(uid)
        if not uid or identity.version <= self.deleted.get(uid, -math.inf):
            return False
        if held is not None and identity.version < held.version:
            return False
        self.deleted.pop(uid, None)
        self.identities[uid] = identity
        if uid in self.objects and self.objects[uid] == kept:
            return False
        self._note(uid)
        self.objects[uid] = kept
        return True

    def delete(self, uid: str, version: int | None = None) -> bool:
        """Take the end of an object, as seen at `version`; None: it is deleted for good, and UIDs don't come back.

        To a watch by label an object that loses its label has ended as well, and comes back, younger, with the label.
        """
        at = math.inf if version is None or version < 0 else version
        self.deleted[uid] = max(at, self.deleted.get(uid, at))  # our own deletion stands when a watch shows it
        while len(self.deleted) > TOMBSTONES:
            self.deleted.popitem(last=False)
        return self._remove(uid)

    def delete_unlisted(self, listed: Collection[str], version: str, namespace: str | None = None) -> bool:
        """Take what a complete list lacks as deleted: a list of `namespace` (None: of all), read at `version`.

        What is younger than the list stays: the watch was faster.
        """
        at = resource_version(version)
        gone = [
            held.uid
            for held in self.identities.values()
            if held.uid not in listed and namespace in (None, held.namespace) and held.version <= at
        ]
        changed = [self.delete(uid, at) for uid in gone]
        return any(changed)

    def clear(self, namespace: str) -> bool:
        """Hold none of this namespace any more, as while their kind is not served; they may come back."""
        gone = [held.uid for held in self.identities.values() if held.namespace == namespace]
        changed = [self._remove(uid) for uid in gone]
        return any(changed)

    def _note(self, uid: str) -> None:
        if self._before is not None:
            self._before.setdefault(uid, self.objects.get(uid))

    def _remove(self, uid: str) -> bool:
        self._note(uid)
        self.identities.pop(uid, None)
        return self.objects.pop(uid, None) is not None
