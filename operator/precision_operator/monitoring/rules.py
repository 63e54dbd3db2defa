"""The recording rules as rows.

Only functions that Prometheus 2.42 knows, and no look-back beyond 14 days: Prometheus keeps 15 by default. Two
exporters may be scraped at once (a rolling update, two replicas), and one twice, so every raw family is read through
`once`, by its own labels: the same figure counts once. A failed scrape ends all series of its target at once, so `once`
also bridges GAP. Many clusters may be evaluated together, so every aggregation and every match keeps
the label that names the cluster; where the series lack it, it is empty and changes nothing. What time-series panels and
alerts read is recorded; raw node series are read here once a minute and nowhere else over time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from precision_operator.exporter.families.table import FAMILIES

CLUSTER = "cluster"
"""The label that names a cluster; a value of the chart puts another one in its place."""
NAMESPACE = "profile_namespace"
PROFILE = f"{CLUSTER}, {NAMESPACE}, profile"
POOL = f"{PROFILE}, pool"
HARDWARE = f"{CLUSTER}, pool"  # a pool, whatever profile measures it
NODE = f"{POOL}, node"
IN_NAMESPACE = f"{CLUSTER}, {NAMESPACE}, node"
"""A node as one namespace measures it, in whatever pool."""
RECIPE = f"{POOL}, workload, recipe"
MEASURED_ALIKE = f"{POOL}, workload, workload_hash, scope, recipe, power_scope, data"
"""What two drivers are compared within."""
INSTALLATION = f"{CLUSTER}, namespace"
"""One installed chart: the namespace is the target's."""

DEGRADED_BELOW = "0.97"
"""Of its best of the last 7 days: three times what a healthy pool's median moves between two sweeps."""
FAR_BELOW = "0.9"
ENERGY_BELOW = "0.97"
FAILING_ABOVE = "0.1"
GAP = "12m"
"""How long a figure may be missing (an exporter that restarts, a scrape that fails) without being given up."""
MOSTLY = "39m"
"""A pool's alert asks for 30 of these minutes, and has no `for`. Odd: figures come every two, none is at the edge."""
REMEMBERED = "14d"
"""How long an installation that has vanished whole is missed: then it counts as taken away."""

_UNITS = {
    "tokens_per_second": "tokens/s",
    "tokens_per_joule": "tokens/J",
    "watts": "W",
    "seconds": "seconds",
    "ratio": "ratio",
    "nodes": "nodes",
    "bucket": "nodes",
}
Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class Recording:
    """One recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """By its name, for dashboards and docs; empty where it has none."""
        named = re.search("|".join(_UNITS), self.record)
        return _UNITS[named[0]] if named else ""


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated one after the other; `interval` is at most 2m (the look-back is 5m)."""

    name: str
    interval: str
    rules: Sequence[Recording]


_LABELS = {family.name: ", ".join((CLUSTER, *family.labels)) for family in FAMILIES} | {
    "precision_exporter_forbidden": f"{INSTALLATION}, kind",
    "precision_exporter_body_bytes": f"{INSTALLATION}, path",
    "precision_exporter_shard_series": f"{INSTALLATION}, index",
    "precision_fleet_nodes": f"{INSTALLATION}, state",
}
"""Own labels by family; all others of the programs have none beside their installation's."""


def once(selector: str, over: str = GAP) -> str:
    """The newest series of a raw family `over` that time (empty: now), each once, whatever labels its targets add."""
    (family,) = re.findall(r"^\w+", selector)
    return f"max by ({_LABELS.get(family, INSTALLATION)}) ({newest(selector, over)})"


def newest(selector: str, over: str = GAP) -> str:
    """The series with what they were `over` that time: a gap takes nothing away."""
    return f"last_over_time({selector}[{over}])" if over else selector


def matched(family: str, operator: str = "=", **labels: str) -> str:
    """A selector: the family, with a matcher for each label."""
    matchers = ", ".join(f'{label}{operator}"{value}"' for label, value in labels.items())
    return f"{family}{{{matchers}}}"


