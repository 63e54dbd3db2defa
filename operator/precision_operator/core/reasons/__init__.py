"""Every reason that a user can meet: the table, what checks say (a reason and its facts), and how it is told."""

from precision_operator.core.reasons.row import Kind, Reason, Rule
from precision_operator.core.reasons.saying import Facts, Reasoned, Said, said
from precision_operator.core.reasons.table import REASONS, VERDICTS, begun, clause, reason_of, sentence

__all__ = [
    "REASONS",
    "VERDICTS",
    "Facts",
    "Kind",
    "Reason",
    "Reasoned",
    "Rule",
    "Said",
    "begun",
    "clause",
    "reason_of",
    "said",
    "sentence",
]
