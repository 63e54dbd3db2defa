"""History for the lab's Prometheus: rules in their order, and samples as a scrape would have labelled them."""

from __future__ import annotations

import re

from precision_lab.monitoring.backfill import levels
from precision_lab.monitoring.prometheus import PrometheusSettings, Target, configuration
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
