"""The verdict on a node, as its report tells it: the runs that it rests on, and the decision. Writes to no Node.

docs/verdict.md
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean
from typing import Any, NamedTuple

from precision_api.acceptance.judge import MOST_RUNS, judge
from precision_api.acceptance.reference import PROVED, Reference, speeds_of, trouble_of
from precision_api.acceptance.values import UNHEALTHY, Golden, Look, Row, Speeds, Verdict, logs, percent
from precision_api.exchange.peers import PeerKey, key_of
from precision_api.exchange.request import digest
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.kinds.report import AcceptanceRuns, AcceptanceSubject, ReportAcceptance, ReportStatus
from precision_operator.core.attempts.verdicts import (
    DRIVER_CHANGED,
    THEN,
    Terms,
    basis_of,
    change,
    expired,
    ill,
    run_of,
    unhealthy,
)
from precision_operator.core.observe.clock import duration, format_time, parse_time
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.results.reading import provenance_of, read

SERIES_MINUTES = 24 * 60
"""Runs that lie further apart are not averaged."""
MOST_LINES, MOST_KEYS, MOST_BYTES, ALIKE = 29, 3, 435, 1.0
"""Keys kept: the newest run's, the reference's, the newest other; bytes of 4 recipes and 8 GPUs; a small step, %."""
PLAIN = "verified/None"
JUDGED = PROVED | {"assumed"}
Means = Mapping[Recipe, tuple[Speeds, int, bool]]


class Kept(NamedTuple):
    """One run with a recipe, or neighbours as one for want of room: how many, when the last ended (minutes since 1970),
    whether that was throttled, 100 ln(tokens/s) of the GPU first by UUID first."""

    number: int
    at: int
    hot: bool
    rates: tuple[float, ...]


_WORDS = {
    "NoReference": "there is no reference {name} with all recipes that must pass: see kubectl precision reference list",
    "ReferenceReplaced": "reference {name} has another SHA-256 than spec.acceptance.reference says",
    "ReferenceTooOld": "what is in reference {name} was measured more than 90 days ago: make a new one",
    "ReferenceDrifted": "the last nodes lie {shift:+.1f} % from reference {name}: they are slow, or make a new one",
    "NotMeasured": "it has no figure of each GPU",
    "Fallback": "its kernels fell back to another precision",
    "Unverified": "nothing proves that its kernels computed in the precision",
    "OtherLayers": "it kept other last layers in BF16 than reference {name}",
    "OtherDepth": "another number of layers ran, or a second depth contradicts the figure",
    "HostBound": "its host, not its GPUs, was slow: give the agent more CPU, or look what else runs there",
    "NumericalError": "its results were wrong",
    "Crashed": "a CUDA error or a hang ended part of its run: look for Xid errors in the node's kernel log",
    "Partial": "its run ended early",
    "Simulated": "its figures were not measured, or those of reference {name} were not",
    "NotYet": "another run follows",
    "BetweenLimits": "its runs lie between Pass and Fail: measure it again tomorrow",
    "NotDetectable": "reference {name} can't promise to find that much: name more nodes or ask for less",
    "Throttled": "heat or the power brake held it back",
    "RunsLost": "what it kept of its runs can't be read: measure it again",
    "Expired": "its last run lies further back than spec.acceptance.validFor: measure it again",
}


def with_result(status: ReportStatus, result: MeasurementResult | None, terms: Terms) -> ReportAcceptance:
    """The report's verdict with its newest run added to what it rests on.

    Runs within 24 hours are kept, whatever the boot and reference: which of them count is asked at each decision.
    One without figures of the GPUs is a trouble of all recipes kept. `result` is None where the full one is missing.
    """
    old, run = status.acceptance or ReportAcceptance(), status.run
    assert run is not None
    attempt = status.attempt if status.attempt is not None and status.attempt.run == run.run else None
    boot, subject = (attempt.boot_id if attempt else None) or "", old.subject or AcceptanceSubject()
    same = bool(subject.boot_id) and boot in ("", subject.boot_id)
    earlier = old.runs or AcceptanceRuns(run="")
    subject = subject if same else AcceptanceSubject(boot_id=boot)
    reference, golden = terms.reference, dict(terms.reference.recipes if terms.reference else {})
    runs = earlier.model_copy(update={"run": run_of(run), "number": 1 + earlier.number * (old.again and same)})
    now = int(parse_time(run.finished_at).timestamp()) // 60
    kept = _kept(earlier, now - SERIES_MINUTES) or {}
    rest = {*golden, *(name.partition("/")[0] for of in kept.values() for name in of)}
    troubles = {r: "Partial" if result and result.partial else "NotMeasured" for r in RECIPE_NAMES if r in rest}
    if result is None or result.partial or not result.gpus or not boot:
        runs = runs.model_copy(update={"troubles": troubles, "averages": _lines(kept, now)})
        return old.model_copy(update={"runs": runs, "subject": subject})
    gpus, pci = tuple(gpu.uuid for gpu in result.gpus), tuple(gpu.pci for gpu in result.gpus if gpu.pci)
    ours = [_key(reference.peers, reference.provenance, of) for of in (gpus, subject.gpus)] if reference else []
    subject = AcceptanceSubject(
        boot_id=boot, driver=result.software.driver, gpus=gpus, pci=pci if len(pci) == len(gpus) else ()
    )
    key, kernels = _key(key_of(result), provenance_of(result), gpus), dict[Recipe, str]()
    mine = kept.pop(key, {})
    for row in result.recipes:
        ran, speeds = f"{row.verification.verdict}/{row.last_layers_bf16}", speeds_of(row, result)
        like = golden.get(row.recipe) if key in ours else None
        why = trouble_of(row, row.verification.verdict, row.last_layers_bf16, like.layers_measured if like else None)
        why = why or ("" if row.verification.verdict in JUDGED else "Unverified")
        why = why or ("NotMeasured" if (like and like.is_beyond(speeds)) or speeds.keys() != {*gpus} else "")
        kernels |= {} if why or ran == PLAIN else {row.recipe: ran}
        troubles[row.recipe] = why
        if not why:
            name, rates = row.recipe if ran == PLAIN else f"{row.recipe}/{ran}", (speeds[gpu] for gpu in sorted(gpus))
            before = [it for it in mine.get(name, ()) if row.throttled or not it.hot]  # heat counts until it is cool
            mine[name] = [*before, Kept(1, now, row.throttled is not None, tuple(rates))]
    kept = {key: mine} | dict(sorted(kept.items(), key=lambda of: of[0] not in ours)[: MOST_KEYS - 1])
    most = MOST_BYTES * max(1, len(gpus) * len(result.recipes) / 32)
    names = {_name(recipe, of): recipe for recipe, of in golden.items() if key in ours}
    while len("".join(lines := _lines(kept, now))) > most:
        lists = [rows for of in kept.values() for rows in of.values()]
        pairs = [(_apart(*rows[at : at + 2]), at, rows) for rows in lists for at in range(len(rows) - 1)]
        unlike, _, _, at, rows = min(((of[0] > ALIKE, -len(of[2]), *of) for of in pairs), default=(True, 0, 0, 0, []))
        if unlike and names:  # what has passed goes before others become one
            mine |= {name: _counting(terms, names[name], mine[name], gpus) for name in names.keys() & mine}
            names = {}
        elif rows:
            rows[at : at + 2] = [_mean(rows[at : at + 2])]
        elif len(kept) > 1:
            kept.popitem()
        else:
            break
    changes = {"kernels": kernels, "troubles": {recipe: why for recipe, why in troubles.items() if why}}
    runs = runs.model_copy(update=changes | {"averages": lines})
    ended = {"again": True, "unhealthy": None, "unhealthy_boot_id": "", "barred": False}
    return old.model_copy(update={"runs": runs, "subject": subject} | ended)


def unasked(verdict: ReportAcceptance | None) -> ReportAcceptance | None:
    """What stays of a verdict for which nobody asks any more: what it rests on, for who asks again."""
    kept = ("again", "subject", "runs", "unhealthy", "unhealthy_boot_id", "barred")
    return verdict and ReportAcceptance().model_copy(update={name: getattr(verdict, name) for name in kept})


def decided(terms: Terms, status: ReportStatus, facts: NodeFacts, now: datetime) -> ReportAcceptance:
    """The verdict on what the report holds, by `judge`, with all that is told of it."""
    old, attempt = status.acceptance or ReportAcceptance(), status.attempt
    if ill(attempt) and attempt is not None:
        boot = attempt.boot_id or old.unhealthy_boot_id
        barred = {"barred": old.barred or not attempt.boot_id}
        old = old.model_copy(update={"unhealthy": ill(attempt), "unhealthy_boot_id": boot} | barred)
    changed, sick = change(old.subject, facts), unhealthy(old, facts)
    if old.subject and old.subject.driver and facts.driver:  # a label that may vanish
        last = f"{THEN}{facts.driver}" * (changed == DRIVER_CHANGED)
        drivers = {"driver": old.subject.driver.partition(THEN)[0] + last}
        old = old.model_copy(update={"subject": old.subject.model_copy(update=drivers)})
    gpus = list(old.subject.gpus if old.subject else ())
    verdict = Verdict("Inconclusive", terms.problem or ("SubjectChanged" if changed else "NotMeasured"))
    for newest in (0, old.runs.number if old.runs else 0):  # a Pass is one by its own runs too
        means = _means(terms, old.runs, gpus, newest)
        look = _look(terms, old, means, status, facts)
        if sick or (look and not changed):
            asked = (logs(terms.shift), sick)
            verdict = _judged(terms, [look] if look else [], *asked)
            most = max((means[row.recipe][1] for row in verdict.rows if row.outcome == "Fail"), default=1)
            verdict = _judged(terms, [look] * most, *asked) if look and most > 1 else verdict
        if verdict.outcome != "Pass":
            break
    counts = (means[row.recipe][1] for row in verdict.rows if row.outcome != "Pass")
    again = old.again and verdict.again and old.runs is not None and max(old.runs.number, min(counts)) < MOST_RUNS
    if verdict.reason == "NotYet" and not again:
        verdict = replace(verdict, reason="BetweenLimits")
    if verdict.outcome == "Pass" and old.barred:
        verdict = replace(verdict, outcome="Inconclusive", reason=old.unhealthy or "")
    if verdict.outcome == "Pass" and expired(old, terms.asked, now):
        verdict = replace(verdict, outcome="Inconclusive", reason="Expired")
    until = parse_time(old.runs.ended) + duration(terms.asked.valid_for) if old.runs is not None else now
    worst = {(row.recipe, row.check): row for row in reversed(verdict.rows)}
    failing = {row.gpu: row for row in reversed(verdict.rows) if row.outcome == "Fail"}
    lines = {*worst.values(), *failing.values()}
    doubted = [recipe for recipe in terms.recipes if look and look.troubles.get(recipe) == verdict.reason]
    which = f" with {', '.join(doubted)}" if 0 < len(doubted) < len(terms.recipes) else ""
    answer: dict[str, Any] = {"verdict": verdict.outcome, "reason": verdict.reason, "again": again}
    answer |= {"decided_at": format_time(now), "reference": terms.asked.reference}
    answer["valid_until"] = format_time(until) if verdict.outcome == "Pass" else None
    answer["message"] = _words(terms, status, verdict, which, gpus, changed)[:1024]
    answer["checks"] = tuple(_line(row, gpus) for row in sorted(lines, key=verdict.rows.index)[:MOST_LINES])
    new = old.model_copy(update=answer)
    return new.model_copy(update={"basis": basis_of(terms, new, status, facts, now)})


def _judged(terms: Terms, looks: Sequence[Look], shift: float = 0.0, unhealthy: str = "") -> Verdict:
    golden, asked = terms.reference.recipes if terms.reference else {}, terms.asked.must_detect_percent or ()
    detect: dict[Any, Any] = {check: -logs(-per_cent) for check, per_cent in asked if per_cent}
    return judge(golden, looks, terms.recipes, detect, terms.baselines, shift, unhealthy, terms.alike)


def _look(terms: Terms, old: ReportAcceptance, means: Means, status: ReportStatus, facts: NodeFacts) -> Look | None:
    """The mean of the runs, as the decision reads it."""
    reference, runs = terms.reference, old.runs
    if reference is None or runs is None or status.run is None:
        return None
    general, unread = _general(terms, reference, status, facts), "RunsLost" * (_kept(runs) is None)
    troubles = {
        recipe: runs.troubles.get(recipe) or general or unread or _kernels(runs, recipe, golden, means)
        for recipe, golden in reference.recipes.items()
    }
    speeds, hot = {recipe: mean for recipe, (mean, _, _) in means.items()}, (r for r, of in means.items() if of[2])
    return Look(speeds, {recipe: why for recipe, why in troubles.items() if why}, frozenset(hot))


def _means(terms: Terms, runs: AcceptanceRuns | None, gpus: Iterable[str], newest: int = 0) -> Means:
    """100 ln(tokens/s) by recipe and GPU, averaged over the runs that count, or the newest ones; their number; heat."""
    means: dict[Recipe, tuple[Speeds, int, bool]] = {}
    reference, kept = terms.reference, (_kept(runs) if runs else {}) or {}
    rows = kept.get(_key(reference.peers, reference.provenance, gpus), {}) if reference else {}
    for recipe, golden in reference.recipes.items() if reference else ():
        if of := rows.get(_name(recipe, golden)):
            mean = _mean(of[-newest:] if newest else _counting(terms, recipe, of, gpus))
            means[recipe] = dict(zip(sorted(gpus), mean.rates, strict=False)), mean.number, mean.hot
    return means


def _counting(terms: Terms, recipe: Recipe, rows: Iterable[Kept], gpus: Iterable[str]) -> list[Kept]:
    """The runs since the last with which the recipe passed."""
    window = list[Kept]()
    for row in rows:
        look = Look({recipe: dict(zip(sorted(gpus), _mean(window).rates, strict=False))} if window else {})
        checks = () if window and window[-1].hot else _judged(terms, [look]).rows
        window = [*([] if checks and all(check.outcome == "Pass" for check in checks) else window), row]
    return window


def _apart(before: Kept, after: Kept) -> float:
    """By how much a GPU's rates differ at most."""
    return max(abs(b - a) for b, a in zip(before.rates, after.rates, strict=False)) + 1e3 * (before.hot != after.hot)


