"""The rule file as a whole: valid, generated, safe beside a second exporter, and readable by an old Prometheus."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import promql_parser
import pytest

from precision_lab.builds.binaries import binaries
from precision_lab.pictures.sweeps import sweeps
from precision_operator.core.reasons import REASONS
from precision_operator.exporter.families.table import FAMILIES
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.monitoring import metrics_page, rule_file
from precision_operator.monitoring.alerts import ALERTS, Alert
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS
from precision_operator.monitoring.rules import CLUSTER, GROUPS, HELD, NAMESPACE, RECORDED
from precision_operator.shell.telemetry import Telemetry
from tests.dashboards.promql import expressions
from tests.monitoring.cases import ALIVE
from tests.monitoring.replay import PROMTOOLS, STEP, TARGET, check, input_series, samples

ROOT = Path(__file__).parents[2]
EXPRESSIONS = [(rule.record, rule.expr) for group in GROUPS for rule in group.rules]
ALL = [*EXPRESSIONS, *((alert.name, alert.expr) for alert in ALERTS)]
OVER = r"(?:(?:last|max|min)_over_time\()?"
DEDUPLICATED = re.compile(rf"(?:by \(cluster[^()]*\) \(|on\(cluster[^()]*\) ){OVER}$")
"""What stands before a raw family: by its own labels, or asked only whether it is there."""
PLAIN = re.compile(r"max by \([^()]*\) \((?:last_over_time\()?(\w+)(?:\[12m\]\))?\)")

each_rule = pytest.mark.parametrize(("name", "expr"), ALL, ids=[f"{name}-{i}" for i, (name, _) in enumerate(ALL)])


@each_rule
def test_every_expression_is_promql(name: str, expr: str) -> None:
    assert promql_parser.parse(expr)


@each_rule
def test_every_raw_series_is_read_once_however_many_exporters_are_scraped(name: str, expr: str) -> None:
    for name_in_rule in re.finditer(r"precision_\w+", expr):
        of_operator = name_in_rule.group().startswith("precision_operator_")
        assert of_operator or DEDUPLICATED.search(expr[: name_in_rule.start()]), name_in_rule.group()
    assert not re.search(r"without ?\((?!stat\)|at_most\)|phase\))", expr), "by whatever labels targets have"


def test_every_raw_series_is_one_that_the_exporter_gives() -> None:
    exporters = re.findall(r"^# TYPE (\S+)", OwnMetrics().text().decode(), re.MULTILINE)
    operators = re.findall(r"^# TYPE (\S+)", Telemetry().text().decode(), re.MULTILINE)
    exported = {*(family.name for family in FAMILIES), *exporters, *operators, "precision_exporter_shard_series"}
    read = {series for _, expr in ALL for series in re.findall(r"precision_\w+", expr)}
    assert read - exported == set()


def test_a_rule_reads_only_what_was_recorded_before_it() -> None:
    seen: set[str] = set()
    for name, expr in ALL:
        own_past = {name} if f"last_over_time({name}" in expr else set()
        assert set(re.findall(r"precision:[\w:]+", expr)) <= seen | own_past, name
        seen.add(name)


def test_every_recorded_series_that_an_alert_needs_is_there_at_the_default_level() -> None:
    levels = {family.name: family.level for family in FAMILIES}
    read = {series for _, expr in ALL for series in re.findall(r"precision_(?:node|pool|profile)_\w+", expr)}
    assert {name for name in read if levels.get(name) == "detail"} == set()


@each_rule
def test_no_aggregation_and_no_match_loses_the_cluster_or_the_namespace_of_who_measured(name: str, expr: str) -> None:
    for kept in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expr):
        assert kept.split(", ")[0] == CLUSTER, kept
        assert NAMESPACE in kept.split(", ") or not {"node", "pool", "profile", "fault"} & {*kept.split(", ")}, kept
    assert not re.search(r"\b(?:max|min|sum|count|group|topk|avg)\((?!\s*$)", expr), "aggregates everything away"
    assert not re.search(rf"without ?\([^)]*\b({CLUSTER}|{NAMESPACE})\b", expr)


def test_no_look_back_is_longer_than_what_prometheus_keeps_by_default() -> None:
    spans = {days for _, expr in ALL for days in re.findall(r"\[(\d+)d[\]:]|offset (\d+)d", expr)}
    days = {int(first or second) for first, second in spans}
    assert 0 < max(days) < 15


def test_only_what_a_person_must_do_now_is_critical() -> None:
    assert [alert.name for alert in ALERTS if alert.severity == "critical"] == [
        "PrecisionPoolFarBelowBest",
        "PrecisionPoolThrottled",
    ]


def test_an_alert_with_a_figure_of_a_measurement_says_it_and_where_it_is_from() -> None:
    names = "NodeSlow SilentFallback ThrottledInProfile LossDiverged PowerLimitLow PoolDegraded PoolFarBelowBest "
    measured = {f"Precision{name}" for name in (names + "PoolThrottled EnergyRegression").split()}
    for alert in ALERTS:
        if alert.name in measured:
            assert "$value" in alert.summary, alert.name
            assert "$labels.data" in alert.summary, alert.name
            assert "$labels.data" in alert.description, alert.name


def test_a_reason_that_explains_a_campaign_at_rest_is_one_of_the_table() -> None:
    assert {*HELD.split("|")} - {"StoppedByAdmin"} <= REASONS.keys()


def test_no_group_waits_longer_than_two_minutes() -> None:
    assert {group.interval for group in GROUPS} <= {"1m", "2m"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_words_and_a_runbook_that_says_what_to_look_at_and_what_to_do(alert: Alert) -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {alert.name}\n")[2].partition("\n## ")[0]
    for part in ("**Means.**", "**Look.**", "**Do.**", "**Clears**"):
        assert part in section, part


def test_there_is_no_runbook_for_an_alert_that_is_gone() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [alert.name for alert in ALERTS]


def test_the_page_lists_every_metric_every_recorded_series_and_every_alert() -> None:
    text = metrics_page.page()
    for name in (*(family.name for family in FAMILIES), *RECORDED):
        assert f"| `{name}" in text, name
    for alert in ALERTS:
        assert f"| [{alert.name}](runbooks.md#" in text, alert.name


NODE_OF_A_JOIN = 'node="n1", pool="p", profile="nightly", profile_namespace="ml", workload="w"'
JOINED = {
    f"precision_node_slow{{{NODE_OF_A_JOIN}}}": "1",
    f'precision_node_slowest_gpu_info{{{NODE_OF_A_JOIN}, UUID="GPU-1"}}': "1",
    'kube_node_labels{node="n1", label_topology_kubernetes_io_zone="z2", instance="kube-state-metrics"}': "1",
    'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1", gpu="0", Hostname="n1"}': "84",
    'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-2", gpu="1", Hostname="n1"}': "60",
}
ANSWERS = (
    [{"labels": f'{{{NODE_OF_A_JOIN}, label_topology_kubernetes_io_zone="z2"}}', "value": 1}],
    [{"labels": '{UUID="GPU-1", gpu="0", Hostname="n1", node="n1"}', "value": 84}],
)


@pytest.mark.cluster
def test_the_joins_of_the_page_give_what_it_says(tmp_path: Path, promtool: Path) -> None:
    joins = re.findall(r"```promql\n(.*?)```", metrics_page.page(), re.DOTALL)
    test = {
        "interval": STEP,
        "input_series": [{"series": series, "values": f"{value}x20"} for series, value in JOINED.items()],
        "promql_expr_test": [
            {"expr": join, "eval_time": STEP, "exp_samples": list(answer)}
            for join, answer in zip(joins, ANSWERS, strict=True)
        ],
    }
    code, said = check(promtool, tmp_path, [test], STEP)
    assert code == 0, said


@pytest.mark.cluster
def test_the_minutes_of_other_rules_do_not_count(tmp_path: Path, promtool: Path) -> None:
    others = ("precision:rules_ran", 'precision:program_up{program="exporter",replica="own"}')
    series = ALIVE | dict.fromkeys(others, "_ 1 " * 200)
    up = [
        {"labels": f'precision:program_available_ratio:30m{{program="{name}"}}', "value": 1}
        for name in ("exporter", "operator")
    ]
    test = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": "precision:program_available_ratio:30m", "eval_time": "90m", "exp_samples": up}],
    }
    code, said = check(promtool, tmp_path, [test])
    assert code == 0, said


@pytest.mark.cluster
def test_promtool_finds_nothing_wrong_with_the_rules(promtool: Path) -> None:
    paths = sorted((ROOT / rule_file.PATH).parent.glob("*.yaml"))
    assert ROOT / rule_file.PATH in paths
    command = [promtool, "check", "rules", "--lint=all", "--lint-fatal", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.cluster
def test_promtool_knows_every_function_of_the_dashboards(promtool: Path, tmp_path: Path) -> None:
    panels = {expr for dashboard in DASHBOARDS for _, expr in expressions(dashboard)}
    assert checked(promtool, tmp_path, *panels) == 0


@pytest.mark.cluster
def test_a_function_that_is_too_new_is_found_by_the_old_promtool_alone(tmp_path: Path) -> None:
    codes = {name: checked(binaries([name])[name], tmp_path, "histogram_avg(precision_new)") for name in PROMTOOLS}
    assert codes == {"promtool": 0, "promtool-2.42": 1}


def checked(promtool: Path, folder: Path, *exprs: str) -> int:
    """The exit code of that promtool asked to check rules of these expressions."""
    rules = [{"record": f"precision:test{number}", "expr": expr} for number, expr in enumerate(exprs)]
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "test", "rules": rules}]}))
    return subprocess.run([promtool, "check", "rules", path], capture_output=True, check=False).returncode


@pytest.mark.cluster
@pytest.mark.parametrize("pods", [("a",), ("a", "b")], ids=["one", "two at once"])
def test_a_second_exporter_changes_no_recorded_figure(pods: tuple[str, ...], tmp_path: Path, promtool: Path) -> None:
    body = sweeps(24, 7)[3].body
    totals: Counter[str] = Counter()
    for series, value in samples(body).items():
        totals[series.partition("{")[0]] += float(value)
    expected = {record: totals[plain[1]] for record, expr in EXPRESSIONS if (plain := PLAIN.fullmatch(expr))}
    assert len(expected) > 12
    equal = [{"labels": "{}", "value": 1}]
    looks = [(f"abs(sum({record}) / {value!r} - 1) < bool 1e-9", equal) for record, value in expected.items() if value]
    looks += [('count({__name__=~"precision:.+", instance!=""})', [])]
    targets = [{**TARGET, "instance": f"{pod}:8080", "pod": pod, "container": "exporter"} for pod in pods]
    test = {
        "interval": STEP,
        "input_series": input_series([body], 3, targets),
        "promql_expr_test": [{"expr": e, "eval_time": "1h", "exp_samples": exp} for e, exp in looks],
    }
    code, said = check(promtool, tmp_path, [test], STEP)
    assert code == 0, said
