"""Do random worlds see it when one reason to decide anew is taken out of the operator's core?

    python -m benchmarks.invalidations [--worlds 600] [--first 0]

A pass takes over what the last one decided unless something that it depends on has changed. Each row of INVALIDATIONS
makes one such dependency ineffective, as an edit of the source in memory; the worlds are those of
`tests.support.from_scratch`, compared with a core that takes nothing over. Prints the first world that sees each row.
Exit 1 where one is seen by none, or where the unchanged core differs.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType

from tests.support.core_pass import Core
from tests.support.random_worlds import grow

STATE, TELLING, CLEANUP = "attempts.node_state", "status.telling", "attempts.cleanup"
INVALIDATIONS = {
    "a node's attempt": (STATE, "if not same(old.attempt(uid), objects.attempt(uid))}", "if False}"),
    "a node's facts": (STATE, "{*differing(old.facts, objects.facts), *differing(", "{*differing("),
    "a node's report": (STATE, ", *differing(old.reports, objects.reports)}", "}"),
    "a node's age": (STATE, "return changed | (old.aged ^ objects.aged)", "return changed"),
    "a moment that comes": (STATE, "_changed(old, objects) | timed if", "_changed(old, objects) if"),
    "the terms of all nodes": (STATE, "if old.terms is not objects.terms:", "if False:"),
    "the profile's spec": (STATE, "old.terms.spec is objects.terms.spec and old.terms.settings", "old.terms.settings"),
    "whether a node is a target": (STATE, "and old.terms.spec.target == target else", "else"),
    "a workload": ("eligibility.request", "(spec, workload), partial(_resolved", "(spec,), partial(_resolved"),
    "slices of a node": ("observe.nodes", "or facts.name in others)]", "or False)]"),
    "a verdict's node": (CLEANUP, "*differing(before[3], nodes), ", ""),
    "a verdict's report": (CLEANUP, "*differing(before[2], reports), ", ""),
    "a verdict's end": (CLEANUP, "*(gone_by ^ past)}", "}"),
    "a gone node": (CLEANUP, "(reports, nodes), partial(_absent", "(reports,), partial(_absent"),
    "a gone report": (CLEANUP, "(reports, nodes), partial(_absent", "(nodes,), partial(_absent"),
    "the status of a reading": ("status.node_readings", "before[0] == facts.pool and before[1] is status", "True"),
    "states of peers": ("status.node_readings", "(reports, states), partial", "(reports,), partial"),
    "a status' profile": (TELLING, "objects = item.profile, item", "objects = None, item"),
    "a status' words": (TELLING, "item.node_states.words, ", "None, "),
    "a status' time": (TELLING, "or not settled.since <= seen.now < settled.until", ""),
    "the fleet's stop": (TELLING, "seen.stop, len(seen.nodes), new", "None, len(seen.nodes), new"),
}
"""Where it is in the core, the words of the source, and what stands there without it."""


@contextmanager
def without(module: ModuleType, source: str, words: str, instead: str) -> Iterator[None]:
    """The functions of the module, wherever they were imported, as they are with `instead`. Raises ValueError where
    the source doesn't say `words`."""
    if words not in source:
        raise ValueError(f"{module.__name__} doesn't say {words!r}: adapt INVALIDATIONS")
    values = dict(vars(module))
    exec(compile(source.replace(words, instead), str(module.__file__), "exec"), values)
    mine = {name: it for name, it in vars(module).items() if isinstance(it, FunctionType)}
    changed = {it: values[name].__code__ for name, it in mine.items() if it.__module__ == module.__name__}
    before = {function: function.__code__ for function in changed}
    try:
        for function, code in changed.items():
            function.__code__ = code
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("worlds", 600), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    modules = {at: importlib.import_module(f"precision_operator.core.{at}") for at, *_ in INVALIDATIONS.values()}
    sources = {at: Path(str(module.__file__)).read_text() for at, module in modules.items()}
    unseen, differ, begun = dict(INVALIDATIONS), 0, time.process_time()
    for number in range(options.first, options.first + options.worlds):
        if not unseen:
            break
        world = grow(f"again/{number}", 14, pools=80 if number % 3 == 2 else 0, quiet=0.8)
        from_scratch = passes(world, takes_over=False)
        differ += passes(world, takes_over=True) != from_scratch
        for name, (at, words, instead) in list(unseen.items()):
            with without(modules[at], sources[at], words, instead):
                is_seen = passes(world, takes_over=True) != from_scratch
            if is_seen:
                del unseen[name]
                print(f"world {number} sees: {name} ({time.process_time() - begun:.0f} s of CPU)", flush=True)
    print(f"{len(INVALIDATIONS) - len(unseen)} of {len(INVALIDATIONS)} seen; not: {', '.join(unseen) or 'none'}")
    print(f"{differ} worlds in which the unchanged core differs")
    return 1 if unseen or differ else 0


def passes(world: dict[str, list[dict[str, object]]], takes_over: bool) -> list[str]:
    """What each pass decides, as text; of one that raises, the error, which ends the world."""
    core, rows = Core(world["objects"], takes_over=takes_over), list[str]()
    for step in world["steps"]:
        try:
            rows.append(json.dumps(core.step(step), default=str))
        except Exception as error:
            return [*rows, repr(error)]
    return rows


if __name__ == "__main__":
    sys.exit(main())
