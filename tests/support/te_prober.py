"""Tries recipes where a test says, in place of a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from precision_agent.backends.te.tiers.probe import Ended
from precision_api.facts.recipes import Recipe


def _no_process(recipe: Recipe) -> Ended:
    return Ended(1, "", "")


@dataclass
class FakeProber:
    """Answers by `answer`; `alive` from the first question until it is ended."""

    answer: Callable[[Recipe], Ended] = _no_process
    alive: bool = False

    def ask(self, recipe: Recipe) -> Ended:
        self.alive = True
        return self.answer(recipe)

    def end(self) -> None:
        self.alive = False
