"""A healthy year in small: through schedules, reruns, edits, deletions and restarts nothing fires but for a fault.

The month is evaluated every nine minutes, in three clusters of one ruler: one exporter; one that two jobs scrape; two
shards. Each has one fault of a day, of another part of the alerts; what the others, which lack it, say is beside it.
One day of two healthy clusters, with all events close together, is evaluated every minute.
Each part of the alerts has a promtool of its own, which sees the whole span in one run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from precision_operator.monitoring.alerts import ALERTS
from tests.monitoring.replay import PARTS, alerting, check, label_text, read_by
from tests.monitoring.story import DAY, HOUR, MINUTE, Moment, Node, Profile, Programs, series
from tests.support.golden import beside

TABLES = beside(__file__)

pytestmark = pytest.mark.cluster

NIGHTLY = {"schedule": {"cron": "0 2 * * *"}}
EVERY_NODE = 10 * MINUTE
"""What the measurement of a node takes."""
ONE = Programs()


@dataclass(frozen=True)
class Events:
    """When what happens, in seconds; a cluster's own `shift` keeps two of them apart."""

    days: int
    suspended: float
    failed_once: float
    edited: float
    new_driver: float
    deleted: float
    exporter_restarts: float
    exporter_away: float
    prometheus_restarts: float
    prometheus_away: float
    operator_restarts: float
    planted: float
    shift: float = 0.0
    fault: str = ""
    """The alert of what is planted for a day, with the exporter's shards and jobs as they are in `programs`."""
    programs: Programs = ONE

    def later(self, seconds: float, **changes: Any) -> "Events":
        """The same in another cluster, so much later."""
        kept = ("days", "shift", "exporter_away", "prometheus_away", "fault", "programs")
        moved = {name: value + seconds for name, value in vars(self).items() if name not in kept}
        return replace(self, **moved, **changes, shift=seconds)


WHEN: Mapping[str, tuple[float, float]] = {
    "suspended": (2 * DAY, HOUR),
    "failed_once": (7 * DAY + 5 * HOUR, 5 * HOUR),
    "edited": (10 * DAY + 12 * HOUR, 8 * HOUR),
    "new_driver": (15 * DAY + 12 * HOUR, 12 * HOUR),
    "deleted": (12 * DAY + 2 * HOUR + 15 * MINUTE, 2 * HOUR + 15 * MINUTE),
    "exporter_restarts": (5 * DAY + 2 * HOUR + 15 * MINUTE, 2 * HOUR + 20 * MINUTE),
    "exporter_away": (9 * MINUTE, 4 * MINUTE),
    "prometheus_restarts": (20 * DAY, 14 * HOUR),
    "prometheus_away": (9 * MINUTE, 12 * MINUTE),  # promtool goes on evaluating; a Prometheus that is away does not
    "operator_restarts": (25 * DAY, 16 * HOUR),
    "planted": (22 * DAY + 12 * HOUR, 0),
}
"""In a month, and in a day."""
MONTH, DAY_OF_EVENTS = (Events(days, **{name: at[n] for name, at in WHEN.items()}) for n, days in enumerate((30, 1)))


def nodes(prefix: str, count: int) -> tuple[Node, ...]:
    return tuple(Node(f"{prefix}-{number}", rate=1 + number / 1000) for number in range(count))


def measured(
    profile: Profile, begin: float, number: int, every: float = EVERY_NODE, **changes: Any
) -> Iterator[tuple[float, Profile]]:
    """A profile while each of its nodes is measured, one after the other, each a little other than before."""
    last = len(profile.nodes) - 1
    for place, node in enumerate(profile.nodes):
        waits = {"phase": "Running", "running": 1, "queued": last - place, "reason": "MaxConcurrentReached"}
        yield begin + place * every, replace(profile, **waits)
        noise = 1 + ((place * 7 + number * 3) % 5 - 2) / 500
        at = begin + (place + 1) * every
        new = {"rate": (1 + place / 1000) * noise, "waits_for": "", "failed": "", "at": at} | changes
        profile = profile.changed(replace(node, **new))
    yield begin + len(profile.nodes) * every, profile


