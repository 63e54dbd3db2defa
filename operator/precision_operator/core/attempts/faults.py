"""What could not be planned for, as values: one hostile object, or one mistake of ours, must cost the others nothing.

Who plans catches an exception where one profile, node, Job or report can be left out, and goes on. Who acts logs each
fault with its trace, counts it and tries again.
"""

from dataclasses import dataclass
from typing import Literal

Where = Literal["profile", "node", "job", "pod", "report", "status", "capacityplan", "pass"]
TEXT_LENGTH = 200


@dataclass(frozen=True)
class Fault:
    """One exception, and what it was that could not be planned for."""

    where: Where
    name: str
    """Of the object, with its profile's where it is one's."""
    error: Exception

    @property
    def why(self) -> str:
        """The exception in words, cut short."""
        return fault_text(self.error)


def fault_text(error: Exception) -> str:
    """An exception as users see it: its type says more than many a message."""
    return f"{type(error).__name__}: {error}"[:TEXT_LENGTH]
