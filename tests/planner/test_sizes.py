"""What size and failures do to a job: by published rows that were left out, by simulation, and in plans."""

from statistics import median
from typing import Any

import numpy as np
import pytest

from benchmarks import plan_sizes
from benchmarks.plan_sizes import (
    HELD_OUT,
    QUESTIONS,
    Question,
    Tried,
    asked,
    drawn,
    fitted,
    size_rows,
    size_steps,
    tried,
)
from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.planner.answer.table import lines
from precision_operator.planner.inputs.terms import Failures, Goodput, Repairs
from precision_operator.planner.rates.bands import Z_90, Z_95
from precision_operator.planner.rates.failures import (
    LEAST,
    MOST,
    PER_GPU_HOUR,
    RUN_DAYS,
    progress,
    repair_band,
    share,
    spares,
    waits,
)
from precision_operator.planner.rates.size_law import NOT_KNOWN, Sized
from tests.support.fleets import UNMEASURED, answered, declared, fleet, job, node, pool, rate, workload
from tests.support.golden import beside

OURS: dict[str, Any] = {"scaling": [], "goodput": None}
"""Neither scaling nor goodput is given: published jobs and failures tell."""
H100 = {"name": "H100", "nodes": 16, "spareNodes": 0}
PLANS = beside(__file__)


@pytest.fixture(scope="module")
def left_out() -> list[Tried]:
    """Every published step without its own (model, product)."""
    return tried("pairs")


def test_the_law_is_that_of_the_published_rows_and_the_hold_out_that_of_the_draw() -> None:
    assert plan_sizes.OUT.read_text() == plan_sizes.document(fitted(size_rows()))
    assert drawn() == HELD_OUT


@pytest.mark.parametrize(
    ("kind", "way", "held", "width"),
    [
        ("large dense", "unchanged", 0.90, 1.12),
        ("experts", "unchanged", 0.90, 1.12),
        ("small dense", "unchanged", 0.90, 1.25),
        ("large dense", "falling", 0.90, 1.15),
        ("small dense", "falling", 0.88, 2.5),
        ("experts", "falling", 0.88, 2.0),
    ],
)
def test_bands_hold_steps_of_pairs_that_were_left_out(
    left_out: list[Tried], kind: str, way: str, held: float, width: float
) -> None:
    mine = [step for step in left_out if step.group == f"{kind}, tokens of a GPU {way}"]
    assert len(mine) >= 8
    assert sum(step.held for step in mine) >= held * len(mine)
    assert median(step.ratio[2] / step.ratio[1] for step in mine if step.ratio) <= width * (1 + 1e-9)


@pytest.mark.parametrize("way", ["pairs", "models", "hold-out"])
def test_where_tokens_of_a_gpu_fall_the_median_error_is_small(way: str) -> None:
    steps = [step for step in tried(way) if step.ratio is not None]
    assert median(step.error for step in steps if step.step.falls) <= 0.06
    unchanged = [step for step in steps if step.group.endswith("unchanged")]
    assert sum(step.held for step in unchanged) >= 0.9 * len(unchanged) > 0


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q.model} {q.small} to {q.large} on {q.product}")
def test_eight_of_twelve_sizes_are_known_and_four_name_the_remedy(question: Question) -> None:
    found = asked(question)
    (kept,) = found.kept(np.array([float(question.large)])).middle
    assert np.isnan(kept) != question.known
    why = found.problem(question.large)
    assert (why == "") == question.known
    assert question.known or (NOT_KNOWN in why and "give scaling, or in jobRates one rate at " in why)


def test_more_tokens_of_a_gpu_keep_more_and_a_batch_grows_up_to_its_most() -> None:
    few, many, grown = (
        asked(Question("llama3-8b", "H100", 8, 128, batch, most, True))
        for batch, most in ((64, None), (1024, None), (64, 1024))
    )
    at = np.array([128.0])
    assert few.kept(at).middle < many.kept(at).middle
    assert few.tokens(at) < grown.tokens(at) == many.tokens(at)
    assert grown.tokens(np.array([8.0, 64.0])).tolist() == [64 / 8 * 8192] * 2
    assert few.problem(129 * 2).startswith(NOT_KNOWN)
    short = asked(Question("llama3-8b", "H100", 8, 200, 40, None, False))
    assert "; give a larger globalBatch, scaling, or " in short.problem(200)
    bound = ours(globalBatch=16).jobs[0].binding or ""
    assert bound.startswith("a global batch of 16 sequences feeds 32 GPUs at most: "), "two shared one as published"


