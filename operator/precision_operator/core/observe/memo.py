"""Work done once for the same objects: a fleet is planned for far more often than it changes.

What is seen is never changed in place: another version of an object is another object. So a value that was worked out
of objects alone holds as long as it is asked for those very objects, and forgetting it only costs time.
"""

from collections.abc import Callable, Hashable
from operator import is_
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The newest value of each key, with the objects that it was worked out of: they stay, so their ids do too.

    Its owner asks in rounds for all that there is. What was asked for neither in this round nor in the one before is
    forgotten: so it holds as much as there is, of however many profiles and nodes, and what is gone goes.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[tuple[object, ...], T]] = {}
        self._before: dict[Hashable, tuple[tuple[object, ...], T]] = {}
        """What was asked for in the round before."""

    def next_round(self) -> None:
        """All that there is will be asked for once more."""
        self._before, self._kept = self._kept, {}

    def of(self, key: Hashable, objects: tuple[object, ...], work: Callable[[], T]) -> T:
        """What `work` gives, or gave when it was last asked for this key with the same objects."""
        found = self.known(key, objects)
        return found if found is not None else self.keep(key, objects, work())

    def known(self, key: Hashable, objects: tuple[object, ...]) -> T | None:
        """What is kept for this key, if it was worked out of the same objects."""
        entry = self.last(key)
        if entry is None or not same(entry[0], objects):
            return None
        self._kept[key] = entry
        return entry[1]

    def last(self, key: Hashable) -> tuple[tuple[object, ...], T] | None:
        """What is kept for this key, with the objects that it was worked out of, which may be others by now."""
        return self._kept.get(key) or self._before.get(key)

    def keep(self, key: Hashable, objects: tuple[object, ...], value: T) -> T:
        """Keep `value`, and give it back."""
        self._kept[key] = (objects, value)
        return value


def same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    """Whether these are the very same objects."""
    return len(some) == len(others) and all(map(is_, some, others))
