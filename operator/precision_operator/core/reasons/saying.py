"""What a check says: a reason and its facts. Words are made of it only where somebody is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from precision_operator.core.reasons.row import Kind
from precision_operator.core.reasons.table import REASONS, clause, sentence

Facts = Mapping[str, object]
"""What the sentence of a reason needs, by name."""


@dataclass(unsafe_hash=True)
class Said:
    """A reason, with the facts that its sentence needs; never changed (frozen, a new one takes four times as long)."""

    reason: str
    facts: Facts = field(default_factory=dict)
    words: str | None = None
    """The message as it was written before, of which no facts are left; None: it follows from the facts."""

    @property
    def kind(self) -> Kind:
        return REASONS[self.reason].kind

    @cached_property
    def message(self) -> str:
        """What is so, and what to do next, in words. KeyError when a fact is missing."""
        return sentence(self.reason, **self.facts) if self.words is None else self.words

    @property
    def clause(self) -> str:
        """What is so, as a part of another sentence."""
        return clause(self.reason, **self.facts)


class Reasoned:
    """Something for which a reason is told."""

    __slots__ = ()
    said: Said

    @property
    def reason(self) -> str:
        return self.said.reason

    @property
    def message(self) -> str:
        """The reason in words, with what to do next."""
        return self.said.message


def said(reason: str, **facts: object) -> Said:
    return Said(reason, facts)
