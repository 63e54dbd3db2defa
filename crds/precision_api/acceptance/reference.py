"""A reference: what golden nodes did, with where it comes from; and a node's result as a decision reads it.

Its identity is the SHA-256 of its text: an immutable object can be deleted and made anew under the same name.
"""

import hashlib
import math
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

from pydantic import Field, ValidationError

from precision_api.acceptance.values import Golden, GoldenNode, Look, Speeds
from precision_api.exchange.peers import PeerKey, key_of
from precision_api.exchange.request import MeasurementRequest, canonical
from precision_api.exchange.result import FATAL, Line, MeasurementResult, Node, Provenance, RecipeResult, Verdict, Word
from precision_api.exchange.stats import depth_agrees
from precision_api.facts.json_text import first_wrong, read_json
from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import Record

PROVED: frozenset[Verdict] = frozenset({"verified", "emulated"})
MOST_AGE = timedelta(days=90)  # of what is in a reference: older results are of another season


class Reference(Record):
    """The file. `request` repeats what was measured, on whichever node."""

    schema_version: Literal["1"] = "1"
    key: dict[Word, Line]
    split: dict[Line, Line] = Field(default_factory=dict, description="A label and its value that its nodes have.")
    request: MeasurementRequest
    flops_per_token: float | None = None
    resources: dict[Word, Line] = Field(default_factory=dict, description="What its agents asked for.")
    provenance: Provenance
    recipes: dict[Recipe, Golden] = Field(min_length=1)
    nodes: dict[Node, GoldenNode] = Field(min_length=1)
    left_out: dict[Node, Line] = Field(default_factory=dict, description="Nodes that are no golden ones, and why.")
    accepted_level: Line = Field("", description="Why a level that is low, or published nowhere, was accepted.")
    made_by: Line
    made_at: Word

    @property
    def peers(self) -> PeerKey:
        """With whom it may be compared."""
        return PeerKey(**self.key)

    @cached_property
    def oldest(self) -> datetime:
        """When the first of its nodes was measured. ValueError where one does not say so."""
        return min(datetime.fromisoformat(node.ended).astimezone() for node in self.nodes.values())

    def problem(self, now: datetime) -> str:
        """Why nothing may be compared with it any more, as a verdict's reason; empty where it may."""
        return "ReferenceTooOld" if now - self.oldest > MOST_AGE else ""


def text_of(reference: Reference) -> str:
    """The file: canonical JSON in one line."""
    return canonical(reference.model_dump(mode="json", exclude_none=False))


def sha256_of(text: str) -> str:
    """The identity of a reference by its text; white space around it does not count."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def read_reference(text: str) -> Reference:
    """The reference in a text. ValueError, fit for the user, where it is none."""
    try:
        reference = read_json(Reference, text)
        _ = reference.oldest  # what has no age is none; a copy without nodes keeps it
        if others := sorted(reference.key.keys() - {*PeerKey._fields}):
            raise ValueError(f"key has {others[0]}, of another version: run kubectl precision reference create")
    except (ValueError, OverflowError) as error:  # of the year 1, ahead of UTC, there is no such moment
        words = first_wrong(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"it is no reference ({words})") from None
    return reference


def speeds_of(row: RecipeResult, result: MeasurementResult) -> Speeds:
    """100 ln(tokens/s) by GPU, in the order of their UUIDs; empty where no full-depth step was measured."""
    training = row.training
    if training is None or training.tokens_per_second is None or training.missing:
        return {}
    alone = {gpu.uuid: training.tokens_per_second.value for gpu in result.gpus[:1]}
    rates = training.tokens_per_second_by_gpu or alone
    return {uuid: round(100 * math.log(rates[uuid]), 2) for uuid in sorted(rates) if 0 < rates[uuid] < math.inf}


def trouble_of(row: RecipeResult | None, kernels: Verdict, layers: int | None, depth: int | None = None) -> str:
    """Why a recipe's figures can't be judged by others, who measured `depth` layers; empty where they can."""
    if row is None or row.availability not in ("ok", "emulated"):
        return "NotMeasured"
    parts = (*row.gemms, *row.sums, *((row.training,) if row.training else ()))
    failures = {part.failure.reason for part in parts if part.failure}
    if failures & FATAL:
        return "Crashed"
    if "numerical_error" in failures:
        return "NumericalError"
    if row.verification.verdict == "fallback":
        return "Fallback"
    if row.verification.verdict != kernels:
        return "Unverified"
    if row.cpu_bound:
        return "HostBound"  # the host launched too slowly: it says nothing of the GPUs
    ran, check = (row.training.layers_measured, row.training.depth_check) if row.training else (None, None)
    if (None not in (ran, depth) and ran != depth) or not (check is None or depth_agrees(check)):
        return "OtherDepth"
    return "OtherLayers" if row.last_layers_bf16 != layers else ""


def look_at(result: MeasurementResult, reference: Reference, simulated: bool = False) -> Look:
    """A result as the decision reads it. `simulated`: whether figures count that nobody measured."""
    measured = result.provenance == "measured" and not result.simulated
    general = "Partial" if result.partial else "OtherKey" * (result.limits_differ or key_of(result) != reference.peers)
    if not simulated and not (measured and reference.provenance == "measured"):
        general = "Simulated"
    rows = {row.recipe: row for row in result.recipes}
    troubles = {
        recipe: general or trouble_of(rows.get(recipe), golden.kernels, golden.last_layers_bf16, golden.layers_measured)
        for recipe, golden in reference.recipes.items()
    }
    return Look(
        speeds={recipe: speeds_of(rows[recipe], result) for recipe, trouble in troubles.items() if not trouble},
        troubles={recipe: trouble for recipe, trouble in troubles.items() if trouble},
        throttled={row.recipe: row.throttled.share for row in result.recipes if row.throttled},
    )
