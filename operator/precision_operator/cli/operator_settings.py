"""How operators are configured, and which namespaces they serve, as far as a user may look."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from precision_api.facts.names import DEFAULT_PRIORITY_CLASS
from precision_operator.cli.connection_options import or_if_forbidden
from precision_operator.cluster import Cluster, get_or_none, paths
from precision_operator.core.observe.observed import ProfileView, Settings
from precision_operator.core.observe.stop import strictest
from precision_operator.shell.settings import BINDINGS, OURS, Configured, configured_in, operator_of
from precision_operator.shell.switch import stop_said

UNKNOWN_IMAGE = "the-operators-own"
UNKNOWN_SETTINGS = (
    "which agent image is the operator's own, which it allows, and what it gives agents by default is not judged"
)


@dataclass(frozen=True)
class Operators:
    """The operator that serves a namespace (else any), and the namespaces that some operator serves."""

    serving: Configured
    watched: frozenset[str]


async def configured(cluster: Cluster, namespace: str, notes: list[str]) -> Operators | None:
    """How operators are configured by Deployments that the chart's bindings name, since anybody may make others.

    None: it can't be told. Those of other versions are noted.
    """
    operators: list[Configured] = []
    problems: list[str] = []
    bound, _ = await or_if_forbidden(cluster.list_trimmed(BINDINGS, operator_of, OURS), ([], ""))
    for path in dict.fromkeys(paths.item(paths.deployments(place), name) for place, name in bound):
        deployment = await or_if_forbidden(get_or_none(cluster, path), None)
        if deployment is None:
            continue
        try:
            seen = configured_in(deployment)
        except Exception as error:
            problems.append(f"since its Deployment is of another version than this plugin: {error}")
            continue
        switch = stop_said(cluster, deployment["metadata"]["namespace"], seen.stop_config_map)
        stop = strictest(seen.settings.stop, await or_if_forbidden(switch, None))
        operators.append(replace(seen, settings=replace(seen.settings, stop=stop)))
    if not operators:
        notes.append(f"{UNKNOWN_SETTINGS}, {(problems or ['since its Deployment is not to be seen'])[0]}")
        return None
    serving = next((operator for operator in operators if namespace in operator.namespaces), None)
    if serving is None and problems:
        notes.append(f"{UNKNOWN_SETTINGS}, {problems[0]}")
        return None
    watched = frozenset(name for operator in operators for name in operator.namespaces)
    return Operators(serving or operators[0], watched)


def served_places(
    operators: Operators, profiles: tuple[ProfileView, ...], namespace: str | None, notes: list[str]
) -> tuple[frozenset[str], tuple[ProfileView, ...]]:
    """The namespaces that count - those that the operator serves, and that which is asked for - and profiles there."""
    asked = {namespace} if namespace else set()
    notes += (
        f"nothing starts in {name}: the operator does not watch it (chart value watchNamespaces)"
        for name in asked - set(operators.serving.namespaces)
    )
    only = frozenset({*operators.serving.namespaces, *asked})
    left_out = sorted({profile.namespace for profile in profiles} - only)
    if namespace is None and (others := sorted(operators.watched.intersection(left_out))):
        notes.append(f"profiles of {', '.join(others)} are left out: another operator serves them (ask with -n)")
    if namespace is None and (unwatched := [name for name in left_out if name not in operators.watched]):
        notes.append(f"profiles of {', '.join(unwatched)} are left out: the operator does not watch these namespaces")
    return only, tuple(profile for profile in profiles if profile.namespace in only)


def settings_told_by(profiles: Iterable[ProfileView], asked: ProfileView | None = None) -> Settings:
    """Settings that fit what the operator has said of its profiles: an image counts as allowed unless it was refused.

    The image that the operator takes by default stays unknown; that it has none, a refusal tells. So does `asked`'s,
    which it has said nothing of yet.
    """
    judged = [(profile, _refused_for(profile)) for profile in profiles]
    asking = [*(profile for profile, _ in judged), *([asked] if asked is not None else [])]
    refused = {_image(profile) for profile, reason in judged if reason == "ImageNotAllowed"}
    images = {image for image in map(_image, asking) if image} - refused
    reasons = {reason for _, reason in judged}
    default = "" if "ImageMissing" in reasons else UNKNOWN_IMAGE
    priority_class = DEFAULT_PRIORITY_CLASS if "PriorityClassMissing" in reasons else ""
    return Settings(default, (UNKNOWN_IMAGE, *sorted(images)), priority_class, agent_service_account="")


def _image(profile: ProfileView) -> str:
    return (profile.spec.agent.image if profile.spec is not None else None) or ""


def _refused_for(profile: ProfileView) -> str:
    conditions = profile.status.get("conditions") or []
    return next((str(c.get("reason")) for c in conditions if c.get("type") == "Accepted"), "")


def without_agent_change(profile: ProfileView) -> ProfileView:
    """The same profile, in which an unknown image is not taken for another one."""
    if profile.spec is None or profile.spec.agent.image is not None:
        return profile
    causes = tuple(cause for cause in profile.spec.rerun_on if cause != "AgentChange")
    return replace(profile, spec=profile.spec.model_copy(update={"rerun_on": causes}))
