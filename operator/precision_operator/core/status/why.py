"""Why a node stands where it stands, profile by profile: the plan's own words, and what led there."""

from collections.abc import Iterator
from dataclasses import dataclass

from precision_api.facts import names
from precision_api.facts.plain_text import three_digits
from precision_api.facts.recipes import mixture_text, risks_of
from precision_api.kinds.profile import Condition
from precision_api.kinds.report import Quarantine, ReportAcceptance, ReportAttempt
from precision_operator.core.admission.blockers import Wait
from precision_operator.core.admission.budget_view import Agent
from precision_operator.core.admission.limits import LIMITS
from precision_operator.core.admission.others import LOST
from precision_operator.core.attempts.actions import Close, Start
from precision_operator.core.attempts.node_state import AcceptedPlan, NodeState, ProfilePlan, newest_attempt
from precision_operator.core.attempts.yielding import told
from precision_operator.core.eligibility.checks import mismatch
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.nodes import Way, node_facts
from precision_operator.core.observe.observed import Observed, ProfileView, ReportView
from precision_operator.core.observe.tenants import held_nodes
from precision_operator.core.plan import Plan
from precision_operator.core.reasons import REASONS, Kind, Said, said
from precision_operator.core.results.outliers import Peers
from precision_operator.core.results.reading import provenance_of, read_rows
from precision_operator.core.results.slowness import PeerComparison, beside_peers
from precision_operator.core.status.node_readings import peers_of_all, readings

BLOCKERS_SHOWN = 5


@dataclass(frozen=True)
class Past:
    """What a node's report tells; all None where there is none."""

    report: str | None = None
    """Its name."""
    attempt: ReportAttempt | None = None
    """The newest attempt that ended, with its own reason and message."""
    result_at: str | None = None
    """When the newest good result came in."""
    best: str | None = None
    """Its best recipe in words, with TFLOP/s per GPU."""
    no_best: str | None = None
    """Why it has none, where a result says so."""
    risk: str | None = None
    """What speaks against training in it, as a sentence."""
    data: str | None = None
    """What that result rests on: measured, replayed, simulated or trial."""
    stale: Condition | None = None
    """The condition Fresh where it is False."""
    quarantine: Quarantine | None = None
    detail_problem: str | None = None
    """Why the full result of that good result is missing, where it is."""
    acceptance: ReportAcceptance | None = None
    """The verdict, where the profile asks for one."""


NOTHING = Past()


@dataclass(frozen=True)
class NodeAnswer:
    """Where one node stands in one profile: `reason` and `message` are the plan's."""

    profile: ProfileView
    reason: str
    message: str
    job: str | None = None
    """Name of the Job that is on the node for this profile."""
    due: str | None = None
    """Why the node is measured (again); None: its run is not out of date."""
    due_message: str = ""
    past: Past = NOTHING
    standing: PeerComparison | None = None
    """None where the node has no figure of this run, or too few peers."""
    no_peers: str = ""
    """Why it is compared with nobody, though it has a figure."""
    blocked_by: tuple[str, ...] = ()
    """Pods, nodes or profiles that stand in the way, by name."""
    yielded: tuple[str, ...] = ()
    """What came of agents on the node that were ended for pods of others within the last hour, in words."""
    gpus: int = 0
    """GPUs that an agent can ask for."""
    way: Way | None = None
    """How it asks for them; None where the node is gone, is not matched, or offers none."""

    @property
    def kind(self) -> Kind:
        return REASONS[self.reason].kind

    @property
    def judged(self) -> bool:
        """Whether the operator has seen the profile as it is now."""
        return self.profile.status.get("observedGeneration") == self.profile.generation


def why(decided: Plan, observed: Observed, node: str) -> tuple[NodeAnswer, ...]:
    """An answer for each profile, those that match the node first; empty where neither node nor report has this name.

    A node that has gone is answered for by what is left of it: its reports and Jobs.
    """
    peers = peers_of_all(decided.profiles, observed)
    answers = [answer for plan in decided.profiles for answer in _answers(plan, decided, observed, node, peers)]
    return tuple(sorted(answers, key=lambda answer: (answer.kind == "unmatched", answer.profile.key)))


def _answers(plan: ProfilePlan, decided: Plan, observed: Observed, node: str, peers: Peers) -> Iterator[NodeAnswer]:
    uid = next((uid for uid, raw in observed.nodes.items() if raw["metadata"]["name"] == node), None)
    if uid is None:
        yield from _of_gone_node(plan, decided, observed, node)
        return
    node_state = next((node_state for node_state in plan.node_states if node_state.facts.uid == uid), None)
    if node_state is None:
        yield _unmatched(plan, observed, uid)
        return
    what = _closing(plan, decided, uid) or node_state
    mine, spec = [reading for reading in readings(plan) if reading.node == node], plan.profile.spec
    percent = spec.thresholds.slow_node_percent if spec is not None else 0
    standing, alone = beside_peers(peers, mine, percent, plan.profile.namespace, plan.profile.name)
    begins = node_state.current.begins if node_state.current is not None else None
    yield NodeAnswer(
        profile=plan.profile,
        reason=what.reason,
        message=what.message,
        job=_job(plan, observed, uid),
        due=begins.reason if begins is not None else None,
        due_message=begins.message if begins is not None else "",
        blocked_by=_blockers(plan, decided, observed, node_state),
        past=_past(node_state.report),
        standing=standing,
        no_peers=alone,
        yielded=tuple(f"{format_time(record.at)}, {told(record)}" for record in plan.yields if record.node_uid == uid),
        gpus=node_state.facts.gpus,
        way=node_state.facts.way if node_state.facts.gpus else None,
    )


