"""Builders of raw NodePrecisionReport and PrecisionProfile objects, as the API server gives them."""

from collections.abc import Mapping, Sequence
from typing import Any

from precision_api.facts.names import API_VERSION, PROFILE_KIND, REPORT_KIND, report_name

FINISHED = "2026-11-20T06:30:00Z"


def recipe_row(recipe: str, speedup: float = 1.0, **changes: Any) -> dict[str, Any]:
    """A verified recipe with training, energy and GEMM figures; `changes` replace fields, None takes one out."""
    row: dict[str, Any] = {
        "recipe": recipe, "availability": "ok", "verdict": "verified", "teraflopsPerGPU": f"{950 * speedup:.1f}",
        "tokensPerSecond": f"{95000 * speedup:.0f}", "speedup": f"{speedup:.3f}",
        "speedupLower": f"{speedup - 0.012:.3f}", "speedupUpper": f"{speedup + 0.012:.3f}",
        "gemmSpeedup": {"autocast": f"{speedup * 1.1:.3f}", "prequantized": f"{speedup * 1.4:.3f}"}, "watts": "4870.5",
        "tokensPerJoule": f"{95000 * speedup / 4870.5:.4f}", "powerScope": "module", "modelMemoryBytes": 141733920768,
    }  # fmt: skip
    return {key: value for key, value in (row | changes).items() if value is not None}


def without_energy(recipe: str, speedup: float = 1.0, reasons: Sequence[str] = ("CounterStuck",)) -> dict[str, Any]:
    """A recipe whose power reading was not valid."""
    energy = {"watts": None, "tokensPerJoule": None, "powerScope": None, "powerInvalid": [*reasons]}
    return recipe_row(recipe, speedup, **energy)


def report_status(results: Sequence[Mapping[str, Any]] | None = None, **run: Any) -> dict[str, Any]:
    """The status of a report with a simulated result, its verdicts assumed; `run` replaces fields of status.run."""
    rows = (recipe_row("bf16"), recipe_row("mxfp8", 1.372)) if results is None else results
    if run.get("provenance", "simulated") in ("replayed", "simulated"):
        rows = tuple({**row, "verdict": "assumed"} if row.get("verdict") == "verified" else row for row in rows)
    return {
        "hardware": {"product": "GB200", "gpus": 4, "pool": "NVIDIA-GB200"},
        "software": {"driver": "580.95.05", "cuda": "13.0", "transformerEngine": "2.8.0", "agent": "0.1.0"},
        "run": {"run": "r1", "requestHash": "ab" * 32, "backend": "replay", "provenance": "simulated",
                "simulated": ["watts"], "finishedAt": FINISHED, "durationSeconds": "412.5",
                "workloadHash": "5ad1f0c2", "gemmError": "0.01"} | run,
        "attempt": {"run": "r1", "number": 1, "outcome": "succeeded", "finishedAt": FINISHED}, "results": [*rows],
        "data": "simulated",
    }  # fmt: skip


def fresh_no_more(reason: str, since: str = "2026-11-20T06:30:00Z") -> dict[str, str]:
    """The condition of a report whose figures a new run is to replace, and why."""
    return {"type": "Fresh", "status": "False", "reason": reason, "lastTransitionTime": since}


def acceptance(verdict: str = "Fail", reason: str = "TooSlow", **changes: Any) -> dict[str, Any]:
    """A report's verdict; the fourth of its GPUs is the worst, and fails."""
    checks = ["mxfp8 node -6.25 4.1 3" + " Fail" * (verdict == "Fail"), "bf16 node -6.25 4.1 3"]
    gpus = [[f"GPU-{at}" for at in range(4)], [f"0000:1{6 + at}:00.0" for at in range(4)]]
    made = {"verdict": verdict, "reason": reason, "decidedAt": FINISHED, "checks": checks, "message": "It is so."}
    made |= {"reference": {"name": "gold", "sha256": "ab" * 32}}
    return made | {"subject": {"gpus": gpus[0], "pci": gpus[1]}} | changes


def report_object(
    node: str = "gb200-0001",
    profile: str = "nightly",
    namespace: str = "ml",
    status: Mapping[str, Any] | None = None,
    node_uid: str = "",
    **meta: Any,
) -> dict[str, Any]:
    """A report with a result unless told otherwise; an empty `status` is a report that has none yet."""
    name = report_name(profile, node_uid or f"uid-{node}")
    return {
        "apiVersion": API_VERSION, "kind": REPORT_KIND,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "resourceVersion": "100",
                     "creationTimestamp": "2026-11-20T06:00:00Z"} | meta,
        "spec": {"profile": profile, "nodeName": node, "nodeUID": node_uid or f"uid-{node}"},
        "status": dict(report_status() if status is None else status),
    }  # fmt: skip


def profile_object(
    name: str = "nightly",
    namespace: str = "ml",
    workload: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    """A profile halfway through its nodes, of the preset llama3-8b unless told otherwise."""
    counts = {"matched": 24, "eligible": 22, "skipped": 2, "waiting": 1, "queued": 6, "running": 4}
    counts |= {"succeeded": 10, "failed": 1, "slow": 1, "simulated": 10}
    return {
        "apiVersion": API_VERSION,
        "kind": PROFILE_KIND,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "resourceVersion": "90"}
        | meta,
        "spec": {"workload": dict(workload or {"preset": "llama3-8b"})},
        "status": dict({"phase": "Running", "nodes": counts} if status is None else status),
    }
