"""Golden files: whole outputs that were looked at once and must not change unnoticed."""

import os
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """Compares `text` with tests/golden/`name`; with UPDATE_GOLDEN=1 writes it instead, to be read in the diff."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} differs: look at it, then run again with UPDATE_GOLDEN=1"


def beside(test: str) -> Any:
    """The tables of a test: the YAML file beside it that has its name; `test` is the __file__ of the test."""
    return yaml.load(Path(test).with_suffix(".yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
