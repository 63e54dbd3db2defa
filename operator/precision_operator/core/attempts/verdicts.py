"""When the verdict on a node is due: what it hangs on beside its own result, and what a report's was decided from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice, takewhile
from statistics import median

from precision_api.acceptance.judge import LEAST_GOLDEN, Firsts, drifted, finds
from precision_api.acceptance.reference import Reference
from precision_api.acceptance.values import UNHEALTHY, logs
from precision_api.exchange.request import digest
from precision_api.facts.recipes import Recipe
from precision_api.kinds.profile import Acceptance, ProfileSpec
from precision_api.kinds.report import AcceptanceSubject, ReportAcceptance, ReportAttempt, ReportRun, ReportStatus
from precision_operator.core.observe.clock import duration, format_time, parse_time, time_or_none
from precision_operator.core.observe.nodes import NodeFacts, same_driver
from precision_operator.core.observe.observed import NO_REPORTS, Filed, Observed

DRIFT_NODES, DRIFT_TIME = 20, timedelta(days=14)
THEN = ", then "
MOST_ALIKE = 0.5  # of a check's limit: how far off sound nodes' slowest GPU lies at most, by the median (8 GPUs: 0.3)


@dataclass(frozen=True)
class Terms:
    """All that the verdicts of one profile hang on beside a node's own result."""

    asked: Acceptance
    reference: Reference | None
    problem: str  # why there is no reference to decide by
    simulated: bool  # whether figures count that nobody measured
    shift: float  # how far the fleet's last nodes lie from the reference (per cent), where that is too far; else 0
    alike: Mapping[Recipe, float] = field(default_factory=dict)
    """Recipes with which the slowest GPUs of those nodes lie too far off, by the median, in limits of their check."""
    baselines: Mapping[Recipe, Firsts] = field(default_factory=dict)

    @property
    def recipes(self) -> Sequence[Recipe]:
        """Those that must pass."""
        return self.asked.recipes or tuple(self.reference.recipes if self.reference else ())

    @cached_property
    def finds(self) -> Mapping[str, float]:
        """The deficit (per cent) that each check finds: what is asked for, else the usual one; none: no such check."""
        usual = finds(self.reference.recipes, self.recipes) if self.reference else {}
        return {**usual, **{check: asked for check, asked in self.asked.must_detect_percent or () if asked}}

    @cached_property
    def digest(self) -> str:
        return digest([self.asked.model_dump(mode="json"), self.problem, self.simulated], 10)


def terms_of(spec: ProfileSpec | None, namespace: str, observed: Observed, reports: Filed = NO_REPORTS) -> Terms | None:
    """What a profile's verdicts hang on; None where it asks for none. KeyError: nobody can read now what it asks."""
    if spec is None:
        raise KeyError
    if spec.acceptance is None:
        return None
    asked = spec.acceptance.reference
    sha256, saved = observed.references[namespace, asked.name] or ("", "NoReference")
    problem = saved if isinstance(saved, str) else saved.problem(observed.now)
    problem = "ReferenceReplaced" if sha256 not in ("", asked.sha256) else problem
    reference = None if problem or isinstance(saved, str) else saved
    shift, alike = _drift(reference, sha256, reports, observed.now) if reference else (0.0, {})
    return Terms(spec.acceptance, reference, problem, observed.settings.accept_simulated, shift, alike)


def _drift(reference: Reference, sha256: str, reports: Filed, now: datetime) -> tuple[float, dict[Recipe, float]]:
    """What medians of the last 8 to 20 cool nodes say, where they lie too far off: the largest of their reference
    checks in per cent, else 0, and those of each node's slowest GPU in limits of its check."""
    young, shifts, alike = format_time(now - DRIFT_TIME), list[float](), dict[Recipe, float]()
    for recipe, golden in reference.recipes.items():
        newest = takewhile(lambda row: row[0] > young, reports.judged)
        judged = ((v, of.throttled) for _, v, of in newest if v.reference and v.reference.sha256 == sha256)
        cool = ({c.check: c for c in reversed(v.worst) if c.recipe == recipe and recipe not in of} for v, of in judged)
        worst = [*islice(filter(None, cool), DRIFT_NODES)]
        offs = [of["reference"].off for of in worst if "reference" in of]
        if len(offs) >= LEAST_GOLDEN and drifted(golden, logs(median(offs)), len(offs)):
            shifts.append(median(offs))
        for check in ("node", "change"):
            ratios = [-c.off / c.limit for of in worst if (c := of.get(check)) and c.limit]
            if len(ratios) >= LEAST_GOLDEN and median(ratios) > MOST_ALIKE:
                alike[recipe] = max(alike.get(recipe, 0), median(ratios))
    return max(shifts, key=abs, default=0.0), alike


