"""What is known of a fleet, as one document: what `kubectl precision fleet -o json` saves and every plan is made from.

Rates are of whole nodes. `synchronous_tokens_per_second` is what a synchronous job gets of a node: GPUs x the slowest
GPU. Who writes such a file by hand may describe alike nodes by one entry with a `count`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator

from precision_api.exchange.result import LossVerdict, Verdict
from precision_api.facts.json_text import rows_of
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import Record
from precision_api.kinds.report import Origin
from precision_api.models.model import ModelSpec
from precision_operator.core.observe.clock import parse_time

VERSION: Literal["precision-fleet/1"] = "precision-fleet/1"
Above = Annotated[float, Field(gt=0, le=1e24)]
MOST_TOKENS_PER_SECOND, MOST_WATTS = 1e9, 1e6
"""Of one node: beyond them, a unit is wrong."""
Tokens = Annotated[float, Field(gt=0, le=MOST_TOKENS_PER_SECOND)]
Watts = Annotated[float, Field(gt=0, le=MOST_WATTS)]


class WorkloadFacts(Record):
    """A workload that was measured. `key` tells model and sequence length apart, not batch sizes."""

    key: str
    name: str
    flops_per_token: Above | None = None
    sequence_length: int | None = None
    model: ModelSpec | None = None
    """None for explicit shapes: nothing can be predicted from those."""


class RateFacts(Record):
    """One recipe on one node. Absent is not measured, or not valid."""

    recipe: Recipe
    verdict: Verdict
    synchronous_tokens_per_second: Tokens | None = None
    error: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Relative half-width of the rate's 95 % interval."""
    watts: Watts | None = None
    power_scope: Literal["gpu", "module"] | None = None
    power_invalid: tuple[str, ...] = ()
    throttled: bool = False
    loss: LossVerdict | None = None
    """Of the recipe's loss runs; None where none ran."""
    last_layers_bf16: Annotated[int, Field(ge=0)] | None = None
    listed: bool = False
    emulated: bool = False
    """Both as in reading.RecipeRow."""


class ResultFacts(Record):
    """One profile's newest result of a node."""

    profile: str
    workload: str
    """Key of a workload of the fleet."""
    finished_at: str
    provenance: Origin
    stale: str = ""
    """Why the figures do not describe the node as it is now; empty where they do."""
    slow: bool | None = None
    """Whether the operator calls the node slow (core/outliers); None where nobody has judged: then the planner does."""
    passes: Annotated[int, Field(ge=2)] | None = None
    """Independent repetitions behind an interval: decides which t quantile its half-width holds."""
    workload_hash: str = ""
    """Tells the same model and sequence length at different batch settings apart, with the timing of no plain steps."""
    gpus: Annotated[int, Field(ge=1)] | None = None
    """GPUs that ran together for these rates and watts; None is all of the node."""
    rates: tuple[RateFacts, ...] = ()

    @field_validator("finished_at")
    @classmethod
    def _is_a_time(cls, text: str) -> str:
        try:
            parse_time(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time: write RFC 3339, for example 2027-01-31T00:00:00Z") from None
        return text


class FleetNode(Record):
    """One node, or `count` alike ones."""

    name: str
    gpus: Annotated[int, Field(ge=1, le=1024)]
    limit_watts: Annotated[float, Field(ge=0, le=MOST_WATTS)] | None = None
    """Enforced power limits of all GPUs together."""
    rack: str = ""
    """NVLink domain or rack, as labels name it."""
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    results: tuple[ResultFacts, ...] = ()


class PoolFacts(Record):
    """Nodes that are alike."""

    name: str
    product: str
    nodes: tuple[FleetNode, ...] = ()


class Fleet(Record):
    """All pools that somebody may read, at one time."""

    version: Literal["precision-fleet/1"] = VERSION
    taken_at: str
    source: str = ""
    """Where the facts come from, for people."""
    workloads: tuple[WorkloadFacts, ...] = ()
    pools: tuple[PoolFacts, ...] = ()
    notes: tuple[str, ...] = ()
    """What is missing here, and why: for whoever reads a plan made from it."""


def joined(fleets: Mapping[str, Fleet]) -> Fleet:
    """One fleet of several clusters', by cluster: pools, nodes and racks of one name in two of them stay two.

    It is as old as the oldest. ValueError where two describe a workload of one key in different ways.
    """
    workloads: dict[str, WorkloadFacts] = {}
    for cluster, fleet in fleets.items():
        for workload in fleet.workloads:
            if workloads.setdefault(workload.key, workload) != workload:
                raise ValueError(f"{cluster}: its workload {workload.key} is another one than in a fleet before it")
    return Fleet(
        taken_at=min((fleet.taken_at for fleet in fleets.values()), key=parse_time),
        source="; ".join(f"{cluster}: {fleet.source}" for cluster, fleet in fleets.items()),
        workloads=tuple(workloads.values()),
        pools=tuple(_of_cluster(cluster, pool) for cluster, fleet in fleets.items() for pool in fleet.pools),
        notes=tuple(f"{cluster}: {note}" for cluster, fleet in fleets.items() for note in fleet.notes),
    )


def _of_cluster(cluster: str, pool: PoolFacts) -> PoolFacts:
    def named(node: FleetNode) -> FleetNode:
        rack = f"{cluster}/{node.rack}" if node.rack else ""
        return node.model_copy(update={"name": f"{cluster}/{node.name}", "rack": rack})

    return pool.model_copy(update={"name": f"{cluster}/{pool.name}", "nodes": tuple(map(named, pool.nodes))})


def read_fleet(text: str) -> Fleet:
    """The fleet that a saved file holds. ValueError, fit for the user, for anything else."""
    try:
        return Fleet.model_validate_json(text)
    except ValidationError as error:
        first = rows_of(error)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(
            f"{place}: {first['msg'].removeprefix('Value error, ')}. A fleet file is what "
            "kubectl precision fleet -o json saves; save it again, or correct the field"
        ) from None
