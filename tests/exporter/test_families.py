"""The table of metric families: the whole text, who reads it, and what is never in it."""

import math
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric, Sample

from precision_api.facts.names import REPORT_PLURAL
from precision_api.kinds.report import ReportStatus
from precision_lab.builds.binaries import binaries
from precision_operator.core.results.reading import read
from precision_operator.exporter import text
from precision_operator.exporter.body import Body, build
from precision_operator.exporter.families import table
from precision_operator.exporter.families.family import HELP, Family
from precision_operator.exporter.families.plan import read_plan
from precision_operator.exporter.families.pools import pools
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.reading import read_profile, read_report
from precision_operator.exporter.self_metrics import OwnMetrics
from precision_operator.exporter.text import sample_template, samples
from tests.exporter.test_plans import plan_object
from tests.monitoring.replay import PROMTOOLS
from tests.support.exposition import samples_in, store_of
from tests.support.golden import FOLDER, assert_golden, beside
from tests.support.report_objects import (
    FINISHED,
    acceptance,
    fresh_no_more,
    profile_object,
    recipe_row,
    report_object,
    report_status,
    without_energy,
)

TABLES = beside(__file__)

NOW = datetime(2026, 11, 20, 7, tzinfo=UTC)
ENERGY = ("precision_node_training_power_watts", "precision_node_training_tokens_per_joule")
CRASHED = {
    "run": "r1", "number": 2, "outcome": "failed", "reason": "AgentCrashed", "finishedAt": "2026-11-20T07:00:00Z",
}  # fmt: skip
MIXED = [
    recipe_row("bf16"),
    recipe_row("fp8_block", 1.08, availability="emulated", verdict="emulated"),
    without_energy("mxfp8", 1.372),
    {"recipe": "nvfp4", "availability": "unsupported", "verdict": "unknown"},
]


def fleet() -> list[dict[str, Any]]:
    """Reports of all sorts: simulated, measured, without energy, failed before any result, and of two profiles."""
    measured = report_status(MIXED, backend="transformer-engine", provenance="measured", simulated=[])
    measured["hardware"]["slowestGPU"] = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
    measured["acceptance"] = acceptance()
    return [
        report_object("gb200-0001"),
        report_object("gb200-0002", status=measured),
        report_object("gb200-0002", profile="weekly", status=report_status([recipe_row("bf16")])),
        report_object("gb200-0003", status={"attempt": CRASHED}),
        report_object("gb200-0004", status={}),
    ]


def body_of(
    reports: Iterable[dict[str, Any]], profiles: Iterable[dict[str, Any]] = (), plans: Iterable[dict[str, Any]] = ()
) -> Body:
    return build(store_of(*profiles, *reports, *plans, level="detail").view())


def parsed(body: Body) -> list[Sample]:
    return samples_in(body.text)


def values(body: Body, name: str, label: str = "recipe") -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in parsed(body) if sample.name == name}


def series(sample: Sample) -> tuple[str, tuple[tuple[str, str], ...]]:
    return sample.name, tuple(sorted(sample.labels.items()))


def test_the_whole_text_is_the_golden_one() -> None:
    campaigns = [profile_object(), profile_object("weekly", workload={"name": "mine"})]
    text = body_of(fleet(), campaigns, plans=[plan_object(), plan_object("q2", {"phase": "Refused"})]).text
    assert_golden("metrics.txt", text.decode())


def test_a_gpu_is_named_by_a_fail_alone() -> None:
    for verdict, gpus in (("Fail", ["3"]), ("Inconclusive", [])):
        status = report_status([recipe_row("bf16")])
        status["acceptance"] = acceptance(verdict=verdict, checks=["bf16 node -6.25 4.1 3 Fail"])
        body = body_of([report_object(status=status)])
        assert [*values(body, "precision_node_failing_gpu_info", "gpu")] == gpus


@pytest.mark.cluster
@pytest.mark.parametrize("promtool", PROMTOOLS)
def test_promtool_finds_nothing_wrong_with_the_golden_text(promtool: str) -> None:
    program = binaries([promtool])[promtool]
    text = (FOLDER / "metrics.txt").read_bytes() + OwnMetrics().text()
    output = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (output.returncode, output.stdout + output.stderr) == (0, b"")


