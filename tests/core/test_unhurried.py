"""Marks and deletions of reports are done a few hundred a pass: what anybody waits for never stands behind them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.admission.unhurried import for_one_pass
from precision_operator.core.attempts.actions import Action, Close, Collect, Drop, MarkFresh, MarkStale
from precision_operator.core.reasons import Said
from tests.support.world import job, report

JOB = Drop("Job", "ml", "j1", "uid-j1", Said("ResultWritten", words="done"))
OWN = {JOB.uid}


def mark(namespace: str, number: int) -> Action:
    found = report(f"n{number}", namespace=namespace)
    gone, undone = Said("NodeGone", words="It is gone."), Said("Measured", words="undone")
    return MarkStale(found, gone) if number % 2 else MarkFresh(found, undone)


def old(namespace: str, number: int) -> Action:
    over = Said("RetentionOver", words="its node is gone")
    return Drop("NodePrecisionReport", namespace, f"r{number}", f"u{number}", over)


def test_a_pass_does_what_is_waited_for_and_some_of_the_rest_of_each_namespace() -> None:
    actions = [*(mark("large", number) for number in range(5)), JOB, *(old("large", number) for number in range(5))]
    done, left = for_one_pass(actions, OWN, limit=7)
    assert done == (*actions[:8],)
    assert JOB in done
    assert left == 3
    actions = [*(mark("large", number) for number in range(50)), *(mark("small", number) for number in range(3))]
    done, left = for_one_pass(actions, limit=10)
    assert Counter(action.report.namespace for action in done) == {"large": 7, "small": 3}  # type: ignore[union-attr]
    assert left == 43


def test_ends_of_jobs_are_so_many_a_pass_the_leaders_own_first() -> None:
    there = [job(f"n{number}", namespace="large", uid=f"uid-{number}") for number in range(6)]
    gone = Said("NodeLost", words="gone")
    ends = [Close(at, None, "disrupted", gone) if i % 3 else Collect(at, None, None, "") for i, at in enumerate(there)]
    drops = [Drop("Job", "large", f"j{number}", f"uid-d{number}", gone) for number in range(6)]
    done, left = for_one_pass([*ends, *drops, JOB], OWN, limit=4)
    assert (done, left) == ((*ends[:4], JOB), 8)
    assert for_one_pass([*ends, *drops], {ends[5].job.uid} | {a.uid for a in drops}, limit=4) == (
        (*ends[:3], ends[5], *drops),
        2,
    )


@given(st.lists(st.sampled_from(["large", "small", "job"]), max_size=30), st.integers(1, 10))
def test_pass_after_pass_all_is_done_once(kinds: list[str], limit: int) -> None:
    actions = [JOB if kind == "job" else mark(kind, number) for number, kind in enumerate(kinds)]
    todo, done = actions, []
    while todo:
        now, left = for_one_pass(todo, OWN, limit)
        assert sum(action is not JOB for action in now) <= limit
        todo = [action for action in todo if action is not JOB and action not in now]
        assert len(todo) == left
        done += now
    assert sorted(map(repr, done)) == sorted(map(repr, actions))
