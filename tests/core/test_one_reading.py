"""Every reader of reports shows the same figure of a pool: status, metrics, report page, plan, `nodes` and `compare`.

The figure that is expected is worked out here anew and in the plainest way, from what each node was drawn to be.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from precision_api.kinds.report import ReportStatus
from precision_operator.cli.commands.nodes import row as node_row
from precision_operator.cli.operands import side_of
from precision_operator.core.attempts.node_state import NodeState, ProfilePlan
from precision_operator.core.eligibility.request import resolve_profile
from precision_operator.core.eligibility.triggers import CHECKS, CurrentRun
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import ReportView
from precision_operator.core.reasons import Said
from precision_operator.core.results.compare import Comparison, compare
from precision_operator.core.results.reading import HOLDS_UNTIL_REPLACED, read
from precision_operator.core.status.profile_status import profile_status
from precision_operator.exporter.body import build
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, racks, report_facts
from precision_operator.planner.inputs.spec_terms import terms
from precision_operator.planner.rates.evidence import pools as plan_pools
from precision_operator.report.facts import Given
from precision_operator.report.facts import pools as page_pools
from tests.support import fleets, world
from tests.support.examples import examples
from tests.support.exposition import samples_in, store_of
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status

POOL, OTHER = "NVIDIA-GB200", "NVIDIA-H100"
RECIPES = ("bf16", "mxfp8")
WATTS = 5000.0
Figures = dict[str, float | None]


@dataclass(frozen=True)
class Drawn:
    """One node's report; the best recipe is mxfp8."""

    name: str = "n"
    rate: int = 100_000
    """Tokens/s with mxfp8."""
    speedup: float = 1.4
    verdicts: tuple[str, str] = ("verified", "verified")
    """Of bf16 and mxfp8."""
    throttled: tuple[bool, bool] = (False, False)
    power: tuple[str, str] = ("valid", "valid")
    power_scope: str = "module"
    stale: str = ""
    outcome: str = "succeeded"
    """Of the newest attempt."""
    workload_hash: str = "aaaa"
    scope: str = "all"
    provenance: str = "measured"
    minute: int = 0
    """When its run ended."""

    @property
    def usable(self) -> bool:
        return self.verdicts[1] in ("verified", "emulated")

    @property
    def holds(self) -> bool:
        asked_anew = ("", "Scheduled", "TooOld", "Rerun", "RerunNode", "VerdictOpen")
        return self.stale in asked_anew and self.outcome != "failed"

    @property
    def joules(self) -> float | None:
        """Tokens per joule with mxfp8, as its report writes it."""
        return float(f"{self.rate / WATTS:.4f}") if self.power[1] == "valid" else None


def row(node: Drawn, at: int) -> dict[str, Any]:
    rate = node.rate if at else node.rate / node.speedup
    found = recipe_row(RECIPES[at], node.speedup if at else 1.0, verdict=node.verdicts[at], gemmSpeedup=None)
    found |= {"tokensPerSecond": f"{rate:.0f}", "watts": f"{WATTS}", "tokensPerJoule": f"{rate / WATTS:.4f}"}
    found["powerScope"] = node.power_scope
    if node.throttled[at]:
        found |= {"throttledShare": "0.2", "throttleReason": "software_thermal"}
    if node.power[at] == "invalid":
        found["powerInvalid"] = ["PhaseLocked"]
    if node.power[at] == "zero":
        found |= {"watts": "0", "tokensPerJoule": "0"}
    return found


def status_of(node: Drawn, pool: str = POOL) -> dict[str, Any]:
    run: dict[str, Any] = {"provenance": node.provenance, "backend": "transformer-engine", "workload": "w"}
    run |= {"simulated": ["watts"] if node.provenance == "simulated" else [], "scope": node.scope}
    run |= {"workloadHash": node.workload_hash, "finishedAt": f"2026-11-20T06:{node.minute:02}:00Z"}
    found = report_status([row(node, at) for at in (0, 1)], **run)
    found["hardware"] |= {"pool": pool, "product": "GB200" if pool == POOL else "H100"}
    found["data"] = node.provenance
    found["attempt"] = {"run": "r1", "number": 1, "outcome": node.outcome, "finishedAt": "2026-11-20T06:30:00Z"}
    if node.stale:
        since = {"lastTransitionTime": "2026-11-20T06:30:00Z"}
        found["conditions"] = [{"type": "Fresh", "status": "False", "reason": node.stale} | since]
    return found


