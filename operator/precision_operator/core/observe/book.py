"""What was worked out of what is seen, handed from one plan to the next: most of a fleet stays as it is.

What is seen is never changed in place: another version of an object is another object. So a value that was worked out
of objects alone holds as long as it is asked for those very objects, and an empty book only costs time.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import compress
from operator import is_, is_not
from types import MappingProxyType
from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
Kept = Mapping[Hashable, tuple[tuple[object, ...], Any]]
"""Values by key, each with the objects that it was worked out of: they stay, so their ids do too."""
EMPTY: Kept = MappingProxyType({})


class Book:
    """What one plan takes over, and what it leaves: all that it asked for, so that what is gone goes."""

    def __init__(self, before: Kept = EMPTY) -> None:
        self._before = before
        self._kept: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    @property
    def kept(self) -> Kept:
        """What the next plan may take over."""
        return MappingProxyType(self._kept)

    def of(self, key: Hashable, objects: tuple[object, ...], work: Callable[[], T]) -> T:
        """What `work` gives, or gave when it was last asked for this key with the same objects."""
        entry = self.last(key)
        return self.keep(key, objects, entry[1] if entry is not None and same(entry[0], objects) else work())

    def last(self, key: Hashable) -> tuple[tuple[Any, ...], Any] | None:
        """What is kept for this key, with the objects that it was worked out of, which may be others by now."""
        return self._kept.get(key) or self._before.get(key)

    def keep(self, key: Hashable, objects: tuple[object, ...], value: T) -> T:
        """Keep `value`, and give it back."""
        self._kept[key] = (objects, value)
        return value

    def of_each(self, key: Hashable, values: Mapping[K, V], work: Callable[[V], T | None]) -> list[T]:
        """What `work` gives of the values, in their order, but None; it is asked for those that are other objects."""
        (before,), results = self.last(key) or (({},), {})
        changed = differing(before, values)
        new = {k: work(values[k]) for k in changed if k in values}
        results = {k: it for k, it in results.items() if k in values and k not in new}
        results |= {k: it for k, it in new.items() if it is not None}
        self.keep(key, (values,), results)
        return [results[k] for k in values if k in results] if results else []

    def as_before(self, key: Hashable, value: T) -> T:
        """The value that is kept for this key where it equals this one; else this one, which is kept from now on."""
        entry = self.last(key)
        return self.keep(key, (), entry[1] if entry is not None and entry[1] == value else value)


def same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether these are the very same objects."""
    return some is others or (len(some) == len(others) and all(map(is_, some, others)))


def differing(before: Mapping[K, object], now: Mapping[K, object]) -> list[K]:
    """The keys of which the two do not hold the very same object."""
    if before is now:
        return []
    if [*before] == [*now]:
        return [*compress(now, map(is_not, before.values(), now.values()))]
    return [key for key in {**before, **now} if key not in before or before[key] is not now.get(key)]
