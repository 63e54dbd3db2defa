"""The page for symptoms names reasons that exist, and every refusal of the cluster."""

from __future__ import annotations

import re
from pathlib import Path

from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.reasons import REASONS

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
STATES = {"Accepted", "Complete", "Invalid"}
"""Conditions and phases of a profile, which are written as reasons are."""


def named(title: str = "") -> set[str]:
    """What the page names in the form of a reason, below a title or anywhere."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"## {title}\n") if title else ("", "", text)
    return set(re.findall(r"`([A-Z]+[a-z]\w+)`", rest.partition("\n## ")[0] if title else text))


def test_every_refusal_of_the_cluster_is_named() -> None:
    assert named("The cluster refuses an agent") == set(RULES)


def test_every_reason_that_the_page_names_is_one() -> None:
    reasons = named() - STATES
    assert len(reasons) > 40
    assert reasons - REASONS.keys() == set()
