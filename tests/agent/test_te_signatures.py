"""Every call of Transformer Engine against the signatures of six of its tags."""

import contextlib
import inspect
import json
import logging
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from precision_agent.backends.te import api
from precision_agent.backends.te.api import Unusable, missing, version_of
from precision_agent.backends.te.session.engine import device_of
from precision_agent.backends.te.steps import recipes
from precision_agent.power.nvml import GpuReadings
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES
from tests.support.golden import beside
from tests.support.te_device import FakeGpu
from tests.support.te_fake import World, fake_api
from tests.support.te_signatures import OUT, TAGS, of_version, parameters_of, signature_of, signatures

TABLES = beside(__file__)

pytestmark = pytest.mark.torch


def world(tag: str) -> World:
    return World(tag, FakeGpu())


@pytest.mark.parametrize("tag", TAGS)
def test_every_call_of_the_backend_binds_to_the_signatures_of(tag: str) -> None:
    assert missing(signatures(tag)) == ()
    misspelt = world(tag)
    with pytest.raises(TypeError, match="delay_wgrad"):
        fake_api(tag, misspelt).pytorch.Linear(in_features=1, out_features=1, delay_wgrad=True)
    with pytest.raises(TypeError, match="disable_hadamard"):
        fake_api(tag, misspelt).recipe.NVFP4BlockScaling(disable_hadamard=True)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_every_recipe_can_be_built_in(tag: str, recipe: str) -> None:
    made = recipes.make(fake_api(tag, world(tag)), recipe)  # type: ignore[arg-type]
    assert (made is None) == (recipe == "bf16")
    if made is not None:
        assert made.values.keys() == signatures(tag)[f"common.recipe.{made.name}"].parameters.keys(), "no default"


def test_a_recipe_has_quantizers_where_the_contract_names_its_class_and_needs_by_name() -> None:
    changed = dict(signatures("v2.20")) | {"pytorch.Linear": signature_of("in_features, out_features, bias=...")}
    assert missing(changed) == (
        "pytorch.Linear(params_dtype)", "pytorch.Linear(device)", "pytorch.Linear(delay_wgrad_compute)",
        "pytorch.Linear(fuse_wgrad_accumulation)")  # fmt: skip
    changed.pop("common.recipe.DelayedScaling")
    assert "common.recipe.DelayedScaling" in missing(changed)
    quantized = {recipe: row.te_class is not None for recipe, row in RECIPES.items()}
    assert {recipe: call is not None for recipe, call in recipes.CALLS.items()} == quantized


@pytest.mark.parametrize(("tag", "name"), [("v2.8", "fp8_autocast"), ("v2.9", "autocast"), ("v2.20", "autocast")])
def test_the_newer_name_of_autocast_is_taken_where_there_is_one(tag: str, name: str) -> None:
    seen = world(tag)
    made = fake_api(tag, seen)
    with made.autocast(recipes.make(made, "fp8_current")):
        assert seen.recipe is not None
        with made.autocast(None):
            assert seen.recipe is None
    assert (f"pytorch.{name}", frozenset({"enabled", made.recipe_parameter})) in seen.calls


def test_what_is_recorded_of_each_tag_says_where_it_is_from() -> None:
    versions = json.loads(OUT.read_text())["versions"]
    assert tuple(versions) == TAGS
    for tag, told in versions.items():
        if told["commit"] is None:
            assert told["package"].startswith(tag.removeprefix("v"))
            assert re.fullmatch("[0-9a-f]{64}", told["sha256"])
        else:
            assert re.fullmatch("[0-9a-f]{40}", told["commit"])


@pytest.mark.parametrize(("text", "version"), [("2.8.0+40c69e7", (2, 8)), ("2.20.2", (2, 20)), ("3.0.0.dev0", (3, 0))])
def test_versions_are_read(text: str, version: tuple[int, int]) -> None:
    assert version_of(text) == version


def test_a_version_that_is_old_lacks_a_name_or_is_not_there_is_refused_by_name() -> None:
    known = fake_api("v2.20", world("v2.20"))
    with pytest.raises(Unusable, match=r"2\.7 is too old: 2\.8 or newer"):
        api.api_of("2.7", known.pytorch, known.recipe, known.manager)
    del known.pytorch.GroupedLinear
    with pytest.raises(Unusable, match=r"3\.1 is newer than what this agent knows: it lacks pytorch\.GroupedLinear"):
        api.api_of("3.1", known.pytorch, known.recipe, known.manager)
    del known.pytorch.autocast
    del known.pytorch.fp8_autocast
    with pytest.raises(Unusable, match="neither autocast nor fp8_autocast"):
        api.api_of("2.20", known.pytorch, known.recipe, known.manager)
    with pytest.raises(Unusable, match="loading Transformer Engine: ModuleNotFoundError: No module named 'transformer"):
        api.load()


def nvfp4(kind: type, rht: bool) -> dict[recipes.QuantizerRole, object]:
    def made(rht_: bool, stochastic: bool, square: bool) -> object:
        found = kind()
        found.with_rht, found.stochastic_rounding, found.with_2d_quantization = rht_, stochastic, square
        return found

    return {"input": made(rht, False, False), "weight": made(False, False, True), "gradient": made(rht, True, False)}


