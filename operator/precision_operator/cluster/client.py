"""All requests that the operator, the exporter, the plugin and the lab make, whichever way they reach the API server.

The ways are classes of their own, so that none pays for another one's packages: DirectCluster, and the plugin's.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from pydantic_core import from_json

from precision_operator.cluster.errors import REDIRECTS, TIMEOUT, TOO_LARGE, UNREACHABLE, ApiError, error_of, redirected
from precision_operator.cluster.server_time import ServerTime

Json = dict[str, Any]
"""A Kubernetes object, or a list of them, as decoded JSON."""
Query = Mapping[str, str | None] | None
"""Parameters of a URL; what is None is left out."""
Headers = Mapping[str, str]
JSON: Headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
View = TypeVar("View")

USER_AGENT = "precision-profiler"
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
PAGE_ITEMS = 500
"""How many items of a list are asked for at once."""
_LIST_RESTARTS = 3
"""How often a list is begun again when its continue token has expired (410): a bound, or a slow one never ends."""
PAGE_TENANT = 20
"""The same for what tenants write: each object may have a megabyte and a half in etcd, and more as JSON."""
PAGE_REPORTS = 80
"""The same for reports, and PAGE_NODES for nodes of 31 KiB: a page is decoded in one go, which nothing interrupts."""
PAGE_NODES, TURN_SECONDS = 100, 0.02
"""For how long a page's items are taken in until others have their turn in the event loop."""
PAGE_LIMIT_BYTES = 24 << 20
"""A bound for a page of a list: a larger one is asked for in smaller ones."""
BODY_LIMIT_BYTES = 64 << 20
"""A bound for one answer or one event of a watch."""
_LOG_LIMIT_BYTES = 4 << 20
_TEXT_LIMIT_BYTES = 16 << 20
_WATCH_SECONDS = 600
"""How long the API server keeps a watch open before it ends it."""
_SILENT_SECONDS = 180.0
"""A watch with bookmarks, which come once a minute, is dead after this long without any."""


async def _in_turns(values: Iterable[View]) -> AsyncIterator[View]:
    """The same values; others have a turn in the event loop between them."""
    began = perf_counter()
    for value in values:
        yield value
        if perf_counter() - began > TURN_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


@dataclass(frozen=True)
class Answer:
    """What came of a request; `header` gives the value of one, the body comes in pieces, once."""

    status: int
    phrase: str
    header: Callable[[str], str | None]
    body: AsyncIterator[bytes]


