"""What a command prints, and how it ends: data on stdout; everything else on stderr, and a code where it has no answer.

One table of exit codes, stable, for scripts; those of the agent's program end with its own too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

import typer
from pydantic import BaseModel, ValidationError

from precision_api.facts.json_text import rows_of
from precision_api.facts.plain_text import plain
from precision_operator.cli.allowed import BRANCHES, FORMS, SPELLED, in_words


@dataclass(frozen=True)
class Code:
    """One way to end. `meaning` stands in the docs."""

    number: int
    name: str
    meaning: str


DONE = Code(0, "Done", "The answer is on stdout; notes on stderr say what could not be checked.")
CLUSTER = Code(1, "Cluster", "The API server can't be reached, refuses the credentials, or has a problem of its own.")
WRONG_INPUT = Code(
    2, "WrongInput", "An option, a file or a name is wrong: no such profile, node or pool; the nearest ones are named."
)
NO_RIGHT = Code(3, "NoRight", "A right is missing; the message, or doctor's line, names verb, resource and namespace.")
NO_CRDS = Code(4, "NoCRDs", "The cluster has no PrecisionProfiles: the chart is not installed there.")
NO_ANSWER = Code(
    5, "NoAnswer", "There is no result yet, the two sides of a comparison can't be compared, or a plan's limits clash."
)
NO_PROGRAM = Code(6, "NoProgram", "What this command needs is not installed; the message says how to install it.")
SLOWER = Code(7, "Slower", "compare --fail-if-slower: B is slower than A beyond noise.")
NOT_KNOWN = Code(
    8,
    "NotKnown",
    "plan: its time or its tries ran out. Whether there is a plan is not known; the message says what to do.",
)
WRONG = Code(9, "Wrong", "doctor: something is wrong; its line says how to fix it.")
INTERRUPTED = Code(130, "Interrupted", "Ctrl-C, for example to end --watch.")

CODES = (DONE, CLUSTER, WRONG_INPUT, NO_RIGHT, NO_CRDS, NO_ANSWER, NO_PROGRAM, SLOWER, NOT_KNOWN, WRONG, INTERRUPTED)


def say(text: str, err: bool = False) -> None:
    """Prints `text`, whoever wrote what stands in it: only printable characters, tabs and line ends reach the
    terminal."""
    typer.echo("\t".join(map(plain, text.split("\t"))), err=err)


NEAR_TOLD = 3
FEW = 5
"""Names that are told where none is near: more would hide the sentence."""
_SENTENCES = {"missing": "is required", "extra_forbidden": "is no field here: check the spelling (names are camelCase)"}


def fail(message: str) -> NoReturn:
    """Ends the command with `message` on stderr and exit code 2: the input is wrong."""
    end(WRONG_INPUT, message)


def end(code: Code, message: str) -> NoReturn:
    """Ends the command with `message` on stderr and that exit code."""
    say(f"error: {message}", err=True)
    raise typer.Exit(code.number)


def note(*messages: str) -> None:
    """Says on stderr what an answer is without."""
    for message in messages:
        say(f"note: {message}", err=True)


def did_you_mean(name: str, names: Sequence[str], see: str = "") -> str:
    """How a sentence about a name that does not exist goes on: `; did you mean a or b? See kubectl get pp -A`.

    Names that have the given one in them come first (GB200 for NVIDIA-GB200), then those that are spelt alike. Where
    nothing is near, a few names are all told. `see` is a sentence of its own, where there is more to say.
    """
    every = [candidate for candidate in dict.fromkeys(names) if candidate]
    within = [candidate for candidate in every if name and name.lower() in candidate.lower()]
    near = list(dict.fromkeys([*within, *get_close_matches(name, every)]))[:NEAR_TOLD]
    if near:
        return f"; did you mean {' or '.join(near)}?{see and f' {see}'}"
    there = f" (there is {', '.join(every)})" if 0 < len(every) <= FEW else ""
    return f"{there}{see and f'. {see}'}"


def no_profile(name: str, names: Sequence[str], place: str | None) -> NoReturn:
    """Ends the command: no profile of the namespace (None: of any) is called so."""
    where = f" in namespace {place}" if place else ""
    fail(f"there is no profile {name}{where}{did_you_mean(name, names, 'See kubectl get pp -A')}")


def sentences(error: ValueError, root: str = "", model: type[BaseModel] | None = None) -> str:
    """What `error` says; of a model's fields a line for each problem, with the path of the field below `root`.

    Where the `model` has words for how a field is written, they stand in place of a pattern.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for detail in rows_of(error, values=True):
        path = tuple(part for part in detail["loc"] if part not in BRANCHES)
        where = ".".join(str(part) for part in ((root,) if root else ()) + path)
        what = _SENTENCES.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
        if detail["type"] in SPELLED or path != detail["loc"]:
            what = (in_words(model, path) if model is not None else "") or what
        else:
            what = FORMS.get(detail["type"], what)
        got = f", not {detail['input']!r:.60}" if isinstance(detail["input"], bool | int | float | str) else ""
        if detail["type"] in _SENTENCES:
            lines.append(f"{where} {what}")
        elif detail["type"] == "value_error":
            of_several_fields = isinstance(detail["input"], Mapping)
            lines.append(f"{where}: {what}" if of_several_fields else what)
        else:
            near = did_you_mean(str(detail["input"]), re.findall(r"'([^']+)'", what)) if got else ""
            nearest_first = f"there is no {detail['input']!r:.60}{near} {what}"
            lines.append(f"{where}: {nearest_first if near.startswith(';') else what[:1].lower() + what[1:] + got}")
    return "\n".join(dict.fromkeys(lines))