def test_without_a_batch_it_grows_with_the_gpus_up_to_the_largest_published_one_and_no_further() -> None:
    free, at = asked(Question("deepseek-v3", "GB300", 256, 512, None, None, True)), np.array([512.0, 1024.0, 2048.0])
    experts = [row for row in size_rows(sizes=1) if row.kind == "experts"]
    least = min(row.tokens for row in experts if (row.product, row.gpus) == ("GB300", 256))
    assert free.tokens(at)[:2].tolist() == [least, least]
    assert (free.tokens(at) * at).max() <= max(row.tokens * row.gpus for row in experts)
    assert np.isnan(free.kept(at).middle).tolist() == [False, False, True]
    assert "without globalBatch" in free.problem(2048)
    assert "; give globalBatch, scaling, or " in free.problem(2048)


@pytest.mark.parametrize("smaller", [True, False])
def test_a_smaller_job_gains_what_a_larger_one_loses_and_a_rate_counts_with_its_own_batch(smaller: bool) -> None:
    """Published steps backwards, and those where a GPU's tokens fall as if the size had stayed."""
    held = list[bool]()
    for step in size_steps(size_rows()):
        base, other = (step.large, step.small) if smaller else step
        if step.small.model in {name.model for name in QUESTIONS} and (smaller or step.falls):
            at, measured = step.small.gpus, base.tokens * base.gpus
            batch, wanted = (other.tokens * at, None), plan_sizes.model(other.model)
            found = Sized(wanted, other.product, base.gpus, base.petaflops, batch, measured=measured)
            _, (low,), (high,) = found.kept(np.array([float(at)]))
            held.append(low <= other.tokens_per_second / base.tokens_per_second <= high)
    assert sum(held) >= 0.9 * len(held) > 40


@pytest.mark.parametrize("batch", [{}, {"globalBatch": 8, "globalBatchMax": 128}])
def test_a_job_has_one_answer_however_its_batch_is_given(batch: dict[str, int]) -> None:
    """From rates of nodes: a GPU has one sequence, as in the smallest published job."""
    (given,), (same,) = ours(minGPUs=128, globalBatch=128).jobs, ours(minGPUs=128, **batch).jobs
    assert given.days == same.days


def ours(*pools: dict[str, Any], **more: Any) -> PlanStatus:
    return answered(None, job(tokens="100B", **more), pools=list(pools) or [H100], **OURS)


def test_a_plan_without_scaling_takes_published_jobs_and_says_so() -> None:
    found = ours(globalBatch=128, minGPUs=128)
    (note,) = [note for note in found.notes if note.startswith("size of train: at 128 GPUs ")]
    assert "by published jobs of small dense models on H100 with 8,192 tokens of a GPU and step" in note
    assert found.jobs[0].upper_bound is False
    assert float(found.jobs[0].days.mid) > 100e9 / (128 * 10_000) / 86_400
    assumed = " ".join(ours(minGPUs=128).notes)
    assert "as at the smallest published size: give globalBatch" in assumed


def test_a_size_of_which_nothing_is_published_is_not_offered_and_buying_it_is_not_called_worthless() -> None:
    more = [{"name": "more", "addNodes": {"pool": "H100", "nodes": 64}}]
    found = answered(
        fleet(pool("H100", node("n", count=64))), job(tokens="10T"), pools=[], whatIfs=more, objective=["time"], **OURS
    )
    assert found.jobs[0].gpus == 256
    assert f"not known: train is bound, since {NOT_KNOWN} for 264 GPUs" in found.what_ifs[0].answer
    assert found.what_ifs[0].days is None
    seventy = workload("llama3.1-405b")
    nodes = fleet(pool("H100", node("n", count=128, workload=seventy.key)), workloads=[seventy])
    big = job(workload={"preset": "llama3.1-405b"}, globalBatch=1152)
    refused = answered(nodes, big, **OURS)
    assert "none is published below 512 GPUs of H100, and the rate is of 8" in refused.problems[0]
    assert "give scaling, or in jobRates one rate at 512 GPUs or more" in refused.problems[0]
    measured = [declared(gpus=512, preset="llama3.1-405b") | {"nodes": 256}]
    anchored = answered(UNMEASURED, big | {"minGPUs": 1024}, pools=measured, **OURS)
    assert anchored.jobs[0].gpus >= 1024
    assert any("measured with the globalBatch of train" in note for note in anchored.notes)


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_sizes_count_by_the_rate_that_fits_and_are_named_where_they_are_not_known(case: dict[str, Any]) -> None:
    at, size = case.get("gpus"), dict[str, Any](deadlineDays=case.get("days"), globalBatch=192, gpusPerReplica=1)
    asked = [{"gpus": n, "tokensPerSecondPerGPU": str(of), "recipe": recipe} for n, of, recipe in case["rates"]]
    rows = [declared(**row)["jobRates"][0] for row in asked]
    for order in (rows, rows[::-1]):
        pools = [declared("none published", 256) | {"jobRates": order}, *([declared()] if "beside" in case else [])]
        found = answered(UNMEASURED, job(minGPUs=at, maxGPUs=at, **size), pools=pools, **OURS | {"goodput": "1"})
        assert found.phase == case.get("phase", "Solved")
        said = [f"{row.source} runs at {row.tokens_per_second} tokens/s" for row in found.jobs]
        assert [words for words in case["says"] if words not in " ".join((*said, *found.problems, *found.notes))] == []