def test_prometheus_client_would_write_the_same_bytes_for_the_same_samples() -> None:
    found = [read_report(report, "w") for report in fleet()]
    subjects = sorted((it for it in found if it), key=lambda it: (it.profile, it.node))

    class Theirs:
        def collect(self) -> Iterator[Metric]:
            for family in table.NODE_FAMILIES:
                metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
                for subject in subjects:
                    for labels, value in family.full_rows(subject):
                        assert isinstance(value, float)
                        metric.add_metric(labels, value)
                if metric.samples:
                    yield metric

    registry = CollectorRegistry()
    registry.register(Theirs())
    ours = [(family.head, b"".join(map(family.render, subjects))) for family in table.NODE_FAMILIES]
    assert b"".join(head + lines for head, lines in ours if lines) == generate_latest(registry)


def test_a_replay_has_the_driver_of_its_run_and_a_workload_its_profiles_name() -> None:
    begun = {"run": "r1", "number": 1, "outcome": "succeeded", "finishedAt": FINISHED, "basis": {"driver": "570.1"}}
    status = report_status(MIXED) | {"attempt": begun, "software": {"agent": "0.1.0"}}
    result = read_report(report_object(status=status), "w")
    assert result.driver == "570.1"
    assert result.peers == read("gb200-0001", "", ReportStatus.model_validate(status), "ml").peers
    with_profile = body_of([report_object()], [profile_object(workload={"preset": "llama3-8b", "name": "our-llama"})])
    assert set(values(with_profile, "precision_node_info", "workload")) == {"our-llama"}
    assert set(values(body_of([report_object()]), "precision_node_info", "workload")) == {"5ad1f0c2"}


def test_every_family_has_help_names_and_labels_of_its_own_and_its_unit_last() -> None:
    assert sorted(HELP) == sorted(family.name for family in table.FAMILIES)
    for family in table.FAMILIES:
        assert family.help.endswith("."), family.name
        assert len(set(family.labels)) == len(family.labels), family.name
        assert family.name.startswith("precision_"), family.name
        assert not family.unit or family.name.endswith(UNITS[family.unit]), family.name
        assert not family.name.endswith(("_sum", "_count", "_bucket", "_total")), family.name
        assert not {"le", "quantile"} & set(family.labels), family.name


def test_each_row_has_one_value_for_each_label() -> None:
    campaign = read_profile(profile_object())
    result = read_report(report_object(status=report_status(MIXED)), "w")
    plan = read_plan(plan_object())
    assert result
    assert plan
    (pool,) = pools([*filter(None, (read_report(report_object(f"n{number}"), "w") for number in range(5)))])
    subjects: tuple[tuple[Iterable[Family[Any]], Any], ...] = (
        (table.POOL_FAMILIES, pool),
        (table.NODE_FAMILIES, result),
        (table.PROFILE_FAMILIES, campaign),
        (table.PLAN_FAMILIES, plan),
    )
    for families, subject in subjects:
        for family in families:
            assert {len(labels) for labels, _ in family.full_rows(subject)} <= {len(family.labels)}, family.name
    for standing in table.STANDING_FAMILIES:
        rows = standing.full_rows(pool.standings["n1"])
        assert {len(labels) for labels, _ in rows} == {len(standing.labels)}, standing.name


TWICE = {
    "two profiles over one node": [report_object("n1", "a"), report_object("n1", "b"), report_object("n2", "a")],
    "one profile's name in two namespaces": [report_object(namespace="a"), report_object(namespace="b")],
}


@pytest.mark.parametrize("reports", TWICE.values(), ids=TWICE)
def test_no_series_is_there_twice(reports: list[dict[str, Any]]) -> None:
    body = body_of(reports)
    counted = Counter(map(series, parsed(body)))
    assert counted.most_common(1)[0][1] == 1
    assert body.series == len(counted) - 1, "all but the shard's own"


@pytest.mark.parametrize(("first", "second"), [("u1", "u2"), ("u2", "u1")])
def test_of_a_node_that_came_back_under_its_name_only_the_newer_report_is_shown(first: str, second: str) -> None:
    old = report_object("n1", node_uid=first, status=report_status([recipe_row("bf16", 1.0)]))
    newer = report_status([recipe_row("bf16", 2.0)])
    new = report_object("n1", node_uid=second, status=newer, creationTimestamp="2026-11-21T00:00:00Z")
    for order in ([old, new], [new, old]):
        body = body_of(order)
        assert values(body, "precision_node_training_speedup_ratio") == {"bf16": 2.0}
        assert body.replaced_reports == 1


def test_energy_is_absent_where_power_is_not_valid() -> None:
    body = body_of([report_object(status=report_status([recipe_row("bf16"), without_energy("mxfp8")]))])
    for name in ENERGY:
        assert set(values(body, name)) == {"bf16"}
    assert values(body, "precision_node_power_valid") == {"bf16": 1.0, "mxfp8": 0.0}
    assert set(values(body, "precision_node_power_valid", "reason")) == {"", "CounterStuck"}


