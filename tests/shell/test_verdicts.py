"""YAML in, status out: what is said of nodes that a profile with `acceptance` measures, and of their mirrors."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice, product
from statistics import median
from string import ascii_letters
from typing import Any

import pytest

from precision_api.acceptance.judge import judge
from precision_api.acceptance.reference import Reference, look_at, read_reference, sha256_of, speeds_of, text_of
from precision_api.exchange.result import MeasurementResult, Software, Training
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.kinds.report import ReportAcceptance, ReportStatus
from precision_operator.cluster import paths
from precision_operator.core.attempts.verdicts import is_due, terms_of
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.kept_report import kept_report, whole
from precision_operator.core.observe.nodes import node_facts
from precision_operator.core.observe.observed import Filed
from precision_operator.core.results.acceptance import decided, first_speeds
from precision_operator.shell.acting.reports import MOST_ROWS
from precision_operator.shell.observing.gather import REFERENCE_SECONDS
from precision_operator.shell.observing.reader import MOST_OF_REFERENCE, _saved
from tests.support import golden_nodes
from tests.support.golden_nodes import NONE_FAILS, golden_draft, gpu_names, hot, made, many, measured_node, with_verdict
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.operator_in_memory import JOBS, NAMESPACE, REPORTS
from tests.support.verdict_world import (
    MAPS,
    NODE,
    Run,
    World,
    also,
    bad_gpu,
    first_rack,
    slow,
    sound,
    upgraded,
)
from tests.support.world import NOW, SETTINGS, observed, profile, report

EIGHT = golden_draft
PASS = ("Pass", "WithinLimits", 1)
WORLDS: dict[str, tuple[Callable[[int], Reference], Run, tuple[str, str, int], Run]] = {
    "first rack with one bad GPU": (first_rack, bad_gpu, ("Fail", "TooSlow", 2), sound),
    "first rack slow as a whole": (EIGHT, slow, ("Fail", "TooSlow", 2), sound),
    "heat on a slow node": (EIGHT, also(hot, bad_gpu), ("Fail", "Throttled", 2), sound),
    "heat on a sound node": (EIGHT, also(hot, sound), ("Inconclusive", "Throttled", 1), sound),
    "another base image": (EIGHT, upgraded("ffff"), ("Inconclusive", "OtherKey", 1), upgraded("0123456789abcdef")),
} | {
    reason: (EIGHT, also(change, bad_gpu), ("Inconclusive", reason, 1), sound)
    for reason, change in NONE_FAILS.items()
}  # fmt: skip
"""By name: the reference, what is measured, verdict, reason and runs; and what the mirror's runs give, that passes."""


async def test_a_reference_is_read_again_for_profiles_that_are_asked_for_and_a_text_is_parsed_once() -> None:
    world = World(EIGHT())
    path = f"{MAPS}/h100-jan"
    for suspend, reads in ((True, 0), (False, 2)):
        world.loop.apply("nightly", suspend=suspend, acceptance={"reference": {"name": "h100-jan", "sha256": "a" * 64}})
        for _ in range(2):
            world.loop.gatherer._references._last.clear()
            await world.loop.once()
        assert [where for _, where in world.loop.cluster.requests].count(path) == reads
    for version in map(str, range(3)):  # edited between two looks: a tenant took the operator's memory
        world.save(text_of(EIGHT().model_copy(update={"made_by": version})))
        await world.loop.once()
    assert [*world.loop.gatherer._reader._references] == [("ml", "h100-jan")]
    world.loop.apply("nightly", acceptance={"reference": {"name": "gone", "sha256": "a" * 64}})
    await world.loop.once()
    assert world.loop.gatherer._reader._references == {}
    await (settled := World(EIGHT())).measure(sound, 1)
    assert await settled.loop.once() <= REFERENCE_SECONDS


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", WORLDS)
async def test_each_world_has_its_verdict_and_its_mirror_passes(name: str, seed: int) -> None:
    reference, run, expected, mirror = WORLDS[name]
    verdict = await World(reference(seed)).measure(run, seed)
    assert (verdict["verdict"], verdict["reason"], verdict["made"]) == expected, verdict["message"]
    fails = [line.split()[4] for line in verdict.get("checks", ()) if line.endswith("Fail")]
    assert fails == ([] if expected[0] != "Fail" else ["-"] if run is slow else ["0"])
    world = World(reference(seed))
    passed = await world.measure(mirror, seed)
    assert (passed["verdict"], passed["reason"], passed["made"]) == PASS
    assert world.loop.status("nightly")["nodes"]["accepted"] == 1


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_slow_gpu_fails_after_two_runs_and_its_repaired_node_passes_on_its_new_boot(seed: int) -> None:
    world, bad = World(EIGHT(seed)), bad_gpu(seed * 10 + 1)
    failed = await world.measure(lambda _: bad, seed)
    assert (failed["verdict"], failed["made"], failed["checks"][0][-7:]) == ("Fail", 2, " 0 Fail")
    rates = [*(bad.recipes[0].training or Training()).tokens_per_second_by_gpu.values()]
    off = 100 * (rates[0] / median(rates[1:]) - 1)
    assert failed["message"].startswith(f"GPU 0 is {-off:.1f} % slower "), "per cent, not hundredths of a logarithm"
    assert float(failed["checks"][0].split()[2]) == pytest.approx(off, abs=0.02)
    world.boot("boot-2")
    changed = await world.settle()
    assert (changed["reason"], list(world.loop.jobs())) == ("SubjectChanged", [NODE]), "a known node's boot is proved"
    assert (await world.measure(sound, seed))["verdict"] == "Fail", "a restart is no repair"
    world.boot("boot-3")
    world.loop.offset = timedelta(hours=25)
    assert ((await world.measure(sound, seed))["verdict"], world.loop.jobs()) == ("Pass", {})