def _mean(rows: Sequence[Kept]) -> Kept:
    numbers = [row.number for row in rows]
    rates = tuple(fmean(of, numbers) for of in zip(*(row.rates for row in rows), strict=False))
    return Kept(min(MOST_RUNS, sum(numbers)), rows[-1].at, rows[-1].hot, rates)


_RUN = re.compile(r"^([1-3])(\^?)\.(\d{1,9}):(\d{1,9}(?:[+-]\d{1,9})*)$")


def _kept(runs: AcceptanceRuns, since: int = 0) -> dict[str, dict[str, list[Kept]]] | None:
    """Runs that ended after `since`, by key in the order of `averages`, by recipe and how it ran; None: not readable.

    `01234567@29414890 bf16=1.35:99034+45-12;1^.0:99030+44-12`: minutes since 1970, minutes before, hundredths, steps.
    """
    kept: dict[str, dict[str, list[Kept]]] = {}
    try:
        for head, *parts in map(str.split, runs.averages):
            (key, now), named = head.split("@"), (part.split("=") for part in parts)
            of = {name: [_read(text, int(now)) for text in texts.split(";")] for name, texts in named}
            kept[key] = {name: young for name, rows in of.items() if (young := [it for it in rows if it.at > since])}
    except ValueError:
        return None
    return kept