def expected(nodes: Sequence[Drawn]) -> Figures:
    """Medians of mxfp8, worked out in the plainest way."""
    good = chosen(nodes)
    rates = [node for node in good if not node.throttled[1]] or good
    ratios = [node for node in good if not any(node.throttled)] or good
    scope = power_scope(nodes)
    joules = [node.joules for node in rates if node.joules is not None and node.power_scope == scope]
    return {
        "tokens_per_second": median(node.rate for node in rates) if rates else None,
        "speedup": median(node.speedup for node in ratios) if ratios else None,
        "tokens_per_joule": median(joules) if joules else None,
    }


def power_scope(nodes: Sequence[Drawn]) -> str:
    """What the energy figures of most nodes are of."""
    good = chosen(nodes)
    powered = [node for node in good if not node.throttled[1]] or good
    scopes = Counter(node.power_scope for node in powered if node.joules is not None)
    return max(scopes, key=lambda scope: (scopes[scope], scope), default="")


def chosen(nodes: Sequence[Drawn]) -> list[Drawn]:
    """The nodes whose mxfp8 counts."""
    return [node for node in population(nodes) if node.usable]


def population(nodes: Sequence[Drawn]) -> list[Drawn]:
    measured = [node for node in nodes if node.provenance == "measured"] or [*nodes]
    there = [node for node in measured if node.holds] or measured
    kind_of = attrgetter("workload_hash", "scope", "provenance")
    kinds = Counter(map(kind_of, there))
    newest = {kind: max(node.minute for node in there if kind_of(node) == kind) for kind in kinds}
    main = max(kinds, key=lambda kind: (kinds[kind], newest[kind], kind))
    return [node for node in there if kind_of(node) == main]


# What each reader shows of mxfp8.


def in_status(nodes: Sequence[Drawn]) -> Figures | None:
    """The profile's status; None where no node of the pool has figures that hold."""
    owner = world.profile()
    plan = ProfilePlan(owner, resolve_profile(owner, world.observed()), tuple(map(node_state, nodes)))
    status = profile_status(plan, world.NOW, 9)
    if not status.pools:
        return None
    (pool,) = status.pools
    if pool.best_recipe != "mxfp8":
        return None
    told = {name: getattr(pool, name) for name in ("tokens_per_second", "speedup", "tokens_per_joule")}
    return {name: None if text is None else float(text) for name, text in told.items()}


def node_state(node: Drawn) -> NodeState:
    """Where the node stands by the operator's plan: its report, and why it is measured again."""
    facts = NodeFacts(name=node.name, uid=f"uid-{node.name}", product="GB200", gpus=4, pool=POOL)
    if node.outcome == "failed":
        reason = "AgentCrashed"
    else:
        reason = "MaxConcurrentReached" if node.stale else "Measured"
    begins = Said(node.stale, words="") if node.stale else None
    return NodeState(facts, Said(reason, words=""), view(node), CurrentRun("r2", {}, None, begins))


def view(node: Drawn, pool: str = POOL) -> ReportView:
    return world.report(node.name, status=ReportStatus.model_validate(status_of(node, pool)))


def in_metrics(nodes: Sequence[Drawn]) -> Figures:
    store = store_of(profile_object(), *(report_object(node.name, status=status_of(node)) for node in nodes))
    medians = {
        sample.name: sample.value
        for sample in samples_in(build(store.view()).text)
        if sample.labels.get("recipe") == "mxfp8" and sample.labels.get("stat") in (None, "p50")
        if sample.labels.get("power_scope") in (None, power_scope(nodes))
    }
    prefix = "precision_pool_training"
    return {
        "tokens_per_second": medians.get(f"{prefix}_reference_tokens_per_second"),
        "speedup": medians.get(f"{prefix}_speedup_ratio"),
        "tokens_per_joule": medians.get(f"{prefix}_tokens_per_joule"),
    }


def on_the_page(nodes: Sequence[Drawn]) -> Figures:
    every = tuple(read(node.name, POOL, ReportStatus.model_validate(status_of(node))) for node in nodes)
    (pool,) = page_pools(Given("x", "now", every))
    rows = [row for row in pool.rows if row.recipe == "mxfp8"]
    spreads = {name: getattr(row, name) for row in rows for name in ("speedup", "tokens_per_joule")}
    spreads["tokens_per_second"] = rows[0].rate if rows else None
    return {name: None if spread is None else spread.value for name, spread in spreads.items()}