def test_quantizers_of_another_recipe_or_transform_are_found_out() -> None:
    kind = type("NVFP4Quantizer", (), {})
    assert recipes.wrong_quantizers("nvfp4", nvfp4(kind, rht=True)) is None
    assert recipes.wrong_quantizers("nvfp4_no_rht", nvfp4(kind, rht=False)) is None
    assert recipes.wrong_quantizers("nvfp4", nvfp4(kind, rht=False)) == "nvfp4: the input's with_rht is False, not True"
    found = recipes.wrong_quantizers("mxfp8", nvfp4(type("NVFP4Quantizer", (), {}), rht=True))
    assert found == "mxfp8: the input's quantizer is NVFP4Quantizer, not MXFP8Quantizer"
    assert recipes.wrong_quantizers("mxfp8", {}) == "mxfp8: no quantizer for input, weight, gradient"
    assert recipes.wrong_quantizers("bf16", {}) is None
    assert recipes.wrong_quantizers("bf16", {"input": object()}) == "bf16 quantises: input"


SOURCE = '''
def plain(a: int, b: str = "x", *, c: bool = True, **rest: int) -> None: ...

class Layer(Module):
    """A module."""
    def __init__(self, size: int, bias: bool = True): ...
    def forward(self, inp: Tensor, first: Optional[bool] = None): ...

@dataclass(repr=False)
class Scaling(Recipe):
    margin: int = 0
    params = QParams(1)
    needed: str
'''


@pytest.mark.parametrize(
    ("name", "parameters"),
    TABLES["parameters"],
)
def test_parameters_are_read_from_source(name: str, parameters: str | None) -> None:
    assert parameters_of(SOURCE, name) == parameters


def test_signatures_are_pythons_and_of_what_a_version_exports() -> None:
    files = {
        "transformer_engine/pytorch/__init__.py": "from x import Linear",
        "transformer_engine/pytorch/module/linear.py": "class Linear:\n  def __init__(self, a): ...",
        "transformer_engine/pytorch/transformer.py": "class TransformerLayer:\n  def __init__(self, a): ...",
    }
    assert of_version(files.get) == {"pytorch.Linear": "a"}
    found = signature_of("self_, b=..., *, c=..., **rest").parameters
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD
    last = [inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD]
    assert [parameter.kind for parameter in found.values()] == [named, named, *last]


def load() -> None:
    """As far as it comes without Transformer Engine."""
    with contextlib.suppress(Unusable):
        api.load()


def test_without_a_compiler_or_pythons_header_small_functions_are_left_uncompiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("NVTE_TORCH_COMPILE", "")
    monkeypatch.delenv("NVTE_TORCH_COMPILE")
    load()
    header = Path(sysconfig.get_path("include"), "Python.h").is_file()
    assert ("NVTE_TORCH_COMPILE" in os.environ) is (not (header and any(map(shutil.which, ("gcc", "clang")))))
    monkeypatch.setenv("PATH", "/nowhere")
    load()
    assert os.environ["NVTE_TORCH_COMPILE"] == "0"
    monkeypatch.setenv("CC", "/usr/bin/cc")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert api._compiler() is None
    (tmp_path / "Python.h").touch()
    assert api._compiler() == "/usr/bin/cc"


@pytest.mark.parametrize("before", [None, "1"], ids=["not set", "set to the fused one"])
def test_variables_of_the_image_are_taken_away_the_gelu_is_every_recipes_and_the_result_says_both(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = fake_api("v2.20", world("v2.20"))
    whole = SimpleNamespace(__version__="2.20.2")
    named = {"": whole, ".pytorch": known.pytorch, ".common.recipe": known.recipe, ".pytorch.attention.rope": None}
    named[".pytorch.quantization"] = SimpleNamespace(FP8GlobalStateManager=known.manager)
    for name, module in named.items():
        monkeypatch.setitem(sys.modules, f"transformer_engine{name}", module)
    monkeypatch.setattr(os, "environ", {"CUBLAS_X": "3", "NVTE_DEBUG": "1", "NVTE_DPA_FP8_RECIPE": "F16", "CC": "cc"})
    if before:
        os.environ[api.OWN_GELU] = before
    for number in range(80):
        os.environ[f"CUDA_{number}"] = "x"
    found = device_of(api.load(), "", "", 0, GpuReadings()).environment
    assert found["left out"] == f"{21 + ('NVTE_TORCH_COMPILE' in os.environ)} more variables"
    assert found.pop("NVTE_TORCH_COMPILE", "0") == "0"
    assert (len(found), dict(list(found.items())[:4])) == (64 - ("NVTE_TORCH_COMPILE" in os.environ), {
        "NVTE_BIAS_GELU_NVFUSION": "0", "NVTE_DEBUG": "1", "CUBLAS_X": "3",
        "NVTE_DPA_FP8_RECIPE": "unset before Transformer Engine was imported; it was F16",
    })  # fmt: skip
    assert "NVTE_DPA_FP8_RECIPE" not in os.environ


def test_advice_to_install_flash_attn_is_not_told_and_anything_else_is(caplog: pytest.LogCaptureFixture) -> None:
    load()
    log = logging.getLogger("DotProductAttention")
    log.warning("flash-attn v3 may provide important feature support or performance improvement.")
    log.warning("Disabling all backends")
    assert caplog.messages == ["Disabling all backends"]
