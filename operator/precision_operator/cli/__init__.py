"""The kubectl plugin: `kubectl precision COMMAND`, or kubectl-precision by itself.

A command is one row of COMMANDS; its module is imported only when it is asked for, so that none pays for what another
one needs. Data goes to stdout, everything else to stderr; exit code 2 means that the input was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS: Mapping[str, str] = {
    "dry-run": "precision_operator.cli.dry_run:dry_run",
    "rerun": "precision_operator.cli.rerun:rerun",
    "shapes": "precision_operator.cli.shapes:shapes",
    "why": "precision_operator.cli.why:why_node",
}
"""Name of the command -> module:function."""


class _LazyCommands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """The names of COMMANDS, in its order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command `cmd_name`, imported now; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, function = COMMANDS[cmd_name].split(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(cmd_name)(getattr(import_module(module), function))
        return typer.main.get_command(alone)


app = typer.Typer(
    cls=_LazyCommands,
    name="kubectl-precision",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _precision() -> None:
    """Low-precision training profiles of GPU nodes."""


def main() -> None:
    """Entry point of the kubectl-precision program."""
    app(prog_name="kubectl-precision")
