"""Creates what an agent needs, and remembers what the cluster refused, or did not answer."""

from typing import Any

from precision_operator.cluster import ApiError, Cluster, paths
from precision_operator.core.attempts.actions import Start, Withdraw
from precision_operator.core.attempts.refusal import Answer, classify
from precision_operator.core.observe.observed import JobView, Stage
from precision_operator.core.observe.views import job_view
from precision_operator.shell.acting.collecting import Requeue
from precision_operator.shell.acting.late_writes import delete
from precision_operator.shell.acting.reports import Reports
from precision_operator.shell.observing.cache import TRIM, Cache
from precision_operator.shell.observing.refusals import RefusedCreations, agents_of


class NotCreated(Exception):
    """The cluster said no to a creation: the plan decides when it is tried again."""

    def __init__(self, answer: Answer, stage: Stage) -> None:
        super().__init__(answer.words)
        self.answer = answer
        self.stage = stage


class Starts:
    """Creates reports, ResourceClaimTemplates and Jobs of agents, and takes back Jobs whose pods are refused."""

    def __init__(
        self, cluster: Cluster, cache: Cache, reports: Reports, refusals: RefusedCreations | None = None
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._reports = reports
        self._refusals = refusals or RefusedCreations()
        self.unconfirmed: dict[str, tuple[Start, ApiError]] = {}
        """Creations that may have happened, by Job name, and what came in place of an answer. Cleared by `confirm`."""
        self._templates: set[tuple[str, str]] = set()
        """ResourceClaimTemplates that are there, by namespace and name, as far as this replica knows."""
        self.refused = False
        """Whether the cluster has refused a creation since the last plan was begun: others may go now."""
        self._created_uids: set[str] = set()
        """Of Jobs."""
        self._held: set[str] = set()
        """UIDs of profiles of which a node has been told, since this pass began, what concerns all its nodes."""

    def begin_pass(self) -> None:
        """What was refused in the pass before holds up nobody in this one."""
        self._held.clear()
        self.refused = False
        self._created_uids &= self._cache.all("jobs").keys()

    def is_held(self, start: Start) -> bool:
        """Whether the cluster has refused, in this pass, what concerns all nodes of this one's profile."""
        return start.profile.uid in self._held

    def has_created(self, job: JobView) -> bool:
        """Whether this process has: anybody may write labels, and what was there before it began."""
        return job.uid in self._created_uids

    async def confirm(self) -> None:
        """Find out what became of creations without an answer. Raises ApiError while that can't be told."""
        for name, (start, unanswered) in list(self.unconfirmed.items()):
            try:
                raw = await self._cluster.get(paths.item(paths.jobs(start.profile.namespace), name))
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                # Without the right to look it can't be told: the name keeps a second one from being made.
                self.note_refusal(start, _answer(unanswered if error.status == 404 else error), "Job")
            else:
                self._refusals.own(start.facts.name, TRIM["jobs"](raw)["metadata"] | start.job["metadata"])
                self._created(start, raw)
            del self.unconfirmed[name]

    async def create(self, start: Start) -> None:
        """Create what the attempt needs. Raises NotCreated where the cluster said no: that is remembered."""
        stage: Stage = "report"
        try:
            if start.report is not None:
                await self._reports.create(dict(start.report))
            if start.template is not None:
                stage = "ResourceClaimTemplate"
                await self._create_template(dict(start.template))
            stage = "Job"
            raw = await self._create_job(start)
        except Requeue as reason:
            answer = Answer(str(reason), 409, "NameTaken")
        except ApiError as error:
            answer = _answer(error)
        else:
            self._created(start, raw)
            return
        if start.job["metadata"]["name"] in self.unconfirmed:
            raise Requeue(f"whether its Job was created isn't known: {answer.words}")
        self.note_refusal(start, answer, stage)
        raise NotCreated(answer, stage)

    def note_refusal(self, start: Start, answer: Answer, stage: Stage) -> None:
        """Remember the answer; the next candidate's turn comes at once."""
        agents = agents_of(self._cache.all("jobs"), start.profile.uid)
        if self._refusals.refused((start.profile.uid, start.facts.uid), answer, stage, start.mark, agents):
            self._held.add(start.profile.uid)
        self.refused = True
        self._cache.changed.set()

    async def withdraw(self, action: Withdraw) -> None:
        """Delete a Job of which the cluster refuses the pod, or its claim; that is remembered. Raises ApiError."""
        job = action.job
        await delete(self._cluster, self._cache, "Job", job.namespace, job.name, job.uid)
        agents = agents_of(self._cache.all("pods"), job.profile_uid)
        if action.stage == "ResourceClaim":
            # Its own pod is there, without a claim; somebody may have taken the template.
            agents = max(0, agents - 1)
            self._templates.clear()
        answer = Answer(job.creation_problem)
        self._refusals.refused((job.profile_uid, job.node_uid), answer, action.stage, action.mark, agents)
        self.refused = True
        self._cache.changed.set()

    async def _create_job(self, start: Start) -> dict[str, Any]:
        """The Job, also where it was there already. Raises ApiError; Requeue where another one has its name."""
        collection, name = paths.jobs(start.profile.namespace), start.job["metadata"]["name"]
        try:
            raw = await self._cluster.create(collection, dict(start.job))
            self._refusals.own(start.facts.name, TRIM["jobs"](raw)["metadata"] | start.job["metadata"])
            return raw
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                return await self._ours(start, collection, name)
            if (error.status in (0, 408) or error.status >= 500) and classify(_answer(error)) == "CreationFailed":
                self.unconfirmed[name] = start, error
            raise

    async def _create_template(self, body: dict[str, Any]) -> None:
        """The template of the agent's claim; one that is there is as good if it asks for the same.

        Raises ApiError; Requeue where another one has its name, or it is being deleted.
        """
        meta = body["metadata"]
        collection = paths.collection(body["apiVersion"], "resourceclaimtemplates", meta["namespace"])
        if (meta["namespace"], meta["name"]) in self._templates:
            return
        try:
            await self._cluster.create(collection, body)
        except ApiError as error:
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
            there = await self._cluster.get(paths.item(collection, meta["name"]))
            if there["metadata"].get("deletionTimestamp") or there.get("spec") != body["spec"]:
                raise Requeue(f"another ResourceClaimTemplate of the name {meta['name']} is still there") from error
        self._templates.add((meta["namespace"], meta["name"]))

    def _created(self, start: Start, raw: dict[str, Any]) -> None:
        self._cache.put("jobs", raw)
        self._created_uids.add(raw["metadata"]["uid"])
        key = (start.profile.uid, start.facts.uid)
        self._refusals.accepted_job(key, raw["metadata"]["uid"], self._cache.all("jobs"))
        if (view := job_view(raw)) is not None:
            self._refusals.waited[view.uid] = view

    async def _ours(self, start: Start, collection: str, name: str) -> dict[str, Any]:
        """The Job of that name, if it is this very attempt: then somebody (we, before a crash) has created it."""
        raw = await self._cluster.get(paths.item(collection, name))
        view = job_view(raw)
        wanted = start.job["metadata"]["labels"]
        same = view is not None and raw["metadata"].get("labels", {}).items() >= wanted.items()
        if not same or raw["metadata"].get("deletionTimestamp"):
            kept = f", with finalizers {', '.join(kept)}"[:200] if (kept := raw["metadata"].get("finalizers")) else ""
            raise Requeue(f"another Job of the name {name} is still there{kept}")
        return raw


def _answer(error: ApiError) -> Answer:
    return Answer(error.words, error.status, error.reason, error.causes)
