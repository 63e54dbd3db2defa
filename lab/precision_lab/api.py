"""A small client of the API server: raw paths and plain dicts, because the typed classes cost seconds at import."""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from precision_lab.kubeconfig import Credentials, read

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
LIST_CHUNK = 1000
WATCH_SECONDS = 600
AGAIN_SECONDS = 0.5


class ApiError(Exception):
    """The API server's refusal: `status` is the HTTP status, `reason` its own word for it (NotFound, Conflict ...)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a watched object: `kind` is ADDED, MODIFIED or DELETED."""

    kind: str
    object: Object


class Api:
    """One pool of connections to an API server; use it as `async with Api(kubeconfig) as api`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._credentials = read(kubeconfig)

    async def __aenter__(self) -> Api:
        token = self._credentials.token
        self._session = aiohttp.ClientSession(
            base_url=self._credentials.server,
            connector=aiohttp.TCPConnector(ssl=tls_context(self._credentials), limit=64),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=WATCH_SECONDS + 60),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, **query: str) -> Object:
        """One object, or one page of a list."""
        return await self._request("GET", path, params=query)

    async def text(self, path: str, **query: str) -> str:
        """An answer that is not JSON: /readyz, /metrics, a pod's log."""
        async with self._session.get(path, params=query) as response:
            await _check(response)
            return await response.text(errors="replace")

    async def post(self, path: str, body: Object) -> Object:
        """Creates an object; ApiError 409 if it exists."""
        return await self._request("POST", path, json=body)

    async def patch(self, path: str, body: Object, kind: str = STRATEGIC) -> Object:
        """Changes an object; a strategic merge keeps the list items (conditions) that the patch does not name."""
        return await self._request("PATCH", path, data=json.dumps(body), headers={"Content-Type": kind})

    async def delete(self, path: str, body: Object | None = None) -> Object:
        """Deletes an object; `body` is a DeleteOptions."""
        return await self._request("DELETE", path, json=body)

    async def list_all(self, path: str, **query: str) -> tuple[list[Object], str]:
        """All objects, read in pages, and the resource version from which to watch."""
        items: list[Object] = []
        position: dict[str, str] = {}
        while True:
            page = await self.get(path, limit=str(LIST_CHUNK), **query, **position)
            items += page.get("items") or []
            if not page["metadata"].get("continue"):
                return items, page["metadata"]["resourceVersion"]
            position = {"continue": page["metadata"]["continue"]}

    async def watch(self, path: str, **query: str) -> AsyncIterator[Change]:
        """Every object as ADDED, then its changes, without end: a lost or too old watch is taken up by a new list.

        Objects that went away between two lists come as DELETED, as they were last seen.
        """
        known: dict[str, Object] = {}
        while True:
            try:
                items, version = await self.list_all(path, **query)
                listed = {item["metadata"]["uid"]: item for item in items}
                changes = [Change("DELETED", known[uid]) for uid in known.keys() - listed.keys()]
                changes += [Change("MODIFIED" if uid in known else "ADDED", item) for uid, item in listed.items()]
                known = listed
                for change in changes:
                    yield change
                async for change in self._watch_from(path, version, **query):
                    _remember(known, change)
                    yield change
            except (aiohttp.ClientError, TimeoutError, ApiError):
                await asyncio.sleep(AGAIN_SECONDS)

    async def _watch_from(self, path: str, version: str, **query: str) -> AsyncIterator[Change]:
        window = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        async with self._session.get(path, params={**query, **window}) as response:
            await _check(response)
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":  # 410: our version is too old, a new list follows
                        return
                    yield Change(event["type"], event["object"])

    async def _request(self, method: str, path: str, **options: Any) -> Object:
        async with self._session.request(method, path, **options) as response:
            await _check(response)
            body: Object = await response.json(content_type=None)
            return body


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """Trusts the cluster's CA alone and shows the client certificate, if there is one."""
    context = ssl.create_default_context(cadata=credentials.ca.decode())
    if credentials.pair:
        with tempfile.NamedTemporaryFile() as both:  # ssl reads key files only, never memory
            both.write(credentials.pair.certificate + credentials.pair.key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def run_blocking(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, from code that is not async itself but may be called where a loop runs already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    text = await response.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    raise ApiError(response.status, status.get("reason", ""), status.get("message", text[:500]))


def _remember(known: dict[str, Object], change: Change) -> None:
    uid = change.object["metadata"]["uid"]
    if change.kind == "DELETED":
        known.pop(uid, None)
    else:
        known[uid] = change.object
