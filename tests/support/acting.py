"""An actor in a fake cluster, and the start of an agent that it is tried with."""

from dataclasses import replace
from datetime import UTC, datetime

from precision_api.exchange.wire import encode
from precision_api.facts import names
from precision_api.kinds.report import ReportAttempt, ReportRun, ReportStatus
from precision_operator.cluster import ApiError, paths
from precision_operator.core.attempts.actions import Collect, Start
from precision_operator.core.observe.observed import JobView, PodView, ReportView
from precision_operator.core.observe.views import job_view, pod_view, report_view
from precision_operator.core.plan import plan
from precision_operator.shell.acting.act import Actor
from precision_operator.shell.observing.cache import Cache, ObjectKind
from precision_operator.shell.observing.refusals import RefusedCreations
from tests.support.fake_cluster import FakeCluster, agent_pod
from tests.support.result_objects import result
from tests.support.world import nodes, observed, profile

OWNER = profile()
JOBS, REPORTS, PODS, DETAILS = paths.jobs("ml"), paths.reports("ml"), paths.pods("ml"), paths.config_maps("ml")
INTERNAL = ApiError(500, "InternalError", "etcd is not well")


def start() -> Start:
    action = plan(observed([OWNER], nodes("n1"))).actions[0]
    assert isinstance(action, Start)
    return action


START = start()
JOB_NAME = START.job["metadata"]["name"]
REPORT_NAME = names.report_name("nightly", "uid-n1")


class Scene:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cache = Cache()
        self.refusals = RefusedCreations()
        self.actor = Actor(self.cluster, self.cache, self.refusals)  # type: ignore[arg-type]

    def refused(self) -> tuple[str, str, str]:
        """Reason, stage and words of what the cluster refused to n1."""
        found = self.refusals.standing(observed([OWNER], nodes("n1")))[OWNER.uid, "uid-n1"]
        return found.reason, found.stage, found.words

    async def started(self) -> JobView:
        assert await self.actor.act([START]) == 0
        return self.job()

    def job(self) -> JobView:
        view = job_view(self.cluster.objects[f"{JOBS}/{JOB_NAME}"])
        assert view is not None
        return view

    def report(self) -> ReportView:
        view = report_view(self.cluster.objects[f"{REPORTS}/{REPORT_NAME}"])
        assert view is not None
        return view

    def attempt(self) -> ReportAttempt:
        attempt = self.status().attempt
        assert attempt is not None
        return attempt

    def status(self) -> ReportStatus:
        status = self.report().status
        assert status is not None
        return status

    def run(self) -> ReportRun:
        run = self.status().run
        assert run is not None
        return run

    async def collected(self, job: JobView, pod: PodView | None) -> int:
        """How many actions have failed where the ended attempt was to be collected into its report."""
        return await self.actor.act([Collect(job, pod, self.report(), "pool-1")])

    async def ended(
        self, phase: str = "Succeeded", message: bytes | None = None, long_ago: bool = False
    ) -> tuple[JobView, PodView]:
        """The agent has ended with a good result, unless told otherwise; its pod and log are there."""
        at = datetime(2026, 1, 1, tzinfo=UTC) if long_ago else datetime.now(UTC)
        job = replace(await self.started(), finished="Complete", finished_at=at)
        published = encode(result(run=job.run, request_hash=job.request_hash, node="n1"))
        text = (published.message if message is None else message).decode()
        state = {"terminated": {"exitCode": 0, "message": text}} if phase != "Running" else {"running": {}}
        stored = await self.cluster.create(PODS, agent_pod(self.cluster.objects[f"{JOBS}/{job.name}"], phase, state))
        self.cluster.logs[f"{job.name}-x"] = "\n".join(published.lines).encode()
        pod = pod_view(stored)
        assert pod is not None
        return job, pod

    def held(self, kind: ObjectKind) -> list[str]:
        return [it.name if kind == "reports" else it["metadata"]["name"] for it in self.cache.all(kind).values()]

    def asked(self, method: str) -> list[str]:
        return [path for how, path in self.cluster.requests if how == method]
