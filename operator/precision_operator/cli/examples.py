"""Examples that each command's help ends with, as kubectl's does. In the demo they can be pasted as they are."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

EXAMPLES: Mapping[str, Sequence[str]] = json.loads(files(__package__).joinpath("examples.json").read_text("utf-8"))
"""Name of the command -> complete command lines; names and files are those of `make demo` in a checkout."""


def epilog(command: str) -> str:
    """The examples as click shows them: a block whose lines are kept."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])
