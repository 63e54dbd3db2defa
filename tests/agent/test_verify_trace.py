"""`precision-agent verify-trace`: shares of a trace, claims, and files that are no trace."""

import gzip
import io
import json
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from precision_agent.run import trace_reading
from precision_agent.run.cli import app
from precision_agent.run.trace_reading import BadTrace, kernels_of
from tests.support.golden import FOLDER

SEEN: dict[str, Any] = json.loads((FOLDER / "kernel_names.json").read_text(encoding="utf-8"))
KERNELS = [(row["name"], row["true_class"]) for row in SEEN["kernels"]]
OF_CLASS = {true: name for name, true in KERNELS}
MXFP8, BF16, CAST = OF_CLASS["mxfp8"], OF_CLASS["bf16"], OF_CLASS["not_a_gemm"]
EMULATION = "void transformer_engine::swizzle_block_scaling_to_mxfp8_scaling_factors_kernel<128>(float*)"


def kernel(name: str, start: float, dur: float, stream: int = 7, gpu: int = 0) -> dict[str, Any]:
    told = {"stream": stream, "device": gpu}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": dur, "pid": gpu, "tid": stream, "args": told}


def written(path: Path, *events: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events}))
    return path


def verified(path: Path, *options: str) -> Result:
    return CliRunner(env={"COLUMNS": "400"}).invoke(app, ["verify-trace", str(path), *options])


def document(path: Path, *options: str) -> dict[str, Any]:
    ran = verified(path, "-o", "json", *options)
    assert ran.exit_code in (0, 20), ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


# shares


def true_shares(spans: list[tuple[float, float, str]]) -> dict[str, float]:
    """Moment by moment, without a sweep: of each stretch between two edges, an equal part to all that run."""
    edges = sorted({edge for start, end, _ in spans for edge in (start, end)})
    seconds: dict[str, float] = {}
    for start, end in pairwise(edges):
        running = [kind for first, last, kind in spans if first <= start and last >= end]
        for kind in running:
            seconds[kind] = seconds.get(kind, 0.0) + (end - start) / len(running)
    return {kind: spent / sum(seconds.values()) for kind, spent in seconds.items()}