def outdated(profile: Profile, reason: str) -> Profile:
    """The profile when all its nodes are to be measured again."""
    return replace(profile, nodes=tuple(replace(node, waits_for=reason) for node in profile.nodes))


def nightly(events: Events) -> Iterator[tuple[float, Profile]]:
    """Every night all nodes are measured again, one after the other; after one of them all are slower.

    That night and the next all are measured at once: one that is measured before the others is slow beside them.
    """
    profile = Profile("nightly", nodes("night", 3), NIGHTLY)
    yield 0, profile
    slow = events.planted // DAY if events.fault == "PrecisionPoolDegraded" else -2
    for day in range(events.days):
        slower: dict[str, Any] = {"rate": 0.93} if day == slow else {}
        every = 20 if day in (slow, slow + 1) else EVERY_NODE
        begin = day * DAY + 2 * HOUR + events.shift
        campaign = list(measured(outdated(profile, "Scheduled"), begin, day, every, **slower))
        yield from campaign
        profile = campaign[-1][1]


def single(events: Events) -> Iterator[tuple[float, Profile]]:
    """One node, measured by age; once an attempt fails, and the next one is good."""
    profile = Profile("single", nodes("single", 1), {"schedule": {"maxAge": "1d"}})
    yield 0, profile
    for day in range(events.days):
        begin = day * DAY + 5 * HOUR + events.shift
        if begin == events.failed_once:
            failed = replace(profile.nodes[0], failed="AgentCrashed", waits_for="TooOld")
            yield begin + 10 * MINUTE, profile.changed(failed, phase="Running", queued=1, reason="Retrying")
            begin += 40 * MINUTE
        campaign = list(measured(outdated(profile, "TooOld"), begin, day))
        yield from campaign
        profile = campaign[-1][1]


def edited(events: Events) -> Iterator[tuple[float, Profile]]:
    """The spec is edited, so that all rates are a fifth lower; later the driver changes, and the rates do not; then one
    node is slow for a day.

    Five nodes: with fewer of them two drivers are not compared.
    """
    profile = Profile("edited", nodes("edit", 5))
    yield 0, profile
    changes: dict[str, Any] = {"workload_hash": "2ffd180c", "rate": 0.8}
    edit = list(measured(outdated(profile, "SpecChange"), events.edited, 0, **changes))
    yield from edit
    after = outdated(edit[-1][1], "DriverChange")
    renewed = list(measured(after, events.new_driver, 1, driver="590.10", rate=0.8))
    yield from renewed
    for at, rate in ((events.planted, 0.6), (events.planted + DAY, 0.8)) if events.fault == "PrecisionNodeSlow" else ():
        yield at, renewed[-1][1].changed(replace(renewed[-1][1].nodes[0], rate=rate, at=at))


def deleted(events: Events) -> Iterator[tuple[float, Profile | None]]:
    """A profile that is deleted while its nodes are measured again."""
    profile = Profile("deleted", nodes("gone", 1))
    yield 0, profile
    yield events.deleted - HOUR, replace(outdated(profile, "Rerun"), phase="Running", running=1)
    yield events.deleted, None


def once(events: Events) -> Iterator[tuple[float, Profile]]:
    """Measured once, and never again."""
    yield from measured(Profile("once", nodes("once", 1)), HOUR + events.shift, 0)


def suspended(events: Events) -> Iterator[tuple[float, Profile]]:
    """Suspended for good, with a node in its queue."""
    profile = Profile("paused", nodes("pause", 1), NIGHTLY)
    yield 0, profile
    spec = {**NIGHTLY, "suspend": True}
    yield events.suspended, replace(profile, spec=spec, phase="Suspended", queued=1, reason="Suspended")


STORIES = (nightly, single, edited, deleted, once, suspended)


