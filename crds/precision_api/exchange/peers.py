"""By what like is compared with like: peers among nodes, and a node with a reference."""

from typing import NamedTuple

from precision_api.exchange.result import MeasurementResult

_WORDS = {
    "product": "its GPUs are {}, theirs {}",
    "gpus": "it has {} GPUs, they have {}",
    "limit_watts": "its power limit is {}, theirs {}",
    "driver": "its driver is {}, theirs {}",
    "software": "its software (agent image) is {}, theirs {}",
    "timing": "its timing is {}, theirs {}",
    "workload": "its workload is {}, theirs {}",
}


class PeerKey(NamedTuple):
    """Results that share it may be compared node by node."""

    namespace: str = ""
    product: str = ""
    gpus: str = ""
    limit_watts: str = ""
    """Enforced, of all GPUs together."""
    driver: str = ""
    software: str = ""
    """A hash over versions, our own aside."""
    timing: str = ""
    """The agent's timed loop, and its timing."""
    workload: str = ""

    def differing(self, other: "PeerKey") -> list[str]:
        """Names of the parts in which the two differ."""
        return [name for name in self._fields if getattr(self, name) != getattr(other, name)]

    def against(self, other: "PeerKey") -> str:
        """In what it differs from one of its namespace, in words: `its power limit is 2,400 W, theirs 4,800 W`."""
        return ", ".join(
            _WORDS[name].format(*(getattr(key, name) or "unknown" for key in (self, other)))
            for name in self.differing(other)
        )


def watts_text(limit_watts: int | None) -> str:
    """Enforced limits of all GPUs together, as a key has them."""
    return "" if limit_watts is None else f"{limit_watts:,} W"


def key_of(result: MeasurementResult) -> PeerKey:
    """The key of one result, in no namespace."""
    return PeerKey(
        product=result.product,
        gpus=str(len(result.gpus)),
        limit_watts=watts_text(result.limit_watts),
        driver=result.software.driver or "",
        software=result.software.stack_hash,
        timing=result.timing or "",
        workload=result.workload_hash,
    )
