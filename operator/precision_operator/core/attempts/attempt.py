"""Each attempt that has a Job, with all that bears on what becomes of it: looked up once, for all who end attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from precision_api.kinds.profile import ProfileSpec
from precision_operator.core.attempts.actions import DEFAULT_KEEPING, Keeping
from precision_operator.core.attempts.node_state import ProfilePlan
from precision_operator.core.attempts.places import End, end_of
from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import NO_REPORTS, JobView, Observed, PodView, ReportView, Settings


@dataclass(frozen=True)
class Attempt:
    """One attempt; `facts` are None where its node is gone, `owner` and `spec` where its profile is."""

    job: JobView
    pod: PodView | None
    report: ReportView | None
    owner: ProfilePlan | None
    settings: Settings

    @property
    def facts(self) -> NodeFacts | None:
        return self.owner.nodes.get(self.job.node_uid) if self.owner is not None else None

    @property
    def spec(self) -> ProfileSpec | None:
        return self.owner.profile.spec if self.owner is not None else None

    @property
    def keeping(self) -> Keeping:
        """What the profile says about failures and the past."""
        return DEFAULT_KEEPING if self.spec is None else Keeping(self.spec.rollout.retry, self.spec.retention)

    @cached_property
    def end(self) -> End | None:
        """Its next end while its result isn't there."""
        return end_of(self.job, self.pod, self.facts, self.spec, self.settings)


def attempts(observed: Observed, plans: Sequence[ProfilePlan]) -> tuple[Attempt, ...]:
    """Those of all Jobs, in their order."""
    by_uid = {plan.profile.uid: plan for plan in plans}
    pods = {pod.job_uid: pod for pod in observed.pods}
    return tuple(
        Attempt(
            job=job,
            pod=pods.get(job.uid),
            report=observed.reports_of.get(job.profile_uid, NO_REPORTS).get(job.node_uid),
            owner=by_uid.get(job.profile_uid),
            settings=observed.settings,
        )
        for job in observed.jobs
    )
