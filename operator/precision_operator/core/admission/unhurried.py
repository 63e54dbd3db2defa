"""Writes that nobody waits for: so many a pass, so that those of one namespace hold up no agent of another.

When a tenant's nodes go or its figures expire, each of its reports is marked. All in one pass, 10,000 such writes kept
the starts and the statuses of every other profile waiting. So did the ends of as many Jobs that a tenant had made: a
new leader can't tell them from those of the one before.
"""

from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice, zip_longest

from precision_api.facts.names import grouped
from precision_operator.core.attempts.actions import Action, Close, Collect, Drop, Judge, MarkFresh, MarkStale

UNHURRIED_A_PASS = 200
"""Some 0.2 s of writes, eight side by side at 8 ms each."""


def for_one_pass(
    actions: Sequence[Action], own_jobs: Container[str] = (), limit: int = UNHURRIED_A_PASS
) -> tuple[tuple[Action, ...], int]:
    """The actions in their order, with at most `limit` unhurried ones, and how many are left to the next plans.

    Namespaces take turns: one with thousands leaves the others their share. `own_jobs` are the UIDs of the leader's:
    their ends come first.
    """
    rows = sorted(_unhurried(actions, own_jobs), key=lambda row: row[0])
    by_namespace = grouped((namespace, action) for _, action, namespace in rows)
    turns = filter(None, chain.from_iterable(zip_longest(*by_namespace.values())))
    left = set(map(id, islice(turns, limit, None)))
    return tuple(action for action in actions if id(action) not in left), len(left)


def _unhurried(actions: Sequence[Action], own_jobs: Container[str]) -> Iterator[tuple[bool, Action, str]]:
    """The marks and deletions of reports, and the ends of Jobs, each with whether it comes last, and its namespace."""
    for action in actions:
        match action:
            case MarkStale() | MarkFresh() | Judge():
                yield True, action, action.report.namespace
            case Close() | Collect():
                yield action.job.uid not in own_jobs, action, action.job.namespace
            case Drop() if action.uid not in own_jobs:
                yield True, action, action.namespace
