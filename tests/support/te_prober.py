"""Tries recipes where a test says, in place of a process of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from precision_agent.backends.te.tiers.probe import Ended
from precision_api.facts.recipes import Recipe


@dataclass
class FakeProber:
    """Answers by `answer`; `alive` from the first question until it is ended."""

    answer: Callable[[Recipe], Ended] = lambda recipe: Ended(1, "", "")
    alive: bool = False

    def ask(self, recipe: Recipe) -> Ended:
        self.alive = True
        return self.answer(recipe)

    def end(self) -> None:
        self.alive = False
