"""GEMMs that a profile gives literally: as m, k and n, or as MxKxN."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from precision_api.facts.schema import Document, patterned
from precision_api.models.model import strict

MAX_DIMENSION = 16_777_216
Dimension = Annotated[int, strict(1, MAX_DIMENSION)]
"""One dimension of an explicit GEMM."""


class Shape(Document):
    """One explicit forward GEMM: (m x k) times (k x n)."""

    m: Dimension = Field(description="Rows of the input: tokens.")
    k: Dimension = Field(description="Columns of the input: the width that is summed over.")
    n: Dimension = Field(description="Columns of the output.")


_SHAPE_TEXT = re.compile(r"([0-9]{1,9})[xX]([0-9]{1,9})[xX]([0-9]{1,9})")


def parse_shape(text: str) -> Shape:
    """The shape that `text`, MxKxN, names (15872x4096x12288). ValueError says what is wrong with any other text."""
    match = _SHAPE_TEXT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"shape {text!r}: write MxKxN with whole numbers, for example 15872x4096x12288")
    m, k, n = (int(part) for part in match.groups())
    for name, size in (("M", m), ("K", k), ("N", n)):
        if not 1 <= size <= MAX_DIMENSION:
            raise ValueError(f"shape {text!r}: {name} is {size}, but must be from 1 to {MAX_DIMENSION}")
    return Shape(m=m, k=k, n=n)


def _readable_gemm(text: object) -> object:
    # Before the pattern, whose message says nothing of M, K and N.
    if isinstance(text, str):
        parse_shape(text)
    return text


GemmText = Annotated[
    str,
    patterned(
        r"^[0-9]{1,9}[xX][0-9]{1,9}[xX][0-9]{1,9}$",
        29,
        "write each GEMM as MxKxN with whole numbers, for example 15872x4096x12288",
    ),
    BeforeValidator(_readable_gemm),
]
"""A forward GEMM as text."""
