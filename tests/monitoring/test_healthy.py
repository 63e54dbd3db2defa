"""A healthy year in small: through schedules, reruns, edits, deletions and restarts, in two clusters, nothing fires.

The month is evaluated every five minutes; one day with all events close together every minute.
Each part of the alerts has a promtool of its own, which sees the whole span in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from precision_operator.monitoring.alerts import ALERTS
from tests.monitoring.replay import PARTS, alerting, check
from tests.monitoring.story import DAY, HOUR, MINUTE, Moment, Node, Profile, Programs, series

pytestmark = pytest.mark.cluster

NIGHTLY = {"schedule": {"cron": "0 2 * * *"}}
EVERY_NODE = 10 * MINUTE
"""What the measurement of a node takes."""


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
    shift: float = 0.0

    def later(self, seconds: float) -> Events:
        """The same in another cluster, so much later."""
        moved = {name: value + seconds for name, value in vars(self).items() if name not in ("days", "shift")}
        kept = {name: vars(self)[name] for name in ("exporter_away", "prometheus_away")}
        return replace(self, **(moved | kept), shift=seconds)


MONTH = Events(
    days=35,
    suspended=2 * DAY,
    failed_once=7 * DAY + 5 * HOUR,
    edited=10 * DAY + 12 * HOUR,
    new_driver=15 * DAY + 12 * HOUR,
    deleted=12 * DAY + 2 * HOUR + 15 * MINUTE,
    exporter_restarts=5 * DAY + 2 * HOUR + 15 * MINUTE,
    exporter_away=5 * MINUTE,
    prometheus_restarts=20 * DAY,
    prometheus_away=10 * MINUTE,  # promtool goes on evaluating; a Prometheus that is away does not
    operator_restarts=25 * DAY,
)
DAY_OF_EVENTS = Events(
    days=1,
    suspended=HOUR,
    failed_once=5 * HOUR,
    edited=8 * HOUR,
    new_driver=12 * HOUR,
    deleted=2 * HOUR + 15 * MINUTE,
    exporter_restarts=2 * HOUR + 20 * MINUTE,
    exporter_away=4 * MINUTE,
    prometheus_restarts=14 * HOUR,
    prometheus_away=12 * MINUTE,
    operator_restarts=16 * HOUR,
)


def nodes(prefix: str, count: int) -> tuple[Node, ...]:
    return tuple(Node(f"{prefix}-{number}", rate=1 + number / 1000) for number in range(count))


def measured(profile: Profile, begin: float, number: int, **changes: Any) -> Iterator[tuple[float, Profile]]:
    """A profile while each of its nodes is measured, one after the other, each a little other than before."""
    last = len(profile.nodes) - 1
    for place, node in enumerate(profile.nodes):
        waits = {"phase": "Running", "running": 1, "queued": last - place, "reason": "MaxConcurrentReached"}
        yield begin + place * EVERY_NODE, replace(profile, **waits)
        noise = 1 + ((place * 7 + number * 3) % 5 - 2) / 500
        at = begin + (place + 1) * EVERY_NODE
        new = {"rate": (1 + place / 1000) * noise, "waits_for": "", "failed": "", "at": at} | changes
        profile = profile.changed(replace(node, **new))
    yield begin + len(profile.nodes) * EVERY_NODE, profile


def outdated(profile: Profile, reason: str) -> Profile:
    """The profile when all its nodes are to be measured again."""
    return replace(profile, nodes=tuple(replace(node, waits_for=reason) for node in profile.nodes))


def nightly(events: Events) -> Iterator[tuple[float, Profile]]:
    """Every night all nodes are measured again, one after the other."""
    profile = Profile("nightly", nodes("night", 3), NIGHTLY)
    yield 0, profile
    for day in range(events.days):
        campaign = list(measured(outdated(profile, "Scheduled"), day * DAY + 2 * HOUR + events.shift, day))
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
    """The spec is edited, so that all rates are a fifth lower; later the driver changes, and the rates do not.

    Five nodes: with fewer of them two drivers are not compared.
    """
    profile = Profile("edited", nodes("edit", 5))
    yield 0, profile
    changes: dict[str, Any] = {"workload_hash": "2ffd180c", "rate": 0.8}
    edit = list(measured(outdated(profile, "SpecChange"), events.edited, 0, **changes))
    yield from edit
    after = outdated(edit[-1][1], "DriverChange")
    yield from measured(after, events.new_driver, 1, driver="590.10", rate=0.8)


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
        (events.operator_restarts, 2 * MINUTE, Programs(operator=False)),
    )
    times = {at for at, _, _ in changes} | {at for begin, lasts, _ in away for at in (begin, begin + lasts)}
    held: dict[int, Profile | None] = {}
    found, ahead = [], sorted(changes, key=lambda change: change[0])
    for at in sorted(times):
        while ahead and ahead[0][0] <= at:
            _, number, profile = ahead.pop(0)
            held[number] = profile
        programs = next((p for begin, lasts, p in away if begin <= at < begin + lasts), Programs())
        there = tuple(profile for _, profile in sorted(held.items()) if profile is not None)
        pod = "exporter-1" if at >= events.exporter_restarts else "exporter-0"
        found.append(Moment(at, there, replace(programs, pod=pod)))
    return found


LOOKED_AT = {
    "nodes": ("count(count by (cluster, profile, pool) (precision:pool_degradation_ratio))", 2),
    "pools": ("count(count_over_time(precision:pool_driver_energy_ratio[{days}d]))", 1),
    "profiles and programs": (
        "count(group by (cluster, profile) (precision:profile_last_result_timestamp_seconds))",
        5,
    ),
}
"""By part of the alerts: a query that shows that the story was looked at, and its answer for one cluster.

