"""What is known of each pool: per workload and recipe the rates of its nodes, as far as they may be used.

A result that is stale, unverified, simulated, replayed, of a recipe with unhealthy loss runs or without valid power is
refused unless the plan asks for it; what is used so is marked and told. One of steps that are no plain ones (attention
in FP8, low-precision primary weights, weight gradients by autograd) is refused unless the plan names profiles. A recipe
that fell back to another precision is never used, nor a trial on a CPU.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

import numpy as np

from precision_api.exchange.peers import PeerKey
from precision_api.exchange.request import step_marks, step_words
from precision_api.exchange.stats import BETWEEN_RUNS, Z_975, t_quantile
from precision_api.exchange.summary import USABLE
from precision_api.facts.names import grouped
from precision_api.facts.plain_text import number_of
from precision_api.facts.recipes import Recipe, risk_of
from precision_api.kinds.capacity_plan import Doubt
from precision_api.kinds.profile import Thresholds
from precision_operator.core.observe.clock import parse_time
from precision_operator.core.results.outliers import judged
from precision_operator.core.results.pool import median, of_one_scope, steady
from precision_operator.core.results.reading import Reading, RecipeRow
from precision_operator.planner.inputs.fleet import Fleet, FleetNode, PoolFacts, RateFacts, ResultFacts, WorkloadFacts
from precision_operator.planner.inputs.quantities import InputProblem, UnusableInput, require
from precision_operator.planner.inputs.terms import PoolTerms, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool, Key, PoolSample
from precision_operator.planner.rates.failures import spares

ALLOWABLE: tuple[Doubt, ...] = get_args(Doubt)
"""Why a result is refused, where a plan may ask for it all the same."""
AGAINST_THE_RECIPE = ("fallback", "unverified", "unhealthyLoss")
"""What speaks against the recipe on these GPUs, and not only against this figure: it is not predicted there either."""


def pools(fleet: Fleet, terms: Terms, now: datetime) -> tuple[CandidatePool, ...]:
    """All pools that can be planned with, by name; one without any usable figure is kept, to say why.

    Raises UnusableInput where an entry of the spec can't be told to one pool.
    """
    _one_each(fleet, terms)
    present = {name for pool in fleet.pools for name in (pool.name, pool.product)}
    workloads = {workload.key: workload for workload in fleet.workloads}
    unreported = [PoolFacts(name=n, product=of.product or n) for n, of in terms.pools.items() if n not in present]
    every = sorted((*fleet.pools, *unreported), key=lambda facts: facts.name)
    return tuple(_candidate(facts, terms, workloads, now) for facts in every)


def _one_each(fleet: Fleet, terms: Terms) -> None:
    """Raises UnusableInput for entries whose nodes, power or paid hours would count once for each of several pools."""
    problems = []
    for entry, pool_terms in terms.pools.items():
        named = [
            pool.name
            for pool in fleet.pools
            if pool.name == entry or (pool.product == entry and pool.name not in terms.pools)
        ]
        if len(named) > 1 and (pool_terms.nodes or pool_terms.power_watts or pool_terms.committed_gpu_hours):
            text = f"{entry} is the product of {', '.join(sorted(named))}: name a pool"
            remedy = "nodes, powerBudget and committedGPUHours are of one pool, so give each its own entry"
            problems.append(InputProblem("spec.pools", f"{text} ({remedy})"))
    if problems:
        raise UnusableInput(*problems)


def own_terms(name: str, product: str, terms: Terms) -> PoolTerms:
    """What the user says of a pool: by its name, else by its product, else nothing."""
    return terms.pools.get(name) or terms.pools.get(product) or PoolTerms(name, scaling=terms.scaling)


def _spares(facts: PoolFacts, pool: PoolTerms, nodes: int, gpus: int, terms: Terms) -> int:
    """Nodes that no job gets; never those of jobs that run already, nor by default those that a job wants at least."""
    name, mine = facts.name, [job for job in terms.jobs if not job.pools or job.pools & {facts.name, facts.product}]
    running = sum(job.running.gpus for job in terms.jobs if job.running and job.running.pool == name)
    wanted = pool.spare_nodes
    few = f"{wanted} of {nodes} nodes are all of them: leave one to jobs at least"
    require(not nodes or (wanted or 0) < nodes, f"spec.pools[{pool.name}].spareNodes", few)
    if wanted is None:
        has_goodput = pool.goodput or terms.goodput or all(job.goodput for job in mine)
        least = max((max(job.min_gpus, job.block_gpus or pool.block_gpus or 1) for job in mine), default=1)
        fewest = nodes - -(-least // gpus) if -(-least // gpus) <= nodes else nodes
        wanted = 0 if has_goodput or not nodes else spares(terms.failures, nodes, gpus, pool.repair_days)
        wanted = min(wanted, fewest)
    return max(0, min(wanted, nodes - 1, nodes - -(-running // gpus)))


def _kept_as_spares(spare_nodes: int, pool: PoolTerms) -> tuple[str, ...]:
    """`spareNodes: 0` is said too."""
    few = number_of(spare_nodes, "node") if spare_nodes else "spareNodes: no node"
    return (f"{few} kept as spares for those in repair",) if spare_nodes or pool.spare_nodes == 0 else ()


@dataclass(frozen=True, slots=True)
class _Row:
    """One usable figure of one node."""

    node: FleetNode
    result: ResultFacts
    rate: RateFacts
    per_gpu: float
    days: float
    marks: tuple[str, ...]

    @property
    def barred(self) -> bool:
        """As in reading.RecipeRow."""
        return not self.rate.listed and bool(risk_of(self.rate.recipe, self.rate.last_layers_bf16))


_Source = tuple[str, int | None, bool, str]
"""A node, the layers that its rate keeps in BF16, whether the rate is barred, and the hash of what ran."""
_RowsByKey = dict[Key, dict[_Source, _Row]]


def _candidate(facts: PoolFacts, terms: Terms, workloads: Mapping[str, WorkloadFacts], now: datetime) -> CandidatePool:
    pool_terms = own_terms(facts.name, facts.product, terms)
    sizes = Counter[int]()
    for node in facts.nodes:
        sizes[node.gpus] += node.count
    gpus = max(sizes, key=lambda size: (sizes[size], size), default=pool_terms.gpus_per_node or 1)
    alike = [node for node in facts.nodes if node.gpus == gpus]
    refused: Counter[str] = Counter()
    refused_recipes: set[Recipe] = set()
    rows: _RowsByKey = {}
    for node in alike:
        for result in node.results:
            refused_recipes |= _take(node, result, terms, now, rows, refused)
    slow = _unjudged_slow(facts)
    common = {workload: _common_settings(workload, rows, terms) for workload in workloads}
    chosen = {key: _alike(list(of.values()), common[key[0]]) for key, of in rows.items() if key[0] in workloads}
    samples = {key: _sample(same, workloads[key[0]], key[1], terms, slow) for key, (same, _) in chosen.items()}
    usable = {row.node.name: row.node for by_source in rows.values() for row in by_source.values()}
    counted = sum(node.count for node in usable.values())
    limits = [node.limit_watts / node.gpus for node in usable.values() if node.limit_watts]
    unknown = not facts.nodes and not (pool_terms.nodes and pool_terms.gpus_per_node)
    whole = 0 if unknown else (pool_terms.nodes or counted) + pool_terms.more_nodes
    spare_nodes = _spares(facts, pool_terms, whole, gpus, terms)
    planned = whole - spare_nodes
    block = max(job.block_gpus or pool_terms.block_gpus or gpus for job in terms.jobs) // gpus
    racks = Counter[str]()
    for node in usable.values():
        if node.rack:
            racks[node.rack] += node.count
    return CandidatePool(
        name=facts.name,
        product=facts.product,
        gpus_per_node=gpus,
        nodes=planned,
        counted=counted,
        spares=spare_nodes,
        fastest=terms.fastest,
        limit_watts_per_gpu=max(limits, default=pool_terms.limit_watts_per_gpu),
        samples=samples,
        terms=pool_terms,
        racks=_racks(racks, planned - counted, block),
        refused=dict(refused),
        refused_recipes=frozenset(refused_recipes),
        notes=(
            *(("has no reports here; a pool of your own needs nodes, gpusPerNode",) if unknown else ()),
            *_notes(planned, gpus, sizes, counted, sum(racks.values())),
            *_kept_as_spares(spare_nodes, pool_terms),
            *dict.fromkeys(note for _, left_out in chosen.values() for note in left_out),
        ),
    )


def _common_settings(workload: str, rows: Mapping[Key, Mapping[_Source, _Row]], terms: Terms) -> str:
    """The hash at which most recipes of the workload's jobs were measured, then on most nodes."""
    asked = {recipe for job in terms.jobs if job.target.key == workload for recipe in job.recipes}
    wanted = [of for (key, recipe), of in rows.items() if key == workload and (not asked or recipe in asked)]
    at = grouped((row.result.workload_hash, row) for of in wanted for row in of.values())
    recipes = {name: len({row.rate.recipe for row in group}) for name, group in at.items()}
    return max(at, key=lambda name: (recipes[name], sum(row.node.count for row in at[name]), name), default="")


