"""The part of kubectl's JSONPath templates that people type: `-o jsonpath='{.items[*].node}'`. Pure.

Kept libraries speak other dialects (RFC 9535, XPath-like), without templates, `{range}` and `{"\\n"}`. What is left out
says so: regular expressions, `&&` and `||` in filters. The grammar is that of client-go, util/jsonpath; unlike there,
large fractions are written without an exponent, and a null in a filter matches nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from precision_api.plain_text import plain

Step = Callable[[list[Any]], list[Any]]
_QUOTED = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_ACTION = re.compile(rf"\{{((?:[^{{}}\"']|{_QUOTED})*)\}}")
_STEP = re.compile(
    rf"""(?P<deep>\.(?=\.))
      | \.(?P<name>(?:\\.|[^\s.,\[\]$@{{}}()=!<>"'\\])*)
      | \[\s*\?\s*\((?P<filter>(?:[^()"']|{_QUOTED})*)\)\s*\]
      | \[(?P<inside>(?:[^\]"']|{_QUOTED})*)\]""",
    re.VERBOSE,
)
_FILTER = re.compile(rf"(?P<left>(?:[^=!<>\"']|{_QUOTED})+?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<right>.+))?")
_SLICE = re.compile(r"(-?\d+)?(?:(:)(-?\d+)?(?::(\d+)?)?)?")
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class JsonPathProblem(ValueError):
    """A template that can't be read; the message says what to write."""


class OutOfBounds(Exception):
    """A list is shorter than the template asks for, as kubectl says it."""


@dataclass(frozen=True)
class _Text:
    text: str

    def written(self, value: Any) -> Iterator[str]:
        yield self.text


@dataclass(frozen=True)
class _Path:
    steps: tuple[Step, ...]

    def found(self, value: Any) -> list[Any]:
        """What the path leads to from `value`."""
        return reduce(lambda values, step: step(values), self.steps, [value])

    def written(self, value: Any) -> Iterator[str]:
        yield " ".join(map(_printed, self.found(value)))


@dataclass(frozen=True)
class _Range:
    over: _Path
    body: tuple[_Text | _Path | _Range, ...]

    def written(self, value: Any) -> Iterator[str]:
        for each in self.over.found(value):
            for part in self.body:
                yield from part.written(each)


_Part = _Text | _Path | _Range


@dataclass(frozen=True)
class JsonPath:
    """A template that was read."""

    parts: tuple[_Part, ...]

    def of(self, document: Any) -> str:
        """The template filled from `document`; a list is `.items`, as kubectl's lists. Raises OutOfBounds.

        Keys that are not there are nothing, null is `null`. Of values only printable characters and line ends are left.
        """
        root = _List(document) if isinstance(document, list) else document
        return "".join(text for part in self.parts for text in part.written(root))


class _List(list[Any]):
    """A printed list, which `.items` leads to as well."""


def read_template(text: str) -> JsonPath:
    """The template in `text`. Raises JsonPathProblem."""
    if not text.strip():
        raise JsonPathProblem("the template is empty; write for example -o jsonpath='{.items[*].node}'")
    if "{" not in text:
        raise JsonPathProblem(f"write the path in braces and quotes: -o jsonpath='{{{text}}}'")
    tokens = list(_tokens(text))
    parts, rest = _parts(tokens, 0, inside=False)
    return JsonPath(parts) if rest == len(tokens) else _refuse("{end} without {range}")


def _refuse(what: str) -> Any:
    raise JsonPathProblem(f"{what}. See https://kubernetes.io/docs/reference/kubectl/jsonpath/")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(`text` or `action`, content) from left to right."""
    at = 0
    for found in _ACTION.finditer(text):
        yield "text", text[at : found.start()]
        yield "action", found[1].strip()
        at = found.end()
    yield "text", text[at:]
    if "{" in text[at:] or any("{" in part for kind, part in _pieces_between(text) if kind == "text"):
        _refuse(f"a brace in {text!r} is not closed")


def _pieces_between(text: str) -> Iterator[tuple[str, str]]:
    """The literal text before each action."""
    at = 0
    for found in _ACTION.finditer(text):
        yield "text", text[at : found.start()]
        at = found.end()


def _parts(tokens: Sequence[tuple[str, str]], at: int, inside: bool) -> tuple[tuple[_Part, ...], int]:
    """The parts from token `at` on, up to the `{end}` of a range that we are inside of; and the token behind them."""
    parts: list[_Part] = []
    while at < len(tokens):
        kind, content = tokens[at]
        at += 1
        if kind == "text":
            parts += [_Text(content)] if content else []
        elif content == "end":
            return tuple(parts), at if inside else at - 1
        elif content.partition(" ")[0] == "range":
            body, at = _parts(tokens, at, inside=True)
            parts.append(_Range(_path(content.removeprefix("range").strip()), body))
        elif re.fullmatch(_QUOTED, content):
            parts.append(_Text(_unquoted(content)))
        else:
            parts.append(_path(content))
    return (tuple(parts), at) if not inside else _refuse("{range} without {end}")


def _path(text: str) -> _Path:
    """A path such as `.items[*].node`, `$..node` or `@.state`."""
    rest = text.removeprefix("$") if text.startswith("$") else text.removeprefix("@")
    if not rest and not text:
        _refuse("there is an empty {}")
    if rest and rest[0] not in ".[":
        _refuse(f"{{{text}}} is no path: names begin with a dot, as in {{.items[*].node}}")
    steps: list[Step] = []
    while rest:
        found = _STEP.match(rest)
        if found is None:
            _refuse(f"{rest!r} in {{{text}}} can't be read")
        assert found is not None
        steps += _steps(found)
        rest = rest[found.end() :].strip()
    return _Path(tuple(steps))


def _steps(found: re.Match[str]) -> list[Step]:
    if found["deep"]:
        return [_everything_below]
    if found["name"] is not None:
        name = re.sub(r"\\(.)", r"\1", found["name"])
        return [_children] if name == "*" else [_field(name)] if name else []
    if found["filter"] is not None:
        return [_filter(found["filter"].strip())]
    return [_bracket(found["inside"].strip())]


def _field(name: str) -> Step:
    def step(values: list[Any]) -> list[Any]:
        wrapped = [{"items": list(value)} if isinstance(value, _List) else value for value in values]
        return [value[name] for value in wrapped if isinstance(value, dict) and name in value]

    return step


def _children(values: list[Any]) -> list[Any]:
    return [child for value in values for child in _of_one(value)]


def _of_one(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []


def _everything_below(values: list[Any]) -> list[Any]:
    """The values themselves and all containers below them, parents first."""
    found: list[Any] = []
    for value in values:
        if below := _of_one(value):
            found += [value, *_everything_below(below)]
    return found


def _bracket(inside: str) -> Step:
    """`[*]`, `[0]`, `[-1:]`, `['name']`, or several of them: `['node','state']`."""
    parts = [part.strip() for part in re.findall(rf"(?:[^,\"']|{_QUOTED})+", inside)]
    steps = [_index(part) for part in parts] or [_index("")]
    return steps[0] if len(steps) == 1 else lambda values: [each for step in steps for each in step(values)]


def _index(part: str) -> Step:
    if part == "*":
        return _children
    if re.fullmatch(_QUOTED, part):
        return _field(_unquoted(part))
    found = _SLICE.fullmatch(part)
    if not part or found is None:
        _refuse(f"[{part}] is no index: write [0], [*], ['name'] or [?(@.state==\"Failed\")]")
    assert found is not None
    low, colon, high, step = found.groups()
    if step is not None and int(step) < 1:
        _refuse(f"[{part}]: the step must be 1 or more")
    if not colon:
        return lambda values: [_element(value, int(low)) for value in values if isinstance(value, list)]
    bounds = slice(*(None if each is None else int(each) for each in (low, high, step)))
    return lambda values: [each for value in values if isinstance(value, list) for each in value[bounds]]


def _element(value: list[Any], at: int) -> Any:
    try:
        return value[at]
    except IndexError:
        raise OutOfBounds(f"array index out of bounds: index {at}, length {len(value)}") from None


def _filter(text: str) -> Step:
    """The elements of lists for which `@.state=="Failed"` holds, or which have the path."""
    found = _FILTER.fullmatch(text)
    if found is None or any(sign in text for sign in ("&&", "||", "=~")):
        _refuse(f"[?({text})]: a filter compares once, with ==, !=, <, <=, > or >=; for more pipe -o json into jq")
    assert found is not None
    left, sign = _path(found["left"].strip()), found["sign"]
    right = _operand(found["right"].strip()) if sign else None

    def holds(each: Any) -> bool:
        there = left.found(each)
        if right is None:
            return bool(there)
        return any(_compared(sign, a, b) for a in there[:1] for b in right(each)[:1])

    return lambda values: [each for value in values if isinstance(value, list) for each in value if holds(each)]


def _operand(text: str) -> Callable[[Any], list[Any]]:
    """What stands to the right of a comparison: text in quotes, a number, true, false, or another path."""
    if re.fullmatch(_QUOTED, text):
        constant: Any = _unquoted(text)
    elif text in ("true", "false") or re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text):
        constant = json.loads(text)
    elif text[0] in "@$":
        return _path(text).found
    else:
        _refuse(f'{text} is not in quotes; write "{text}" where it is text')
    return lambda _: [constant]


def _compared(sign: str, a: Any, b: Any) -> bool:
    """Whether the comparison holds; never for a null, which is a figure that was not measured."""
    if a is None or b is None:
        return False
    kinds = {"text" if isinstance(x, str) else "bool" if isinstance(x, bool) else "number" for x in (a, b)}
    if len(kinds) > 1 or isinstance(a, dict | list) or isinstance(b, dict | list):
        _refuse(f"the filter compares {json.dumps(a):.40} with {json.dumps(b):.40}, which are of different kinds")
    return _SIGNS[sign](a, b)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])


def _printed(value: Any) -> str:
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")))
