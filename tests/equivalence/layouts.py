"""Where each version of the code keeps what the comparison needs: the only table to extend when something moves.

A name has a list of places, `module:attribute`; the first that exists is used. A field has a list of names. Where
nothing fits, the error says which row of this file to extend.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

CORE = "precision_operator.core"


def _moved(module: str, names: str, *folders: str) -> tuple[str, ...]:
    """`module` in the core itself, then in each of the sub-packages `folders`, for each of the `names` a|b."""
    places = (f"{CORE}.{module}", *(f"{CORE}.{folder}.{module}" for folder in folders))
    return tuple(f"{place}:{name}" for place in places for name in names.split("|"))


FOLDERS = ("observe", "rollout", "eligibility", "attempts", "admission", "results", "status")

PLACES: Mapping[str, tuple[str, ...]] = {
    # What is observed.
    "Observed": _moved("observed", "Observed|Observation", *FOLDERS),
    "Occupancy": _moved("observed", "Occupancy", *FOLDERS),
    "Settings": (*_moved("observed", "Settings", *FOLDERS), *_moved("settings", "Settings", *FOLDERS)),
    "AgentDefaults": _moved("agent_defaults", "AgentDefaults", *FOLDERS),
    "profile_view": (*_moved("views", "profile_view|parse_profile", *FOLDERS),),
    "job_view": _moved("views", "job_view|parse_job", *FOLDERS),
    "pod_view": _moved("views", "pod_view|parse_pod", *FOLDERS),
    "report_view": _moved("views", "report_view|parse_report", *FOLDERS),
    "occupancy": _moved("views", "occupancy", *FOLDERS),
    "served": _moved("served", "served", *FOLDERS)
    + _moved("operator_defaults", "served|with_operator_defaults", *FOLDERS)
    + _moved("views", "with_operator_defaults", *FOLDERS),
    "slice_view": _moved("gpu_slices", "slice_view", *FOLDERS),
    "node_facts": _moved("nodes", "node_facts|parse_node", *FOLDERS),
    # What is decided.
    "plan": _moved("plan", "plan|make_plan", *FOLDERS),
    "Start": _moved("actions", "Start", *FOLDERS),
    "Collect": _moved("actions", "Collect", *FOLDERS),
    "Close": _moved("actions", "Close", *FOLDERS),
    "Drop": _moved("actions", "Drop", *FOLDERS),
    "MarkStale": _moved("actions", "MarkStale", *FOLDERS),
    "MarkFresh": _moved("actions", "MarkFresh", *FOLDERS),
    "Withdraw": _moved("actions", "Withdraw", *FOLDERS),
    "Adopt": _moved("actions", "Adopt", *FOLDERS),
    "REASONS": _moved("reasons", "REASONS", *FOLDERS),
    "manifest.report": _moved("manifest", "report", *FOLDERS),
    # What is written.
    "Problem": _moved("ingest", "Problem|NoResult", *FOLDERS) + _moved("endings", "NoResult", "results"),
    "summary_of": _moved("ingest", "summary_of|read_summary", *FOLDERS) + _moved("endings", "summary_of", "results"),
    "finding": _moved("ingest", "finding|read_finding", *FOLDERS),
    "read_status": _moved("ingest", "read_status|status_of_result", *FOLDERS),
    "Place": _moved("ingest", "Place", *FOLDERS),
    "failed_status": _moved("ingest", "failed_status", *FOLDERS),
    "marked_status": _moved("ingest", "marked_status", *FOLDERS),
    "status_json": _moved("ingest", "status_json", *FOLDERS),
    "report_json": _moved("ingest", "report_json", *FOLDERS),
    "log_tail": _moved("log_tail", "log_tail", *FOLDERS),
    "profile_status": _moved("rollup", "profile_status", *FOLDERS)
    + _moved("profile_status", "profile_status", *FOLDERS),
    "status_before": _moved("rollup", "status_before", *FOLDERS) + _moved("profile_status", "status_before", *FOLDERS),
    "notes": _moved("events", "notes", *FOLDERS),
    "event": _moved("events", "event", *FOLDERS),
    "why": _moved("why", "why", *FOLDERS),
    # The contract.
    "read_message": ("precision_api.wire:read_message", "precision_api.exchange.wire:read_message"),
    "encode": ("precision_api.wire:encode", "precision_api.exchange.wire:encode"),
    "encode_refusal": ("precision_api.wire:encode_refusal", "precision_api.exchange.wire:encode_refusal"),
    "canonical": ("precision_api.request:canonical", "precision_api.exchange.request:canonical"),
    "PRODUCT_CLASSES": (
        "precision_api.products:PRODUCT_CLASSES",
        "precision_api.facts.products:PRODUCT_CLASSES",
        "precision_api.workload.products:PRODUCT_CLASSES",
    ),
    "MeasurementResult": ("precision_api.result:MeasurementResult", "precision_api.exchange.result:MeasurementResult"),
    "PRESETS": (
        "precision_api.presets:PRESETS",
        "precision_api.models.presets:PRESETS",
        "precision_api.workload.presets:PRESETS",
    ),
    "RECIPE_NAMES": (
        "precision_api.recipes:RECIPE_NAMES",
        "precision_api.facts.recipes:RECIPE_NAMES",
        "precision_api.workload.recipes:RECIPE_NAMES",
    ),
    "MeasurementRequest": (
        "precision_api.request:MeasurementRequest",
        "precision_api.exchange.request:MeasurementRequest",
    ),
    "request_json": ("precision_api.request:request_json", "precision_api.exchange.request:request_json"),
    "ReportStatus": (
        "precision_api.report:ReportStatus",
        "precision_api.kinds.report:ReportStatus",
        "precision_api.resources.report:ReportStatus",
    ),
    # The other outputs.
    "run_request": ("precision_agent.run:run_request", "precision_agent.run.run:run_request"),
    "Clock": ("precision_agent.run:Clock", "precision_agent.run.run:Clock"),
    "ReplayOptions": (
        "precision_agent.backends.replay_tables:ReplayOptions",
        "precision_agent.backends.replay.tables:ReplayOptions",
    ),
    "FAULTS": (
        "precision_agent.backends.replay_tables:FAULTS",
        "precision_agent.backends.replay.tables:FAULTS",
    ),
    "Store": ("precision_operator.exporter.store:Store",),
    "build": ("precision_operator.exporter.body:build",),
    "gemm_times": ("precision_operator.exporter.details:gemm_times",),
    "Given": ("precision_operator.report.facts:Given",),
    "Node": ("precision_operator.report.facts:Node", "precision_operator.core.results.reading:read"),
    "node_of_result": (
        "precision_operator.report.facts:node_of_result",
        "precision_operator.report.facts:reading_of_result",
    ),
    "page": ("precision_operator.report.page:page",),
    # Builders of the tests, which make the raw objects that worlds are grown from.
    "node_object": ("tests.support.node_objects:node_object",),
    "result": ("tests.support.result_objects:result",),
    "recipe_result": ("tests.support.result_objects:recipe_result",),
}

FIELDS: Mapping[str, tuple[str, ...]] = {
    "profiles": ("profiles",),
    "actions": ("actions",),
    "look_at": ("look_at", "nodes_to_probe"),
    "stands": ("stands", "node_states", "states"),
    "facts": ("facts", "node"),
    "current": ("current", "current_run", "run"),
    "due": ("due",),
    "asked": ("asked", "request", "ask"),
    "keeping": ("keeping", "policies"),
    "termination": ("termination",),
    "creation_problem": ("creation_problem", "creation_failure"),
    "standing": ("standing", "comparison"),
    "past": ("past",),
    "detail_problem": ("detail_problem",),
    "subject": ("subject", "title"),
}
"""Fields of values that the adapter reads, or gives to a constructor, by the name that it uses for them."""


class Unplaced(Exception):
    """This version has something elsewhere, or under another name, than this file knows."""


def check_version() -> None:
    """Raises Unplaced unless the product code that is imported is that of the version which was asked for."""
    expected = os.environ["EQUIVALENCE_VERSION"]
    for package in ("precision_api", "precision_operator", "precision_agent"):
        place = importlib.import_module(package).__file__ or ""
        if not place.startswith(f"{expected}/"):
            raise Unplaced(f"{package} is imported from {place}, not from {expected}")


@cache
def symbol(name: str) -> Any:
    """What `name` means in the version that is imported. Raises Unplaced with the row to extend."""
    for place in PLACES[name]:
        module, _, attribute = place.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute, None)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        if found is not None:
            return found
    raise Unplaced(f"{name} is in none of {', '.join(PLACES[name])}: extend PLACES in tests/equivalence/layouts.py")


def placed(*names: str) -> dict[str, Any]:
    """Those of these names that the version knows: an older one may lack the newest."""
    found = {}
    for name in names:
        try:
            found[name] = symbol(name)
        except Unplaced:
            continue
    return found


def field(value: Any, name: str) -> Any:
    """The field of `value` that this version calls `name`, or by one of its other names."""
    for each in FIELDS.get(name, (name,)):
        if hasattr(value, each):
            return getattr(value, each)
    raise Unplaced(
        f"{type(value).__name__} has none of {', '.join(FIELDS.get(name, (name,)))}: "
        "extend FIELDS in tests/equivalence/layouts.py"
    )


def make(name: str, /, **values: Any) -> Any:
    """An instance of the dataclass `name`, its fields named as in this version."""
    made = symbol(name)
    there = {each.name for each in dataclasses.fields(made)}
    return made(**{_present(made, there, key): value for key, value in values.items()})


def changed(value: Any, /, **values: Any) -> Any:
    """A copy of the dataclass instance `value` with other fields, named as in this version."""
    there = {each.name for each in dataclasses.fields(value)}
    return dataclasses.replace(value, **{_present(type(value), there, key): new for key, new in values.items()})


def _present(made: Any, there: set[str], name: str) -> str:
    known = next((each for each in FIELDS.get(name, (name,)) if each in there), None)
    if known is None:
        raise Unplaced(f"{made.__name__} takes no {name}: extend FIELDS in tests/equivalence/layouts.py")
    return known
