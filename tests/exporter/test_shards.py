"""Node series over several endpoints: each node in one of them, few move, bodies are cheap, and a full one says so."""

import gzip
import logging
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.names import REPORT_PLURAL
from precision_operator.exporter.body import build, size_warning
from precision_operator.exporter.chunks import NOTHING, gzipped, piece
from precision_operator.exporter.families.family import Level
from precision_operator.exporter.families.table import NODE_FAMILIES
from precision_operator.exporter.fitting import LIMIT_BYTES
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.server import Scrapes
from precision_operator.exporter.shards import GROUPS, place
from precision_operator.exporter.store import Store
from tests.exporter.test_plans import plan_object
from tests.support.exposition import store_of
from tests.support.golden import beside
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status

TABLES = beside(__file__)

NODES = [f"gb200-{number:04d}" for number in range(60)]


def fleet_store(nodes: list[str], level: Level = "node") -> Store:
    return store_of(profile_object(), *map(report_object, nodes), level=level)


def nodes_in(text: bytes) -> set[str]:
    return {line.partition('node="')[2].partition('"')[0] for line in text.decode().splitlines() if 'node="' in line}


def test_each_node_is_in_one_shard_and_plain_and_compressed_say_the_same() -> None:
    found = [nodes_in(shard.text()) for shard in build(fleet_store(NODES).view(), shards=4).shards]
    assert sorted(node for nodes in found for node in nodes) == NODES
    assert all(found)
    for shard in build(fleet_store(NODES, "detail").view(), shards=3).shards:
        assert gzip.decompress(b"".join(gzipped(shard.packed))) == shard.text()
        assert shard.packed.size == len(shard.text())
    levels: tuple[Level, ...] = ("pool", "node", "detail")
    stores = [store_of(profile_object(), plan_object(), *map(report_object, NODES), level=level) for level in levels]
    (fleet,) = {build(store.view(), 1).fleet for store in stores}
    assert b'precision_plan_phase{phase="Solved"' in fleet


def test_one_more_shard_moves_about_its_share_of_the_nodes_and_all_to_the_new_one() -> None:
    names = [f"node-{number}" for number in range(4000)]
    moved = {place(name, 8)[0] for name in names if place(name, 7)[0] != place(name, 8)[0]}
    count = sum(place(name, 7)[0] != place(name, 8)[0] for name in names)
    assert moved == {7}
    assert 0.8 * 4000 / 8 < count < 1.2 * 4000 / 8


@given(st.text(max_size=60), st.integers(1, 64))
def test_every_name_has_a_place(name: str, shards: int) -> None:
    shard, group = place(name, shards)
    assert 0 <= shard < shards
    assert 0 <= group < GROUPS


@given(st.lists(st.binary(max_size=2000), max_size=8))
def test_pieces_together_are_one_valid_gzip_member(texts: list[bytes]) -> None:
    packed = b"".join(gzipped(*map(piece, texts), NOTHING))
    assert gzip.decompress(packed) == b"".join(texts)
    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)  # one member only, as aiohttp reads
    assert reader.decompress(packed) == b"".join(texts)
    assert reader.eof
    assert not reader.unused_data


def test_a_changed_report_has_its_group_made_anew_and_no_other() -> None:
    store = fleet_store(NODES)
    before = build(store.view(), shards=2)
    changed = report_status([recipe_row("bf16", 1.001), recipe_row("mxfp8", 1.372)])
    store.see(REPORT_PLURAL, report_object(NODES[7], status=changed, resourceVersion="200"))
    after = build(store.view(), 2, before)
    assert {at for at, group in after.groups.items() if group is not before.groups[at]} == {place(NODES[7], 2)}
    old, new = before.groups[place(NODES[7], 2)].pieces, after.groups[place(NODES[7], 2)].pieces
    made_anew = {family.name for family, a, b in zip(NODE_FAMILIES, old, new, strict=True) if a is not b}
    assert "precision_node_training_tokens_per_second" in made_anew
    assert "precision_node_info" not in made_anew, "nothing that it tells has changed"
    assert b"95095" in after.text