def _read(text: str, now: int) -> Kept:
    ((number, hot, age, rates),) = _RUN.findall(text)
    first, *steps = map(int, re.findall(r"[+-]?\d+", rates))
    return Kept(int(number), now - int(age), bool(hot), (first / 100, *((first + step) / 100 for step in steps)))


def _lines(kept: Mapping[str, Mapping[str, Sequence[Kept]]], now: int) -> tuple[str, ...]:
    return tuple(
        " ".join([f"{key}@{now}", *(f"{name}={';'.join(_text(it, now) for it in rows)}" for name, rows in of.items())])
        for key, of in kept.items()
    )


def _text(row: Kept, now: int) -> str:
    first, *others = (round(100 * rate) for rate in row.rates)
    steps = "".join(f"{other - first:+d}" for other in others)
    return f"{row.number}{'^' * row.hot}.{max(0, now - row.at)}:{first}{steps}"


def _key(key: PeerKey, origin: str, gpus: Iterable[str]) -> str:
    """Under what averages are kept: what is alike in runs that are averaged, beside a recipe and how it ran."""
    return digest([key._asdict(), origin == "measured", sorted(gpus), PLAIN], 8)


def _name(recipe: Recipe, golden: Golden) -> str:
    ran = f"{golden.kernels}/{golden.last_layers_bf16}"
    return recipe if ran == PLAIN else f"{recipe}/{ran}"


