"""Planted faults, each in a cluster of its own of one ruler: each has exactly its alert, with its figure and its words.

All clusters have the same names of profiles, pools and nodes, so that one that silenced another's would be seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from precision_operator.monitoring.alerts import ALERTS
from tests.monitoring.replay import alerting, check
from tests.monitoring.story import DAY, HOUR, MINUTE, POOL, Moment, Node, Profile, Programs, series

pytestmark = pytest.mark.cluster

BEGIN, LOOK, UNTIL = 2 * HOUR, 9 * HOUR, 10 * HOUR
STEP = 2 * MINUTE
"""Of samples and evaluations: seven hours of a fault need no more."""
RECIPES = ("bf16", "mxfp8")
FLEET = Profile("nightly", tuple(Node(f"n{number}", rate=1 + number / 1000, recipes=RECIPES) for number in range(6)))
FIRST, SECOND = FLEET.nodes[0], FLEET.nodes[1]
SIMULATED = replace(FLEET, nodes=tuple(replace(node, data="simulated") for node in FLEET.nodes))
EDITED = "slow-and-edited"
"""A node that is slow from the beginning, and whose spec is edited at BEGIN."""
OF_PROFILE = {"profile_namespace": "ml", "profile": "nightly"}
OF_POOL = {**OF_PROFILE, "pool": POOL, "data": "measured"}
OF_NODE = {**OF_POOL, "node": "n0", "nvlink_domain": "rack-1"}
OF_FAILED = {**OF_PROFILE, "pool": POOL, "node": "n0", "reason": "AgentCrashed"}


@dataclass(frozen=True)
class Fault:
    """What is in a cluster from BEGIN on, and the alert that fires at LOOK: its labels, and its summary."""

    cluster: str
    alert: str
    summary: str
    labels: Mapping[str, str]
    after: Profile = FLEET
    before: Profile = FLEET
    programs: tuple[tuple[float, Programs], ...] = ()
    broken: int = 0
    more: tuple[Mapping[str, str], ...] = field(default=())
    """Labels of further alerts of the same name."""

    def moments(self) -> Iterator[Moment]:
        """The cluster's story."""
        changes = dict(self.programs)
        for at in sorted({0, BEGIN, *changes}):
            programs = next((changes[begin] for begin in sorted(changes, reverse=True) if begin <= at), Programs())
            fault = at >= BEGIN
            yield Moment(at, (self.after if fault else self.before,), programs, self.broken if fault else 0)


def with_first(**changes: Any) -> Profile:
    return FLEET.changed(replace(FIRST, **changes))


def all_at(fleet: Profile, **changes: Any) -> Profile:
    return replace(fleet, nodes=tuple(replace(node, **changes) for node in fleet.nodes))


def slower(fleet: Profile, share: float) -> Profile:
    return replace(fleet, nodes=tuple(replace(node, rate=node.rate * share) for node in fleet.nodes))


RACK = FLEET.changed(replace(FIRST, throttled=True), replace(SECOND, throttled=True))
SIMULATED_SLOW = SIMULATED.changed(replace(SIMULATED.nodes[0], rate=0.8))
SLOW = with_first(rate=0.8)
ERRORS = tuple((LOOK - HOUR + number * STEP, Programs(errors=2 * number)) for number in range(45))
SILENT = tuple((BEGIN + number * 10 * MINUTE, Programs(heard_seconds=number * 600.0)) for number in range(48))
INSTALLED = {"namespace": "precision-system"}