def _mirror(name: str, over: str = GAP) -> Recording:
    """The family of that name as it is."""
    return Recording(f"precision:{name}", once(f"precision_{name}", over))


def _stat(record: str, family: str, stat: str) -> Recording:
    """One statistic over nodes that only panels read."""
    return Recording(record, f"max without(stat) ({once(matched(family, stat=stat), over='')})")


def _seen(family: str) -> str:
    """A pool's figure that only panels read, which bridge no gap."""
    return once(f"precision_pool_training_{family}", over="")


def _of_kind(selector: str) -> str:
    """The series by what their figures are: a label, where that is not measured on this hardware."""
    return f'label_replace({once(selector)}, "data", "", "data", "measured")'


POOLS: tuple[Recording, ...] = (
    _mirror("pool_nodes"),
    _mirror("pool_marked_nodes", over=""),
    _mirror("pool_data_nodes"),
    Recording(
        # One for each pool of a profile, also while it changes.
        "precision:pool_info",
        f"topk by ({POOL}) (1, {once('precision_pool_info', over='')} or on({POOL}) {newest('precision:pool_info')})",
    ),
    Recording("precision:pool_tokens_per_second:median", once("precision_pool_training_reference_tokens_per_second")),
    Recording("precision:pool_tokens_per_second_per_gpu", f"{_seen('total_tokens_per_second')} / {_seen('gpus')}"),
    Recording("precision:pool_tokens_per_joule", f"{_seen('powered_tokens_per_second')} / {_seen('power_watts')}"),
    _stat("precision:pool_speedup_ratio:median", "precision_pool_training_speedup_ratio", "p50"),
    _stat("precision:pool_speedup_ratio:p10", "precision_pool_training_speedup_ratio", "p10"),
    _stat("precision:pool_gemm_speedup_ratio:median", "precision_pool_gemm_speedup_ratio", "p50"),
    _stat("precision:pool_quantization_tax_ratio:median", "precision_pool_quantization_tax_ratio", "p50"),
    Recording(
        # The cumulative counts under the label that heatmaps read.
        "precision:pool_relative_performance:bucket",
        f"sum without(at_most) (label_replace({once('precision_pool_relative_performance_nodes', over='')}, "
        '"le", "$1", "at_most", "(.*)"))',
    ),
    _mirror("pool_slowest_ratio", over=""),
    _mirror("pool_driver_nodes"),
)

DECIDED = "NotDueYet|StoppedByAdmin|Suspended"
"""Reasons for which a profile may wait for ever."""
BUSY = "Busy|KeptForPod|Insufficient.+"
"""Reasons that jobs end by themselves: with the queue, no trouble while nodes are measured."""
HELD = f"FleetLimitReached|FleetPowerReached|LimitOfAnotherProfile|MeasuredByAnotherProfile|WaitsInQueue|{DECIDED}"
"""Reasons for which a whole profile may wait for hours: a decision, or for a day, another's turn."""


def _counted(phases: str, operator: str = "=~") -> str:
    return f'sum without(phase) (precision:profile_nodes{{phase{operator}"{phases}"}})'


def _for(reasons: str) -> str:
    """How many nodes wait for these reasons."""
    return f'(sum by ({PROFILE}) (precision:profile_waiting_nodes{{reason=~"{reasons}"}}) or 0 * {_ELIGIBLE})'


def _lasting(record: str, since: str) -> Recording:
    """What holds, and held so long ago or up to an hour earlier: only then it turns other alerts off."""
    return Recording(f"{record}:lasting", f"{newest(record, '12m')} and last_over_time({record}[1h] offset {since})")


_STATE, _MOST = "precision:profile_blocked", "precision:profile_reason:most"
_ELIGIBLE, _FAILED = "precision:profile_eligible_nodes", "precision:profile_failed_nodes"
LAST_RESULT = "precision:profile_last_result_timestamp_seconds"
_MEASURED = f"({LAST_RESULT} ^ 0 or 0 * {_ELIGIBLE})"
"""1 for a profile that has had a result, else 0: what is no reason to worry in the one, is one in the other."""

