"""The options that commands share, spelled as kubectl spells them; and how a question to the cluster is asked by them.

A command ends in one way where the cluster doesn't let its question be answered.
"""

import asyncio
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from precision_api.facts.names import API_VERSION
from precision_operator.cli.output import FORMS, OutputFormat, read_output
from precision_operator.cli.terminal import CLUSTER, INTERRUPTED, NO_CRDS, NO_RIGHT, Code, end, fail
from precision_operator.cluster import ApiError, Cluster, ConnectionProblem
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
OfProfile = Annotated[str | None, typer.Option("--profile", help="Only this profile.")]
T = TypeVar("T")
_RIGHT = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
"""How the API server's RBAC authorizer words a refusal."""


@dataclass(frozen=True)
class Reach:
    """How to get to the cluster: the options that stand last in every command that asks it."""

    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None
    kubeconfig: Annotated[str | None, typer.Option(help="Path of the kubeconfig.")] = None
    request_timeout: Annotated[str, typer.Option(help="How long to wait for one answer, for example 30s.")] = "30s"


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
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        fail(f"{option}: {text!r} is no duration; write for example 30s or 2m")
    return seconds


def place_of(namespace: str | None, everywhere: bool, default: str) -> str | None:
    """The namespace to read; None for all of them. Ends the command where both are told."""
    if namespace is not None and everywhere:
        fail("-n and -A exclude each other: leave one of them out")
    return None if everywhere else namespace or default


def ask_cluster(reach: Reach, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `work` gives for the cluster; ends the command with a sentence where the cluster doesn't let it."""
    seconds = seconds_of(reach.request_timeout)
    answers: list[T] = []  # not the task's result, of which asyncio.run makes a repr: 85 MiB for 10,000 nodes

    async def ask() -> None:
        async with Cluster.connect(reach.kubeconfig, reach.context, seconds) as cluster:
            answers.append(await work(cluster))

    try:
        asyncio.run(ask())
        return answers[0]
    except (ApiError, ConnectionProblem) as error:
        code, message = explained(error)
        end(code, message)
    except KeyboardInterrupt:
        end(INTERRUPTED, "interrupted")


def count_of(what: str) -> Callable[[int, bool], None]:
    """Shows on stderr how many of `what` are read, where that is a terminal: reading a large fleet takes a while."""

    def show(count: int, more: bool) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\rreading {what}: {count} \r" if more else "\r\033[K")
            sys.stderr.flush()

    return show


def explained(error: ApiError | ConnectionProblem) -> tuple[Code, str]:
    """What is wrong between the user and the cluster, and what to do."""
    if isinstance(error, ConnectionProblem):
        return CLUSTER, str(error)
    if error.status == 403:
        return NO_RIGHT, _right(error)
    if error.status == 404 and f"/apis/{API_VERSION}/" in error.message:
        return NO_CRDS, "this cluster has no PrecisionProfiles: install the chart, or choose another --context"
    remedies = {
        0: "Is the cluster up, and is the kubeconfig's server the right one? Try kubectl version.",
        401: "The credentials of the kubeconfig are not accepted: log in again, or choose another --context",
    }
    return CLUSTER, f"{error}. {remedies.get(error.status, 'Try again; if it repeats, look at the API server')}"


def _right(error: ApiError) -> str:
    """The right that is missing, in the words of a Role."""
    refusal = _RIGHT.search(error.message)
    if refusal is None:
        return f"{error}. Ask for this right, or name a namespace of yours with -n; kubectl auth can-i --list shows all"
    what = refusal["resource"] + (f".{refusal['group']}" if refusal["group"] else "")
    namespace = refusal["namespace"]
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    other = "" if namespace else ", or name a namespace of yours with -n"
    check = f"kubectl auth can-i {refusal['verb']} {what} {f'-n {namespace}' if namespace else '-A'}"
    return f"you may not {refusal['verb']} {what} {where}. Ask for this right{other}; to check: {check}"
