"""Overlapping kernels are counted once, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_agent.precision.occupancy import divided, union

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda it: (float(it[0]), float(sum(it)))))


@pytest.mark.parametrize(
    ("spans", "each"),
    [
        ([], []),
        ([(0, 4), (10, 12)], [4, 2]),
        ([(0, 4), (0, 4)], [2, 2]),
        ([(0, 4), (2, 6)], [3, 3]),
        ([(2, 6), (0, 4)], [3, 3]),
        ([(0, 12), (3, 6), (3, 6)], [10, 1, 1]),
        ([(0, 3), (3, 5)], [3, 2]),
        ([(1, 1), (0, 2)], [0, 2]),
    ],
    ids=["none", "apart", "equal", "shifted", "in-any-order", "nested", "touching", "of-no-length"],
)
def test_a_moment_is_shared_equally_by_what_runs_in_it(spans: list[tuple[float, float]], each: list[float]) -> None:
    assert divided(spans) == pytest.approx(each)


@given(SPANS)
def test_spans_divide_the_time_in_which_anything_ran_by_their_share(spans: list[tuple[float, float]]) -> None:
    covered = {tick for start, end in spans for tick in range(int(start), int(end))}
    assert union(spans) == pytest.approx(len(covered))
    assert sum(divided(spans)) == pytest.approx(len(covered))
    for (start, end), got in zip(spans, divided(spans), strict=True):
        assert (end - start) / max(1, len(spans)) - 1e-9 <= got <= end - start + 1e-9