PROFILES: tuple[Recording, ...] = (
    _mirror("profile_nodes"),
    Recording(_ELIGIBLE, _counted("skipped", "!=")),
    _mirror("profile_waiting_nodes"),
    _mirror("profile_last_result_timestamp_seconds"),
    Recording(
        _MOST,
        f"topk by ({PROFILE}) "
        f'(1, max by ({PROFILE}, reason) (precision:profile_waiting_nodes{{reason!~"{HELD}"}} or on({PROFILE}) '
        f'precision:profile_waiting_nodes{{reason!="NotDueYet"}} or on({PROFILE}) '
        f"{newest('precision_profile_skipped_nodes')}))",
    ),
    Recording(
        # For as long as more than half as many have it or had it in three hours: the alert of a profile whose reasons
        # alternate goes on, and one straggler names none.
        "precision:profile_reason",
        f"{newest('precision:profile_reason')} and on({PROFILE}, reason) (2 * max by ({PROFILE}, reason) "
        f"(max_over_time(precision:profile_waiting_nodes[3h])) > on({PROFILE}) group_left() "
        f"max by ({PROFILE}) ({_MOST})) or on({PROFILE}) {_MOST}",
    ),
    Recording("precision:profile_open_nodes", _counted("queued|running")),
    Recording("precision:profile_free_nodes", f"precision:profile_open_nodes - {_for(HELD)}"),
    Recording(
        # Also those that are tried again, until they have a result; in quarantine they have their own alert.
        _FAILED,
        f'max without(phase) (precision:profile_nodes{{phase="failed"}} or count by ({PROFILE}) (group by ({NODE}) '
        f"({newest('precision_node_failed')}) unless on({NODE}) {newest('precision_node_quarantined')}))",
    ),
    Recording(
        # Only where failing is more than the fault of one or two nodes; it ends at half of what it begins with.
        "precision:profile_failing_ratio",
        f"({_FAILED} / {_ELIGIBLE} > {FAILING_ABOVE} / 2) "
        f"and ({_FAILED} >= 3 and {_FAILED} / {_ELIGIBLE} > {FAILING_ABOVE} "
        f"or {_FAILED} > 1 and {newest('precision:profile_failing_ratio')})",
    ),
    _lasting("precision:profile_failing_ratio", "30m"),
    _mirror("profile_progress_ratio", over=""),
    _mirror("profile_eta_timestamp_seconds", over=""),
    _mirror("profile_refresh_interval_seconds"),
    Recording(
        # Its newest result; where there never was one, since when its schedule is known.
        "precision:profile_waits_since",
        f"{LAST_RESULT} or on({PROFILE}) last_over_time(precision:profile_waits_since[1h]) "
        "or time() + 0 * precision:profile_refresh_interval_seconds",
    ),
    Recording(
        # 1 while most nodes wait, by no decision; those that are busy or queued count while none runs. Or all are
        # skipped, or a schedule never had one, or no operator has seen it; 2: an invalid spec.
        "precision:profile_blocked",
        f"(2 * max by ({PROFILE}) ({newest(matched('precision_profile_phase', phase='Invalid'))}) "
        f"or ({_ELIGIBLE} == 0 and on({PROFILE}) (precision:profile_refresh_interval_seconds "
        f'unless on({PROFILE}) {LAST_RESULT} or precision:profile_nodes{{phase="skipped"}} > 0 '
        f"or on({PROFILE}) {newest(matched('precision_profile_phase', phase='Pending'))})) + 1 "
        f"or 2 * ({_counted('waiting', '=')} - {_for(f'{DECIDED}|{BUSY}')} + ({_counted('queued', '=')} "
        f"+ {_for(BUSY)}) * ({_counted('running', '=')} * {_MEASURED} == bool 0)) > bool {_ELIGIBLE}) "
        f"unless on({PROFILE}) {newest(matched('precision_profile_phase', phase='Suspended'))}",
    ),
    # What one alert alone says: without the alert it is not recorded, and hides none.
    Recording(
        "precision:profile_cannot_go_on",
        f"(precision:profile_reason or on({PROFILE}) {_STATE}) and on({PROFILE}) "
        f"((quantile_over_time(0.1, {_STATE}[24h]) > 0 and last_over_time({_STATE}[3h] offset 24h) "
        f"or min_over_time({_STATE}[1h]) == 2 and last_over_time({_STATE}[3h] offset 50m) "
        f"and precision:profile_refresh_interval_seconds) and ({_STATE} > 0 or on({PROFILE}) 2 * max by ({PROFILE}) "
        f"(precision:profile_waiting_nodes and on({PROFILE}, reason) precision:profile_reason) > {_ELIGIBLE}))",
    ),
    Recording(
        "precision:profile_stuck",
        "precision:profile_free_nodes and min_over_time(precision:profile_free_nodes[3h]) > 0 "
        "and last_over_time(precision:profile_free_nodes[3h] offset 3h) "
        f"unless on({PROFILE}) (time() - precision:profile_last_result_timestamp_seconds < 10800 "
        'or changes(precision:profile_nodes{phase="failed"}[3h]) > 0 or precision:profile_cannot_go_on)',
    ),
)

