"""What kubectl asks of a plugin when its user presses Tab: `kubectl_complete-precision WORDS...`.

Answers as Cobra does: one candidate a line, with its help after a tab, and a last line `:4` (no file names), `:0`
(file names too) or `:2` (the same, and no space after a word that goes on). Names come from the cluster, which gets two
seconds; what can't be had is left out in silence, since nobody reads an error while typing.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import typer

from precision_operator.cli import COMMANDS, app
from precision_operator.cli.object_ref import KINDS, SHORT
from precision_operator.cli.output import OutputFormat

SECONDS = 2.0
NO_FILES, FILES, GOES_ON = ":4", ":0", ":2"
_TAKES_FILES = ("--filename", "-f", "--nodes", "--kubeconfig", "--hf-config", "--config-map")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "status": ("profile",),
    "nodes": ("profile",),
    "why": ("node",),
    "rerun": ("profile", "node"),
    "report": ("profile", "node"),
    "compare": ("profile", "node", "pool", "driver", "run"),
}
"""What the arguments of a command name."""
_BARE = ("profile", "node")
"""Kinds whose names are offered as they are; those of others once their kind and a slash are typed."""
_TAKE_KINDS = ("rerun", "report", "compare")
"""Commands that take kind/NAME too."""
_OPTION_NAMES: Mapping[str, str] = {"--profile": "profile", "--namespace": "namespace", "-n": "namespace"}
Names = Callable[[str, Mapping[str, str]], Sequence[str]]
"""From a kind and the options that are already typed to the names of that kind."""


def main() -> None:
    """Entry point of the kubectl_complete-precision program."""
    sys.stdout.write("\n".join(answers(sys.argv[1:], names_in_cluster)) + "\n")


def answers(typed: Sequence[str], names: Names) -> list[str]:
    """The lines for what has been typed so far; the last word may be empty."""
    *before, current = list(typed) or [""]
    command = next((word for word in before if not word.startswith("-")), None)
    if command is None:
        candidates = [f"{name}\t{summary}" for name, (_, summary) in COMMANDS.items() if name.startswith(current)]
        return [*candidates, NO_FILES]
    if command not in COMMANDS:
        return [NO_FILES]
    options = {key: value for key, value in pairwise(before) if key.startswith("-")}
    previous = before[-1] if before else ""
    if previous in _TAKES_FILES or (command in ("report", "support-bundle") and previous in ("-o", "--output")):
        return [FILES]
    if previous in ("-o", "--output"):
        return [*_starting(list(OutputFormat), current), NO_FILES]
    if previous in _OPTION_NAMES:
        return [*_starting(names(_OPTION_NAMES[previous], options), current), NO_FILES]
    if current.startswith("-"):
        return [*(f"{flag}\t{text}" for flag, text in _options(command) if flag.startswith(current)), NO_FILES]
    candidates = _starting(list(_arguments(command, current, names, options)), current)
    goes_on = any(candidate.endswith("/") for candidate in candidates)
    return [*candidates, GOES_ON if goes_on else FILES if command in ("report", "compare") else NO_FILES]


def _arguments(command: str, current: str, names: Names, options: Mapping[str, str]) -> Iterator[str]:
    kinds = _NAMES.get(command, ())
    before, slash, _ = current.partition("/")
    if slash and command in _TAKE_KINDS:
        kind = KINDS.get(before.lower(), "")
        yield from (f"{before}/{name}" for name in (names(kind, options) if kind in kinds else ()))
        return
    for kind in kinds:
        yield from names(kind, options) if kind in _BARE else (f"{SHORT[kind]}/",)


def _starting(words: Sequence[str], current: str) -> list[str]:
    return [name for name in words if name.startswith(current)]


def _options(name: str) -> Iterator[tuple[str, str]]:
    group: Any = typer.main.get_command(app)
    for parameter in getattr(group.get_command(None, name), "params", ()):
        for flag in getattr(parameter, "opts", ()):
            if flag.startswith("--"):
                yield flag, (getattr(parameter, "help", "") or "").split(".")[0]


def names_in_cluster(kind: str, options: Mapping[str, str], seconds: float = SECONDS) -> Sequence[str]:
    """The names that the cluster has; none where it doesn't answer in time."""
    from precision_operator.cli.kubectl import through_kubectl
    from precision_operator.cli.options import Reach
    from precision_operator.cluster import ApiError, ConnectionProblem

    context, kubeconfig, as_user, token = map(options.get, ("--context", "--kubeconfig", "--as", "--token"))
    try:
        with through_kubectl(Reach(context, kubeconfig, as_user=as_user, token=token), seconds) as cluster:
            return asyncio.run(asyncio.wait_for(_names(cluster, kind, options), seconds))
    except (ApiError, ConnectionProblem, TimeoutError):
        return ()


async def _names(cluster: Any, kind: str, options: Mapping[str, str]) -> Sequence[str]:
    from precision_operator.cluster import paths

    namespace = options.get("-n") or options.get("--namespace") or cluster.namespace
    if kind in ("pool", "driver", "run"):
        return await _in_reports(cluster, namespace, kind, options.get("--profile"))
    namespaces = paths.collection("v1", "namespaces")
    path = {"profile": paths.profiles(namespace), "node": paths.NODES, "namespace": namespaces}[kind]
    return [*await cluster.list_views(path, lambda raw: str(raw["metadata"]["name"]))]


async def _in_reports(cluster: Any, namespace: str, kind: str, profile: str | None) -> Sequence[str]:
    """Pools, drivers or runs that reports tell of, those of older runs too; of one profile where it is named."""
    from precision_api.facts.names import LABEL_MANAGED_BY, MANAGED_BY
    from precision_operator.cli.operands import names_of
    from precision_operator.cluster import paths
    from precision_operator.core.observe.views import report_view

    reports = await cluster.list_views(paths.reports(namespace), report_view, f"{LABEL_MANAGED_BY}={MANAGED_BY}")
    return names_of([report for report in reports if profile in (None, report.profile)], ())[kind]
