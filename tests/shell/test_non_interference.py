"""What a tenant makes changes nothing for others: through the whole operator, and in the exporter's lines."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from precision_api.facts.names import AGENT_APP, LABEL_APP, LABEL_ATTEMPT, LABEL_NODE_UID
from precision_api.facts.names import ANNOTATION_NODE as NODE
from precision_operator.cluster import ApiError, paths
from precision_operator.core.admission import turns
from precision_operator.core.attempts.actions import Start
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import FleetLimits
from precision_operator.core.observe.observed import Occupancy
from precision_operator.core.plan import Plan, plan
from precision_operator.exporter.families import pools
from precision_operator.shell import reconcile
from precision_operator.shell.observing import gather, reader
from tests.support.fake_cluster import agent_pod
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.non_interference.hostile_objects import DRIVER, TENANT, Device
from tests.support.non_interference.in_memory import check_in_memory
from tests.support.operator_in_memory import OperatorInMemory
from tests.support.world import MINUTE, SETTINGS

TABLES = beside(__file__)

WORLDS = 100


def test_what_lies_in_other_namespaces_and_their_lines_are_the_same_with_objects_and_shadow() -> None:
    assert check_in_memory(range(WORLDS)).differing == {}


def test_pools_that_name_another_namespace_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    of_each = pools._nodes_of
    monkeypatch.setattr(pools, "_nodes_of", lambda it: dict.fromkeys(of := of_each(it), min(of.values(), default="")))
    assert check_in_memory(range(16)).differing


async def test_the_leader_remembers_whose_agents_got_no_node() -> None:
    loop = OperatorInMemory("n1", namespaces=("ml", TENANT))
    loop.cluster.created = format_time(datetime.now(UTC) - 2 * MINUTE)
    await loop.begin("theirs", TENANT)
    assert not (await loop.gatherer.observe()).vain
    await loop.begin("nightly")
    assert (loop.jobs(TENANT).keys(), loop.jobs().keys()) == (set(), {"n1"})
    assert [*(await loop.gatherer.observe()).vain] == [TENANT]


async def test_a_leader_remembers_jobs_that_a_tenant_deletes_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = OperatorInMemory("n1", namespaces=("ml", TENANT))
    loop.cluster.created = format_time(datetime.now(UTC) - MINUTE / 2)
    loop.apply("theirs", TENANT)
    put = loop.cache.put  # a watch has shown the Job's end before the creation is answered
    there, path = loop.cluster.objects, f"{paths.jobs(TENANT)}/"
    ends = {"jobs": lambda kind, raw: there.pop(path + raw["metadata"]["name"])}
    monkeypatch.setattr(loop.cache, "put", lambda kind, raw: ends.get(kind, put)(kind, raw))
    await loop.once()
    assert (await loop.gatherer.observe()).vain[TENANT].spent >= MINUTE / 2


async def test_a_pod_that_names_an_ended_job_of_another_namespace_is_not_its_agent() -> None:
    loop = OperatorInMemory("n1", "n2", namespaces=("ml", TENANT))
    await loop.begin("nightly")
    loop.run_agents()
    ended = loop.jobs()["n1"]["metadata"]
    _make_pod(loop, f"{paths.pods(TENANT)}/m", ended["uid"], "n2", {"nvidia.com/gpu": "1"})
    loop.end_agent("n1")
    for _ in range(3):
        await loop.once()
    assert {row["reason"]: row["count"] for row in loop.status("nightly")["reasons"]}["Busy"] == 1


@pytest.mark.parametrize(
    ("node", "asked", "claim", "holds"),
    TABLES["pods_by_hand"],
)
async def test_a_pod_by_hand_of_a_gone_job_keeps_its_place_only_with_gpus_of_its_node(
    node: str, asked: dict[str, str], claim: str | None, holds: bool
) -> None:
    loop = OperatorInMemory("n1", "n2", namespaces=("ml", TENANT))
    claims = paths.collection("resource.k8s.io/v1", "resourceclaims", TENANT)
    for name, at in (("here", "n1"), ("elsewhere", "n2")):
        loop.cluster._store(f"{claims}/{name}", Device(DRIVER, at, "gpu-0").claim)
    loop.gatherer._refusals.made["gone"] = (TENANT, "n1")
    _make_pod(loop, f"{paths.pods(TENANT)}/m", "gone", node, asked, *filter(None, [claim]))
    await loop.once()
    seen = await loop.gatherer.observe()
    assert ([pod.holds_gpus for pod in seen.pods], "gone" in seen.own_jobs) == ([holds], holds)
    assert loop.gatherer._refusals.made.keys() == ({"gone"} if holds else set())


async def test_a_start_waits_for_few_in_vain_and_all_have_a_turn_in_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(turns, "MOST_IN_VAIN", 4)
    monkeypatch.setattr(reconcile, "plan", lambda *seen: plans.append(plan(*seen)) or plans[-1])
    loop = OperatorInMemory("n1", "n2", namespaces=("ml", "others"))
    for number in range(9):
        loop.apply(f"vain-{number}", "others", rollout={"powerBudgetWatts": 1})
    await loop.begin("ours", "ml", target={"nodeNames": ["n1"]})
    starts = [(outcome.cut, any(isinstance(action, Start) for action in outcome.actions)) for outcome in plans]
    asked = [[row.reason for item in outcome.profiles for row in item.node_states] for outcome in plans]
    assert [reasons.count("PowerBudgetTooSmall") for reasons in asked] == [4, 4, 18, 18]
    assert starts == [(True, False), (True, True), (False, False), (False, False)]
    reasons = [row for number in range(9) for row in loop.status(f"vain-{number}", "others")["reasons"]]
    assert [(row["reason"], row["count"]) for row in reasons] == [("PowerBudgetTooSmall", 2)] * 9


async def test_a_start_waits_for_no_more_candidates_than_a_pass_has_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []
    for module in (turns, reconcile):
        monkeypatch.setattr(module, "LOOKS_PER_PASS", 2)
    monkeypatch.setattr(reconcile, "plan", lambda *seen: plans.append(plan(*seen)) or plans[-1])
    loop = OperatorInMemory(*(f"n{number}" for number in range(5)), namespaces=("ml",))
    await loop.begin("ours", "ml", rollout={"maxConcurrent": 5})
    told = [(p.cut, sum(isinstance(a, Start) for a in p.actions), len(p.nodes_to_probe)) for p in plans]
    assert told == [(True, 0, 2), (True, 2, 0), (False, 0, 3)]


async def test_starts_and_statuses_wait_for_no_looks_at_busy_nodes_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "ROUNDS", 4)
    nodes = [f"n{number}" for number in range(20)]
    loop = OperatorInMemory(*nodes, "own", namespaces=("ml", TENANT))
    looks: list[bool] = []

    async def occupancy(node: str, *_: object) -> Occupancy:
        looks.append("own" in loop.jobs("ml"))
        return Occupancy(None if node == "own" else "prod/train", 8)

    monkeypatch.setattr(loop.gatherer._reader, "occupancy", occupancy)
    loop.apply("slow", TENANT, target={"nodeNames": nodes}, rollout={"maxConcurrent": 1})
    await loop.begin("ours", "ml", target={"nodeNames": ["own"]})
    assert (looks, loop.status("ours", "ml")["nodes"]["running"]) == ([False] * 2 + [True] * 4, 1)
    for count in (10, 14, 18, 21):
        loop.cache.changed.clear()
        seen, decided, _ = await loop.reconciler._act()
        pauses = decided.look_again_at == seen.now + MINUTE / 60
        assert (len(looks), loop.cache.changed.is_set(), pauses) == (count, False, count < 21)


async def test_looks_go_on_where_they_stopped_and_reach_idle_nodes_behind_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "ROUNDS", 4)
    monkeypatch.setattr(gather, "BUSY_SECONDS", 0.0)  # as where there are more nodes than looks in that time
    loop = OperatorInMemory(*[f"n{number:02}" for number in range(20)])
    seen = {True: Occupancy(None), False: Occupancy("prod/train", 8)}
    monkeypatch.setattr(loop.gatherer._reader, "occupancy", lambda node, *_: asyncio.sleep(0, seen[node == "n19"]))
    loop.apply("ours", rollout={"maxConcurrent": 1})
    started = [await loop.once() and len(loop.jobs()) for _ in range(20 // 4)]
    assert started == [0, 0, 0, 0, 1], "four looks a pass"


async def test_a_busy_node_is_looked_at_after_20_40_and_up_to_320_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, gatherer, now, looks = asyncio.get_running_loop(), OperatorInMemory("n1").gatherer, [0.0], [0.0]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    holders = ["prod/train"] * 8 + [None, "prod/train"]
    monkeypatch.setattr(gatherer._reader, "occupancy", lambda *_: asyncio.sleep(0, Occupancy(holders.pop(0), 8)))
    await gatherer.probe(["n1"])
    while holders:
        now[0] += 10
        if "n1" not in (await gatherer.observe()).occupancy:
            looks.append(now[0])
            await gatherer.probe(["n1"])
    gaps = [after - before for before, after in pairwise(looks)]
    assert gaps == [20, 40, 80, 160, 320, 320, 320, 320, 10], "an idle one may start, and is new when busy again"
    assert gatherer._busy == {"n1": 20}


async def test_a_look_that_is_slow_or_refused_with_429_halves_looks_and_starts_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, gatherer, now = asyncio.get_running_loop(), OperatorInMemory("n1", "n2").gatherer, [0.0]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    monkeypatch.setattr(gather, "MOST_REST_SECONDS", 0.0)

    async def occupancy(node: str, *_: object) -> Occupancy:
        if node == "n2":
            raise ApiError(429, "TooManyRequests", "LIST", retry_after=30)
        now[0] += 1.0
        return Occupancy(None)

    monkeypatch.setattr(gatherer._reader, "occupancy", occupancy)
    for nodes, seen in ((["n1", "n2"], {"n1"}), (["n1"], {"n1"})):
        assert gatherer.at_once(32) == 32
        assert (await gatherer.probe(nodes)).keys() == seen, "the others have theirs"
        assert gatherer.at_once(32) == 16
        now[0] += 60.0
    with pytest.raises(ApiError, match="LIST"):
        await gatherer.probe(["n2"])


async def test_jobs_that_no_watch_shows_are_asked_for_by_turns_and_each_that_is_gone_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "OWN_JOBS", 4)
    monkeypatch.setattr(reader, "FRESH_SECONDS", 0.0)
    nodes = [f"n{number}" for number in range(9)]
    loop = OperatorInMemory(*nodes, "own", namespaces=(TENANT, "ml"))
    loop.apply("theirs", TENANT, target={"nodeNames": nodes}, rollout={"maxConcurrent": 9})
    loop.apply("ours", target={"nodeNames": ["own"]})
    await loop.once()
    for path, job in [row for row in loop.cluster.objects.items() if "/jobs/" in row[0]]:
        job["metadata"]["labels"][LABEL_APP] = "x"
        job["metadata"] |= {"deletionTimestamp": "now"} if job["metadata"]["annotations"][NODE] == "n0" else {}
        loop.cluster._store(path, job)

    async def asked() -> list[str]:
        loop.cluster.requests.clear()
        await loop.once()
        return [path for method, path in loop.cluster.requests if method == "GET" and "/jobs/" in path]

    asked_for = [await asked() for _ in range(3)]
    assert [len(paths) for paths in asked_for] == [4] * 3
    assert len({path for paths in asked_for for path in paths}) == 9 + 1, "the tenant's nine, and each time the other"
    assert (len(loop.jobs(TENANT)), len(loop.jobs())) == (9, 1), "each counts on"
    for node, job in loop.jobs(TENANT).items():
        pod = agent_pod(job, "Failed", {"terminated": {"exitCode": 1}})
        pod["metadata"]["labels"][LABEL_APP] = AGENT_APP
        loop.cluster._store(f"{paths.pods(TENANT)}/{node}", pod)
        del loop.cluster.objects[f"{paths.jobs(TENANT)}/{job['metadata']['name']}"]
    loop.apply("theirs", TENANT, suspend=True)
    loop.end_agent("own")
    gone = [path for _ in range(4) for path in await asked() if TENANT in path]
    assert len(gone) == len({*gone}) == 9
    assert await asked() == [], "of those that it has deleted the leader asks for none"


async def test_a_job_that_is_lost_or_made_while_another_is_asked_for_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = OperatorInMemory("n1", "n2")
    loop.apply("ours", rollout={"maxConcurrent": 2})
    await loop.once()
    first, second = loop.jobs().values()
    third = first["metadata"] | {"uid": "made-meanwhile", "resourceVersion": "1"}
    get, put, drop, own = loop.cluster.get, loop.cache.put, loop.cache.drop, loop.gatherer._refusals.own
    acts = [lambda: drop("jobs", second["metadata"]["uid"], 10**9)]
    later = [lambda: own("n3", third), lambda: put("jobs", first | {"metadata": third})]
    monkeypatch.setattr(loop.cluster, "get", lambda path: [act() for act in acts] and get(path))
    monkeypatch.setattr(loop.gatherer, "_with_claims", lambda _: [act() for act in later] and asyncio.sleep(0, set()))
    drop("jobs", first["metadata"]["uid"], 10**9)
    for _ in range(2):
        assert len((await loop.gatherer.observe()).own_jobs) == 3


@pytest.mark.parametrize("by_new_leader", [False, True])
@pytest.mark.parametrize("lie", [{}, {LABEL_NODE_UID: "uid-cpu"}, {LABEL_ATTEMPT: "x"}, {LABEL_APP: "x"}])
async def test_own_jobs_count_by_what_was_made_whatever_they_say(lie: dict[str, str], by_new_leader: bool) -> None:
    loop = OperatorInMemory("n1", "n2", "n3", namespaces=(TENANT,))
    loop.cluster.created = format_time(datetime.now(UTC) - 60 * MINUTE)
    loop.cluster._store(f"{paths.NODES}/cpu", node_object({}, name="cpu", gpus=None))
    loop.apply("theirs", TENANT, rollout={"maxConcurrent": 3})
    for turn in range(3):
        loop.gatherer._settings = replace(SETTINGS, fleet_limits=FleetLimits(power_budget_watts=8 * 700))
        await loop.once()
        for job in loop.jobs(TENANT).values():
            job["metadata"]["labels"] |= lie if turn or not by_new_leader or LABEL_NODE_UID in lie else {}
            loop.cluster._store(f"{paths.jobs(TENANT)}/{job['metadata']['name']}", job | {"spec": {"suspend": True}})
        if by_new_leader and turn == 0:
            loop = OperatorInMemory(namespaces=(TENANT,), cluster=loop.cluster)
    assert len(loop.jobs(TENANT)) == 1


async def test_a_job_that_ends_in_a_leaders_first_look_stops_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = OperatorInMemory("n1")
    await loop.begin("ours")
    loop = OperatorInMemory(cluster=loop.cluster)

    async def meanwhile(_: object) -> set[str]:
        for uid in list(loop.cache.all("jobs")):
            loop.cache.drop("jobs", uid)
        return set()

    monkeypatch.setattr(loop.gatherer, "_with_claims", meanwhile)
    await loop.once()
    assert loop.jobs()


async def test_claims_of_agents_are_read_by_turns_and_a_new_pod_is_as_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "OWN_READ", 2)
    loop = OperatorInMemory("n1", namespaces=(TENANT, "ml"))
    await loop.once()
    made = {"t0": (TENANT, "n1"), "t1": (TENANT, "n1"), "t2": (TENANT, "n1"), "own": ("ml", "n1")}
    for job, (namespace, node) in made.items():
        _make_pod(loop, f"{paths.pods(namespace)}/{job}", job, node, {}, "a", "b")
    for held in ({"t1", "t2", "own"}, {"t1", "t2"}, {"t2"}):
        loop.gatherer.forget_idle()
        loop.gatherer._refusals.made |= made
        await loop.list_everything()
        assert {pod.name for pod in (await loop.gatherer.observe()).pods if pod.holds_gpus} == held
        _make_pod(loop, f"{paths.pods(TENANT)}/t0", "t0", "n1", {}, "a", "b")


def _make_pod(loop: OperatorInMemory, path: str, job: str, node: str, asked: dict[str, str], *claims: str) -> None:
    """A running pod by hand that bears the labels of a Job's agent."""
    labels = {"app.kubernetes.io/name": "precision-agent", "batch.kubernetes.io/job-name": job}
    labels |= {"batch.kubernetes.io/controller-uid": job, "precisionprofiler.io/profile-uid": "any"}
    rows = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    spec = {"nodeName": node, "resourceClaims": rows, "containers": [{"name": "agent", "resources": {"limits": asked}}]}
    meta = {"name": path.split("/")[-1], "namespace": path.split("/")[-3], "labels": labels}
    loop.cluster._store(path, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
