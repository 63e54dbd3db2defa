"""A container's log as a runtime keeps it: lines in pieces of 16 KiB, stdout and stderr in one file.

Source: CRI log format and kubelet's reader (pkg/kubelet/kuberuntime/logs): a piece that does not end its line is marked
partial and printed without a line end, but counts as a line of its own for tailLines.
"""

from dataclasses import dataclass

PIECE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the log file; `ends` is False when its line goes on in the next entry."""

    content: bytes
    ends: bool


def pieces(written: bytes) -> list[Piece]:
    """What the runtime stores of a container's output. A last line without a line end is stored as if it had one."""
    lines = written.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [piece for line in lines for piece in _cut(line)]


def rendered(stored: list[Piece], tail_lines: int | None = None, limit_bytes: int | None = None) -> bytes:
    """What the kubelet answers: the last `tail_lines` pieces, of that the first `limit_bytes` bytes."""
    start = max(0, len(stored) - tail_lines) if tail_lines is not None else 0
    text = b"".join(piece.content + (b"\n" if piece.ends else b"") for piece in stored[start:])
    return text if limit_bytes is None else text[:limit_bytes]


def _cut(line: bytes) -> list[Piece]:
    starts = range(0, max(len(line), 1), PIECE_BYTES)
    return [Piece(line[start : start + PIECE_BYTES], start + PIECE_BYTES >= len(line)) for start in starts]
