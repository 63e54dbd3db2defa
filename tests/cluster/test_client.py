"""The door to the API server: a real HTTP server that misbehaves, and the real API server."""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import yaml
from aiohttp import web

from precision_operator.cli.kubectl import KubectlCluster
from precision_operator.cluster import ApiError, Cluster, ConnectionProblem, client
from precision_operator.cluster.connection import DirectCluster, authorization, connection, kopf_connection
from precision_operator.cluster.paths import config_maps, item, jobs, profiles

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
GONE = {"kind": "Status", "reason": "Expired", "message": "The provided continue parameter is too old", "code": 410}


def write_kubeconfig(path: Path, server: str, user: dict[str, Any] | None = None, namespace: str = "team") -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@asynccontextmanager
async def facing(
    server: Handler | web.Application, tmp_path: Path, deadline_seconds: float = 5.0, by: str = "direct"
) -> AsyncIterator[Cluster]:
    """A cluster whose API server is `server`; its kubeconfig is the file `config`, kubectl would listen at a socket."""
    app = server if isinstance(server, web.Application) else web.Application()
    if not isinstance(server, web.Application):
        app.router.add_route("*", "/{path:.*}", server)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        async with DirectCluster.connect(kubeconfig, deadline_seconds=deadline_seconds) as cluster:
            with TemporaryDirectory() as short:  # paths of sockets have a hundred characters
                await web.UnixSite(runner, f"{short}/s").start()
                yield cluster if by == "direct" else KubectlCluster(f"{short}/s", "team", "", deadline_seconds, "")
    finally:
        await runner.cleanup()


each_way = pytest.mark.parametrize("by", ["direct", "kubectl"])


