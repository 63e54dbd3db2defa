"""The alerts of nodes, pools and profiles.

One alert a node in each namespace that measures it, whatever the number of recipes. A throttled node is silent while
its whole pool is throttled, a failed one while its whole profile fails: then that is the story. A node that is slow
because it is throttled, or because a recipe fell back, has that alert alone. All facts of an alert are of its own
namespace and cluster: nothing here silences what is in another.
"""

from precision_operator.exporter.fleet import LATE_SECONDS
from precision_operator.monitoring import rules
from precision_operator.monitoring.alert import (
    CLUSTER_NAME,
    MADE_UP,
    NODE_NAME,
    POOL_NAME,
    POOL_OF_PROFILE,
    PROFILE_NAME,
    PROVENANCE,
    SHARE,
    Alert,
)

_NOT_ACCEPTED = 'precision:node_told{fault="not_accepted"}'
_BLAMED = f"max by ({rules.IN_NAMESPACE}, gpu, UUID, pci) ({rules.newest('precision_node_failing_gpu_info')})"
_GPU = f"({_BLAMED} and on({rules.IN_NAMESPACE}) count by ({rules.IN_NAMESPACE}) ({_BLAMED}) == 1)"
"""What the namespace's own verdicts blame; none where they blame several."""
_DRIFTED = rules.newest(rules.matched("precision_node_accepted", reason="ReferenceDrifted"))
_ENERGY = (
    f"min by ({rules.POOL}, driver, data) (precision:pool_driver_energy_ratio < {rules.ENERGY_BELOW} unless "
    f"on({rules.RECIPE}, workload_hash, scope, data) ({rules.DEGRADED_BELOW} > precision:pool_degradation_ratio))"
)
_NODES_OF = "{{ with $labels.nodes_of }} (nodes of {{ . }}){{ end }}"
_DOMAIN = "{{ with $labels.nvlink_domain }} in NVLink domain {{ . }}{{ end }}"
_WORST = f"precision:pool_degradation_ratio:worst[{rules.MOSTLY}]"
_FAR = f"quantile_over_time(0.75, {_WORST})"
_HOT = f"unless on({rules.POOL}) ({rules.once(rules.HOT)} and on({rules.POOL}) precision:pool_throttled_ratio:lasting"
_LATER = f"quantile_over_time(0.8, {_WORST})"
_FEW = (
    f"on({rules.POOL}) sum by ({rules.POOL}) (precision:pool_nodes) < 6 and on({rules.POOL}) "
    f"min by ({rules.POOL}) ({_LATER}) > 0.94"
)
_BELOW = f"{_LATER} < {rules.DEGRADED_BELOW} {_HOT} or {rules.FAR_BELOW} > {_FAR} or {_FEW})"
"""A little later than the other one, which a pool far below so has alone; of few, each new one moves the median."""
_BELOW_BEST: tuple[tuple[str, str, rules.Severity, str], ...] = (
    ("PrecisionPoolDegraded", _BELOW, "warning", ""),
    ("PrecisionPoolFarBelowBest", f"{_FAR} < {rules.FAR_BELOW} {_HOT})", "critical", " Stop a rollout that goes on."),
)
_ELSEWHERE = (
    f'label_replace(precision:profile_failing_ratio:lasting, "reason", "TooManyFailures", "", "") or '
    f'label_replace(max by ({rules.PROFILE}) (precision:node_story{{fault="quarantined"}}), '
    '"reason", "Quarantined", "", "")'
)


def _once_a_pool(expr: str) -> str:
    """The least of what a pool has, once for all profiles that share nodes of it."""
    of = "group_left(nodes_of) precision:pool_info"
    return f"min by ({rules.HARDWARE}, {rules.NAMESPACE}, data, nodes_of) (({expr}) * on({rules.POOL}) {of})"