def test_spares_leave_as_many_blocks_as_can_be() -> None:
    racks = (node(f"n{i}", gpus=4, count=18, rack=f"r{i}") for i in range(4))
    found = answered(fleet(pool("GB200", *racks)), job(minGPUs=216, blockGPUs=72), goodput=None)
    assert found.jobs[0].gpus == 216 < found.pools[0].gpus < 288


def test_what_gpus_lose_within_their_node_is_not_known_exactly_and_of_huge_models_not_at_all() -> None:
    def on_a_node(name: str) -> PlanStatus:
        facts = workload(name)
        nodes = fleet(pool("H100", node("n", count=16, workload=facts.key)), workloads=[facts])
        small = job(workload={"preset": name}, maxGPUs=8, memoryCheck="Ignore", tokens="1B", deadlineDays="9")
        return answered(nodes, small, pools=[H100], **OURS)

    (known,), (huge,) = (on_a_node(name).jobs for name in ("llama3-8b", "llama3.1-405b"))
    assert float(known.days.high) >= 1.1 * float(known.days.mid)
    assert (known.deadline, known.upper_bound) == ("promised", False)
    assert float(known.days.mid) > 1.25 * 1e9 / (8 * 10_000) / 86_400 > 0.8 * float(known.days.low)
    assert any(" is kept of the rate of 8 by themselves (" in note for note in on_a_node("llama3-8b").notes)
    assert (huge.deadline, huge.upper_bound) == ("notPromised", True)


def test_stragglers_count_once_beside_those_of_published_clusters() -> None:
    nodes = [node("ok", count=15), node("slow", [rate("bf16", 79_200.0)])]
    exact, twice = (
        answered(fleet(pool("H100", *nodes)), job(minGPUs=128), pools=[H100], **OURS | change).jobs[0]
        for change in ({}, {"scaling": [{"gpus": 128, "efficiency": "0.98"}]})
    )
    assert [float(exact.straggler), float(twice.straggler)] == pytest.approx([1.0, 0.99], abs=1e-3)


def simulated(mean: float, stall: float, restart: float, work: float, runs: int = 40_000) -> float:
    """Share of time, hours: a renewal from the end of one checkpoint to the next, failures in restarts too."""
    rng = np.random.default_rng(1)
    spent, todo = np.zeros(runs), np.ones(runs, dtype=bool)
    in_restart = np.zeros(runs, dtype=bool)
    while todo.any():
        need = np.where(in_restart, restart, 0.0) + work + stall
        failure = rng.exponential(mean, runs)
        spent += np.where(todo, np.minimum(need, failure), 0.0)
        todo &= failure < need
        in_restart |= todo
    return work * runs / float(spent.sum())


@pytest.mark.parametrize("hours", [1 / 3, 1, 10, 100, 1000])
def test_the_share_of_time_is_that_of_a_renewal_simulation(hours: float) -> None:
    """The best interval is found by search; between 20 minutes and 1,000 hours of mean time between failures."""
    failures = Failures(stall_seconds=60.0)
    at, per_gpu_hour = np.array([100]), 1 / hours / 100
    (found,) = share(failures, at, per_gpu_hour)
    given = [Failures(60.0, interval_minutes=minutes, stall_seconds=60.0) for minutes in np.geomspace(0.5, 5_000, 60)]
    by_interval = [float(share(each, at, per_gpu_hour)[0]) for each in given]
    assert found == pytest.approx(max(by_interval), rel=2e-3)
    best = given[int(np.argmax(by_interval))].interval_minutes or 0.0
    assert simulated(hours, 1 / 60, 0.25, best / 60) == pytest.approx(found, rel=0.01)