@pytest.mark.torch
def test_shares_of_a_trace_are_right_within_half_a_per_cent_whatever_its_kernels_and_streams(tmp_path: Path) -> None:
    """A real CPU trace whose GEMMs get the names of real kernels of all classes, every second on another stream that
    began half a GEMM earlier."""
    import torch

    torch.set_num_threads(1)
    operands = [torch.ones(size, size) for size in (32, 64, 96)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _, operand in zip(range(3 * len(KERNELS)), cycle(operands), strict=False):
            torch.mm(operand, operand)
    profiler.export_chrome_trace(str(tmp_path / "cpu.json"))
    trace = json.loads((tmp_path / "cpu.json").read_text())
    multiplied = [event for event in trace["traceEvents"] if event.get("name") == "aten::mm"]
    spans: list[tuple[float, float, str]] = []
    for number, (event, (name, true)) in enumerate(zip(multiplied, cycle(KERNELS), strict=False)):
        stream = number % 2
        event.update(cat="kernel", name=name, ts=event["ts"] - stream * event["dur"] / 2, pid=0, tid=stream)
        event["args"] = {"device": 0, "stream": stream}
        if true != "not_a_gemm":
            spans.append((event["ts"], event["ts"] + event["dur"], true))
    with gzip.open(tmp_path / "trace.json.gz", "wt") as file:
        json.dump(trace, file)

    found = document(tmp_path / "trace.json.gz", "--claims", "bf16")

    truth = true_shares(spans)
    assert set(found["shares"]) == set(truth) == set(SEEN["classes"]) - {"not_a_gemm"}
    assert found["shares"] == pytest.approx(truth, abs=0.005)
    assert sum(row["seconds"] for row in found["kernels"]) == pytest.approx(found["gemmSeconds"])
    assert found["claim"]["verdict"] == "partial"
    assert found["claim"]["share"] == pytest.approx(truth["bf16"], abs=0.005)


def test_streams_that_overlap_count_once_and_what_is_no_gemm_takes_no_time(tmp_path: Path) -> None:
    side_by_side = [kernel(MXFP8, 0, 10, stream) for stream in range(4)]
    path = written(tmp_path / "t.json", *side_by_side, kernel(BF16, 20, 10), kernel(BF16, 0, 20, gpu=1))
    found = document(path)
    assert found["gemmSeconds"] == pytest.approx(40e-6)
    assert found["shares"] == pytest.approx({"mxfp8": 0.25, "bf16": 0.75})
    assert (found["gpus"], found["streams"]) == (2, 6)
    path = written(tmp_path / "t.json", kernel(MXFP8, 0, 10), kernel(CAST, 0, 100, stream=8), {"ph": "M", "name": "x"})
    found = document(path)
    assert (found["shares"], found["otherLaunches"]) == ({"mxfp8": 1.0}, 1)


# claims


@pytest.mark.parametrize(
    ("events", "claim", "exit_code", "verdict"),
    [
        ([kernel(MXFP8, 0, 99), kernel(BF16, 100, 1)], "mxfp8", 0, "verified"),
        ([kernel(OF_CLASS["fp8"], 0, 99)], "fp8", 0, "verified"),
        ([kernel(OF_CLASS["fp8"], 0, 99)], "fp8_delayed", 0, "verified"),
        ([kernel(MXFP8, 0, 90), kernel(BF16, 100, 10)], "mxfp8", 20, "partial"),
        ([kernel(BF16, 0, 90)], "mxfp8", 20, "fallback"),
        ([kernel(OF_CLASS["fp8"], 0, 90)], "mxfp8", 20, "fallback"),
        ([kernel("my_fast_mxfp8_gemm", 0, 90)], "mxfp8", 20, "unknown"),
        ([kernel(MXFP8, 0, 90), kernel("my_fast_mxfp8_gemm", 100, 10)], "mxfp8", 20, "partial"),
        ([kernel(CAST, 0, 90)], "mxfp8", 20, "unknown"),
        ([kernel(MXFP8, 0, 90)], "fp8_block", 20, "fallback"),
        ([kernel(MXFP8, 0, 90), kernel(EMULATION, 100, 9)], "fp8_block", 0, "emulated"),
    ],
    ids=[
        "verified", "fp8-of-any-scaling", "fp8-by-its-recipe", "partial", "fallback", "another-fp8", "unknown",
        "unknown-proves-nothing", "no-gemm", "mxfp8-is-no-block-fp8", "emulated",
    ],
)  # fmt: skip
def test_a_claim_gets_the_verdict_and_the_exit_code(
    tmp_path: Path, events: list[Any], claim: str, exit_code: int, verdict: str
) -> None:
    ran = verified(written(tmp_path / "t.json", *events), "--claims", claim)
    assert ran.exit_code == exit_code, ran.output
    assert f"claimed {claim}: {verdict}: " in ran.stdout


def test_unknown_names_are_listed_by_their_time_and_could_at_most_be_the_claim(tmp_path: Path) -> None:
    names = [kernel(f"odd_kernel_{number}", 100 * number, number) for number in range(1, 24)]
    ran = verified(written(tmp_path / "t.json", *names, kernel(MXFP8, 0, 92)), "--claims", "mxfp8")
    told = ran.stdout.split("which prove nothing:")[1].splitlines()[1:]
    assert told[0].split() == ["0.023", "ms", "1", "x", "odd_kernel_23"]
    assert told[20].strip() == "0.006 ms in 3 more names"
    assert "25.0%" in told[-1]
    assert "100.0% if all unknown kernels were mxfp8's, which nothing shows" in told[-1]


def test_a_claim_may_be_absent_or_unknown_and_says_how_much_must_prove_it(tmp_path: Path) -> None:
    ran = verified(written(tmp_path / "t.json", kernel(BF16, 0, 90)))
    assert (ran.exit_code, "claimed" in ran.stdout) == (0, False)
    ran = verified(written(tmp_path / "t.json", kernel(BF16, 0, 90)), "--claims", "fp4")
    assert (ran.exit_code, "nvfp4" in ran.stderr) == (2, True)
    path = written(tmp_path / "t.json", kernel(MXFP8, 0, 85), kernel(BF16, 100, 15))
    assert verified(path, "--claims", "mxfp8", "--least-share", "0.8").exit_code == 0
    assert verified(path, "--claims", "mxfp8", "--least-share", "0.9").exit_code == 20


def test_the_pages_example_is_what_the_command_prints() -> None:
    root = FOLDER.parents[1]
    page = (root / "docs" / "measurement.md").read_text(encoding="utf-8")
    (shown,) = [block for block in page.split("```") if block.startswith("\n$ precision-agent verify-trace")]
    command, told = shown.strip("\n").split("\n", 1)
    path, *options = command.split()[3:]
    ran = verified(root / path, *options)
    assert (ran.exit_code, ran.stdout.strip("\n")) == (20, told)


# files


GOOD = json.dumps({"traceEvents": [kernel(MXFP8, 0, 10), kernel(BF16, 20, 10)], "traceName": "x"}).encode()


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        b"\xef\xbb\xbf" + GOOD,
        gzip.compress(GOOD),
        json.dumps([kernel(MXFP8, 0, 10), kernel(BF16, 20, 10)]).encode(),
        GOOD.replace(b"X", b"X", 1).replace(b'"x"', b'"\xff\xfe"'),
        json.dumps(
            {"a": {"traceEvents": [1]}, "n": 12, "traceEvents": json.loads(GOOD)["traceEvents"]}, indent=3
        ).encode(),
    ],
    ids=["plain", "byte-order-mark", "gzip", "bare-array", "broken-utf-8", "nested-name-and-numbers-before"],
)
def test_a_trace_in_each_of_its_forms_is_read_from_a_pipe_too(data: bytes) -> None:
    assert [found.name for found in kernels_of("-", io.BytesIO(data))] == [MXFP8, BF16]


