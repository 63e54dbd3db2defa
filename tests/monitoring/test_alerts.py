"""Each alert fires for what it is there for, stays quiet for what looks like it, and clears, by an old promtool too."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from precision_operator.exporter.families.table import FAMILIES
from precision_operator.monitoring.alerts import ALERTS, runbook
from precision_operator.monitoring.rule_file import text
from tests.monitoring.calm import QUIET
from tests.monitoring.cases import world
from tests.monitoring.clearing import FIRES_AND_CLEARS
from tests.monitoring.findings import REVIEWED, TURNED_OFF_TOO_SOON
from tests.monitoring.replay import alerting, check, samples
from tests.monitoring.series import named
from tests.monitoring.stale_markers import AS_PROMETHEUS_SEES_IT
from tests.monitoring.story import OPERATOR_TEXT

AS_THE_REVIEW_FOUND_THEM = named(REVIEWED | TURNED_OFF_TOO_SOON | AS_PROMETHEUS_SEES_IT)
"""The review's findings. In the names of their time each of them failed; the case of the words is below."""
CASES = (*FIRES_AND_CLEARS, *AS_THE_REVIEW_FOUND_THEM, *QUIET)


@pytest.mark.cluster
@pytest.mark.parametrize("step", sorted({case.step for case in CASES}))
def test_each_alert_fires_after_its_time_clears_and_stays_quiet_for_what_looks_like_it(
    step: int, tmp_path: Path, promtool_of_long_tests: Path
) -> None:
    cases = [case for case in CASES if case.step == step]
    code, said = check(promtool_of_long_tests, tmp_path, [world(cases)], f"{step}m", alerting())
    assert code == 0, said


def without_descriptions(rules: str) -> str:
    """The rule file without descriptions, which promtool would want word by word."""
    made = json.loads(rules)
    for rule in made["groups"][-1]["rules"]:
        del rule["annotations"]["description"]
    return json.dumps(made)


@pytest.mark.cluster
def test_each_alert_has_all_its_labels_and_its_words(tmp_path: Path, promtool_of_long_tests: Path) -> None:
    for step, every in {case.step: f"{max(4, case.step)}m" for case in CASES}.items():
        tests = [case.words() for case in FIRES_AND_CLEARS if case.step == step]
        code, said = check(promtool_of_long_tests, tmp_path, tests, every, without_descriptions(alerting()))
        assert code == 0, said


@pytest.mark.cluster
def test_the_description_names_node_cluster_figure_and_provenance(tmp_path: Path, promtool: Path) -> None:
    (case,) = (case for case in FIRES_AND_CLEARS if case.name == "simulated node")
    description = (
        "Node n1 of pool gb200 in cluster simulated node (ml/moe) gives 80% of the median of its peers (same pool, "
        "GPUs, power limit, driver, software and workload), and neither throttling nor a fallback explains it. "
        "Figures: simulated."
    )
    code, said = check(promtool, tmp_path, [case.words(description=description)], rule_text=alerting())
    assert code == 0, said


@pytest.mark.cluster
def test_an_external_label_names_the_cluster_where_the_series_do_not(tmp_path: Path, promtool: Path) -> None:
    (case,) = (case for case in FIRES_AND_CLEARS if case.alert == "NoLeader")
    test = json.loads(json.dumps(case.words()).replace(', cluster=\\"PrecisionNoLeader\\"', ""))
    del test["alert_rule_test"][0]["exp_alerts"][0]["exp_labels"]["cluster"]
    test["external_labels"] = {"cluster": "PrecisionNoLeader"}
    code, said = check(promtool, tmp_path, [test], rule_text=without_descriptions(alerting()))
    assert code == 0, said


def test_the_series_of_all_cases_have_names_and_labels_of_the_real_programs() -> None:
    labels = {family.name: {*family.labels} for family in FAMILIES}
    labels |= {series.partition("{")[0]: labels_of(series) for series in samples(OPERATOR_TEXT)}
    for case in CASES:
        for series in case.series:
            name = series.partition("{")[0]
            assert name.startswith(("precision_exporter_", "precision:")) or labels_of(series) <= labels[name] | {
                "pod",
                "job",
                "replica",
            }, series


def labels_of(series: str) -> set[str]:
    return set(re.findall(r'(\w+)="', series))


def test_every_alert_has_a_case_that_it_fires_and_clears_and_one_that_it_stays_quiet() -> None:
    names = {alert.name for alert in ALERTS}
    assert {case.alertname for case in FIRES_AND_CLEARS} == names
    assert {case.alertname for case in QUIET} == names
    assert all(case.fires and case.quiet for case in FIRES_AND_CLEARS)
    assert max(Counter(case.cluster for case in CASES).values()) == 1


def test_an_address_can_be_put_before_the_runbooks_and_all_waits_be_shortened() -> None:
    changed = text(runbooks="https://wiki.example.com/gpu", lasts="15s", interval="5s")
    assert f'runbook_url: "{runbook("PrecisionNodeSlow", "https://wiki.example.com/gpu")}"' in changed
    assert changed.count('for: "15s"') == len(ALERTS)
    assert "runbook_url" not in text()
