"""GPU kernels out of a trace file of any size, event by event: Chrome's format as torch's profiler writes it.

A trace of some steps is hundreds of megabytes, and a stranger's file may be anything: it is read as a stream, plain or
gzip, and what is kept are the kernels that the caller wants. Memory is bounded by the limits below, whatever the file.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import IO, Any, Protocol, cast

CHUNK_BYTES = 1 << 20
MOST_EVENT_CHARS = 32 << 20
"""Of one event, or of one value beside them. Events with a Python stack and shapes are some kilobytes."""
MOST_BYTES = 16 << 30
"""Of a trace after gzip: reading so much takes some ten minutes. A gzip bomb ends here."""
MOST_NAME_CHARS = 16 << 10
"""Of a kernel's name. C++ templates make names of some kilobytes."""
GZIP_MAGIC = b"\x1f\x8b"
EVENTS = "traceEvents"
WANTED = "give a trace that torch.profiler wrote (export_chrome_trace or tensorboard_trace_handler), plain or gzip"
CUT = "the file is damaged, or its program was stopped while it wrote it; profile again"
US = 1e-6
_VISIBLE = re.compile(r"[^ \t\r\n]")


class BadTrace(ValueError):
    """The file can't be read as a trace; the message says where it went wrong and what to do."""


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """One run of a kernel: start and seconds on the GPU's clock, the GPU and its stream as the trace names them."""

    name: str
    start: float
    seconds: float
    gpu: str
    stream: str


def kernels_of(path: str, stdin: IO[bytes]) -> Iterator[TracedKernel]:
    """All kernels of the trace at `path` ('-' is `stdin`), in the file's order; BadTrace or OSError where it breaks."""
    with _opened(path, stdin) as stream:
        for number, event in enumerate(_events(_Text(stream)), 1):
            kernel = _kernel(event, number)
            if kernel:
                yield kernel


class _Bytes(Protocol):
    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, empty at the end."""


@contextmanager
def _opened(path: str, stdin: IO[bytes]) -> Iterator[_Bytes]:
    with nullcontext(stdin) if path == "-" else Path(path).open("rb") as raw:
        first = raw.read(len(GZIP_MAGIC))
        whole = _Joined(first, raw)
        yield gzip.GzipFile(fileobj=cast(IO[bytes], whole), mode="rb") if first == GZIP_MAGIC else whole


class _Joined:
    """What was read already, and the rest: a pipe can't go back."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first, self._rest = first, rest

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, empty at the end."""
        if self._first:
            chunk, self._first = self._first[:size], self._first[size:]
            return chunk
        return self._rest.read(size)


class _Text:
    """A stream of JSON text, value by value; only the part at hand is in memory."""

    def __init__(self, stream: _Bytes) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._json = json.JSONDecoder()
        self._buffer, self._at, self._bytes, self._ended = "", 0, 0, False

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            match = _VISIBLE.search(self._buffer, self._at)
            if match:
                self._at = match.start()
                return match.group()
            self._at = len(self._buffer)
            if not self._more(CHUNK_BYTES):
                return ""

    def take(self, wanted: str, where: str) -> str:
        """The next character, which must be one of `wanted`; `where` it stands, for the message."""
        sign = self.peek()
        if not sign:
            raise BadTrace(f"the trace ends {where}: {CUT}")
        if sign not in wanted:
            raise BadTrace(f"{sign!r} stands {where}, and no {' or '.join(wanted)}: {WANTED}")
        self._at += 1
        return sign

    def value(self, what: str) -> Any:
        """The next JSON value, whole; `what` it should be, for the message."""
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                problem = error.msg
            except (ValueError, RecursionError) as error:  # a number of 5,000 digits, a million brackets
                raise BadTrace(f"{what} can't be read: {str(error)[:200]}: {WANTED}") from None
            else:
                if end < len(self._buffer) or self._ended:  # else a number may go on
                    self._at = end
                    return value
                problem = "a number without an end"
            if len(self._buffer) - self._at > MOST_EVENT_CHARS:
                raise BadTrace(f"{what} does not end within {MOST_EVENT_CHARS >> 20} MiB ({problem}): {WANTED}")
            if not self._more(max(CHUNK_BYTES, len(self._buffer) - self._at)) and problem != "a number without an end":
                raise BadTrace(f"{what} can't be read ({problem}): {CUT}")

    def _more(self, size: int) -> bool:
        """Reads on; False at the end."""
        if self._ended:
            return False
        try:
            read = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadTrace(f"gzip: {error}: {CUT}") from None
        self._bytes += len(read)
        if self._bytes > MOST_BYTES:
            raise BadTrace(f"the trace is longer than {MOST_BYTES >> 30} GiB: profile fewer steps")
        self._ended = not read
        self._buffer = self._buffer[self._at :] + self._decoder.decode(read, final=self._ended)
        self._at = 0
        return not self._ended


def _events(text: _Text) -> Iterator[Any]:
    """The values of `traceEvents`, or of a bare array of events."""
    if text.take("{[", "at the beginning") == "{":
        _go_to_events(text)
        text.take("[", f"behind {EVENTS!r}")
    if text.peek() == "]":
        return
    number = 0
    while True:
        number += 1
        yield text.value(f"event {number}")
        if text.take(",]", f"behind event {number}") == "]":
            return


def _go_to_events(text: _Text) -> None:
    """Past the values that stand before the events."""
    if text.peek() == "}":
        raise BadTrace(f"the file has no {EVENTS!r}: {WANTED}")
    while True:
        name = text.value("a name")
        text.take(":", f"behind {str(name)[:80]!r}")
        if name == EVENTS:
            return
        text.value(f"the value of {str(name)[:80]!r}")
        if text.take(",}", f"behind {str(name)[:80]!r}") == "}":
            raise BadTrace(f"the file has no {EVENTS!r}: {WANTED}")


def _kernel(event: Any, number: int) -> TracedKernel | None:
    """The kernel that an event tells of; None for events of other kinds."""
    if not isinstance(event, Mapping):
        raise BadTrace(f"event {number} is no object: {WANTED}")
    if event.get("ph") != "X" or str(event.get("cat")).lower() != "kernel":
        return None
    start, seconds = _number(event.get("ts")), _number(event.get("dur"))
    if start is None or seconds is None or seconds < 0:
        raise BadTrace(f"event {number}: a kernel needs ts and dur as numbers, dur not below 0: {WANTED}")
    name = str(event.get("name", ""))
    if len(name) > MOST_NAME_CHARS:
        raise BadTrace(f"event {number}: the kernel's name has more than {MOST_NAME_CHARS} characters: {WANTED}")
    event_args = event.get("args")
    args = event_args if isinstance(event_args, Mapping) else {}
    gpu, stream = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
    if not name.isprintable():  # a stranger's may have control characters or halves of surrogates: it is for a terminal
        name = "".join(sign if sign.isprintable() else "?" for sign in name)
    return TracedKernel(name, start * US, seconds * US, str(gpu)[:64], str(stream)[:64])


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
