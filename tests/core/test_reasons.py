"""The table of reasons: what a user reads of each, once, whatever says it."""

import re
import string

import pytest

from precision_operator.core.reasons import REASONS, sentence
from precision_operator.core.reasons.table import read
from tests.support.golden import beside

TABLES = beside(__file__)


def template_fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_reason_is_a_word_and_a_sentence_with_a_next_step_and_its_facts() -> None:
    assert [code for code in REASONS if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", code)] == []
    for reason in REASONS.values():
        facts = {name: f"<{name}>" for name in template_fields(reason.template) | template_fields(reason.next_step)}
        text = sentence(reason.code, **facts)
        assert text[0].isupper() or text[0] == "<" or text.startswith("spec.")
        assert "precision rerun." not in text, "it takes a profile or a node"
        assert text.endswith(".")
        assert [value for value in (*facts.values(), ". ") if value not in text] == []
    with pytest.raises(KeyError):
        sentence("NotReady", node="n1")


@pytest.mark.parametrize(("written", "problem"), TABLES["wrong_rows"].values(), ids=TABLES["wrong_rows"])
def test_a_table_with_a_wrong_row_is_refused_with_its_place(written: str, problem: str) -> None:
    with pytest.raises((KeyError, ValueError), match=problem):
        read(f'{{"phrases": {{}}, {written}}}')


def test_what_others_write_stays_on_one_line_and_is_cut() -> None:
    text = sentence("UnsupportedProduct", name="Tesla\n\x1b[31mT4 {x} " + "y" * 5000, supported="H100")
    assert "\n" not in text
    assert "\x1b" not in text
    assert "T4 {x} yyy" in text
    assert len(text) < 600


@pytest.mark.parametrize("length", [299, 300, 301, 5000])
def test_a_long_fact_keeps_its_start_and_its_cause_at_the_end(length: int) -> None:
    """As an image that cannot be pulled: its name comes first, twice, with a digest, and why comes last."""
    start, cause = 'failed to pull "registry.example.com/agent@sha256:', ": no basic auth credentials"
    fact = start + "0" * (length - len(start) - len(cause)) + cause
    (shown,) = re.findall("failed to pull.*credentials", sentence("UnsupportedProduct", name=fact, supported="H100"))
    assert (shown == fact) == (length <= 300)
    assert len(shown) == min(length, 300)
    assert (" ... " in shown) == (length > 300)
