"""The verdict on a node, as its report tells it: the runs that it rests on, and the decision. Writes to no Node.

docs/verdict.md
"""

import json
import re
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from statistics import fmean
from textwrap import wrap
from typing import Any, NamedTuple

from precision_api.acceptance.judge import MOST_RUNS, WORST_FIRST, Firsts, judge
from precision_api.acceptance.reference import PROVED, Reference, speeds_of, trouble_of
from precision_api.acceptance.series import Windows, counting, judged, means
from precision_api.acceptance.values import UNHEALTHY, Look, Row, Speeds, Verdict, logs, percent
from precision_api.exchange.peers import PeerKey, key_of
from precision_api.exchange.request import digest
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.recipes import Recipe, in_order, recipe_name
from precision_api.kinds.report import AcceptanceRuns, AcceptanceSubject, ReportAcceptance, ReportStatus
from precision_operator.core.attempts import verdicts
from precision_operator.core.attempts.verdicts import Terms, basis_of, change, expired, ill, noted, run_of, unhealthy
from precision_operator.core.observe.clock import duration, format_time, parse_time
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.reasons import VERDICTS
from precision_operator.core.results.reading import provenance_of, read

SERIES_MINUTES = 24 * 60  # runs that lie further apart are not averaged
MOST_LINES, MOST_KEYS, MOST_BYTES, ALIKE, DIGITS, LOST = 29, 3, 435, 1.0, 6, "RunsLost@"
"""Keys kept; bytes of 4 recipes and 8 GPUs; a small step, %; digits of a GPU; what bars a Pass: a run had no room."""
MOST_RATE, MOST_ROWS, MOST_QUOTES = 1e6, 64, 99
"""What a first Pass may say of a GPU, rows of a node, and quotes of a row: more was written by others."""
MOST_MOVED = 0.2  # by which a mean of runs may move a GPU from the median, %
_64 = string.digits + string.ascii_letters + "*_"
PLAIN = "verified/None"
JUDGED = PROVED | {"assumed"}
Lines = dict[str, dict[str, list["Kept"]]]


