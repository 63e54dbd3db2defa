"""Whether a variant differs from the baseline: beyond its own interval and beyond the run's noise. Pure.

docs/development/method.md, "Intervals and noise", has the rule.
"""

from precision_api.exchange import stats
from precision_api.exchange.result import Difference, Interval


def difference(ratio: Interval, control: Interval | None) -> Difference:
    """`faster` or `slower` where the ratio's interval excludes 1 and it is beyond the noise floor.

    `ratio` is the variant's rate over the baseline's; `control` a second, equal baseline's over the first's. The floor
    is max(|control - 1| + its half-width, 0.5 %), and the 0.5 % alone where no control was measured.
    """
    if not stats.differs(ratio, control):
        return "no_difference"
    return "faster" if ratio.value > 1 else "slower"
