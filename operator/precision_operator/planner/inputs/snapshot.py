"""Reports, profiles and nodes, as the API server gives them, as a fleet. One report is read once: `facts` is small."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from pydantic import ValidationError

from precision_api.exchange.request import step_words
from precision_api.exchange.result import LossVerdict
from precision_api.facts.json_text import first_wrong
from precision_api.facts.names import FRESH, grouped
from precision_api.facts.plain_text import first_of
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.kinds.profile import ProfileSpec, Thresholds
from precision_api.kinds.report import ReportHardware, ReportRun, ReportStatus
from precision_api.models.workload import resolve
from precision_operator.core.observe.clock import format_time, parse_time
from precision_operator.core.observe.gpu_labels import RACK_LABEL
from precision_operator.core.observe.kept_report import with_shared_field_sets
from precision_operator.core.observe.observed import Raw
from precision_operator.core.results.outliers import Peers
from precision_operator.core.results.pool import population
from precision_operator.core.results.reading import Reading, RecipeRow, number, provenance_of, read
from precision_operator.planner.inputs.fleet import Fleet, FleetNode, PoolFacts, RateFacts, ResultFacts, WorkloadFacts
from precision_operator.planner.inputs.workloads import measured_workload

RACK_LABELS = ("nvidia.com/gpu.clique", RACK_LABEL)
"""NVLink domain first: a block lies within one."""
_PARTS = {"software": ("driver", "stackHash"), "attempt": ("run", "number", "outcome", "reason", "finishedAt")}
"""What is kept of these parts of a report."""
NAMED = 5
"""Damaged reports that a note names,"""
LONGEST = 150
"""and characters that it spends on each."""


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What the planner needs of a profile."""

    namespace: str
    name: str
    workload: WorkloadFacts
    slow_node_percent: int = Thresholds().slow_node_percent


def profile_facts(raw: Raw) -> ProfileFacts | None:
    """A profile; None where its spec can't be read, or its workload lies in a ConfigMap."""
    meta = raw.get("metadata") or {}
    try:
        spec = ProfileSpec.model_validate(raw.get("spec") or {})
        resolved = resolve(spec.workload)
    except ValueError:
        return None
    return ProfileFacts(
        str(meta.get("namespace", "")),
        str(meta.get("name", "")),
        measured_workload(resolved),
        spec.thresholds.slow_node_percent,
    )


def racks(nodes: Iterable[Raw]) -> dict[str, str]:
    """By UID of a node, its rack or NVLink domain; empty where no label names one."""
    by_uid = {}
    for raw in nodes:
        meta = raw.get("metadata") or {}
        labels = meta.get("labels") or {}
        by_uid[str(meta.get("uid", ""))] = next((str(labels[key]) for key in RACK_LABELS if key in labels), "")
    return by_uid


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
    text = first_wrong(error) if isinstance(error, ValidationError) else str(error)
    return f"{report} ({text[:LONGEST]})"


def _named(raw: object) -> str:
    """namespace/name of an object of any form."""
    meta = raw.get("metadata") if isinstance(raw, Mapping) else None
    names = meta if isinstance(meta, Mapping) else {}
    return f"{names.get('namespace', '?')}/{names.get('name', '?')}"


def _facts(raw: Raw) -> bytes:
    spec, status, meta = raw.get("spec") or {}, raw.get("status") or {}, raw.get("metadata") or {}
    if not isinstance(spec, Mapping):
        raise TypeError("spec is no mapping")
    if not status.get("run") or not status.get("hardware") or not status.get("results"):
        return b""
    kept = {key: status[key] for key in ("run", "hardware", "results") if key in status}
    for part, keys in _PARTS.items():
        if status.get(part):
            kept[part] = {key: status[part][key] for key in keys if key in status[part]}
    kept["conditions"] = [c for c in status.get("conditions") or () if c.get("type") == FRESH]
    return json.dumps([meta.get("namespace"), spec, kept, meta.get("name")], separators=(",", ":")).encode()


def fleet_of(
    reports: Iterable[bytes], campaigns: Iterable[ProfileFacts], rack_of: Mapping[str, str], now: datetime, source: str
) -> Fleet:
    """The fleet of these reports. Those of nodes that `rack_of` does not know are left out, as are damaged ones.

    `notes` names the damaged ones, each with its reason.
    """
    profiles = {(profile.namespace, profile.name): profile for profile in campaigns}
    workloads: dict[str, WorkloadFacts] = {}
    nodes: dict[tuple[str, str], FleetNode] = {}
    products: dict[str, str] = {}
    read_reports = [_read(json.loads(text), rack_of) for text in reports if text]
    problems = [problem for problem in read_reports if isinstance(problem, str)]
    readable = deque(report for report in read_reports if isinstance(report, tuple))
    readings = [reading for _, _, reading in readable]
    slow, workload_hashes = _slow(readings, profiles), _workload_hashes(readings)
    del read_reports, readings
    while readable:  # each goes once its node is there
        report, rack, reading = readable.popleft()
        run, hardware, pool = reading.run, reading.hardware, reading.pool
        assert run is not None  # _read leaves out the others
        assert hardware is not None
        profile = (reading.namespace, reading.profile)
        of_its_pool = run.workload_hash == workload_hashes[*profile, pool]
        try:
            parse_time(run.finished_at)
            workload = _workload(run, profiles.get(profile) if of_its_pool else None)
            workloads.setdefault(workload.key, workload)
            node = _node(reading, rack, workload, run, hardware, (*profile, reading.node) in slow)
        except ValueError as error:
            problems.append(_problem(report, error))
            continue
        products.setdefault(pool, hardware.product)
        before = nodes.get((pool, node.name))
        if before is not None:
            larger = node if node.gpus > before.gpus else before
            node = larger.model_copy(update={"results": (*before.results, *node.results)})
        nodes[pool, node.name] = node
    by_pool = grouped((pool, node) for (pool, _), node in sorted(nodes.items()))
    return Fleet(
        taken_at=format_time(now),
        source=source,
        workloads=tuple(workloads[key] for key in sorted(workloads)),
        pools=tuple(PoolFacts(name=n, product=products[n], nodes=tuple(by_pool[n])) for n in sorted(by_pool)),
        notes=tuple(_unread(sorted(problems))),
    )


