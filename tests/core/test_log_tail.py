"""What a report keeps of a failed agent's log: its end, readable, whoever wrote it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from precision_api.exchange.wire import encode
from precision_api.kinds.report import ReportAttempt
from precision_lab.kubelet.runtime_log import pieces, rendered
from precision_operator.core.results.log_tail import LOG_BYTES, LOG_CHARACTERS, LOG_LINES, log_tail, no_log
from tests.support.examples import examples
from tests.support.result_objects import result

LINES = "\n".join(encode(result()).lines)

LOGS: dict[str, tuple[str, str]] = {
    "a traceback": ("Traceback:\n  File x.py, line 1\nRuntimeError\n", "Traceback:\n  File x.py, line 1\nRuntimeError"),
    "blank lines": ("one\n\n  \ntwo\n\n", "one\ntwo"),
    "colours": ("\x1b[1;31mred\x1b[0m and \x1b]0;a title\x07plain", "red and plain"),
    "a progress bar": ("10 %\r50 %\r100 %\r\nout of memory\r\n", "100 %\nout of memory"),
    "tabs": ("\tat line 1", "    at line 1"),
    "a line end of another kind": ("one\x85two\u2028three\x0bfour", "one two three four"),
    "text that runs backwards, and what can't be seen": ("a\u202eb\u200bc\x00d\x7fe\ufeff", "abcde"),
    "no UTF-8": ("\udcff\udcfe", "\ufffd\ufffd"),
    "lines of the result": (f"started\n{LINES}\nthe end\n", "started\nthe end"),
    "words before a line of the result": (f"W: no line end{LINES}", "W: no line end"),
    "nothing": ("", "(no log: it is empty)"),
    "nothing to see": ("\n \x00\n\x1b[0m", "(no log: it is empty)"),
    "nothing but the result": (LINES, "(no log: its last lines are those of the full result)"),
}


@pytest.mark.parametrize(("written", "kept"), LOGS.values(), ids=LOGS)
def test_of_a_log_only_what_a_person_can_read_is_kept(written: str, kept: str) -> None:
    assert log_tail(written.encode("utf-8", "surrogateescape")) == kept


def test_of_a_long_log_the_end_is_kept_on_few_lines() -> None:
    kept = log_tail(b"x" * 5000 + b"\n" + b"y" * 500 + b" the very end\n")
    assert (len(kept), kept[:4], kept[-13:]) == (LOG_CHARACTERS, "...x", " the very end")
    kept = log_tail(b"".join(b"line %d\n" % number for number in range(100)))
    assert kept.splitlines()[0] == f"line {100 - LOG_LINES}"
    assert kept.endswith("line 99")
    stored = pieces(b"x" * 1_000_000 + b"\n" + b"y" * 1_000_000 + b"the very end\n")
    assert log_tail(rendered(stored, LOG_LINES, LOG_BYTES)).endswith("the very end")
    assert no_log('pods "x"\n\x1b[31mnot found' + "." * 900).startswith('(no log: pods "x" not found...')
    assert len(no_log("x" * 900)) < LOG_CHARACTERS


@examples(30)
@given(st.binary(max_size=3000) | st.text(max_size=3000).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"PPR1 1/1 A\n" * 400)
@example(b"\x1b" * 4000)
@example("\U000e0041\u2066\n".encode() * 300)
def test_whatever_a_log_holds_a_report_can_keep_its_end(raw: bytes) -> None:
    kept = log_tail(raw)
    assert all(character.isprintable() or character == "\n" for character in kept)
    attempt = {"run": "r1", "number": 1, "outcome": "failed", "finishedAt": "2026-11-21T09:00:00Z", "log": kept}
    assert ReportAttempt.model_validate(attempt).log == kept
    assert kept.strip()
