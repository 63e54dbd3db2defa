"""How well the planner's law of size holds published rates, with whole models, then (model, product) pairs left out.

    python -m benchmarks.sizes

The final hold-out was drawn and named before anything of the law of size was fitted. Earlier reviews and the laws of
recipes had read all rows: of those it is a test of the model that is left out, and no blind one.
"""

import json
import random
from pathlib import Path

from tests.support.published_rows import GOLDEN

SEED, SHARE = 1, 5
HELD_OUT = ("deepseek-v4-pro", "gpt-oss-20b", "llama3-8b", "nemotron4-340b")
"""One model in SHARE of tests/golden/multinode_rows.json, drawn by SEED."""


def drawn(path: Path = GOLDEN) -> tuple[str, ...]:
    """The draw of which HELD_OUT is the result."""
    models = sorted({row["model"] for row in json.loads(path.read_text())["rows"]})
    return tuple(sorted(random.Random(SEED).sample(models, round(len(models) / SHARE))))


if __name__ == "__main__":
    print(f"held out: {', '.join(HELD_OUT)}; drawn again: {', '.join(drawn())}")