def in_a_plan(nodes: Sequence[Drawn]) -> Figures:
    """Rates of a node; the planner uses no speedups and no tokens per joule."""
    owner = profile_facts(profile_object())
    assert owner is not None
    reports = [report_facts(report_object(node.name, status=status_of(node))) for node in nodes]
    known = racks([{"metadata": {"name": node.name, "uid": f"uid-{node.name}", "labels": {}}} for node in nodes])
    fleet = fleet_of(reports, [owner], known, fleets.NOW, "a test")
    allow = ["simulated", "replayed", *([] if any(node.holds for node in nodes) else ["stale"])]
    (pool,) = plan_pools(fleet, terms(fleets.spec(fleet={"allow": allow}), fleets.NOW), fleets.NOW)
    main = population(nodes)[0]
    key = owner.workload.key if main.scope == "all" else f"report-{main.workload_hash}-{main.scope}"
    sample = pool.samples.get((key, "mxfp8"))
    return {"tokens_per_second": sample.reference * pool.gpus_per_node if sample else None}


def in_nodes(nodes: Sequence[Drawn]) -> Figures:
    """Medians of what `nodes` shows of the nodes that count."""
    rows = {node.name: node_row(view(node), None) for node in nodes}
    good = chosen(nodes)
    rates = [node.name for node in good if not node.throttled[1]] or [node.name for node in good]
    ratios = [node.name for node in good if not any(node.throttled)] or [node.name for node in good]
    scoped = {node.name for node in good if node.power_scope == power_scope(nodes)}
    joules = [value for name in rates if (value := rows[name]["tokensPerJoule"]) is not None and name in scoped]
    return {
        "tokens_per_second": median(rows[name]["tokensPerSecond"] for name in rates) if rates else None,
        "speedup": median(rows[name]["speedup"] for name in ratios) if ratios else None,
        "tokens_per_joule": median(joules) if joules else None,
    }


def in_compare(nodes: Sequence[Drawn]) -> Figures | None:
    """The pool's medians, from its ratios to a pool of one kind; None where the two can't be compared."""
    main = population(nodes)[0]
    even = [Drawn(f"o{at}", 50_000, power_scope=power_scope(nodes) or "gpu", **alike(main)) for at in (1, 2)]
    reports = [*map(view, nodes), *(view(node, OTHER) for node in even)]
    found = compare(*[side_of("pool", name, reports) for name in (OTHER, POOL)], "hardware")
    if not isinstance(found, Comparison):
        return None
    row = next((row for row in found.rows if row.recipe == "mxfp8"), None)
    energy = row.tokens_per_joule if row else None
    return {
        "tokens_per_second": row.rate.value * 50_000 if row else None,
        "tokens_per_joule": energy.value * 10 if energy else None,
    }


def alike(node: Drawn) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("workload_hash", "scope", "provenance")}


READERS = (in_status, in_metrics, on_the_page, in_a_plan, in_nodes, in_compare)


def named(*nodes: Drawn) -> list[Drawn]:
    return [replace(node, name=f"n{at}") for at, node in enumerate(nodes)]


CASES: dict[str, tuple[list[Drawn], Figures]] = {
    "two clean, one throttled, two fell back": (
        named(
            Drawn(),
            Drawn(),
            Drawn(throttled=(True, True)),
            Drawn(rate=71_000, speedup=1.0, verdicts=("verified", "fallback")),
            Drawn(rate=71_000, speedup=1.0, verdicts=("verified", "fallback")),
        ),
        {"tokens_per_second": 100_000, "speedup": 1.4, "tokens_per_joule": 20},
    ),
    "two of three throttled in the baseline alone": (
        named(
            Drawn(),
            Drawn(rate=101_000, speedup=1.2, throttled=(True, False)),
            Drawn(rate=102_000, speedup=1.2, throttled=(True, False)),
        ),
        {"tokens_per_second": 101_000, "speedup": 1.4, "tokens_per_joule": 20.2},
    ),
    "one of three without valid power": (
        named(Drawn(), Drawn(rate=110_000), Drawn(rate=150_000, power=("valid", "invalid"))),
        {"tokens_per_second": 110_000, "speedup": 1.4, "tokens_per_joule": 21},
    ),
    "one of three whose watts are of the GPUs alone": (
        named(Drawn(), Drawn(rate=110_000), Drawn(rate=150_000, power_scope="gpu")),
        {"tokens_per_second": 110_000, "speedup": 1.4, "tokens_per_joule": 21},
    ),
    "one of three whose sensor shows nothing": (
        named(Drawn(), Drawn(rate=110_000), Drawn(rate=150_000, power=("valid", "zero"))),
        {"tokens_per_second": 110_000, "speedup": 1.4, "tokens_per_joule": 21},
    ),
    "one of three out of date since its driver changed": (
        named(Drawn(), Drawn(rate=110_000), Drawn(rate=150_000, stale="DriverChange")),
        {"tokens_per_second": 105_000, "speedup": 1.4, "tokens_per_joule": 21},
    ),
    "all to be measured again by the schedule": (
        named(*(Drawn(rate=100_000 + 1000 * at, stale="Scheduled") for at in range(3))),
        {"tokens_per_second": 101_000, "speedup": 1.4, "tokens_per_joule": 20.2},
    ),
    "one of three made up beside measured ones": (
        named(Drawn(), Drawn(rate=110_000), Drawn(rate=150_000, provenance="simulated")),
        {"tokens_per_second": 105_000, "speedup": 1.4, "tokens_per_joule": 21},
    ),
    "one of three of another workload": (
        named(Drawn(), Drawn(rate=110_000), Drawn(rate=150_000, workload_hash="bbbb")),
        {"tokens_per_second": 105_000, "speedup": 1.4, "tokens_per_joule": 21},
    ),
}