async def test_runs_of_an_earlier_boot_hide_no_fault_of_another_gpu() -> None:
    world, rates = World(EIGHT()), (sound(13).recipes[0].training or Training()).tokens_per_second_by_gpu
    assert (await world.measure(lambda seed: sound(seed, gpu_off=-3), 1))["verdict"] == "Fail"
    world.boot("boot-2")
    moved = {gpu: rates[gpu] * factor for gpu, factor in zip(gpu_names(NODE), (1.04, 0.96), strict=False)}
    other = golden_nodes.with_training(sound(13), tokens_per_second_by_gpu={**rates, **moved})
    assert ((failed := await world.measure(lambda _: other, 1))["verdict"], failed["made"]) == ("Fail", 2)
    world.boot("boot-3")
    odd = {**rates, **moved, gpu_names(NODE)[5]: 0.8 * rates[gpu_names(NODE)[5]]}
    once = golden_nodes.changed(golden_nodes.with_training(sound(14), tokens_per_second_by_gpu=odd), "n50-5", "new")
    failed = await world.measure(lambda _: once, 1)
    accused = [it.gpu for it in ReportAcceptance.model_validate(failed).failing]
    assert (failed["made"], accused) == (1, [gpu_names(NODE)[1]]), "a GPU in its only run is in doubt"


SPLIT = golden_draft().model_copy(update={"split": {"zone": "b"}})
OLD = read_reference(text_of(golden_draft()).replace("2099-11-01", "2026-01-01"))
DRAFT = golden_draft()
NEWER = DRAFT.model_copy(update={"key": DRAFT.key | {"firmware": "x"}})
LARGE = golden_draft().model_copy(update={"resources": {f"r{at}": "x" * 100 for at in range(1500)}})
LIKE_NO_OTHER = {
    "a pool of two": (golden_draft(nodes=2), 8, "boot-1", "NotDetectable"),
    "7 of 8 GPUs": (golden_draft(), 7, "boot-1", "OtherKey"),
    "a reference that takes memory": (LARGE, 8, "boot-1", "ReferenceTooLarge"),
    "a key with one more word": (NEWER, 8, "boot-1", "NoReference"),
    "an old reference": (OLD, 8, "boot-1", "ReferenceTooOld"),
    "another zone": (SPLIT, 8, "boot-1", "OtherKey"),
    "a boot that nobody tells": (golden_draft(), 8, "", "SubjectChanged"),
}


def test_a_reference_of_72_nodes_and_all_recipes_is_kept_and_500_of_the_worst_take_half_the_charts_memory() -> None:
    whole = {f"n{at}": many(measured_node(f"n{at}", 1), *RECIPE_NAMES) for at in range(72)}
    assert isinstance(_saved(text_of(made(whole, {})[0]))[1], Reference)
    room, words = (MOST_OF_REFERENCE - 4000) // len('"kabc":"abc",'), map("".join, product(ascii_letters, repeat=3))
    worst = [{f"k{word}": word for word in islice(words, room)} for _ in range(10)]
    texts = [text_of(DRAFT.model_copy(update={"resources": of})) for of in worst]
    tracemalloc.start()
    kept = [_saved(text)[1] for text in texts]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(kept[0], Reference)
    assert 500 * used / len(kept) < 2**29


@pytest.mark.parametrize("name", LIKE_NO_OTHER)
async def test_a_node_that_is_like_no_golden_one_is_neither_accused_nor_passed(name: str) -> None:
    reference, gpus, boot, reason = LIKE_NO_OTHER[name]
    world = World(reference)
    world.boot(boot, gpus)
    verdict = await world.measure(lambda seed: sound(seed, off=-12, gpus=gpus), 1)
    assert (verdict["verdict"], verdict["reason"]) == ("Inconclusive", reason), verdict["message"]
    assert (await World(golden_draft()).measure(sound, 1))["verdict"] == "Pass", "whole, against eight of its kind"
    world = World(SPLIT)
    zone, h200 = {"zone": "b"}, {"zone": "b", "nvidia.com/gpu.product": "NVIDIA-H200"}
    steps = (EIGHT_H100 | zone, "Pass"), (EIGHT_H100, "Inconclusive"), (zone, "Pass"), (h200, "Inconclusive")
    for labels, verdict in steps:
        world.loop.cluster._store(f"{paths.NODES}/{NODE}", node_object(labels, name=NODE, boot="boot-1"))
        assert (await world.measure(sound, 1))["verdict"] == verdict, "until it leaves the zone, or has other GPUs"


