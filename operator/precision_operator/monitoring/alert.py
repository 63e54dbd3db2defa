"""One alert as a row, and the words that several alerts share."""

from dataclasses import dataclass

from precision_operator.monitoring.rules import CLUSTER, Severity


@dataclass(frozen=True)
class Alert:
    """One alert; `summary` and `description` are Go templates over the labels and the value.

    critical asks for a person now, warning for one in working hours, info for nobody in particular: docs/alerting.md.
    """

    name: str
    expr: str
    summary: str
    description: str
    lasts: str = "10m"
    """`for`: how long it must hold."""
    asks: str = ""
    """How long its expression itself asks for; there is then no `for`."""
    severity: Severity = "warning"
    owner: str = "platform"
    """Who can fix it: platform, facility, hardware or tenant."""


CLUSTER_NAME = f"{{{{ with or $labels.{CLUSTER} $externalLabels.{CLUSTER} }}}} in cluster {{{{ . }}}}{{{{ end }}}}"
"""The cluster stands on the series where many are evaluated together, else in Prometheus' external labels."""
MADE_UP = "{{ with $labels.data }} ({{ . }}){{ end }}"
"""Figures that were measured on this hardware have no such label on alerts."""
PROVENANCE = "{{ with $labels.data }} Figures: {{ . }}.{{ end }}"
SHARE = "{{ $value | humanizePercentage }}"
PROFILE_NAME = "{{ $labels.profile_namespace }}/{{ $labels.profile }}"
_OF = f"{{{{ $labels.pool }}}}{CLUSTER_NAME}"
_FOUND_BY = (
    "{{ range query (printf `precision:node_story{cluster=%q,profile_namespace=%q,node=%q,fault=%q}` $labels.cluster "
    '$labels.profile_namespace $labels.node $labels.fault) }} ({{ $labels.profile_namespace }}/{{ label "profile" . }})'
    "{{ end }}"
)
"""The namespace's profiles that have it now. No label, which would end an alert where another profile has it still."""
POOL_NAME, NODE_NAME = f"Pool {_OF}", f"Node {{{{ $labels.node }}}} of pool {_OF}{_FOUND_BY}"
POOL_OF_PROFILE = f"{POOL_NAME} (profile {PROFILE_NAME})"
INSTALLATION_NAME = "{{ with $labels.namespace }} in namespace {{ . }}{{ end }}"
