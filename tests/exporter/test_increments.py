"""A body that takes over what still holds of the one before is the same, byte for byte, as one that is made anew."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from precision_api.facts.names import PROFILE_PLURAL, REPORT_PLURAL
from precision_operator.core.results.reading import Reading
from precision_operator.exporter.body import Body, build
from precision_operator.exporter.chunks import gzipped
from precision_operator.exporter.families.measures import MEASURES, NONE, updated
from precision_operator.exporter.reading import GemmTime, read_report
from precision_operator.exporter.shards import place
from precision_operator.exporter.store import Store
from tests.support import report_objects
from tests.support.examples import examples
from tests.support.golden import beside

TABLES = beside(__file__)

Raw = dict[str, Any]
SHARDS = 2
NODES = [name for number in range(300) if place(name := f"n{number}", SHARDS)[1] == 0][:6]
"""Of few groups, so that a group has nodes that change and nodes that stay."""

CHANGES = TABLES["changes"]


@dataclass(frozen=True)
class Change:
    """One event: a report or profile that came, changed or went."""

    node: str
    profile: str = "nightly"
    status: Mapping[str, Any] | None = None
    """None: it is deleted."""
    second: bool = False
    """Whether it is of a node that came back under its name."""


@dataclass(frozen=True)
class Threshold:
    """A profile whose threshold for slow nodes changes."""

    profile: str
    percent: int


@dataclass(frozen=True)
class Gemms:
    """The GEMM times of a node are read."""

    node: str
    seconds: float


Event = Change | Threshold | Gemms


def a_status(
    rates: Sequence[float], pool: str, driver: str, change: str, blind: bool, fresh: bool, domain: str
) -> Mapping[str, Any]:
    rows = [report_objects.recipe_row("bf16", rates[0], **CHANGES[change])]
    rows += [
        report_objects.without_energy("mxfp8", rates[1]) if blind else report_objects.recipe_row("mxfp8", rates[1])
    ]
    status = report_objects.report_status(rows, workload="w")
    status["hardware"] |= {"pool": pool, **({"nvlinkDomain": domain} if domain else {})}
    status["software"]["driver"] = driver
    if not fresh:
        status["conditions"] = [report_objects.fresh_no_more("DriverChange")]
    return status


RATES = st.lists(st.sampled_from([0.7, 0.97, 0.99, 1.0, 1.001, 1.3]), min_size=2, max_size=2)
STATUSES = st.one_of(
    st.builds(
        a_status,
        RATES,
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from(["580", "580", "590"]),
        st.sampled_from([*CHANGES]),
        st.booleans(),
        st.sampled_from([True, True, False]),
        st.sampled_from(["", "d.1"]),
    ),
    st.sampled_from([{}, {"results": "all"}]),
)
PROFILES = st.sampled_from(["nightly", "nightly", "nightly", "weekly"])
COMINGS = st.builds(Change, st.sampled_from(NODES), PROFILES, STATUSES, st.sampled_from([False, False, False, True]))
EVENTS = st.one_of(
    COMINGS,
    COMINGS,
    COMINGS,
    st.builds(Change, st.sampled_from(NODES), PROFILES, st.none()),
    st.builds(Threshold, PROFILES, st.sampled_from([1, 5, 40])),
    st.builds(Gemms, st.sampled_from(NODES), st.sampled_from([0.001, 0.002])),
)
ALIKE = st.builds(
    a_status, RATES, *map(st.just, ("a", "580", "plain")), st.just(value=False), st.just(value=True), st.just("d.1")
)
FLEETS = st.tuples(*(st.builds(Change, st.just(node), st.just("nightly"), ALIKE) for node in NODES))
"""Nodes that are held against each other at first."""
ROUNDS = st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=5)
"""What happens between one scrape and the next."""


class World:
    """A store that sees events, and what a store that sees only what is left of them would hold."""

    def __init__(self) -> None:
        self.store = Store("detail")
        self.version = 100
        self.left: dict[str, Raw] = {}
        self.profiles: dict[str, Raw] = {}
        self.gemms: dict[tuple[str, ...], tuple[GemmTime, ...]] = {}

    def see(self, event: Event) -> None:
        self.version += 1
        match event:
            case Change():
                self._report(event)
            case Threshold():
                raw = report_objects.profile_object(event.profile, resourceVersion=str(self.version))
                raw["spec"]["thresholds"] = {"slowNodePercent": event.percent}
                self.profiles[event.profile] = raw
                self.store.see(PROFILE_PLURAL, raw)
            case Gemms():
                key = ("ml", "nightly", event.node)
                times = (GemmTime("bf16", "qkv", "fprop", "autocast", event.seconds),)
                self.gemms = self.gemms | {key: times}
                self.store.put_gemms(self.gemms)

    def _report(self, change: Change) -> None:
        uid = f"second-{change.node}" if change.second else ""
        created = {"creationTimestamp": "2026-11-21T00:00:00Z"} if change.second else {}
        report = report_objects.report_object(
            change.node, change.profile, "ml", None, uid, resourceVersion=str(self.version), **created
        )
        # An object that was deleted comes back under another UID.
        report["metadata"]["uid"] += f"-{self.version}" if report["metadata"]["name"] not in self.left else ""
        before = self.left.pop(report["metadata"]["name"], None)
        if change.status is None:
            if before is not None:
                self.store.forget(before)
            return
        report["metadata"]["uid"] = (before or report)["metadata"]["uid"]
        report["status"] = change.status
        self.left[report["metadata"]["name"]] = report
        self.store.see(REPORT_PLURAL, report)

    def anew(self) -> Body:
        """What an exporter shows that starts now, and gets the reports in another order."""
        store = Store("detail")
        for raw in self.profiles.values():
            store.see(PROFILE_PLURAL, raw)
        for _, raw in sorted(self.left.items(), reverse=True):
            store.see(REPORT_PLURAL, raw)
        store.put_gemms(self.gemms)
        return build(store.view(), SHARDS)


def told(body: Body) -> tuple[Any, ...]:
    texts = [
        gzip.decompress(b"".join(gzipped(packed))) for packed in (body.fleet_packed, *(s.packed for s in body.shards))
    ]
    figures = replace(body, generation=0, fleet=b"", shards=(), groups={}, pools={}, fleet_packed=body.fleet_packed)
    return *texts, body.text, *(shard.series for shard in body.shards), figures


@examples(15)
@given(FLEETS, ROUNDS)
def test_after_any_events_the_body_is_as_if_it_were_made_anew(fleet: Sequence[Event], steps: list[list[Event]]) -> None:
    world, body = World(), None
    for events in (fleet, *steps):
        for event in events:
            world.see(event)
        body = build(world.store.view(), SHARDS, body)
        assert told(body) == told(world.anew())


def result_of(status: Mapping[str, Any], node: str) -> Reading | None:
    return (
        read_report(report_objects.report_object(node, status=status), "w") if status.get("results") != "all" else None
    )


@given(st.lists(STATUSES, max_size=8), st.data())
def test_the_figures_of_a_pool_are_those_of_its_reports_however_they_came_and_went(
    statuses: list[Mapping[str, Any]], data: st.DataObject
) -> None:
    results = [found for at, status in enumerate(statuses) if (found := result_of(status, f"n{at}"))]
    gone = data.draw(st.lists(st.sampled_from(results), unique_by=id)) if results else []
    left = [result for result in results if not any(result is other for other in gone)]
    figures = updated(updated(NONE, [], results), gone, [])
    assert figures == updated(NONE, [], reversed(left))
    assert all([*values] == sorted(values) for measure in MEASURES for values in figures[measure].values())
