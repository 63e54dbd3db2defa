"""The one table of metric families: name, help, labels, level, and the rows that an object gives.

Exporter, docs and dashboards are made from it. A figure that a report lacks has no row: absence is shown as absence,
never as 0. All are gauges: a projection of objects that can be deleted can't count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeVar

from precision_api.report import RecipeReport, ReportAttempt, ReportRun
from precision_operator.exporter.reading import Campaign, NodeResult, seconds
from precision_operator.exporter.text import Row, header, sample_template, samples

Subject = TypeVar("Subject", NodeResult, Campaign)
Figure = Callable[[RecipeReport], str | float | None]
Rows = Callable[[NodeResult], Iterator[Row]]

PROFILE = ("profile_namespace", "profile")
NODE = (*PROFILE, "node", "pool", "workload")
RECIPE = (*NODE, "recipe")
SPEEDUP = (*RECIPE, "scope", "baseline")
INFO = ("gpu_product", "gpus", "driver", "cuda", "te", "data", "backend")

# Every result of today quantises all linear layers and is held against bf16. The labels are there from the start: a
# label that comes later would break every series.
_SCOPE, _BASELINE = "all", "bf16"


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """One metric family. `level` says from which metricsLevel on it is shown."""

    name: str
    help: str
    labels: tuple[str, ...]
    level: Literal["pool", "node", "detail"]
    rows: Callable[[Subject], Iterable[Row]]
    type: Literal["gauge"] = "gauge"

    @cached_property
    def head(self) -> bytes:
        """The HELP and TYPE lines."""
        return header(self.name, self.help, self.type)

    @cached_property
    def _template(self) -> str:
        return sample_template(self.name, self.labels)

    def render(self, subject: Subject) -> bytes:
        """This family's lines of one object; empty when it has none. Raises ValueError for a time that is not one."""
        return samples(self._template, self.rows(subject))


def _node(result: NodeResult) -> tuple[str, ...]:
    hardware = result.status.hardware
    return result.namespace, result.profile, result.node, hardware.pool if hardware else "", result.workload


def _by_recipe(figure: Figure, *further: Callable[[RecipeReport], str]) -> Rows:
    """Rows of each recipe that has the figure; `further` gives the labels after `recipe`."""

    def rows(result: NodeResult) -> Iterator[Row]:
        for recipe in result.status.results:
            value = figure(recipe)
            if value is not None:
                yield (*_node(result), recipe.recipe, *(label(recipe) for label in further)), float(value)

    return rows


def _where_power_holds(figure: Figure) -> Figure:
    """The figure only where power was valid and is more than nothing: a sensor that shows 0 W measured nothing."""

    def valid(recipe: RecipeReport) -> float | None:
        value = None if recipe.power_invalid else figure(recipe)
        return float(value) if value is not None and float(value) > 0 else None

    return valid


def _power_valid(recipe: RecipeReport) -> float | None:
    """1 or 0; None where the recipe ran without any word on power."""
    if recipe.power_invalid:
        return 0.0
    return None if recipe.watts is None else 1.0


def _power_scope(recipe: RecipeReport) -> str:
    return recipe.power_scope or ""


def _speedup(figure: Figure) -> Rows:
    return _by_recipe(figure, lambda _: _SCOPE, lambda _: _BASELINE)


def _gemm_speedup(result: NodeResult) -> Iterator[Row]:
    for recipe in result.status.results:
        for mode, value in sorted(recipe.gemm_speedup.items()):
            yield (*_node(result), recipe.recipe, mode), float(value)


def _of_run(figure: Callable[[ReportRun], str | float]) -> Rows:
    def rows(result: NodeResult) -> Iterator[Row]:
        if result.status.run:
            yield _node(result), float(figure(result.status.run))

    return rows


def _of_attempt(figure: Callable[[ReportAttempt], str | float]) -> Rows:
    def rows(result: NodeResult) -> Iterator[Row]:
        if result.status.attempt:
            yield _node(result), float(figure(result.status.attempt))

    return rows


def provenance(run: ReportRun) -> str:
    """measured, replayed or simulated: one field that nobody measured makes the whole result simulated."""
    return "simulated" if run.simulated else run.provenance


def _info(result: NodeResult) -> Iterator[Row]:
    hardware, software, run = result.status.hardware, result.status.software, result.status.run
    if not (hardware and run):
        return
    versions = (software.driver, software.cuda, software.transformer_engine) if software else (None, None, None)
    told = (
        hardware.product,
        str(hardware.gpus),
        *(version or "" for version in versions),
        provenance(run),
        run.backend,
    )
    yield (*_node(result), *told), 1.0


def _campaign(campaign: Campaign) -> tuple[str, ...]:
    return campaign.namespace, campaign.profile


# The states that exclude each other: their sum is the number of matched nodes.
_PHASES = ("skipped", "waiting", "queued", "running", "succeeded", "failed")


def _phases(campaign: Campaign) -> Iterator[Row]:
    nodes = campaign.status.nodes
    if nodes:
        yield from (((*_campaign(campaign), phase), float(getattr(nodes, phase))) for phase in _PHASES)