_VERDICT = newest("precision_node_slow")
_RELATIVE = newest("precision_node_relative_performance_ratio")
_RESULT = newest("precision_node_last_success_timestamp_seconds")
_ENDED = "precision_node_last_success_timestamp_seconds[25m]"  # more than twice GAP
_SLOW = (
    f"min by ({NODE}) ({_RELATIVE} and on({NODE}, workload) {_VERDICT} == 1 "
    f"or {newest(matched('precision:node_finding', fault='slow'))} unless on({NODE}) {_VERDICT} "
    f"unless on({NODE}) (max by ({NODE}) (max_over_time({_ENDED})) > min by ({NODE}) (min_over_time({_ENDED})))) "
    f"and on({NODE}) {_RESULT}"
)
"""The relative rate of each slow node. A node that has no verdict now keeps the one before for as long as it has the
result that was judged: until it is measured again, or when its newest attempt failed."""
_THERE = (
    f"(topk by ({NODE}) (1, max by ({NODE}, data, nvlink_domain) ({newest('precision_node_info')})) or on({NODE}) "
    f"group by ({NODE}) ({_RESULT})) unless on({NODE}) {newest(matched('precision_node_outdated', reason='NodeGone'))}"
)
"""1 for each node that is there and has a result; provenance and NVLink domain as labels where the report has them."""
_THROTTLED = newest("precision_node_throttled_ratio")
_LIMIT, _OF_KIND = "precision:node_power_limit_watts", f"{POOL}, data"


def _finding(fault: str, expr: str) -> Recording:
    """Each node that has the fault, with the figure behind it, and no series for the others."""
    return Recording("precision:node_finding", expr, {"fault": fault})


