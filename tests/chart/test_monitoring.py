"""Rules and dashboards in the chart: what is rendered is what lies in `files`, braces and all."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_operator.monitoring.alerts import ALERTS, runbook
from tests.support.helm import CHART, Helm, Manifest, of_kind

ALL = {"rules": {"enabled": True}, "dashboards": {"enabled": True}}
BRACES = '{{ $labels.node }} runs at {{ $value | humanizePercentage }}: {{ `x` }} {{ fail "evaluated" }}'
RULES: dict[str, Any] = {
    "groups": [
        {"name": "fleet", "interval": "1m", "rules": [{"record": "precision:nodes", "expr": 'count(x{a="b"})'}]},
        {
            "name": "alerts",
            "rules": [
                {"alert": "Slow", "expr": "x > 0", "for": "1h", "labels": {"severity": "warning", "team": "a"}},
                {"alert": "Down", "expr": "absent(x)", "annotations": {"summary": BRACES}},
            ],
        },
    ]
}
DASHBOARD = {"title": "Fleet", "panels": [{"targets": [{"legendFormat": "{{pool}}"}]}], "description": 'a "b"\n%s \\d'}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A copy of the chart with a rule file and a dashboard of this test's own, and no others."""
    copy = shutil.copytree(CHART, tmp_path / "chart", ignore=shutil.ignore_patterns("rules", "dashboards"))
    for name, text in (("rules/alerts.yaml", yaml.safe_dump(RULES)), ("dashboards/fleet.json", json.dumps(DASHBOARD))):
        (copy / "files" / name).parent.mkdir()
        (copy / "files" / name).write_text(text)
    return copy


def rendered(helm: Helm, chart: Path, **values: Any) -> list[Manifest]:
    done = helm.run(ALL | values, chart)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.load_all(done.stdout, yaml.CSafeLoader) if item]


def groups(helm: Helm, chart: Path, **rules: Any) -> list[dict[str, Any]]:
    [rule] = of_kind(rendered(helm, chart, rules={"enabled": True, **rules}), "PrometheusRule")
    return list(rule["spec"]["groups"])


def test_braces_of_rules_and_dashboards_are_not_evaluated(helm: Helm, full: Path) -> None:
    objects = rendered(helm, full)
    [rule], [dashboard] = of_kind(objects, "PrometheusRule"), of_kind(objects, "ConfigMap")
    assert rule["spec"] == RULES
    assert json.loads(dashboard["data"]["fleet.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert [rule["metadata"]["name"], dashboard["metadata"]["name"]] == ["fleet-rules-alerts", "fleet-dashboard-fleet"]


def test_an_alert_can_be_left_out(helm: Helm, full: Path) -> None:
    recorded, alerts = groups(helm, full, alerts={"Slow": {"enabled": False}})
    assert recorded == RULES["groups"][0]
    assert [rule["alert"] for rule in alerts["rules"]] == ["Down"]


def test_an_alert_can_fire_sooner_and_with_another_severity(helm: Helm, full: Path) -> None:
    _, alerts = groups(helm, full, alerts={"Slow": {"for": "1m", "severity": "critical"}, "Down": {"for": "5m"}})
    slow, down = RULES["groups"][1]["rules"]
    assert alerts["rules"] == [
        slow | {"for": "1m", "labels": {"severity": "critical", "team": "a"}},
        down | {"for": "5m"},
    ]


def test_alerts_link_to_the_runbooks_where_people_can_open_them_and_nowhere_without_an_address(helm: Helm) -> None:
    wiki = "https://wiki.example.com/runbooks.md"
    linked, shipped = (
        {
            rule["alert"]: rule["annotations"]
            for group in groups(helm, CHART, **values)
            for rule in group["rules"]
            if "alert" in rule
        }
        for values in ({"runbooks": wiki}, {})
    )
    assert linked == {name: told | {"runbook_url": runbook(name, wiki)} for name, told in shipped.items()}
    assert {key for told in shipped.values() for key in told} == {"summary", "description"}
    assert {runbook(alert.name, wiki) for alert in ALERTS} == {told["runbook_url"] for told in linked.values()}


def test_another_label_can_name_the_cluster(helm: Helm) -> None:
    shipped, changed = (rendered(helm, CHART, **values) for values in ({}, {"clusterLabel": "region"}))
    before, after = (json.dumps(of_kind(found, "PrometheusRule", "ConfigMap")) for found in (shipped, changed))
    assert "by (cluster, profile_namespace" in before
    assert "$labels.cluster $externalLabels.cluster" in before
    assert re.findall(r"\bcluster\b(?! \{\{ \. )", after) == [], "words of alerts may say cluster, labels may not"
    assert after.replace("region", "cluster") == before


def test_an_address_of_runbooks_that_is_none_is_refused(helm: Helm) -> None:
    assert "rules/runbooks" in helm.run(ALL | {"rules": {"enabled": True, "runbooks": "docs/x"}}, CHART).stderr


def test_an_unknown_alert_is_refused_with_those_that_there_are(helm: Helm, full: Path) -> None:
    done = helm.run({"rules": {"alerts": {"Slowly": {}}}}, full)
    assert "rules.alerts.Slowly: the chart has no alert of that name. It has: Down, Slow." in done.stderr


def test_without_files_nothing_is_rendered(helm: Helm, tmp_path: Path) -> None:
    empty = shutil.copytree(CHART, tmp_path / "chart", ignore=shutil.ignore_patterns("rules", "dashboards"))
    assert of_kind(rendered(helm, empty), "PrometheusRule", "ConfigMap") == []


def test_the_charts_own_rules_and_dashboards_are_rendered_as_they_lie_there(helm: Helm) -> None:
    objects = rendered(helm, CHART)
    rules = {path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in CHART.glob("files/rules/*.yaml")}
    dashboards = {path.name: json.loads(path.read_text()) for path in CHART.glob("files/dashboards/*.json")}
    found = of_kind(objects, "PrometheusRule")
    assert [item["spec"] for item in found] == [rules[name] for name in sorted(rules)]
    shown = [item["data"] for item in of_kind(objects, "ConfigMap")]
    assert {name: json.loads(text) for data in shown for name, text in data.items()} == dashboards