class Kept(NamedTuple):
    """One run with a recipe, or neighbours that count alike: how many, when the last ended (minutes since 1970),
    per mille of the time that it ran throttled, 100 ln(tokens/s) of the GPU first by UUID first."""

    number: int
    at: int
    heat: int
    rates: tuple[float, ...]


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
    kept = _kept(earlier, old.subject, now - SERIES_MINUTES) or {}
    lost = tuple(line for line in earlier.averages if LOST in line and line > f"{LOST}{now - SERIES_MINUTES}")
    rest = {*golden, *(name.partition("/")[0] for of in kept.values() for name in of)}
    troubles: dict[Recipe, str] = dict.fromkeys(
        in_order(rest), "Partial" if result and result.partial else "NotMeasured"
    )
    if result is None or result.partial or not result.gpus or not boot:
        runs = runs.model_copy(update={"troubles": troubles, "averages": _lines(kept, now, subject.gpus) + lost})
        return old.model_copy(update={"runs": runs, "subject": subject})
    gpus, pci = tuple(gpu.uuid for gpu in result.gpus), tuple(gpu.pci for gpu in result.gpus if gpu.pci)
    ours = _key(reference.peers, reference.provenance) if reference else ""
    subject = AcceptanceSubject(
        boot_id=boot, driver=result.software.driver, gpus=gpus, pci=pci if len(pci) == len(gpus) else ()
    )
    key, kernels = f"{_key(key_of(result), provenance_of(result))}/{_ids(gpus)}", dict[Recipe, str]()
    mine, new = kept.pop(key, {}), dict[str, list[Kept]]()
    for row in result.recipes:
        ran, speeds = f"{row.verification.verdict}/{row.last_layers_bf16}", speeds_of(row, result)
        like = golden.get(row.recipe) if key.startswith(ours) else None
        why = trouble_of(row, row.verification.verdict, row.last_layers_bf16, like.layers_measured if like else None)
        why = why or "OtherKey" * result.limits_differ or ("" if row.verification.verdict in JUDGED else "Unverified")
        why = why or ("NotMeasured" if (like and like.is_beyond(speeds)) or speeds.keys() != {*gpus} else "")
        kernels |= {} if why or ran == PLAIN else {row.recipe: ran}
        troubles[row.recipe] = why
        if not why:
            name, rates = _name(row.recipe, ran), (speeds[gpu] for gpu in sorted(gpus))
            heat = max(1, round(1000 * row.throttled.share)) if row.throttled else 0
            new[name] = [*mine.get(name, ()), Kept(1, now, heat, tuple(rates))]
    kept = {key: mine | new} | dict(sorted(kept.items(), key=lambda of: not of[0].startswith(ours)))
    most = MOST_BYTES * max(1, len(gpus) * len(result.recipes) / 32)
    if not _has_room(terms, kept, gpus, runs.number, lambda: len(of := _lines(kept, now, gpus)) <= MOST_KEYS
                     and len("".join(of)) <= most):  # fmt: skip
        kept[key], lost = mine, (f"{LOST}{now}",)
    lines = _lines(kept, now, gpus) + lost
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
    elif verdicts.refused(attempt):
        old = old.model_copy(update={"unhealthy": old.unhealthy or "GPUUnhealthy", "barred": True})
    changed, sick = change(old.subject, facts), unhealthy(old, facts)
    old = old.model_copy(update={"subject": noted(old.subject, facts)})
    gpus = list(old.subject.gpus if old.subject else ())
    verdict = Verdict("Inconclusive", terms.problem or ("SubjectChanged" if changed else "NotMeasured"))
    number, kept, troubles = old.runs.number if old.runs else 0, _kept(old.runs, old.subject), dict[Recipe, str]()
    general, both = _general(terms, status, facts) or "RunsLost" * (kept is None), list[Verdict]()
    for newest in (0, number):  # earlier runs hide no new fault
        windows = _windows(terms, kept or {}, gpus, newest)
        troubles = _troubles(terms, old, means(windows, gpus), general)
        if sick or not (terms.problem or changed or old.runs is None or status.run is None):
            decide = partial(_decide, terms, shift=logs(terms.shift), unhealthy=sick)
            both.append(judged(windows, gpus, decide, troubles)[0])
    verdict = min(both or [verdict], key=lambda judged: WORST_FIRST.index(judged.outcome))
    again = (old.again or old.reason == "ReferenceDrifted") and verdict.again and number < MOST_RUNS
    if verdict.reason == "NotYet" and not again:
        verdict = replace(verdict, reason="BetweenLimits")
    if verdict.outcome == "Pass" and old.barred:
        verdict = replace(verdict, outcome="Inconclusive", reason=old.unhealthy or "")
    if verdict.reason in ("WithinLimits", "NotMeasured") and old.runs and LOST in "".join(old.runs.averages):
        verdict = replace(verdict, outcome="Inconclusive", reason="RunsLost")
    if verdict.outcome == "Pass" and expired(old, terms.asked, now):
        verdict = replace(verdict, outcome="Inconclusive", reason="Expired")
    until = parse_time(old.runs.ended) + duration(terms.asked.valid_for) if old.runs is not None else now
    worst = {(row.recipe, row.check): row for row in reversed(verdict.rows)}
    failing = {row.gpu: row for row in reversed(verdict.rows) if row.outcome == "Fail"}
    lines = {*worst.values(), *failing.values()}
    doubted = [recipe for recipe in terms.recipes if troubles.get(recipe) == verdict.reason]
    which = f" with {', '.join(doubted)}" if 0 < len(doubted) < len(terms.recipes) else ""
    answer: dict[str, Any] = {"verdict": verdict.outcome, "reason": verdict.reason, "again": again}
    answer |= {"decided_at": format_time(now), "reference": terms.asked.reference}
    answer["valid_until"] = format_time(until) if verdict.outcome == "Pass" else None
    answer["message"] = _words(terms, status, verdict, which, gpus, changed)[:1024]
    answer["checks"] = tuple(_line(row, gpus) for row in sorted(lines, key=verdict.rows.index)[:MOST_LINES])
    new = old.model_copy(update=answer)
    return new.model_copy(update={"basis": basis_of(terms, new, status, facts, now)})


def _decide(terms: Terms, looks: Sequence[Look], shift: float = 0.0, unhealthy: str = "") -> Verdict:
    golden, asked = terms.reference.recipes if terms.reference else {}, terms.asked.must_detect_percent or ()
    detect: dict[Any, Any] = {check: -logs(-per_cent) for check, per_cent in asked if per_cent}
    return judge(golden, looks, terms.recipes, detect, terms.baselines, shift, unhealthy, terms.alike)