NODES: tuple[Recording, ...] = (
    Recording("precision:node_there", _THERE),
    _finding("slow", _SLOW),
    _finding(
        "fallback", f"count by ({NODE}) ({once(matched('precision_node_verification', verdict='fallback'))} == 1)"
    ),
    _finding(
        # Not where the node is slow by more than ten times what it was throttled.
        "throttled",
        f"max by ({NODE}) ({_THROTTLED}) > 0 "
        f"unless on({NODE}) (1 - {matched('precision:node_finding', fault='slow')} > on({NODE}) "
        f"10 * max by ({NODE}) ({_THROTTLED}))",
    ),
    _finding("power_invalid", f"count by ({NODE}) ({once('precision_node_power_valid')} == 0)"),
    _finding("diverged", f"count by ({NODE}) ({once(matched('precision_node_loss_verdict', verdict='diverged'))})"),
    _finding(
        # Where throttling is what fails a throttled node, that is its fault.
        "not_accepted",
        f"group by ({NODE}, reason) ({newest(matched('precision_node_accepted', verdict='Fail'))}) "
        f"unless on({NODE}, reason) label_replace({matched('precision:node_finding', fault='throttled')}, "
        '"reason", "Throttled", "", "")',
    ),
    Recording(
        _LIMIT,
        f"max by ({NODE}) ({newest('precision_node_gpu_power_limit_watts')}) "
        f"* on({NODE}) group_left(data) precision:node_there",
    ),
    _finding(
        # Below nine tenths of a pool of five or more: nobody is compared with a node of another limit.
        "limited",
        f"{_LIMIT} < on({_OF_KIND}) group_left() (0.99 * quantile by ({_OF_KIND}) (0.1, {_LIMIT}) "
        f"and on({_OF_KIND}) count by ({_OF_KIND}) ({_LIMIT}) >= 5)",
    ),
    Recording(
        # By the reason of the first failure: the alert of a node whose reasons alternate goes on.
        "precision:node_failed",
        f"{newest('precision:node_failed')} and on({NODE}) {newest('precision_node_failed')} "
        f"or on({NODE}) topk by ({NODE}) (1, max by ({NODE}, reason) ({newest('precision_node_failed')}))",
    ),
    Recording(
        # A health counter fails a node without a result, too.
        "precision:node_fault",
        f"label_replace(precision:node_finding * on({NODE}) group_left(data, nvlink_domain) precision:node_there, "
        '"data", "", "data", "measured") '
        f'or on({NODE}, fault) precision:node_finding{{fault="not_accepted"}}',
    ),
)

_HEAT = "precision_pool_training_throttled_ratio"
HOT = matched(_HEAT, against="median")
"""Of pools in which fewer than three nodes are cool: these are no measure of the others, the best of 7 days is."""

HISTORY: tuple[Recording, ...] = (
    Recording(
        # By workload hash, scope and provenance: a spec that was edited begins anew.
        "precision:pool_tokens_per_second:settled",
        _of_kind("precision_pool_training_level_tokens_per_second"),
    ),
    Recording(
        "precision:pool_degradation_ratio",
        f"{newest('precision:pool_tokens_per_second:settled')} "
        "/ max_over_time(precision:pool_tokens_per_second:settled[7d])",
    ),
    Recording(
        # Of the recipe that lost the most, with what the pool's figures are.
        "precision:pool_degradation_ratio:worst",
        f"min by ({POOL}, data) (precision:pool_degradation_ratio)",
    ),
    Recording(
        # What more than a quarter of the nodes are throttled to, of the recipe that lost the most.
        "precision:pool_throttled_ratio",
        f"min by ({POOL}, data) ({_of_kind(matched(_HEAT, against='others'))} or {_of_kind(HOT)} "
        f"* on({RECIPE}, workload_hash, scope, data) group_left() precision:pool_degradation_ratio)",
    ),
    Recording(
        "precision:pool_throttled_ratio:lasting",
        f"quantile_over_time(0.75, precision:pool_throttled_ratio[{MOSTLY}]) < {FAR_BELOW} "
        "and precision:pool_throttled_ratio",
    ),
    Recording("precision:pool_degraded", f"max by ({POOL}) (precision:pool_degradation_ratio < bool {DEGRADED_BELOW})"),
    Recording("precision:pool_driver_tokens_per_joule", _of_kind("precision_pool_driver_training_tokens_per_joule")),
    _mirror("pool_driver_order"),
    Recording(
        # Over time, too: the nodes that a rollout leaves for its end need not be like the others.
        "precision:pool_driver_tokens_per_joule:median_14d",
        "quantile_over_time(0.5, precision:pool_driver_tokens_per_joule[14d:1h])",
    ),
    Recording(
        "precision:pool_newest_driver",
        f"topk by ({POOL}) (1, precision:pool_driver_order and on({POOL}, driver) "
        "precision:pool_driver_tokens_per_joule)",
    ),
    Recording(
        "precision:pool_driver_energy_ratio",
        f"max by ({MEASURED_ALIKE}, driver) (precision:pool_driver_tokens_per_joule and on({POOL}, driver) "
        f"precision:pool_newest_driver) / on({MEASURED_ALIKE}) group_left() max by ({MEASURED_ALIKE}) "
        f"(precision:pool_driver_tokens_per_joule:median_14d and on({POOL}, driver) (last_over_time("
        f"precision:pool_driver_order[14d]) < on({POOL}) group_left() max by ({POOL}) (precision:pool_newest_driver)))",
    ),
)