def _general(terms: Terms, reference: Reference, status: ReportStatus, facts: NodeFacts) -> str:
    """Why nothing of the result may be compared with the reference; empty where it may."""
    measured = status.run is not None and provenance_of(status.run) == "measured"
    if measured != (reference.provenance == "measured") or not (measured or terms.simulated):
        return "Simulated"
    here = reference.split.items() <= facts.labels.items()
    return "" if here and not _differs(status, reference) else "OtherKey"


def _differs(status: ReportStatus, reference: Reference) -> str:
    driver = status.software.driver if status.software is not None else None
    return read("", "", status).peers._replace(driver=driver or "").against(reference.peers)


def _kernels(runs: AcceptanceRuns, recipe: Recipe, golden: Golden, means: Means) -> str:
    """Why a recipe did not run as in the reference, or has no mean; empty where all is well."""
    ran = runs.kernels.get(recipe, PLAIN)
    other = "OtherLayers" if ran.partition("/")[0] == golden.kernels else "Unverified"
    usable = recipe in means and not golden.is_beyond(means[recipe][0])
    return ("" if usable else "NotMeasured") if ran == f"{golden.kernels}/{golden.last_layers_bf16}" else other


def _line(row: Row, gpus: list[str]) -> str:
    limit = f"{-percent(-row.limits.fail):.2f}" if row.limits.fail < 1e6 else "-"
    gpu = gpus.index(row.gpu) if row.gpu in gpus else "-"
    return f"{row.recipe} {row.check} {percent(row.off):.2f} {limit} {gpu}{' Fail' * (row.outcome == 'Fail')}"


