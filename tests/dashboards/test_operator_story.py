"""The made-up operator of the lab speaks in the real operator's names."""

from __future__ import annotations

from itertools import pairwise

from precision_lab.pictures.operator_story import Campaign
from precision_operator.shell.telemetry import Telemetry

CAMPAIGN = Campaign(nodes=200, begin=1e9)
PARTS = ("_bucket", "_sum", "_count")


def samples(at: float) -> dict[str, float]:
    """Series to value."""
    lines = CAMPAIGN.text(at).decode().splitlines()
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def test_every_family_is_one_that_the_operator_has() -> None:
    real = {line.split()[2] for line in Telemetry().text().decode().splitlines() if line.startswith("# TYPE")}
    for series in samples(1e9):
        name = series.partition("{")[0]
        family = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
        assert family in real


def test_counters_only_grow() -> None:
    moments = [samples(1e9 + minute * 60) for minute in range(-60, 500, 20)]
    for earlier, later in pairwise(moments):
        for series in earlier:
            if "_total" in series or "_count" in series or "_bucket" in series:
                assert later[series] >= earlier[series], series


def test_a_campaign_takes_every_node_from_the_queue_once() -> None:
    during, after = samples(1e9 + 3 * 3600), samples(1e9 + 7 * 3600)
    assert during['precision_operator_queue_nodes{state="queued"}'] == 96
    assert during['precision_operator_queue_nodes{state="running"}'] == 4
    assert after['precision_operator_queue_nodes{state="succeeded"}'] == 200
    assert sum(value for series, value in after.items() if 'result="succeeded"' in series) == 200
