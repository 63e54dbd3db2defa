"""History for the lab's Prometheus: rules in their order, and samples as a scrape would have labelled them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_lab.monitoring.backfill import Scraped, levels, write_blocks
from precision_lab.monitoring.prometheus import PrometheusSettings, Target, configuration, start_prometheus
from precision_lab.processes.processes import launch
from precision_operator.monitoring.rules import GROUPS


def test_a_rule_is_evaluated_after_all_that_it_reads() -> None:
    known: set[str] = set()
    for level in levels():
        for rule in level:
            assert set(re.findall(r"precision:[a-z0-9_:]+", rule.expr)) <= known | {rule.record}, rule.record
        known |= {rule.record for rule in level}
    assert sum(map(len, levels())) == sum(len(group.rules) for group in GROUPS)


def test_each_path_is_scraped_with_a_shard_of_its_own_that_samples_lose() -> None:
    target = Target("exporter", "127.0.0.1:1", ("/metrics", "/metrics/shard/0"))
    jobs = configuration(PrometheusSettings((target,)))["scrape_configs"]
    assert [job["metrics_path"] for job in jobs] == ["/metrics", "/metrics/shard/0"]
    assert [job["static_configs"][0]["labels"]["shard"] for job in jobs] == ["0", "1"]
    assert all(job["metric_relabel_configs"] == [{"action": "labeldrop", "regex": "shard"}] for job in jobs)
    assert all(job["honor_labels"] for job in jobs)


@pytest.mark.cluster
def test_history_is_found_where_it_was_written(tmp_path: Path) -> None:
    bodies = [Scraped(1e9, b'# HELP a b\na{x="1"} 5\nb 7\n', {"job": "j"}), Scraped(1e9 + 7200, b"b 8\n", {"job": "j"})]
    write_blocks(bodies, 1e9 + 10_800, tmp_path / "data")
    processes = launch()
    try:
        prometheus = start_prometheus(processes, PrometheusSettings(data=tmp_path / "data"))
        (found,) = prometheus.query("a", at=1e9 + 3600)
        assert (dict(found.labels), found.value) == ({"__name__": "a", "job": "j", "x": "1"}, 5)
        assert [one.value for one in prometheus.query("b", at=1e9 + 7200)] == [8]
        assert prometheus.query("a", at=1e9 + 7200) == []
    finally:
        processes.end()


@pytest.mark.cluster
def test_a_bad_query_is_refused_in_prometheus_words(tmp_path: Path) -> None:
    processes = launch()
    try:
        prometheus = start_prometheus(processes)
        with pytest.raises(ValueError, match="parse error"):
            prometheus.query("sum(")
    finally:
        processes.end()
