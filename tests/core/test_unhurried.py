"""Marks and deletions of reports are done a few hundred a pass: what anybody waits for never stands behind them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.admission.unhurried import for_one_pass
from precision_operator.core.attempts.actions import Action, Drop, MarkFresh, MarkStale
from precision_operator.core.reasons import Said
from tests.support.world import report

JOB = Drop("Job", "ml", "j1", "uid-j1", Said("ResultWritten", words="done"))


def mark(namespace: str, number: int) -> Action:
    found = report(f"n{number}", namespace=namespace)
    gone, undone = Said("NodeGone", words="It is gone."), Said("Measured", words="undone")
    return MarkStale(found, gone) if number % 2 else MarkFresh(found, undone)


def old(namespace: str, number: int) -> Action:
    over = Said("RetentionOver", words="its node is gone")
    return Drop("NodePrecisionReport", namespace, f"r{number}", f"u{number}", over)


def test_a_pass_does_all_that_is_waited_for_and_some_of_the_rest_in_their_order() -> None:
    actions = [*(mark("large", number) for number in range(5)), JOB, *(old("large", number) for number in range(5))]
    done, left = for_one_pass(actions, limit=7)
    assert done == (*actions[:8],)
    assert JOB in done
    assert left == 3


def test_the_few_of_one_namespace_do_not_wait_for_the_many_of_another() -> None:
    actions = [*(mark("large", number) for number in range(50)), *(mark("small", number) for number in range(3))]
    done, left = for_one_pass(actions, limit=10)
    assert Counter(action.report.namespace for action in done) == {"large": 7, "small": 3}  # type: ignore[union-attr]
    assert left == 43


@given(st.lists(st.sampled_from(["large", "small", "job"]), max_size=30), st.integers(1, 10))
def test_pass_after_pass_all_is_done_once(kinds: list[str], limit: int) -> None:
    actions = [JOB if kind == "job" else mark(kind, number) for number, kind in enumerate(kinds)]
    todo, done = actions, []
    while todo:
        now, left = for_one_pass(todo, limit)
        assert sum(action is not JOB for action in now) <= limit
        todo = [action for action in todo if action is not JOB and action not in now]
        assert len(todo) == left
        done += now
    assert sorted(map(repr, done)) == sorted(map(repr, actions))
