"""Rules and dashboards in the chart: what is rendered is what lies in `files`, braces and all."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_lab.builds.binaries import binaries
from precision_operator.monitoring.alerts import ALERTS, THRESHOLDS, runbook
from tests.monitoring.replay import PROMTOOLS, check
from tests.monitoring.test_alerts import CASES
from tests.support.golden import beside
from tests.support.helm import CHART, KUBERNETES, Helm, Manifest, of_kind

TABLES = beside(__file__)

ALL = {"rules": {"enabled": True}, "dashboards": {"enabled": True}}
RULES = TABLES["rules"]
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


def test_an_alert_can_be_left_out_or_fire_sooner_with_another_severity(helm: Helm, full: Path) -> None:
    recorded, alerts = groups(helm, full, alerts={"Slow": {"enabled": False}})
    assert recorded == RULES["groups"][0]
    assert [rule["alert"] for rule in alerts["rules"]] == ["Down"]
    _, alerts = groups(helm, full, alerts={"Slow": {"for": "1m", "severity": "critical"}, "Down": {"for": "5m"}})
    slow, down = RULES["groups"][1]["rules"]
    assert alerts["rules"] == [
        slow | {"for": "1m", "labels": {"severity": "critical", "team": "a"}},
        down | {"for": "5m"},
    ]


def by_name(helm: Helm, **values: Any) -> dict[str, dict[str, Any]]:
    rules = [rule for of in groups(helm, CHART, **values) for rule in of["rules"]]
    return {rule.get("alert") or rule.get("labels", {}).get("fault") or rule["record"]: rule for rule in rules}


def test_each_threshold_of_an_alert_can_be_another_one_and_only_there(helm: Helm) -> None:
    chosen = {name: {"threshold": 0.123} for name in THRESHOLDS}
    before, after = by_name(helm), by_name(helm, alerts=chosen)
    changed = {name for name in before if before[name]["expr"] != after[name]["expr"]}
    assert changed == {*chosen, "precision:node_story", "precision:pool_degraded"}
    assert " > 0.123 unless " in after["precision:node_story"]["expr"], "no lower one is counted among many nodes"
    assert re.search(r" < bool 0\.123\)$", after["precision:pool_degraded"]["expr"])
    for name in chosen:
        assert re.search(r"[<>+] 0\.123( |\)|$)", after[name]["expr"])
        assert after[name]["annotations"]["threshold"] == "0.123"
    texts = {name: re.findall(r'"([\d.]+)" \|', after[name]["annotations"]["description"]) for name in chosen}
    assert {name for name, told in texts.items() if told == ["0.123"]} == {
        "PrecisionProfileStale",
        "PrecisionExporterNearLimit",
    }
    own = by_name(helm, alerts={"PrecisionEnergyRegression": chosen["PrecisionEnergyRegression"]})
    for of, mask in ((own, "0.97"), (after, "0.123")):
        assert f"({mask} > precision:pool_degradation_ratio)" in of["PrecisionEnergyRegression"]["expr"]
    assert " or 0.123 > quantile" in after["PrecisionPoolDegraded"]["expr"], "where the other one begins this one ends"
    none = helm.run({"rules": {"enabled": True, "alerts": {"PrecisionNodeFailed": {"threshold": 1}}}}, CHART)
    assert "rules.alerts.PrecisionNodeFailed.threshold: this alert has no annotation of that name" in none.stderr


def test_a_ruler_of_many_clusters_reads_what_is_selected_keeps_more_labels_and_knows_whom_to_expect(
    helm: Helm, tmp_path: Path
) -> None:
    jobs = 'job=~"precision-(operator|exporter)"'
    values: dict[str, Any] = {
        "rules": {"enabled": True, "selector": jobs, "keepLabels": ["datacenter"], "clusters": ["dc1", "dc2"]},
        "clusterLabel": "region",
    }
    values["rules"] |= {
        "alertLabels": {"team": "a", "severity": "none"},
        "alertAnnotations": {"summary": "x", "wiki": "w"},
    }
    values["rules"] |= {"alerts": {"PrecisionNodeSlow": {"keepFiringFor": "1h"}}, "annotations": {"k": "v"}}
    command = [str(helm.program), "template", "rules", str(CHART), "--show-only", "templates/monitoring.yaml"]
    done = subprocess.run(
        [*command, f"--kube-version={KUBERNETES}", "--values=-"],
        input=json.dumps(values),
        text=True,
        capture_output=True,
    )
    (rule,) = (item for item in yaml.load_all(done.stdout, yaml.CSafeLoader) if item)
    rules = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    read = [found for one in rules for found in re.findall(r"\bprecision_\w+(.{0,42})", one["expr"])]
    assert len(read) > 40
    assert all(found.startswith(f"{{{jobs}") for found in read)
    kept = [one["expr"] for one in rules if one.get("alert") != "PrecisionClusterMissing"]
    assert all(not re.search(r"\b(region|cluster)\b(?!, datacenter)", expr) for expr in kept)
    expected = [one["labels"] for one in rules if one.get("record") == "precision:cluster_expected" and "labels" in one]
    assert expected == [{"region": "dc1"}, {"region": "dc2"}]
    (slow,) = (one for one in rules if one.get("alert") == "PrecisionNodeSlow")
    assert (slow["keep_firing_for"], rule["metadata"]["annotations"]) == ("1h", {"k": "v"})
    assert slow["labels"] == {"severity": "warning", "owner": "hardware", "team": "a"}
    assert slow["annotations"]["wiki"] == "w"
    assert "trains at" in slow["annotations"]["summary"], "an alert's own words come before"
    shown = json.dumps(of_kind(rendered(helm, CHART, **values), "ConfigMap"))
    aggregated = re.findall(r"\b(?:by|on) ?\((?:le, )?(?:region|cluster)\b(.{12})", shown)
    assert set(aggregated) == {", datacenter"}
    assert len(aggregated) > 140
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    for promtool in PROMTOOLS:
        command = [str(binaries([promtool])[promtool]), "check", "rules", str(tmp_path / "rules.yaml")]
        subprocess.run(command, check=True, capture_output=True)


def test_a_selector_stands_in_every_rule_as_it_is(helm: Helm) -> None:
    selector = 'cluster="eu", job=~"a$1|b$"'
    before, after = by_name(helm, keepLabels=["dc"]), by_name(helm, keepLabels=["dc"], selector=f"{selector}, ")
    taken_out = {name: after[name]["expr"].replace(f"{{{selector}}}", "") for name in after}
    assert {name: expr.replace(f"{selector}, ", "") for name, expr in taken_out.items()} == {
        name: rule["expr"] for name, rule in before.items()
    }


def test_an_alert_that_is_left_out_silences_no_other_one(helm: Helm, tmp_path: Path) -> None:
    stands_for = {
        "PrecisionManyNodes": ("PrecisionManyNodes", "PrecisionNodeSlow", 5),
        "PrecisionPoolFarBelowBest": ("PrecisionPoolFarBelowBest", "PrecisionPoolDegraded", 1),
        "PrecisionPoolThrottled": ("cooling that fails on ever more nodes", "PrecisionThrottledInProfile", 12),
        "PrecisionSilentFallback": (
            "a slow node on which a recipe fell back: it has that alert alone",
            "PrecisionNodeSlow",
            1,
        ),
        "PrecisionProfileFailing": ("many nodes that fail: their profile is the story", "PrecisionNodeQuarantined", 1),
    }
    left = groups(helm, CHART, alerts={name: {"enabled": False} for name in stands_for})
    kept = ("PrecisionEnergyRegression", "PrecisionPoolFarBelowBest")
    others = by_name(helm, alerts={alert.name: {"enabled": alert.name in kept} for alert in ALERTS})
    assert 'fault="none"' in others["throttled"]["expr"], "a node that is slow and a little throttled"
    assert "precision:profile_cannot_go_on" not in others
    assert not re.search(r"slow|diverged|limited|precision:node_failed", others["precision:node_story"]["expr"])
    assert "(0.9 > precision:pool_degradation_ratio)" in others["PrecisionEnergyRegression"]["expr"]
    shown = "".join(path.read_text() for path in CHART.glob("files/dashboards/*"))
    none = groups(helm, CHART, alerts={alert.name: {"enabled": False} for alert in ALERTS})
    recorded = {rule["record"] for group in none for rule in group["rules"]}
    assert {*re.findall(r"precision:[\w:]+", shown)} - recorded == set(), "dashboards read it still"
    speaks = [
        {"labels": f'{{alertname="{alert}", cluster="{cluster}"}}', "value": count}
        for cluster, alert, count in stands_for.values()
    ]
    clusters = {cluster for cluster, _, _ in stands_for.values()}
    test = {
        "interval": "1m",
        "input_series": [series for case in CASES if case.cluster in clusters for series in case.input_series()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname, cluster) (ALERTS{alertstate="firing"})',
                "eval_time": "100m",
                "exp_samples": speaks,
            }
        ],
    }
    code, said = check(binaries(["promtool"])["promtool"], tmp_path, [test], rule_text=json.dumps({"groups": left}))
    assert code == 0, said
    seldom = groups(helm, CHART, alerts={"PrecisionThrottledInProfile": {"threshold": 0.5}})
    (hot,) = (case for case in CASES if case.cluster == "cooling that fails on ever more nodes")
    test |= {"input_series": hot.input_series(), "promql_expr_test": hot.looks()}
    code, said = check(binaries(["promtool"])["promtool"], tmp_path, [test], rule_text=json.dumps({"groups": seldom}))
    assert code == 0, said


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
    assert {key for told in shipped.values() for key in told} == {"summary", "description", "threshold"}
    assert {runbook(alert.name, wiki) for alert in ALERTS} == {told["runbook_url"] for told in linked.values()}


def test_another_label_can_name_the_cluster(helm: Helm) -> None:
    shipped, changed = (rendered(helm, CHART, **values) for values in ({}, {"clusterLabel": "region"}))
    before, after = (json.dumps(of_kind(found, "PrometheusRule", "ConfigMap")) for found in (shipped, changed))
    assert "by (cluster, profile_namespace" in before
    assert "$labels.cluster $externalLabels.cluster" in before
    assert re.findall(r"\bcluster\b(?! \{\{ \. )", after) == [], "words of alerts may say cluster, labels may not"
    assert after.replace("region", "cluster") == before


def test_an_unknown_alert_or_an_address_that_is_none_is_refused(helm: Helm, full: Path) -> None:
    assert "rules/runbooks" in helm.run(ALL | {"rules": {"enabled": True, "runbooks": "docs/x"}}, CHART).stderr
    done = helm.run({"rules": {"alerts": {"Slowly": {}}}}, full)
    assert "rules.alerts.Slowly: the chart has no alert of that name. It has: Down, Slow." in done.stderr


def test_without_files_nothing_is_rendered(helm: Helm, tmp_path: Path) -> None:
    empty = shutil.copytree(CHART, tmp_path / "chart", ignore=shutil.ignore_patterns("rules", "dashboards"))
    assert of_kind(rendered(helm, empty), "PrometheusRule", "ConfigMap") == []


def test_the_charts_own_rules_and_dashboards_are_rendered_as_they_lie_there(helm: Helm) -> None:
    objects = rendered(helm, CHART)
    rules = {path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in CHART.glob("files/rules/*.yaml")}
    dashboards = {path.name: json.loads(path.read_text()) for path in CHART.glob("files/dashboards/*.json")}
    assert [item["spec"] for item in of_kind(objects, "PrometheusRule")] == [rules[name] for name in sorted(rules)]
    shown = [item["data"] for item in of_kind(objects, "ConfigMap")]
    assert {name: json.loads(text) for data in shown for name, text in data.items()} == dashboards
