"""Work done once for the same objects: a fleet is planned for far more often than it changes.

What is seen is never changed in place: another version of an object is another object. So a value that was worked out
of objects alone holds as long as it is asked for those very objects, and forgetting it only costs time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_KEPT = 100_000
"""Two profiles with four pool labels over 10,000 nodes; then all is worked out anew, so that what is gone goes."""


class Memo(Generic[T]):
    """The newest value of each key, with the objects that it was worked out of: they stay, so their ids do too."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[Hashable, tuple[tuple[object, ...], T]] = {}

    def of(self, key: Hashable, objects: tuple[object, ...], work: Callable[[], T]) -> T:
        """What `work` gives, or gave when it was last asked for this key with the same objects."""
        found = self._kept.get(key)
        return found[1] if found is not None and _same(found[0], objects) else self.keep(key, objects, work())

    def known(self, key: Hashable, objects: tuple[object, ...]) -> T | None:
        """What is kept for this key, if it was worked out of the same objects."""
        found = self._kept.get(key)
        return found[1] if found is not None and _same(found[0], objects) else None

    def keep(self, key: Hashable, objects: tuple[object, ...], value: T) -> T:
        """Keep `value`, and give it back."""
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[key] = (objects, value)
        return value


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    """Whether these are the very same objects."""
    return len(some) == len(others) and all(map(is_, some, others))
