"""Time of kernels that overlap, counted once. Pure.

Streams run side by side: the sum of their kernels' durations is longer than the time that passed. Here a moment in
which n kernels run counts as 1/n for each of them, so that what they get adds up to the union of their spans.
"""

from collections.abc import Sequence

Span = tuple[float, float]
"""Start and end on one clock, in any unit; the end is not before the start."""


def divided(spans: Sequence[Span]) -> list[float]:
    """The time of each span, in its unit and order: a moment that n spans share is 1/n of it for each.

    How much of the GPU each of them had in that moment does not show in a trace; equal parts are a convention.
    """
    starts = sorted(range(len(spans)), key=lambda place: spans[place][0])
    ends = sorted(range(len(spans)), key=lambda place: spans[place][1])
    shares = [0.0] * len(spans)
    running, until, so_far = 0, 0.0, 0.0  # so_far: what a span would have got that had run from the first start on
    begun = 0
    for place in ends:
        end = spans[place][1]
        while begun < len(starts) and spans[starts[begun]][0] <= end:
            start = spans[starts[begun]][0]
            so_far += (start - until) / running if running else 0.0
            shares[starts[begun]] -= so_far
            running, until, begun = running + 1, start, begun + 1
        so_far += (end - until) / running
        shares[place] += so_far
        running, until = running - 1, end
    return shares


def union(spans: Sequence[Span]) -> float:
    """How long at least one of the spans ran, in their unit."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered
