"""How many examples Hypothesis draws of what is slow: few in every run, ten times as many in `make fuzz`."""

from typing import Any

from hypothesis import settings

MANY = 10


def examples(few: int, many: int | None = None, **more: Any) -> settings:
    """Settings of a test that draws `few` examples in every run, and `many` (ten times as many) in `make fuzz`.

    `more` are other settings of Hypothesis.
    """
    is_fuzz = settings.get_current_profile_name() == "fuzz"
    return settings(max_examples=(many or few * MANY) if is_fuzz else few, **more)