def event_with(**changed: Any) -> bytes:
    return json.dumps({"traceEvents": [kernel(MXFP8, 0, 10) | changed]}).encode()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the trace ends at the beginning"),
        (b"PK\x03\x04", "stands at the beginning"),
        (b"{}", "has no 'traceEvents'"),
        (b'{"a": 1}', "has no 'traceEvents'"),
        (b'{"traceEvents": 7}', "stands behind 'traceEvents'"),
        (b'{"traceEvents": [{"a": 1} {}]}', "stands behind event 1"),
        (b'{"traceEvents": [7]}', "event 1 is no object"),
        (b'{"traceEvents": [{"a": ?}]}', "event 1 can't be read"),
        (b'{"traceEvents": [' + b"[" * 200_000, "event 1 can't be read"),
        (b'{"traceEvents": [{"ts": ' + b"9" * 5000 + b"}]}", "event 1 can't be read"),
        (GOOD[:200], "event 1 can't be read"),
        (GOOD[: GOOD.index(b"]")], "the trace ends behind event 2"),
        (gzip.compress(GOOD)[:-30], "gzip: "),
        (gzip.compress(GOOD)[:20] + b"\x00" * 40, "gzip: "),
        (event_with(ts="now"), "event 1: a kernel needs ts and dur as numbers"),
        (event_with(dur=-1), "event 1: a kernel needs ts and dur as numbers"),
        (event_with(dur=float("nan")), "event 1: a kernel needs ts and dur as numbers"),
        (event_with(ts=10**400), "event 1: a kernel needs ts and dur as numbers"),
        (event_with(name="x" * 20_000), "event 1: the kernel's name has more than"),
    ],
    ids=[
        "empty", "zip", "no-fields", "no-events", "events-no-array", "no-comma", "event-no-object", "no-json",
        "brackets", "digits", "cut-in-an-event", "cut-between-events", "gzip-cut", "gzip-damaged", "ts-text",
        "dur-negative", "dur-nan", "ts-beyond-floats", "name-endless",
    ],
)  # fmt: skip
def test_a_file_that_is_no_whole_trace_is_refused_with_its_place_and_the_next_step(data: bytes, told: str) -> None:
    with pytest.raises(BadTrace) as caught:
        list(kernels_of("-", io.BytesIO(data)))
    assert told in str(caught.value)
    assert any(step in str(caught.value) for step in (trace_reading.WANTED, trace_reading.CUT))


def test_an_endless_value_and_a_gzip_bomb_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_reading, "MOST_EVENT_CHARS", 1 << 16)

    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1, /) -> bytes:
            start = b'{"traceEvents": ["' if not self.given else b""
            self.given += size
            return start + b"a" * (size - len(start))

    endless = Endless()
    with pytest.raises(BadTrace, match="does not end within"):
        list(kernels_of("-", endless))  # type: ignore[arg-type]
    assert endless.given < 8 << 20
    monkeypatch.setattr(trace_reading, "MOST_BYTES", 4 << 20)
    bomb = gzip.compress(b'{"traceEvents": [' + (b'{"ph": "' + b"M" * 10_000 + b'"},') * 1_000)
    with pytest.raises(BadTrace, match="longer than"):
        list(kernels_of("-", io.BytesIO(bomb)))


def test_what_has_no_gpu_kernels_is_not_there_or_has_strange_names_is_told_plainly(tmp_path: Path) -> None:
    ran = verified(written(tmp_path / "t.json", {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 9}))
    assert (ran.exit_code, "ProfilerActivity.CUDA" in ran.stderr) == (2, True)
    ran = verified(tmp_path / "nosuch.json")
    assert (ran.exit_code, "nosuch.json" in ran.stderr) == (2, True)
    ran = verified(written(tmp_path / "t.json", kernel("evil\x1b[2J\ud800", 0, 90)))
    assert "evil?[2J?" in ran.stdout


def test_the_proof_says_which_names_were_unknown(tmp_path: Path) -> None:
    names = [f"some_kernel_{number}" for number in range(7)]
    events = [kernel(name, 10.0 * at, 1.0 + at) for at, name in enumerate(names)]
    claim = document(written(tmp_path / "t.json", *events, kernel(OF_CLASS["fp8"], 90.0, 100.0)), "--claims", "fp8")[
        "claim"
    ]
    assert claim["verdict"] == "partial"
    assert f"unknown kernels: {', '.join(names[:1:-1])}" in claim["message"], "the longest five"
    assert names[1] not in claim["message"]
