"""The options that commands share, spelled as kubectl spells them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from precision_operator.cli.output import FORMS, OutputFormat, read_output
from precision_operator.cli.terminal import fail
from precision_operator.core.observe.clock import duration

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace of the profiles; else that of the context.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Profiles of all namespaces.")]
Selector = Annotated[
    str | None, typer.Option("--selector", "-l", help="Only nodes with these labels, for example zone=a,tier!=test.")
]
FormOf = Annotated[
    OutputFormat, typer.Option("--output", "-o", parser=read_output, metavar=FORMS, help="Form of the output.")
]
Over = Annotated[
    str | None, typer.Option("--baseline", help="Speedups over this recipe of each run, not the profile's baseline.")
]
OfProfile = Annotated[str | None, typer.Option("--profile", help="Only this profile.")]


@dataclass(frozen=True)
class Reach:
    """How to get to the cluster: the options that stand last in every command that asks it."""

    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None
    kubeconfig: Annotated[str | None, typer.Option(help="Path of the kubeconfig.")] = None
    request_timeout: Annotated[str, typer.Option(help="How long to wait for one answer, for example 30s.")] = "30s"
    as_user: Annotated[str | None, typer.Option("--as", help="User to impersonate.")] = None
    token: Annotated[str | None, typer.Option(help="Bearer token to log in with.")] = None


def asks_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of Reach in place of its last parameter, `reach`."""
    options = inspect.signature(Reach, eval_str=True).parameters
    *others, _ = inspect.signature(command, eval_str=True).parameters.values()

    @wraps(command)
    def called(**values: Any) -> None:
        reach = Reach(**{name: values.pop(name) for name in options})
        command(**values, reach=reach)

    shown: Any = called
    shown.__signature__ = inspect.Signature([*others, *options.values()])
    return called


def seconds_of(text: str, option: str = "--request-timeout") -> float:
    """The seconds in 30s, 2m or 45; ends the command for anything else."""
    try:
        seconds = float(text) if text[-1:].isdigit() else duration(text).total_seconds()
    except (ValueError, KeyError, IndexError):
        seconds = -1.0
    if seconds == 0 and option == "--request-timeout":
        return 86_400.0  # to kubectl, 0 is no limit
    if not 0 < seconds <= 86_400:
        fail(f"{option}: {text!r} is no duration; write for example 30s or 2m")
    return seconds


def place_of(namespace: str | None, everywhere: bool, default: str) -> str | None:
    """The namespace to read; None for all of them. Ends the command where both are told."""
    if namespace is not None and everywhere:
        fail("-n and -A exclude each other: leave one of them out")
    return None if everywhere else namespace or default
