"""docs/scale.md has what was measured, says what was not, and the chart's limits fit it."""

import json
import re

import yaml

from benchmarks.sizes import PAGE, RESULTS, SIZES, page, table
from precision_lab.release.install import CHART
from precision_operator.monitoring.alerts import MEMORY_NEAR

ROWS = json.loads(RESULTS.read_text())


def test_the_page_is_as_the_results_and_says_which_sizes_were_not_run() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text()
    rows = [*table(ROWS[:1])][2:]
    assert [row for row in rows if "not run" not in row] == [row for row in rows if ROWS[0]["commit"] in row] != []
    assert len(rows) >= len(SIZES)


def test_the_charts_limits_hold_up_to_1000_nodes_with_three_profiles() -> None:
    rows = [row for row in ROWS if row["nodes"] <= 1_000 and row["profiles"] <= 3]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for program in ("operator", "exporter"):
        (number, unit) = re.fullmatch(r"(\d+)(Mi|Gi)", values[program]["resources"]["limits"]["memory"]).groups()
        limit = int(number) * {"Mi": 1, "Gi": 1024}[unit]
        assert max(row[f"{program}MiB"] for row in rows) <= float(MEMORY_NEAR) * limit, "the alert stays silent"
