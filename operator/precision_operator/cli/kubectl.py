"""The user's own kubectl as the way to the API server: `kubectl proxy` on a socket that only this user can open.

So the plugin logs in however kubectl does. The proxy passes answers on as they are: status, redirects, length; our
client follows no redirect, and reads no more than was asked for.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from subprocess import PIPE, STDOUT, Popen
from tempfile import gettempdirb, mkdtemp
from threading import Thread, Timer
from typing import IO

from precision_operator.cli.options import Reach
from precision_operator.cli.terminal import say
from precision_operator.cluster import ApiError, Cluster, ConnectionProblem
from precision_operator.cluster.client import Answer

_SERVE = """\
trap : INT HUP QUIT TERM
tty=/dev/tty; (: <$tty) 2>/dev/null || tty=/dev/null
{ kubectl config view --minify -o 'jsonpath={.contexts[0].context.namespace} {.clusters[0].cluster.server} '\
'{range .users[*]}{.user.as}{end}' \
    "$@" 2>/dev/null
  echo; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace 2>/dev/null; echo
  exec kubectl proxy --append-server-path --unix-socket="$0/api" "$@"; } <$tty &
exec >/dev/null 2>&1
end() { for child in $(pgrep -P $1 || cat /proc/$1/task/$1/children); do end $child; done; kill $1; }
read _; end $!; wait; rm -r "$0"
"""
"""Serves until its input ends, however the plugin ends. kubectl may ask at the terminal: it has no group of its own."""


class KubectlCluster(Cluster):
    """Requests to the proxy that listens at `address`, and impersonates `user`; empty: nobody."""

    def __init__(self, address: str, namespace: str, server: str, deadline_seconds: float, user: str) -> None:
        super().__init__(namespace, server, deadline_seconds)
        self._address, self._user = address, user

    @asynccontextmanager
    async def _exchange(
        self, method: str, target: str, headers: dict[str, str], body: object, silent_seconds: float | None
    ) -> AsyncIterator[Answer]:
        if self._user and "Impersonate-User" in headers:  # the proxy would impersonate that one alone, by other rights
            raise ApiError(403, "Forbidden", f"{self._user} is impersonated, and can't impersonate others")
        connection = HTTPConnection("localhost")
        connection.sock = line = socket.socket(socket.AF_UNIX)
        data = None if body is None else json.dumps(body).encode()

        def ask() -> HTTPResponse:
            line.connect(self._address)
            connection.putrequest(method, target, skip_accept_encoding=True)  # else nothing would be compressed
            for header in {**headers, "Content-Length": str(len(data or b""))}.items():
                connection.putheader(*header)
            connection.endheaders(data)
            return connection.getresponse()

        try:
            async with asyncio.timeout(silent_seconds or self._deadline_seconds):
                response = await asyncio.to_thread(ask)
                received = response.headers
                answer = Answer(response.status, response.reason, received.get, _pieces(response))
                if answer.status == 500 and received.get_content_type() == "text/plain" and "Audit-Id" not in received:
                    words = await anext(answer.body, b"")  # those of kubectl, whom the API server did not answer
                    raise ConnectionError(words.decode(errors="replace").strip())
                yield answer
        except HTTPException as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        finally:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)  # or a thread would wait for what doesn't come any more
            connection.close()


async def _pieces(response: HTTPResponse) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(response.read, 1 << 20):
        yield piece
    if response.length:
        raise ConnectionError(f"the answer breaks off {response.length:,} bytes before its end")


@contextmanager
def through_kubectl(reach: Reach, deadline_seconds: float) -> Iterator[Cluster]:
    """The cluster that kubectl asks with the same options. Raises ConnectionProblem where kubectl doesn't start."""
    flags = {"context": reach.context, "kubeconfig": reach.kubeconfig, "as": reach.as_user, "token": reach.token}
    flags["request-timeout"] = f"{deadline_seconds:g}s"
    options = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    is_shared = 0 < os.stat(gettempdirb()).st_mode & 0o1022 < 0o1000  # there another user may replace our folder
    folder = mkdtemp(prefix="precision-", dir="/tmp" if is_shared or len(gettempdirb()) > 80 else None)
    serving = Popen(["sh", "-c", _SERVE, folder, *options], stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    lifeline, out, said = serving.stdin, serving.stdout, list[bytes]()
    assert lifeline is not None
    assert out is not None
    relay = Thread(target=_relay, args=(out,), daemon=True)
    limit = Timer(deadline_seconds, lifeline.close)
    try:
        limit.start()
        of_context, of_pod = (out.readline().decode().strip("\n") for _ in range(2))
        namespace, server, user = f"{of_context}  ".split(" ", 2)
        while not (line := out.readline()).startswith(b"Starting to serve"):
            if not line:
                words = b"".join(said).decode(errors="replace").strip().removeprefix("error: ")
                raise ConnectionProblem(words or f"no kubectl proxy in {deadline_seconds:g} s. Try kubectl version.")
            said.append(line)
        limit.cancel()
        relay.start()
        address, user = f"{folder}/api", reach.as_user or user.strip()
        yield KubectlCluster(address, namespace or of_pod or "default", server, deadline_seconds, user)
    finally:
        limit.cancel()
        lifeline.close()
        serving.wait()
        if relay.is_alive():
            relay.join(1.0)  # a login helper may outlive kubectl


def _relay(lines: IO[bytes]) -> None:
    """Shows what kubectl and its login helpers say, but not what kubectl logs: the answer says that too."""
    with lines:
        for line in lines:
            if not (line[:1] in b"IWEF" and line[1:5].isdigit()):
                say(line.decode(errors="replace").rstrip(), err=True)