async def error_from(act: Awaitable[object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await act
    return caught.value


@each_way
async def test_a_list_is_complete_over_all_its_pages_and_names_its_version(tmp_path: Path, by: str) -> None:
    asked: list[dict[str, str]] = []

    async def pages(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        start = int(request.query.get("continue", "0"))
        more = {"continue": str(start + 2)} if start < 4 else {}
        return web.json_response(
            {"metadata": {"resourceVersion": "77", **more}, "items": [{"n": start}, {"n": start + 1}]}
        )

    async with facing(pages, tmp_path, by=by) as cluster:
        items, version = await cluster.list_all("/api/v1/pods", "a=b,c", "spec.nodeName=n1", limit=2)
    assert [one["n"] for one in items] == [0, 1, 2, 3, 4, 5]
    assert version == "77"
    assert asked[1] == {"limit": "2", "labelSelector": "a=b,c", "fieldSelector": "spec.nodeName=n1", "continue": "2"}


async def test_a_list_that_is_trimmed_holds_no_page_when_it_asks_for_the_next_one(tmp_path: Path) -> None:
    class Item(dict[str, Any]):
        """An item whose life can be followed."""

    held: list[weakref.ref[Item]] = []
    alive: list[int] = []

    async def pages(request: web.Request) -> web.Response:
        alive.append(sum(ref() is not None for ref in held))
        start = int(request.query.get("continue", "0"))
        more = {"continue": str(start + 1)} if start < 2 else {}
        return web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": [{"n": start}]})

    def trim(item: dict[str, Any]) -> int:
        item["self"] = Item(item)  # goes with the item alone
        held.append(weakref.ref(item["self"]))
        return int(item["n"])

    async with facing(pages, tmp_path) as cluster:
        assert await cluster.list_trimmed("/api/v1/nodes", trim) == ([0, 1, 2], "7")
    assert alive == [0, 0, 0]


async def test_others_have_a_turn_while_the_items_of_a_page_are_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TURN_SECONDS", 0.0)
    turns = list[object]()

    async def page(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": [{"n": 1}, {"n": 2}, {"n": 3}]})

    def taken(item: dict[str, Any]) -> None:
        turns.append(item["n"])
        asyncio.get_running_loop().call_soon(turns.append, "others")

    async with facing(page, tmp_path) as cluster:
        await cluster.list_trimmed("/api/v1/pods", taken)
    assert turns[:5] == [1, "others", 2, "others", 3]


async def test_a_list_whose_token_expired_begins_again_and_repeats_nothing(tmp_path: Path) -> None:
    answers = [
        web.json_response({"metadata": {"continue": "x"}, "items": [{"n": "stale"}]}),
        web.json_response(GONE, status=410),
        web.json_response({"metadata": {"resourceVersion": "9"}, "items": [{"n": 1}]}),
    ]

    async def one_by_one(_: web.Request) -> web.Response:
        return answers.pop(0)

    async with facing(one_by_one, tmp_path) as cluster:
        assert await cluster.list_all("/api/v1/pods") == ([{"n": 1}], "9")


REFUSED = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}


@pytest.mark.parametrize(("answer", "times"), [(GONE, 4), (REFUSED, 1)], ids=["expired", "refused"])
async def test_a_list_that_expires_every_time_is_given_up_and_one_that_is_refused_is_not_begun_again(
    tmp_path: Path, answer: dict[str, Any], times: int
) -> None:
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response(answer, status=answer["code"])

    async with facing(refuse, tmp_path) as cluster:
        error = await error_from(cluster.list_all("/api/v1/pods"))
    assert (error.status, error.reason, error.transient) == (answer["code"], answer["reason"], False)
    assert len(asked) == times


@each_way
async def test_a_refusal_tells_act_reason_and_when_to_come_back(tmp_path: Path, by: str) -> None:
    async def too_many(_: web.Request) -> web.Response:
        told = {"kind": "Status", "reason": "TooManyRequests", "message": "slow down"}
        return web.json_response(told, status=429, headers={"Retry-After": "3"})

    async with facing(too_many, tmp_path, by=by) as cluster:
        error = await error_from(cluster.get("/api/v1/nodes/n1"))
    assert str(error) == "GET /api/v1/nodes/n1: slow down (429 TooManyRequests)"
    assert (error.status, error.reason, error.retry_after, error.transient) == (429, "TooManyRequests", 3.0, True)


BAD_GATEWAY, NO_ANSWER = (502, "Bad Gateway", True), (0, "Unreachable", True)


@pytest.mark.parametrize("body", ["<html>bad gateway</html>", "", "[]", '"Status"'])
@pytest.mark.parametrize(("status", "told"), [(502, BAD_GATEWAY), (200, NO_ANSWER)])
@each_way
async def test_what_is_no_answer_of_the_api_server_is_an_error_with_its_status(
    tmp_path: Path, by: str, body: str, status: int, told: tuple[int, str, bool]
) -> None:
    async def portal(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with facing(portal, tmp_path, by=by) as cluster:
        error = await error_from(cluster.get("/api/v1/nodes/n1"))
    assert (error.status, error.reason, error.transient) == told
    assert "is not" in str(error) or status == 502


@each_way
async def test_a_server_that_does_not_answer_is_left_at_the_deadline(tmp_path: Path, by: str) -> None:
    async def silence(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    async with facing(silence, tmp_path, deadline_seconds=0.2, by=by) as cluster:
        error = await error_from(cluster.get("/api/v1/nodes/n1"))
    assert (error.status, error.reason, error.transient) == (0, "Timeout", True)
    assert str(error) == "GET /api/v1/nodes/n1: no answer within 0.2 s"


async def test_a_missing_kubeconfig_or_nobody_at_the_address_is_said(tmp_path: Path) -> None:
    async with DirectCluster.connect(write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")) as cluster:
        error = await error_from(cluster.get("/api/v1/nodes/n1"))
    assert (error.status, error.reason) == (0, "Unreachable")
    with pytest.raises(ConnectionProblem, match=r"there is no kubeconfig at /nowhere.*--kubeconfig or \$KUBECONFIG"):
        await connection("/nowhere")


@each_way
async def test_a_log_or_text_without_end_is_cut_at_the_limit_and_another_answer_is_an_error(
    tmp_path: Path, by: str
) -> None:
    asked: dict[str, str] = {}

    async def log(request: web.Request) -> web.StreamResponse:
        asked.update(request.query)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    async with facing(log, tmp_path, 30.0, by=by) as cluster:
        text = await cluster.read_log("ml", "pod-1", "agent", tail_lines=210, limit_bytes=100_000)
        assert text == b"x" * 100_000
        assert asked == {"container": "agent", "tailLines": "210", "limitBytes": "100000"}
        assert len(await cluster.get_text("/metrics", 1 << 20)) == 1 << 20
        error = await error_from(cluster.get("/x"))
        assert (error.status, error.reason) == (200, "TooLarge")
        assert "an event is larger than" in str(await error_from(anext(cluster.watch("/x", "1"))))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@each_way
async def test_a_redirect_is_an_error_that_names_its_target_and_is_not_followed(
    tmp_path: Path, by: str, status: int
) -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, headers={"Location": "../../secrets"})

    async with facing(elsewhere, tmp_path, by=by) as cluster:
        for act in (cluster.get_text("/api/v1/pods/p:80/proxy/metrics"), cluster.get("/x"), cluster.delete("/x")):
            error = await error_from(act)
            assert (error.status, error.reason, error.transient) == (status, "Redirected", False)
            assert "a redirect to '../../secrets', which is not followed" in str(error)
    assert asked == ["/api/v1/pods/p:80/proxy/metrics", "/x", "/x"]


@each_way
async def test_a_page_that_is_too_large_is_asked_for_in_smaller_ones(tmp_path: Path, by: str) -> None:
    asked: list[int] = []

    async def pages(request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        asked.append(limit)
        end = min(start + limit, 6)
        items = [{"n": n, "text": "x" * (40 << 20) if n < 2 else ""} for n in range(start, end)]
        return web.json_response({"metadata": {"continue": str(end) if end < 6 else ""}, "items": items})

    async with facing(pages, tmp_path, 30.0, by=by) as cluster:
        assert await cluster.list_views("/x", lambda item: int(item["n"])) == [0, 1, 2, 3, 4, 5]
    assert asked == [500, 125, 31, 7, 1, 1, 1, 1, 1, 1]


@each_way
async def test_a_delete_says_background_and_which_object_it_means(tmp_path: Path, by: str) -> None:
    bodies: list[Any] = []

    async def deleting(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response({"status": "Success"})

    async with facing(deleting, tmp_path, by=by) as cluster:
        await cluster.delete("/x", uid="u1")
        await cluster.delete("/x")
    assert [body.get("preconditions") for body in bodies] == [{"uid": "u1"}, None]
    assert {body["propagationPolicy"] for body in bodies} == {"Background"}


@pytest.mark.parametrize("text", ["just words", "a: [b", "", "current-context: none\nclusters: []\ncontexts: []\n"])
async def test_a_broken_kubeconfig_is_a_problem_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(ConnectionProblem, match=f"reading kubeconfig {path}"):
        await connection(str(path))


async def test_the_context_names_the_namespace_and_names_in_paths_are_quoted(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", "https://127.0.0.1:6443")
    found = await kopf_connection(kubeconfig)
    assert (found.server, found.scheme, found.token) == ("https://127.0.0.1:6443", "Bearer", "secret")
    assert (await connection(kubeconfig)).namespace == found.default_namespace == "team"
    assert item(profiles("ml"), "a/b?", "status").endswith("/namespaces/ml/precisionprofiles/a%2Fb%3F/status")
    assert jobs("ml") == "/apis/batch/v1/namespaces/ml/jobs"
    assert config_maps() == "/api/v1/configmaps"


@pytest.mark.parametrize(("server", "proxied"), [("https://127.0.0.1:1", False), ("https://api.example:6443", True)])
async def test_loopback_is_never_asked_through_a_proxy(tmp_path: Path, server: str, proxied: bool) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", server)
    assert (await connection(kubeconfig)).through_proxy is proxied
    assert (await kopf_connection(kubeconfig)).trust_env is proxied


async def test_an_expired_token_of_an_exec_plugin_is_renewed(tmp_path: Path) -> None:
    plugin, calls = tmp_path / "plugin", tmp_path / "calls"
    plugin.write_text(
        f"#!/bin/sh\necho x >> {calls}\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":'
        f'{{"token":"t\'$(wc -l < {calls} | tr -d " ")\'","expirationTimestamp":"2020-01-01T00:00:00Z"}}}}\'\n'
    )
    os.chmod(plugin, 0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    found = await connection(write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", user))
    assert [await authorization(found.configuration) for _ in range(2)] == ["Bearer t2", "Bearer t3"]


@pytest.mark.cluster
async def test_the_real_api_server_takes_every_request_that_we_make(cluster: Any) -> None:
    namespace = f"door-{uuid4().hex[:8]}"
    async with DirectCluster.connect(str(cluster.kubeconfig)) as api:
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        maps = config_maps(namespace)
        for index in range(5):
            await api.create(maps, {"metadata": {"name": f"m{index}", "labels": {"set": "ours"}}, "data": {"x": "1"}})
        items, version = await api.list_all(maps, "set=ours", limit=2)
        assert [one["metadata"]["name"] for one in items] == [f"m{index}" for index in range(5)]
        assert int(version) > 0

        path = item(maps, "m0")
        assert (await api.patch(path, {"data": {"y": "2"}}))["data"] == {"x": "1", "y": "2"}
        assert (await api.patch(path, [{"op": "remove", "path": "/data/y"}], "json"))["data"] == {"x": "1"}
        applied: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m9"}}
        await api.apply(item(maps, "m9"), applied | {"data": {"a": "1", "b": "1"}}, "door")
        assert (await api.apply(item(maps, "m9"), applied | {"data": {"a": "2"}}, "door"))["data"] == {"a": "2"}

        other = [{"op": "test", "path": "/metadata/uid", "value": "another"}]
        changed = await error_from(api.patch(path, other, "json"))
        assert (changed.status, changed.refuses_fields) == (422, False)
        refused = await error_from(api.patch(path, {"data": {"no key!": "x"}}))
        assert (refused.status, refused.refuses_fields) == (422, True)

        taken = await error_from(api.create(maps, {"metadata": {"name": "m0"}}))
        assert (taken.status, taken.reason) == (409, "AlreadyExists")
        stranger = await error_from(api.delete(path, uid="another"))
        assert (stranger.status, stranger.reason) == (409, "Conflict")
        await api.delete(path, uid=(await api.get(path))["metadata"]["uid"])
        assert (await error_from(api.get(path))).reason == "NotFound"
        assert (await error_from(api.read_log(namespace, "none"))).reason == "NotFound"
        await api.delete(f"/api/v1/namespaces/{namespace}")
