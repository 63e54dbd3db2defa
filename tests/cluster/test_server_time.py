"""What time it is for the API server is taken from its answers, where this machine's clock is wrong."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

from precision_operator.cluster.server_time import ANSWERS, SLACK_SECONDS, ServerTime
from tests.cluster.test_client import facing

NOON = datetime(2026, 11, 21, 12, 0, 0, 700_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def date(moment: datetime) -> str:
    """A Date header: whole seconds."""
    return format_datetime(moment.astimezone(UTC), usegmt=True)


def after(answers: Iterator[tuple[float, float]] | list[tuple[float, float]]) -> ServerTime:
    """At noon by the server, after answers of (seconds that this clock is ahead, seconds that the answer took)."""
    local = [NOON]
    server = ServerTime(lambda: local[0])
    for ahead, took in answers:
        local[0] = NOON + ahead * SECOND
        server.heard(local[0] - took * SECOND, date(NOON))
    return server


@pytest.mark.parametrize("ahead", [-3.0, 0.0, 0.4, 9.0])
@pytest.mark.parametrize("took", [0.0, 0.2, 29.0])
def test_clocks_that_may_be_equal_are_left_alone_however_slow_the_answer(ahead: float, took: float) -> None:
    server = after([(ahead, took)])
    assert (server.ahead_seconds, server.now()) == (0, server.local())


@pytest.mark.parametrize("ahead", [-86_400.0, -600.0, 600.0, 86_400.0])
def test_where_this_clock_is_wrong_the_servers_counts(ahead: float) -> None:
    server = after([(ahead, 0.1)])
    assert abs(server.ahead_seconds - ahead) <= 2
    assert abs(server.now() - NOON) <= 2 * SECOND


def test_one_wrong_clock_of_several_changes_nothing_and_a_right_one_counts_at_once() -> None:
    """Behind one address there are three, as a rule."""
    assert after([(600.0, 0.1), (0.0, 0.1), (600.0, 0.1)]).ahead_seconds == 0
    assert after([(600.0, 0.1)] * ANSWERS + [(0.0, 0.1)]).ahead_seconds == 0
    assert after([(0.0, 0.1)] + [(600.0, 0.1)] * ANSWERS).ahead_seconds > SLACK_SECONDS


@pytest.mark.parametrize(
    "header", [None, "", "yesterday", "Sat, 99 Nov 2026 12:00:00 GMT", "Sat, 21 Nov 2026 12:00:00"]
)
def test_an_answer_without_a_date_says_nothing(header: str | None) -> None:
    server = ServerTime(lambda: NOON)
    server.heard(NOON, header)
    assert server.now() == NOON


def test_a_wrong_clock_is_logged_once_and_again_when_it_is_right(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    after([(600.0, 0.1)] * 3 + [(0.0, 0.1)] * 3)
    said = [record.getMessage() for record in caplog.records]
    assert [words.partition("clock is ")[2] for words in said] == [
        "600 s ahead of the API server's, which counts",
        "again the same as the API server's, which counts",
    ]


async def test_the_client_hears_it_in_every_answer_also_in_a_refusal(tmp_path: Path) -> None:
    async def late(_: web.Request) -> web.Response:
        return web.json_response({}, status=404, headers={"Date": date(datetime.now(UTC) - timedelta(minutes=10))})

    async with facing(late, tmp_path) as cluster:
        with pytest.raises(Exception, match="404"):
            await cluster.get("/api/v1/nodes/n1")
        assert 590 < cluster.server_time.ahead_seconds < 610
