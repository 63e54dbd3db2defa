"""The one decision, for agent and operator: Pass, Fail or Inconclusive of a node's runs against a reference.

Each check's scale is the spread, in the reference, of the very statistic that it judges; runs average, they don't vote.
What it errs by: `python -m benchmarks.verdict`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean, median

from precision_api.acceptance.values import (
    NO_LIMITS,
    Check,
    Golden,
    Limits,
    Look,
    Outcome,
    Row,
    Speeds,
    Verdict,
    percent,
)
from precision_api.exchange.stats import behind, t_quantile
from precision_api.facts.recipes import Recipe

FALSE_FAIL, FALSE_PASS, PLAIN_DOUBT = 3.1e-5, 0.005, 0.025
USUAL_DETECT, MOST_DETECT = 8.0, 16.26  # 15 %
LEAST_GOLDEN = 8  # nodes of a reference: fewer fail no other, fewer that ran twice judge no change
MOST_RUNS, RUNS_TO_FAIL, LEAST_GPUS, LEAST_DRIFT = 3, 2, 3, 0.7
WORST_FIRST: tuple[Outcome, ...] = ("Fail", "Inconclusive", "Pass")
Firsts = Mapping[str, Speeds]


def limits(golden: Golden, check: Check, recipes: int, detect: float | None = None) -> Limits | None:
    """Where a check fails and passes; `detect` is the deficit (per cent) that it must find, None the usual one.

    None where the reference can't promise to find that deficit, or only one beyond 15 %.
    """
    n, others = golden.nodes, golden.gpus - 1
    scale, freedom, chance, looks = {
        "reference": (golden.between, n - 1.0, FALSE_FAIL * golden.gpus, 1),
        "node": (golden.within, 0.8 * n * others, FALSE_FAIL, golden.gpus),
        "change": (golden.change, 0.8 * golden.again * others, FALSE_FAIL, golden.gpus),
    }[check]
    if not scale or freedom < 1:
        return None
    scale *= math.sqrt(1 + 1 / n) if check == "reference" else 1
    sure, fail = (t_quantile(freedom, tail) * scale for tail in (FALSE_PASS, chance / recipes))
    least, clear = t_quantile(freedom, PLAIN_DOUBT / looks / recipes) * scale + sure, fail + sure
    asked = min(clear, max(USUAL_DETECT, least)) if detect is None else detect
    return Limits(max(fail, asked - sure), asked - sure, asked, least, clear) if least <= asked <= MOST_DETECT else None


def finds(golden: Mapping[Recipe, Golden], recipes: Sequence[Recipe]) -> dict[str, float]:
    """The deficit (per cent) that each check usually finds with all `recipes`, without checks that find none."""
    checks: tuple[Check, ...] = "reference", "node", "change"
    listed = [golden[recipe] for recipe in recipes if recipe in golden]
    limits_of = {check: [limits(row, check, len(recipes)) for row in listed] for check in checks}
    bounds = ((check, rows) for check, rows in limits_of.items() if any(rows))
    return {check: max(-percent(-it.detect) if it else math.inf for it in rows) for check, rows in bounds}


def drifted(golden: Golden, shift: float, nodes: int = 20) -> bool:
    """Whether the fleet's last nodes lie so far from the reference (per cent) that it tells of another time."""
    return abs(shift) > max(LEAST_DRIFT, 3 * (golden.between or 0) * math.sqrt(1.57 / nodes + 1 / golden.nodes))