FAULTS = (
    Fault("slow", "PrecisionNodeSlow", "n0 trains at 79.8% of its peers", OF_NODE | {"fault": "slow"}, SLOW),
    Fault(
        "slow-simulated",
        "PrecisionNodeSlow",
        "n0 trains at 79.8% of its peers (simulated)",
        OF_NODE | {"fault": "slow", "data": "simulated"},
        SIMULATED_SLOW,
        SIMULATED,
    ),
    Fault(
        "slow-trial",
        "PrecisionNodeSlow",
        "n0 trains at 79.8% of its peers (trial)",
        OF_NODE | {"fault": "slow", "data": "trial"},
        all_at(SLOW, data="trial"),
        all_at(FLEET, data="trial"),
    ),
    Fault(
        EDITED,
        "PrecisionNodeSlow",
        "n0 trains at 79.8% of its peers",
        OF_NODE | {"fault": "slow"},
        all_at(SLOW, waits_for="SpecChange"),
        SLOW,
    ),
    Fault(
        "degraded",
        "PrecisionPoolDegraded",
        f"Pool {POOL} trains at 95% of its best of 7 days",
        OF_POOL,
        slower(FLEET, 0.95),
    ),
    Fault(
        "degraded-simulated",
        "PrecisionPoolDegraded",
        f"Pool {POOL} trains at 95% of its best of 7 days (simulated)",
        OF_POOL | {"data": "simulated"},
        slower(SIMULATED_SLOW, 0.95),
        SIMULATED,
    ),
    Fault(
        "far",
        "PrecisionPoolFarBelowBest",
        f"Pool {POOL} trains at 85% of its best of 7 days",
        OF_POOL,
        slower(FLEET, 0.85),
    ),
    Fault(
        "fallback",
        "PrecisionSilentFallback",
        "n0 silently runs 1 of its recipes in another precision",
        OF_NODE | {"fault": "fallback"},
        with_first(fallback=True),
    ),
    Fault(
        "rack",
        "PrecisionThrottledInProfile",
        "n0 was throttled for 25% of the time that it was measured",
        OF_NODE | {"fault": "throttled"},
        RACK,
        more=(OF_NODE | {"fault": "throttled", "node": "n1"},),
    ),
    Fault(
        "power",
        "PrecisionPowerTelemetryBad",
        "The power reading of n0 is not valid for 2 of its recipes",
        OF_NODE | {"fault": "power_invalid"},
        with_first(power_valid=False),
    ),
    Fault(
        "failed",
        "PrecisionNodeFailed",
        "The measurement of n0 failed: AgentCrashed",
        OF_FAILED,
        with_first(failed="AgentCrashed"),
    ),
    Fault(
        "quarantined",
        "PrecisionNodeQuarantined",
        "n0 failed run after run (AgentCrashed) and is no longer measured",
        OF_FAILED,
        with_first(failed="AgentCrashed", quarantined=True),
    ),
    Fault(
        "failing",
        "PrecisionProfileFailing",
        "Measurements fail on 100% of the nodes of profile nightly",
        OF_PROFILE,
        all_at(FLEET, failed="ImagePullFailed"),
    ),
    Fault(
        "overdue",
        "PrecisionProfileStale",
        "Profile nightly is overdue: its newest result is 2d 9h 0m 0s old",
        OF_PROFILE,
        all_at(replace(FLEET, spec={"schedule": {"cron": "0 2 * * *"}}), at=-2 * DAY),
        replace(FLEET, spec={"schedule": {"cron": "0 2 * * *"}}),
    ),
    Fault(
        "stuck",
        "PrecisionCampaignStuck",
        "Profile nightly makes no progress: 6 nodes are queued or running",
        OF_PROFILE,
        replace(FLEET, phase="Running", running=2, queued=4, reason="MaxConcurrentReached"),
    ),
    Fault(
        "energy",
        "PrecisionEnergyRegression",
        f"Driver 590.10 gives 90% of the tokens per joule in {POOL}",
        OF_POOL | {"driver": "590.10"},
        all_at(FLEET, driver="590.10", tokens_per_joule=0.9),
    ),
    Fault(
        "operator",
        "PrecisionOperatorDown",
        "The operator of Precision Profiler is down in cluster operator",
        INSTALLED,
        programs=((BEGIN, Programs(operator=False)),),
    ),
    Fault(
        "leader",
        "PrecisionNoLeader",
        "No replica of the operator leads in cluster leader",
        INSTALLED,
        programs=((BEGIN, Programs(leads=False)),),
    ),
    Fault(
        "errors",
        "PrecisionReconcileErrors",
        "The operator's passes fail: 10 in ten minutes in cluster errors",
        INSTALLED,
        programs=ERRORS,
    ),
    Fault(
        "unreadable",
        "PrecisionUnreadable",
        "2 reports can't be read, and are not shown in cluster unreadable",
        {**INSTALLED, "kind": "reports"},
        broken=2,
    ),
    Fault(
        "forbidden",
        "PrecisionNamespaceForbidden",
        "Precision Profiler may not read 5 kinds in namespace ml",
        {"namespace": "ml"},
        programs=((BEGIN, Programs(forbidden=True)),),
    ),
    Fault(
        "exporter",
        "PrecisionExporterDown",
        "The metrics of Precision Profiler do not arrive in cluster exporter",
        INSTALLED,
        programs=((BEGIN, Programs(exporter=False)),),
    ),
    Fault(
        "all",
        "PrecisionExporterDown",
        "The metrics of Precision Profiler do not arrive in cluster all",
        INSTALLED,
        programs=((BEGIN, Programs(exporter=False, operator=False)),),
    ),
)
WATCH = Fault(
    "watch",
    "PrecisionWatchStuck",
    "The operator has heard nothing of jobs for 7h 0m 0s",
    {"namespace": "ml", "program": "operator", "kind": "jobs"},
    programs=SILENT,
)
WORLD = (*FAULTS, WATCH)
NO_KINDS = 'group by (alertname, cluster) (ALERTS{alertstate="firing"})'