def _unread(problems: Sequence[str]) -> Iterator[str]:
    if problems:
        yield (
            f"{len(problems)} of the reports can't be read and are left out: {first_of(problems, NAMED, '; ')}. "
            "Delete such a report, and its node is measured again"
        )


def _read(document: Any, rack_of: Mapping[str, str]) -> tuple[str, str, Reading] | str | None:
    """(name, rack, figures) of one report, or why it can't be read; None where its node is gone or it has no GPUs."""
    if isinstance(document, dict):
        return f"{document['report']} ({document['problem']})"
    namespace, spec, kept, name = document
    report = f"{namespace}/{name}"
    rack = rack_of.get(str(spec.get("nodeUID", "")))
    if rack is None:
        return None
    try:
        status = ReportStatus.model_validate(kept)
    except ValidationError as error:
        return _problem(report, error)
    hardware = status.hardware
    if status.run is None or hardware is None or not hardware.gpus:
        return None
    node, profile = str(spec.get("nodeName", "")), str(spec.get("profile", ""))
    return report, rack, read(node, hardware.pool, status, str(namespace), profile)


def _slow(readings: Iterable[Reading], profiles: Mapping[tuple[str, str], ProfileFacts]) -> set[tuple[str, str, str]]:
    """(namespace, profile, node) of the slow ones: the decision of kubectl and the alerts."""
    readings, slow = tuple(readings), set()
    peers = Peers(readings)
    for key, group in grouped(((reading.namespace, reading.profile), reading) for reading in readings).items():
        percent = profiles[key].slow_node_percent if key in profiles else Thresholds().slow_node_percent
        slow |= {(*key, node.node) for node in peers.judged(group, percent) if node.slow}
    return slow


def _workload_hashes(readings: Iterable[Reading]) -> dict[tuple[str, str, str], str]:
    """By (namespace, profile, pool): the workload that the pool's figures are of."""
    groups = grouped(((reading.namespace, reading.profile, reading.pool), reading) for reading in readings)
    return {key: population(group)[0].group.workload_hash for key, group in groups.items()}


def _stale(reading: Reading) -> str:
    """Why the figures do not describe the node as it is now; empty where they do."""
    if reading.holds:
        return ""
    failed = reading.attempt.reason if reading.attempt is not None and reading.attempt.outcome == "failed" else ""
    return reading.stale or failed or "Failed"


def _node(
    reading: Reading, rack: str, workload: WorkloadFacts, run: ReportRun, hardware: ReportHardware, slow: bool
) -> FleetNode:
    gpus = hardware.gpus or 1
    result = ResultFacts(
        profile=reading.profile,
        workload=workload.key,
        finished_at=run.finished_at,
        provenance=provenance_of(run),
        stale=_stale(reading),
        slow=slow,
        passes=run.passes,
        workload_hash=f"{run.workload_hash}/{run.timing}" if step_words(run.timing) else run.workload_hash,
        gpus=gpus,
        rates=tuple(
            _rate(row) for recipe, row in reading.rows.items() if recipe in RECIPE_NAMES
        ),  # no law has mixtures
    )
    watts = None if hardware.limit_watts is None else float(hardware.limit_watts)
    node = FleetNode(name=reading.node, gpus=gpus, limit_watts=watts, rack=rack, results=(result,))
    return with_shared_field_sets(node)


def _workload(run: ReportRun, owner: ProfileFacts | None) -> WorkloadFacts:
    """The profile's workload; where the profile is gone, what the report says of it: FLOPs and no model."""
    if owner is not None and run.scope == "all":
        return owner.workload
    flops = number(run.training_flops_per_token)
    name = run.workload or run.workload_hash
    if run.scope != "all":
        name = f"{name} ({run.scope} layers only)"
    return WorkloadFacts(key=f"report-{run.workload_hash}-{run.scope}", name=name, flops_per_token=flops)


def _rate(row: RecipeRow) -> RateFacts:
    return RateFacts(
        recipe=row.recipe,
        verdict=row.verdict,
        synchronous_tokens_per_second=row.synchronous_rate or None,
        error=None if row.error is None else min(abs(row.error), 0.99),
        watts=row.watts,
        power_scope=_SCOPES.get(row.power_scope),
        power_invalid=row.power_reasons,
        throttled=row.throttled,
        loss=_LOSSES.get(row.loss_verdict),
        last_layers_bf16=row.last_layers_bf16,
        listed=row.listed,
        emulated=row.emulated,
    )


_LOSSES: Mapping[str, LossVerdict] = {verdict: verdict for verdict in get_args(LossVerdict)}
_SCOPES: Mapping[str, Literal["gpu", "module"]] = {"gpu": "gpu", "module": "module"}