def _alike(rows: Sequence[_Row], common: str) -> tuple[list[_Row], list[str]]:
    """The rows of one recipe that keep as many layers in BF16 at the same settings, and a line on each others; rather
    those that may be used where nobody names the recipe, then those at the `common` settings, then of most nodes."""
    rows = [row for row in rows if row.result.provenance == "measured"] or rows  # made-up ones never dilute them
    groups = grouped(((row.barred, row.result.workload_hash, row.rate.last_layers_bf16), row) for row in rows)
    size = {key: sum(row.node.count for row in group) for key, group in groups.items()}
    best = min(groups, key=lambda key: (key[0], key[1] != common, -size[key], -(key[2] or 0)))
    profiles = {key: ", ".join(sorted({row.result.profile for row in group})) for key, group in groups.items()}
    recipe = rows[0].rate.recipe
    notes = [
        f"{size[key]} results of {recipe} with lastLayersBF16 {key[2]} (profile {profiles[key]}) are left out beside "
        f"{size[best]} with {best[2]}; spec.fleet.profiles chooses"
        if key[1] == best[1]
        else f"results at {_other(key[1], best[1])} (profile {profiles[key]}) are left out; spec.fleet.profiles chooses"
        for key in groups
        if key != best
    ]
    measured = f"{recipe} (profile {profiles[best]}) was measured"
    if step := step_marks(recipe, best[1]):
        notes.append(f"{measured} with {step}")
    if common not in ("", best[1]):
        notes.append(f"{measured} at {_other(common, best[1])} than the recipes beside it")
    return list(groups[best]), notes


