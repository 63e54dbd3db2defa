"""Untrusted text in messages, reports, logs, terminals, pages and metrics: whoever runs code on a node may write it.

An attacker's text is drawn with control sequences, tags and label ends in it; positive controls show that the same text
does harm where nothing is done about it.
"""

import csv
import io
import json
import logging
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from precision_api.exchange.message import Refusal
from precision_api.exchange.request import canonical
from precision_api.exchange.result import Failure, MeasurementResult
from precision_api.exchange.wire import encode, read_message
from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from precision_api.facts.plain_text import one_line, plain
from precision_api.kinds.report import ReportStatus
from precision_operator.cli.output import as_columns, as_csv, as_json, as_yaml
from precision_operator.cli.terminal import say
from precision_operator.cluster.log_format import FORMAT, PlainFormatter
from precision_operator.core.observe.observed import Termination
from precision_operator.core.results import ingest
from precision_operator.core.results.endings import NoResult, summary_of
from precision_operator.core.results.ingest import failed_status, finding
from precision_operator.exporter.body import build
from precision_operator.exporter.store import Store
from precision_operator.exporter.text import header, sample_template, samples
from precision_operator.report.facts import reading_of_result
from precision_operator.report.page import page
from tests.report.sample import fleet_page, full_result, node_page
from tests.support.golden import beside
from tests.support.report_objects import FINISHED as FINISHED_AT
from tests.support.report_objects import profile_object, recipe_row, report_object, report_status
from tests.support.result_objects import HASH, recipe_result, result
from tests.support.world import NOW, job, pod, report

TABLES = beside(__file__)

FINISHED = job(finished="Complete", finished_at=NOW, request_hash=HASH)
FAILED = replace(FINISHED, finished="Failed", failure_reason="BackoffLimitExceeded")
ATTACKS = TABLES["attacks"]
hostile = st.lists(st.sampled_from(ATTACKS) | st.text(max_size=8), max_size=5).map("".join).map(lambda s: s[:200])


def harmless(text: str) -> bool:
    """Nothing but what is printed as it stands, on as many lines as it has."""
    return all(sign == "\n" or sign.isprintable() for sign in text)


def test_the_attacks_are_attacks_and_a_tag_that_got_through_would_be_seen() -> None:
    """The positive control: as they are, most of them would reach a terminal."""
    assert sum(not harmless(attack) for attack in ATTACKS) >= 10
    assert Tags("<p>a</p><script>x</script>").tags == [("p", ()), ("script", ())]


@given(hostile)
@example("".join(ATTACKS))
def test_plain_text_is_printable_and_stays_as_it_is_when_read_again(text: str) -> None:
    assert harmless(plain(text))
    assert plain(plain(text)) == plain(text)
    assert one_line(one_line(text)) == one_line(text)
    assert "\n" not in one_line(text)


@given(hostile)
@example("".join(ATTACKS)[:200])
def test_what_an_agent_refuses_with_ends_as_words(text: str) -> None:
    message = canonical(Refusal.model_construct(reason="GPUBusy", message=text).model_dump(mode="json"))
    problem = summary_of(FAILED, pod(FINISHED, "Failed", termination=Termination(14, "", message)))
    assert isinstance(problem, NoResult)
    status = failed_status(problem, FAILED, report(), NOW)
    assert harmless(problem.message)
    assert "\n" not in problem.message
    assert_words(status)


@given(hostile)
@example("".join(ATTACKS)[:200])
def test_what_stands_in_a_result_ends_as_words(text: str) -> None:
    """The summary and the full result are built past the agent's own checks, as a hostile agent would."""
    published = encode(result())
    document = json.loads(published.message)
    document["partial"] = text
    for row in document["recipes"] if isinstance(document["recipes"], list) else ():
        row["failure"] = text
    read = read_message(json.dumps(document)) if text else read_message(published.message)
    assert_words(ingest.read_status(finding(read, None, text), FINISHED, report(), "pool", NOW))


def assert_words(status: ReportStatus) -> None:
    document = status.model_dump(mode="json", by_alias=True)
    assert [text for text in texts(document) if not harmless(text)] == []


