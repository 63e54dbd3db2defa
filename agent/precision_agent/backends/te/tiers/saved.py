"""Bytes that quantising modules keep for their backward pass: of an element of what their GEMMs multiply."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.modules import DTYPE
from precision_api.exchange.result import SavedBytes
from precision_api.facts.recipes import RECIPES

FORMAT_BYTES = {call.quantizer: RECIPES[recipe].operand_bytes for recipe, call in recipes.CALLS.items() if call}
"""Of an element with its scale, by the class of the input's quantizer."""


def saved_by(modules: Mapping[str, Any], forward: Callable[[bool], object]) -> tuple[SavedBytes, ...]:
    """What each module with weights that quantises keeps of a call of `forward`, told whether weights are new to it.

    Each call must have an input of its own: what two calls have in common is the weight's, the rest is the module's.
    """
    watched = {it: name for name, it in modules.items() if recipes.quantizers(it) and [*it.parameters(recurse=False)]}
    calls: list[dict[Any, dict[int, tuple[int, int]]]] = []  # by module and address: bytes, and those of an element
    elements, called = dict[Any, int](), list[Any]()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        parts = [tensor] if has_own_storage(tensor) else [*filter(torch.is_tensor, vars(tensor).values())]
        for part in filter(has_own_storage, parts):
            if size := part.untyped_storage().nbytes():
                calls[-1][called[-1]][part.untyped_storage().data_ptr()] = (size, part.element_size())
        return tensor

    saving = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def enter(module: Any, inputs: tuple[Any, ...]) -> None:
        if module in watched:
            width, second = inputs[0].shape[-1], getattr(module, "fc2_weight", None)  # LayerNormMLP has two GEMMs
            elements[module] = inputs[0].numel() // width * (width + (0 if second is None else second.shape[-1]))
            called.append(module)
            saving.__enter__()

    def leave(module: Any, *_: object) -> None:
        if module in watched:
            saving.__exit__()

    outputs = list[object]()  # what a call keeps lives as long as its output
    with register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True):
        for first in (True, False):
            calls.append({module: {} for module in watched})
            outputs.append(forward(first))
    weights, both = calls
    tensors = {it: [row for place, row in both[it].items() if place not in weights[it]] for it in elements}
    return tuple(_judged(watched[it], it, rows, elements[it]) for it, rows in tensors.items() if rows)


def _judged(name: str, module: Any, tensors: list[tuple[int, int]], elements: int) -> SavedBytes:
    """Two-byte tensors (a norm's input, an activation's) count only as far as operands are kept in no other format."""
    of_format = FORMAT_BYTES[type(recipes.quantizers(module)["input"]).__name__]
    plain = sum(size for size, width in tensors if width == DTYPE.itemsize)
    quantized = sum(size for size, _ in tensors) - plain
    kept = quantized + min(plain, DTYPE.itemsize * max(0.0, elements - quantized / of_format))
    return SavedBytes(module=name[-64:], kind=type(module).__name__, kept=round(kept / elements, 4), format=of_format)


def has_own_storage(tensor: torch.Tensor) -> bool:
    """Whether bytes lie behind this tensor itself.

    A weight that is kept quantised between calls is saved as a subclass of torch.Tensor that only wraps its parts:
    asking its storage where it lies is an error. What a call quantises for itself newer versions save by parts, older
    ones (2.10) wrapped, too.
    """
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)
