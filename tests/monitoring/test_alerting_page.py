"""docs/alerting.md against the rules: its Alertmanager configuration routes every alert, by labels that alerts have."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_operator.monitoring.alerts import ALERTS
from tests.monitoring.clearing import FIRES_AND_CLEARS

PAGE = (Path(__file__).parents[2] / "docs" / "alerting.md").read_text(encoding="utf-8")
CONFIGURATION: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
LABELS = {"alertname", "severity", "owner", "cluster", *(label for case in FIRES_AND_CLEARS for label in case.labels)}
"""Labels that alerts have, as promtool holds them against the rules."""
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
OF_A_ROUTE = """
    active_time_intervals continue group_by group_interval group_wait matchers mute_time_intervals receiver
    repeat_interval routes
"""
"""https://prometheus.io/docs/alerting/latest/configuration/#route"""


def routes(route: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield route
    for child in route.get("routes", ()):
        yield from routes(child)


def matchers() -> Iterator[tuple[str, str, str]]:
    """All matchers of the example: label, operator, value."""
    written = [matcher for route in routes(CONFIGURATION["route"]) for matcher in route.get("matchers", ())]
    for rule in CONFIGURATION["inhibit_rules"]:
        written += [*rule["source_matchers"], *rule["target_matchers"]]
    for text in written:
        parts = MATCHER.fullmatch(text)
        assert parts, f"{text} is no matcher"
        yield parts[1], parts[2], parts[3]


def fits(labels: Mapping[str, str], matcher: str) -> bool:
    """Whether Alertmanager's matcher matches; its regular expressions are anchored, an absent label is empty."""
    parts = MATCHER.fullmatch(matcher)
    assert parts
    value = labels.get(parts[1], "")
    equal = re.fullmatch(parts[3], value) is not None if "~" in parts[2] else value == parts[3]
    return equal is not parts[2].startswith("!")


def receiver(labels: Mapping[str, str], route: Mapping[str, Any]) -> str:
    """Who gets an alert: the first child that matches, and its children, else the route's own receiver."""
    for child in route.get("routes", ()):
        if all(fits(labels, matcher) for matcher in child["matchers"]):
            return receiver(labels, {"receiver": route["receiver"], **child})
    return str(route["receiver"])


def test_all_that_the_configuration_refers_to_is_there() -> None:
    named = {receiver["name"] for receiver in CONFIGURATION["receivers"]}
    spans = {interval["name"] for interval in CONFIGURATION["time_intervals"]}
    for route in routes(CONFIGURATION["route"]):
        assert route.keys() <= set(OF_A_ROUTE.split())
        assert route["receiver"] in named
        assert {*route.get("active_time_intervals", ()), *route.get("mute_time_intervals", ())} <= spans
    assert CONFIGURATION.keys() == {"route", "inhibit_rules", "time_intervals", "receivers"}


def test_it_matches_and_groups_by_labels_that_alerts_have() -> None:
    used = {label for label, _, _ in matchers()}
    used |= {label for route in routes(CONFIGURATION["route"]) for label in route.get("group_by", ())}
    used |= {label for rule in CONFIGURATION["inhibit_rules"] for label in rule["equal"]}
    used |= {*re.findall(r"[ `](\w+)=[A-Z]", PAGE)}  # of silences
    assert used <= LABELS
    listed = PAGE.partition("\nLabels: ")[2].partition("For Alertmanager")[0]
    assert {"severity"} < {*re.findall(r"`(\w+)`", listed)} - {"Precision"} <= LABELS


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_goes_to_whom_its_severity_asks_for_and_simulated_ones_to_nobody(alert: Any) -> None:
    whose = {"critical": "on-call", "warning": "fleet-team", "info": "nobody"}
    labels = {"alertname": alert.name, "severity": alert.severity, "cluster": "dc1"}
    assert receiver(labels, CONFIGURATION["route"]) == whose[alert.severity]
    assert receiver(labels | {"data": "measured"}, CONFIGURATION["route"]) == whose[alert.severity]
    assert receiver(labels | {"data": "simulated"}, CONFIGURATION["route"]) == "nobody"


def test_the_page_names_alerts_that_there_are_and_tells_their_severity() -> None:
    severities = {alert.name: alert.severity for alert in ALERTS}
    assert {*re.findall(r"\bPrecision[A-Z]\w+", PAGE)} <= severities.keys()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE, re.MULTILINE))
    assert rows.keys() == {*severities.values()}
    for severity, cell in rows.items():
        listed = {*re.findall(r"`(Precision\w+)`", cell)}
        assert cell == "all others" or listed == {name for name, is_ in severities.items() if is_ == severity}