async def test_a_health_counter_fails_without_a_run_until_the_gpu_is_reset() -> None:
    """What is no counter (a driver that does not answer, as in an upgrade) gives no verdict."""
    gpu = gpu_names(NODE)[0]
    assert (await World(EIGHT()).refuse(f"gpu_unreachable: {gpu} does not answer: Driver/library mismatch")) == {}
    assert (await World(EIGHT()).refuse("a log has ecc_uncorrectable: in it", reason="BackendUnavailable")) == {}
    world = World(EIGHT())
    await world.measure(sound, 1)
    barred = await world.refuse(f"gpu_unreachable: {gpu} does not answer")
    assert (barred["verdict"], barred["reason"], gpu in barred["message"]) == ("Inconclusive", "GPUUnhealthy", True)
    world.loop.collect_garbage()
    assert (await world.refuse("no torch", rerun="2", reason="BackendUnavailable"))["reason"] == "GPUUnhealthy"
    world.loop.collect_garbage()
    world.rerun("3")
    assert (await world.measure(sound, 1))["verdict"] == "Pass"
    world = World(EIGHT())
    failed = await world.refuse(f"ecc_uncorrectable: {gpu} had 3 uncorrectable ECC errors since its last reset")
    gpus = [it[5:] for it in ReportAcceptance.model_validate(failed).failing]
    assert (failed["verdict"], failed["reason"], gpus) == ("Fail", "UncorrectableECC", [(None, gpu, None)])
    for gpus in (7, 8):  # the device plugin takes the GPU out, and somebody restarts the plugin
        world.boot("boot-1", gpus)
        assert (await world.settle())["verdict"] == "Fail"
    world.rerun("it was reset")
    assert (await world.measure(sound, 1))["verdict"] == "Pass"
    failed = await world.refuse(f"row_remap_pending: {gpu} has a memory row whose remap waits for a reset", rerun="2")
    assert (failed["verdict"], failed["reason"]) == ("Fail", "RowRemapPending")
    world.boot("boot-2")
    assert (await world.settle())["verdict"] == "Inconclusive"
    world.loop.collect_garbage()
    failed = await world.refuse(f"ecc_uncorrectable: {gpu} had 3 uncorrectable ECC errors", rerun="3")
    assert (failed["verdict"], failed["subject"]["bootID"]) == ("Fail", "boot-1"), "its run is of the boot before"
    world.loop.collect_garbage()
    failed = await world.refuse("no torch", rerun="4", reason="BackendUnavailable")
    gpus = [it[5:] for it in ReportAcceptance.model_validate(failed).failing]
    assert (failed["reason"], gpus) == ("UncorrectableECC", [(0, gpu, None)])
    for boot, verdict in (("", "Inconclusive"), ("boot-2", "Fail"), ("boot-3", "Inconclusive"), ("boot-2", "Fail")):
        world.boot(boot)
        assert (await world.settle())["verdict"] == verdict, "until a run says otherwise"
    world = World(EIGHT())
    await world.measure(sound, 1)
    world.boot("")
    await world.refuse(f"ecc_uncorrectable: {gpu} had 3 uncorrectable ECC errors")
    world.boot("boot-1")
    world.loop.collect_garbage()
    barred = await world.refuse("no torch", rerun="2", reason="BackendUnavailable")
    assert (barred["verdict"], barred["reason"]) == ("Inconclusive", "UncorrectableECC"), "on which boot, nobody knows"
    world.rerun("it was reset")
    assert (await world.measure(sound, 2))["verdict"] == "Pass"


async def test_figures_that_nobody_measured_pass_where_the_admin_lets_them_and_against_their_like_alone() -> None:
    fleet = {f"n{at}": NONE_FAILS["Simulated"](measured_node(f"n{at}", 1)) for at in range(8)}
    golden = made(fleet, {}, simulated=True)
    driver, verdicts = {"driver": "580.95.05"}, []
    played = driver | {"annotations": {"kwok.x-k8s.io/node": "fake"}}
    for reference, simulated, node in (
        (golden[0], True, {}), (golden[0], True, played), (golden[0], True, driver),
        (golden[0], False, {}), (EIGHT(), True, {}),
    ):  # fmt: skip
        world = World(reference)
        world.boot("boot-1", **node)
        world.loop.gatherer._settings = replace(SETTINGS, accept_simulated=simulated)
        verdicts.append((await world.measure(also(NONE_FAILS["Simulated"], sound), 1))["verdict"])
    assert verdicts == ["Pass", "Pass", *["Inconclusive"] * 3], "a driver that is not kwok's is a real GPU's"


