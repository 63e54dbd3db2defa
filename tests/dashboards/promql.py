"""Reading a dashboard's PromQL: variables replaced by what a reader may choose, and the selectors in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser

from precision_operator.monitoring.dashboards.panel import Dashboard, Panel

EVERYTHING = ".*"
_OPERATORS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


@dataclass(frozen=True)
class Selector:
    """One vector selector: the metric, its matchers as text, and whether the exporters are taken together around it."""

    metric: str
    matchers: str
    deduplicated: bool


def chosen(expr: str, dashboard: Dashboard, **choices: str) -> str:
    """The expression with every variable replaced: by its default, by everything, or by what `choices` says."""
    values = {v.name: choices.get(v.name, v.default or EVERYTHING) for v in dashboard.variables}
    replaced = re.sub(r"\$(\w+)", lambda variable: values[variable.group(1)], expr)
    assert "$" not in replaced, f"a variable that {dashboard.uid} lacks: {replaced}"
    return replaced


def expressions(dashboard: Dashboard) -> Iterator[tuple[Panel, str]]:
    """Each panel with each of its expressions, variables replaced."""
    for panel in dashboard.panels:
        for query in panel.queries:
            yield panel, chosen(query.expr, dashboard)


def selectors(expr: str) -> list[Selector]:
    """All vector selectors. Raises ValueError for what is no PromQL."""
    return list(_walk(promql_parser.parse(expr), False))


def _walk(node: Any, deduplicated: bool) -> Iterator[Selector]:
    kind = type(node).__name__
    if kind == "VectorSelector":
        matchers = [f'{match.name}{_OPERATORS[str(match.op)]}"{match.value}"' for match in node.matchers.matchers]
        yield Selector(node.name, ",".join(matchers), deduplicated)
    elif kind == "MatrixSelector":
        yield from _walk(node.vector_selector, deduplicated)
    elif kind == "AggregateExpr":
        yield from _walk(node.expr, deduplicated or _one_for_all_exporters(node))
    elif kind == "BinaryExpr":
        yield from _walk(node.lhs, deduplicated)
        yield from _walk(node.rhs, deduplicated)
    elif kind in ("ParenExpr", "UnaryExpr", "SubqueryExpr"):
        yield from _walk(node.expr, deduplicated)
    elif kind == "Call":
        for argument in node.args:
            yield from _walk(argument, deduplicated)
    else:
        assert kind in ("NumberLiteral", "StringLiteral"), f"unknown part of PromQL: {kind}"


def _one_for_all_exporters(node: Any) -> bool:
    by = str(node.op) == "max" and node.modifier is not None and str(node.modifier.type).endswith("By")
    return by and not {"instance", "pod", "endpoint", "container"} & set(node.modifier.labels)