FLEET_ALERTS: tuple[Alert, ...] = (
    Alert(
        "PrecisionNodeSlow",
        'precision:node_told{fault="slow"}',
        f"{{{{ $labels.node }}}} trains at {SHARE} of its peers{MADE_UP}",
        f"{NODE_NAME} gives {SHARE} of the median of its peers (same pool, GPUs, power limit, driver, software and "
        f"workload), and neither throttling nor a fallback explains it.{PROVENANCE}",
        owner="hardware",
    ),
    Alert(
        "PrecisionNodeNotAccepted",
        f"{_NOT_ACCEPTED} * on({rules.IN_NAMESPACE}) group_left(gpu, UUID, pci) {_GPU} "
        f"or on({rules.IN_NAMESPACE}) {_NOT_ACCEPTED}",
        f"{{{{ $labels.node }}}} fails its acceptance: {{{{ $labels.reason }}}}{MADE_UP}",
        f"{NODE_NAME} has the verdict Fail, reason {{{{ $labels.reason }}}}{{{{ with $labels.UUID }}}}, of GPU "
        "{{ $labels.gpu }} ({{ . }}{{ with $labels.pci }}, PCI {{ . }}{{ end }}){{ end }}. kubectl precision why says "
        f"by how much, against what, and what to do.{PROVENANCE}",
        owner='{{ if eq $labels.reason "Throttled" }}facility{{ else }}hardware{{ end }}',
    ),
    Alert(
        "PrecisionReferenceDrifted",
        f"count by ({rules.PROFILE}) (group by ({rules.NODE}) ({_DRIFTED}))",
        "The reference of profile {{ $labels.profile }} has drifted: {{ $value }} nodes get no verdict",
        f"The newest nodes of {PROFILE_NAME}{CLUSTER_NAME} lie together so far from its reference that it tells of "
        "another time, or of a slow rack. Nodes are neither passed nor failed by it.",
    ),
    # Pools: once for all profiles that share nodes. At different hours these tell of one cause.
    *(
        Alert(
            name,
            _once_a_pool(f"({expr}) and precision:pool_degradation_ratio:worst"),
            f"Pool {{{{ $labels.pool }}}} trains at {SHARE} of its best of 7 days{MADE_UP}",
            f"{POOL_NAME}{_NODES_OF}: in at least one recipe the median node gives {SHARE} of the best median of the "
            f"last 7 days.{further}{PROVENANCE}",
            asks="30m",
            severity=severity,
        )
        for name, expr, severity, further in _BELOW_BEST
    ),
    Alert(
        "PrecisionPoolThrottled",
        _once_a_pool("precision:pool_throttled_ratio:lasting"),
        f"More than a quarter of pool {{{{ $labels.pool }}}} is throttled to {SHARE}{MADE_UP}",
        f"{POOL_NAME}{_NODES_OF}: more than a quarter, three or more, are throttled, and give {SHARE} of the "
        f"others, or of its best of 7 days. So many at once share their cooling or their power feed.{PROVENANCE}",
        owner="facility",
        asks="30m",
        severity="critical",
    ),
    Alert(
        "PrecisionManyNodes",
        "precision:pool_many_nodes:lasting",
        "{{ $value }} nodes{{ with $labels.pool }} of pool {{ . }}{{ end }} are {{ $labels.fault }}" + MADE_UP,
        f"It stands for nodes of {{{{ $labels.nodes_of }}}} and of profiles that share them{CLUSTER_NAME}.{PROVENANCE}",
        owner='{{ if eq $labels.fault "throttled" }}facility{{ else if match "slow|quar|not|lim" $labels.fault }}'
        "hardware{{ else }}platform{{ end }}",
        asks="1h",
    ),
    Alert(
        "PrecisionSilentFallback",
        'precision:node_told{fault="fallback"}',
        f"{{{{ $labels.node }}}} silently runs {{{{ $value }}}} of its recipes in another precision{MADE_UP}",
        f"{NODE_NAME}: the kernels of {{{{ $value }}}} of its recipes did not run in its precision.{PROVENANCE}",
    ),
    Alert(
        "PrecisionThrottledInProfile",
        'precision:node_told{fault="throttled"} > 0',
        f"{{{{ $labels.node }}}} was throttled for {SHARE} of the time that it was measured{MADE_UP}",
        f"{NODE_NAME}{_DOMAIN}: heat or the power brake slowed its clocks for {SHARE} of a measured time.{PROVENANCE}",
        owner="facility",
    ),
    Alert(
        "PrecisionNodeFailed",
        'precision:node_told{fault="failed"}',
        "The measurement of {{ $labels.node }} failed: {{ $labels.reason }}",
        f"{NODE_NAME}: its newest measurement gave no result; it first failed for the reason {{{{ $labels.reason }}}}.",
        lasts="1h",
    ),
    Alert(
        "PrecisionNodeQuarantined",
        'precision:node_told{fault="quarantined"}',
        "{{ $labels.node }} failed run after run ({{ $labels.reason }}) and is no longer measured",
        f"{NODE_NAME} is in quarantine. Nobody measures it until it is released, or its driver or hardware changes.",
        owner="hardware",
    ),
    Alert(
        "PrecisionProfileStale",
        "time() - precision:profile_waits_since > precision:profile_refresh_interval_seconds "
        f"+ {LATE_SECONDS} unless on({rules.PROFILE}) (precision:profile_cannot_go_on or "
        "precision:profile_stuck offset 15m or precision:profile_eligible_nodes == 0 and "
        f"time() - {rules.LAST_RESULT} < 604800 + precision:profile_refresh_interval_seconds)",
        "Profile {{ $labels.profile }} is overdue: no result for {{ $value | humanizeDuration }}",
        f"{PROFILE_NAME}{CLUSTER_NAME} has had no result for {{{{ $value | humanizeDuration }}}}, "
        f'{{{{ "{LATE_SECONDS}" | humanizeDuration }}}} or more beyond what its schedule or its maxAge asks for.',
        owner="tenant",
        lasts="6h",
    ),
    Alert(
        "PrecisionProfileBlocked",
        f"precision:profile_cannot_go_on unless on({rules.PROFILE}, reason) ({_ELSEWHERE})",
        "Profile {{ $labels.profile }} can't go on{{ with $labels.reason }}: {{ . }}{{ end }}",
        f"For a day most nodes of {PROFILE_NAME}{CLUSTER_NAME} wait{{{{ with $labels.reason }}}} (reason {{{{ . }}}})"
        "{{ end }}, or it has none, or its spec is invalid.",
        owner="tenant",
        asks="24h",
    ),
    Alert(
        "PrecisionProfileFailing",
        "precision:profile_failing_ratio:lasting",
        f"Measurements fail on {SHARE} of the nodes of profile {{{{ $labels.profile }}}}",
        f"{SHARE} of the eligible nodes of {PROFILE_NAME}{CLUSTER_NAME}, three or more, gave no result in their newest "
        "run. So many have one cause.",
        asks="30m",
    ),
    Alert(
        "PrecisionEnergyRegression",
        _ENERGY,
        f"Driver {{{{ $labels.driver }}}} gives {SHARE} of the tokens per joule in {{{{ $labels.pool }}}}{MADE_UP}",
        f"{POOL_OF_PROFILE}: with driver {{{{ $labels.driver }}}} the median node gives {SHARE} of the tokens per "
        f"joule that the best older driver of the last 14 days gave, in the recipe that lost the most.{PROVENANCE}",
        lasts="1h",
    ),
    Alert(
        "PrecisionLossDiverged",
        'precision:node_told{fault="diverged"}',
        f"The loss diverged on {{{{ $labels.node }}}} in {{{{ $value }}}} recipes{MADE_UP}",
        f"{NODE_NAME}: the short loss runs of {{{{ $value }}}} recipes diverged, and the baseline's did not."
        f"{PROVENANCE}",
    ),
    Alert(
        "PrecisionPowerLimitLow",
        'precision:node_told{fault="limited"}',
        f"A GPU of {{{{ $labels.node }}}} is limited to {{{{ $value }}}} W{MADE_UP}",
        f"{NODE_NAME}: for a day its enforced power limit has been below that of nine tenths of its pool.{PROVENANCE}",
        owner="hardware",
        asks="24h",
    ),
    Alert(
        "PrecisionDriversDiffer",
        f"min_over_time(count by ({rules.POOL}) (precision:pool_driver_nodes > 0)[7d:30m]) > 1 and on({rules.POOL}) "
        f"precision:pool_driver_nodes and on({rules.POOL}) last_over_time(precision:pool_driver_nodes[3h] offset 7d)",
        "Pool {{ $labels.pool }} has had {{ $value }} drivers for a week",
        f"{POOL_OF_PROFILE}: its nodes have {{{{ $value }}}} drivers.",
        asks="7d",
        severity="info",
    ),
    Alert(
        "PrecisionCampaignStuck",
        "precision:profile_stuck",
        "Profile {{ $labels.profile }} makes no progress: {{ $value }} nodes are queued or running",
        f"{{{{ $value }}}} nodes of {PROFILE_NAME}{CLUSTER_NAME} are queued or running, and for three hours none has "
        "ended: twice what an agent may take.",
        lasts="15m",
    ),
)
