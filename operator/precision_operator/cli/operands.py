"""The two sides of a comparison, from saved files or from reports and what they remember of older runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from precision_api.exchange.request import attention_recipe, step_words
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.json_text import first_wrong
from precision_api.facts.names import REPORT_KIND, grouped
from precision_api.kinds.report import ReportPast, ReportRun, ReportStatus
from precision_operator.cli.results import finished, pool_of, reading_of
from precision_operator.cli.saved import objects
from precision_operator.core.observe.kept_report import driver_of
from precision_operator.core.observe.observed import ReportView
from precision_operator.core.observe.views import report_view
from precision_operator.core.results.pool import population
from precision_operator.core.results.reading import Reading, number
from precision_operator.core.results.sides import ComparedFigure, Point, Setting, Side, same_driver
from precision_operator.report.facts import reading_of_result

OPERANDS = ("profile", "pool", "driver", "run", "node")
_KEPT_BY: Mapping[str, Callable[[ReportView], str]] = {
    "profile": lambda report: report.profile,
    "pool": pool_of,
    "node": lambda report: report.node_name,
}


def names_of(reports: Sequence[ReportView], profiles: Iterable[str]) -> dict[str, list[str]]:
    """What may be compared, by kind."""
    pasts = [past for report in reports if report.status for past in report.status.history]
    drivers = [driver_of(report.status) for report in reports] + [past.driver for past in pasts]
    runs = [report.status.run.run for report in reports if report.status and report.status.run]
    return {
        "profile": list(profiles),
        "pool": _distinct(pool_of(report) for report in reports),
        "driver": _distinct(drivers),
        "run": _distinct([*runs, *(past.run for past in pasts)]),
        "node": _distinct(report.node_name for report in reports),
    }


def full_name(text: str, reports: Sequence[ReportView]) -> str:
    """`pool/GB200` with the pool's own name, where it is the only pool of that product; all else as it is given."""
    prefix, _, product = text.partition("/")
    hardware = [report.status.hardware for report in reports if report.status and report.status.hardware]
    pools = {gpus.pool for gpus in hardware if gpus.product == product}
    exists = any(gpus.pool == product for gpus in hardware)
    return f"pool/{pools.pop()}" if prefix == "pool" and len(pools) == 1 and not exists else text


def _distinct(names: Iterable[str | None]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]


def side_of(kind: str, name: str, reports: Sequence[ReportView]) -> Side:
    """The points of one side. A driver or a run that is over is found in the reports' history."""
    if kind in ("driver", "run"):
        points = [_then(report, kind, name) for report in reports]
        return Side(f"{kind} {name}", tuple(point for point in points if point is not None))
    chosen = [report for report in reports if _KEPT_BY[kind](report) == name]
    if kind == "node":
        return Side(f"{kind} {name}", tuple(p for report in chosen if (p := _now(report)) is not None))
    return _of_pools(f"{kind} {name}", chosen)


def _of_pools(name: str, reports: Sequence[ReportView]) -> Side:
    """The nodes that the medians of these pools are of."""
    pools = grouped((pool_of(report), report) for report in reports if finished(report))
    kept = {reading.node for group in pools.values() for reading in population(map(reading_of, group))}
    points = tuple(p for report in reports if report.node_name in kept and (p := _now(report)) is not None)
    out = sum(map(len, pools.values())) - len(kept)
    left = f"{name}: {'1 node is' if out == 1 else f'{out} nodes are'} left out: out of date, or of another workload"
    return Side(name, points, (left,) if out else ())


def _now(report: ReportView) -> Point | None:
    return _point(reading_of(report))


def _then(report: ReportView, kind: str, name: str) -> Point | None:
    """The newest result of that driver or run: the report's own figures, else what it remembers of an older run."""
    status = report.status
    if status is None:
        return None
    newest = status.run.run if status.run else None
    current = driver_of(status) if kind == "driver" else newest
    if current is not None and _same(kind, current, name):
        return _now(report)
    for past in status.history:
        current = past.driver if kind == "driver" else past.run
        if current is not None and past.outcome == "succeeded" and _same(kind, current, name):
            return _now(report) if past.run == newest else _past_point(report.node_name, past, status)
    return None


