"""What runs inside of one version: grow random worlds into a file, or play a file of worlds and print each step.

`python -m equivalence.side grow SEED COUNT PASSES WORLDS` and `python -m equivalence.side play WORLDS OUTPUT`.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from .accidents import happen
from .core_adapter import Core, reasons
from .growth import World
from .layouts import check_version


def grow(seed: str, count: int, passes: int, path: Path) -> None:
    """One JSON line for each world: its objects, and the steps that refer to them."""
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps(_grown(f"{seed}/{number}", number, passes)) + "\n")


def _grown(seed: str, number: int, passes: int) -> dict[str, Any]:
    world = World(seed)
    core = Core(world.objects)
    steps = []
    for _ in range(passes):
        steps.append(world.step())
        world.apply(core.step(steps[-1]))
        world.run_jobs()
        happen(world)
        world.pass_time()
    return {"world": number, "objects": world.objects, "steps": steps}


def play(worlds: Path, output: Path) -> None:
    """First line: the table of reasons; then one line for each step of each world."""
    with worlds.open() as file, output.open("w") as out:
        out.write(json.dumps({"reasons": reasons()}) + "\n")
        for line in file:
            world = json.loads(line)
            core = Core(world["objects"])
            for number, step in enumerate(world["steps"]):
                made = {"world": world["world"], "step": number, **_safely(core, step)}
                out.write(json.dumps(made, sort_keys=True) + "\n")


def _safely(core: Core, step: dict[str, Any]) -> dict[str, Any]:
    """What the step gives; an error of the version is a result too, to be compared like any other.

    An error that arises in the adapter itself is none of the version's: a field has another name there.
    """
    try:
        return core.step(step)
    except Exception as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        if Path(innermost.filename).parent == Path(__file__).parent:
            raise
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    check_version()
    match sys.argv[1:]:
        case ["grow", seed, count, passes, worlds]:
            grow(seed, int(count), int(passes), Path(worlds))
        case ["play", worlds, output]:
            play(Path(worlds), Path(output))
        case _:
            sys.exit(__doc__)