def texts(value: Any) -> list[str]:
    """All strings of a document, those of its keys too."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (*texts(key), *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@given(hostile)
@example("".join(ATTACKS)[:200])
def test_a_full_results_words_are_plain_wherever_it_is_read_from(text: str) -> None:
    made = result(recipes=(recipe_result("bf16", availability_reason=text),), partial=None)
    document = made.model_dump(mode="json", by_alias=True)
    document["partial"] = {"reason": "failed", "message": text}
    document["workload_name"] = text[:128]
    read = MeasurementResult.model_validate_json(json.dumps(document))
    assert read.partial == Failure(reason="failed", message=plain(text))
    assert [text for text in texts(read.model_dump(mode="json")) if not harmless(text)] == []


@given(st.lists(st.fixed_dictionaries({"node": hostile, "message": hostile, "n": st.integers(0, 9)}), min_size=1))
@settings(max_examples=60)
def test_a_table_shows_no_control_characters_and_no_line_that_is_not_its_own(rows: list[dict[str, Any]]) -> None:
    table = as_columns(rows)
    assert harmless(table)
    assert len(table.splitlines()) == len(rows) + 1


@given(st.lists(st.fixed_dictionaries({"node": hostile, "flags": st.lists(hostile, max_size=2)}), min_size=1))
@settings(max_examples=60)
def test_programs_read_what_was_written_and_terminals_see_no_control_characters(rows: list[dict[str, Any]]) -> None:
    for text, read in ((as_json(rows), json.loads), (as_yaml(rows), yaml.safe_load)):
        assert harmless(text)
        assert read(text) == rows
    written = as_csv(rows, ["node", "flags"])
    assert harmless(written)
    cells = [row["node"].removeprefix("'") for row in csv.DictReader(io.StringIO(written))]
    assert cells == [one_line(row["node"]).removeprefix("'") for row in rows]


@pytest.mark.parametrize(
    ("cell", "written"),
    TABLES["cells"],
)
def test_a_spreadsheet_takes_no_cell_for_a_formula(cell: str, written: str) -> None:
    assert as_csv([{"node": cell, "flags": [cell]}], ["node", "flags"]) == f"node,flags\n{written},{written}"


@pytest.mark.parametrize("err", [False, True])
def test_what_the_plugin_says_moves_no_cursor(err: bool, capsys: pytest.CaptureFixture[str]) -> None:
    say("a\t" + "".join(ATTACKS), err=err)
    printed = capsys.readouterr()
    said = (printed.err if err else printed.out).removesuffix("\n")
    assert said.startswith("a\t")
    assert harmless(said.replace("\t", ""))


@given(hostile)
@example("".join(ATTACKS)[:200])
def test_a_line_of_the_log_stays_one_line(text: str) -> None:
    record = logging.LogRecord("a", logging.WARNING, "f", 1, "status of %s: %s", ("p", text), None)
    written = PlainFormatter(FORMAT).format(record)
    assert harmless(written)
    assert len(written.splitlines()) == 1
    if "\n" in text.strip("\n"):
        assert len(logging.Formatter(FORMAT).format(record).splitlines()) > 1, "the positive control"


def test_what_an_exception_says_looks_like_no_line_of_the_log() -> None:
    line = "2026-11-21 09:00:00,000 INFO precision_operator: all is well"
    try:
        raise ValueError(f"unreadable\x1b[2J\n{line}")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "reading", None, sys.exc_info())
    written = PlainFormatter(FORMAT).format(record)
    assert not [line for line in written.splitlines()[1:] if not line.startswith("    ")]
    assert "\x1b" not in written
    record.exc_text = None
    assert line in logging.Formatter(FORMAT).format(record).splitlines(), "the positive control"


class Tags(HTMLParser):
    """What a browser would make of a page: its tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


@given(hostile.filter(bool))
@example("".join(ATTACKS)[:200])
@settings(max_examples=8, deadline=None)
def test_no_text_adds_a_tag_or_an_attribute_to_a_page(text: str) -> None:
    fleet = fleet_page()
    named = tuple(replace(node, node=f"{text}{at}", pool=text) for at, node in enumerate(fleet.nodes))
    pages = (replace(fleet, nodes=named, unmeasured=(text,)), replace(node_page(), subject=text, result_problem=text))
    for calm, hit in zip((fleet, node_page()), pages, strict=True):
        assert set(Tags(page(hit)).tags) <= set(Tags(page(calm)).tags) | set(Tags(page(fleet)).tags)


def test_words_of_a_hostile_result_are_no_tags_on_its_page() -> None:
    attack = "<script>alert(1)</script>"
    result = full_result().model_copy(update={"partial": Failure(reason="failed", message=attack)})
    assert "<script" not in page(replace(node_page(), nodes=(reading_of_result(result),), subject=attack))


@given(st.lists(st.tuples(hostile, hostile), min_size=1, max_size=5, unique=True))
@example([('"} 1\nprecision_fake{node="a"} 2', "a")])
def test_no_label_makes_a_sample_or_a_family(rows: list[tuple[str, str]]) -> None:
    body = header("precision_node_x", "A \\ and a\nline.", "gauge") + samples(
        sample_template("precision_node_x", ("node", "pool")), [(row, 1.0) for row in rows]
    )
    families = list(text_string_to_metric_families(body.decode()))
    assert [family.name for family in families] == ["precision_node_x"]
    assert len(families[0].samples) == len(rows)


PLANTED = "planted-in-words"


def test_metrics_hold_no_message_no_image_and_no_log() -> None:
    """What people and agents write into profiles and reports, and no figure or name of a thing."""
    attempt = {"run": "r1", "number": 1, "outcome": "failed", "reason": "AgentCrashed", "finishedAt": FINISHED_AT}
    attempt |= {"message": PLANTED, "log": PLANTED, "basis": {"agent": PLANTED}}
    condition = {"type": "Succeeded", "status": "False", "reason": "AgentCrashed", "message": PLANTED}
    store = Store("detail")
    store.see(PROFILE_PLURAL, profile_object(agent={"image": PLANTED, "imagePullSecrets": [{"name": PLANTED}]}))
    rows = [recipe_row("bf16"), recipe_row("mxfp8", failure=PLANTED)]
    partial = report_status(rows, partial=PLANTED)
    conditions = [condition | {"lastTransitionTime": FINISHED_AT}]
    store.see(REPORT_PLURAL, report_object(status=partial | {"attempt": attempt, "conditions": conditions}))
    text = build(store.view()).text.decode()
    assert "precision_node_failed{" in text
    assert 'reason="AgentCrashed"' in text
    assert PLANTED not in text
