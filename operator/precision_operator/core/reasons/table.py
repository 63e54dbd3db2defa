"""Every reason that a user can meet - why a node is skipped, waits, is queued, has failed - as one table.

A reason is one CamelCase word (for conditions, events, reports and `kubectl get`), a sentence on what is so, and what
to do next. Sentences take facts from labels, pods and logs, which others write: facts are shown on one line, and of a
long one the middle is left out.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from pydantic import TypeAdapter

from precision_api.facts.plain_text import one_line
from precision_operator.core.reasons.row import Reason

_FIELD = re.compile(r"[a-z]\w*\.\w")
"""A field's path, which keeps its letters where a sentence begins with it."""
_FACT_LENGTH = 300
_FACT_START = 80
"""Errors name the object first and their cause last: the rest of the length is for the end."""


def read(text: str) -> Mapping[str, Reason]:
    """The rows of a table by their codes: its `reasons` by kind and code, with its `phrases` where `<name>` stands.

    Raises KeyError for a phrase that it lacks, and pydantic's ValidationError, with the place, for a row that is none.
    """
    phrases = json.loads(text)["phrases"]
    table = json.loads(re.sub(r"<(\w+)>", lambda name: phrases[name[1]], text))
    rows = {
        code: {"code": code, "kind": kind, **row}
        for kind, reasons in table["reasons"].items()
        for code, row in reasons.items()
    }
    return TypeAdapter(dict[str, Reason]).validate_python(rows)


_TABLE = files(__package__).joinpath("reasons.json").read_text(encoding="utf-8")
REASONS = read(_TABLE)
VERDICTS: Mapping[str, str] = json.loads(_TABLE)["verdicts"]
_UNKNOWN = Reason("", "failed", "", "")


def reason_of(code: str | None) -> Reason:
    """The row of a reason that a report tells; for one that is not in the table a row of which nothing is so."""
    return REASONS.get(code or "", _UNKNOWN)


def sentence(code: str, **facts: object) -> str:
    """What is so, and what to do next, in words. KeyError when the code, or a fact that its sentence needs, is missing.

    Facts are shown on one line; of one that is longer than 300 characters the middle is left out.
    """
    return _sentence(code, **{name: str(value) for name, value in facts.items()})


@lru_cache(maxsize=4096)
def _sentence(code: str, **facts: str) -> str:
    """Thousands of queued nodes are told the same few sentences, pass after pass."""
    shown = {name: _one_line(text) for name, text in facts.items()}
    return f"{begun(clause(code, **facts))}. {REASONS[code].next_step.format_map(shown)}"


def clause(code: str, **facts: object) -> str:
    """What is so, without what to do next, as a part of another sentence. Raises as `sentence` does."""
    shown = {name: _one_line(str(value)) for name, value in facts.items()}
    return REASONS[code].template.format_map(shown).removesuffix(".")


def begun(what: str) -> str:
    """The same words as they begin a sentence: with a capital letter, but for a field's path."""
    return what if _FIELD.match(what) else what[:1].upper() + what[1:]


def _one_line(text: str) -> str:
    text = one_line(text)
    if len(text) <= _FACT_LENGTH:
        return text
    return f"{text[:_FACT_START]} ... {text[_FACT_START + 5 - _FACT_LENGTH :]}"
