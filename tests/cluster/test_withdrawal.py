"""A program learns that its Deployment is deleted, whatever its watch missed, and that it is back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from precision_operator.cluster import ApiError, withdrawal
from precision_operator.cluster.withdrawal import own_deployment_deleted, signal_comes

FORBIDDEN = ApiError(403, "Forbidden", "may not list deployments")


def deployment(**meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "operator"} | meta}


class Server:
    """Lists and watches as they are given, one after the other; the last list again and again."""

    namespace = "system"

    def __init__(self, *lists: list[dict[str, Any]] | ApiError, events: tuple[dict[str, Any], ...] = ()) -> None:
        self.lists, self.events = [*lists], events
        self.asked: list[str] = []
        self.back: dict[str, Any] | ApiError = ApiError(403, "Forbidden", "the rights have gone")

    async def list_all(self, path: str, **_: Any) -> tuple[list[dict[str, Any]], str]:
        self.asked.append("list")
        found = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(found, ApiError):
            raise found
        return found, "1"

    async def watch(self, path: str, version: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
        for event in self.events:
            yield event

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(f"get {path}")
        if isinstance(self.back, ApiError):
            raise self.back
        return self.back


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause takes long."""
    for name in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS", "BACK_SECONDS"):
        monkeypatch.setattr(withdrawal, name, 0.01)
    monkeypatch.setattr(withdrawal, "SIGNAL_SECONDS", 0.05)


async def deleted(server: Any, name: str = "operator") -> None:
    async with asyncio.timeout(10):
        await own_deployment_deleted(server, name)


GOING = deployment(deletionTimestamp="2026-11-22T09:00:00Z")
NOTICED = {
    "a watch shows it deleted": Server([deployment()], events=({"type": "DELETED", "object": deployment()},)),
    "a watch shows it going": Server([deployment()], events=({"type": "MODIFIED", "object": GOING},)),
    "it is going at the start": Server([GOING]),
    "it went between two watches": Server([deployment()], []),
    "it went while the API server was away": Server([deployment()], ApiError(0, "Unreachable", "no route"), []),
}


@pytest.mark.parametrize("server", NOTICED.values(), ids=NOTICED)
async def test_a_deletion_is_noticed(server: Server) -> None:
    await deleted(server)


@pytest.mark.parametrize("server", [Server([]), Server([deployment()])], ids=["none of that name", "it is there"])
async def test_nothing_is_noticed_where_nothing_was_deleted(server: Server) -> None:
    looking = asyncio.create_task(own_deployment_deleted(server, "operator"))  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        while len(server.asked) <= 2 and not looking.done():
            await asyncio.wait({looking}, timeout=0.01)
    assert not looking.done()
    looking.cancel()


async def test_who_may_not_look_does_not_ask_again_and_again() -> None:
    server: Any = Server(FORBIDDEN)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await own_deployment_deleted(server, "operator")
    assert server.asked == ["list"]


async def test_after_the_signal_nothing_is_asked() -> None:
    server: Any = Server([])
    stop = asyncio.Event()
    stop.set()
    await signal_comes(stop, server, "operator")
    assert server.asked == []


async def test_who_is_wanted_again_ends_at_once_to_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Server([])
    server.back = deployment()
    await signal_comes(asyncio.Event(), server, "operator")
    assert server.asked == ["get /apis/apps/v1/namespaces/system/deployments/operator"]
    assert "is back" in caplog.text


async def test_without_a_signal_it_ends_within_its_bound(caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Server([])
    await signal_comes(asyncio.Event(), server, "operator")
    assert "no signal came" in caplog.text