class Cluster(ABC):
    """Requests to one API server. All raise ApiError; each has its own deadline of `deadline_seconds`."""

    def __init__(self, namespace: str, server: str, deadline_seconds: float) -> None:
        self.namespace = namespace
        """The namespace that is meant when a user names none."""
        self.server = server
        self.user_agent = USER_AGENT
        """How audit logs name this process; what is before the slash is the field manager of what it writes."""
        self.before_write: Callable[[], None] = lambda: None
        """Called just before each request that changes something; what it raises is raised instead of the request."""
        self.answered: Callable[[str, int], None] = lambda method, status: None
        """Told of each request how it ended: method and HTTP status, 0 where there was no answer."""
        self.server_time = ServerTime()
        """What its answers tell of the API server's clock."""
        self._deadline_seconds = deadline_seconds

    @abstractmethod
    def _exchange(
        self, method: str, target: str, headers: dict[str, str], body: object, silent_seconds: float | None
    ) -> AbstractAsyncContextManager[Answer]:
        """The answer, whatever its status, to be read in the block; `target` is a path with its query.

        Raises OSError where there is none, TimeoutError after the deadline, or where `silent_seconds` stand in its
        place, when nothing has come for so long. Follows no redirect.
        """

    async def list_all(
        self, path: str, label_selector: str | None = None, field_selector: str | None = None, limit: int = PAGE_ITEMS
    ) -> tuple[list[Json], str]:
        """All items of a collection, page by page, and the resourceVersion that they were read at.

        The list is complete or an ApiError is raised: who deletes what is not listed relies on that. Items carry no
        kind and apiVersion (the API server names them once, on the list).
        """
        return await self.list_trimmed(path, lambda item: item, label_selector, field_selector, limit)

    async def list_trimmed(
        self,
        path: str,
        view: Callable[[Json], View | None],
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE_ITEMS,
        progress: Callable[[int, bool], None] = lambda count, more: None,
        most: float = inf,
        cut: Callable[[list[View]], list[View]] = lambda views: views,
    ) -> tuple[list[View], str]:
        """As `list_all`, with `view` of every item in its place; None drops one. After `most` no page is asked for.

        No more than a page is held as it came, and after each page what `cut` leaves of the views. Where the list must
        be begun again, `view` sees items twice. `progress` is called after each page with the number of views so far
        and whether more pages follow.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        views: list[View] = []
        token: str | None = None
        restarts = 0
        while True:
            try:
                of_page = PAGE_LIMIT_BYTES if limit > 1 else BODY_LIMIT_BYTES
                page = await self._json("GET", path, {**query, "limit": str(limit), "continue": token}, most=of_page)
            except ApiError as error:
                if error.reason == TOO_LARGE and limit > 1:
                    limit = max(1, limit // 4)
                elif error.status == 410 and restarts < _LIST_RESTARTS:
                    views, token, restarts = [], None, restarts + 1
                else:
                    raise
                continue
            views = cut([*views, *[it async for it in _in_turns(map(view, page.get("items") or ())) if it is not None]])
            meta = page.get("metadata") or {}
            token, version = meta.get("continue") or None, str(meta.get("resourceVersion", ""))
            del page  # or two pages would be held while the next one is read
            progress(len(views), token is not None)
            if token is None or len(views) >= most:
                return views, version

    async def list_views(
        self,
        path: str,
        view: Callable[[Json], View | None],
        label_selector: str | None = None,
        progress: Callable[[int, bool], None] = lambda count, more: None,
    ) -> list[View]:
        """As `list_trimmed`, without the resourceVersion."""
        return (await self.list_trimmed(path, view, label_selector, progress=progress))[0]

    async def watch(
        self,
        path: str,
        version: str,
        label_selector: str | None = None,
        bookmarks: bool = False,
        field_selector: str | None = None,
    ) -> AsyncIterator[Json]:
        """Watch events (`type` and `object`) of a collection after resourceVersion `version`, until the server ends it.

        With `bookmarks` also events of type BOOKMARK, whose object has no more than the version that was reached.
        Raises ApiError, 410 Expired where the server does not have the changes since that version any more. What is no
        event (a proxy's page) ends the watch like a connection that breaks off.
        """
        query = {
            "watch": "1",
            "resourceVersion": version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(_WATCH_SECONDS),
            "allowWatchBookmarks": "true" if bookmarks else None,
        }
        silence = _SILENT_SECONDS if bookmarks else _WATCH_SECONDS + 60
        async with self._response("GET", path, query, silent_seconds=silence) as response:
            async for event in _events(response, f"WATCH {path}"):
                if event["type"] == "ERROR":
                    body = json.dumps(event["object"]).encode()
                    raise error_of(f"WATCH {path}", int(event["object"].get("code") or 0), "", body, None)
                yield event

    async def get(self, path: str, query: Query = None, headers: Headers = JSON) -> Json:
        """The object at `path`; `headers` are sent beside, or in place of, the usual ones."""
        return await self._json("GET", path, query, headers=headers)

    async def get_text(self, path: str, limit_bytes: int = _TEXT_LIMIT_BYTES) -> str:
        """At most `limit_bytes` of an answer that is not JSON: /readyz, /metrics."""
        return (await self._bytes("GET", path, limit=limit_bytes)).decode(errors="replace")

    async def create(self, path: str, body: Json, query: Query = None, headers: Headers = JSON) -> Json:
        """The object that was created in the collection at `path`; ApiError 409 AlreadyExists if its name is taken."""
        return await self._json("POST", path, query, body, headers)

    async def replace(self, path: str, body: Json) -> Json:
        """The object at `path`, replaced as a whole; ApiError 409 Conflict if its resourceVersion is not `body`'s."""
        return await self._json("PUT", path, None, body)

    async def delete(
        self,
        path: str,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace_seconds: int | None = None,
    ) -> Json:
        """Delete the object at `path`; with `uid`, only if it is still that object (else ApiError 409 Conflict).

        Background is said each time: batch/v1's own default orphans a Job's pods, and they keep their GPUs.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value}
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if preconditions:
            body["preconditions"] = preconditions
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._json("DELETE", path, None, body)

    async def patch(
        self,
        path: str,
        body: Json | Sequence[Json],
        kind: Literal["merge", "json", "strategic"] = "merge",
        query: Query = None,
    ) -> Json:
        """The object after a merge patch (RFC 7396), a JSON patch (RFC 6902, `body` is a list) or a strategic merge.

        A merge patch with metadata.resourceVersion or metadata.uid in it is refused (409) when that has changed. A
        strategic merge keeps the list items (conditions) that the patch does not name; built-in kinds only.
        """
        return await self._json("PATCH", path, query, body, {"Content-Type": _PATCH_TYPES[kind]})

    async def apply(self, path: str, body: Json, field_manager: str, force: bool = True) -> Json:
        """The object after a server-side apply: created if missing, our fields that are no longer sent are dropped."""
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self._json("PATCH", path, query, body, {"Content-Type": _PATCH_TYPES["apply"]})

    async def read_log(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        tail_lines: int | None = None,
        limit_bytes: int = _LOG_LIMIT_BYTES,
    ) -> bytes:
        """At most `limit_bytes` of a container's log, counted from the start of the last `tail_lines` lines."""
        query = {
            "container": container,
            "tailLines": None if tail_lines is None else str(tail_lines),
            "limitBytes": str(limit_bytes),
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        return await self._bytes("GET", path, query, limit=limit_bytes)

    async def _json(
        self, method: str, path: str, query: Query, body: object = None, headers: Headers = JSON, **at: int
    ) -> Json:
        data = await self._bytes(method, path, query, body, headers, **at)
        try:
            document = from_json(data)
        except ValueError as error:
            raise ApiError(0, UNREACHABLE, f"{method} {path}: the answer is not JSON: {data[:100]!r}") from error
        if not isinstance(document, dict):
            raise ApiError(0, UNREACHABLE, f"{method} {path}: the answer is not a JSON object: {data[:100]!r}")
        return document

    async def _bytes(
        self,
        method: str,
        path: str,
        query: Query = None,
        body: object = None,
        headers: Headers = JSON,
        limit: int | None = None,
        most: int = BODY_LIMIT_BYTES,
    ) -> bytes:
        """The body of a 2xx answer: at most `limit` bytes of it; without one all, or ApiError where it is too large."""
        async with self._response(method, path, query, body, headers) as response:
            content = await _read(response, limit or most)
        if limit is None and len(content) > most:
            raise ApiError(response.status, TOO_LARGE, f"{method} {path}: the answer is larger than {most:,} bytes")
        return content[:limit]

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Query = None,
        body: object = None,
        headers: Headers = JSON,
        silent_seconds: float | None = None,
    ) -> AsyncIterator[Answer]:
        """A 2xx answer, to be read in the block. Raises ApiError, also for what goes wrong while it is read."""
        act = f"{method} {path}"
        sent = {"User-Agent": self.user_agent, **JSON, **headers}
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        target = path + (f"?{urlencode(asked)}" if asked else "")
        refusal = b""
        try:
            began = self.server_time.local()
            async with self._exchange(method, target, sent, body, silent_seconds) as answer:
                self.server_time.heard(began, answer.header("Date"))
                if answer.status < 300:
                    yield answer
                elif answer.status in REDIRECTS:
                    raise redirected(act, answer.status, answer.header("Location"))
                else:
                    refusal = await _read(answer, _TEXT_LIMIT_BYTES)
        except TimeoutError as error:
            self.answered(method, 0)
            seconds = silent_seconds or self._deadline_seconds
            raise ApiError(0, TIMEOUT, f"{act}: no answer within {seconds:g} s") from error
        except OSError as error:
            self.answered(method, 0)
            raise ApiError(0, UNREACHABLE, f"{act}: {error or type(error).__name__}") from error
        self.answered(method, answer.status)
        if answer.status >= 300:
            raise error_of(act, answer.status, answer.phrase, refusal, answer.header("Retry-After"))


async def get_or_none(cluster: Cluster, path: str, **how: Headers) -> Json | None:
    """What is at `path`; None where there is nothing (404). Raises ApiError for any other refusal."""
    try:
        return await cluster.get(path, **how)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def _read(response: Answer, limit: int) -> bytes:
    """The body, or what was read of it until it had more than `limit` bytes."""
    content = bytearray()
    async for chunk in response.body:
        content += chunk
        if len(content) > limit:
            break
    return bytes(content)


async def _events(response: Answer, act: str) -> AsyncIterator[Json]:
    """The events of a watch, one a line; ApiError for a line that is none."""
    rest = b""
    async for chunk in response.body:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                document = from_json(line)
            except ValueError:
                document = None
            if not (isinstance(document, dict) and "type" in document and isinstance(document.get("object"), dict)):
                raise ApiError(0, UNREACHABLE, f"{act}: this is no event: {line[:100]!r}")
            yield document
        if len(rest) > BODY_LIMIT_BYTES:
            raise ApiError(0, UNREACHABLE, f"{act}: an event is larger than {BODY_LIMIT_BYTES:,} bytes")
