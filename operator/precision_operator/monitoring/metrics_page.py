"""The page that lists every metric, recorded series and alert: text made from the tables that the programs use."""

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from textwrap import fill
from typing import Any

from precision_operator.core.status.reasons_page import table
from precision_operator.exporter.families.family import NODE, POOL_OF, PROFILE, Family
from precision_operator.exporter.families.plan import PLAN
from precision_operator.exporter.families.table import (
    NODE_FAMILIES,
    PLAN_FAMILIES,
    POOL_FAMILIES,
    PROFILE_FAMILIES,
    STANDING_FAMILIES,
)
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.monitoring.alerts import ALERTS, Alert
from precision_operator.monitoring.rules import GROUPS, Recording
from precision_operator.shell.telemetry import Telemetry

PATH = "docs/metrics.md"
LINE = 120
"""Characters of a line of prose."""
_HEAD = resources.files(__package__).joinpath("metrics_page.md").read_text(encoding="utf-8")
_RECORDED = """\
## Recorded series

Made by the rules in the chart. Panels over time read these: they cost the same for 10 and for 10,000 nodes.
"""
_ALERTS = """\
## Alerts

One alert a node, whatever the number of recipes and of profiles. Throttled nodes are silent while
`precision:pool_throttled_ratio:lasting` is there for their pool: then the pool is the story. [Alerting](alerting.md)
says what each severity asks for, how to route them and how to silence a maintenance.
"""


def page() -> str:
    """The page as Markdown."""
    sections = (
        ("Nodes", "On the shards. Figures of the newest result.", NODE, (*NODE_FAMILIES, *STANDING_FAMILIES)),
        ("Pools", "On `/metrics`. Worked out from the newest results of a pool's nodes.", POOL_OF, POOL_FAMILIES),
        ("Profiles", "On `/metrics`.", PROFILE, PROFILE_FAMILIES),
        ("Plans", "On `/metrics`, where the CapacityPlan CRD is installed.", PLAN, PLAN_FAMILIES),
    )
    rules = [rule for group in GROUPS for rule in group.rules]
    parts = (
        _HEAD,
        *(_section(*section) for section in sections),
        "## The exporter itself\n\nOn `/metrics`.\n\n" + _own(OwnMetrics(process=False).text()),
        "## The operator itself\n\nOn the operator's own `/metrics`.\n\n" + _own(Telemetry().text()),
        _RECORDED + "\n" + table(("Series", "Unit", "Made of"), map(_recorded, rules)),
        _ALERTS + "\n" + table(("Alert", "Severity", "After", "What it says"), map(_alert, ALERTS)),
    )
    return "\n".join(parts)


def files() -> dict[str, str]:
    """Path within the repository to text."""
    return {PATH: page()}


def _section(title: str, introduction: str, base: Sequence[str], families: Sequence[Family[Any]]) -> str:
    """The families of one kind of object, with the labels that each has beyond `base`."""
    rows = [
        (f"`{f.name}`", f.stability, f.level, _labels(x for x in f.labels if x not in base), f.unit, _cell(f.help))
        for f in families
    ]
    head = ("Metric", "Stability", "Level", "Further labels", "Unit", "What it is")
    said = fill(f"{introduction} All have the labels {_labels(base)}.", LINE, break_on_hyphens=False)
    return f"## {title}\n\n{said}\n\n{table(head, rows)}"


def _labels(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _own(text: bytes) -> str:
    """Our families of a process, read from what it serves."""
    helps = dict(re.findall(r"^# HELP (precision_\w+) (.*)$", text.decode(), re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (precision_\w+) (\w+)$", text.decode(), re.MULTILINE))
    return table(("Metric", "Type", "What it is"), ((f"`{n}`", kinds[n], _cell(helps[n])) for n in helps))


def _recorded(rule: Recording) -> tuple[str, ...]:
    reads = dict.fromkeys(re.findall(r"precision[_:][\w:]+", rule.expr))
    name = rule.record + "".join(f'{{{label}="{value}"}}' for label, value in rule.labels.items())
    return f"`{name}`", rule.unit, ", ".join(f"`{series}`" for series in reads)


def _alert(alert: Alert) -> tuple[str, ...]:
    link = f"[{alert.name}](runbooks.md#{alert.name.lower()})"
    return link, alert.severity, alert.asks or alert.lasts, _cell(_words(alert.summary))


def _words(template: str) -> str:
    """A Go template for readers: the names of what is put in, without what is only said now and then."""
    always = re.sub(r"\{\{ (?:if|with) .*?\}\}.*?\{\{ end \}\}", "", template)
    return re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}", r"*\1*", always)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
