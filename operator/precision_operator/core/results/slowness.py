"""What is said of a node beside its peers: one wording for kubectl and for the page that goes to a vendor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from precision_api.facts.plain_text import three_digits
from precision_api.facts.recipes import recipe_name
from precision_operator.core.reasons import begun, said
from precision_operator.core.results.outliers import Judged, Peers
from precision_operator.core.results.reading import Reading

ONE_SLOW_GPU = 0.97
"""Below this share of its node's mean a GPU is named as the slow one: the agent's own limit."""
JOB_NODES = 64
"""Of the job in whose terms the cost of a slow node is told."""


@dataclass(frozen=True)
class PeerComparison:
    """How a measured node compares with its peers; reason, what is so and what to do are empty unless it is slow."""

    judged: Judged
    rate: float
    """Tokens/s: GPUs x slowest GPU."""
    reason: str = ""
    what: str = ""
    to_do: str = ""

    @property
    def message(self) -> str:
        return f"{self.what} {self.to_do}".strip()

    @property
    def peers_rate(self) -> float:
        """Tokens/s: the median of its peers."""
        return self.rate / self.judged.relative

    @property
    def headline(self) -> str:
        """The first that is said of a slow node."""
        judged, row = self.judged, self.judged.reading.rows[self.judged.recipe]
        teraflops = (row.teraflops_per_gpu or 0.0) * self.rate / (row.tokens_per_second or math.inf)
        figures = ((teraflops, "TFLOP/s per GPU"), (self.rate, "tokens/s"))
        pairs = ((three_digits(rate), three_digits(rate / judged.relative), unit) for rate, unit in figures if rate)
        rates = ", ".join(f"{rate} against {of_peers} {unit}" for rate, of_peers, unit in pairs)
        best = judged.reading.marks.best or row.recipe
        other = "" if best == judged.recipe else f", which enough peers ran alike; its best is {recipe_name(best)}"
        pace = f"at the pace of the slowest GPU ({recipe_name(judged.recipe)}{other})"
        return f"{judged.node} is slow: {judged.relative:.1%} of its peers' rate, {rates} {pace}"

    @property
    def cost(self) -> str:
        """What a synchronous job loses by a slow node."""
        left = JOB_NODES * self.judged.relative
        return (
            f"A synchronous job waits for its slowest node in every step: {JOB_NODES} nodes with this one do the work "
            f"of {left:.1f}, {JOB_NODES - left:.1f} fewer, where the others run as its peers and compute sets the pace."
        )


def compared(judged: Judged, namespace: str, profile: str) -> PeerComparison:
    """With the cause that the result knows: a fallback, or throttling, explains the rest."""
    reading, peers = judged.reading, judged.peers[:3]
    row = reading.rows[judged.recipe]
    rate = row.synchronous_rate or 0.0
    if not judged.slow:
        return PeerComparison(judged, rate)
    fallen = reading.marks.fallen_back
    throttled = [row for row in reading.rows.values() if row.throttled]
    causes = dict.fromkeys(row.throttle_reason or "heat or the power brake" for row in throttled)
    reason = "SlowFallback" if fallen else "SlowThrottled" if causes else "Slow"
    slow = said(
        reason,
        relative=f"{judged.relative:.1%}",
        limit=f"{judged.limit:.1%}",
        count=judged.reference,
        peers=", ".join(
            [
                *(["itself"] if judged.reference > judged.others else []),
                *peers,
                *([f"{judged.others - len(peers)} more"] if judged.others > len(peers) else []),
            ]
        ),
        recipe=judged.recipe,
        recipes=", ".join(fallen),
        cause=", ".join(causes),
        gpus=_gpus(row.gpu_spread, reading.hardware.slowest_gpu if reading.hardware else None),
        node=judged.node,
        namespace=namespace,
        profile=profile,
    )
    what = f"{begun(slow.clause)}."
    return PeerComparison(judged, rate, reason, what, slow.message.removeprefix(what).strip())


def _gpus(spread: float | None, slowest: str | None) -> str:
    """Whether one GPU or all of them make the node slow; `spread` is the slowest GPU's rate over the mean."""
    if spread is None:
        return "its GPUs were not compared with each other"
    if spread < ONE_SLOW_GPU:
        return f"one GPU{f' ({slowest})' if slowest else ''} is slower than the others, at {spread:.1%} of their mean"
    return f"all its GPUs are equally slow (the slowest is at {spread:.1%} of their mean)"


def beside_peers(
    peers: Peers, readings: Sequence[Reading], percent: float, namespace: str, profile: str
) -> tuple[PeerComparison | None, str]:
    """How the node of these readings compares with its peers; else why it is compared with nobody, in words."""
    judged = peers.judged(readings, percent)
    standing = compared(judged[0], namespace, profile) if judged else None
    return standing, "".join(said.message for _, said in peers.alone(readings))
