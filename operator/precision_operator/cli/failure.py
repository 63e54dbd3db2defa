"""How a command ends when the input is wrong: one sentence on stderr that says what and where, exit code 2."""

from __future__ import annotations

from typing import NoReturn

import typer
from pydantic import ValidationError

WRONG_INPUT = 2

_SENTENCES = {
    "missing": "is required",
    "extra_forbidden": "is no field here: check the spelling (names are camelCase)",
}


def fail(message: str) -> NoReturn:
    """Ends the command with `message` on stderr and exit code 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(WRONG_INPUT)


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
