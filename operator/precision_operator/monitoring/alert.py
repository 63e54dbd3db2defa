"""One alert as a row, and the words that several alerts share."""

from __future__ import annotations

from dataclasses import dataclass

from precision_operator.monitoring.rules import CLUSTER, Severity


@dataclass(frozen=True)
class Alert:
    """One alert; `summary` and `description` are Go templates over the labels and the value.

    critical asks for a person now, warning for one in working hours, info for nobody in particular: docs/alerting.md.
    """

    name: str
    expr: str
    lasts: str
    """`for`: how long it must hold."""
    severity: Severity
    summary: str
    description: str


CLUSTER_NAME = f"{{{{ with or $labels.{CLUSTER} $externalLabels.{CLUSTER} }}}} in cluster {{{{ . }}}}{{{{ end }}}}"
"""The cluster stands on the series where many are evaluated together, else in Prometheus' external labels."""
MADE_UP = '{{ if and $labels.data (ne $labels.data "measured") }} ({{ $labels.data }}){{ end }}'
PROVENANCE = (
    '{{ if and $labels.data (ne $labels.data "measured") }} These figures are {{ $labels.data }}: they were not '
    "measured on this hardware.{{ end }}"
)
SHARE = "{{ $value | humanizePercentage }}"
PROFILE_NAME = "{{ $labels.profile_namespace }}/{{ $labels.profile }}"
NODE_NAME = f"Node {{{{ $labels.node }}}} of pool {{{{ $labels.pool }}}} (profile {PROFILE_NAME}){CLUSTER_NAME}"
POOL_NAME = f"Pool {{{{ $labels.pool }}}} (profile {PROFILE_NAME}){CLUSTER_NAME}"
INSTALLATION_NAME = f"{{{{ with $labels.namespace }}}} in namespace {{{{ . }}}}{{{{ end }}}}{CLUSTER_NAME}"