def _unmatched(plan: ProfilePlan, observed: Observed, uid: str) -> NodeAnswer:
    """The profile doesn't mean the node, or can't be read, so that nobody knows which nodes it means."""
    spec, profile = plan.profile.spec, plan.profile
    mine = (r for r in observed.reports if (r.profile_uid, r.node_uid) == (profile.uid, uid))
    job, past = _job(plan, observed, uid), _past(next(mine, None))
    if spec is None:
        why_not = plan.asked.message if isinstance(plan.asked, Said) else profile.problem
        what = said("ProfileNotAccepted", why=why_not)
    else:
        facts = node_facts(observed.nodes[uid], spec.pool_label, observed.slices)
        what = said("NotMatched", why=mismatch(spec.target, facts))
    return NodeAnswer(profile, what.reason, what.message, job=job, past=past)


def _of_gone_node(plan: ProfilePlan, decided: Plan, observed: Observed, node: str) -> Iterator[NodeAnswer]:
    mine = [r for r in observed.reports if r.profile_uid == plan.profile.uid and r.node_name == node]
    jobs = [j for j in observed.jobs if j.profile_uid == plan.profile.uid and j.node_name == node]
    for uid in dict.fromkeys([*(job.node_uid for job in jobs), *(report.node_uid for report in mine)]):
        closing = _closing(plan, decided, uid)
        what = closing.said if closing is not None else said("NodeGone", node=node)
        yield NodeAnswer(
            profile=plan.profile,
            reason=what.reason,
            message=what.message,
            job=_job(plan, observed, uid),
            past=_past(next((report for report in mine if report.node_uid == uid), None)),
        )


def _past(report: ReportView | None) -> Past:
    status = report.status if report is not None else None
    if report is None or status is None:
        return Past(report.name) if report is not None else NOTHING
    best = [result for result in status.results if result.recipe == status.best_recipe]
    failures = (row.failure for row in read_rows(status.results, "bf16").values() if row.failure and not best)
    rate = [f"{three_digits(float(rate))} TFLOP/s per GPU" for rate in [status.teraflops_per_gpu] if rate]
    return Past(
        report=report.name,
        attempt=newest_attempt(report),
        result_at=status.run.finished_at if status.run is not None else None,
        best=status.best and ", ".join((status.best, *rate, *filter(None, [mixture_text(status.best_recipe or "")]))),
        no_best=next(failures, None),
        risk=next(iter(risks_of((r.recipe, r.last_layers_bf16) for r in best)), None),
        data=provenance_of(status.run) if status.run is not None else None,
        stale=next((c for c in status.conditions if c.type == names.FRESH and c.status == "False"), None),
        quarantine=status.quarantine,
        detail_problem=status.run.detail_problem if status.run is not None else None,
        acceptance=status.acceptance,
    )


def _job(plan: ProfilePlan, observed: Observed, node_uid: str) -> str | None:
    mine = (job.name for job in observed.jobs if (job.profile_uid, job.node_uid) == (plan.profile.uid, node_uid))
    return next(mine, None)


def _closing(plan: ProfilePlan, decided: Plan, node_uid: str) -> Close | None:
    """The end that the plan is about to give an attempt that can't succeed any more."""
    closes = (action for action in decided.actions if isinstance(action, Close))
    return next((c for c in closes if (c.job.profile_uid, c.job.node_uid) == (plan.profile.uid, node_uid)), None)


def _agents(decided: Plan, observed: Observed, namespace: str) -> tuple[Agent, ...]:
    """All agents of the namespace, and those of others that hold a node."""
    held = held_nodes(observed)
    keys = {profile.uid: profile.key for profile in observed.profiles}
    live = (job for job in observed.jobs if job.live and (job.namespace == namespace or job.uid in held))
    running = [Agent(j.profile_uid, j.namespace, j.node_uid, keys.get(j.profile_uid, LOST), j.node_name) for j in live]
    starting = [
        Agent(start.profile.uid, start.profile.namespace, start.facts.uid, start.profile.key, start.facts.name)
        for start in decided.actions
        if isinstance(start, Start)
    ]
    return tuple(sorted((*running, *starting), key=lambda agent: (agent.node, agent.profile)))


def _blockers(plan: ProfilePlan, decided: Plan, observed: Observed, node_state: NodeState) -> tuple[str, ...]:
    limit = LIMITS.get(node_state.reason)
    if limit is None or limit.blockers is None or not isinstance(plan, AcceptedPlan):
        return ()
    failed = [f"{other.facts.name} ({other.reason})" for other in plan.node_states if other.state == "failed"]
    if (status := observed.profile_statuses.get(plan.profile.uid)) is not None:
        rows = (row for row in status.reasons if row.reason in REASONS and REASONS[row.reason].kind == "failed")
        failed = [f"{row.example}{f' and {row.count - 1} more' * (row.count > 1)} ({row.reason})" for row in rows]
    wait = Wait(
        profile=plan.profile,
        facts=node_state.facts,
        agents=_agents(decided, observed, plan.profile.namespace),
        nodes=plan.nodes,
        failed_nodes=tuple(failed),
        occupancy=observed.occupancy.get(node_state.facts.name),
        kept_for=kept.pod if (kept := observed.waited_for.get(node_state.facts.uid)) is not None else None,
    )
    blockers = limit.blockers(wait)
    more = len(blockers) - BLOCKERS_SHOWN
    return (*blockers[:BLOCKERS_SHOWN], *([f"{more} more"] if more > 0 else []))
