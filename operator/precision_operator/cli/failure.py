"""How a command ends when it has no answer: what and where in one sentence on stderr, and a code of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import typer
from pydantic import ValidationError

from precision_operator.cli.codes import WRONG_INPUT, Code

_SENTENCES = {
    "missing": "is required",
    "extra_forbidden": "is no field here: check the spelling (names are camelCase)",
}


def fail(message: str) -> NoReturn:
    """Ends the command with `message` on stderr and exit code 2: the input is wrong."""
    end(WRONG_INPUT, message)


def end(code: Code, message: str) -> NoReturn:
    """Ends the command with `message` on stderr and that exit code."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code.number)


def note(message: str) -> None:
    """Says on stderr what an answer is without."""
    typer.echo(f"note: {message}", err=True)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`; did you mean a or b?` for a name that does not exist; empty where nothing is near."""
    from precision_operator.core.why import nearest  # only here: most commands end well

    near = nearest(name, list(dict.fromkeys(known)))
    return f"; did you mean {' or '.join(near)}?" if near else ""


def sentences(error: ValidationError, root: str = "") -> str:
    """What `error` says, a line for each problem, with the path of the field below `root`."""
    lines = []
    for detail in error.errors():
        where = ".".join(str(part) for part in ((root,) if root else ()) + detail["loc"])
        what = _SENTENCES.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
        given = f", not {detail['input']!r:.60}" if isinstance(detail["input"], bool | int | float | str) else ""
        if detail["type"] in _SENTENCES:
            lines.append(f"{where} {what}")
        elif detail["type"] == "value_error":
            lines.append(what)
        else:
            lines.append(f"{where}: {what[:1].lower()}{what[1:]}{given}")
    return "\n".join(lines)
