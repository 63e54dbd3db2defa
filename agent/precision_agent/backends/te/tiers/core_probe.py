"""Does attention's core run in FP8 here? Asked of the prober's process, for the heads that the model has.

Which GPU, cuDNN, head size and window its FP8 attention takes Transformer Engine alone knows, and says in its log: so
it is run once forward and backward, and what it chose is read.
"""

import json
from typing import Any

import torch

from precision_agent.backends.te.api import Api
from precision_agent.backends.te.problem import Problem
from precision_agent.backends.te.session.engine import Engine
from precision_agent.backends.te.session.graphs import declined
from precision_agent.backends.te.sizes import Trial
from precision_agent.backends.te.steps import recipes
from precision_agent.backends.te.steps.attention_backend import backend, choosing, refusals
from precision_agent.backends.te.steps.modules import DTYPE, layer_plans
from precision_agent.precision.verification import IN_FP8
from precision_agent.protocol import Probe
from precision_api.exchange.request import AttentionCore

CORE_QUESTION = "core "


def core_question(problem: Problem) -> str | None:
    """What the prober's process is asked of the model's attention; None where its core stays in BF16."""
    if problem.attention_core is None:
        return None
    model, split = problem.model, problem.split
    words = layer_plans(model, split, Trial(1), problem.tokens)[0].keywords
    latent, window = model.latent_attention, model.sliding_window
    named = {
        "num_attention_heads": words["num_attention_heads"],
        "num_gqa_groups": words["num_attention_heads"] if latent else words["num_gqa_groups"],
        "kv_channels": (model.head_width, latent.value_head_dim if latent else model.head_width),
        "attn_mask_type": words["self_attn_mask_type"],
        "window_size": (window.size - 1, 0) if window and window.windowed_layers else None,
        "softmax_type": words.get("softmax_type", "vanilla"),
    }
    shape = (problem.sequence, problem.micro_batch)
    return CORE_QUESTION + json.dumps({"core": problem.attention_core, "shape": shape, "attention": named})


def run_core(api: Api, engine: Engine, question: str) -> dict[str, Any]:
    """Attention by itself, forward and backward: an error with its reasons where it is not cuDNN's in FP8."""
    asked = json.loads(question.removeprefix(CORE_QUESTION))
    versions = ", ".join(f"{name} {version}" for name, version in api.versions.items())
    where, error, is_declined = f"{torch.cuda.get_device_name(engine.device)}, {versions}", "", True
    available, reason = recipes.hint(api, asked["core"])
    if not available:
        return {"where": where, "refused": reason}
    with engine.stream(), choosing(api) as said:
        try:
            _attend(api, engine, asked["core"], asked["shape"], asked["attention"])
        except Exception as raised:  # whatever Transformer Engine raises is what the probe is for
            error, is_declined = f"{type(raised).__name__}: {raised}"[:500], declined(raised)
    if not error and backend(said) == IN_FP8:
        return {"where": where}
    reasons = "; ".join(line for line in refusals(said) if "FusedAttention" in line)
    return {"where": where, "refused" if is_declined else "error": reasons or error or f"it ran by {backend(said)}"}


def core_probe(question: str, code: int | None, stdout: str, stderr: str) -> Probe:
    """What the end of its process says: ok, or unsupported with GPU, versions, head size, window and the reason."""
    asked = json.loads(question.removeprefix(CORE_QUESTION))
    try:
        answer = json.loads(stdout)
    except ValueError:
        answer = {"error": f"its process ended with code {code}: {stderr[-300:]}"}
    widths, window = asked["attention"]["kv_channels"], asked["attention"]["window_size"]
    heads = " and ".join(map(str, dict.fromkeys(widths)))
    shape = f"heads of {heads}, {f'a window of {window[0] + 1}' if window else 'no window'}"
    title = f"attentionCore {asked['core']} ({answer.get('where', 'no answer')}, {shape})"
    if "refused" in answer:
        return Probe("unsupported", f"{title}: {answer['refused']}"[:1000])
    if "error" in answer:
        return Probe("probe_failed", f"{title}: {answer['error']}"[:1000])
    return Probe("ok", f"{title}: cuDNN's attention in FP8, forward and backward")


def _attend(api: Api, engine: Engine, core: AttentionCore, rows: list[int], named: dict[str, Any]) -> None:
    """ValueError where gradients are not finite."""
    widths, window = named["kv_channels"], named["window_size"]
    named |= {"kv_channels": tuple(widths), "window_size": window and tuple(window)}
    attention = api.pytorch.DotProductAttention(**named, attention_dropout=0.0, qkv_format="sbhd", layer_number=1)
    heads = ((named["num_attention_heads"], widths[0]), *((named["num_gqa_groups"], width) for width in widths))
    inputs = [torch.randn(*rows, *head, device=engine.device, dtype=DTYPE, requires_grad=True) for head in heads]
    with api.autocast(recipes.make_core(api, core)):
        y = attention(*inputs)
    y.backward(torch.randn_like(y))
    engine.synchronize()
    if not all(x.grad is not None and bool(torch.isfinite(x.grad).all()) for x in inputs):
        raise ValueError("its gradients are not finite")
