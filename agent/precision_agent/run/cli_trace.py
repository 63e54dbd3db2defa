"""`precision-agent verify-trace`: in which precision a job's own GEMMs ran, from the trace that its profiler wrote."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from precision_agent.precision.trace_shares import CLAIMS, NamedTime, Tally, TraceShares, claim_verdict
from precision_agent.precision.verification import FULL_SHARE
from precision_agent.run.trace_reading import BadTrace, kernels_of
from precision_api.exchange.exits import CLAIM_NOT_PROVED
from precision_api.exchange.result import Verification

MOST_GEMMS = 2_000_000
"""That are kept to find overlaps, some 300 bytes each. A step of a large model has some ten thousand."""
MOST_NAMES = 20_000
"""Different kernel names; a training job has some hundred."""
NAMES_TOLD = 20
PROVED = ("verified", "emulated")


class Form(StrEnum):
    """How the answer is printed."""

    table = "table"
    json = "json"


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
        found = _read(file)
    except OSError as error:
        raise typer.BadParameter(f"reading the trace: {error}; check the path", param_hint="TRACE") from None
    except BadTrace as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="TRACE") from None
    told = claim_verdict(claims, found, least_share) if claims else None
    typer.echo(
        json.dumps(as_document(found, claims, told), indent=2) if output is Form.json else as_text(found, claims, told)
    )
    if told and told.verdict not in PROVED:
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


def as_text(found: TraceShares, claims: str | None, told: Verification | None) -> str:
    """The answer as aligned lines, the verdict last."""
    launches = sum(row.launches for row in found.gemms)
    where = f"on {_many(found.streams, 'stream')} of {_many(found.gpus, 'GPU')}"
    lines = [
        f"GEMMs ran for {found.gemm_seconds * 1e3:.3f} ms, overlapping streams counted once: "
        f"{_many(launches, 'launch', 'es')} {where}",
        f"other kernels: {_many(found.other_launches, 'launch', 'es')}, not timed",
        "",
        f"{'CLASS':<11}{'SHARE':>7}{'MS':>12}",
        *(f"{name:<11}{share:>7.1%}{share * found.gemm_seconds * 1e3:>12.3f}" for name, share in found.shares.items()),
    ]
    if found.unknown:
        lines += ["", "names that no rule knows, which prove nothing:", *_rows(found.unknown)]
    else:
        lines += ["", "longest kernels:", *_rows(found.gemms[:5])]
    if told:
        lines += ["", f"claimed {claims}: {told.verdict}: {told.message}"]
    return "\n".join(lines)


def _rows(rows: tuple[NamedTime, ...]) -> list[str]:
    shown = [f"{row.seconds * 1e3:>12.3f} ms {row.launches:>7} x  {row.kernel.name}" for row in rows[:NAMES_TOLD]]
    rest = rows[NAMES_TOLD:]
    more = [f"{sum(row.seconds for row in rest) * 1e3:>12.3f} ms in {len(rest)} more names"] if rest else []
    return shown + more


def _many(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else plural}"


def as_document(found: TraceShares, claims: str | None, told: Verification | None) -> dict[str, Any]:
    """The answer for programs."""
    document: dict[str, Any] = {
        "gemmSeconds": found.gemm_seconds,
        "gpus": found.gpus,
        "streams": found.streams,
        "otherLaunches": found.other_launches,
        "shares": found.shares,
        "kernels": [
            {
                "name": row.kernel.name,
                "class": row.kernel.kernel_class,
                "rule": row.kernel.rule,
                "launches": row.launches,
                "seconds": row.seconds,
            }
            for row in found.gemms
        ],
    }
    if told:
        document["claim"] = {"claimed": claims, "verdict": told.verdict, "share": told.share, "message": told.message}
    return document