def judge(
    reference: Mapping[Recipe, Golden], runs: Sequence[Look], recipes: Sequence[Recipe],
    detect: Mapping[Check, float] | None = None, baselines: Mapping[Recipe, Firsts] | None = None,
    shift: float = 0.0, unhealthy: str = "", alike: Mapping[Recipe, float] | None = None,
) -> Verdict:  # fmt: skip
    """The verdict on one to three runs of one GPU set, in all `recipes` of the spec.

    `baselines`: by GPU the speeds of its node's at its first Pass under this key. `shift`: how far the fleet's last
    nodes lie from the reference (%); `alike`: how far off their slowest GPUs are, in limits. `unhealthy` needs no run.
    """
    if unhealthy:
        return Verdict("Fail", unhealthy)
    rows, doubts, counts, hot = list[Row](), list[str](), dict[Recipe, int](), set[Recipe]()
    for recipe in recipes:
        golden, speeds = reference.get(recipe), [run.speeds[recipe] for run in runs if run.speeds.get(recipe)]
        trouble = next((run.troubles[recipe] for run in runs if recipe in run.troubles), "")
        whole = len(speeds) == len(runs) > 0 and all(run.keys() == speeds[0].keys() for run in speeds)
        if golden is None or trouble or not whole or len(speeds[0]) != golden.gpus:
            doubts.append("NoReference" if golden is None else trouble or ("OtherGPUs" if whole else "NotMeasured"))
            continue
        asked = detect or {}, (baselines or {}).get(recipe, {}), shift, (alike or {}).get(recipe, 0)
        checks = partial(_rows, golden, recipe, len(recipes), *asked)
        heat = [recipe in run.throttled and run.is_hot(recipe, [*checks(run.speeds[recipe])]) for run in runs]
        counted = [of for at, of in enumerate(speeds) if not heat[at] or all(heat[at:])]  # until a later one is cool
        counts[recipe], hot = len(counted), hot | {recipe} if heat[-1] else hot
        rows += checks({gpu: fmean(of[gpu] for of in counted) for gpu in counted[0]})
    rows.sort(key=lambda row: (WORST_FIRST.index(row.outcome), row.off / row.limits.fail))
    failing = {row.recipe for row in rows if row.outcome == "Fail"}
    if sure := {recipe for recipe in failing if counts[recipe] >= RUNS_TO_FAIL}:
        once = {(row.recipe, row.gpu) for row in rows if row.recipe not in sure}
        return Verdict("Fail", "Throttled" if sure <= hot else "TooSlow", tuple(rows)).doubting(once)
    doubts += [row.reason for row in rows if row.reason] + ["Throttled"] * bool(hot and not failing)
    grey = any(row.outcome == "Inconclusive" and not row.reason for row in rows)
    if not doubts and not failing and not grey:
        return Verdict("Pass", "WithinLimits", tuple(rows))
    again = len(runs) < MOST_RUNS and (bool(failing) or (grey and not doubts))
    return Verdict("Inconclusive", doubts[0] if doubts else "NotYet" if again else "BetweenLimits", tuple(rows), again)


def _rows(
    golden: Golden, recipe: Recipe, recipes: int, detect: Mapping[Check, float], baselines: Firsts, shift: float,
    alike: float, mean: Speeds,
) -> Iterator[Row]:  # fmt: skip
    """The checks of one recipe; one that can't be told has a reason."""
    of_node, of_change = limits(golden, "node", recipes, detect.get("node")), limits(golden, "change", recipes)
    least, most = (-of_node.passes, of_node.fail) if of_node and of_change and golden.again >= LEAST_GOLDEN else (0, -1)
    changes = dict[str, float]()
    for gpu, first in ((gpu, baselines[gpu]) for gpu in mean if gpu in baselines):
        common = mean.keys() & first.keys()  # a GPU that was swapped since moves no median
        now, then = (behind({it: of[it] for it in common}).get(gpu, math.inf) for of in (mean, first))
        # what passed by laxer limits, or can't be, is no first Pass
        changes |= {gpu: now - then} if len(common) >= LEAST_GPUS and least <= then <= most else {}
    checks: dict[Check, Mapping[str, float]] = {"reference": {"": median(mean.values()) - golden.level}}
    checks |= {"node": behind(mean) if golden.gpus >= LEAST_GPUS else {}, "change": changes}
    for check, offs in checks.items():
        bounds = limits(golden, check, recipes, detect.get(check))
        for gpu, off in offs.items():
            if bounds is None:
                yield Row(check, recipe, gpu, off, NO_LIMITS, "Inconclusive", "NotDetectable")
                continue
            outcome: Outcome = "Pass" if off >= -bounds.passes else "Fail" if off <= -bounds.fail else "Inconclusive"
            reason = ""
            fails_as_most = outcome == "Fail" and off > -bounds.fail * (1 + alike * (check != "reference"))
            if fails_as_most or (check == "reference" and drifted(golden, shift)):
                outcome, reason = "Inconclusive", "ReferenceDrifted"
            elif check == "reference" and outcome == "Fail" and golden.nodes < LEAST_GOLDEN:
                outcome, reason = "Inconclusive", "FewGoldenNodes"
            elif check == "node" and outcome == "Fail" and golden.gpus == LEAST_GPUS:
                outcome = "Inconclusive"  # a fast one of three is half of what the others are compared with
            elif check == "node" and outcome == "Inconclusive" and gpu in changes:
                outcome = "Pass"  # what has a baseline needs the change's Pass instead
            yield Row(check, recipe, gpu, off, bounds, outcome, reason)
