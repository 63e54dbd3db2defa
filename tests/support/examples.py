"""How many examples Hypothesis draws of what is slow: few in every run, ten times as many in `make fuzz`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

MANY = 10


def examples(few: int, **more: Any) -> settings:
    """Settings of a test that draws `few` examples in every run; `more` are other settings of Hypothesis."""
    return settings(max_examples=few * (MANY if settings.get_current_profile_name() == "fuzz" else 1), **more)
