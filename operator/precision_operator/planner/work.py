"""One solve as it travels to another process: everything that it needs, and the hash of what its answer hangs on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from precision_api.capacity_plan import PlanSpec
from precision_operator.core.observe.clock import parse_time
from precision_operator.planner.snapshot import ProfileFacts, fleet_of


@dataclass(frozen=True, slots=True)
class Work:
    """All that a solve needs, as it travels to the other process."""

    spec: str
    created: str
    source: str
    reports: tuple[bytes, ...]
    campaigns: tuple[ProfileFacts, ...]
    racks: Mapping[str, str]
    now: datetime


def solved(work: Work) -> str:
    """The answer as JSON of a status, without conditions; runs in the other process."""
    from precision_operator.planner.document import status  # only here: HiGHS stays out of the operator's process
    from precision_operator.planner.planning import plan
    from precision_operator.planner.what_if import what_ifs

    spec = PlanSpec.model_validate_json(work.spec)
    fleet = fleet_of(work.reports, work.campaigns, work.racks, work.now, work.source)
    found = plan(spec, fleet, work.now, start=start_of(work))
    told = status(found, what_ifs(spec, fleet, found, work.now))
    return told.model_dump_json(by_alias=True, exclude_none=True)


def start_of(work: Work) -> datetime:
    """When jobs start that name no start: at the plan's creation, or today at 0:00 UTC where that is later."""
    return max(parse_time(work.created), work.now.replace(hour=0, minute=0, second=0, microsecond=0))


def inputs_of(work: Work) -> str:
    """A hash of all that the answer hangs on; of the time only the day, since figures grow old by days."""
    digest = hashlib.sha256(f"{work.spec}\0{work.created}\0{work.now:%Y-%m-%d}".encode())
    digest.update(b"\0".join(work.reports))  # in one piece: hashing then lets other threads run
    wanted = [(c.namespace, c.name, c.workload.key, c.workload.name, c.slow_node_percent) for c in work.campaigns]
    digest.update(json.dumps([wanted, sorted(work.racks.items())]).encode())
    return digest.hexdigest()[:16]