_QUARANTINED = newest("precision_node_quarantined")
_ONCE, _MANY, _MANY_NODES = "precision:node_story:once", "precision:pool_fault_nodes", "precision:pool_many_nodes"
_SHARED = f"{HARDWARE}, {NAMESPACE}, nodes_of"  # a pool, whatever profiles of a namespace measure it
_FAULT_OF_NODE = f"{IN_NAMESPACE}, fault, data"
_LEAST = "'slow|limited'"  # faults of which the least figure is the worst
_TOLD, _LEFT = newest(_ONCE, "11m"), "precision:node_story:left"
_LIMITED, _HOT_NODE = (matched("precision:node_fault", fault=fault) for fault in ("limited", "throttled"))
_HOT_POOL = f"{_HOT_NODE} and on({POOL}, data) precision:pool_throttled_ratio:lasting"
_OF_MANY = f"unless on({_SHARED}, fault, data) {_MANY_NODES}"  # not where another alert stands for the node
_WORST = f"by ({_SHARED}, node, fault, data, reason, nvlink_domain) (precision:node_story{{{{fault{{}}~{_LEAST}}}}})"

STORIES: tuple[Recording, ...] = (
    Recording(
        # Reasons that a failing profile's alert stands for: those from before it fires.
        "precision:failing_reason",
        f"({newest('precision:failing_reason')} or count by ({POOL}, reason) (precision:node_failed) unless "
        f"on({PROFILE}) precision:profile_failing_ratio:lasting) and on({PROFILE}) precision:profile_failing_ratio",
    ),
    Recording(
        # What nodes have an alert for: none has two, and none has one where its pool or its profile is the story.
        "precision:node_story",
        f'(precision:node_fault{{fault=~"fallback|diverged|not_accepted"}} or {_LIMITED} and '
        f"last_over_time({_LIMITED}[3h] offset 12h) and last_over_time({_LIMITED}[3h] offset 1d) "
        f"or ({_HOT_NODE} > 0 unless on({IN_NAMESPACE}, data) "
        f'({_HOT_POOL}) or precision:node_fault{{fault="slow"}} unless on({NODE}) '
        f'(precision:node_fault{{fault=~"fallback|not_accepted"}} or {_HOT_NODE} > 0 or {_HOT_POOL}) '
        f'or (label_replace(precision:node_failed unless on({NODE}) {_QUARANTINED}, "fault", "failed", "", "") '
        f'or label_replace(max by ({NODE}, reason) ({_QUARANTINED}), "fault", "quarantined", "", "")) '
        f"unless on({POOL}, reason) (precision:failing_reason and on({PROFILE}) "
        "precision:profile_failing_ratio:lasting)) "
        f'unless on({NODE}) (precision:node_fault{{fault="not_accepted"}} unless on({NODE}) {_QUARANTINED})) '
        f"* on({POOL}) group_left(nodes_of) precision:pool_info",
    ),
    # Once, whatever profiles of a namespace measure it.
    Recording(
        _ONCE, f"topk by ({_SHARED}, node, fault, data) (1, max {_WORST.format('!')} or min {_WORST.format('=')})"
    ),
    Recording(_MANY, f"count by ({_SHARED}, fault, data) ({_ONCE})"),
    Recording(
        # From five nodes, or four that are a tenth of their pool or in one rack, until three or fewer are left.
        "precision:pool_many_nodes",
        f"{_MANY} > 3 and on({_SHARED}, fault) ({_MANY} > 4 or {_MANY} > on({_SHARED}) group_left() 0.1 * "
        f'max by ({_SHARED}) (sum by ({POOL}) (precision:pool_nodes{{pool!=""}}) * on({POOL}) group_left(nodes_of) '
        f"precision:pool_info) or on({_SHARED}, fault) count by ({_SHARED}, fault, nvlink_domain) "
        f'({_ONCE}{{nvlink_domain!=""}}) > 3 or {newest(_MANY_NODES)})',
    ),
    _lasting("precision:pool_many_nodes", "1h"),
    Recording(
        # Where one alert is to stand for many, theirs begin no more; what a node had goes on until what follows fires.
        _LEFT,
        f"{_TOLD} and on({IN_NAMESPACE}) {_ONCE} and on({_SHARED}, node, fault) ({_TOLD} {_OF_MANY} unless "
        f"on({_FAULT_OF_NODE}) ({_HOT_NODE} and on({POOL}, data) precision:pool_throttled_ratio < {FAR_BELOW}) or "
        f"{newest(_LEFT)} {_OF_MANY}:lasting)",
    ),
    Recording(
        # Once a namespace, which nothing of another one begins, ends or changes.
        "precision:node_told",
        f"topk by ({_FAULT_OF_NODE}) (1, {_LEFT}{{fault!~{_LEAST}}}) or "
        f"bottomk by ({_FAULT_OF_NODE}) (1, {_LEFT}{{fault=~{_LEAST}}})",
    ),
)