def _troubles(terms: Terms, old: ReportAcceptance, speeds: Mapping[Recipe, Speeds], general: str) -> dict[Recipe, str]:
    """Why recipes of the reference can't be judged, or did not run as there."""
    runs, troubles = old.runs or AcceptanceRuns(run=""), dict[Recipe, str]()
    for recipe, golden in terms.reference.recipes.items() if terms.reference else ():
        ran, usable = runs.kernels.get(recipe, PLAIN), recipe in speeds and not golden.is_beyond(speeds[recipe])
        other = "OtherLayers" if ran.partition("/")[0] == golden.kernels else "Unverified"
        why = ("" if usable else "NotMeasured") if ran == f"{golden.kernels}/{golden.last_layers_bf16}" else other
        troubles[recipe] = runs.troubles.get(recipe) or general or why
    return {recipe: why for recipe, why in troubles.items() if why}


def _windows(terms: Terms, kept: Lines, gpus: Iterable[str], newest: int = 0) -> Windows:
    """The runs that count, of all that are kept under the reference's key; or the newest of the present GPUs."""
    reference, names = terms.reference, {digest(gpu, DIGITS): gpu for gpu in gpus}
    if reference is None:
        return {}
    runs = dict[tuple[int, int, int], tuple[dict[Recipe, Speeds], dict[Recipe, float]]]()
    for place, (line, of) in enumerate(reversed(kept.items())):
        key, ids = line.split("/")
        if key != _key(reference.peers, reference.provenance) or (newest and ids != _ids(gpus)):
            continue
        here = [names.get(it, it) for it in wrap(ids, DIGITS)]
        for recipe, golden in reference.recipes.items():
            kept_rows = of.get(_name(recipe, f"{golden.kernels}/{golden.last_layers_bf16}"), ())
            rows = [row for row in kept_rows for _ in range(row.number)][-newest:]
            for at, run in enumerate(rows, -len(rows)):
                speeds, heat = runs.setdefault((run.at, place, at), ({}, {}))
                speeds[recipe] = dict(zip(here, run.rates, strict=True))
                heat |= {recipe: run.heat / 1000} if run.heat else {}
    return counting(
        [Look(runs[at][0], {}, runs[at][1]) for at in sorted(runs)], partial(_decide, terms), since_pass=not newest
    )


def _has_room(terms: Terms, kept: Lines, gpus: Sequence[str], number: int, is_short: Callable[[], bool]) -> bool:
    """Whether it has, once what bears on no decision by the reference is gone: other keys' lines, then runs that don't
    count; and once runs that count together, or alike ones without a reference, are one."""
    ours = _key(terms.reference.peers, terms.reference.provenance) if terms.reference else ""

    def counted() -> dict[Any, Sequence[float]]:
        outcomes = dict[Any, Sequence[float]]()
        for newest in (0, number)[: 1 + next(iter(kept)).startswith(ours)]:
            windows = _windows(terms, kept, gpus, newest)
            rows = judged(windows, gpus, partial(_decide, terms))[0].rows
            outcomes |= {(newest, row.recipe, row.check, row.gpu, row.outcome): () for row in rows}
            outcomes |= {(newest, *of): (len(it), *map(fmean, zip(*it, strict=True))) for of, it in windows.items()}
        return outcomes

    others = [key for key in [*kept][1:] if not key.startswith(ours)]
    while others and not is_short():
        del kept[others.pop()]
    if is_short():
        return True
    before = counted()
    lists = [(of, name, bool(ours) and key.startswith(ours)) for key, of in kept.items() for name in of]
    places = [(width, at, *it) for width in (1, 2) for it in lists for at in reversed(range(len(it[0][it[1]])))]
    for width, at, of, name, is_judged in places:
        rows, part = of[name], of[name][at : at + width]
        if len(part) < width or is_short():
            continue
        of[name] = [*rows[:at], *([_mean(part)] if width > 1 else ()), *rows[at + width :]]
        after = counted() if is_judged else {}
        pairs = [pair for it in after if it in before for pair in zip(after[it], before[it], strict=True)]
        same = after.keys() == before.keys() and all(abs(a - b) < MOST_MOVED for a, b in pairs)
        if not (same if is_judged else width > 1 and _apart(*part) <= ALIKE):
            of[name] = rows
    return is_short()