Pools of at least three nodes; those with two drivers; all profiles but the one that was deleted.
"""


def silence(clusters: Mapping[str, Events], step: int, part: str) -> dict[str, Any]:
    """promtool's test that of this part nothing fires in these clusters of one ruler, and that it was looked at."""
    (days,) = {events.days for events in clusters.values()}
    nothing = f'count_over_time(ALERTS{{alertstate="firing"}}[{days}d])'
    query, answer = LOOKED_AT[part]
    rules = alerting(part)
    told = [one for name, of in clusters.items() for one in series(name, moments(of), days * DAY, step, rules)]
    return {
        "interval": f"{step}s",
        "input_series": told,
        "promql_expr_test": [
            {"expr": nothing, "eval_time": f"{days}d", "exp_samples": []},
            {
                "expr": query.format(days=days),
                "eval_time": f"{days}d",
                "exp_samples": [{"labels": "{}", "value": answer * len(clusters)}],
            },
        ],
    }


def between(events: Events) -> tuple[dict[str, Events], int, str]:
    """Two clusters an hour apart in one ruler, every minute."""
    return {"a": events, "b": events.later(HOUR)}, MINUTE, "1m"


LONG = {"a day": between(DAY_OF_EVENTS)}
MONTHS = {"a month": ({"": MONTH}, 5 * MINUTE, "5m")}


Checked = Callable[[str, str], tuple[int, str]]
of_each_part = pytest.mark.parametrize("part", PARTS)


@pytest.fixture(scope="module")
def checked(promtool_of_long_tests: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    """promtool's exit code and words by span and part of the alerts. A promtool uses one core: two run at a time."""
    with ThreadPoolExecutor(2) as pool:
        begun = {
            (span, part): pool.submit(
                check,
                promtool_of_long_tests,
                tmp_path_factory.mktemp("span"),
                [silence(clusters, step, part)],
                every,
                alerting(part),
            )
            for span, (clusters, step, every) in (MONTHS | LONG).items()
            for part in PARTS
        }
        yield lambda span, part: begun[span, part].result()


def test_every_alert_is_in_one_part() -> None:
    for alert in ALERTS:
        assert sum(belongs(alert) for belongs in PARTS.values()) == 1, alert.name


@of_each_part
@pytest.mark.parametrize("span", LONG)
def test_while_much_happens_nothing_fires_in_either_cluster(span: str, part: str, checked: Checked) -> None:
    code, said = checked(span, part)
    assert code == 0, said


@of_each_part
def test_in_a_month_nothing_fires(part: str, checked: Checked) -> None:
    code, said = checked("a month", part)
    assert code == 0, said