def test_the_published_goodput_of_a_published_rate_and_size_lies_in_the_band() -> None:
    """Llama 3 405B: 419 unexpected interruptions in 54 days of 16,384 H100, more than 90 % effective."""
    _, (low,), (high,) = progress(Failures(1.97e-5), np.array([16_384]))
    assert low < 0.90 < high


def test_manual_restarts_are_said_by_their_minutes_and_goodput_replaces_failures() -> None:
    """OPT-175B, 992 A100: uptime 59 % with 1.3e-4; restarts by hand took hours."""
    _, (low,), (high,) = progress(Failures(1.3e-4, restart_minutes=240.0), np.array([992]))
    assert low <= 0.59 <= high
    (middle,), _, _ = progress(Goodput(0.8), np.array([992]))
    assert middle == 0.8
    wide = progress(Failures(), np.array([4096]))
    own = progress(Failures(PER_GPU_HOUR), np.array([4096]))
    assert wide.low < own.low < own.middle == wide.middle < own.high < wide.high
    assert wide.low == pytest.approx(share(Failures(), np.array([4096]), MOST))
    assert wide.high == pytest.approx(share(Failures(), np.array([4096]), LEAST))


@pytest.mark.parametrize(("nodes", "days"), [(16, 3.0), (128, 3.0), (128, 10.0)])
def test_spare_nodes_are_the_fewest_with_which_nine_runs_in_ten_wait_for_none(nodes: int, days: float) -> None:
    number = spares(Failures(), nodes, 8, days)
    rng = np.random.default_rng(2)
    per_day = PER_GPU_HOUR * 24 * 8 * nodes

    def waits(spare: int) -> float:
        """Share of runs in which at some time more nodes than `spare` are in repair."""
        runs = 0
        for _ in range(1500):
            times = np.cumsum(rng.exponential(1 / per_day, int(per_day * (RUN_DAYS + 2 * days) * 2) + 40)) - days
            within = times[(times < RUN_DAYS)]
            away = np.arange(len(within)) - np.searchsorted(within, within - days) + 1
            runs += bool((away[within >= 0] > spare).any())
        return runs / 1500

    assert waits(number) < 0.12
    assert waits(number - 1) > 0.08


def test_a_pool_without_an_end_has_spares_and_one_node_is_never_kept_from_its_job() -> None:
    assert 18_000 < spares(Failures(), 100_000, 64, 3.0) < 25_000
    assert spares(Failures(), 1, 8, 3.0) == 0


def test_a_job_on_all_nodes_is_never_promised_without_a_sentence_on_spares() -> None:
    none, usual = ours(minGPUs=128, deadlineDays="9"), ours({"name": "H100"}, deadlineDays="9", minGPUs=96)
    assert none.jobs[0].deadline == "promised"
    words = "spares: train takes every node of H100, no spare (spareNodes): "
    assert any(line.startswith(words) for line in lines(none))
    assert usual.pools[0].gpus == 128 - 8 * spares(Failures(), 16, 8, 3.0)
    assert "pool H100: 3 nodes kept as spares for those in repair" in usual.notes
    assert sum("3 nodes kept as spares for those in repair" in line for line in lines(usual)) == 1
    given = answered(None, job(minGPUs=128), scaling=[], goodput="0.9")
    assert given.pools[0].gpus == 128
    (note,) = [note for note in given.notes if note.startswith("spares: ")]
    assert note.endswith(" (3 days); goodput must hold such stops")
    whole, own = ours({"name": "H100"}, minGPUs=128), ours({"name": "H100"}, goodput="0.9")
    assert (whole.jobs[0].gpus, whole.pools[0].gpus, own.pools[0].gpus) == (128, 128, 128), "spares that none wants"
    few = {"name": "H100", "spareNodes": 1}
    assert "has 120 GPUs in blocks of 8 beside 1 spare node (spareNodes); " in ours(few, minGPUs=128).problems[0]


