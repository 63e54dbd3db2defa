"""The alerts of nodes, pools and profiles.

One alert a node, whatever the number of recipes. A throttled node is silent while its whole pool is throttled, a
failed one while its whole profile fails: then that is the story. A node that is slow because it is throttled, or
because a recipe fell back, has that alert alone. Nothing here silences what is in another cluster.
"""

from __future__ import annotations

from precision_operator.monitoring import rules
from precision_operator.monitoring.alert import (
    CLUSTER_NAME,
    MADE_UP,
    NODE_NAME,
    POOL_NAME,
    PROFILE_NAME,
    PROVENANCE,
    SHARE,
    Alert,
)

UNLESS_THROTTLED = f"unless on({rules.POOL}) precision:pool_throttled"
UNLESS_PROFILE = f"unless on({rules.PROFILE}) precision:profile_failing_ratio"
OVERDUE_SECONDS = 86_400
"""Beyond the interval of the profile: one night that was missed is made up for in the next."""
HELD = (
    "FleetLimitReached",
    "FleetPowerReached",
    "LimitOfAnotherProfile",
    "MeasuredByAnotherProfile",
    "StoppedByAdmin",
    "Suspended",
    "WaitsInQueue",
)
"""Reasons for which a whole profile may wait for hours: somebody decided so, or another profile has its turn."""


def _node_fault(fault: str, further: str = "") -> str:
    return f"{rules.matched('precision:node_fault', fault=fault)} {further}".strip()


def _of_pool(expr: str) -> str:
    """The same with what the pool's figures are, for the alert's words."""
    return rules.labelled(expr, rules.POOL, "data", "precision:pool_data")


_DEGRADATION = f"min by ({rules.POOL}) (precision:pool_degradation_ratio)"
_QUARANTINED = f"max by ({rules.NODE}, reason) ({rules.newest('precision_node_quarantined')})"
_HELD = f'sum by ({rules.PROFILE}) (precision:profile_waiting_nodes{{reason=~"{"|".join(HELD)}"}})'
_ENERGY = f"min by ({rules.POOL}, driver) (precision:pool_driver_energy_ratio) < {rules.ENERGY_BELOW}"
_DOMAIN = "{{ with $labels.nvlink_domain }} in NVLink domain {{ . }}{{ end }}"
_TOGETHER = "The nodes moved together, so look for what they have in common: driver, image, power or cooling."

