"""Exit codes of the agent, one table: the agent leaves with one of them, the operator reads the reason from it.

0 means that a result was published, even if every recipe failed; 10 to 29 that there is no result, for a named cause;
anything else (1, 137, 139 ...) is a crash.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exit:
    """One way for an agent to end: `reason` fits a Kubernetes condition, `sentence` tells a person what to do."""

    code: int
    reason: str
    sentence: str


PUBLISHED = Exit(0, "ResultPublished", "The agent published a result.")
INVALID_REQUEST = Exit(
    10, "InvalidRequest", "The agent could not read its request: operator and agent image may not fit together."
)
UNKNOWN_REQUEST_VERSION = Exit(
    11, "UnknownRequestVersion", "The agent does not know this version of the request: use the operator's own agent."
)
DEVICE_MISSING = Exit(
    12, "DeviceMissing", "The container sees fewer GPUs than the node promised: check driver and device plugin."
)
MIG_ENABLED = Exit(13, "MIGEnabled", "A GPU is in MIG mode: only whole GPUs are measured. Turn MIG off to profile it.")
GPU_BUSY = Exit(14, "GPUBusy", "A GPU was in use by somebody else before the measurement began.")
BACKEND_UNAVAILABLE = Exit(
    15, "BackendUnavailable", "The agent image lacks PyTorch or Transformer Engine, or they can't be loaded."
)
PUBLISH_FAILED = Exit(16, "PublishFailed", "The result could not be written to the termination message or the output.")
NOTHING_FINISHED = Exit(
    17, "NothingFinished", "The run was ended before one full pass was complete: give it a longer deadline."
)
UNKNOWN_PRODUCT = Exit(18, "UnknownProduct", "The replay has no figures of this product.")
GPU_UNHEALTHY = Exit(
    19, "GPUUnhealthy", "A GPU must be reset or replaced before it can be measured: see its ECC errors and row remaps."
)
DEVICES_NOT_CLAIMED = Exit(
    21,
    "DevicesNotClaimed",
    "The container sees other GPUs than those that the node's ResourceSlices publish: check the DRA driver's pod, and "
    "whether the image or a RuntimeClass gives it more GPUs than its claim.",
)
CLAIM_NOT_PROVED = Exit(20, "ClaimNotProved", "verify-trace: the trace does not prove the precision that was claimed.")
"""Of a command that a person or a CI job runs; no measurement ends with it, so it is not in the table below."""
NOT_ACCEPTED = Exit(30, "Fail", "check: a measurement, or a health counter, says that the node may not take work.")
UNDECIDED = Exit(31, "Inconclusive", "check: nothing speaks for or against the node; its last line says why.")
"""Of `check` alone: a verdict. Every code but these two and 0 is none."""
CRASHED = Exit(1, "AgentCrashed", "The agent crashed: its log says where.")

EXITS: tuple[Exit, ...] = (
    PUBLISHED,
    INVALID_REQUEST,
    UNKNOWN_REQUEST_VERSION,
    DEVICE_MISSING,
    MIG_ENABLED,
    GPU_BUSY,
    BACKEND_UNAVAILABLE,
    PUBLISH_FAILED,
    NOTHING_FINISHED,
    UNKNOWN_PRODUCT,
    GPU_UNHEALTHY,
    DEVICES_NOT_CLAIMED,
)
"""Every planned end. A code that is not here is a crash."""

_BY_CODE = {row.code: row for row in EXITS}
_BY_REASON = {row.reason: row for row in EXITS}


def exit_of(code: int) -> Exit:
    """The row of this exit code; a code outside the table is a crash and keeps its number."""
    return _BY_CODE.get(code) or Exit(code, CRASHED.reason, CRASHED.sentence)


def exit_named(reason: str) -> Exit | None:
    """The row of this reason, or None: a message from a foreign agent may name anything."""
    return _BY_REASON.get(reason)