def test_a_plan_says_the_share_of_time_and_the_checkpoints_that_it_takes_and_reads_none_as_none() -> None:
    none = {"checkpointStallSeconds": "0", "restartMinutes": "0", "interruptionsPerGPUHour": "4e-5"}
    found = [answered(None, job(minGPUs=96), goodput=None, failures=of) for of in ({"checkpointMinutes": "30"}, none)]
    for plan, minutes in zip(found, ("every 30 min; ", "min; "), strict=True):
        (row,), (note,) = plan.jobs, [note for note in plan.notes if note.startswith("failures: ")]
        share = 100e9 / (row.gpus * 10_000 * float(row.days.mid) * 86_400)
        said, _, rest = note.partition(": train makes progress ")[2].partition(" of its time (")
        assert float(said.removesuffix(" %")) == pytest.approx(share * 100, rel=2e-3)
        assert minutes in rest
    assert float(found[0].jobs[0].days.mid) > float(found[1].jobs[0].days.mid)


def runs_that_wait(up: float, jobs: tuple[int, ...], free: int, runs: int) -> list[float]:
    """Hours that the first of these jobs (nodes) takes for `up` hours of work: a node that fails is away for an
    exponential repair of 72 h, and its job stands still while none is free, first come, first served."""
    rng, made = np.random.default_rng(3), []
    for _ in range(runs):
        now, done, repairs, left, waiting = 0.0, 0.0, list[float](), free, list[int]()
        while True:
            running = [job for job in range(len(jobs)) if job not in waiting]
            nodes = np.array([jobs[job] for job in running], dtype=float)
            failure = now + rng.exponential(1 / (nodes.sum() * 8 * PER_GPU_HOUR)) if running else np.inf
            then = min(failure, min(repairs, default=np.inf))
            if 0 in running and done + then - now >= up:
                made.append(now + up - done)
                break
            done, now = done + (then - now if 0 in running else 0.0), then
            if then == failure:
                repairs.append(now + rng.exponential(72))
                left -= 1
                if left < 0:
                    waiting.append(int(rng.choice(running, p=nodes / nodes.sum())))
            else:
                repairs.remove(then)
                left += 1
                waiting = waiting[1:]
    return made


@pytest.mark.parametrize(
    ("up", "jobs", "free"),
    [(5.0, (16,), 0), (20.0, (16,), 0), (300.0, (16,), 0), (3000.0, (16,), 0), (720.0, (31,), 1), (1500.0, (60,), 2),
     (1500.0, (253,), 3), (1500.0, (16, 16), 0), (1500.0, (120, 120), 4)],
)  # fmt: skip
def test_nine_runs_in_ten_pass_what_is_promised_of_a_run_that_waits_for_repairs(
    up: float, jobs: tuple[int, ...], free: int
) -> None:
    """By simulation, in which no node is in repair at first: with free nodes, runs of days wait less than is said."""
    all_nodes = sum(jobs)
    failures = Failures(repairs=Repairs(72.0, 8, all_nodes + free, all_nodes, all_nodes - jobs[0], 0.0))
    gpus, hours = np.array([jobs[0] * 8]), np.array(runs_that_wait(up, jobs, free, max(400, int(40_000 / up))))
    mean = np.array([up * (1 + waits(failures, gpus, PER_GPU_HOUR)[0][0])])
    assert hours.mean() == pytest.approx(mean[0], rel=0.06)
    (low,), (high,) = repair_band(failures, gpus, mean)
    assert (mean / hours >= low ** (Z_90 / Z_95)).mean() >= 0.89
    assert (mean / hours <= high * (1 + 1e-2)).mean() >= 0.94


LOAD = 255 * 8 * PER_GPU_HOUR * 72


