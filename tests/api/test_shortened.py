"""Long sentences are cut between words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.plain_text import shortened


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