def _count(name: Literal["slow", "simulated"]) -> Callable[[Campaign], Iterator[Row]]:
    def rows(campaign: Campaign) -> Iterator[Row]:
        if campaign.status.nodes:
            yield _campaign(campaign), float(getattr(campaign.status.nodes, name))

    return rows


def _progress(campaign: Campaign) -> Iterator[Row]:
    nodes = campaign.status.nodes
    if nodes and nodes.eligible:
        yield _campaign(campaign), (nodes.succeeded + nodes.failed) / nodes.eligible


NODE_FAMILIES: tuple[Family[NodeResult], ...] = (
    Family(
        "precision_node_info",
        "Always 1; what the node's newest result was measured on and with. data is measured, replayed or simulated: "
        "only measured figures are this hardware's own.",
        (*NODE, *INFO),
        "node",
        _info,
    ),
    Family(
        "precision_node_training_tokens_per_second",
        "Training tokens per second of the whole node (all GPUs, full-depth model, no communication between nodes).",
        RECIPE,
        "node",
        _by_recipe(lambda recipe: recipe.tokens_per_second),
    ),
    Family(
        "precision_node_training_power_watts",
        "Mean draw of all GPUs of the node while training; absent where the power reading is not valid.",
        (*RECIPE, "power_scope"),
        "node",
        _by_recipe(_where_power_holds(lambda recipe: recipe.watts), _power_scope),
    ),
    Family(
        "precision_node_training_tokens_per_joule",
        "Training tokens per joule = tokens/s per watt; x1e6 = tokens/s per MW. Absent where power is not valid.",
        (*RECIPE, "power_scope"),
        "node",
        _by_recipe(_where_power_holds(lambda recipe: recipe.tokens_per_joule), _power_scope),
    ),
    Family(
        "precision_node_training_speedup_ratio",
        "Training speedup over the baseline recipe, paired within the same run (1.31 = 31 % more tokens per second).",
        SPEEDUP,
        "node",
        _speedup(lambda recipe: recipe.speedup),
    ),
    Family(
        "precision_node_training_speedup_ratio_lower",
        "Lower end of the 95 % interval of the training speedup.",
        SPEEDUP,
        "node",
        _speedup(lambda recipe: recipe.speedup_lower),
    ),
    Family(
        "precision_node_training_speedup_ratio_upper",
        "Upper end of the 95 % interval of the training speedup.",
        SPEEDUP,
        "node",
        _speedup(lambda recipe: recipe.speedup_upper),
    ),
    Family(
        "precision_node_verification",
        "1 for the current verdict on whether the recipe's precision really ran: verified, partial, emulated, "
        "fallback, unknown. Absent for recipes that the GPUs do not support.",
        (*RECIPE, "verdict"),
        "node",
        _by_recipe(lambda recipe: None if recipe.availability == "unsupported" else 1.0, lambda recipe: recipe.verdict),
    ),
    Family(
        "precision_node_power_valid",
        "1 where the power reading was valid, 0 where it was not; reason is the first thing wrong with it.",
        (*RECIPE, "reason"),
        "node",
        _by_recipe(_power_valid, lambda recipe: next(iter(recipe.power_invalid), "")),
    ),
    Family(
        "precision_node_last_success_timestamp_seconds",
        "When the newest run with a result ended, seconds since 1970.",
        NODE,
        "node",
        _of_run(lambda run: seconds(run.finished_at)),
    ),
    Family(
        "precision_node_last_attempt_timestamp_seconds",
        "When the newest attempt ended, good or bad, seconds since 1970.",
        NODE,
        "node",
        _of_attempt(lambda attempt: seconds(attempt.finished_at)),
    ),
    Family(
        "precision_node_last_duration_seconds",
        "How long the newest run with a result took.",
        NODE,
        "node",
        _of_run(lambda run: run.duration_seconds),
    ),
    Family(
        "precision_node_gemm_speedup_ratio",
        "Speedup of all matrix multiplications of the workload over the baseline; mode autocast includes quantisation, "
        "prequantized does not.",
        (*RECIPE, "mode"),
        "detail",
        _gemm_speedup,
    ),
    Family(
        "precision_node_memory_peak_bytes",
        "Peak memory of the fullest GPU while training.",
        RECIPE,
        "detail",
        _by_recipe(lambda recipe: recipe.memory_peak_bytes),
    ),
)

PROFILE_FAMILIES: tuple[Family[Campaign], ...] = (
    Family(
        "precision_profile_nodes",
        "Nodes that the profile's target matches, by state; the states add up to all of them.",
        (*PROFILE, "phase"),
        "pool",
        _phases,
    ),
    Family(
        "precision_profile_slow_nodes",
        "Measured nodes far below their pool's median, as the operator judged.",
        PROFILE,
        "pool",
        _count("slow"),
    ),
    Family(
        "precision_profile_simulated_nodes",
        "Measured nodes whose result holds replayed or simulated figures.",
        PROFILE,
        "pool",
        _count("simulated"),
    ),
    Family(
        "precision_profile_progress_ratio",
        "Finished (succeeded or failed) of eligible nodes; absent while no node is eligible.",
        PROFILE,
        "pool",
        _progress,
    ),
)

FAMILIES: tuple[Family[NodeResult] | Family[Campaign], ...] = (*NODE_FAMILIES, *PROFILE_FAMILIES)