def test_a_pool_in_which_nothing_has_changed_is_not_worked_out_again() -> None:
    store = fleet_store(NODES[:4])

    def elsewhere(rate: float, version: int) -> dict[str, Any]:
        status = report_status([recipe_row("bf16", rate)])
        status["hardware"] |= {"pool": "other", "product": "H100"}
        return report_object("o1", status=status, resourceVersion=str(version))

    store.see(REPORT_PLURAL, elsewhere(1.0, 100))
    before = build(store.view())
    store.see(REPORT_PLURAL, elsewhere(1.1, 200))
    after = build(store.view(), 1, before)
    same = {labels[2] for labels in before.pools if after.pools.get(labels) is before.pools[labels]}
    assert same == {"NVIDIA-GB200"}
    assert {group for group in after.groups if after.groups[group] is before.groups[group]}
    assert after.text == build(store.view()).text


def test_a_node_that_became_slow_has_its_standing_shown_although_its_own_report_is_the_same() -> None:
    def status(rate: float) -> dict[str, Any]:
        return report_status([recipe_row("bf16", rate)])

    store = fleet_store([])
    for number, node in enumerate(NODES[:9]):
        store.see(REPORT_PLURAL, report_object(node, status=status(0.96 + number / 100000)))
    before = build(store.view())
    assert b'precision_node_slow{node="gb200-0000"' in before.text
    assert b" 1.0\n" not in b"".join(row for row in before.text.splitlines(True) if b"node_slow{" in row)
    for node in NODES[1:9]:
        store.see(REPORT_PLURAL, report_object(node, status=status(1.2), resourceVersion="200"))
    slow = [row for row in build(store.view(), 1, before).text.splitlines() if b"node_slow{" in row and b" 1.0" in row]
    assert [b'node="gb200-0000"' in row for row in slow] == [True]


@pytest.mark.parametrize(
    ("level", "shown", "hidden"),
    TABLES["levels"],
)
def test_the_level_decides_which_families_are_shown(level: Level, shown: list[str], hidden: list[str]) -> None:
    text = build(fleet_store(NODES[:5], level).view(), 0 if level == "pool" else 1).text.decode()
    assert all(f"# TYPE {name} " in text for name in shown)
    assert not any(name in text for name in hidden)


@pytest.mark.parametrize(
    ("size", "told"),
    TABLES["limits"],
)
def test_a_body_that_nears_the_limit_says_how_many_shards_it_takes(size: int, told: str | None) -> None:
    body = build(fleet_store(NODES).view())
    (shard,) = body.shards
    full = replace(shard, packed=replace(shard.packed, size=size))
    body = replace(body, shards=(full,), served=replace(body.served, wanted_bytes=size))
    warning = size_warning(body)
    assert (warning or "").startswith(told or "")
    assert (warning is None) == (told is None)
    if warning:
        assert "Raise --shards (exporter.shards in the chart) from 1 to" in warning
        assert body.served.shards_needed in (2, 3)


async def test_a_warning_is_logged_before_a_scrape_fails_and_sizes_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    long = "x" * 250
    store = Store()
    rows = [recipe_row(recipe) for recipe in ("bf16", "fp8_current", "fp8_delayed", "fp8_block", "mxfp8", "nvfp4")]
    for number in range(600):
        status = report_status(rows, workload=long)
        status["hardware"]["pool"] = long
        store.see(REPORT_PLURAL, report_object(f"n{number}{'y' * 200}", namespace=long, status=status))
    own = OwnMetrics()
    scrapes = Scrapes(store, own, 1)
    with caplog.at_level(logging.WARNING):
        await scrapes.shard(0, zipped=True)
        await scrapes.shard(0, zipped=True)
    assert len(caplog.records) == 1
    assert "Raise --shards" in caplog.text
    sizes = [line for line in own.text().decode().splitlines() if line.startswith("precision_exporter_body_bytes")]
    assert float(sizes[1].split()[-1]) > 0.8 * LIMIT_BYTES
