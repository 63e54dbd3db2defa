"""`precision-agent verify-trace`: in which precision a job's own GEMMs ran, from the trace that its profiler wrote."""

import json
import sys
from typing import Annotated, Any

import typer

from precision_agent.precision.verification import CLAIMS, FULL_SHARE, NamedTime, Tally, TraceShares, claim_verdict
from precision_agent.run.options import Form
from precision_agent.run.trace_reading import BadTrace, kernels_of
from precision_api.exchange.exits import CLAIM_NOT_PROVED
from precision_api.exchange.result import Verification

MOST_GEMMS = 2_000_000
"""That are kept to find overlaps, some 300 bytes each. A step of a large model has some ten thousand."""
MOST_NAMES = 20_000
"""Different kernel names; a training job has some hundred."""
NAMES_TOLD = 20
PROVED = ("verified", "emulated")


def verify_trace(
    file: Annotated[str, typer.Argument(metavar="TRACE", help="A trace of torch.profiler, gzip too; '-' is stdin.")],
    claims: Annotated[str | None, typer.Option(help=f"What the job is said to run in: {', '.join(CLAIMS)}.")] = None,
    least_share: Annotated[
        float, typer.Option(min=0.5, max=1, help="Share of the GEMMs' time that must prove the claim.")
    ] = FULL_SHARE,
    output: Annotated[Form, typer.Option("--output", "-o", help="table or json.")] = Form.table,
) -> None:
    """Says in which precision a job's GEMMs ran, from the trace of torch's profiler; no GPU is needed.

    Ends with 0 where the claim is verified or emulated (or nothing is claimed), with 20 where it is not, with 2 where
    the file can't be read.
    """
    if claims is not None and claims not in CLAIMS:
        raise typer.BadParameter(f"{claims}: known are {', '.join(CLAIMS)}", param_hint="--claims")
    try:
        trace = _read(file)
    except OSError as error:
        raise typer.BadParameter(f"reading the trace: {error}; check the path", param_hint="TRACE") from None
    except BadTrace as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="TRACE") from None
    claim = claim_verdict(claims, trace, least_share) if claims else None
    is_json = output is Form.json
    typer.echo(json.dumps(as_document(trace, claims, claim), indent=2) if is_json else as_text(trace, claims, claim))
    if claim and claim.verdict not in PROVED:
        raise typer.Exit(CLAIM_NOT_PROVED.code)


def _read(file: str) -> TraceShares:
    tally = Tally()
    for kernel in kernels_of(file, sys.stdin.buffer):
        tally.add(kernel.name, kernel.start, kernel.seconds, kernel.gpu, kernel.stream)
        if tally.gemms > MOST_GEMMS:
            raise BadTrace(f"more than {MOST_GEMMS:,} GEMMs: profile fewer steps, three are enough")
        if tally.names > MOST_NAMES:
            raise BadTrace(f"more than {MOST_NAMES:,} different kernel names: that is no trace of a training job")
    if not tally.names:
        raise BadTrace("no GPU kernel in this trace: profile with ProfilerActivity.CUDA, on the GPU, while steps run")
    return tally.shares()


def as_text(trace: TraceShares, claims: str | None, claim: Verification | None) -> str:
    """The answer as aligned lines, the verdict last."""
    launches = sum(row.launches for row in trace.gemms)
    where = f"on {_many(trace.streams, 'stream')} of {_many(trace.gpus, 'GPU')}"
    lines = [
        f"GEMMs ran for {trace.gemm_seconds * 1e3:.3f} ms, overlapping streams counted once: "
        f"{_many(launches, 'launch', 'es')} {where}",
        f"other kernels: {_many(trace.other_launches, 'launch', 'es')}, not timed",
        "",
        f"{'CLASS':<11}{'SHARE':>7}{'MS':>12}",
        *(f"{name:<11}{share:>7.1%}{share * trace.gemm_seconds * 1e3:>12.3f}" for name, share in trace.shares.items()),
    ]
    if trace.unknown:
        lines += ["", "names that no rule knows, which prove nothing:", *_rows(trace.unknown)]
    else:
        lines += ["", "longest kernels:", *_rows(trace.gemms[:5])]
    if claim:
        lines += ["", f"claimed {claims}: {claim.verdict}: {claim.message}"]
    return "\n".join(lines)


def _rows(rows: tuple[NamedTime, ...]) -> list[str]:
    shown = [f"{row.seconds * 1e3:>12.3f} ms {row.launches:>7} x  {row.kernel.name}" for row in rows[:NAMES_TOLD]]
    rest = rows[NAMES_TOLD:]
    more = [f"{sum(row.seconds for row in rest) * 1e3:>12.3f} ms in {len(rest)} more names"] if rest else []
    return shown + more


def _many(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else plural}"


def as_document(trace: TraceShares, asked: str | None, claim: Verification | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "gemmSeconds": trace.gemm_seconds,
        "gpus": trace.gpus,
        "streams": trace.streams,
        "otherLaunches": trace.other_launches,
        "shares": trace.shares,
        "kernels": [
            {
                "name": row.kernel.name,
                "class": row.kernel.kernel_class,
                "rule": row.kernel.rule,
                "launches": row.launches,
                "seconds": row.seconds,
            }
            for row in trace.gemms
        ],
    }
    if claim:
        document["claim"] = {"claimed": asked, "verdict": claim.verdict, "share": claim.share, "message": claim.message}
    return document
