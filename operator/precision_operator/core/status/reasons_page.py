"""The page that lists every reason for readers: text made from the tables, so that it can't lag behind them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from precision_api.exchange.exits import EXITS, PUBLISHED
from precision_operator.core.reasons import REASONS, Kind, begun

_HEAD = files(__package__).joinpath("reasons_page.md").read_text(encoding="utf-8")

SECTIONS: Mapping[Kind, Sequence[str]] = json.loads(
    files(__package__).joinpath("reasons_page.json").read_text(encoding="utf-8")
)
"""Heading and introduction of each kind of reason, in the order of the page."""

_EXIT_HEAD = """\
## Why an agent refuses to measure

`AgentRefused` names one of these; the agent exits with the code beside it. Any other exit code except 0 is a crash
(`AgentCrashed`).
"""


def page() -> str:
    rows = [(f"`{row.reason}`", str(row.code), _shown(row.sentence)) for row in EXITS if row is not PUBLISHED]
    exits = f"{_EXIT_HEAD}\n{table(('Name', 'Exit code', 'Meaning'), rows)}"
    return "\n".join([_HEAD, *(_section(kind) for kind in SECTIONS), exits])


def _section(kind: Kind) -> str:
    title, introduction = SECTIONS[kind]
    reasons = [reason for reason in REASONS.values() if reason.kind == kind]
    rows = [(f"`{it.code}`", _shown(begun(it.template)), _shown(it.next_step)) for it in reasons]
    return f"## {title}\n\n{introduction}\n\n{table(('Reason', 'Meaning', 'What to do next'), rows)}"


def _shown(template: str) -> str:
    """A format string for a table cell: the facts that are filled in later in italics."""
    return re.sub(r"\{(\w+)\}", r"*\1*", template.replace("|", r"\|")).replace("_", r"\_")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
