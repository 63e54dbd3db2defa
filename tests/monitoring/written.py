"""Cases of alerts that are tables: in the YAML file beside a module, in words of the series that cases share.

A series is a constant (`SLOW`), what a function makes of words (`waiting(Busy)`), or written out, with `<N1>` for a
constant; `with` names whole tables of series. `(1x5 0x5) * 12` is twelve times these values, and `20 30-50/10` are the
minutes 20, 30, 40 and 50. The alert's labels are those of the constant `of`, and `labels`.
"""

import re
from collections.abc import Mapping
from typing import Any

from tests.monitoring import cases, series
from tests.monitoring.cases import Case
from tests.monitoring.replay import LAST_LIST

SHARED = {**vars(cases), **vars(series), "LAST_LIST": LAST_LIST}


def written(row: Mapping[str, Any], **further: Any) -> Case:
    """The case of such a row; `further` are constants of the table's own. Raises KeyError for others."""
    terms = SHARED | further
    rows = {name: values for whole in row.get("with", ()) for name, values in _term(whole, terms).items()}
    rows |= {_series(name, terms): _values(values) for name, values in row.get("series", {}).items()}
    made = {name: row[name] for name in ("step", "name") if name in row}
    if "alive" in row:
        made["alive"] = _term(row["alive"], terms) if row["alive"] else {}
    return Case(
        row["alert"],
        rows,
        _minutes(row.get("quiet", "")),
        _minutes(row.get("fires", "")),
        (_term(row["of"], terms) if "of" in row else {}) | row.get("labels", {}),
        each_of=tuple(row.get("each_of", "").split()),
        **made,
    )


def _term(name: str, terms: Mapping[str, Any]) -> Any:
    called = re.fullmatch(r"(\w+)\((.*)\)", name)
    if not called:
        return terms[name]
    words = called[2].split(", ")
    return terms[called[1]](*(int(word) if word.isdigit() else word for word in words))


def _series(name: str, terms: Mapping[str, Any]) -> str:
    if name.isupper() or name.endswith(")"):
        return str(_term(name, terms))
    return re.sub(r"<(\w+)>", lambda constant: terms[constant[1]], name)


def _values(text: str) -> str:
    return re.sub(r"\(([^)]*)\) \* (\d+) ?", lambda repeated: f"{repeated[1]} " * int(repeated[2]), text)


def _minutes(text: str | int) -> tuple[int, ...]:
    spans = re.findall(r"(\d+)(?:-(\d+))?(?:/(\d+))?", str(text))
    return tuple(
        minute for first, last, step in spans for minute in range(int(first), int(last or first) + 1, int(step or 1))
    )