def _apart(before: Kept, after: Kept) -> float:
    """By how much a GPU's rates differ at most."""
    return max(abs(b - a) for b, a in zip(before.rates, after.rates, strict=False)) + 1e3 * (before.heat != after.heat)


def _mean(rows: Sequence[Kept]) -> Kept:
    numbers = [row.number for row in rows]
    rates = tuple(fmean(of, numbers) for of in zip(*(row.rates for row in rows), strict=False))
    return Kept(min(MOST_RUNS, sum(numbers)), rows[-1].at, rows[-1].heat, rates)


_RUN = re.compile(r"^([1-3])(?:\^(\d{1,4}))?\.(\d{1,9}):((?:[0-9A-Za-z*_]{3})+)$")


def _kept(runs: AcceptanceRuns | None, subject: AcceptanceSubject | None, since: int = 0) -> Lines | None:
    """Runs that ended after `since`, by key in the order of `averages`, by recipe and how it ran; None: not readable.

    `01234567/d7b1c8e3a5f0@29414890 bf16=1.35:obqocj;1^2.0:obmocc`: hash, GPUs (left out: the subject's), minutes
    since 1970, minutes before, hundredths of each GPU in base 64.
    """
    kept, usual = Lines(), _ids(subject.gpus if subject else ())
    try:
        for head, *parts in map(str.split, runs.averages if runs else ()):
            (key, now), named = head.split("@"), (part.split("=") for part in parts)
            key, ids = f"{key}/{usual}".split("/")[:2]
            of = {name: [_read(text, int(now), len(ids)) for text in texts.split(";")] for name, texts in named}
            of = {name: young for name, rows in of.items() if (young := [it for it in rows if it.at > since])}
            kept |= {f"{key}/{ids}": of} if of else {}
    except ValueError:
        return None
    return kept


def _read(text: str, now: int, gpus: int) -> Kept:
    ((number, heat, age, rates),) = _RUN.findall(text)
    places = [tuple(map(_64.index, of)) for of in re.findall("...", rates)]
    if gpus != DIGITS * len(places):
        raise ValueError("not a rate for each GPU")
    return Kept(int(number), now - int(age), int(heat or 0), tuple((a * 4096 + b * 64 + c) / 100 for a, b, c in places))


def _lines(kept: Lines, now: int, gpus: Iterable[str]) -> tuple[str, ...]:
    usual, lines = f"/{_ids(gpus)}", list[str]()
    for key, of in kept.items():
        named = [f"{name}={';'.join(_text(it, now) for it in rows)}" for name, rows in of.items() if rows]
        lines += [" ".join([f"{key.removesuffix(usual)}@{now}", *named])] if named else []
    return tuple(lines)


def _text(row: Kept, now: int) -> str:
    hundredths = (min(max(0, round(100 * rate)), 64**3 - 1) for rate in row.rates)
    rates = "".join(_64[of >> 12] + _64[of >> 6 & 63] + _64[of & 63] for of in hundredths)
    return f"{row.number}{f'^{row.heat}' * (row.heat > 0)}.{max(0, now - row.at)}:{rates}"


def _key(key: PeerKey, origin: str) -> str:
    """Under what runs are kept: what is alike in those that are averaged, beside a recipe, how it ran, and the GPU."""
    return digest([key._asdict(), origin == "measured", PLAIN], 8)


def _ids(gpus: Iterable[str]) -> str:
    """Of the GPUs first by UUID first."""
    return "".join(digest(gpu, DIGITS) for gpu in sorted(gpus))


def _name(recipe: Recipe, ran: str) -> str:
    return recipe if ran == PLAIN else f"{recipe}/{ran.removeprefix('verified/')}"


def _general(terms: Terms, status: ReportStatus, facts: NodeFacts) -> str:
    """Why nothing of the result may be compared with the reference; empty where it may."""
    measured, reference = status.run is not None and provenance_of(status.run) == "measured", terms.reference
    if reference is None:
        return terms.problem
    made_up = terms.simulated and (facts.played or not facts.driver)
    if measured != (reference.provenance == "measured") or not (measured or made_up):
        return "Simulated"
    return "" if verdicts.is_of(reference, facts) and not _differs(status, reference) else "OtherKey"


