"""What profiles name beside nodes, and is read for them: texts of ConfigMaps, Kueue queues, references."""

from collections.abc import Collection, Mapping, Sequence

from precision_api.facts.names import grouped
from precision_operator.cluster import ApiError
from precision_operator.core.observe import observed

Profiles = Sequence[observed.ProfileView]
Missing = dict[tuple[str, str, str], ApiError | None]
"""Why what profiles need could not be read, by kind, namespace and name; None: it is being read."""


def texts(profiles: Profiles) -> Mapping[tuple[str, str], Collection[str]]:
    """Keys that profiles take their model's config from, by namespace and name of the ConfigMap."""
    sources = ((p.namespace, p.spec.workload.hugging_face_config) for p in profiles if p.spec is not None)
    refs = ((namespace, s.config_map_key_ref) for namespace, s in sources if s is not None)
    return grouped(((namespace, ref.name), ref.key) for namespace, ref in refs if ref is not None)


def unread_by(profile: observed.ProfileView, missing: Missing) -> tuple[str, str, str] | None:
    """What the profile names and could not be read; None where all was."""
    wanted = [("Events", profile.namespace, ""), *(("ConfigMap", *key) for key in texts([profile]))]
    wanted += [("LocalQueue", *key) for key in queues([profile])]
    return next((key for key in wanted if key in missing and (missing[key] or key[0] != "Events")), None)


def queues(profiles: Profiles) -> set[tuple[str, str]]:
    """(namespace, name) of the Kueue queues that profiles name."""
    named = ((p.namespace, p.spec.agent.queue_name) for p in profiles if p.spec is not None)
    return {(namespace, queue) for namespace, queue in named if queue is not None}


def references(seen: observed.Observed, served: Profiles, jobs: Sequence[observed.JobView]) -> set[tuple[str, str]]:
    """(namespace, name) of the references that a verdict may still be taken against, or lost by."""
    idle = {p.uid for p in served if p.spec and p.spec.suspend}
    filed = (there for (_, uid, _), there in seen.filed.items() if uid in idle)
    kept = ((of.profile_uid, of.status) for there in filed for of in there.values())
    idle -= {uid for uid, status in kept if status and status.acceptance and status.acceptance.verdict == "Pass"}
    idle = (idle | seen.beyond) - {job.profile_uid for job in jobs if job.uid in seen.own_jobs}
    asked = (p for p in served if p.uid not in idle)
    return {(p.namespace, p.spec.acceptance.reference.name) for p in asked if p.spec and p.spec.acceptance}
