"""The structure of a tree as figures, in a Markdown table.

`python -m tests.equivalence.figures [--tree FOLDER] [--peer PACKAGE]`

A room is a direct child of a package: a module or a sub-package. An arrow goes from room to room where something in one
imports something in the other. Arrows back are those that would have to go for the rooms to stand on floors, by grimp's
own choice (a heuristic: an upper bound). Branches are counted in functions with eight lines of body or more.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp

from tests.equivalence.versions import REPOSITORY

PACKAGES = {
    "precision_api": "crds",
    "precision_operator": "operator",
    "precision_agent": "agent",
    "precision_lab": "lab",
}
LEAST_LINES = 8
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


@dataclass(frozen=True)
class Figures:
    """One package or sub-package."""

    name: str
    files: int
    lines: int
    longest: int
    widest: tuple[str, int]
    """The folder with the most modules, below and with this one."""
    cycles: int
    """Sets of modules that import each other."""
    rooms: int
    arrows: int
    back: tuple[str, ...]
    """Arrows that run back, `from -> to`."""
    doubled: tuple[str, ...]
    """Names of classes and type aliases that are defined in more than one module."""
    branches: float
    """Branches a statement, the median function."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, then what the counts are of."""
    parser = argparse.ArgumentParser(prog="tests.equivalence.figures", description=__doc__)
    parser.add_argument("--tree", type=Path, default=REPOSITORY)
    parser.add_argument("--peer", action="append", default=[], help="an installed package to count as well: kopf")
    options = parser.parse_args(arguments)
    rows = [*measured(options.tree.resolve()), *(figures_of_installed(name) for name in options.peer)]
    print("\n".join(table(rows)))
    return 0


def figures_of_installed(name: str) -> Figures:
    """The figures of a package that Python imports from elsewhere. ValueError where there is none of this name."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"no package {name} is installed")
    root = Path(spec.submodule_search_locations[0]).parent
    return _figures(name, root, grimp.build_graph(name, cache_dir=None))


def measured(tree: Path) -> list[Figures]:
    """The figures of each package, and of each sub-package with three rooms or more."""
    sys.path[:0] = [str(tree / folder) for folder in PACKAGES.values()]
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return [_figures(name, tree / PACKAGES[name.partition(".")[0]], graph) for name in _named(graph)]


def table(found: Iterable[Figures]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| package | files | lines | longest file | modules in a folder, most | import cycles | rooms | arrows |" + (
        " arrows back | names defined twice | branches a statement |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    rows = list(found)
    for row in rows:
        folder = f"{row.widest[1]} ({row.widest[0]})"
        cells = [row.name, row.files, row.lines, row.longest, folder, row.cycles, row.rooms, row.arrows]
        cells += [len(row.back), len(row.doubled), f"{row.branches:.2f}"]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    for row in rows:
        if row.back:
            yield f"- {row.name}, arrows back: {'; '.join(row.back)}"
        if row.doubled and "." not in row.name:
            yield f"- {row.name}, names defined twice: {', '.join(row.doubled)}"


def _named(graph: grimp.ImportGraph) -> list[str]:
    """Packages, then their sub-packages with three children or more."""
    below = sorted(name for name in graph.modules if "." in name and len(graph.find_children(name)) >= 3)
    return [each for package in PACKAGES for each in (package, *(n for n in below if n.startswith(f"{package}.")))]


def _figures(name: str, root: Path, graph: grimp.ImportGraph) -> Figures:
    folder = root.joinpath(*name.split("."))
    files = {path: path.read_text() for path in sorted(folder.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in files.items()}
    lines = [text.count("\n") for text in files.values()]
    inside = {name, *graph.find_descendants(name)}
    imports = {module: graph.find_modules_directly_imported_by(module) & inside for module in inside}
    arrows = {(a, b) for m, ts in imports.items() for t in ts if (a := _room(name, m)) != (b := _room(name, t))}
    back = {(_room(name, one), _room(name, other)) for one, other in graph.nominate_cycle_breakers(name)}
    return Figures(
        name=name,
        files=len(files),
        lines=sum(lines),
        longest=max(lines),
        widest=_widest(files, root),
        cycles=len(cycles(imports)),
        rooms=len(graph.find_children(name)),
        arrows=len({pair for pair in arrows if name not in pair}),
        back=tuple(sorted(f"{_last(one)} -> {_last(other)}" for one, other in back)),
        doubled=doubled(trees),
        branches=branches(trees.values()),
    )


def _room(package: str, module: str) -> str:
    """The child of `package` that `module` is or lies in; the package itself for its own `__init__`."""
    return ".".join(module.split(".")[: package.count(".") + 2])


def _last(module: str) -> str:
    return module.rpartition(".")[2]


def _widest(files: Iterable[Path], root: Path) -> tuple[str, int]:
    counted = Counter(path.parent for path in files if path.name != "__init__.py")
    folder, most = counted.most_common(1)[0]
    return folder.relative_to(root).name, most


def cycles(imports: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Sets of two modules or more, each of which imports all the others in some steps."""
    reach = {module: _reachable(module, imports) for module in imports}
    sets = {frozenset({m, *(o for o in reach[m] if m in reach[o])}) for m in imports if m in reach[m]}
    return sorted(sets, key=sorted)


def _reachable(start: str, imports: Mapping[str, Iterable[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [*imports[start]]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += imports[module]
    return seen


def doubled(trees: Mapping[Path, ast.Module]) -> tuple[str, ...]:
    """Public and private names alike; a name that one module defines twice counts once."""
    places: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for node in tree.body:
            places[type_name(node)].add(path)
    return tuple(sorted(name for name, found in places.items() if name and len(found) > 1))


def type_name(node: ast.stmt) -> str:
    """The name that a statement defines as a class or a type alias; empty for any other statement."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp(op=ast.BitOr()) | ast.Name()):
            return name if name[:1].isupper() and not name.isupper() else ""
        case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
            return name
    return ""


def branches(trees: Iterable[ast.Module]) -> float:
    functions = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    bodies = [body for function in functions if (body := _body(function))]
    long = [body for body in bodies if (body[-1].end_lineno or 0) - body[0].lineno + 1 >= LEAST_LINES]
    return statistics.median([_share(body) for body in long]) if long else 0.0


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def _share(body: Sequence[ast.stmt]) -> float:
    """Branches over statements: decisions, conditions of comprehensions, further operands of `and` and `or`."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    branches = sum(isinstance(node, BRANCHES) for node in nodes)
    branches += sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    branches += sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return branches / sum(isinstance(node, ast.stmt) for node in nodes)


if __name__ == "__main__":
    sys.exit(main())
