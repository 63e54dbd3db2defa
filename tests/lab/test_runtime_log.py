"""The log as a container runtime keeps it and a kubelet reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_lab.kubelet.runtime_log import PIECE_BYTES, Piece, pieces, rendered


def test_a_line_of_40_kib_is_stored_in_three_pieces_of_which_only_the_last_ends_it() -> None:
    stored = pieces(b"x" * 40960 + b"\nshort\n")
    assert [(len(piece.content), piece.ends) for piece in stored] == [
        (PIECE_BYTES, False),
        (PIECE_BYTES, False),
        (8192, True),
        (5, True),
    ]


def test_tail_lines_count_pieces_so_a_long_line_comes_back_without_its_front() -> None:
    stored = pieces(b"a" * (PIECE_BYTES + 3) + b"\nlast\n")
    assert rendered(stored, tail_lines=2) == b"aaa\nlast\n"


def test_limit_bytes_cuts_what_the_tail_left_at_its_end() -> None:
    assert rendered(pieces(b"one\ntwo\nthree\n"), tail_lines=2, limit_bytes=5) == b"two\nt"


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\n", [Piece(b"", True)], id="an empty line"),
        pytest.param(b"no end", [Piece(b"no end", True)], id="a last line without an end"),
        pytest.param(b"x" * PIECE_BYTES + b"\n", [Piece(b"x" * PIECE_BYTES, True)], id="a line of just one piece"),
    ],
)
def test_lines_are_stored_whole_where_they_fit(written: bytes, stored: list[Piece]) -> None:
    assert pieces(written) == stored


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"") * 900), max_size=6))
def test_whatever_was_written_comes_back_whole_without_limits(lines: list[bytes]) -> None:
    written = b"".join(line + b"\n" for line in lines)
    assert rendered(pieces(written)) == written
