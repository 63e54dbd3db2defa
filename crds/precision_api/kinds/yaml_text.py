"""A small YAML writer for generated files: maps, lists, printable text, integers, booleans; the same text every time.

The contract may import pydantic and the standard library only, and a generated file needs far less than YAML can do.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"(?:[A-Za-z$]|\.(?=[A-Za-z]))[A-Za-z0-9 ._/()%+=;-]*[A-Za-z0-9.)%]|[A-Za-z]")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan", ".inf", ".nan"})
"""Words that one YAML version or another reads as something else than a string."""


def yaml_text(document: Mapping[str, Any]) -> str:
    """`document` (not empty) as block YAML, keys in their order. Raises TypeError for floats and null."""
    return "\n".join(_lines(document)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _entry(str(key), item)]
    return [line for item in value for line in _item(item)]


def _entry(key: str, value: Any) -> list[str]:
    if not _is_block(value):
        return [f"{_scalar(key)}: {_scalar(value)}"]
    indent = "  " if isinstance(value, Mapping) else ""
    return [f"{_scalar(key)}:", *(indent + line for line in _lines(value))]


def _item(value: Any) -> list[str]:
    first, *rest = _lines(value) if _is_block(value) else [_scalar(value)]
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _is_block(value: Any) -> bool:
    return bool(value) and (isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str)))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, Mapping | Sequence) and not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    raise TypeError(f"{value!r} has no place in a generated file: write numbers as integers or decimal strings")