def world() -> dict[str, Any]:
    """All clusters in one ruler."""
    return {
        "interval": f"{STEP}s",
        "input_series": [one for fault in WORLD for one in series(fault.cluster, tuple(fault.moments()), UNTIL, STEP)],
        "promql_expr_test": [
            {"expr": f'ALERTS{{alertstate="firing", cluster!="{EDITED}"}}', "eval_time": "110m", "exp_samples": []},
            {"expr": NO_KINDS, "eval_time": f"{LOOK // HOUR}h", "exp_samples": [expected(fault) for fault in WORLD]},
        ],
        "alert_rule_test": [words(name) for name in sorted({fault.alert for fault in FAULTS})],
    }


def expected(fault: Fault) -> dict[str, Any]:
    return {"labels": f'{{alertname="{fault.alert}", cluster="{fault.cluster}"}}', "value": 1}


def words(name: str) -> dict[str, Any]:
    """promtool's test of all alerts of a name, with all that they say; descriptions are the table's."""
    found = [(fault, labels) for fault in FAULTS if fault.alert == name for labels in (fault.labels, *fault.more)]
    return {"eval_time": f"{LOOK // HOUR}h", "alertname": name, "exp_alerts": [alert(*each) for each in found]}


def alert(fault: Fault, labels: Mapping[str, str]) -> dict[str, Any]:
    (row,) = (row for row in ALERTS if row.name == fault.alert)
    return {
        "exp_labels": {"severity": row.severity, "cluster": fault.cluster, **labels},
        "exp_annotations": {"summary": fault.summary.replace("n0", labels.get("node", "n0"))},
    }


def summaries_alone(rules: str) -> str:
    """The rule file without descriptions, which promtool would want word by word."""
    made = json.loads(rules)
    for group in made["groups"]:
        for rule in group["rules"]:
            rule.get("annotations", {}).pop("description", None)
    return json.dumps(made)


def test_each_fault_has_exactly_its_alert_and_no_cluster_disturbs_another(
    tmp_path: Path, promtool_of_long_tests: Path
) -> None:
    code, said = check(promtool_of_long_tests, tmp_path, [world()], f"{STEP}s", summaries_alone(alerting()))
    assert code == 0, said


def test_the_description_names_node_cluster_figure_and_provenance(tmp_path: Path, promtool: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.cluster == "slow-simulated")
    said_of_it = alert(fault, fault.labels)
    said_of_it["exp_annotations"]["description"] = (
        f"Node n0 of pool {POOL} (profile ml/nightly) in cluster slow-simulated gives 79.8% of the median of its peers "
        "(same pool, GPUs, power limit, driver, software and workload), and neither throttling nor a fallback explains "
        "it. A synchronous job that gets this node runs at its speed. These figures are simulated: they were not "
        "measured on this hardware."
    )
    test = {
        "interval": f"{STEP}s",
        "input_series": series(fault.cluster, tuple(fault.moments()), 4 * HOUR, STEP),
        "alert_rule_test": [{"eval_time": "3h", "alertname": fault.alert, "exp_alerts": [said_of_it]}],
    }
    code, said = check(promtool, tmp_path, [test], f"{STEP}s", alerting())
    assert code == 0, said


def test_an_external_label_names_the_cluster_where_the_series_do_not(tmp_path: Path, promtool: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.cluster == "leader")
    said_of_it = alert(fault, fault.labels)
    del said_of_it["exp_labels"]["cluster"]
    test = {
        "interval": f"{STEP}s",
        "external_labels": {"cluster": fault.cluster},
        "input_series": series("", tuple(fault.moments()), 4 * HOUR, STEP),
        "alert_rule_test": [{"eval_time": "3h", "alertname": fault.alert, "exp_alerts": [said_of_it]}],
    }
    code, said = check(promtool, tmp_path, [test], f"{STEP}s", summaries_alone(alerting()))
    assert code == 0, said
