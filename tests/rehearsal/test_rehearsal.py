"""The rehearsal's own parts that need neither CUDA's headers nor a torch that knows CUDA.

The sampler's clock in a rehearsal: it keeps its ticks on a machine that is too busy for them.
"""

import importlib
import json
import os
import subprocess
import sys
from importlib.util import module_from_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from precision_agent.backends.te.steps.modules import LinearShape
from precision_agent.precision.verification import ERROR_BANDS
from precision_agent.results.explain import as_text, explain
from precision_api.exchange.result import NumericErrors
from precision_api.facts.products import part
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from tests.rehearsal import answers
from tests.rehearsal.__main__ import main, parser, rehearsal_of
from tests.rehearsal.activations import main as activations_main
from tests.rehearsal.activations import wrong
from tests.rehearsal.build import LIBRARIES, NVML, NotBuilt, build, commands
from tests.rehearsal.calls import wrong_order, wrong_profiles
from tests.rehearsal.environment import GPUS, START, Rehearsal, environment, nvml_script
from tests.rehearsal.ticks import SAMPLER, Ticks, is_sampler
from tests.rehearsal.weights import first_number, set_zero
from tests.support.result_objects import result
from tests.support.te_fake import fakes

ROOT = Path(__file__).parents[2]


def patched(name: str) -> Any:
    """A copy of the module as a rehearsal loads it; the one that other tests use stays as it is."""
    importlib.import_module(name)
    folder = importlib.import_module(name.rpartition(".")[0]).__path__
    spec = answers.Finder().find_spec(name, folder)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rehearsal(folder: Path, **given: Any) -> Rehearsal:
    return Rehearsal(folder / "lib", folder / "site", **given)


def test_the_agents_arguments_come_after_two_dashes() -> None:
    line = "run --site /s --compute 10.0 --memory-gib 40 --fail adam -- run --local --preset llama3-8b"
    asked = parser().parse_args(line.split())
    assert asked.arguments == ["run", "--local", "--preset", "llama3-8b"]
    made = rehearsal_of(asked)
    assert (made.site, made.compute, made.gib, made.fail) == (Path("/s"), "10.0", 40, "adam")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["build"], "--cuda-include"),
        (["run", "--compute", "8.0"], "'8.0'"),
        (["run", "--local"], "--local"),
        ([], "command"),
    ],
    ids=["no headers", "unknown compute capability", "the agent's option without two dashes", "nothing"],
)
def test_what_cannot_be_understood_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_what_is_not_there_is_told_with_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Were it started all the same, no module of that name would end it, and with it these tests, with an error.
    options = ["run", "--library", str(tmp_path / "lib"), "--site", str(tmp_path / "site"), "--module", "no_module"]
    assert main(options) == 1
    assert "python -m tests.rehearsal build" in capsys.readouterr().err
    (tmp_path / "lib").mkdir()
    for name in LIBRARIES:
        (tmp_path / "lib" / name).touch()
    assert main(options) == 1
    assert "no transformer_engine" in capsys.readouterr().err
    (tmp_path / "site" / "transformer_engine").mkdir(parents=True)
    assert rehearsal(tmp_path).missing() is None
    assert Rehearsal(tmp_path / "lib").missing() is None


def test_the_environment_puts_the_device_in_front_of_what_was_there(tmp_path: Path) -> None:
    around = {"HOME": "/h", "PYTHONPATH": "/mine", "LD_LIBRARY_PATH": "/other", "CUDA_REHEARSAL_FAIL": "old"}
    made = environment(rehearsal(tmp_path, fail="gemm"), "/script", "/power", around)
    site = str(tmp_path / "site")
    assert made == {
        "HOME": "/h",
        "LD_PRELOAD": str(tmp_path / "lib" / "librehearsal.so"),
        "LD_LIBRARY_PATH": f"{tmp_path / 'lib'}:/other",
        "PYTHONPATH": ":".join(map(str, (START, ROOT, ROOT / "crds", ROOT / "agent", site, "/mine"))),
        "FAKE_NVML_SCRIPT": "/script",
        "CUDA_REHEARSAL_COMPUTE": "9.0",
        "CUDA_REHEARSAL_MEMORY_GIB": "79.1",
        "CUDA_REHEARSAL_NAME": "Rehearsal (no GPU), like NVIDIA H100 80GB HBM3",
        "CUDA_REHEARSAL_FAIL": "gemm",
        "CUDA_REHEARSAL_POWER": "/power",
    }


