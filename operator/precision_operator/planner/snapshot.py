"""Reports, profiles and nodes, as the API server gives them, as a fleet. One report is read once: `facts` is small."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from precision_api.names import FRESH
from precision_api.profile import ProfileSpec, Thresholds
from precision_api.report import RecipeReport, ReportHardware, ReportRun, ReportStatus
from precision_api.resolution import resolve
from precision_operator.core.clock import format_time, parse_time
from precision_operator.core.origin import origin
from precision_operator.core.outliers import Measured, judged, synchronous_rate
from precision_operator.planner.fleet import Fleet, NodeFacts, PoolFacts, RateFacts, ResultFacts, WorkloadFacts
from precision_operator.planner.workloads import measured_workload

Raw = Mapping[str, Any]
RACK_LABELS = ("nvidia.com/gpu.clique", "topology.kubernetes.io/rack")
"""NVLink domain first: a block lies within one."""
NAMED = 5
"""Damaged reports that a note names,"""
LONGEST = 150
"""and characters that it spends on each."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What the planner needs of a profile."""

    namespace: str
    name: str
    workload: WorkloadFacts
    slow_node_percent: int = Thresholds().slow_node_percent


def campaign(raw: Raw) -> Campaign | None:
    """A profile; None where its spec can't be read, or its workload lies in a ConfigMap."""
    meta = raw.get("metadata") or {}
    try:
        spec = ProfileSpec.model_validate(raw.get("spec") or {})
        found = resolve(spec.workload)
    except ValueError:
        return None
    return Campaign(
        str(meta.get("namespace", "")),
        str(meta.get("name", "")),
        measured_workload(found),
        spec.thresholds.slow_node_percent,
    )


def racks(nodes: Iterable[Raw]) -> dict[str, str]:
    """By UID of a node, its rack or NVLink domain; empty where no label names one."""
    found = {}
    for raw in nodes:
        meta = raw.get("metadata") or {}
        labels = meta.get("labels") or {}
        found[str(meta.get("uid", ""))] = next((str(labels[key]) for key in RACK_LABELS if key in labels), "")
    return found


def report_facts(raw: Raw) -> bytes:
    """One report as compact JSON, to be read by `fleet_of`; empty where it has no result.

    Fast on purpose, without validation: an operator does this for thousands of reports in its loop. It never raises:
    a report that can't be read becomes the reason why, and no other report suffers from it.
    """
    try:
        return _facts(raw)
    except Exception as error:  # whatever stands in the object: the fleet says which one, and why
        return json.dumps({"report": _named(raw), "problem": f"{type(error).__name__}: {error}"[:LONGEST]}).encode()


def _problem(report: str, error: ValueError) -> str:
    """A damaged report by its name, with the first thing that is wrong."""
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{report} ({text[:LONGEST]})"


def _named(raw: object) -> str:
    """namespace/name of an object of any form."""
    meta = raw.get("metadata") if isinstance(raw, Mapping) else None
    found = meta if isinstance(meta, Mapping) else {}
    return f"{found.get('namespace', '?')}/{found.get('name', '?')}"


def _facts(raw: Raw) -> bytes:
    spec, status, meta = raw.get("spec") or {}, raw.get("status") or {}, raw.get("metadata") or {}
    if not isinstance(spec, Mapping):
        raise TypeError("spec is no mapping")
    if not status.get("run") or not status.get("hardware") or not status.get("results"):
        return b""
    kept = {key: status[key] for key in ("run", "hardware", "results") if key in status}
    kept["conditions"] = [c for c in status.get("conditions") or () if c.get("type") == FRESH]
    return json.dumps([meta.get("namespace"), spec, kept, meta.get("name")], separators=(",", ":")).encode()


def fleet_of(
    reports: Iterable[bytes],
    campaigns: Iterable[Campaign],
    rack_of: Mapping[str, str],
    now: datetime,
    source: str,
) -> Fleet:
    """The fleet of these reports. Those of nodes that `rack_of` does not know are left out, as are damaged ones.

    `notes` names the damaged ones, each with its reason.
    """
    known = {(each.namespace, each.name): each for each in campaigns}
    workloads: dict[str, WorkloadFacts] = {}
    nodes: dict[tuple[str, str], NodeFacts] = {}
    products: dict[str, str] = {}
    told = [_read(json.loads(text), rack_of) for text in reports if text]
    read = [found for found in told if isinstance(found, _Report)]
    problems = [found for found in told if isinstance(found, str)]
    slow = _slow(read, known)
    for report in read:
        try:
            pool, product, node = _node(report, known, rack_of, workloads, slow)
        except ValueError as error:
            problems.append(_problem(f"{report.namespace}/{report.name}", error))
            continue
        products.setdefault(pool, product)
        before = nodes.get((pool, node.name))
        if before is not None:
            larger = node if node.gpus > before.gpus else before
            node = larger.model_copy(update={"results": (*before.results, *node.results)})
        nodes[pool, node.name] = node
    by_pool: dict[str, list[NodeFacts]] = defaultdict(list)
    for (pool, _), node in sorted(nodes.items()):
        by_pool[pool].append(node)
    return Fleet(
        taken_at=format_time(now),
        source=source,
        workloads=tuple(workloads[key] for key in sorted(workloads)),
        pools=tuple(PoolFacts(name=n, product=products[n], nodes=tuple(by_pool[n])) for n in sorted(by_pool)),
        notes=tuple(_unread(sorted(problems))),
    )


