"""Our own SVG as a PNG: its paths are followed, its figures are the page's, and what it can't paint is refused."""

from __future__ import annotations

import struct

import pytest

from precision_operator.drawing.raster import DPI, UNITS_AN_INCH, png, steps
from precision_operator.drawing.svg import WIDTH, cross, drawing, element, words


def test_a_path_is_followed_through_relative_and_absolute_steps() -> None:
    assert list(steps("M1 2l3 0v4H0z")) == [
        ("M", (1, 2)), ("L", (4, 2)), ("L", (4, 6)), ("L", (0, 6)), ("L", (1, 2)),
    ]  # fmt: skip


def test_a_cross_goes_through_its_middle() -> None:
    d = cross(10, 20, 4).split('d="')[1].split('"')[0]
    assert list(steps(d)) == [("M", (6, 16)), ("L", (14, 24)), ("M", (14, 16)), ("L", (6, 24))]


def test_the_picture_has_the_drawings_shape() -> None:
    made = png(drawing(WIDTH / 2, words(10, 20, "$1 & more"), "words"))
    wide, high = struct.unpack(">II", made[16:24])
    assert made[:8] == b"\x89PNG\r\n\x1a\n"
    assert wide - high == pytest.approx(WIDTH / 2 * DPI / UNITS_AN_INCH, abs=1)


def test_an_element_that_can_not_be_painted_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="the SVG element ellipse"):
        png(drawing(10, element("ellipse", cx=1), "none"))
