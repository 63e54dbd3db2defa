"""Who asks whom: one process for all recipes of a GPU, a fresh one after each that broke, and never another's fault.

What the end of a probe's process says of a recipe; and the probe itself, on the made-up GPU.
"""

import json
import os
import socket
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.backends.te.tiers.probe import Ended, Prober, main, probe_of, run, serve
from precision_agent.cases import Variant
from precision_api.facts.recipes import Recipe
from tests.support.te_bench import Bench
from tests.support.te_device import GEMM
from tests.support.te_fake import fakes
from tests.support.te_signatures import TAGS

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
        told = {"refused": "capability 10.0 or higher required", **told}
    if recipe == "fp8_block" and before:
        told = {"error": "RuntimeError: CUDA error: misaligned address", **told}
    if recipe == "nvfp4_no_rht":
        told = {"error": "RuntimeError: CUDA error: misaligned address", **told}
    wire.send_bytes(json.dumps(told).encode())
    before += 1
"""
"""Speaks as the program does; what it does with a recipe is in its lines."""
FP8 = {"y": 0.037, "dx": 0.059, "dw": 0.059}
SMALL = LinearShape(128, 128, 128)
"""The made-up GPU multiplies on the CPU, where the shape of real probes takes long."""


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
    assert (len({pid for pid, _ in rows}), [before for _, before in rows]) == (1, [0, 1, 2, 3])


def test_an_error_of_its_own_is_told_one_after_others_asked_again_and_after_a_crash_the_next_has_a_fresh_process(
    prober: Prober,
) -> None:
    assert [before for _, before in asked(prober, "bf16", "fp8_block", "bf16")] == [0, 0, 1]
    told = prober.ask("nvfp4_no_rht")
    assert probe_of("nvfp4_no_rht", told).reason == "nvfp4_no_rht: RuntimeError: CUDA error: misaligned address"
    assert asked(prober, "bf16")[0][1] == 0
    ((first, _),) = asked(prober, "bf16")
    crashed = prober.ask("fp8_delayed")
    ((second, before),) = asked(prober, "bf16")
    assert (crashed.code, before) == (-11, 0)
    assert "Segmentation fault" in probe_of("fp8_delayed", crashed).reason
    assert first != second


def test_a_hung_recipe_is_killed_once_and_the_next_one_goes_on_and_what_was_ended_begins_anew(prober: Prober) -> None:
    asked(prober, "bf16")
    prober.timeout = 0.2
    assert prober.ask("nvfp4") == Ended(None, "", "")
    prober.timeout = 20.0
    assert asked(prober, "bf16")[0][1] == 0
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


def ended(code: int | None = 0, stderr: str = "", **told: Any) -> Ended:
    return Ended(code, f"noise\n{json.dumps(told)}\n" if told else "noise\n", stderr)


def kernels(name: str) -> list[list[Any]]:
    return [[name, 1e-5], ["void transformer_engine::cast_transpose_kernel<__nv_bfloat16>(float*)", 1e-6]]


def test_own_kernels_are_verified_mxfp8s_emulated_and_bf16_a_fallback() -> None:
    found = probe_of("fp8_current", ended(kernels=kernels(GEMM["fp8_current"][0]), errors=FP8, flags={}))
    assert (found.availability, found.verification.verdict) == ("ok", "verified")
    assert found.verification.errors
    assert [kernel.class_ for kernel in found.verification.kernels] == ["fp8", "not_a_gemm"]
    rows = [*kernels(GEMM["mxfp8"][0]), ["void swizzle_block_scaling_to_mxfp8_scaling_factors_kernel(int)", 1e-6]]
    found = probe_of("fp8_block", ended(kernels=rows, errors=FP8))
    assert (found.availability, found.verification.verdict) == ("emulated", "emulated")
    found = probe_of("nvfp4", ended(kernels=kernels(GEMM[None][0]), errors={"y": 0.0017}))
    assert (found.availability, found.verification.verdict) == ("ok", "fallback")


@pytest.mark.parametrize(
    ("end", "availability", "reason"),
    [
        (ended(refused="Transformer Engine says: capability 10.0 or higher required"), "unsupported",
         "mxfp8: Transformer Engine says: capability 10.0 or higher required"),
        (ended(error="RuntimeError: CUDA error: an illegal memory access"), "probe_failed",
         "mxfp8: RuntimeError: CUDA error: an illegal memory access"),
        (ended(-11, stderr="Segmentation fault"), "probe_failed",
         "mxfp8: the probe's process ended with code -11: Segmentation fault"),
        (ended(None), "probe_failed", "mxfp8: no end of the probe within 180 s: its process was killed"),
        (Ended(1, '{"kernels": [', ""), "probe_failed",
         "mxfp8: the probe's process ended with code 1: nothing on its stderr"),
    ],
    ids=["hardware", "cuda-error", "crash", "hung", "half-a-line"],
)  # fmt: skip
def test_a_recipe_that_does_not_run_has_its_reason(end: Ended, availability: str, reason: str) -> None:
    found = probe_of("mxfp8", end)
    assert (found.availability, found.reason) == (availability, reason)


@pytest.mark.parametrize("tag", TAGS)
def test_the_probe_runs_a_linear_and_a_transformer_layer_on(tag: str) -> None:
    world, api, engine = fakes(tag)
    probe = run(api, engine, "fp8_current", SMALL)
    assert {"pytorch.Linear.forward", "pytorch.TransformerLayer.forward"} <= {symbol for symbol, _ in world.calls}
    found = probe_of("fp8_current", Ended(0, json.dumps(probe), ""))
    assert (found.availability, found.verification.verdict) == ("ok", "verified")


NEWER = "nvjet_sm107_xxtst_256x256_256x4_2x2_2cta_h_bz_TNT"
"""A GEMM of a GPU that nobody has seen yet."""


def test_the_check_says_what_is_tried_the_probe_what_exists_and_unknown_names_are_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, api, engine = fakes()

    def probed(recipe: Recipe) -> tuple[str, str, str]:
        world.calls.clear()
        found = probe_of(recipe, Ended(0, json.dumps(run(api, engine, recipe, SMALL)), ""))
        return found.availability, found.verification.verdict, found.reason

    availability, _, reason = probed("nvfp4")
    assert (availability, world.calls) == ("unsupported", [])
    assert reason.startswith("nvfp4: Transformer Engine says: Device compute capability 10.0 or higher required for")
    monkeypatch.setattr(api.manager, "is_nvfp4_available", lambda: (True, ""))
    monkeypatch.setitem(GEMM, "nvfp4", (NEWER, 4.0))
    availability, verdict, reason = probed("nvfp4")
    assert (availability, verdict) == ("ok", "unknown")
    assert "what the unknown kernels computed is unknown" in reason
    monkeypatch.delattr(api.recipe, "NVFP4BlockScaling")
    availability, verdict, reason = probed("nvfp4")
    assert (availability, verdict) == ("probe_failed", "unknown")
    assert reason.startswith("nvfp4: AttributeError: ")
    old = fakes("v2.18")
    assert run(*old[1:], "mxfp8_2d") == {"refused": "it came with Transformer Engine 2.19, and this is 2.18.0+fake"}


def test_what_is_not_a_socket_is_no_way_to_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fp8_current"]) == 2
    assert "a socket on which recipes are asked for" in capsys.readouterr().err


def test_one_process_answers_recipe_after_recipe_with_what_transformer_engine_did() -> None:
    _, api, engine = fakes()
    ours, theirs = socket.socketpair()
    with Connection(theirs.detach()) as their_end, Connection(os.dup(ours.fileno())) as wire:
        for asked in ("fp8_delayed", "mxfp8", "fp5"):
            wire.send_bytes(asked.encode())
        ours.shutdown(socket.SHUT_WR)
        serve(their_end, lambda recipe: run(api, engine, recipe, SMALL))
        answers = [wire.recv_bytes().decode() for _ in range(3)]
    ours.close()
    found = [probe_of("fp8_delayed", Ended(0, answers[0], "")), probe_of("mxfp8", Ended(0, answers[1], ""))]
    assert [(one.availability, one.verification.verdict) for one in found] == [("ok", "verified")] * 2
    assert "no recipe is called fp5" in answers[2]


def test_the_program_answers_where_transformer_engine_is_and_where_it_is_not() -> None:
    prober = Prober()
    try:
        ended = prober.ask("bf16")
    finally:
        prober.end()
    assert ended.code == 0, ended.stderr
    assert {"error"} <= json.loads(ended.stdout).keys() or {"kernels"} <= json.loads(ended.stdout).keys()