def _words(terms: Terms, status: ReportStatus, verdict: Verdict, which: str, gpus: list[str], changed: str) -> str:
    """What failed, by how much, against what; or which recipes can't be judged, and why."""
    name, row = terms.asked.reference.name, verdict.rows[0] if verdict.rows else None
    said = _WORDS.get(verdict.reason, "").format(name=name, shift=terms.shift) + which
    if verdict.reason == "ReferenceDrifted" and not terms.shift:
        said = "most of the last nodes are as far off: the season or their design, no fault of one GPU"
    if verdict.reason == "BetweenLimits" and row and row.outcome == "Fail":
        said = "no second run within 24 hours says so: measure it again"
    if verdict.reason == "SubjectChanged":
        said = f"since it was measured {changed}: kubectl precision rerun NODE"
    if verdict.reason == "OtherKey" and terms.reference is not None:
        said = _differs(status, terms.reference) or f"it lacks the labels of reference {name}"
    if verdict.reason in UNHEALTHY.values():
        of_now = status.attempt.message if status.attempt and ill(status.attempt) else ""
        before = old.message if (old := status.acceptance) and old.reason == verdict.reason else ""
        said = of_now or before or "a health counter says so"
    if verdict.outcome == "Pass" or row is None or row.limits.fail > 1e6 or row.off >= 0 or row.outcome == "Pass":
        return said
    whom = f"GPU {gpus.index(row.gpu)}" if row.gpu in gpus else "the node"
    against = {"reference": f"reference {name}", "node": "its node's others", "change": "its own first Pass"}[row.check]
    off, limit = -percent(row.off), -percent(-row.limits.fail)
    fails = f"{whom} is {off:.1f} % slower than {against} with {row.recipe}; {limit:.1f} % fails"
    return f"{fails}: {said}" if said else fails


def first_passes(terms: Terms, verdict: ReportAcceptance) -> dict[str, dict[str, Any]]:
    """What is kept of a Pass that is the first of a GPU: rates of the node's GPUs by recipe, by when its run ended."""
    new = dict[str, Any]()
    gpus = sorted(verdict.subject.gpus) if verdict.subject else []
    for recipe, (speeds, _, _) in _means(terms, verdict.runs, gpus).items() if verdict.verdict == "Pass" else ():
        if recipe in terms.recipes and not speeds.keys() <= terms.baselines.get(recipe, {}).keys():
            new[recipe] = [round(speeds[gpu], 2) for gpu in gpus]
    ended = f"{parse_time(verdict.runs.ended):%Y%m%d%H%M}" if verdict.runs else ""
    return {f"{ended}-{digest([gpus, sorted(new)], 10)}": {"gpus": gpus} | new} if new else {}
