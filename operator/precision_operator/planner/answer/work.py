"""One solve as it travels to another process: everything that it needs, and the hash of what its answer hangs on."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from precision_api.kinds.capacity_plan import PlanSpec, PlanStatus
from precision_operator.core.observe.clock import parse_time
from precision_operator.planner.inputs.snapshot import ProfileFacts, fleet_of
from precision_operator.planner.inputs.terms import NARROW

MEMORY_BYTES = 3 << 30
"""Address space of the process that plans; 200 jobs on 20 pools keep 0.4 GB of it in use."""
DATA_BYTES = 512 << 20
"""What it, and the solver's process, may write to where the container's memory is limited."""
START_SECONDS = 60.0
SLOWER = 2.0
"""How much longer than its time limit one answer may take: the limit ends searches, and reading comes before them."""
QUESTIONS = 6
"""Questions that are asked where the plan names none."""
MOST_SECONDS = f"spec.solver.timeLimitSeconds: planning went on long after the time limit and was ended: {NARROW}"
NO_MEMORY = f"spec.jobs: planning takes more memory than there is: {NARROW}"


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
    before: str = "{}"
    """The status that the plan has, as JSON: its jobs stay where that holds."""


def solved(work: Work) -> str:
    """The answer as JSON of a status, without conditions; runs in the other process."""
    from precision_operator.planner.answer.document import (
        status,  # only here: the solver stays out of the operator's process
    )
    from precision_operator.planner.answer.planning import plan
    from precision_operator.planner.answer.what_if import what_ifs

    spec = PlanSpec.model_validate_json(work.spec)
    fleet = fleet_of(work.reports, work.campaigns, work.racks, work.now, work.source)
    before = PlanStatus.model_validate_json(work.before)
    answered = plan(spec, fleet, work.now, start=start_of(work), before=before.jobs)
    document = status(answered, what_ifs(spec, fleet, answered, work.now))
    return document.model_dump_json(by_alias=True, exclude_none=True)


def bound_memory(limited: bool = False) -> None:
    """Bound this process's memory, before anything large is loaded; to DATA_BYTES where its container is `limited`."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads reserve memory by the number of cores
    if sys.platform == "linux":  # elsewhere this limit is refused or means something else
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        if limited:
            resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))


def answered(solve: Callable[[Work], str], work: Work) -> str:
    """What `solve` answers; where memory does not suffice, that."""
    try:
        return solve(work)
    except MemoryError:
        return unsolved("NotFound", NO_MEMORY)


def unsolved(phase: Literal["TimedOut", "NotFound"], problem: str) -> str:
    """The status of a plan of which nothing is known, as JSON."""
    verdict = f"It is not known whether there is a plan. {problem}"
    return PlanStatus(phase=phase, problems=(problem,), recommendation=verdict).model_dump_json(
        by_alias=True, exclude_none=True
    )


def longest_seconds(work: Work) -> float:
    """After so many seconds a process hangs: its plan and all questions have had their time."""
    spec = PlanSpec.model_validate_json(work.spec)
    questions = QUESTIONS if spec.what_ifs is None else len(spec.what_ifs)
    return START_SECONDS + SLOWER * spec.solver.time_limit_seconds * (1 + questions)


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