@pytest.mark.parametrize("compute", GPUS)
def test_the_devices_name_is_no_gpus_and_its_product_is_found_in_a_rehearsal_alone(compute: str) -> None:
    made = Rehearsal(Path(), compute=compute)
    assert made.name.startswith("Rehearsal (no GPU), like NVIDIA ")
    assert part(made.name) is None
    found = patched("precision_api.facts.products").part(made.name)
    assert found.name == getattr(part(GPUS[compute].name), "name", None)
    assert ".".join(map(str, found.compute)) == compute
    assert found.power_limit_watts == GPUS[compute].limit_watts


def test_every_process_of_a_rehearsal_has_the_answers(tmp_path: Path) -> None:
    made = environment(Rehearsal(tmp_path), "", "", {**os.environ, "PYTHONPATH": ""})
    code = "import sys; from precision_api.facts.products import part; print(part(sys.argv[1]).product)"
    command = [sys.executable, "-c", code, made["CUDA_REHEARSAL_NAME"]]
    done = subprocess.run(command, env=made, capture_output=True, text=True, timeout=60)
    assert done.stdout == "H100\n", done.stderr


def test_attention_is_unfused_also_after_a_second_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTE_FUSED_ATTN", "1")
    module = SimpleNamespace(load=lambda: os.environ.pop("NVTE_FUSED_ATTN", None))  # as the agent's
    answers.unfused_attention(module)
    assert [(module.load(), os.environ["NVTE_FUSED_ATTN"]) for _ in range(2)] == [(None, "0")] * 2


def test_a_rehearsals_result_is_simulated_and_says_what_is() -> None:
    pool = patched("precision_agent.sampling.process_pool").ProcessPool([], 1, lambda: None)
    pool._name = "transformer-engine"  # asked of a process otherwise
    provenance = pool.provenance()
    told = result().model_dump() | {
        "provenance": provenance.kind, "sources": provenance.sources, "simulated": provenance.simulated,
    }  # fmt: skip
    text = as_text(explain(type(result()).model_validate(told)))
    assert "this machine was not measured: a rehearsal of the agent on a CUDA runtime without a device" in text
    for field in answers.SIMULATED:
        assert f"simulated {field}" in text


@pytest.mark.torch
@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_products_are_compared_and_the_middle_of_the_recipes_band_is_told(recipe: Recipe) -> None:
    tier = patched("precision_agent.backends.te.tiers.gemm_tier")
    world, api, engine = fakes()
    unit = tier.Unit(api, engine, LinearShape(32, 64, 32), recipe, 1, 0)
    before = world.gpu.now
    errors: NumericErrors = unit.checked()
    assert world.gpu.now > before  # the products ran
    band = ERROR_BANDS[recipe]
    assert (errors.y, errors.dx, errors.dw) == ((band.low * band.high) ** 0.5,) * 3
    assert tier._finite(torch.zeros(1))


@pytest.mark.torch
def test_on_the_device_every_number_is_finite_and_nothing_equals_another() -> None:
    made = SimpleNamespace(isfinite=torch.isfinite, equal=torch.equal, ones=torch.ones, bool=torch.bool)
    answers.torch_answers(made)
    there, here = SimpleNamespace(is_cuda=True), torch.tensor([1.0, float("nan")])
    assert made.isfinite(there).all()
    assert made.isfinite(here).tolist() == [True, False]
    assert not made.equal(there, there)
    assert made.equal(here[:1], here[:1].clone())


HALF_A_COMPILER = """#!/bin/sh
for word; do [ "$last" = -o ] && : > "$word"; last=$word; done
echo 'graphs.cpp:7: what is this?' >&2
exit 3
"""