def _differs(status: ReportStatus, reference: Reference) -> str:
    is_measured = status.run is not None and provenance_of(status.run) == "measured"
    driver = status.software.driver if status.software is not None else None
    driver = driver if is_measured else reference.peers.driver  # what a kept report names was not read by the agent
    timing = status.run.timing if status.run is not None else None
    peers = read("", "", status).peers._replace(driver=driver or "", timing=timing or "")
    return peers.against(reference.peers)


def _line(row: Row, gpus: list[str]) -> str:
    limit = f"{-percent(-row.limits.fail):.2f}" if row.limits.fail < 1e6 else "-"
    gpu = gpus.index(row.gpu) if row.gpu in gpus else "-"
    return f"{row.recipe} {row.check} {percent(row.off):.2f} {limit} {gpu}{' Fail' * (row.outcome == 'Fail')}"


def _words(terms: Terms, status: ReportStatus, verdict: Verdict, which: str, gpus: list[str], changed: str) -> str:
    """What failed, by how much, against what; or which recipes can't be judged, and why."""
    name, row = terms.asked.reference.name, verdict.rows[0] if verdict.rows else None
    by_design, fails_once = not terms.shift, row is not None and row.outcome == "Fail"
    special = {"ReferenceDrifted": " by design" * by_design, "BetweenLimits": " by one run" * fails_once}
    words = VERDICTS.get(verdict.reason + special.get(verdict.reason, ""), "")
    said = words.format(name=name, shift=terms.shift, changed=changed) + which
    if verdict.reason == "OtherKey" and terms.reference is not None:
        said = _differs(status, terms.reference) or said
    if verdict.reason in {*UNHEALTHY.values(), "GPUUnhealthy"}:
        before = old.message if (old := status.acceptance) and old.reason == verdict.reason else ""
        said = verdicts.refused(status.attempt) or before
    if verdict.outcome == "Pass" or row is None or row.limits.fail > 1e6 or row.off >= 0 or row.outcome == "Pass":
        return said
    whom = f"GPU {gpus.index(row.gpu)}" if row.gpu in gpus else "the node"
    against = {"reference": f"reference {name}", "node": "its node's others", "change": "its own first Pass"}[row.check]
    off, limit = -percent(row.off), -percent(-row.limits.fail)
    fails = f"{whom} is {off:.1f} % slower than {against} with {recipe_name(row.recipe)}; {limit:.1f} % fails"
    return f"{fails}: {said}" if said else fails


def first_speeds(rows: Iterable[str], recipes: Collection[Recipe], gpus: Collection[str]) -> dict[Recipe, Firsts]:
    """By GPU of these its node's speeds at its first Pass: the oldest of the `rows` of `first_passes` counts."""
    firsts: dict[Recipe, dict[str, Speeds]] = {}
    about = (text for text in rows if not {*gpus}.isdisjoint(text.split('"', MOST_QUOTES)))
    for text in islice(about, MOST_ROWS):
        # Anybody may write there.
        with suppress(ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError):
            kept = json.loads(text)
            for recipe in {*recipes} & kept.keys():
                speeds = {gpu: float(rate) for gpu, rate in zip(kept["gpus"], kept[recipe], strict=True)}
                for gpu in speeds.keys() & gpus if all(abs(rate) < MOST_RATE for rate in speeds.values()) else ():
                    firsts.setdefault(recipe, {}).setdefault(gpu, speeds)
    return dict(firsts)


def first_passes(terms: Terms, verdict: ReportAcceptance) -> dict[str, dict[str, Any]]:
    """What is kept of a Pass that is the first of a GPU: rates of the node's GPUs by recipe, by when its run ended."""
    new = dict[str, Any]()
    gpus = sorted(verdict.subject.gpus) if verdict.subject else []
    passed = (_kept(verdict.runs, verdict.subject) if verdict.verdict == "Pass" else {}) or {}
    for recipe, speeds in means(_windows(terms, passed, gpus), gpus).items():
        if recipe in terms.recipes and not speeds.keys() <= terms.baselines.get(recipe, {}).keys():
            new[recipe] = [round(speeds[gpu], 2) for gpu in gpus]
    ended = f"{parse_time(verdict.runs.ended):%Y%m%d%H%M}" if verdict.runs else ""
    return {f"{ended}-{digest([gpus, sorted(new)], 10)}": {"gpus": gpus} | new} if new else {}
