"""What the kubelet and Prometheus ask the operator: is the loop alive, is the API reached, what has been counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
CLOSE_SECONDS = 2.0
"""How long a scrape that is being answered may keep a process that ends."""


def application(
    ready: Callable[[], bool], metrics: Callable[[], bytes], unserved: Callable[[], Mapping[str, str]]
) -> web.Application:
    """/healthz: the event loop beats; /readyz: everything was listed once; /metrics: the process's own.

    /readyz also names the namespaces that are not served, and why: a line for each.

    A replica that stands by is ready: a rollout waits for the new pods before it ends the old one that leads.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        lines = [f"namespace {name} is not served: may not list {why}\n" for name, why in sorted(unserved().items())]
        if ready():
            return web.Response(text="".join(["ok\n", *lines]))
        text = "the first complete list is not done yet: is the API server reached?\n"
        return web.Response(status=503, text="".join([text, *lines]))

    async def scraped(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": _TEXT})

    served = web.Application()
    served.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scraped)])
    return served


async def serve(served: web.Application, host: str, port: int) -> web.AppRunner:
    """Serve until `cleanup` of what comes back is awaited. OSError when the port is taken."""
    runner = web.AppRunner(served, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
