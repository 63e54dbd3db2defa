"""Which runs a verdict rests on, of each GPU its own: the first three since its node last passed. Runs average."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from statistics import fmean, median
from types import MappingProxyType

from precision_api.acceptance.judge import MOST_RUNS, RUNS_TO_FAIL
from precision_api.acceptance.values import Look, Speeds, Verdict
from precision_api.facts.recipes import Recipe

Part = tuple[float, float, bool]
"""What a run says of a GPU: its node's median, how far off that it lies, whether heat explains it."""
Windows = Mapping[tuple[Recipe, str], Sequence[Part]]  # by recipe and GPU the runs that count
Decide = Callable[[Sequence[Look]], Verdict]


def counting(runs: Sequence[Look], decide: Decide, since_pass: bool = True) -> Windows:
    """Of each GPU the first three runs since its node last passed with them, or of all: later ones change nothing.

    One under heat counts until a later one is cool.
    """
    windows, gpus = dict[tuple[Recipe, str], Sequence[Part]](), set[str]()
    for run in runs:
        checks = judged(windows, gpus, decide)[0].rows if since_pass else ()
        doubted = {row.recipe for row in checks if row.outcome != "Pass"} | _hot(windows, gpus).keys()
        passed = run.speeds.keys() & {row.recipe for row in checks} - doubted
        windows = {of: parts for of, parts in windows.items() if of[0] not in passed or of[1] not in gpus}
        gpus, rows = {*chain(*run.speeds.values())}, decide([Look(run.speeds)]).rows if run.throttled else ()
        for recipe, speeds in run.speeds.items():
            hot, level = run.is_hot(recipe, rows), median(speeds.values())
            for gpu, speed in speeds.items():
                before = [part for part in windows.get((recipe, gpu), ()) if hot or not part[2]]
                windows[recipe, gpu] = [*before, (level, speed - level, hot)][:MOST_RUNS]
    return windows


def _hot(windows: Windows, gpus: Collection[str]) -> dict[Recipe, float]:
    return {recipe: 1.0 for (recipe, gpu), parts in windows.items() if gpu in gpus and parts[-1][2]}


def means(windows: Windows, gpus: Collection[str]) -> dict[Recipe, Speeds]:
    """100 ln(tokens/s) by recipe and GPU, averaged, of recipes that all the GPUs ran."""
    speeds = dict[Recipe, Speeds]()
    for recipe in dict.fromkeys(recipe for recipe, _ in windows):
        parts = {gpu: windows[recipe, gpu] for gpu in gpus if (recipe, gpu) in windows}
        if gpus and parts.keys() == {*gpus}:
            level = fmean(fmean(part[0] for part in of) for of in parts.values())
            speeds[recipe] = {gpu: level + fmean(part[1] for part in of) for gpu, of in parts.items()}
    return speeds


def judged(
    windows: Windows, gpus: Collection[str], decide: Decide, troubles: Mapping[Recipe, str] = MappingProxyType({})
) -> tuple[Verdict, int]:
    """The verdict by the recipes without trouble in the last run, and how many runs it rests on: a Fail the most."""
    speeds = {recipe: of for recipe, of in means(windows, gpus).items() if recipe not in troubles}
    look = Look(speeds, troubles, _hot(windows, gpus))
    failing = [(row.recipe, row.gpu) for row in decide([look]).rows if row.outcome == "Fail"]
    counts = {of: min(len(windows[of[0], it]) for it in ([of[1]] if of[1] else gpus)) for of in failing}
    all_of = min((len(windows[recipe, gpu]) for recipe in speeds for gpu in gpus), default=0)
    verdict = decide([look] * max(count := max(counts.values(), default=all_of), 1))
    once = {of for of, runs in counts.items() if runs < RUNS_TO_FAIL}
    return verdict.doubting(once) if verdict.outcome == "Fail" else verdict, count