def _unread(problems: Sequence[str]) -> Iterator[str]:
    if problems:
        more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        shown = "; ".join(problems[:NAMED])
        yield (
            f"{len(problems)} of the reports can't be read and are left out: {shown}{more}. "
            "Delete such a report, and its node is measured again"
        )


@dataclass(frozen=True, slots=True)
class _Report:
    """One report that has a result and can be read."""

    namespace: str
    name: str
    profile: str
    node: str
    uid: str
    status: ReportStatus
    run: ReportRun
    hardware: ReportHardware

    @property
    def stale(self) -> str:
        """Why the operator calls it out of date; empty when it does not."""
        return next((c.reason for c in self.status.conditions if c.type == FRESH and c.status == "False"), "")


def _read(document: Any, rack_of: Mapping[str, str]) -> _Report | str | None:
    """One report, or why it can't be read, with its name; None where its node is gone or it has no GPUs."""
    if isinstance(document, dict):
        return f"{document['report']} ({document['problem']})"
    namespace, spec, kept, name = document
    uid = str(spec.get("nodeUID", ""))
    if uid not in rack_of:
        return None
    try:
        status = ReportStatus.model_validate(kept)
    except ValidationError as error:
        return _problem(f"{namespace}/{name}", error)
    run, hardware = status.run, status.hardware
    if run is None or hardware is None or not hardware.gpus:
        return None
    owner, node = str(spec.get("profile", "")), str(spec.get("nodeName", ""))
    return _Report(str(namespace), str(name), owner, node, uid, status, run, hardware)


def _slow(read: Iterable[_Report], known: Mapping[tuple[str, str], Campaign]) -> set[tuple[str, str, str]]:
    """(namespace, profile, node) of the slow ones: the decision of kubectl and the alerts, over fresh reports."""
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for report in read:
        if not report.stale:
            groups[report.namespace, report.profile].append(Measured(report.node, report.hardware.pool, report.status))
    found = set()
    for key, group in groups.items():
        percent = known[key].slow_node_percent if key in known else Thresholds().slow_node_percent
        found |= {(*key, one.node) for one in judged(group, percent) if one.slow}
    return found


def _node(
    report: _Report,
    known: Mapping[tuple[str, str], Campaign],
    rack_of: Mapping[str, str],
    workloads: dict[str, WorkloadFacts],
    slow: set[tuple[str, str, str]],
) -> tuple[str, str, NodeFacts]:
    """(pool, product, node) of one report; its workload is added to `workloads`. ValueError where it makes no sense."""
    run, hardware = report.run, report.hardware
    parse_time(run.finished_at)
    owner = known.get((report.namespace, report.profile))
    workload = _workload(report.status, owner)
    workloads.setdefault(workload.key, workload)
    result = ResultFacts(
        profile=report.profile,
        workload=workload.key,
        finished_at=run.finished_at,
        provenance=origin(run),
        stale=report.stale,
        slow=(report.namespace, report.profile, report.node) in slow,
        passes=run.passes,
        gpus=hardware.gpus or 1,
        rates=tuple(_rate(row) for row in report.status.results),
    )
    watts = None if hardware.limit_watts is None else float(hardware.limit_watts)
    node = NodeFacts(
        name=report.node,
        gpus=hardware.gpus or 1,
        limit_watts=watts,
        rack=rack_of[report.uid],
        results=(result,),
    )
    return hardware.pool, hardware.product, node


def _workload(status: ReportStatus, owner: Campaign | None) -> WorkloadFacts:
    """The profile's workload; where the profile is gone, what the report says of it: FLOPs and no model."""
    run = status.run
    assert run is not None
    if owner is not None and run.scope == "all":
        return owner.workload
    flops = None if run.training_flops_per_token is None else float(run.training_flops_per_token)
    name = run.workload or run.workload_hash
    if run.scope != "all":
        name = f"{name} ({run.scope} layers only)"
    return WorkloadFacts(key=f"report-{run.workload_hash}-{run.scope}", name=name, flops_per_token=flops)


def _rate(row: RecipeReport) -> RateFacts:
    rate = synchronous_rate(row)
    return RateFacts(
        recipe=row.recipe,
        verdict=row.verdict,
        synchronous_tokens_per_second=rate if rate else None,
        error=None if row.tokens_per_second_error is None else min(abs(float(row.tokens_per_second_error)), 0.99),
        watts=None if row.power_invalid else _positive(row.watts),
        power_scope=row.power_scope,
        power_invalid=row.power_invalid,
        throttled=row.throttled_share is not None,
    )


def _positive(text: str | None) -> float | None:
    value = None if text is None else float(text)
    return value if value is not None and value > 0 else None