async def test_a_replay_that_read_no_driver_is_judged_from_its_kept_report_as_from_its_report() -> None:
    def replayed(result: MeasurementResult) -> MeasurementResult:
        simulated = NONE_FAILS["Simulated"](result)
        return simulated.model_copy(update={"software": simulated.software.model_copy(update={"driver": None})})

    golden, _ = made({f"n{at}": replayed(measured_node(f"n{at}", 1)) for at in range(8)}, {}, simulated=True)
    world = World(golden)
    world.boot("boot-1", driver="580.95.05", annotations={"kwok.x-k8s.io/node": "fake"})
    world.loop.gatherer._settings = settings = replace(SETTINGS, accept_simulated=True)
    assert (await world.measure(also(replayed, sound), 1))["verdict"] == "Pass"
    (raw,) = [body for path, body in world.loop.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
    asked = {"reference": {"name": "h100-jan", "sha256": sha256_of(text_of(golden))}}
    seen = observed([], settings=settings, references={("ml", "h100-jan"): (asked["reference"]["sha256"], golden)})
    terms, status = (
        terms_of(profile(acceptance=asked).spec, "ml", seen, Filed({})),
        ReportStatus.model_validate(raw["status"]),
    )
    assert terms is not None
    facts = node_facts(world.loop.cluster.objects[f"{paths.NODES}/{NODE}"])
    kept = whole(kept_report(status)).model_copy(update={"acceptance": status.acceptance})
    assert [decided(terms, it, facts, NOW).reason for it in (status, kept)] == ["WithinLimits"] * 2


async def test_a_grey_run_is_followed_by_two_more_at_most_that_average() -> None:
    world = World(EIGHT(), mustDetectPercent={"reference": 5})
    await world.settle()
    world.loop.end_agent(NODE, sound(11, off=-3.5))
    first = await world.settle()
    (report,) = [body for path, body in world.loop.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
    assert (first["reason"], report["status"]["state"]) == ("NotYet", "Measured"), "its figures are not out of date"
    grey = await world.measure(lambda seed: sound(seed, off=-3.5), 1)
    assert (grey["verdict"], grey["reason"], grey["made"]) == ("Inconclusive", "BetweenLimits", 2), grey["message"]
    assert grey["runs"]["averages"][0].count(";1.0:") == 2
    world = World(EIGHT())
    assert (await world.measure(lambda seed: sound(seed, off=-3.5), 1))["verdict"] == "Pass"
    edited = await _edited(world, {"mustDetectPercent": {"reference": 5}})
    assert (edited["verdict"], world.loop.jobs()) == ("Inconclusive", {}), "an edit measures nothing"
    ((path, report),) = [of for of in world.loop.cluster.objects.items() if of[0].startswith(f"{REPORTS}/")]
    report["status"]["acceptance"] |= {"reason": "ReferenceDrifted", "basis": ""}
    world.loop.cluster._store(path, report)
    await world.settle()
    assert list(world.loop.jobs()) == [NODE], "once a drift is over, the doubt that it left has an end"
    wide = await _edited(world, {"mustDetectPercent": {"reference": 15}})
    limits = {line.split()[3] for line in wide["checks"] if " reference " in line}
    assert limits == {"12.79"}, "15 is a per cent: 12.79 and what a look may err by"


async def test_a_node_that_lies_next_to_nothing_from_the_level_passes_in_a_line_without_an_exponent() -> None:
    reference, run = EIGHT(), sound(11)
    golden = replace(reference.recipes["bf16"], level=median(speeds_of(run.recipes[0], run).values()) + 0.00003)
    verdict = await World(reference.model_copy(update={"recipes": {"bf16": golden}})).measure(lambda _: run, 1)
    assert (verdict["verdict"], verdict["made"]) == ("Pass", 1)


IT = sound(12)
ODD = {
    **{name: NONE_FAILS[name](IT) for name in ("Fallback", "NumericalError", "Unverified", "Partial")},
    "Unverified: unknown": with_verdict(IT, "unknown"),
    "Throttled": hot(IT),
    "Partial: without GPUs": NONE_FAILS["Partial"](IT.model_copy(update={"gpus": (), "recipes": ()})),
    "OtherKey": upgraded("ffff")(12),
    "OtherKey: power limits": golden_nodes.capped(IT),
    "OtherLayers": sound(12, recipes=(IT.recipes[0].model_copy(update={"last_layers_bf16": 5}),)),
    "SubjectChanged": sound(12, gpus=7),
    "NotMeasured": measured_node(NODE, 1, day=2, off=500.0),
    "TooSlow: slots": IT.model_copy(update={"gpus": tuple(it.model_copy(update={"pci": it.uuid}) for it in IT.gpus)}),
    "TooSlow: another order": IT.model_copy(update={"gpus": IT.gpus[::-1]}),
}
"""Runs that are unlike the others, each by the reason of the verdict on it."""


@pytest.mark.parametrize("odd", ODD)
async def test_no_run_that_is_unlike_the_others_throws_a_failing_one_out_of_the_average(odd: str) -> None:
    runs, world = [bad_gpu(11), ODD[odd], sound(13)], World(EIGHT())
    verdict = await world.measure(lambda seed: runs[seed % 10 - 1], 1)
    assert (verdict["reason"], verdict["made"]) == (odd.partition(":")[0], 2)
    world.rerun("again")
    assert (await world.measure(sound, 1))["verdict"] == "Fail", "the average of the first and the third"


async def test_a_fail_outlives_a_time_in_which_nobody_asks_and_a_run_of_an_unknown_boot() -> None:
    world = World(EIGHT())
    failed = await world.measure(bad_gpu, 1)
    world.loop.apply("nightly")
    assert "verdict" not in await world.settle()
    again = await _edited(world, {})
    assert (again["verdict"], again["checks"] == failed["checks"], world.loop.jobs()) == ("Fail", True, {})
    for boot, verdict in (("", "Inconclusive"), ("boot-1", "Fail")):
        world.boot(boot)
        world.rerun(f"boot {boot}")
        assert (await world.measure(sound, 1))["verdict"] == verdict


@pytest.mark.parametrize("text", ["{} at=29928491 bf16=2:68167+967", "{}@1 bf16=1.0:x", "{}@1 bf16=1.0:1;1.0:1+1", ""])
async def test_kept_runs_that_nobody_can_read_count_as_none_and_the_verdict_says_so(text: str) -> None:
    world = World(EIGHT())
    await world.measure(bad_gpu, 1)
    (path,) = [path for path in world.loop.cluster.objects if path.startswith(f"{REPORTS}/")]
    runs = (body := world.loop.cluster.objects[path])["status"]["acceptance"]["runs"]
    runs["averages"] = [text.format(runs["averages"][0].partition("@")[0])]
    world.loop.cluster._store(path, body)
    assert (await _edited(world, {"validFor": "700h"}))["reason"] == "RunsLost"
    world.rerun("again")
    assert (await world.measure(sound, 1))["verdict"] == "Pass"


def two(result: MeasurementResult, *others: Recipe) -> MeasurementResult:
    """With another recipe as fast, or several."""
    rows = (result.recipes[0].model_copy(update={"recipe": recipe}) for recipe in others or ("fp8_current",))
    return result.model_copy(update={"recipes": (*result.recipes, *rows)})


@pytest.mark.parametrize(("bad", "reason"), [(3, "BetweenLimits"), (2, "WithinLimits")])
async def test_runs_that_lie_a_day_apart_are_not_averaged_and_no_more_than_three_follow(bad: int, reason: str) -> None:
    world, run = World(EIGHT()), 0

    def later(seed: int) -> MeasurementResult:
        nonlocal run
        run, world.loop.offset = run + 1, timedelta(hours=25 * run)
        return bad_gpu(seed) if run <= bad else sound(seed)

    verdict = await world.measure(later, 1)
    assert (verdict["reason"], run) == (reason, 3), "each was a first run"
    assert bad < 3 or verdict["message"].endswith("no second run within 24 hours says so: measure it again")


def of_two(bf16: Run, fp8: Run) -> Run:
    return lambda seed: two(bf16(seed)).model_copy(update={"recipes": bf16(seed).recipes + two(fp8(seed)).recipes[1:]})


def reference_of(stack: str = "0123456789abcdef", *others: Recipe) -> Reference:
    software = Software(agent="0.1.0", driver="580.95.05", stack_hash=stack)
    return made({f"n{at}": two(measured_node(f"n{at}", 1, software=software), *others) for at in range(8)}, {})[0]


def swapped(at: int, run: Run = sound, *others: Recipe) -> Run:
    """With two recipes or more, after one GPU was swapped."""
    return lambda seed: golden_nodes.changed(two(run(seed), *others), gpu_names(NODE)[at], f"GPU-new-{at}")


def layers(result: MeasurementResult) -> MeasurementResult:
    """Three of its four recipes kept last layers in BF16."""
    rows = tuple(row.model_copy(update={"last_layers_bf16": 4}) for row in result.recipes[1:])
    return result.model_copy(update={"recipes": (result.recipes[0], *rows)})


def four(run: Run) -> Run:
    return lambda seed: two(run(seed), *FOUR[1:])


faint, fallen, hot_bad = partial(sound, gpu_off=-4), also(NONE_FAILS["Fallback"], sound), also(hot, bad_gpu)
warm = partial(hot, share_of_time=0.002)
warm_bad = also(warm, bad_gpu)
ONE, LOOSE = {"recipes": ["bf16"]}, {"recipes": ["bf16"], "mustDetectPercent": {"node": 15}}
BAD, GOOD, OTHER = of_two(bad_gpu, bad_gpu), of_two(sound, sound), upgraded("ffff")
short = also(NONE_FAILS["Partial"], GOOD)
GONE, MONTH, LATE, DAY = (("replaced", ""), *((timedelta(hours=hours), "") for hours in (29 * 24, 23.5, 24.1)))
FOUR: tuple[Recipe, ...] = ("bf16", "fp8_current", "mxfp8", "nvfp4")
BF16 = reference_of().recipes["bf16"]
LESS, WIDE = (reference_of().model_copy(update={"recipes": {"bf16": replace(BF16, within=of * (BF16.within or 0))}})
              for of in (1, 3))  # fmt: skip
WELL, SLOW, FAINT = (GOOD, "WithinLimits 1"), (GOOD, "TooSlow 1"), (of_two(faint, sound), "TooSlow 2")
four_bad, four_swapped, four_good = four(bad_gpu), swapped(5, sound, *FOUR[1:]), (four(sound), "WithinLimits 1")
FOUR_OF, LAYERS_OF = (made({f"n{at}": also(of, four(lambda at: measured_node(f"n{at}", 1)))(at) for at in range(8)},
                           {})[0] for of in (MeasurementResult.model_copy, layers))  # fmt: skip
REPLACED, ANOTHER = "ReferenceReplaced 1", (of_two(sound, bad_gpu), "TooSlow 2")
FAILS, AGAIN, START, SHORT = (BAD, "TooSlow 2"), (BAD, "TooSlow 1"), (ONE, " 0"), (short, REPLACED)
STEPS: dict[str, list[tuple[Any, str]]] = {
    "a later fault": [WELL, FAINT, SLOW],
    "a Pass of some recipes": [ANOTHER, (ONE, "WithinLimits 0"), WELL, ({}, "TooSlow 0")],
    "other image and back": [FAILS, (reference_of("ffff"), "OtherKey 0"), (also(two, OTHER), "WithinLimits 1"),
        (reference_of(), "OtherKey 0"), SLOW],
    "other image, as bad": [FAILS, AGAIN, (reference_of("ffff"), "OtherKey 0"),
        (also(two, upgraded("ffff", bad_gpu)), "TooSlow 2")],
    "a limit loosened for a while": [START, FAINT, (LOOSE, "WithinLimits 0"), WELL, (ONE, "TooSlow 0")],
    "heat of a sound recipe": [(of_two(bad_gpu, also(hot, sound)), "TooSlow 2")],
    "another recipe's trouble": [(of_two(bad_gpu, fallen), "TooSlow 2")],
    "a run without a say of one recipe": [(of_two(sound, fallen), "Fallback 1"), WELL, WELL],
    "runs without a say": [(of_two(fallen, sound), "Fallback 1")] * 3 + [FAILS],
    "heat of a recipe that nobody judges": [START, (also(hot, GOOD), "Throttled 1"),
        (of_two(sound, fallen), "WithinLimits 1"), (of_two(bad_gpu, fallen), "TooSlow 2")],
    "a partial run without a reference": [WELL, GONE, SHORT, ({}, "Partial 0"), MONTH, GONE, SHORT,
        ({}, "NotMeasured 0")],
    "a partial run by a reference of less": [WELL, (LESS, "WithinLimits 0"), MONTH, (short, "Partial 1"),
        ({}, "Partial 0"), (reference_of(), "Partial 0"), ({"recipes": ["fp8_current"]}, "NotMeasured 0")],
    "sound runs without a reference": [GONE, *[(GOOD, REPLACED)] * 4, (FAINT[0], REPLACED), (ONE, "BetweenLimits 0")],
    "wider limits for a while": [START, FAINT, (WIDE, "WithinLimits 0"), WELL, (reference_of(), "TooSlow 0")],
    "one bad run without a reference": [GONE, (GOOD, REPLACED), (BAD, REPLACED), ({}, "BetweenLimits 0"), SLOW],
    "three keys of four recipes": [(reference_of("d", *FOUR[1:]), " 0"), (four(upgraded("d", bad_gpu)), "TooSlow 2"),
        *[(four(upgraded(stack, bad_gpu)), "OtherKey 1") for stack in ("e", "f")],
        (reference_of("f", *FOUR[1:]), "BetweenLimits 0"), (four(upgraded("f", bad_gpu)), "TooSlow 1")],
    "one GPU is swapped, then the bad one, and is back": [FAILS, (swapped(5), "TooSlow 1"),
        (swapped(0), "WithinLimits 1"), SLOW],
    "one GPU is swapped, four recipes": [(FOUR_OF, " 0"), (four_bad, "TooSlow 2"), *[(four_swapped, "TooSlow 1")] * 3],
    "one GPU is swapped, last layers in names": [(LAYERS_OF, " 0"), (also(layers, four_bad), "TooSlow 2"),
        *[(also(layers, four_swapped), "TooSlow 1")] * 3],
    "no room for a doubt": [(FOUR_OF, " 0"), (swapped(0, bad_gpu, *FOUR[1:]), "TooSlow 2"), four_good,
        *[(of, "RunsLost 1") for of in (four(faint), four(sound), four_swapped)], DAY, four_good],
    "a day that ends": [FAILS, LATE, AGAIN, DAY, SLOW],
    "a day of another recipe": [ANOTHER, LATE, (of_two(bad_gpu, sound), "TooSlow 1"), DAY, SLOW],
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
async def test_no_edit_no_other_run_and_no_later_pass_forgets_what_a_gpu_did(name: str) -> None:
    """Each step's reason, and how many runs it took: an edit, another reference, or a rerun."""
    world = World(reference_of())
    for at, (step, expected) in enumerate(STEPS[name]):
        world.text = text_of(step) if isinstance(step, Reference) else world.text
        if isinstance(step, str):
            world.save(step)
        elif isinstance(step, timedelta):
            world.loop.offset = step
        elif callable(step) and not world.loop.jobs():
            world.rerun(f"{at}")
        elif not callable(step):
            world.save(world.text)
            world.ask(**(step if isinstance(step, dict) else {}))
        verdict = await (world.measure(step, at + 1) if callable(step) else world.settle())
        assert not expected or f"{verdict.get('reason', '')} {verdict.get('made', 0)}" == expected, (at, verdict)


@pytest.mark.parametrize(("runs", "verdict"), [
    ([bad_gpu, hot_bad], "Fail Throttled"), ([hot_bad, sound], "Pass WithinLimits"),
    ([hot_bad, bad_gpu, bad_gpu], "Fail TooSlow"), ([bad_gpu, also(hot, sound)], "Fail Throttled"),
    ([hot_bad, bad_gpu, sound], "Fail TooSlow"), ([warm_bad, sound], "Fail TooSlow"),
    ([warm_bad, warm_bad], "Fail TooSlow"), ([also(warm, sound)], "Inconclusive Throttled"),
])  # fmt: skip
async def test_heat_is_judged_by_the_operator_as_by_check(runs: list[Run], verdict: str) -> None:
    reference, made = EIGHT(), [run(11 + at) for at, run in enumerate(runs)]
    status = await World(reference).measure(lambda seed: made[seed % 10 - 1], 1)
    judged = judge(reference.recipes, [look_at(run, reference) for run in made], ["bf16"])
    assert (f"{status['verdict']} {status['reason']}", status["made"]) == (verdict, len(runs))
    assert f"{judged.outcome} {judged.reason}" == verdict


async def test_an_edit_decides_again_and_measures_nothing_and_a_replaced_reference_takes_a_pass_away() -> None:
    world = World(EIGHT())
    await world.measure(lambda seed: sound(seed, gpu_off=-1.5), 1)
    edits: dict[str, dict[str, Any]] = {"NotDetectable": {"mustDetectPercent": {"node": 1}}, "WithinLimits": {}}
    edits = {"NoReference": {"recipes": ["mxfp8"]}, "Expired": {"validFor": "1s"}} | edits
    assert [(await _edited(world, edit))["reason"] for edit in edits.values()] == list(edits)
    world.save(text_of(golden_draft(2)))
    assert ((await world.settle())["reason"], world.loop.jobs()) == ("ReferenceReplaced", {})
    world.save(world.text)
    assert (await world.settle())["verdict"] == "Pass"
    world.boot("boot-1", gpus=7)
    assert ((await world.settle())["reason"], world.loop.jobs()) == ("SubjectChanged", {})
    for driver in ("590.1", ""):
        world.boot("boot-1", driver=driver)
        assert (await world.settle())["message"].startswith("since it was measured its driver changed"), "or its label"
    world.boot("boot-1", driver="580.95.5")
    passed = await world.settle()
    world.loop.apply("nightly")
    assert "verdict" not in await world.settle(), "nobody asks any more"
    again = await _edited(world, {})
    assert (again["verdict"], again["runs"]) == ("Pass", passed["runs"]), "what passed has passed"
    world.loop.apply("nightly", suspend=True, acceptance={"reference": again["reference"]})
    world.save(text_of(golden_draft(2)))
    assert (await world.settle())["reason"] == "ReferenceReplaced", "who is suspended keeps no Pass either"
    world.save(world.text)
    for boot, late, verdict in (("boot-1", 29, "Pass"), ("boot-1", 31, None), ("boot-2", 0, None)):
        await _edited(world, {})
        world.loop.apply("nightly", workload={"preset": "of-a-newer-operator"})
        world.loop.actor._now = world.loop.gatherer._now = lambda days=late: datetime.now(UTC) + timedelta(days=days)
        world.boot(boot)
        assert (await world.settle()).get("verdict") == verdict, "what nobody can read keeps no Pass that is over"


async def _edited(world: World, edit: dict[str, Any]) -> dict[str, Any]:
    world.ask(**edit)
    late = timedelta(hours=edit.get("validFor") == "1s")
    world.loop.actor._now = lambda: datetime.now(UTC) + late
    return await world.settle()


async def test_a_full_result_that_was_changed_gives_no_verdict() -> None:
    for end, reason in (("", "WithinLimits"), ("AAAAAAA=", "NotMeasured")):
        world = World(EIGHT())
        world.loop.apply("nightly")
        await world.measure(sound, 1)
        (detail,) = [body for path, body in world.loop.cluster.objects.items() if path.endswith("-detail")]
        text = detail["binaryData"]["result.json.gz"]
        detail["binaryData"]["result.json.gz"] = text[: len(text) - len(end)] + end
        world.ask()
        assert (await world.settle())["reason"] == reason, "what was measured before is judged too"


async def test_a_gpu_is_compared_with_its_own_first_pass_even_under_another_node_object() -> None:
    days = {f"n{at}": measured_node(f"n{at}", 1) for at in range(8)}
    world = World(made({name: measured_node(name, 1, day=2) for name in days}, {}, old=made(days, {})[0])[0])
    assert {line.split()[1] for line in (await world.measure(sound, 1))["checks"]} == {"reference", "node"}
    meta = {"name": NODE, "uid": "uid-anew", "labels": node_object()["metadata"]["labels"]}
    world.loop.cluster._store(f"{paths.NODES}/{NODE}", node_object(name=NODE, boot="boot-2") | {"metadata": meta})
    assert "verdict" not in await world.settle(), "its report is of a node that is gone"
    for path in [path for path in world.loop.cluster.objects if path.startswith(f"{REPORTS}/")]:
        del world.loop.cluster.objects[path]
    assert {line.split()[1] for line in (await world.measure(sound, 1))["checks"]} == {"reference", "node", "change"}
    (held,) = [body for path, body in world.loop.cluster.objects.items() if "baseline" in path]
    far = json.dumps({"gpus": gpu_names(NODE), "bf16": [*range(0, 400, 50)]})
    gpu = json.dumps({"gpus": gpu_names(NODE)[:1]})
    odd = dict.fromkeys(gpu_names(NODE), '{"bf16": 0}') | {"1": "[]", "2": f"[{gpu}]", "3": far}
    odd |= {"0": gpu[:-1] + ', "bf16": [[]]}', "5": gpu[:-1] + ', "bf16": ' + "[" * 3999}
    held["data"] = {"4": next(iter(held["data"].values()))} | odd
    edited = await _edited(world, {"validFor": "700h"})
    assert (edited["verdict"], "change" in str(edited["checks"])) == ("Pass", False), "the oldest lies too far off"


async def test_first_passes_are_read_once_a_pass_after_agents_have_begun_and_rows_of_a_node_length_alone() -> None:
    world = World(EIGHT(1))
    await world.measure(sound, 1)
    ((path, held),) = [of for of in world.loop.cluster.objects.items() if "baseline" in of[0]]
    (row,) = held["data"].values()
    gpus = [*gpu_names(NODE), *map(str, range(999))]
    wide = json.dumps({"gpus": gpus, "bf16": [0] * len(gpus)})
    held["data"] |= {"0": wide, "1": wide.replace("GPU", "GPÜ")[:999]} | {f"9{at:05}": row for at in range(MOST_ROWS)}
    world.ask(validFor="700h")
    world.loop.apply("other")
    world.loop.cluster.requests.clear()
    await world.loop.once()
    asked = [how for how, to in world.loop.cluster.requests if to == path or to.startswith(f"{JOBS}/")]
    assert asked == ["POST", "GET"]
    reports, reference = world.loop.actor._reports, read_reference(world.text)
    reports.begin_pass()
    rows = await asyncio.gather(*(reports.baselines(NAMESPACE, reference) for _ in range(9)))
    assert len([it for it in world.loop.cluster.requests if it == ("GET", path)]) == 2
    assert {len(of) for of in rows} == {MOST_ROWS}
    assert {*chain(*rows)} == {row}
    assert first_speeds(["[" + row, *[row] * 99], ["bf16"], gpu_names("n51")) == {}


async def test_a_first_pass_is_one_of_the_recipes_that_were_judged() -> None:
    world = World(made({f"n{at}": two(measured_node(f"n{at}", 1)) for at in range(8)}, {})[0], recipes=["bf16"])
    await world.measure(lambda seed: two(sound(seed)), 1)
    firsts = []
    for _ in range(2):
        (held,) = [body for path, body in world.loop.cluster.objects.items() if "baseline" in path]
        firsts.append(json.loads([*held["data"].values()][-1]))
        assert (await _edited(world, {}))["verdict"] == "Pass"
    assert firsts == [{"gpus": [*gpu_names(NODE)], it: firsts[0]["bf16"]} for it in ("bf16", "fp8_current")]


DRIFTS = [
    (20, -2, 1, True), (20, -2, 15, False), (20, -0.4, 1, False), (8, -2, 1, True), (7, -2, 1, False),
    (20, -1.1, 1, True), (8, -1.1, 1, False), (19, -7, 1, True), (20, -100, 1, True),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "off", "days", "drifted"), DRIFTS)
def test_a_reference_has_drifted_where_the_last_8_to_20_nodes_lie_far_off(
    nodes: int, off: float, days: int, drifted: bool
) -> None:
    reference = golden_draft()
    asked = {"name": "h100-jan", "sha256": "0" * 64}
    verdict: dict[str, Any] = {"checks": [f"bf16 reference {off} 4.5 -", f"bf16 node {off} 3 0"], "reference": asked}
    judged = verdict | {"runs": {"run": f"r {format_time(NOW - timedelta(days=days))}"}}
    hotter = judged | {"checks": ["bf16 reference -7 4.5 -"]}
    row = {"recipe": "bf16", "availability": "ok", "verdict": "verified", "throttledShare": "0.2"}
    statuses = [ReportStatus.model_validate({"acceptance": judged | {"checks": []}})] * 20  # of another driver
    statuses += [ReportStatus.model_validate({"acceptance": judged, "results": [row | {"recipe": "mxfp8"}]})] * nodes
    statuses += [ReportStatus.model_validate({"acceptance": hotter, "results": [row]})] * 20
    reports = Filed({str(at): report(f"n{at}", status=status) for at, status in enumerate(statuses)})
    seen = observed([], references={("ml", "h100-jan"): ("0" * 64, reference)})
    terms = terms_of(profile(acceptance={"reference": asked}).spec, "ml", seen, reports)
    assert terms is not None
    alike = {"bf16": -off / 3} if drifted and off < -1.5 else {}
    assert (terms.shift, terms.alike) == (off if drifted else 0, alike)
    doubted = ReportAcceptance(verdict="Inconclusive", reason="ReferenceDrifted", basis=f"{terms.digest} 0")
    facts, status = node_facts(node_object()), ReportStatus(acceptance=doubted)
    assert is_due(terms, status, facts, NOW) is not drifted, "decided again once it is over"
    for check in ("reference", "node"):
        fail = doubted.model_copy(update={"reason": "TooSlow", "checks": (f"bf16 {check} -7 4.5 - Fail",)})
        due = is_due(terms, ReportStatus(acceptance=fail), facts, NOW)
        assert due is (drifted if check == "reference" else bool(alike)), "a Fail like most nodes' is decided again"
