"""Decimals as custom resources hold them: no exponent, no artefacts of a float; and sentences, cut between words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.plain_text import shortened
from precision_api.facts.schema import DECIMAL_PATTERN, decimal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (12345.7, "12345.7"),
        (1234567.89, "1234570"),
        (1e-9, "0.000000001"),
        (-0.0, "0"),
        (100.0, "100"),
        (None, None),
    ],
)
def test_a_number_is_told_as_a_person_would_write_it(value: float | None, text: str | None) -> None:
    assert decimal(value) == text


@given(st.floats(min_value=-1e15, max_value=1e15).filter(lambda value: value == 0 or abs(value) > 1e-5))
def test_no_more_digits_are_told_than_were_asked_for_and_the_schema_takes_them(value: float) -> None:
    text = decimal(value) or ""
    assert re.fullmatch(DECIMAL_PATTERN, text)
    assert len(text.lstrip("-0.").replace(".", "").rstrip("0")) <= 6
    assert float(text) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("it fits", 7, "it fits"),
        ("the loss was not measured here", 20, "the loss was not ..."),
        ("supercalifragilistic", 10, "superc ..."),
    ],
)
def test_a_sentence_ends_with_a_whole_word(text: str, limit: int, cut: str) -> None:
    assert shortened(text, limit) == cut


@given(st.text("ab c", min_size=0, max_size=60), st.integers(8, 60))
def test_what_is_cut_holds_and_all_its_words_are_the_texts_own(text: str, limit: int) -> None:
    found = shortened(text, limit)
    assert len(found) <= limit
    if found != text and " " in text[: limit - 3].strip():
        assert text.split()[: len(found.removesuffix(" ...").split())] == found.removesuffix(" ...").split()