def is_due(terms: Terms | None, status: ReportStatus | None, facts: NodeFacts, now: datetime) -> bool:
    """Whether the report's verdict was decided from something else than what is so now."""
    verdict = status.acceptance if status is not None else None
    if terms is None or status is None:
        return verdict is not None and verdict.verdict is not None
    if verdict is None:
        return status.run is not None or bool(ill(status.attempt))
    unread = status.run is not None and (verdict.runs is None or verdict.runs.run != run_of(status.run))
    return unread or verdict.basis != basis_of(terms, verdict, status, facts, now)


def is_over(terms: Terms | None, status: ReportStatus | None, facts: NodeFacts, now: datetime) -> bool:
    """Whether a Pass ends, whatever the `terms`."""
    verdict = status.acceptance if status is not None else None
    if verdict is None or verdict.verdict != "Pass":
        return False
    until = time_or_none(verdict.valid_until)
    return bool(change(verdict.subject, facts)) or until is None or until <= now


def turns_at(terms: Terms | None, status: ReportStatus | None) -> datetime | None:
    """When time alone makes it due or, without terms, over; None: never."""
    verdict = status.acceptance if status is not None else None
    if verdict is None:
        return None
    if terms is None:
        return time_or_none(verdict.valid_until)
    ended = time_or_none(verdict.runs.ended) if verdict.runs is not None else None
    return ended + duration(terms.asked.valid_for) if ended is not None else None


def run_of(run: ReportRun) -> str:
    """Which run a report's figures are of: its identity may come again."""
    return f"{run.run} {run.finished_at}"


def basis_of(terms: Terms, verdict: ReportAcceptance, status: ReportStatus, facts: NodeFacts, now: datetime) -> str:
    """All that bears on a verdict beside its runs; a drift counts where it ends, or a Fail rests on the reference."""
    accused = any(terms.shift if it.check == "reference" else it.recipe in terms.alike for it in verdict.failing)
    drifts = accused if terms.shift or terms.alike else verdict.reason == "ReferenceDrifted"
    over = expired(verdict, terms.asked, now) or drifts
    attempt, sick = status.attempt, unhealthy(verdict, facts)
    if attempt is not None and refused(attempt):  # each speaks anew
        sick = f"{ill(attempt) or 'refused'} {attempt.run}.{attempt.number} {sick}"
    here = "" if terms.reference is None or is_of(terms.reference, facts) else " elsewhere"
    return f"{terms.digest} {over:d} {sick} {change(verdict.subject, facts)}{here}".rstrip()


def is_of(reference: Reference, facts: NodeFacts) -> bool:
    """Whether the node's labels are those of the golden nodes: the product, where one tells it, and the split."""
    return facts.gpu in (None, reference.peers.product) and reference.split.items() <= facts.labels.items()


def expired(verdict: ReportAcceptance, asked: Acceptance, now: datetime) -> bool:
    """Whether the newest run lies so far back that a Pass holds no more."""
    return verdict.runs is not None and parse_time(verdict.runs.ended) + duration(asked.valid_for) <= now


def change(subject: AcceptanceSubject | None, facts: NodeFacts) -> str:
    """What of the subject is not as it was when it was measured, in words; empty where all is."""
    if subject is None:
        return ""
    gpus = frozenset(subject.gpus)
    before, _, last = (subject.driver or "").partition(THEN)
    now = facts.driver or last
    whole = "; a verdict needs spec.agent.gpus: All" * (len(gpus) == 1)
    checks = {
        "its boot is not known": not (subject.boot_id and facts.boot),
        "it restarted": subject.boot_id != facts.boot,
        "its driver changed": bool(before and now) and not same_driver(before, now),
        f"its GPUs changed ({facts.gpus} now, {len(gpus)} measured{whole})": bool(gpus)
        and facts.has_other_gpus(len(gpus), gpus),
    }
    return next((words for words, holds in checks.items() if holds), "")


def noted(subject: AcceptanceSubject | None, facts: NodeFacts) -> AcceptanceSubject | None:
    """The subject with the driver that its node shows now, where that is another one: its label may vanish."""
    first, now = (subject.driver or "").partition(THEN)[0] if subject else "", facts.driver or ""
    drivers = first if same_driver(first, now) else f"{first}{THEN}{now}"
    return subject.model_copy(update={"driver": drivers}) if subject and first and now else subject


def ill(attempt: ReportAttempt | None) -> str:
    """What a health counter said to the newest attempt, as a verdict's reason; empty where none did."""
    return next((reason for word, reason in UNHEALTHY.items() if word in refused(attempt)), "")


def refused(attempt: ReportAttempt | None) -> str:
    """Why the newest attempt's agent did not run on the GPUs; empty where it did, or ended for another reason."""
    said = attempt.message or "" if attempt is not None and attempt.outcome == "failed" else ""
    return said if "GPUUnhealthy" in said else ""


def unhealthy(verdict: ReportAcceptance, facts: NodeFacts) -> str:
    """What a health counter said on the present boot; an unknown boot is like none."""
    return (verdict.unhealthy or "") if facts.boot and facts.boot == verdict.unhealthy_boot_id else ""
