"""A shard without room for all: what was served goes on, nodes that come get less, and the exporter says how many."""

from collections.abc import Iterator
from typing import Any

import pytest

from precision_operator.exporter import fitting
from precision_operator.exporter.body import Body, build
from precision_operator.exporter.families.family import Level
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.store import Store
from tests.exporter.test_shards import nodes_in
from tests.support.exposition import samples_in, store_of
from tests.support.report_objects import profile_object, report_object


def room_for(nodes: float, level: Level, patched: pytest.MonkeyPatch) -> None:
    (entry,) = store_of(profile_object(), report_object("n"), level=level).view().reports
    patched.setattr(fitting, "LIMIT_BYTES", nodes * (entry.size + fitting.STANDING_BYTES))


def come(store: Store, numbers: range, day: int) -> None:
    for number in numbers:
        raw = report_object(f"n{number:03}", creationTimestamp=f"2026-11-{day:02}T06:00:00Z")
        store.see("nodeprecisionreports", raw)


def told(body: Body) -> Iterator[float]:
    own = OwnMetrics(process=False)
    own.tell(body)
    values = {(s.name, *s.labels.values()): s.value for s in samples_in(own.text())}
    for families in ("detail", "node"):
        yield values["precision_exporter_left_out_nodes", families]
    yield values["precision_exporter_shards_needed",]


@pytest.mark.parametrize("level", ["node", "detail"])
def test_what_was_served_goes_on_and_what_comes_gets_less(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(100, level, monkeypatch)
    store = store_of(profile_object(), level=level)
    come(store, range(200, 288), day=20)
    yesterday = build(store.view())
    assert list(told(yesterday))[:2] == [0, 0]
    come(store, range(150), day=21)
    today = build(store.view(), 1, yesterday)
    text, before = today.shards[0].text(), yesterday.shards[0].text()
    gone = set(before.splitlines()) - set(text.splitlines())
    assert not [line for line in gone if b"shard_series" not in line]
    assert len(text) <= fitting.LIMIT_BYTES
    plain, none, _ = told(today)
    served = nodes_in(text)
    assert len(served) == 238 - none
    assert served >= nodes_in(before)
    assert 88 < len(served) < 110
    assert (plain > 0) == (level == "detail")
    of_gemms = [line for line in text.splitlines() if line.startswith(b"precision_node_gemm_speedup_ratio")]
    detailed = nodes_in(b"\n".join(of_gemms))
    assert len(detailed) == (238 - none - plain if level == "detail" else 0)
    assert today.fleet.count(b'precision_pool_nodes{phase="fresh"') == 1, "pools are of all nodes"
    assert b"} 238.0" in today.fleet
    restarted = build(store.view())
    assert nodes_in(restarted.shards[0].text()) == served, "the oldest first: another exporter serves the same"


def test_nodes_beyond_the_room_say_how_many_shards_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(100, "node", monkeypatch)
    store = store_of(profile_object(), level="node")
    come(store, range(500), day=20)
    body = build(store.view())
    _, none, needed = told(body)
    assert none == 500 - len(nodes_in(body.shards[0].text()))
    assert build(store.view(), int(needed)).served.nodes(fitting.NONE) == 0


def in_pools_of_their_own(numbers: range) -> Iterator[dict[str, Any]]:
    for number in numbers:
        raw = report_object(f"t{number:03}", namespace="a-tenant", creationTimestamp="2026-11-19T06:00:00Z")
        raw["status"]["hardware"]["pool"] = f"p{number}"
        yield raw


@pytest.mark.parametrize("level", ["node", "detail"])
def test_a_namespace_that_fills_bodies_takes_nothing_from_others(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(100, level, monkeypatch)
    ours = [profile_object(), *(report_object(f"n{number}") for number in range(40))]
    theirs = [profile_object(namespace="a-tenant"), *in_pools_of_their_own(range(150))]
    alone, filled = build(store_of(*ours, level=level).view()), build(store_of(*theirs, level=level).view())
    store = store_of(*theirs, *ours, level=level)
    body = build(store.view(), 1, filled)
    for made in (body, build(store.view())):
        assert set(alone.text.splitlines()) - set(made.text.splitlines()) == {alone.shards[0].text().splitlines()[-1]}
        assert [*made.left_out] == ["a-tenant"]
        assert max(made.sizes().values()) <= fitting.LIMIT_BYTES
        assert len(made.fleet) > 0.8 * fitting.LIMIT_BYTES
    own = OwnMetrics(process=False)
    own.tell(body)
    assert f'left_out_objects{{namespace="a-tenant"}} {body.left_out["a-tenant"]}.0' in own.text().decode()
    for raw in in_pools_of_their_own(range(150, 160)):
        store.see("nodeprecisionreports", raw)
    after = build(store.view(), 1, body)
    for number in range(10):
        store.see("precisionprofiles", profile_object(f"more{number}", "a-tenant"))
    assert build(store.view(), 1, body).fleet.count(b'phase="Running",profile="more') == 10, "before pools"
    assert (after.fleet, after.shards[0].text()) == (body.fleet, body.shards[0].text())
