"""The kubectl plugin: `kubectl precision COMMAND`, or kubectl-precision by itself.

A command is one row of COMMANDS; its module is imported only when it is asked for, so that none pays for what another
one needs. Data goes to stdout, everything else to stderr; how a command ends is a table of its own.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from precision_operator.cli.examples import epilog

_IN = "precision_operator.cli.commands"
COMMANDS: Mapping[str, tuple[str, str]] = {
    "doctor": (f"{_IN}.doctor:doctor", "Check the installation, and say what to do next"),
    "status": (f"{_IN}.status:status", "Show the progress of profiles; of one, each pool's recipes"),
    "nodes": (f"{_IN}.nodes:nodes", "List nodes: best recipe, comparison with their peers"),
    "why": (f"{_IN}.why:why_node", "Explain the state of a node, and what to do next"),
    "compare": (f"{_IN}.compare:compare_sides", "Compare drivers, pools, runs or nodes, with intervals"),
    "reference": (f"{_IN}.reference:reference", "Save, show or list what verdicts on nodes are taken against"),
    "acceptance": (f"{_IN}.acceptance:acceptance", "Count nodes by their verdict: what it opens and closes"),
    "report": (f"{_IN}.report:report", "Write a page with all figures, for a browser"),
    "rerun": (f"{_IN}.rerun:rerun", "Measure a profile or a node again; release from quarantine"),
    "dry-run": (f"{_IN}.dry_run:dry_run", "Show what a profile would do to each node now"),
    "shapes": (f"{_IN}.shapes:shapes", "List the GEMMs of a training step of a model"),
    "plan": (f"{_IN}.plan:plan_jobs", "Answer a CapacityPlan: pool, recipe, GPUs, days, cost"),
    "fleet": (f"{_IN}.fleet:fleet", "Show or save the measured rates that plans are made from"),
    "support-bundle": (f"{_IN}.support_bundle:support_bundle", "Collect what an issue needs into one archive"),
    "run": (f"{_IN}.local:run", "Measure this machine, without a cluster (--local)"),
    "explain": (f"{_IN}.local:explain", "Say where each figure of a saved result comes from"),
    "verify-trace": (f"{_IN}.local:verify_trace", "Find out in which precision a training job ran"),
}
"""Name of the command -> module:function, and its line in the list of commands, which must fit 80 columns."""
SOLVER = ("numpy", "ortools")
"""What `plan` alone imports: the packages of the extra [plan] of kubectl-precision."""
_HELP = {"help_option_names": ["-h", "--help"]}
_FLAGS = ("-A", "--all-namespaces")
_WITH_VALUE = "-n --namespace --context --kubeconfig --request-timeout --as --token -l --selector -o --output"


def command_first(arguments: list[str]) -> list[str]:
    """`arguments` with options of kubectl that stand before the command moved behind it, as kubectl takes them."""
    before: list[str] = []
    rest = list(arguments)
    while rest:
        if rest[0] in _FLAGS or (rest[0].partition("=")[0] in _WITH_VALUE.split() and "=" in rest[0]):
            before.append(rest.pop(0))
        elif rest[0] in _WITH_VALUE.split() and len(rest) > 1:
            before += [rest.pop(0), rest.pop(0)]
        else:
            break
    return [*rest[:1], *before, *rest[1:]]


_COMMAND = "precision_operator.cli.command"
_UsageError: Any = typer.BadParameter.__base__
"""What typer raises for every wrong command line; it lies where the version of typer wants it to."""


@contextmanager
def _told_as_errors(group: Any) -> Iterator[None]:
    """A wrong command line ends the command as other wrong input does: one line, and code 2."""
    try:
        yield
    except _UsageError as error:
        from precision_operator.cli.terminal import fail  # only here: most command lines are right

        words = error.format_message().replace("Value error, ", "").rstrip(".")
        command = f"kubectl precision {group.meta.get(_COMMAND, '')}".rstrip()
        fail(f"{words[:1].lower()}{words[1:]}. See {command} --help")


class _LazyCommands(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As click's, with the command first."""
        if not args:  # which shows the help
            return super().parse_args(ctx, args)
        with _told_as_errors(ctx):
            return super().parse_args(ctx, command_first(args))

    def invoke(self, ctx: Any) -> Any:
        """As click's; the options of the command are read in it."""
        with _told_as_errors(ctx):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As click's; the command's name is kept for its errors."""
        ctx.meta[_COMMAND] = args[0]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of COMMANDS, in its order."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command `cmd_name`, imported now; None if there is none."""
        if cmd_name not in COMMANDS:
            if ctx is None or ctx.resilient_parsing or cmd_name.startswith("-"):
                return None
            from precision_operator.cli.terminal import did_you_mean, fail  # only here: most names are right

            see = "See kubectl precision --help"
            fail(f"there is no command {cmd_name}{did_you_mean(cmd_name, list(COMMANDS), see)}")
        if cmd_name == "plan" and not all(map(find_spec, SOLVER)):
            if ctx is None:
                return None
            from precision_operator.cli.terminal import NO_PROGRAM, end

            end(NO_PROGRAM, "plan needs a solver, which is not installed: pip install 'kubectl-precision[plan]'")
        module_name, function = COMMANDS[cmd_name][0].split(":")
        module = import_module(module_name)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        settings = _HELP | getattr(module, "CONTEXT_SETTINGS", {})
        alone.command(cmd_name, context_settings=settings, epilog=epilog(cmd_name))(getattr(module, function))
        return typer.main.get_command(alone)


app = typer.Typer(
    cls=_LazyCommands,
    name="kubectl-precision",
    add_completion=False,
    no_args_is_help=True,
    context_settings=_HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def plugin_version() -> str:
    """Of the wheel that has the plugin alone, else of the checkout's."""
    try:
        return metadata.version("kubectl-precision")
    except metadata.PackageNotFoundError:
        return metadata.version("precision-profiler")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kubectl-precision {plugin_version()}")
        raise typer.Exit()


@app.callback()
def _precision(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Low-precision training profiles of GPU nodes."""


def main() -> None:
    """Entry point of the kubectl-precision program."""
    gc.set_threshold(50_000)  # what is imported stays: looking for garbage in it takes a twentieth of a command
    app(prog_name="kubectl-precision")