def _other(settings: str, than: str) -> str:
    """How the settings of a result, a workload hash, differ from those."""
    mine, those = step_words(settings), step_words(than)
    words = f"settings with {' and '.join(mine)}" if mine else f"settings without {' and '.join(those)}"
    return "other workload settings (such as the micro batch)" if mine == those else words


def _racks(counted: Counter[str], more: int, block: int) -> dict[str, int]:
    """Nodes by rack of the nodes to plan with: `more` of them stand in racks like the largest one; fewer than none are
    taken where a rack's blocks leave some over, then from the fullest racks, block by block."""
    racks = dict(counted)
    if not racks:
        return {}
    largest = max(racks.values())
    for number in range(-(-max(more, 0) // largest)):
        racks[f"planned-{number + 1}"] = min(largest, more - number * largest)
    for _ in range(min(-more, sum(racks.values()) - 1)):
        racks[max(racks, key=lambda name: (racks[name] % max(block, 1) > 0, racks[name], name))] -= 1
    return racks


def _notes(planned: int, gpus: int, sizes: Counter[int], counted: int, labelled: int) -> Iterable[str]:
    others = sum(number for size, number in sizes.items() if size != gpus)
    notes = (
        (others, f"{others} nodes with other than {gpus} GPUs are left out"),
        (0 < counted < planned, f"{planned} nodes are planned with, {counted} have a usable result"),
        (
            0 < labelled < counted,
            f"{counted - labelled} nodes have no rack label: blocks of several nodes are not placed there",
        ),
        (counted == 1, "only one node was measured: how nodes differ is not known"),
    )
    return (note for holds, note in notes if holds)


def _take(
    node: FleetNode, run: ResultFacts, terms: Terms, now: datetime, rows: _RowsByKey, refused: Counter[str]
) -> set[Recipe]:
    """Put a node's usable figures into `rows` (the newest one where profiles overlap), count the others; their recipes.

    A figure that is merely old, or was made by a machine that nobody measured, says nothing against a recipe.
    """
    refused_recipes: set[Recipe] = set()
    if terms.profiles and run.profile not in terms.profiles:
        return refused_recipes
    age = (now - parse_time(run.finished_at)).total_seconds() / 86_400
    common = _doubts(run, age, terms)
    if not terms.profiles and (step := step_words(run.workload_hash)):
        common.insert(0, f"steps with {' and '.join(step)} whose profile spec.fleet.profiles does not name")
    for rate in run.rates:
        doubts = [*common, *_rate_doubts(rate, run)]
        hard = next((doubt for doubt in doubts if doubt not in terms.allow), None)
        if rate.synchronous_tokens_per_second is None:
            continue
        if hard is not None:
            refused[hard] += node.count
            if hard in AGAINST_THE_RECIPE:
                refused_recipes.add(rate.recipe)
            continue
        row = _Row(node, run, rate, rate.synchronous_tokens_per_second / (run.gpus or node.gpus), age, tuple(doubts))
        held = rows.setdefault((run.workload, rate.recipe), {})
        source = (node.name, rate.last_layers_bf16, row.barred, run.workload_hash)
        before = held.get(source)
        if before is None or before.days > age:
            held[source] = row
    return refused_recipes


def _doubts(result: ResultFacts, age: float, terms: Terms) -> list[str]:
    is_stale = result.stale or age > terms.max_age.total_seconds() / 86_400
    made_up = [] if result.provenance == "measured" else [result.provenance]
    return [*(["stale"] if is_stale else []), *made_up]


def _rate_doubts(rate: RateFacts, result: ResultFacts) -> list[str]:
    """`fallback` can't be allowed: another precision ran than the one that is named."""
    if rate.verdict == "fallback":
        return ["fallback"]
    assumed = rate.verdict == "assumed" and result.provenance == "measured"
    proved: list[str] = [] if rate.verdict in USABLE and not assumed else ["unverified"]
    return [*proved, *([] if rate.loss in (None, "healthy") else ["unhealthyLoss"])]


def _unjudged_slow(facts: PoolFacts) -> frozenset[tuple[str, str, str]]:
    """(node, profile, workload) of the slow ones in a file by hand, where nobody has judged: by the same rule."""
    readings: list[Reading] = []
    of: dict[tuple[str, str], tuple[str, str, str]] = {}
    for node in facts.nodes:
        for result in node.results:
            if result.slow is not None or result.stale:
                continue
            peers = "/".join(map(str, (result.profile, result.workload, result.gpus or node.gpus, node.limit_watts)))
            rows = {
                rate.recipe: RecipeRow(
                    rate.recipe,
                    rate.verdict,
                    "ok",
                    rate.throttled,
                    tokens_per_second=rate.synchronous_tokens_per_second,  # what a node is judged by
                )
                for rate in result.rates
            }
            for number in range(node.count):
                name = f"{node.name}/{number}"
                of[peers, name] = (node.name, result.profile, result.workload)
                readings.append(Reading(name, peers, rows, PeerKey(peers)))
    slow = judged(readings, Thresholds().slow_node_percent)
    return frozenset(of[node.pool, node.node] for node in slow if node.slow)


def _sample(
    rows: list[_Row], workload: WorkloadFacts, recipe: Recipe, terms: Terms, slow: frozenset[tuple[str, str, str]]
) -> PoolSample:
    rows = sorted(rows, key=lambda row: row.node.name)
    counts = [row.node.count for row in rows]
    watts, scope, guessed = _watts(steady(rows, lambda row: row.rate.throttled), terms)
    marks: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for row in rows:
        verdicts[row.rate.verdict] += row.node.count
        for word in row.marks:
            marks[word] += row.node.count
        if row.rate.emulated or row.rate.verdict == "emulated":
            marks["emulated"] += row.node.count
    if guessed:
        marks["powerInvalid"] += guessed
    with_error = [row for row in rows if row.rate.error is not None]
    return PoolSample(
        workload=workload,
        recipe=recipe,
        names=tuple(name for row in rows for name in [row.node.name] * row.node.count),
        rates=np.repeat(np.array([row.per_gpu for row in rows], dtype=np.float64), counts),
        throttled=frozenset(row.node.name for row in rows if row.rate.throttled),
        noise=median(map(_noise, with_error)) or 0.0,
        half_width=median(row.rate.error or 0.0 for row in with_error) or 0.0,
        watts_per_gpu=watts,
        power_scope=scope,
        marks=dict(marks),
        profiles=tuple(sorted({row.result.profile for row in rows})),
        oldest_days=max(row.days for row in rows),
        verdicts=verdicts,
        layers_bf16=rows[0].rate.last_layers_bf16,
        step=step_marks(recipe, rows[0].result.workload_hash),
        barred=any(row.barred for row in rows),
        judged_slow=frozenset(
            row.node.name
            for row in rows
            if row.result.slow or (row.node.name, row.result.profile, row.result.workload) in slow
        ),
    )


def _noise(row: _Row) -> float:
    """Relative standard deviation within a run; what differs between runs stays in the nodes' spread: jobs meet it.

    A narrower interval than that between runs is of the run alone, as older results have it.
    """
    error, passes, between = row.rate.error or 0.0, row.result.passes, Z_975 * BETWEEN_RUNS
    if error > between:
        return math.sqrt(error**2 - between**2) / Z_975
    return error / (t_quantile(passes - 1) if passes else Z_975)


def _watts(rows: Sequence[_Row], terms: Terms) -> tuple[float | None, str, int]:
    """Median draw of a GPU, what it is of, and how many nodes' limits stand for a draw that was not valid."""
    valid = of_one_scope([row for row in rows if row.rate.watts and not row.rate.power_invalid], _scope)
    scope = _scope(valid[0]) if valid else "gpu"
    draw = median((row.rate.watts or 0.0) / (row.result.gpus or row.node.gpus) for row in valid)
    if draw is not None:
        return draw, scope, 0
    limit = median(row.node.limit_watts / row.node.gpus for row in rows if row.node.limit_watts)
    if "powerInvalid" in terms.allow and limit is not None:
        return limit, scope, sum(row.node.count for row in rows)
    return None, scope, 0


def _scope(row: _Row) -> str:
    return row.rate.power_scope or "gpu"
