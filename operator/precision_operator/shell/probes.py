"""What the kubelet and Prometheus ask the operator: is the API reached, what has been counted."""

from collections.abc import Callable, Mapping

from aiohttp import web

from precision_operator.cluster.http_server import probes

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def application(readiness: Callable[[], tuple[int, str]], metrics: Callable[[], bytes]) -> web.Application:
    """The probes, and /metrics: the process's own."""

    async def scraped(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": _TEXT})

    served = probes(readiness)
    served.add_routes([web.get("/metrics", scraped)])
    return served


def readiness_of(ready: bool, unserved: Mapping[str, str]) -> tuple[int, str]:
    """Status and words of /readyz: everything was listed once; and a line for each namespace that is not served.

    A replica that stands by is ready: a rollout waits for the new pods before it ends the old one that leads.
    """
    text = "ok\n" if ready else "the first complete list is not done yet: is the API server reached?\n"
    lines = [f"namespace {name} is not served: may not list {why}\n" for name, why in sorted(unserved.items())]
    return 200 if ready else 503, "".join([text, *lines])