@pytest.mark.parametrize(
    "row",
    [
        recipe_row("bf16", watts="0", tokensPerJoule="0"),
        recipe_row("bf16", powerInvalid=["CounterStuck"]),
        recipe_row("bf16", watts=None, tokensPerJoule=None),
    ],
    ids=["a dead sensor's zeros", "figures that are marked invalid", "no word on power"],
)
def test_energy_is_never_shown_from(row: dict[str, Any]) -> None:
    body = body_of([report_object(status=report_status([row]))])
    assert [values(body, name) for name in ENERGY] == [{}, {}]


def test_what_was_not_measured_or_failed_first_shows_no_figure() -> None:
    bare = {"recipe": "nvfp4", "availability": "probe_failed", "verdict": "unknown", "failure": "NoKernel: no kernel"}
    names = {
        sample.name
        for sample in parsed(body_of([report_object(status=report_status([bare]))]))
        if "recipe" in sample.labels
    }
    assert names == {"precision_node_verification"}
    body = body_of([report_object(status={"attempt": CRASHED})])
    names = {sample.name for sample in parsed(body) if "node" in sample.labels}
    assert names == {"precision_node_last_attempt_timestamp_seconds", "precision_node_failed"}
    assert values(body, "precision_pool_nodes", "phase") == {"fresh": 0.0, "stale": 0.0, "failed": 1.0}


@pytest.mark.parametrize(("run", "told"), TABLES["provenance"])
def test_info_says_whether_figures_were_measured(run: dict[str, Any], told: str) -> None:
    assert values(body_of([report_object(status=report_status(**run))]), "precision_node_info", "data") == {told: 1.0}


def test_info_alone_names_the_nvlink_domain_and_the_slowest_gpu_has_dcgms_label() -> None:
    within, outside = report_status(), report_status()
    within["hardware"]["nvlinkDomain"] = "5f1e9f9c.2"
    body = body_of([report_object("n1", status=within), report_object("n2", status=outside)])
    assert {sample.name for sample in parsed(body) if sample.labels.get("nvlink_domain")} == {"precision_node_info"}
    assert values(body, "precision_node_info", "nvlink_domain") == {"5f1e9f9c.2": 1.0, "": 1.0}
    compared = report_status()
    compared["hardware"]["slowestGPU"] = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
    body = body_of([report_object("n1", status=compared), report_object("n2")])
    (sample,) = [sample for sample in parsed(body) if sample.name == "precision_node_slowest_gpu_info"]
    assert (sample.labels["node"], sample.labels["UUID"]) == ("n1", compared["hardware"]["slowestGPU"])


UNITS = TABLES["units"]


def test_a_profiles_states_add_up_and_without_eligible_nodes_it_has_no_progress() -> None:
    body = body_of([], [profile_object()])
    assert sum(values(body, "precision_profile_nodes", "phase").values()) == 24
    assert values(body, "precision_profile_progress_ratio", "profile") == {"nightly": 0.5}
    body = body_of([], [profile_object(status={"nodes": {"matched": 2, "skipped": 2}})])
    assert values(body, "precision_profile_progress_ratio", "profile") == {}
    assert sum(values(body, "precision_profile_nodes", "phase").values()) == 2


@pytest.mark.parametrize(
    "status",
    [
        {"results": "all"},
        {"results": [{"recipe": "FP2", "availability": "ok", "verdict": "verified"}]},
        {"results": [recipe_row("bf16"), recipe_row("bf16")]},
        {"attempt": CRASHED | {"finishedAt": "yesterday"}},
        report_status([recipe_row("bf16", watts="NaN")]),
        report_status(durationSeconds="1e3"),
        ["not", "a", "mapping"],
    ],
    ids=["wrong type", "no recipe's name", "recipe twice", "no time", "not a number", "exponent", "list"],
)
def test_a_report_that_cannot_be_read_is_counted_and_the_others_are_shown(status: Any) -> None:
    broken = report_object("broken") | {"status": status}
    body = body_of([report_object("good"), broken])
    assert {sample.labels["node"] for sample in parsed(body) if "node" in sample.labels} == {"good"}
    assert (body.shown_reports, body.unreadable[REPORT_PLURAL]) == (1, 1)


def test_a_newer_operators_report_is_shown_and_one_without_result_is_no_error() -> None:
    status = report_status([recipe_row("bf16") | {"dreamtRatio": "0.1"}]) | {"forecast": {"since": "now"}}
    assert body_of([report_object(status=status)]).shown_reports == 1
    body = body_of([report_object(status={})])
    assert [sample for sample in parsed(body) if "node" in sample.labels] == []
    assert (body.empty_reports, body.unreadable[REPORT_PLURAL]) == (1, 0)