def test_a_compilers_error_is_told_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    include, out, compilers = tmp_path / "include", tmp_path / "out", tmp_path / "bin"
    for folder in (include, compilers):
        folder.mkdir()
    options = ["build", "--cuda-include", str(include), "--out", str(out)]
    assert main(options) == 1
    assert "has no cuda_runtime_api.h" in capsys.readouterr().err
    (include / "cuda_runtime_api.h").touch()
    monkeypatch.setenv("PATH", str(compilers))
    assert main(options) == 1
    assert "starting g++: " in capsys.readouterr().err
    (compilers / "g++").write_text(HALF_A_COMPILER)
    (compilers / "g++").chmod(0o755)
    with pytest.raises(NotBuilt, match=r"g\+\+ ended with code 3:\ngraphs.cpp:7: what is this\?"):
        build(include, out)
    assert list(out.iterdir()) == []


READ_NVML = """
import ctypes, json, struct, sys
nvml = ctypes.CDLL(sys.argv[1])
joules, watts = nvml.fake_nvml_joules, nvml.fake_nvml_watts
joules.restype = watts.restype = ctypes.c_double
joules.argtypes = watts.argtypes = [ctypes.c_double, ctypes.c_double]
nvml.fake_nvml_set_seconds.argtypes = [ctypes.c_double]
file = open(sys.argv[2], "r+b")

def add(millisecond, microjoules):
    file.seek(4 * millisecond)
    file.write(struct.pack("I", microjoules))
    file.flush()

told = [joules(1.0, 1.2)]
add(1500, 3_000_000)
told += [joules(1.0, 2.0), joules(1.0, 3.0), joules(1.0, 3.0), watts(1.49, 1.51)]
assert nvml.nvmlInit_v2() == 0
device, name, counter = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.c_ulonglong()
assert nvml.nvmlDeviceGetHandleByPciBusId_v2(b"", ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetName(device, name, 96) == 0
nvml.fake_nvml_set_seconds(5.0)
assert nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(counter)) == 0
print(json.dumps([told, name.value.decode(), counter.value]))
"""


def test_nvmls_stand_in_has_the_devices_name_and_a_counter_of_what_was_drawn(tmp_path: Path) -> None:
    script, power = tmp_path / "script", tmp_path / "power"
    script.write_text(nvml_script(Rehearsal(tmp_path, compute="10.0")))
    power.touch()
    subprocess.run(commands(tmp_path, tmp_path)[LIBRARIES.index(NVML)], check=True, capture_output=True, timeout=60)
    command = [sys.executable, "-c", READ_NVML, str(tmp_path / NVML), str(power)]
    around = os.environ | {"FAKE_NVML_SCRIPT": str(script), "CUDA_REHEARSAL_POWER": str(power)}
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    joules, name, millijoules = json.loads(done.stdout)
    assert joules == pytest.approx([18, 93, 183, 183, 240])
    assert name == "Rehearsal (no GPU), like NVIDIA B200"
    assert millijoules == pytest.approx(450_000, abs=1)


GELU = (
    "void transformer_engine::unary_kernel<16, true, float, transformer_engine::Empty, &(float "
    "transformer_engine::qgelu<float, float>(float, transformer_engine::Empty const&)), __nv_bfloat16>(x)"
)
"""As Transformer Engine 2.20.2 names it, in every recipe; what it gives may be of another type."""
DGELU = GELU.replace("unary_kernel", "unary_grad_kernel").replace("::qgelu<", "::dqgelu<")


def test_one_activation_in_every_recipe_is_seen_and_another_is_told() -> None:
    both = ["nvjet_sm90_tst_128x64", GELU, DGELU]
    fp8 = [name.replace("__nv_bfloat16", "__nv_fp8_e4m3") for name in both]
    assert wrong({"bf16": both, "fp8_current": fp8}) == ()
    assert wrong({"fp8_delayed": [GELU, "cast_transpose_fusion_kernel_optimized"]}) == ()
    compiled = [*both[:1], "triton_poi_fused_add_gelu_0"]
    told = wrong({"bf16": compiled, "fp8_current": fp8})
    assert told == (
        "bf16: Transformer Engine's kernels apply no GELU",
        "bf16: another activation: triton_poi_fused_add_gelu_0",
    )
    small = [*both, "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(x)>(int)"]
    assert wrong({"bf16": small})[0].startswith("bf16: another activation: void at::native")
    assert wrong({}) == ("no trace",)


