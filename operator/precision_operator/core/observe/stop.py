"""An admin's stop: no agent of the whole fleet may begin (Hold), or none may go on either (End), and why.

It is declared with the chart, or said during an incident in a ConfigMap of the operator's namespace that Helm does not
own, so that no upgrade takes it back. Of several the strictest holds. One that can't be understood holds: measurements
in flight are worth something, and who meant to stop must not be taken to have meant nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from precision_api.facts import names
from precision_api.kinds.profile import Condition
from precision_operator.core.reasons import Said, said

Mode = Literal["Run", "Hold", "End"]
MODES: tuple[Mode, ...] = ("Run", "Hold", "End")
"""From the least strict to the strictest."""
REASON = "StoppedByAdmin"
KEY = "agents"
MESSAGE_KEY = "message"
NO_WORDS = "no reason is given"
WORDS_LENGTH = 256


@dataclass(frozen=True)
class Stop:
    """What holds for all agents."""

    mode: Literal["Hold", "End"]
    words: str
    """The admin's own, or what is wrong with the switch."""
    origin: str
    """Where it is said: who lifts it changes that."""
    garbled: bool = False
    """Whether the switch could not be understood."""

    @property
    def does(self) -> str:
        """What it does to agents, as part of a sentence."""
        return "has ended all agents" if self.mode == "End" else "holds all agents"


def stop_of(mode: str, words: str, origin: str) -> Stop | None:
    """The stop that a switch says; None where agents may run."""
    mode_name = next((name for name in MODES if name.lower() == mode.strip().lower()), None)
    if mode_name == "Run":
        return None
    if mode_name is None:
        problem = f"{KEY} is {mode.strip()[:40]!r}, which is none of {', '.join(MODES)}: taken as Hold"
        return Stop("Hold", f"{problem}. {words}".strip()[:WORDS_LENGTH], origin, garbled=True)
    return Stop(mode_name, words.strip()[:WORDS_LENGTH] or NO_WORDS, origin)


def stop_in(data: Mapping[str, str] | None, origin: str) -> Stop | None:
    """The stop that a ConfigMap's data says; None where there is no such ConfigMap, or agents may run."""
    if data is None:
        return None
    return stop_of(data.get(KEY, ""), data.get(MESSAGE_KEY, ""), origin)


def unreadable(why: str, origin: str) -> Stop:
    """The stop that holds as long as nobody knows what the switch says."""
    return Stop("Hold", f"the switch can't be read: {why}"[:WORDS_LENGTH], origin, garbled=True)


def strictest(*stops: Stop | None) -> Stop | None:
    return max((stop for stop in stops if stop is not None), key=lambda stop: MODES.index(stop.mode), default=None)


def stop_told_by(conditions: Sequence[Condition]) -> Stop | None:
    """The stop that a profile's status tells of: its readers need no right to read the switch."""
    state = next((row for row in conditions if row.type == names.STOPPED and row.status == "True"), None)
    if state is None or state.reason not in ("Hold", "End"):
        return None
    words, _, origin = state.message.partition(" (said in ")
    return Stop("End" if state.reason == "End" else "Hold", words, origin.removesuffix(")") or "the operator's switch")


def stopped(stop: Stop) -> Said:
    """Why no agent starts."""
    return said(REASON, does=stop.does, words=stop.words, origin=stop.origin)


def stop_message(stop: Stop) -> str:
    """The message of the condition: the admin's words, and where they stand."""
    return f"{stop.words} (said in {stop.origin})"
