"""The page for symptoms names reasons that exist, and every refusal of the cluster."""

import re
from pathlib import Path

from precision_operator.core.attempts.refusal import RULES
from precision_operator.core.reasons import REASONS

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
NAME = re.compile(r"`([A-Z]+[a-z]\w+)`")
STATES = {"Accepted", "Complete", "Invalid"}
"""Conditions and phases of a profile, which are written as reasons are."""


def test_the_page_names_every_refusal_of_the_cluster_and_no_reason_that_is_none() -> None:
    text = PAGE.read_text(encoding="utf-8")
    refusals = text.partition("## The cluster refuses an agent\n")[2].partition("\n## ")[0]
    assert {*NAME.findall(refusals)} == {*RULES}
    named = {*NAME.findall(text)} - STATES
    assert len(named) > 40
    assert named - REASONS.keys() == set()
