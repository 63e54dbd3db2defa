"""The recording rules of rules.yaml, and what its texts and those of alerts.yaml are made of."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from precision_operator.exporter.families.table import FAMILIES

CLUSTER = "cluster"
"""The label that names a cluster; a value of the chart puts another one in its place."""
NAMESPACE = "profile_namespace"
PROFILE = f"{CLUSTER}, {NAMESPACE}, profile"
POOL = f"{PROFILE}, pool"
HARDWARE = f"{CLUSTER}, pool"  # a pool, whatever profile measures it
NODE = f"{POOL}, node"
IN_NAMESPACE = f"{CLUSTER}, {NAMESPACE}, node"
"""A node as one namespace measures it, in whatever pool."""
RECIPE = f"{POOL}, workload, recipe"
INSTALLATION = f"{CLUSTER}, namespace"
"""One installed chart: the namespace is the target's."""

DEGRADED_BELOW = "0.97"
"""Of its best of the last 7 days: three times what a healthy pool's median moves between two sweeps."""
FAR_BELOW = "0.9"
ENERGY_BELOW = "0.97"
FAILING_ABOVE = "0.1"
GAP = "12m"
"""How long a figure may be missing (an exporter that restarts, a scrape that fails) without being given up."""
MOSTLY = "39m"
"""A pool's alert asks for 30 of these minutes, and has no `for`. Odd: figures come every two, none is at the edge."""
REMEMBERED = "14d"
"""How long an installation that has vanished whole is missed: then it counts as taken away."""

DECIDED = "NotDueYet|StoppedByAdmin|Suspended"
"""Reasons for which a profile may wait for ever."""
BUSY = "Busy|KeptForPod|Insufficient.+"
"""Reasons that jobs end by themselves: with the queue, no trouble while nodes are measured."""
HELD = f"FleetLimitReached|FleetPowerReached|LimitOfAnotherProfile|MeasuredByAnotherProfile|WaitsInQueue|{DECIDED}"
"""Reasons for which a whole profile may wait for hours: a decision, or for a day, another's turn."""

_TERMS = {name: text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
"""What the texts may name: each constant above."""
_UNITS = {
    "tokens_per_second": "tokens/s",
    "tokens_per_joule": "tokens/J",
    "watts": "W",
    "seconds": "seconds",
    "ratio": "ratio",
    "nodes": "nodes",
    "bucket": "nodes",
}
Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class Recording:
    """One recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """By its name, for dashboards and docs; empty where it has none."""
        named = re.search("|".join(_UNITS), self.record)
        return _UNITS[named[0]] if named else ""


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated one after the other; `interval` is at most 2m (the look-back is 5m)."""

    name: str
    interval: str
    rules: Sequence[Recording]


_LABELS = {family.name: ", ".join((CLUSTER, *family.labels)) for family in FAMILIES} | {
    "precision_exporter_forbidden": f"{INSTALLATION}, kind",
    "precision_exporter_body_bytes": f"{INSTALLATION}, path",
    "precision_exporter_shard_series": f"{INSTALLATION}, index",
    "precision_fleet_nodes": f"{INSTALLATION}, state",
}
"""Own labels by family; all others of the programs have none beside their installation's."""


def once(selector: str, over: str = GAP) -> str:
    """The newest series of a raw family `over` that time (empty: now), each once, whatever labels its targets add."""
    (family,) = re.findall(r"^\w+", selector)
    return f"max by ({_LABELS.get(family, INSTALLATION)}) ({newest(selector, over)})"


def newest(selector: str, over: str = GAP) -> str:
    """The series with what they were `over` that time: a gap takes nothing away."""
    return f"last_over_time({selector}[{over}])" if over else selector


def read(name: str, **figures: str) -> dict[str, Any]:
    """The YAML file of that name beside this module, its texts with what their terms and `figures` stand for.

    Raises KeyError for a term that nobody defines.
    """
    document: dict[str, Any] = yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    terms = _TERMS | figures
    for term, text in document.pop("terms").items():
        terms[term] = _filled(text, terms)
    filled: dict[str, Any] = _filled(document, terms)
    return filled


def _filled(value: Any, terms: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, terms) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, terms) for item in value]
    text = re.sub(r"<([A-Z_]+)>", lambda term: terms[term[1]], value)
    text = re.sub(r"<once ([^<>]+)>", lambda selector: once(selector[1]), text)
    text = re.sub(r"<now ([^<>]+)>", lambda selector: once(selector[1], over=""), text)
    return re.sub(r"<newest ([^<>]+)>", lambda selector: newest(selector[1]), text)


GROUPS: tuple[RuleGroup, ...] = tuple(
    RuleGroup(name, group["interval"], [Recording(**rule) for rule in group["rules"]])
    for name, group in read("rules.yaml")["groups"].items()
)

RECORDED: tuple[str, ...] = tuple(dict.fromkeys(rule.record for group in GROUPS for rule in group.rules))


def group_document(group: RuleGroup) -> dict[str, Any]:
    """The group as it stands in a rule file."""
    rules = [
        {"record": rule.record, "expr": rule.expr} | ({"labels": dict(rule.labels)} if rule.labels else {})
        for rule in group.rules
    ]
    return {"name": group.name, "interval": group.interval, "rules": rules}
