"""Writes that nobody waits for: so many a pass, so that those of one namespace hold up no agent of another.

When a tenant's nodes go or its figures expire, each of its reports is marked. All in one pass, 10,000 such writes kept
the starts and the statuses of every other profile waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest

from precision_api.facts.grouping import grouped
from precision_operator.core.attempts.actions import Action, Drop, MarkFresh, MarkStale

UNHURRIED_A_PASS = 200
"""Some 0.2 s of writes, eight side by side at 8 ms each."""


def for_one_pass(actions: Sequence[Action], limit: int = UNHURRIED_A_PASS) -> tuple[tuple[Action, ...], int]:
    """The actions in their order, with at most `limit` unhurried ones, and how many are left to the next plans.

    Namespaces take turns: one with thousands leaves the others their share.
    """
    by_namespace = grouped((namespace, action) for action, namespace in _unhurried(actions))
    waiting = sum(map(len, by_namespace.values()))
    if waiting <= limit:
        return tuple(actions), 0
    turns = chain.from_iterable(zip_longest(*by_namespace.values()))
    chosen = set(map(id, islice((action for action in turns if action is not None), limit)))
    left = {id(action) for action, _ in _unhurried(actions)} - chosen
    return tuple(action for action in actions if id(action) not in left), waiting - limit


def _unhurried(actions: Sequence[Action]) -> Iterator[tuple[Action, str]]:
    """The marks and deletions of reports, each with its namespace."""
    for action in actions:
        match action:
            case MarkStale() | MarkFresh():
                yield action, action.report.namespace
            case Drop(kind="NodePrecisionReport"):
                yield action, action.namespace