def test_the_activations_of_a_runs_traces_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for recipe, names in {"bf16": [GELU, DGELU], "mxfp8": [DGELU]}.items():
        events = [{"cat": "kernel", "name": name} for name in names] + [{"cat": "cpu_op", "name": "aten::tanh"}]
        (tmp_path / f"trace-{recipe}.json").write_text(json.dumps({"traceEvents": events}))
    assert activations_main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "mxfp8: Transformer Engine's kernels apply dqgelu\n"
    (tmp_path / "trace-mxfp8.json").unlink()
    assert activations_main([str(tmp_path)]) == 0


@pytest.mark.torch
def test_the_first_number_of_a_tensor_is_read_and_set_where_it_lies() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.tensor([3.0, 5.0], dtype=dtype)
        assert first_number(tensor) == 3.0
        set_zero([tensor])
        assert tensor.tolist() == [0.0, 5.0]


def call(what: str, began: float, ended: float, process: int = 1) -> dict[str, Any]:
    return {"process": process, "call": what, "began": began, "ended": ended}


ORDERS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "profiles at the end, a prober's at the start": (
        [call("profiler", 0, 1, process=7), call("measure", 1, 2), call("power_window", 3, 4), call("profiler", 5, 6)],
        [],
    ),
    "a profile between two windows": (
        [call("measure", 0, 1), call("profiler", 2, 3), call("measure", 4, 5)],
        ["process 1: 1 profiles began before the last measure ended"],
    ),
    "no profile": ([call("measure", 0, 1)], ["process 1: nothing was profiled"]),
    "nothing": ([], ["nothing was timed"]),
}


@pytest.mark.parametrize(("calls", "told"), ORDERS.values(), ids=ORDERS)
def test_a_profiler_begun_before_the_last_timed_window_is_found(calls: list[dict[str, Any]], told: list[str]) -> None:
    assert wrong_order(calls) == told


def test_profiles_fail_for_want_of_kernels_exactly_where_there_are_none() -> None:
    good, failed = {"load": "training"}, {"load": "gemms", "failure": {"reason": "no_kernels"}}
    mixed = {"recipes": [{"recipe": "bf16", "kernel_profiles": [good, failed]}]}
    assert wrong_profiles(mixed, no_kernels=False) == ["bf16, gemms: no_kernels"]
    assert wrong_profiles(mixed, no_kernels=True) == ["bf16, training: profiled without kernels"]
    assert wrong_profiles({"recipes": [{"recipe": "bf16"}]}, no_kernels=True) == ["the result has no profile"]


class Busy:
    """A machine whose waits take `late` seconds longer than asked for."""

    def __init__(self, late: float) -> None:
        self.late, self.at, self.asked, self.told = late, 100.0, list[float](), list[float]()

    def now(self) -> float:
        return self.at

    def wait(self, read: Any, write: Any, error: Any, timeout: float) -> tuple[list[Any], ...]:
        self.asked.append(timeout)
        self.at += timeout + self.late
        return [], [], []


@pytest.mark.parametrize("late", [0.0, 0.03, 2.0])
def test_the_sensor_is_asked_at_every_tick_however_late_the_process_wakes_up(late: float) -> None:
    machine = Busy(late)
    ticks = Ticks(machine.now, machine.wait, machine.told.append)
    seen = [ticks.monotonic()]
    for _ in range(20):
        ticks.select([], [], [], 0.05)
        seen.append(ticks.monotonic())
    assert seen == machine.told == pytest.approx([100 + 0.05 * tick for tick in range(21)])
    assert all(timeout >= 0 for timeout in machine.asked)


def test_late_ticks_are_made_up_for_by_the_sampler_alone() -> None:
    machine = Busy(late=1.0)
    ticks = Ticks(machine.now, machine.wait, machine.told.append)
    for _ in range(3):
        ticks.select([], [], [], 0.05)
    assert machine.asked == pytest.approx([0.05, 0.0, 0.0])
    assert is_sampler(["python", "-m", SAMPLER, "file", "0.05", "1", "GPU-0"])
    assert not is_sampler(["python", "-m", "precision_agent", "run", SAMPLER])