# What JSON in UTF-8 can carry: everything but lone surrogates.
LABEL_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.lists(st.tuples(LABEL_TEXT, LABEL_TEXT, LABEL_TEXT), max_size=6), st.integers(0, 3))
def test_any_labels_come_back_however_many_of_them_rows_share(rows: list[tuple[str, str, str]], shared: int) -> None:
    template = sample_template("m", ("b", "c", "a"), shared)
    text = b"".join(samples(template, [(labels[shared:], 1.5)], labels[:shared]) for labels in rows)
    assert text.count(b"\n") == len(rows)
    returned = [(sample.labels, sample.value) for sample in samples_in(text)]
    assert returned == [(dict(zip("bca", labels, strict=True)), 1.5) for labels in rows]


@pytest.mark.parametrize(("rows", "remembered"), [(1, 0), (32, 1), (33, 0), (2048, 0)])
def test_lines_of_many_rows_as_a_tenants_gemms_have_are_not_remembered(rows: int, remembered: int) -> None:
    text._known_lines.cache_clear()
    assert samples(sample_template("m", ("gemm",)), [((str(at),), 1.0) for at in range(rows)]).count(b"\n") == rows
    assert text._known_lines.cache_info().currsize == remembered


@pytest.mark.parametrize("value", ["7", "10", "63"])
def test_a_single_label_is_written_whole(value: str) -> None:
    assert samples(sample_template("m", ("index",)), [((value,), 1.0)]) == f'm{{index="{value}"}} 1.0\n'.encode()


@given(st.floats())
def test_any_value_comes_back_from_the_parser_as_it_was(value: float) -> None:
    (sample,) = samples_in(samples(sample_template("m", ("a",)), [(("x",), value)]))
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


def with_condition(status: dict[str, Any], reason: str) -> dict[str, Any]:
    """A report whose figures a new run is to replace, for that reason."""
    return status | {"conditions": [fresh_no_more(reason)]}


def test_a_node_that_failed_or_rests_has_a_name_and_a_reason_until_it_is_gone() -> None:
    failed = report_status() | {"attempt": CRASHED}
    resting = failed | {"quarantine": {"since": "2026-11-20T08:00:00Z", "reason": "DeadlineExceeded"}}
    body = body_of([report_object("a", status=failed), report_object("b", status=resting), report_object("c")])
    assert values(body, "precision_node_failed", "node") == {"a": 1, "b": 1}
    assert values(body, "precision_node_quarantined", "node") == {"b": 1}
    assert values(body, "precision_node_quarantined", "reason") == {"DeadlineExceeded": 1}
    resting = {"attempt": CRASHED, "quarantine": {"since": "2026-11-20T08:00:00Z", "reason": "AgentCrashed"}}
    body = body_of([report_object("a", status=with_condition(report_status() | resting, "NodeGone"))])
    assert values(body, "precision_node_failed", "node") == {}
    assert values(body, "precision_node_quarantined", "node") == {}
    assert values(body, "precision_node_outdated", "reason") == {"NodeGone": 1}


@pytest.mark.parametrize(
    ("reason", "phase"), [("SpecChange", "stale"), ("Scheduled", "fresh"), ("Rerun", "fresh"), ("TooOld", "fresh")]
)
def test_figures_are_outdated_and_stale_by_a_change_and_not_by_a_wish_or_a_schedule(reason: str, phase: str) -> None:
    body = body_of([report_object("a", status=with_condition(report_status(), reason))])
    assert values(body, "precision_node_outdated", "reason") == ({reason: 1} if phase == "stale" else {})
    phases = values(body, "precision_pool_nodes", "phase")
    assert {name: count for name, count in phases.items() if count} == {phase: 1.0}


def test_a_recipe_whose_loss_runs_were_not_healthy_has_a_series_and_a_healthy_one_has_none() -> None:
    verdicts = {"bf16": "healthy", "mxfp8": "diverging", "nvfp4": "diverged", "fp8_current": None}
    rows = [recipe_row(recipe, lossVerdict=verdict) for recipe, verdict in verdicts.items()]
    body = body_of([report_object("a", status=report_status(rows))])
    found = [sample for sample in parsed(body) if sample.name == "precision_node_loss_verdict"]
    told = {sample.labels["recipe"]: sample.labels["verdict"] for sample in found if sample.value == 1}
    assert told == {"mxfp8": "diverging", "nvfp4": "diverged"}


