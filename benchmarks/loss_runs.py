"""Whether loss runs tell sound training from training that diverges, on a CPU.

    python -m benchmarks.loss_runs --sound 500 --wrong 100

Trains the loss runs' own model, with stand-ins in plain torch for Transformer Engine's modules, at widths of 64 to 512
(five sound runs at 2,048) and 2,048 to 8,192 tokens a step, for 50 steps, each run with its own seed. The agent's
learning rate is that of models 4,096 wide, and one in proportion to 1 / width is as usual for narrower ones (muP):
sound runs take either, wrong ones 30 times (--factor) the latter. Prints a line a run and what they come to; --first
goes on where another command was ended.
"""

import argparse
import math
from random import Random
from time import monotonic
from unittest import mock

import torch

from precision_agent.backends.te.problem import Problem
from precision_agent.backends.te.tiers import loss_runs
from precision_agent.method.learning import loss_run
from precision_agent.method.loss import source
from precision_agent.protocol import LossPlan
from precision_api.models.model import ModelSpec
from precision_api.models.shapes import WHOLE
from tests.support import te_fake

SEQUENCE, VOCABULARY, STEPS, WIDE, WIDTH = 256, 128, 50, 5, 2048
USUAL_WIDTH = 4096
"""Of models that are trained with the agent's learning rate."""
TOKENS = (2048, 4096, 8192)


def model(width: int) -> ModelSpec:
    """Two layers of this width."""
    return ModelSpec(
        hidden_size=width, intermediate_size=2 * width, num_attention_heads=width // 32, num_hidden_layers=2,
        vocab_size=VOCABULARY, gated_mlp=True,
    )  # fmt: skip


def times(_: te_fake.World, a: torch.Tensor, b: torch.Tensor, recipe: str) -> torch.Tensor:
    """a b^T of BF16 values, summed up in FP32 as a GPU does: three times as fast as the stand-in's own, in FP32."""
    assert (recipe, a.dtype, b.dtype) == ("bf16", torch.bfloat16, torch.bfloat16)
    return torch.nn.functional.linear(a, b)


def main() -> int:
    """One line a run; 1 where one was judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("sound", 500), ("wrong", 100), ("first", 0), ("steps", STEPS)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--factor", type=float, default=30.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    api, engine = te_fake.fakes("v2.20")[1:]
    counts: dict[tuple[str, str], int] = {}
    for kind, runs in (("sound", asked.sound), ("wrong", asked.wrong)):
        for number in range(asked.first, runs):
            chance = Random(f"{kind}/{number}")
            width = 64 * round(2 ** chance.uniform(0, 3))
            tokens = chance.choice(TOKENS)
            if kind == "sound" and number >= runs - WIDE:
                width, tokens = WIDTH, TOKENS[0]
            usual = USUAL_WIDTH / width
            factor = asked.factor * usual if kind == "wrong" else chance.choice((1.0, usual))
            problem = Problem(model(width), tokens // SEQUENCE, SEQUENCE, WHOLE, 1, "all", "bf16", number)
            began = monotonic()
            with (
                mock.patch.object(loss_runs, "MOST_TOKENS", TOKENS[-1]),
                mock.patch.object(te_fake, "_times", times),
            ):
                track = loss_runs.loss_run(api, engine, problem, "bf16", LossPlan(asked.steps, number, factor))
            judged = loss_run(number, source(VOCABULARY, number), VOCABULARY, track.loss, track.gradient_norm)
            last = track.loss[-1] if math.isfinite(track.loss[-1]) else math.nan
            print(
                f"{kind} {number}: width {width}, {tokens} tokens, rate x {factor:.0f}, "
                f"loss {track.loss[0]:.2f} to {last:.2f}: "
                f"{judged.verdict} {judged.reason or ''} {judged.diverged_step or ''} ({monotonic() - began:.0f} s)",
                flush=True,
            )
            counts[kind, judged.verdict or ""] = counts.get((kind, judged.verdict or ""), 0) + 1
    print(", ".join(f"{kind} {verdict}: {count}" for (kind, verdict), count in sorted(counts.items())))
    bad = [key for key in counts if (key[0] == "sound") == (key[1] == "diverged")]
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
