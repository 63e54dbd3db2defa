"""Compressed texts that can be put together without compressing again: one gzip member from cached deflate blocks.

Each piece ends on a byte and refers to nothing before it (RFC 1951 3.2.4: a full flush), so pieces can stand in any
order; CRCs are combined as zlib's crc32_combine does (https://github.com/madler/zlib/blob/v1.3.1/crc32.c). Several
whole gzip members in a row would be as valid, and Go's reader takes them, but aiohttp stops after the first one.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_LEVEL = 1
"""Metric text shrinks to a twentieth at level 1 (measured); level 6 takes twice the time for a thirtieth."""
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""Deflate, no name, no time (equal texts give equal bytes), fastest, unknown system (RFC 1952 2.3)."""
LAST_BLOCK = b"\x03\x00"
"""An empty final deflate block."""
_POLYNOMIAL = 0xEDB88320


@dataclass(frozen=True, slots=True)
class CompressedChunk:
    """A text as deflate blocks, with what the trailer of a gzip member needs to know of it."""

    blocks: tuple[bytes, ...]
    crc: int
    size: int


NOTHING = CompressedChunk((), 0, 0)


def piece(text: bytes) -> CompressedChunk:
    if not text:
        return NOTHING
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    blocks = compressor.compress(text) + compressor.flush(zlib.Z_FULL_FLUSH)
    return CompressedChunk((blocks,), zlib.crc32(text), len(text))


def joined(pieces: Iterable[CompressedChunk]) -> CompressedChunk:
    """The pieces as one; nothing is copied."""
    blocks: list[bytes] = []
    crc, size = 0, 0
    for chunk in pieces:
        if chunk.size:
            blocks += chunk.blocks
            crc = combined(crc, chunk.crc, chunk.size)
            size += chunk.size
    return CompressedChunk(tuple(blocks), crc, size)


def gzipped(*pieces: CompressedChunk) -> Iterable[bytes]:
    """One gzip member with the pieces' texts in it, in parts: nothing is copied."""
    whole = joined(pieces)
    trailer = whole.crc.to_bytes(4, "little") + (whole.size & 0xFFFFFFFF).to_bytes(4, "little")
    return (_HEADER, *whole.blocks, LAST_BLOCK, trailer)


def unpacked(chunk: CompressedChunk) -> Iterator[bytes]:
    """The text, in parts that are unpacked when they are asked for."""
    return (zlib.decompressobj(-zlib.MAX_WBITS).decompress(block) for block in chunk.blocks)


def combined(first: int, second: int, second_size: int) -> int:
    """The CRC-32 of two texts in a row from their own CRCs and the second one's length in bytes."""
    return _product(_shift(second_size), first) ^ second


@lru_cache(maxsize=4096)
def _shift(size: int) -> int:
    """x to the power of 8 x `size`, modulo the polynomial."""
    power = 0x80000000  # x^0
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            power = _product(_square(bit), power)
    return power


@lru_cache(maxsize=64)
def _square(times: int) -> int:
    """x^8, squared so many times, modulo the polynomial."""
    return 0x00800000 if times == 0 else _product(_square(times - 1), _square(times - 1))


def _product(a: int, b: int) -> int:
    """a x b modulo the polynomial; bits are reflected, the highest is x^0."""
    result, bit = 0, 0x80000000
    while bit:
        if a & bit:
            result ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return result
