"""What came of creations, remembered between passes; a restart forgets it, and tries once more."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from statistics import mode

from precision_api.facts.names import LABEL_PROFILE_UID
from precision_operator.core.attempts.refusal import Answer, Refusals, accepted, hold_of, noted, standing
from precision_operator.core.observe.observed import JobView, Observed, PodView, Raw, Stage

MOST = 4096
"""A bound, for a fleet of which each node is refused for a reason of its own; the largest namespace loses an entry."""


class RefusedCreations:
    """By profile UID and node UID; the actor writes it, and what is observed holds what still counts of it."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC), most: int = MOST) -> None:
        self._clock, self._most = clock, most
        self._known: Refusals = {}
        self._homes: Mapping[str, str] = {}
        self._awaited: dict[str, tuple[str, str]] = {}
        """Jobs of ours whose pod, with its claim, has not been seen yet: profile UID and node UID by Job UID."""
        self.made: dict[str, tuple[str, str]] = {}
        """Namespace and node, by UID, of the Jobs that this replica has created, while they or their GPUs are held."""
        self.metas: dict[str, Raw] = {}
        """The metadata that these Jobs were made with, by UID: the labels that they and their pods bear aren't read."""
        self.waited: dict[str, JobView] = {}
        """Own Jobs without a bound pod at the last look, by UID, and those created since."""

    def own(self, node: str, meta: Raw) -> None:
        """A Job is this replica's, for this node."""
        self.made[meta["uid"]], self.metas[meta["uid"]] = (meta["namespace"], node), meta

    def refused(self, key: tuple[str, str], answer: Answer, stage: Stage, mark: str, agents: int) -> bool:
        """Take an answer that was no. Returns whether such answers concern all nodes of the profile."""
        there = noted(self._known, key, answer, stage, mark, agents, self._clock())
        refusals = {other: refusal for other, refusal in self._known.items() if other != key} | {key: there}
        if len(refusals) > self._most:
            largest = mode(self._homes.get(profile) for profile, _ in refusals)
            del refusals[next(other for other in refusals if self._homes.get(other[0]) == largest)]
        self._known = refusals
        return hold_of(refusal for (profile, _), refusal in self._known.items() if profile == key[0]) is not None

    def accepted_job(self, key: tuple[str, str], job_uid: str, jobs: Mapping[str, Raw]) -> None:
        """A Job was created, one of `jobs` by now; its pod may still be refused."""
        if self._known:
            self._known = accepted(self._known, key, "Job", agents_of(jobs, key[0]))
        self._awaited[job_uid] = key

    def seen(self, jobs: Mapping[str, JobView], pods: tuple[PodView, ...]) -> None:
        """Take what the cluster shows: a pod that was awaited is there with its claim, or its Job is gone."""
        for pod in pods:
            if pod.claims and not pod.claims_created:
                continue  # its claim may still be refused
            key = self._awaited.pop(pod.job_uid, None)
            if key is not None and self._known:
                live = sum(other.live for other in pods if other.profile_uid == key[0])
                self._known = accepted(self._known, key, "ResourceClaim" if pod.claims else "pod", live)
        self._awaited = {uid: key for uid, key in self._awaited.items() if uid in jobs}

    def standing(self, observed: Observed) -> Refusals:
        """What still counts; the rest is forgotten."""
        self._homes = {profile.uid: profile.namespace for profile in observed.profiles}
        self._known = standing(self._known, observed)
        return self._known


def agents_of(raws: Mapping[str, Raw], profile_uid: str) -> int:
    """How many of these objects belong to agents of a profile and have not ended."""
    live = (raw for raw in raws.values() if (raw.get("status") or {}).get("phase") not in ("Succeeded", "Failed"))
    return sum((raw["metadata"].get("labels") or {}).get(LABEL_PROFILE_UID) == profile_uid for raw in live)
