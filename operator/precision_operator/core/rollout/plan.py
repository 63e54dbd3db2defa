"""What to do now: one frozen value in, one frozen value out. A dry run is this plan, printed.

Each matched node of each profile gets a stand (where it is, and why); each action carries the reason that it is taken
for. Applied twice, a plan changes nothing: what is started, collected or dropped is seen in the next `Observed`.
"""

from __future__ import annotations

from dataclasses import dataclass

from precision_operator.core.observe.observed import Observed
from precision_operator.core.rollout.actions import Action
from precision_operator.core.rollout.admission import admit
from precision_operator.core.rollout.cleanup import cleanup
from precision_operator.core.rollout.node_state import ProfilePlan, draft


@dataclass(frozen=True)
class Plan:
    """All profiles at once: two of them must not pick the same node."""

    profiles: tuple[ProfilePlan, ...]
    actions: tuple[Action, ...]
    nodes_to_probe: tuple[str, ...]
    """Nodes that would start an agent if they are idle: look, and plan again."""


def plan(observed: Observed) -> Plan:
    """The plan for everything that is seen."""
    admission = admit([draft(profile, observed) for profile in observed.profiles], observed)
    return Plan(admission.plans, (*cleanup(observed, admission.plans), *admission.starts), admission.nodes_to_probe)
