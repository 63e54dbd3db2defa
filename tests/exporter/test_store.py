"""The exporter's store: what is held after events and lists in any order."""

import logging
from typing import Any

import pytest

from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.exporter.body import build
from precision_operator.exporter.store import Store
from tests.support.exposition import store_of
from tests.support.report_objects import profile_object, report_object, report_status


def held(store: Store) -> set[str]:
    return {entry.key[2] for entry in store.view().reports}


def take(store: Store, items: list[dict[str, Any]], version: str) -> None:
    """A complete list of the reports, as the watch takes it."""
    store.take(REPORT_PLURAL, "ml", [store.entry(REPORT_PLURAL, raw) for raw in items], version)


def at(version: int, node: str = "n1", **changes: Any) -> dict[str, Any]:
    return report_object(node, resourceVersion=str(version), **changes)


def test_a_list_drops_what_vanished_and_leaves_what_is_younger_or_elsewhere_and_brings_nothing_back() -> None:
    store = Store()
    for report in (at(10), at(11, "n2"), at(20, "younger"), at(10, "far", namespace="other"), at(10, "deleted")):
        store.see(REPORT_PLURAL, report)
    store.forget(at(12, "deleted"))
    take(store, [at(11, "n2"), at(10, "deleted")], "15")
    assert held(store) == {"n2", "younger", "far"}


def test_resource_versions_are_numbers_and_known_ones_are_not_rendered_again() -> None:
    store = store_of(at(9, status={}), at(10))
    assert store.view().reports[0].lines
    store = store_of(at(100))
    (before,) = store.view().reports
    assert store.entry(REPORT_PLURAL, at(100)) is before
    assert store.entry(REPORT_PLURAL, at(101)) is not before


def test_reports_of_a_deleted_profile_are_not_shown_as_those_of_another_one_of_its_name() -> None:
    """They stay for seconds, until the garbage collector comes; who has no owner is adopted."""
    store = Store()
    owners = {"n1": "uid-of-the-deleted-one", "n2": profile_object()["metadata"]["uid"], "n3": ""}
    for node, uid in owners.items():
        refs = [{"kind": "PrecisionProfile", "name": "nightly", "uid": uid}] if uid else []
        store.see(REPORT_PLURAL, at(10, node, ownerReferences=refs))
    assert build(store.view()).nodes == 3, "before its successor is seen the deleted one's are shown"
    store.see(PROFILE_PLURAL, profile_object())
    body = build(store.view())
    assert (body.nodes, body.shown_reports, body.replaced_reports, body.empty_reports) == (2, 2, 1, 0)
    assert b'node="n1"' not in body.text


def test_progress_renders_no_report_and_an_unchanged_list_changes_nothing() -> None:
    store = Store()
    take(store, [at(10), at(11, "n2")], "15")
    before = store.view()
    take(store, [at(10), at(11, "n2")], "16")
    assert store.view() == before
    store = store_of(profile_object(), at(100))
    (before,) = store.view().reports
    store.see(PROFILE_PLURAL, profile_object(resourceVersion="101", status={"phase": "Complete"}))
    assert store.view().reports[0] is before


def test_a_deleted_report_changes_the_generation_and_an_unreadable_one_loses_its_series() -> None:
    store = store_of(at(10))
    before = store.view().generation
    store.forget(at(10, "stranger"))
    assert store.view().generation == before
    store.forget(at(10))
    assert store.view().generation > before
    store = store_of(at(10), at(11, status={"results": "all"}))
    body = build(store.view())
    assert b'node="n1"' not in body.text
    assert body.unreadable[REPORT_PLURAL] == 1


def test_a_renamed_workload_gets_into_the_reports_that_have_no_name_of_their_own() -> None:
    store = store_of(
        profile_object(),
        at(100),
        at(100, "n2", status=report_status(workload="as-measured")),
        profile_object(workload={"name": "ours"}, resourceVersion="101"),
    )
    assert {entry.key[2]: entry.result.workload for entry in store.view().reports if entry.result} == {
        "n1": "ours",
        "n2": "as-measured",
    }
    text = build(store.view()).text
    assert b'workload="ours"' in text
    assert b'workload="llama3-8b"' not in text


def test_a_workload_is_named_whatever_comes_first_and_loses_its_name_with_its_profile() -> None:
    store = store_of(at(100), profile_object())
    assert b'workload="llama3-8b"' in build(store.view()).text
    store.forget(profile_object())
    assert b'workload="llama3-8b"' not in build(store.view()).text


def test_a_report_that_was_rendered_before_its_workload_was_renamed_is_taken_in_under_the_new_name() -> None:
    store = store_of(profile_object())
    early = store.entry(REPORT_PLURAL, at(100))
    store.see(PROFILE_PLURAL, profile_object(workload={"name": "ours"}, resourceVersion="101"))
    store.take(REPORT_PLURAL, "ml", [early], "102")
    assert b'workload="llama3-8b"' not in build(store.view()).text


def test_why_a_report_is_not_shown_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    with caplog.at_level(logging.WARNING):
        for version in (10, 11):
            store.see(REPORT_PLURAL, at(version, status={"results": "all"}))
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "status.results: Input should be a valid tuple"
    ]
