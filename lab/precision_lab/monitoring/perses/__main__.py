"""Serves the page and the dashboards on 127.0.0.1.

`python -m precision_lab.monitoring.perses DIR PROMETHEUS PORT [POOL ...]`: the pools get panels of their own.
"""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aiohttp import ClientSession, web

from precision_lab.monitoring.perses.dashboard import resource
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS

_CLIENT = web.AppKey("client", ClientSession)


def app(page: Path, prometheus: str, pools: Sequence[str] = ()) -> web.Application:
    """The page at `/`, dashboards at `/dashboards/UID.json`, and Prometheus' API at `/prometheus/api/...`."""
    made = web.Application(client_max_size=1 << 20)
    texts = {dashboard.uid: json.dumps(resource(dashboard, {"pool": pools})) for dashboard in DASHBOARDS}

    async def clients(running: web.Application) -> AsyncIterator[None]:
        async with ClientSession() as client:
            running[_CLIENT] = client
            yield

    async def dashboard(request: web.Request) -> web.Response:
        text = texts.get(request.match_info["uid"])
        if text is None:
            raise web.HTTPNotFound(text=f"no such dashboard; there are {', '.join(texts)}")
        return web.Response(text=text, content_type="application/json")

    async def ask(request: web.Request) -> web.Response:
        url = f"{prometheus}/{request.match_info['path']}"
        headers = {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
        body = await request.read()
        async with request.app[_CLIENT].request(
            request.method, url, params=request.query, data=body, headers=headers
        ) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")

    async def index(_: web.Request) -> web.FileResponse:
        return web.FileResponse(page / "index.html")

    made.cleanup_ctx.append(clients)
    made.router.add_get("/", index)
    made.router.add_get("/dashboards/{uid}.json", dashboard)
    made.router.add_route("*", "/prometheus/{path:api/.*}", ask)
    made.router.add_static("/assets", page / "assets")
    return made


if __name__ == "__main__":
    folder, prometheus, port, *pools = sys.argv[1:]
    web.run_app(app(Path(folder), prometheus, pools), host="127.0.0.1", port=int(port), print=None, access_log=None)
