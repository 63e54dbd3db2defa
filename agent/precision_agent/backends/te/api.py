"""Transformer Engine by one set of names, whatever its version; who lacks a name or a parameter is refused, by name."""

import importlib
import inspect
import json
import logging
import os
import re
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

OLDEST = (2, 8)
"""NVFP4's recipe, block scaling and delayed weight gradients are all there from 2.8 on."""
NEWEST_READ = (2, 20)
"""The newest version whose source was read. A newer one runs if its signatures take our calls."""

_CALLS = json.loads(files(__package__).joinpath("calls.json").read_text(encoding="utf-8"))
NEEDS: Mapping[str, Sequence[str]] = _CALLS["needs"]
"""Every call that the backend makes, with the parameters that it names. `autocast` is apart: its names changed."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """What a training step calls for one part of a model, by keyword; `since` is the first version that has it all."""

    since: str
    needs: Mapping[str, Sequence[str]]


STEP_PARTS: Mapping[str, StepPart] = {field: StepPart(**part) for field, part in _CALLS["parts"].items()}
"""By the model's field. Who lacks one of these has no training step of such a model; all else is measured."""

AUTOCASTS: tuple[tuple[str, str], ...] = (("autocast", "recipe"), ("fp8_autocast", "fp8_recipe"))
"""Context manager and its recipe's parameter, the newer name first (2.9 renamed it, both parameters with it)."""

KEPT = re.compile(r"NVTE_(CUDA_INCLUDE_DIR|DISABLE_NVRTC|FRAMEWORK|BUILD_.*|DEBUG.*|NVTX_ENABLED|PRINT_.*)")
"""Variables that may stay as they are: none changes precision, attention or which kernels run. Any other might."""
OWN_GELU = "NVTE_BIAS_GELU_NVFUSION"
"""Read when a layer is made; at 0 no MLP has its GELU compiled (2.8 to 2.20.2)."""

_STATE = (
    "quantization_state",
    "global_amax_buffer",
    "global_amax_history_buffer",
    "global_scale_buffer",
    "fp8_tensors_recompute_buffer",
    "autocast_arguments",
    "autocast_to_fp8_params",
    "fp8_param_to_autocast",
)
"""What FP8GlobalStateManager keeps of delayed modules: one object in newer versions, class attributes in older ones."""


class Unusable(Exception):
    """Transformer Engine can't be loaded or can't be called as we call it; the message quotes why."""


@dataclass(frozen=True, slots=True)
class Api:
    """The callables of one version. Modules are called by keyword, as `NEEDS` lists."""

    version: str
    pytorch: Any
    recipe: Any
    manager: Any
    autocast_name: str
    recipe_parameter: str
    unset: Mapping[str, str] = field(default_factory=dict)
    """What the environment had of Transformer Engine's variables before they were taken out of it."""

    def autocast(self, recipe: Any | None) -> AbstractContextManager[Any]:
        """Quantises in `recipe` within; None switches quantisation off, also within another autocast."""
        enter = getattr(self.pytorch, self.autocast_name)
        if recipe is None:
            return cast(AbstractContextManager[Any], enter(enabled=False))
        return cast(AbstractContextManager[Any], enter(enabled=True, **{self.recipe_parameter: recipe}))

    @property
    def versions(self) -> dict[str, str]:
        """Its own, and of the cuDNN that runs: torch's word and the package's were seen to be of another."""
        ask = getattr(getattr(self.pytorch, "utils", None), "get_cudnn_version", None)
        return {"transformer_engine": self.version} | ({"cudnn": ".".join(map(str, ask()))} if ask else {})

    def primary_weights(self, recipe: Any | None) -> AbstractContextManager[Any]:
        """Modules that are made within hold their weights in `recipe` alone; None: in BF16."""
        enter = getattr(self.pytorch, "quantized_model_init", None) or self.pytorch.fp8_model_init
        return cast(AbstractContextManager[Any], enter(enabled=recipe is not None, recipe=recipe))


@dataclass(slots=True)
class Owner:
    """The global state of one set of modules: delayed scaling updates those that it finds there, and no others."""

    api: Api
    _kept: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def present(self) -> Iterator[None]:
        """The state of these modules is the global one within: fresh at first, afterwards as it was left."""
        manager = self.api.manager
        if self._kept:
            for name, value in self._kept.items():
                setattr(manager, name, value)
        else:
            manager.reset()
        try:
            yield
        finally:
            self._kept = {name: getattr(manager, name) for name in _STATE if hasattr(manager, name)}


def general_gemm(api: Api) -> Callable[..., Any] | None:
    """The call, without the workspace that older versions want; None where a version has none that takes ours."""
    function: Callable[..., Any] | None = getattr(getattr(api.pytorch, "cpp_extensions", None), "general_gemm", None)
    if function is None:
        return None
    parameters = inspect.signature(function).parameters
    if not {"A", "B", "out_dtype", "layout", "grad", "use_split_accumulator"} <= set(parameters):
        return None
    if "workspace" in parameters:
        return partial(function, workspace=api.pytorch.module.base.get_workspace())
    return function


def version_of(text: str) -> tuple[int, int]:
    """Major and minor of a version such as `2.9.0+70f5366`; Unusable for anything else."""
    match = re.match(r"(\d+)\.(\d+)", text)
    if not match:
        raise Unusable(f"Transformer Engine tells version {text[:40]!r}, which is none")
    return int(match[1]), int(match[2])


