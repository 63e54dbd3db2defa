"""`python -m tests.rehearsal.activations FOLDER`: did every recipe's layers run one and the same activation?

FOLDER has the traces of a run (`--trace`). Transformer Engine's quick GELU is one function, which its kernels of every
recipe are made with, also those that quantise what it gives; a GELU that torch compiled, that ran as small kernels of
torch's, or that is a part of the GEMM, is another.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

OWN = re.compile(r"transformer_engine::(?:\w+::)*\w*<.*transformer_engine::(?:\w+::)*(d?q?gelu)<")
"""A kernel of Transformer Engine's that applies its GELU, or the derivative."""
FUSED = "cast_transpose_fusion_kernel"
"""The derivative, the bias' gradient, the cast and the transpose in one: delayed scaling's."""
COMPILED = re.compile(r"\btriton_|\btanh|_tanh", re.IGNORECASE)
"""What GELU's formula would be made of where torch compiles it, or runs it step by step."""


def activations(kernels: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Functions of Transformer Engine's that kernels apply, and kernels that are another's."""
    names = set(kernels)
    own = frozenset(found[1] for name in names if (found := OWN.search(name)))
    return own, tuple(sorted(name for name in names if COMPILED.search(name) and not OWN.search(name)))


def wrong(traces: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """What is not as it must be, by recipe: each one has both functions, and none of another."""
    told = []
    for recipe, kernels in sorted(traces.items()):
        own, others = activations(kernels)
        own |= {"dqgelu"} if any(FUSED in name for name in kernels) else set()
        if own != {"qgelu", "dqgelu"}:
            told.append(f"{recipe}: Transformer Engine's kernels apply {', '.join(sorted(own)) or 'no GELU'}")
        told += [f"{recipe}: another activation: {name[:120]}" for name in others]
    return tuple(told) or (() if traces else ("no trace",))


def kernels_of(trace: Path) -> list[str]:
    events = json.loads(trace.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "kernel"]


def main(arguments: Sequence[str]) -> int:
    """1 where two recipes run different activations."""
    files = sorted(Path(arguments[0]).glob("trace-*.json"))
    traces = {file.stem.removeprefix("trace-"): kernels_of(file) for file in files}
    told = wrong(traces)
    print("\n".join(told) or f"one GELU in {', '.join(traces)}: Transformer Engine's")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
