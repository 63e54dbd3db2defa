"""Who asks whom: one process for all recipes of a GPU, a fresh one after each that broke, and never another's fault."""

import json
import sys
from collections.abc import Iterator

import pytest

from precision_agent.backends.te.tiers.probe import Ended, probe_of
from precision_agent.backends.te.tiers.prober import Prober
from precision_agent.cases import Variant
from precision_api.facts.recipes import Recipe
from tests.agent.test_te_backend import Bench

pytestmark = pytest.mark.torch

CHILD = """
import json, os, signal, sys
from multiprocessing.connection import Connection
wire, before = Connection(int(sys.argv[1])), 0
print("noise of a library", flush=True)
while True:
    try:
        recipe = wire.recv_bytes().decode()
    except EOFError:
        break
    told = {"pid": os.getpid(), "before": before}
    if recipe == "fp8_delayed":
        print("Segmentation fault", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if recipe == "nvfp4":
        signal.pause()
    if recipe == "mxfp8":
        told = {"error": "AssertionError: no", "hint": [False, "capability 10.0 or higher required"], **told}
    if recipe == "fp8_block" and before:
        told = {"error": "RuntimeError: CUDA error: misaligned address", "hint": [True, ""], **told}
    if recipe == "nvfp4_no_rht":
        told = {"error": "RuntimeError: CUDA error: misaligned address", "hint": [True, ""], **told}
    wire.send_bytes(json.dumps(told).encode())
    before += 1
"""
"""Speaks as the program does; what it does with a recipe is in its lines."""


@pytest.fixture
def prober() -> Iterator[Prober]:
    made = Prober((sys.executable, "-c", CHILD), timeout=20.0)
    yield made
    made.end()


def asked(prober: Prober, *recipes: Recipe) -> list[tuple[int, int]]:
    """The process and how many were asked of it before, for each recipe."""
    found = [json.loads(prober.ask(recipe).stdout) for recipe in recipes]
    return [(told["pid"], told["before"]) for told in found]


def test_one_process_tries_all_recipes_of_a_gpu_those_that_the_hardware_lacks_too(prober: Prober) -> None:
    rows = asked(prober, "bf16", "fp8_current", "mxfp8", "bf16")
    assert len({pid for pid, _ in rows}) == 1
    assert [before for _, before in rows] == [0, 1, 2, 3]


def test_a_recipe_that_crashes_has_its_reason_and_the_next_one_a_fresh_process(prober: Prober) -> None:
    ((first, _),) = asked(prober, "bf16")
    crashed = prober.ask("fp8_delayed")
    ((second, before),) = asked(prober, "bf16")
    assert (crashed.code, before) == (-11, 0)
    assert "Segmentation fault" in probe_of("fp8_delayed", crashed).reason
    assert first != second


def test_an_error_of_its_own_is_told_and_one_after_others_asked_again(prober: Prober) -> None:
    assert [before for _, before in asked(prober, "bf16", "fp8_block", "bf16")] == [0, 0, 1]
    told = prober.ask("nvfp4_no_rht")
    assert probe_of("nvfp4_no_rht", told).reason == "nvfp4_no_rht: RuntimeError: CUDA error: misaligned address"
    assert asked(prober, "bf16")[0][1] == 0


def test_a_hung_recipe_is_killed_once_and_the_next_one_goes_on(prober: Prober) -> None:
    asked(prober, "bf16")
    prober.timeout = 0.2
    assert prober.ask("nvfp4") == Ended(None, "", "")
    prober.timeout = 20.0
    assert asked(prober, "bf16")[0][1] == 0


def test_what_was_ended_begins_anew(prober: Prober) -> None:
    first = asked(prober, "bf16")
    prober.end()
    prober.end()
    assert asked(prober, "bf16") != first


def test_no_process_of_the_probes_is_left_when_something_is_prepared() -> None:
    bench = Bench()
    bench.backend.probe(Variant("bf16", "bf16"))
    assert bench.prober.alive
    bench.backend.prepare(bench.cases.gemms[0], bench.cases.baseline)
    assert not bench.prober.alive