_SHARDS = once("precision_exporter_shards", over="")
_SCRAPED = f"count by ({INSTALLATION}) ({once('precision_exporter_shard_series', over='')})"
_EXPORTER, _OPERATOR = {"program": "exporter"}, {"program": "operator"}

PROGRAMS: tuple[Recording, ...] = (
    Recording("precision:cluster_expected", "vector(1) < 1"),  # the chart's rules.clusters puts one for each beside it
    Recording("precision:program_seen", f"group by ({INSTALLATION}) (precision_exporter_build_info)", _EXPORTER),
    Recording("precision:program_seen", f"group by ({INSTALLATION}) (precision_operator_leader)", _OPERATOR),
    Recording("precision:missing_shards", f"{_SHARDS} - ({_SCRAPED} or 0 * {_SHARDS}) > 0", _EXPORTER),
    Recording(
        "precision:program_up",
        "precision:program_seen unless precision:missing_shards "
        f"or 0 * last_over_time(precision:program_seen[{REMEMBERED}])",
    ),
    Recording(
        # Of the minutes in which the rules ran, the share in which a program was scraped, with all of its shards.
        "precision:program_available_ratio:30m",
        f"avg by ({INSTALLATION}, program) (avg_over_time(precision:program_up[30m]))",
    ),
    Recording(
        # Missed for 15 minutes, until half an hour is whole; or an eighth of two hours in three gaps of four
        # hours, until seventy minutes are (thirty after ten gaps): the lives of a loop may be long.
        "precision:program_down",
        "(precision:program_available_ratio:30m < 0.5 or changes(precision:program_up[4h]) > 4 "
        f"and (avg_over_time(precision:program_up[2h]) < 0.88 or {newest('precision:program_down')}) and "
        "min_over_time(precision:program_up[70m]) < 1 and (precision:program_available_ratio:30m < 1 or "
        f"changes(precision:program_up[4h]) < 20)) and last_over_time(precision:program_seen[{REMEMBERED}] offset 30m)",
    ),
    Recording("precision:exporter_down", 'precision:program_down{program="exporter"}'),
)

GROUPS: tuple[RuleGroup, ...] = (
    RuleGroup("precision-programs", "1m", PROGRAMS),
    RuleGroup("precision-pools", "1m", POOLS),
    RuleGroup("precision-profiles", "1m", PROFILES),
    RuleGroup("precision-nodes", "1m", NODES),
    RuleGroup("precision-history", "2m", HISTORY),
    RuleGroup("precision-stories", "1m", STORIES),
)

RECORDED: tuple[str, ...] = tuple(dict.fromkeys(rule.record for group in GROUPS for rule in group.rules))


def group_document(group: RuleGroup) -> dict[str, Any]:
    """The group as it stands in a rule file."""
    rules = [
        {"record": rule.record, "expr": rule.expr} | ({"labels": dict(rule.labels)} if rule.labels else {})
        for rule in group.rules
    ]
    return {"name": group.name, "interval": group.interval, "rules": rules}