def waits(*reasons: tuple[str, int]) -> dict[str, Any]:
    counts = [{"reason": code, "count": count, "example": f"node-of-{code}"} for code, count in reasons]
    return profile_object(status={"phase": "Running", "reasons": counts})


def test_nodes_that_wait_are_counted_by_reason_and_a_single_one_has_a_name() -> None:
    body = body_of(
        [], [waits(("Busy", 7), ("Cordoned", 1), ("AgentUnschedulable", 2), ("AgentCrashed", 1), ("Odd", 1))]
    )
    waiting, failed = (
        {s.labels["reason"]: (s.labels["example"], s.value) for s in parsed(body) if s.name.endswith(f"{of}_nodes")}
        for of in ("waiting", "profile_failed")
    )
    assert waiting == {"Busy": ("", 7), "Cordoned": ("node-of-Cordoned", 1), "AgentUnschedulable": ("", 2)}
    assert failed == {"AgentCrashed": ("node-of-AgentCrashed", 1)}


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, None),
        ({"schedule": {"cron": "0 2 * * *"}}, 86_400),
        ({"schedule": {"cron": "0 2 * * 1-5"}}, 3 * 86_400),
        ({"schedule": {"cron": "*/5 9-17 * * 1-5"}}, 63 * 3600 + 300),
        ({"schedule": {"cron": "0 2 1 * *"}}, 31 * 86_400),
        ({"schedule": {"cron": "0 0 29 2 *"}}, 1461 * 86_400),
        ({"schedule": {"maxAge": "12h"}}, 43_200),
        ({"schedule": {"cron": "0 2 * * *", "maxAge": "7d"}}, 86_400),
        ({"schedule": {"cron": "0 2 * * *"}, "suspend": True}, None),
        ({"schedule": {"cron": "never"}}, None),
    ],
    ids=str,
)
def test_a_profile_says_how_old_its_newest_result_may_become(spec: dict[str, Any], seconds: float | None) -> None:
    profile = profile_object()
    profile["spec"] |= spec
    found = values(body_of([], [profile]), "precision_profile_refresh_interval_seconds", "profile")
    assert found == ({} if seconds is None else {"nightly": seconds})


def test_drivers_and_levels_are_compared_within_a_workload() -> None:
    measured = report_status(backend="transformer-engine", provenance="measured", simulated=[])
    edited = deepcopy(measured)
    edited["run"] |= {"workloadHash": "new", "scope": "mlp"}
    old = [report_object(name, status=with_condition(measured, "SpecChange")) for name in ("a", "b", "c")]
    due = [report_object(name, status=with_condition(edited, "AgentChange")) for name in ("e", "f")]
    body = body_of([*old, report_object("d", status=edited), *due, *map(report_object, "hijk")])
    level = "precision_pool_training_level_tokens_per_second"
    assert {*values(body, level, "workload_hash"), *values(body, level, "scope")} == {"new", "mlp"}
    fewer = [*old, report_object("g", status=with_condition(measured, "SpecChange")), report_object("d", status=edited)]
    assert not values(body_of([*fewer, *due]), level)
    assert values(body, "precision_pool_data_nodes", "data") == {"measured": 6, "simulated": 4}
    reports = [
        report_object(f"{name}{number}", status=report_status([recipe_row("bf16", rate)], workloadHash=name))
        for name, rate in (("old", 1.0), ("new", 0.5))
        for number in range(5)
    ]
    found = values(body_of(reports), "precision_pool_driver_training_tokens_per_joule", "workload_hash")
    assert found["new"] == pytest.approx(found["old"] / 2)


def shown_of(selection: Selection) -> set[str]:
    store = store_of(*fleet(), profile_object(), plan_object(), level=selection)
    return {sample.name for sample in parsed(build(store.view()))} - {"precision_exporter_shard_series"}


@pytest.mark.parametrize(("allow", "deny", "shown"), TABLES["lists"].values(), ids=TABLES["lists"])
def test_a_list_chooses_what_is_shown(allow: list[str], deny: list[str], shown: list[str]) -> None:
    assert shown_of(Selection("detail", allow, deny)) == set(shown)


def test_a_list_chooses_within_the_level_and_an_idle_expression_is_found() -> None:
    assert shown_of(Selection("node", allow=("precision_node_quantization_tax_ratio",))) == set()
    denied = "precision_pool_nodes"
    assert shown_of(Selection("detail")) - shown_of(Selection("detail", deny=(denied,))) == {denied}
    selection = Selection(deny=("precision_node_slow", "precision_nodes_.*"))
    assert selection.unmatched(frozenset(family.name for family in table.FAMILIES)) == ("precision_nodes_.*",)
