"""GPUs that came by resource claim are held against those that the node publishes."""

import pytest

from precision_agent.protocol import Refusal
from precision_agent.run.open import hold_to_claim
from precision_api.exchange.exits import DEVICES_NOT_CLAIMED

FOUR = [f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(4)]


@pytest.mark.parametrize(
    ("seen", "published", "promised"),
    [(FOUR, FOUR, 4), (FOUR[1:2], FOUR, 1), (FOUR, None, 1), (FOUR[::-1], FOUR, 4)],
    ids=["all", "one of four", "no claim", "in another order"],
)
def test_the_gpus_of_the_claim_are_measured(seen: list[str], published: list[str] | None, promised: int) -> None:
    hold_to_claim(seen, published, promised)


@pytest.mark.parametrize(
    ("seen", "published", "promised", "words"),
    [
        (FOUR, FOUR[:3], 4, f"NVML shows {FOUR[3]}, which no claim"),
        (FOUR, FOUR, 1, "the claim is for 1 GPUs, NVML shows 4"),
    ],
    ids=["a foreign GPU", "more than were claimed"],
)
def test_other_gpus_than_the_claims_are_refused(
    seen: list[str], published: list[str], promised: int, words: str
) -> None:
    with pytest.raises(Refusal, match="claim") as caught:
        hold_to_claim(seen, published, promised)
    assert caught.value.exit == DEVICES_NOT_CLAIMED
    assert words in str(caught.value)