def _same(kind: str, value: str, name: str) -> bool:
    return value == name or (kind == "driver" and same_driver(value, name))


def _past_point(node: str, past: ReportPast, status: ReportStatus) -> Point | None:
    """An older run as the report remembers it; None where it remembers no rate.

    It remembers that the run was throttled, and not with which recipe.
    """
    error, joules, throttled = number(past.rate_error), past.recipe_tokens_per_joule, bool(past.throttled)
    figures = tuple(
        ComparedFigure(recipe, float(rate), error, number(joules.get(recipe)), throttled)
        for recipe, rate in past.recipe_tokens_per_second.items()
    )
    newest = status.run
    alike = newest is not None and newest.workload_hash == past.workload_hash
    setting = Setting(
        driver=past.driver,
        software=past.stack_hash,
        workload=_workload(newest) if alike else past.workload_hash,
        data=past.data,
    )
    return Point(node, setting, figures) if figures else None


def _point(reading: Reading) -> Point | None:
    figures = tuple(
        ComparedFigure(
            recipe=row.recipe,
            rate=row.tokens_per_second,
            error=row.error,
            tokens_per_joule=row.tokens_per_joule,
            throttled=row.throttled,
            power_scope=row.power_scope,
            layers_bf16=row.last_layers_bf16,
            teraflops_per_gpu=row.teraflops_per_gpu,
        )
        for row in reading.usable_rows
        if row.tokens_per_second
    )
    return Point(reading.node, setting_of(reading), figures) if figures else None


def setting_of(reading: Reading) -> Setting:
    """What a report's figures were measured under."""
    hardware, software, run = reading.hardware, reading.software, reading.run
    limit = "limit unknown" if hardware is None or hardware.limit_watts is None else f"{hardware.limit_watts} W"
    return Setting(
        hardware=f"{hardware.pool}, {hardware.gpus} x {hardware.product}, {limit}" if hardware else None,
        driver=reading.driver,
        software=(software.stack_hash or software.transformer_engine) if software else None,
        workload=_workload(run),
        method=_method(run) if run else None,
        data=reading.data,
    )


def _method(run: ReportRun) -> str:
    kept = f", attention in {attention_recipe(run.baseline, run.timing)}" if run.scope == "mlp" else ""
    return ", ".join((f"{run.backend}, scope {run.scope}{kept}", *step_words(run.timing)))


def _workload(run: ReportRun | None) -> str | None:
    return f"{run.workload or 'unnamed'} ({run.workload_hash})" if run else None


def saved_side(path: str) -> Side:
    """Reports as kubectl saves them, or full results as precision-agent saves them. ValueError where it is neither."""
    documents = objects(path)
    points: dict[str, tuple[str, Point]] = {}
    for item in documents:
        newest = _saved(path, item)
        if newest is not None and (newest[1].node not in points or points[newest[1].node][0] <= newest[0]):
            points[newest[1].node] = newest
    return Side(Path(path).name, tuple(point for _, point in points.values()))


def _saved(path: str, item: dict[str, Any]) -> tuple[str, Point] | None:
    """(when, point) of one saved thing."""
    if "schema_version" in item:
        try:
            result = MeasurementResult.model_validate(item)
        except ValidationError as error:
            raise ValueError(f"{path}: the result can't be read: {first_wrong(error)}") from error
        point = _point(reading_of_result(result))
        return (result.finished_at, point) if point else None
    if item.get("kind", REPORT_KIND) != REPORT_KIND:
        raise ValueError(
            f"{path}: it holds {item.get('kind')}; save reports with kubectl get npr -o json, or a result with "
            "precision-agent run --output"
        )
    view = report_view({**item, "metadata": {"name": "", "namespace": "", **(item.get("metadata") or {})}})
    point = _now(view) if view else None
    return (finished(view), point) if view and point else None