FLEET_ALERTS: tuple[Alert, ...] = (
    Alert(
        "PrecisionNodeSlow",
        _node_fault("slow", f'unless on({rules.NODE}) precision:node_fault{{fault=~"fallback|throttled"}}'),
        "10m",
        "warning",
        f"{{{{ $labels.node }}}} trains at {SHARE} of its peers{MADE_UP}",
        f"{NODE_NAME} gives {SHARE} of the median of its peers (same pool, GPUs, power limit, driver, software and "
        "workload), and neither throttling nor a fallback explains it. A synchronous job that gets this node runs at "
        f"its speed.{PROVENANCE}",
    ),
    Alert(
        "PrecisionPoolDegraded",
        _of_pool(f"{_DEGRADATION} < {rules.DEGRADED_BELOW} >= {rules.FAR_BELOW} {UNLESS_THROTTLED}"),
        "30m",
        "warning",
        f"Pool {{{{ $labels.pool }}}} trains at {SHARE} of its best of 7 days{MADE_UP}",
        f"{POOL_NAME}: in at least one recipe the median node gives {SHARE} of the best median of the last 7 days. "
        f"{_TOGETHER}{PROVENANCE}",
    ),
    Alert(
        "PrecisionPoolFarBelowBest",
        _of_pool(f"{_DEGRADATION} < {rules.FAR_BELOW} {UNLESS_THROTTLED}"),
        "30m",
        "critical",
        f"Pool {{{{ $labels.pool }}}} trains at {SHARE} of its best of 7 days{MADE_UP}",
        f"{POOL_NAME}: in at least one recipe the median node gives {SHARE} of the best median of the last 7 days. "
        f"Every job of this pool loses that much. {_TOGETHER} Stop a rollout that goes on.{PROVENANCE}",
    ),
    Alert(
        "PrecisionPoolThrottled",
        "precision:pool_throttled",
        "30m",
        "critical",
        "{{ $value }} nodes of pool {{ $labels.pool }} are throttled and lose more than a tenth",
        f"{POOL_NAME}: {{{{ $value }}}} nodes, more than a quarter, are throttled and give less than 90 % of the "
        "pool's best of 7 days. So many at once share their cooling or their power feed.",
    ),
    Alert(
        "PrecisionSilentFallback",
        _node_fault("fallback"),
        "10m",
        "warning",
        f"{{{{ $labels.node }}}} silently runs {{{{ $value }}}} of its recipes in another precision{MADE_UP}",
        f"{NODE_NAME}: the kernels of {{{{ $value }}}} of its recipes did not run in the recipe's precision. Jobs on "
        f"this node that use such a recipe get neither its speed nor its numerics.{PROVENANCE}",
    ),
    Alert(
        "PrecisionThrottledInProfile",
        _node_fault("throttled", UNLESS_THROTTLED),
        "10m",
        "warning",
        f"{{{{ $labels.node }}}} was throttled for {SHARE} of the time that it was measured{MADE_UP}",
        f"{NODE_NAME}{_DOMAIN}: heat or the power brake slowed its clocks for {SHARE} of a recipe's measured time. "
        f"Its figures are left out of the pool's medians.{PROVENANCE}",
    ),
    Alert(
        "PrecisionNodeFailed",
        f"precision:node_failed unless on({rules.NODE}) {_QUARANTINED} {UNLESS_PROFILE}",
        "1h",
        "warning",
        "The measurement of {{ $labels.node }} failed: {{ $labels.reason }}",
        f"{NODE_NAME}: its newest measurement gave no result; it first failed for the reason {{{{ $labels.reason }}}}. "
        "The node is not compared with its peers until it is measured again.",
    ),
    Alert(
        "PrecisionNodeQuarantined",
        f"{_QUARANTINED} {UNLESS_PROFILE}",
        "10m",
        "warning",
        "{{ $labels.node }} failed run after run ({{ $labels.reason }}) and is no longer measured",
        f"{NODE_NAME} is in quarantine: several runs in a row failed, the last one for the reason "
        "{{ $labels.reason }}. Nobody measures it until it is released, or its driver or hardware changes.",
    ),
    Alert(
        "PrecisionProfileStale",
        f"time() - max by ({rules.PROFILE}) (precision:profile_last_result_timestamp_seconds) > "
        f"max by ({rules.PROFILE}) (precision:profile_refresh_interval_seconds) + {OVERDUE_SECONDS}",
        "6h",
        "warning",
        "Profile {{ $labels.profile }} is overdue: its newest result is {{ $value | humanizeDuration }} old",
        f"The newest result of {PROFILE_NAME}{CLUSTER_NAME} is {{{{ $value | humanizeDuration }}}} old, a day or more "
        "beyond what its schedule or its maxAge asks for. What dashboards and plans show is that old.",
    ),
    Alert(
        "PrecisionProfileFailing",
        "precision:profile_failing_ratio",
        "30m",
        "warning",
        f"Measurements fail on {SHARE} of the nodes of profile {{{{ $labels.profile }}}}",
        f"{SHARE} of the eligible nodes of {PROFILE_NAME}{CLUSTER_NAME}, three or more, gave no result in their newest "
        "run. Many at once have one cause, such as the image, its pull secret or a driver.",
    ),
    Alert(
        "PrecisionEnergyRegression",
        _of_pool(_ENERGY),
        "1h",
        "warning",
        f"Driver {{{{ $labels.driver }}}} gives {SHARE} of the tokens per joule in {{{{ $labels.pool }}}}{MADE_UP}",
        f"{POOL_NAME}: with driver {{{{ $labels.driver }}}} the median node gives {SHARE} of the tokens per joule that "
        f"the best older driver of the last 14 days gave, in the recipe that lost the most.{PROVENANCE}",
    ),
    Alert(
        "PrecisionPowerTelemetryBad",
        _node_fault("power_invalid"),
        "10m",
        "info",
        f"The power reading of {{{{ $labels.node }}}} is not valid for {{{{ $value }}}} of its recipes{MADE_UP}",
        f"{NODE_NAME}: its power or energy counters failed their checks in {{{{ $value }}}} of its recipes, which have "
        f"no energy figures. Sums of power over the pool leave them out.{PROVENANCE}",
    ),
    Alert(
        "PrecisionCampaignStuck",
        f"(precision:profile_open_nodes - on({rules.PROFILE}) {_HELD} > 0 "
        f"or precision:profile_open_nodes > 0 unless on({rules.PROFILE}) {_HELD}) "
        "and min_over_time(precision:profile_open_nodes[3h]) > 0 "
        "and changes(precision:profile_done_nodes[3h]) == 0 and (precision:profile_open_nodes offset 3h) > 0",
        "15m",
        "warning",
        "Profile {{ $labels.profile }} makes no progress: {{ $value }} nodes are queued or running",
        f"{{{{ $value }}}} nodes of {PROFILE_NAME}{CLUSTER_NAME} are queued or running, and for three hours none has "
        "ended: twice what an agent may take.",
    ),
)