def moments(events: Events) -> list[Moment]:
    """All of it in one cluster."""
    changes = [(at, number, profile) for number, story in enumerate(STORIES) for at, profile in story(events)]
    away = (
        (events.exporter_restarts, events.exporter_away, Programs(exporter=False)),
        (events.prometheus_restarts, events.prometheus_away, Programs(prometheus=False)),
        (events.operator_restarts, events.prometheus_away, Programs(operator=False)),
        (events.planted, DAY * (events.fault == "PrecisionExporterDown"), Programs(exporter=False)),
    )
    times = {at for at, _, _ in changes} | {at for begin, lasts, _ in away for at in (begin, begin + lasts)}
    held: dict[int, Profile | None] = {}
    moments_so_far, ahead = [], sorted(changes, key=lambda change: change[0])
    for at in sorted(times):
        while ahead and ahead[0][0] <= at:
            _, number, profile = ahead.pop(0)
            held[number] = profile
        programs = next((p for begin, lasts, p in away if begin <= at < begin + lasts), Programs())
        there = tuple(profile for _, profile in sorted(held.items()) if profile is not None)
        pod = "exporter-1" if at >= events.exporter_restarts else "exporter-0"
        of = events.programs
        moments_so_far.append(Moment(at, there, replace(programs, pod=pod, shards=of.shards, jobs=of.jobs)))
    return moments_so_far


LOOKED_AT = TABLES["looked_at"]
"""By part of the alerts: queries that show that the story was looked at, and their answers for one cluster.

Pools of at least three nodes; those with two drivers; all profiles but the one that was deleted.
"""


@cache
def shown(span: str) -> Sequence[dict[str, str]]:
    """promtool's input for all parts of the alerts."""
    clusters, step, _ = SPANS[span]
    return [row for name, of in clusters.items() for row in series(name, moments(of), of.days * DAY, step)]


def silence(span: str, part: str) -> dict[str, Any]:
    """promtool's test that of this part only what is planted fires, and that it was looked at.

    It fires from an hour after its begin at most to half an hour after its end at most.
    """
    clusters, step, _ = SPANS[span]
    (days,) = {events.days for events in clusters.values()}
    fired = f'count_over_time(ALERTS{{alertstate="firing"}}[{days}d])'
    least, most = ((DAY + more) // step for more in (-HOUR, HOUR / 2))
    read = read_by(alerting(part))
    mine = [alert.name for alert in ALERTS if PARTS[part](alert)]
    faults = [
        {"labels": label_text({"alertname": events.fault, "cluster": name}), "value": 1}
        for name, events in clusters.items()
        if events.fault in mine
    ]
    looks = {f"count by (alertname, cluster) ({fired}{only})": faults for only in ("", f" > {least} <= {most}")}
    looks |= {q.format(days=days): [{"labels": "{}", "value": n * len(clusters)}] for q, n in LOOKED_AT[part].items()}
    return {
        "interval": f"{step}s",
        "input_series": [row for row in shown(span) if row["series"].partition("{")[0] in read],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{days}d", "exp_samples": samples} for expr, samples in looks.items()
        ],
    }


THREE = {
    "a": replace(MONTH, fault="PrecisionNodeSlow"),
    "b": MONTH.later(90 * MINUTE, fault="PrecisionPoolDegraded", programs=Programs(jobs=("a", "b"))),
    "c": MONTH.later(180 * MINUTE, fault="PrecisionExporterDown", programs=Programs(shards=2)),
}
TWO = {"a": DAY_OF_EVENTS, "b": DAY_OF_EVENTS.later(HOUR)}
SPANS = {"a month": (THREE, 9 * MINUTE, "9m"), "a day": (TWO, MINUTE, "1m")}
"""Clusters of one ruler, seconds between two looks, and that in promtool's words."""

Checked = Callable[[str, str], tuple[int, str]]


@pytest.fixture(scope="module")
def checked(promtool_of_long_tests: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    """promtool's exit code and words by span and part of the alerts. A promtool uses one core: two run at a time."""
    with ThreadPoolExecutor(2) as pool:
        begun = {
            (span, part): pool.submit(
                check,
                promtool_of_long_tests,
                tmp_path_factory.mktemp("span"),
                [silence(span, part)],
                every,
                alerting(part),
            )
            for span, (_, _, every) in SPANS.items()
            for part in PARTS
        }
        yield lambda span, part: begun[span, part].result()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("span", SPANS)
def test_what_is_planted_fires_and_nothing_else(span: str, part: str, checked: Checked) -> None:
    code, said = checked(span, part)
    assert code == 0, said