def missing(offered: Mapping[str, inspect.Signature], needs: Mapping[str, Sequence[str]] = NEEDS) -> tuple[str, ...]:
    """What of `needs` these signatures lack: a symbol, or `symbol(parameter)`."""
    lacking = []
    for symbol, names in needs.items():
        signature = offered.get(symbol)
        if signature is None:
            lacking.append(symbol)
            continue
        lacking += [f"{symbol}({name})" for name in names if not _takes(signature, name)]
    return tuple(lacking)


def api_of(version: str, pytorch: Any, recipe: Any, manager: Any) -> Api:
    """The API of loaded modules; Unusable where it is too old or lacks a name or parameter that we use."""
    if version_of(version) < OLDEST:
        raise Unusable(f"Transformer Engine {version} is too old: 2.8 or newer is needed")
    names = next(((name, key) for name, key in AUTOCASTS if hasattr(pytorch, name)), None)
    if names is None:
        raise Unusable(f"Transformer Engine {version} has neither autocast nor fp8_autocast")
    lacking = missing(live_signatures(pytorch, recipe, manager))
    if lacking:
        cause = "newer than what this agent knows" if version_of(version) > NEWEST_READ else "not as its tag"
        raise Unusable(f"Transformer Engine {version} is {cause}: it lacks {', '.join(lacking[:8])}")
    return Api(version, pytorch, recipe, manager, *names)


def absent_part(api: Api, parts: Sequence[str]) -> str | None:
    """Why there is no training step of a model with these parts: the first one that this version lacks; else None."""
    for name in parts:
        part = STEP_PARTS[name]
        lacking = missing(live_signatures(api.pytorch, api.recipe, api.manager, part.needs), part.needs)
        if lacking:
            return (
                f"not_available({name}): Transformer Engine {api.version} lacks {', '.join(lacking[:4])}, which "
                f"{part.since} has; the GEMMs are measured"
            )
    return None


def live_signatures(
    pytorch: Any, recipe: Any, manager: Any, needs: Mapping[str, Sequence[str]] = NEEDS
) -> dict[str, inspect.Signature]:
    """The signatures of all of `needs` that are there, methods without self."""
    roots = {"pytorch": pytorch, "common": recipe, "quantization": manager}
    signatures = {}
    for symbol in needs:
        root, *path = symbol.split(".")
        if symbol.startswith("common.recipe."):
            path = path[1:]
        if "FP8GlobalStateManager" in path:
            root, path = "quantization", path[2:]
        place = roots[root]
        for name in path:
            owner, place = place, getattr(place, name, None)
        if place is None:
            continue
        signature = inspect.signature(place)
        if inspect.isclass(owner) and inspect.isfunction(place):
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        signatures[symbol] = signature
    return signatures


def load() -> Api:
    """Transformer Engine as installed; Unusable quotes the error where it can't be loaded.

    Its own variables are taken out of the environment first, but for `KEPT`: images set some, and recipes have defaults
    from others, when it is imported. Its plain GELU would be a function that torch compiles in bf16, and in bf16 alone:
    switched off (what runs in its place: `modules.GELU`). Its other small functions are compiled by torch, the same
    ones in every recipe; without a compiler they run as they are. The result's environment has all of that. What it
    advises on every start (to install flash-attn) is left unsaid: the result tells of attention that is not fused.
    """
    names = [name for name in os.environ if name.startswith("NVTE_") and not KEPT.fullmatch(name)]
    unset = {name: os.environ.pop(name) for name in names}
    os.environ[OWN_GELU] = "0"
    if not _compiler():
        os.environ["NVTE_TORCH_COMPILE"] = "0"
    logging.getLogger("DotProductAttention").addFilter(
        lambda record: "may provide important feature support" not in record.getMessage()
    )
    try:
        importlib.import_module("torch")  # first: Transformer Engine's library needs torch's to be there
        whole = importlib.import_module("transformer_engine")
        pytorch = importlib.import_module("transformer_engine.pytorch")
        recipe = importlib.import_module("transformer_engine.common.recipe")
        with suppress(ImportError):  # not exported; who lacks it has no latent attention
            importlib.import_module("transformer_engine.pytorch.attention.rope")
    except Exception as error:  # an import of native code fails in many ways: all of them mean that it isn't there
        raise Unusable(f"loading Transformer Engine: {type(error).__name__}: {error}"[:500]) from error
    version = getattr(whole, "__version__", None) or metadata.version("transformer_engine")
    return replace(api_of(str(version), pytorch, recipe, _manager()), unset=unset)


def _compiler() -> str | None:
    """The C compiler that Triton would take; None also without Python's header, which all that it compiles includes."""
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return None
    return os.environ.get("CC") or next(filter(None, map(shutil.which, ("gcc", "clang"))), None)


def _manager() -> Any:
    for name in ("quantization", "fp8"):
        try:
            module = importlib.import_module(f"transformer_engine.pytorch.{name}")
        except ModuleNotFoundError:
            continue
        if hasattr(module, "FP8GlobalStateManager"):
            return module.FP8GlobalStateManager
    raise Unusable("Transformer Engine has no FP8GlobalStateManager where 2.8 to 2.20 have it")


def _takes(signature: inspect.Signature, name: str) -> bool:
    """Whether a caller can pass `name` by keyword, by its own name and not through **kwargs."""
    parameter = signature.parameters.get(name)
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
