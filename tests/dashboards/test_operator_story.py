"""The made-up operator of the lab speaks in the real operator's names."""

from __future__ import annotations

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
