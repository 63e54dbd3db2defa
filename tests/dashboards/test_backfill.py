"""History for the lab's Prometheus: rules in order, samples as a scrape labels them, names that the operator has."""

import re

from precision_lab.monitoring.backfill import levels
from precision_lab.monitoring.prometheus import PrometheusSettings, Target, configuration
from precision_lab.pictures.operator_story import Campaign
from precision_operator.monitoring.rules import GROUPS
from precision_operator.shell.telemetry import Telemetry


def test_a_rule_is_evaluated_after_all_that_it_reads() -> None:
    recorded: set[str] = set()
    for level in levels():
        for rule in level:
            assert set(re.findall(r"precision:[a-z0-9_:]+", rule.expr)) <= recorded | {rule.record}, rule.record
        recorded |= {rule.record for rule in level}
    assert sum(map(len, levels())) == sum(len(group.rules) for group in GROUPS)


def test_each_path_is_scraped_with_a_shard_of_its_own_that_samples_lose() -> None:
    target = Target("exporter", "127.0.0.1:1", ("/metrics", "/metrics/shard/0"))
    jobs = configuration(PrometheusSettings((target,)))["scrape_configs"]
    assert [job["metrics_path"] for job in jobs] == ["/metrics", "/metrics/shard/0"]
    assert [job["static_configs"][0]["labels"]["shard"] for job in jobs] == ["0", "1"]
    assert all(job["metric_relabel_configs"] == [{"action": "labeldrop", "regex": "shard"}] for job in jobs)
    assert all(job["honor_labels"] for job in jobs)


PARTS = ("_bucket", "_sum", "_count")


def samples(at: float) -> dict[str, float]:
    """Series to value."""
    lines = Campaign(nodes=200, begin=1e9).text(at).decode().splitlines()
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def test_every_family_is_one_that_the_operator_has() -> None:
    real = {line.split()[2] for line in Telemetry().text().decode().splitlines() if line.startswith("# TYPE")}
    for series in samples(1e9):
        name = series.partition("{")[0]
        family = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
        assert family in real
