"""One question to the cluster, and how a command ends where the cluster doesn't let it be answered."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from shutil import which
from typing import TypeVar

from precision_api.facts.names import API_VERSION
from precision_operator.cli.kubectl import through_kubectl
from precision_operator.cli.options import Reach, seconds_of
from precision_operator.cli.terminal import CLUSTER, INTERRUPTED, NO_CRDS, NO_PROGRAM, NO_RIGHT, Code, end
from precision_operator.cluster import ApiError, Cluster, ConnectionProblem

T = TypeVar("T")
_RIGHT = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
"""How the API server's RBAC authorizer words a refusal."""


def ask_cluster(reach: Reach, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `work` gives for the cluster; ends the command with a sentence where the cluster doesn't let it."""
    seconds = seconds_of(reach.request_timeout)
    if which("kubectl") is None:
        end(NO_PROGRAM, "kubectl is not on the PATH: install it, since the plugin asks the cluster through it")
    answers: list[T] = []  # not the task's result, of which asyncio.run makes a repr: 85 MiB for 10,000 nodes

    async def ask(cluster: Cluster) -> None:
        answers.append(await work(cluster))

    try:
        with through_kubectl(reach, seconds) as cluster:
            asyncio.run(ask(cluster))
        return answers[0]
    except (ApiError, ConnectionProblem) as error:
        code, message = explained(error)
        end(code, message)
    except KeyboardInterrupt:
        end(INTERRUPTED, "interrupted")


async def or_if_forbidden(reading: Awaitable[T], instead: T) -> T:
    """What was read, or `instead` of what the user may not read."""
    try:
        return await reading
    except ApiError as error:
        if error.status != 403:
            raise
        return instead


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