@pytest.mark.parametrize(
    ("spare", "sizes", "stopped"),
    [(1, (2040,), LOAD**2 / 2 / (1 + LOAD)), (0, (2040,), LOAD**2 / 2 / (1 + LOAD)),
     (0, (1024, 1024), 1024 * PER_GPU_HOUR * 72)],
)  # fmt: skip
def test_too_few_spare_nodes_cost_days_whoever_takes_the_others(
    spare: int, sizes: tuple[int, ...], stopped: float
) -> None:
    """`stopped`: hours for one of work, by Erlang's formula with one free node, or none."""

    def planned(days: str, *sizes: int) -> PlanStatus:
        jobs = [job(f"j{n}", tokens="1T", minGPUs=gpus, maxGPUs=gpus, globalBatch=2048) for n, gpus in enumerate(sizes)]
        own = {"name": "H100", "nodes": 256, "spareNodes": spare, "repairDays": days}
        scaling = [{"gpus": 2048, "efficiency": "0.9"}]
        return answered(None, *jobs, pools=[own], scaling=scaling, goodput=None, whatIfs=[])

    slow, quick = planned("3", *sizes), planned("0.0001", *sizes)
    for one, other in zip(slow.jobs, quick.jobs, strict=True):
        assert float(one.days.mid) == pytest.approx(float(other.days.mid) * (1 + stopped), rel=2e-3)
        (note,) = [note for note in slow.notes if note.startswith(f"spares: {one.name} ")]
        assert f"such stops are in all figures, {stopped / (1 + stopped) * 100:.3g} % of its time, " in note
        assert "% at 0.00013 interruptions (spareNodes 3" in note
    few = planned("3", 800)
    assert float(few.jobs[0].days.mid) == pytest.approx(float(planned("0.0001", 800).jobs[0].days.mid))
    assert not any(note.startswith("spares: ") for note in few.notes)
    assert (spare == 0) == any("spareNodes: no node kept as spares" in note for note in few.notes)


def test_a_job_is_taken_to_have_what_the_plan_gives_it_where_another_one_waits_for_nodes() -> None:
    """Two jobs, of which sizes up to 64 GPUs are known, in a pool that two of its own size each would fill."""

    def planned(days: str, **each: int) -> PlanStatus:
        jobs = [job(name, tokens="50B", deadlineDays=days, globalBatch=64, **each) for name in "ab"]
        pools = [declared("none published", 64) | {"nodes": 1250, "spareNodes": 0}]
        return answered(UNMEASURED, *jobs, pools=pools, objective=["time"], whatIfs=[], **OURS)

    open_ended, bounded, late = planned("3"), planned("3", maxGPUs=64), planned("0.5")
    assert [row.deadline for row in open_ended.jobs] == ["promised"] * 2
    assert [row.days for row in open_ended.jobs] == [row.days for row in bounded.jobs]
    assert (late.phase, len(late.jobs)) == ("NotFound", 0)


def test_the_smallest_relaxation_of_a_deadline_is_to_the_size_that_keeps_it_first() -> None:
    """Of 7,000 sizes it is the last one before efficiency falls, and none of the usual spread."""

    def planned(days: float) -> PlanStatus:
        points = [{"gpus": gpus, "efficiency": share} for gpus, share in ((36_000, "1"), (56_000, "0.5"))]
        pools = [declared(gpus=64) | {"nodes": 7000, "scaling": points}]
        return answered(UNMEASURED, job(tokens="100T", deadlineDays=f"{days:.6f}"), pools=pools)

    more = float(planned(1).problems[1].partition("would do: ")[2].partition(" more days")[0])
    assert (planned(1 + 0.99 * more).phase, planned(1 + 1.01 * more).phase) == ("Infeasible", "Solved")


def test_a_recipe_that_published_rates_do_not_decide_is_called_undecided_with_its_worth() -> None:
    experts = workload("qwen3-30b-a3b")
    nodes = fleet(pool("GB200", node("n", gpus=4, count=8, workload=experts.key)), workloads=[experts])
    task = job(workload={"preset": "qwen3-30b-a3b"}, recipes=["bf16", "mxfp8"], maxGPUs=4)
    found = answered(nodes, task, pools=[{"name": "GB200", "dollarsPerGPUHour": "2"}], **OURS)
    (line,) = [line for line in lines(found) if line.startswith("undecided: ")]
    assert line.startswith("undecided: mxfp8 or bf16 for train on GB200: profile both (mxfp8 runs at 0.")
    assert "to know is worth up to " in line
    assert "$" in line


def test_a_format_that_one_model_alone_is_known_of_says_so() -> None:
    seventy = workload("llama3.1-70b")
    nodes = node("n", gpus=4, count=16, workload=seventy.key)
    on = {name: fleet(pool(name, nodes), workloads=[seventy]) for name in ("GB200", "GB300")}
    task = job(workload={"preset": "llama3.1-70b"}, recipes=["nvfp4"], minGPUs=8)
    found = {name: answered(known, task) for name, known in on.items()}
    assert all("nvfp4 is known from one model alone, llama3.1-405b; " in each.jobs[0].source for each in found.values())
    gains = {name: float(each.jobs[0].tokens_per_second) / each.jobs[0].gpus for name, each in found.items()}
    assert gains["GB300"] > 1.05 * gains["GB200"]
