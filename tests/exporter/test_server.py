"""The exporter over real HTTP: what a scrape gets, before and after the first list."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from precision_api.facts.names import REPORT_PLURAL
from precision_operator.cluster import ApiError, http_server
from precision_operator.doctor import scrape
from precision_operator.exporter.__main__ import arguments
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.server import Scrapes, application, takes_gzip
from precision_operator.exporter.store import Store
from tests.support.exposition import store_of
from tests.support.golden import beside
from tests.support.report_objects import profile_object, report_object

TABLES = beside(__file__)

PLAIN = {"Accept-Encoding": "identity"}
PROFILE, N1, N2 = profile_object(), report_object("n1"), report_object("n2")


@asynccontextmanager
async def serving(store: Store, ready: bool = True) -> AsyncIterator[str]:
    scrapes = Scrapes(store, OwnMetrics())
    async with http_server.serving(application(scrapes), "127.0.0.1", 0) as port:
        if ready:
            await scrapes.prepare()
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False, headers=PLAIN) as session:
        yield session


async def status_of(http: aiohttp.ClientSession, url: str) -> int:
    async with http.get(url) as response:
        return response.status


async def scraped(http: aiohttp.ClientSession, url: str, path: str = "/metrics/shard/0") -> str:
    async with http.get(f"{url}{path}") as response:
        assert response.status == 200
        return (await response.read()).decode()


async def test_the_fleets_metrics_wait_for_the_first_list_and_a_first_body() -> None:
    async with serving(store_of(PROFILE, N1), ready=False) as url, client() as http:
        assert await status_of(http, f"{url}/healthz") == 200
        assert await status_of(http, f"{url}/readyz") == 503
        assert await status_of(http, f"{url}/metrics/shard/0") == 503
        own = await scraped(http, url, "/metrics")
        assert "precision_exporter_build_info" in own
        assert "precision_profile_nodes" not in own
    own = OwnMetrics()
    scrapes = Scrapes(store_of(PROFILE, N1), own)
    await scrapes.prepare()
    assert scrapes.ready
    assert b"precision_exporter_render_seconds_count 1.0" in own.text()
    await scrapes.shard(0, zipped=True)
    assert b"precision_exporter_render_seconds_count 1.0" in own.text()


async def test_the_root_says_what_there_is_in_prometheus_text_format() -> None:
    async with serving(store_of(PROFILE, N1)) as url, client() as http, http.get(f"{url}/") as response:
        page = (await response.read()).decode()
        links = re.findall(r'href="([^"]+)"', page)
        assert response.headers["Content-Type"].startswith("text/html")
        assert links == ["/metrics", "/metrics/shard/0", "/scraped", "/healthz", "/readyz"]
        pod, port = {"status": {"podIP": "127.0.0.1"}}, int(url.rpartition(":")[2])
        assert json.loads(await scrape(pod, port)) == {"at": None, "by": None}
        assert [await status_of(http, url + link) for link in links] == [200] * 5
        last = json.loads(await scrape(pod, port))
        assert re.fullmatch(r"Python/\S+ aiohttp/\S+ from 127.0.0.1", last["by"])
        assert last["at"]
    with pytest.raises(ApiError):
        await scrape(pod, port)
    async with http_server.serving(aiohttp.web.Application(), "127.0.0.1", port):
        with pytest.raises(ApiError, match="HTTP 404 Not Found"):
            await scrape(pod, port)
    async with serving(store_of(PROFILE, N1)) as url, client() as http, http.get(f"{url}/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_the_scrapes_hold_the_nodes_the_fleet_and_the_process_and_no_family_twice() -> None:
    async with serving(store_of(PROFILE, N1, N2)) as url, client() as http:
        text = await scraped(http, url, "/metrics") + await scraped(http, url)
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(set(names)) == len(names)
    assert {"precision_node_info", "precision_profile_nodes", "precision_exporter_series"} <= set(names)
    assert 'precision_exporter_reports{state="shown"} 2.0' in text


async def test_gzip_gives_the_same_text_as_one_member_again_after_a_change() -> None:
    store = store_of(PROFILE, N1)
    async with serving(store) as url, client() as http:
        for node in ("n2", "n3"):
            store.see(REPORT_PLURAL, report_object(node))
            async with http.get(f"{url}/metrics/shard/0", headers={"Accept-Encoding": "gzip"}) as response:
                assert response.headers["Content-Encoding"] == "gzip"
                unpacked = gzip.decompress(await response.read()).decode()
            assert f'node="{node}"' in unpacked
            assert unpacked == await scraped(http, url)


async def test_an_unchanged_store_is_put_together_once_for_many_scrapes() -> None:
    async with serving(store_of(PROFILE, N1)) as url, client() as http:
        texts = await asyncio.gather(*(scraped(http, url, "/metrics") for _ in range(5)))
    assert all("precision_exporter_render_seconds_count 1.0" in text for text in texts)


@pytest.mark.parametrize(
    ("header", "taken"),
    TABLES["gzip"],
)
def test_gzip_is_sent_only_where_it_is_asked_for(header: str, taken: bool) -> None:
    assert takes_gzip(header) is taken


def test_namespaces_are_read_once_each_and_metrics_are_chosen_by_name() -> None:
    args = arguments(["--watch-namespaces", "a, b,a", "--metric-allowlist", "precision_node_info, precision_pool_.*"])
    assert args.watch_namespaces == ("a", "b")
    assert args.metric_allowlist == ("precision_node_info", "precision_pool_.*")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--watch-namespaces=,"], "name at least one namespace"),
        (["--metric-allowlist=a", "--metric-denylist=b"], "not allowed with"),
        (["--metric-denylist=precision_("], "is no regular expression"),
        *(([f"--shards={shards}"], "is no number from 1 to 512") for shards in ("0", "513", "-1", "four", "")),
        (["--metrics-level=gpu"], "invalid choice: 'gpu' (choose from"),
        (["--gemm-samples=65"], "is no number from 0 to 64"),
    ],
)
def test_a_wrong_argument_is_refused_with_why(wrong: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--watch-namespaces=a", *wrong])
    assert why in capsys.readouterr().err