@pytest.mark.parametrize(("nodes", "wanted"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_pool_has_one_figure_wherever_it_is_shown(reader: Any, nodes: list[Drawn], wanted: Figures) -> None:
    shown = reader(nodes)
    assert shown == {name: pytest.approx(wanted[name], rel=1e-5) for name in shown}


@pytest.mark.parametrize(("nodes", "wanted"), CASES.values(), ids=CASES)
def test_the_plain_way_gives_the_figures_of_the_cases(nodes: list[Drawn], wanted: Figures) -> None:
    assert expected(nodes) == {name: pytest.approx(value) for name, value in wanted.items()}


def pair(values: Sequence[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(st.sampled_from(values), st.sampled_from(values))


def nodes_of(provenances: Sequence[str]) -> st.SearchStrategy[Drawn]:
    rates = st.integers(95_000, 105_000)
    verdict = st.sampled_from(["verified", "verified", "emulated", "fallback", "partial", "unknown"])
    outcomes = st.sampled_from(["succeeded", "succeeded", "succeeded", "disrupted", "failed"])
    return st.builds(
        Drawn,
        rate=rates,
        speedup=st.sampled_from([1.2, 1.3, 1.4, 1.45]),
        verdicts=st.tuples(st.just("verified"), verdict),
        throttled=pair([False, False, True]),
        power=pair(["valid", "valid", "invalid", "zero"]),
        power_scope=st.sampled_from(["module", "module", "gpu"]),
        stale=st.sampled_from(["", "", "", "Scheduled", "TooOld", "Rerun", "RerunNode", "DriverChange", "SpecChange"]),
        outcome=outcomes,
        workload_hash=st.sampled_from(["aaaa", "aaaa", "bbbb"]),
        scope=st.sampled_from(["all", "all", "mlp"]),
        provenance=st.sampled_from(provenances),
        minute=st.integers(0, 59),
    )


# Not of both: where the only measured nodes don't count, the status and a plan show the others and metrics none.
POOLS = st.sampled_from(["measured", "simulated", "replayed"]).flatmap(
    lambda provenance: st.lists(nodes_of([provenance]), min_size=1, max_size=8)
)


@examples(40)
@given(POOLS)
def test_all_readers_show_the_same_whatever_the_reports(drawn: list[Drawn]) -> None:
    # a run that was asked for again and disrupted is still asked for; a failed one is marked by its reason
    nodes = named(*(replace(it, stale=it.stale or "Scheduled") if it.outcome == "disrupted" else it for it in drawn))
    wanted = expected(nodes)
    for reader in READERS:
        shown = reader(nodes)
        event(f"{reader.__name__}: {'nothing to show' if shown is None else 'shown'}")
        for name, value in (shown or {}).items():
            assert value == (None if wanted[name] is None else pytest.approx(wanted[name], rel=1e-5)), (reader, name)


def test_each_cause_of_a_new_run_says_whether_the_old_figures_hold() -> None:
    changed = {"DriverChange", "HardwareChange", "AgentChange", "SpecChange"}
    assert {code for code, _ in CHECKS} - changed == HOLDS_UNTIL_REPLACED
