"""A profile as the operator serves it: with what its own configuration gives agents whose profile says nothing."""

from __future__ import annotations

from dataclasses import replace

from precision_operator.core.observe.agent_defaults import filled
from precision_operator.core.observe.observed import ProfileView, Settings


def with_operator_defaults(profile: ProfileView, settings: Settings) -> ProfileView:
    """The same profile, its agent's fields filled; one that can't be read stays as it is."""
    return replace(profile, spec=profile.spec and filled(profile.spec, settings.agent_defaults))
